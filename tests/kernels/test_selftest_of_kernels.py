"""What `dprepro selftest --device gpu` says of kernels: all is well for the real ones, and each changed one is found.

The kernels are compiled for the CPU. A changed one is used in one precision only, so that each is seen to be looked at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from host import HostLauncher, signatures, source

from dprepro import selftest
from dprepro.arrays import DTYPES, get_backend
from dprepro.errors import UserError
from dprepro.kernels import GRADIENT, NOISE, SELECTION, STEPS, TREE, Kernels
from dprepro.selftest import KERNEL_CASES, Check, CheckFailed

REAL = {"float64": "double", "float32": "float"}
CHANGES = [
    ("noise", "first_pair * d / 4;", "first_pair * d / 4 + 1;"),
    ("full gradient", "chunk < chunks; ++chunk", "chunk < chunks - 1; ++chunk"),
    ("full gradient", "tanh((REAL)0.5 * product)", "tanh((REAL)0.501 * product)"),
    ("steps of SGD", "averaged <= 1", "averaged <= 2"),
    ("steps of SVRG", "if (length > clip) turn *= clip / length;", ""),
    ("noisy maximum", "centred > 0.0 ? size : -size", "size"),
    ("tree noise", "step % 2 ? pair.odd : pair.even", "pair.even"),
]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):
    """Take kernels with a launcher for those of a GPU."""

    def use(launch) -> None:
        def backend(device, dtype):
            host = get_backend("cpu", dtype)
            return host if device == "cpu" else replace(host, kernels=Kernels(launch, np, None))

        monkeypatch.setattr(selftest, "get_backend", backend)
        monkeypatch.delenv("DPREPRO_DEVICE", raising=False)

    return use


def seen() -> selftest.Outcome:
    (outcome,) = selftest.outcomes([Check("kernels", lambda: selftest.check_kernels("gpu"))])
    return outcome


@pytest.mark.parametrize("lanes", ["one_lane", "warp"])
def test_the_real_kernels_pass_and_every_one_of_the_source_is_launched_in_both_precisions(lanes, use, request):
    launched = set()
    inner = request.getfixturevalue(lanes)._run

    def launch(name, real, *rest):
        launched.add((name, real))
        inner(name, real, *rest)

    use(launch)
    outcome = seen()
    assert outcome.ok, outcome.seen
    assert outcome.seen.startswith(
        "noise, full gradient, steps of SGD, steps of SVRG, noisy maximum, tree noise: at most"
    )
    # Words have no precision.
    expected = {(name, real) for name in signatures(source()) for real in REAL.values()} - {("words", "double")}
    assert launched == expected


def test_every_kind_of_work_that_kernels_do_is_looked_at():
    assert {case.work for case in KERNEL_CASES} == {NOISE, GRADIENT, STEPS, SELECTION, TREE}
    assert {name for name, _, _ in CHANGES} == {case.name for case in KERNEL_CASES}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "printed", "changed"), CHANGES, ids=[f"{name}: {text}" for name, _, text in CHANGES])
def test_a_changed_kernel_is_found_and_named_with_its_precision(dtype, name, printed, changed, use, one_lane, tmp_path):
    assert source().count(printed) == 1
    mutant = HostLauncher(tmp_path, 1, source().replace(printed, changed))

    def launch(kernel, real, *rest):
        (mutant if real == REAL[dtype] else one_lane._run)(kernel, real, *rest)

    use(launch)
    with pytest.raises(CheckFailed, match=rf"^{name} in {dtype} is .* away from NumPy, allowed is"):
        selftest.check_kernels("gpu")


def test_another_generator_is_found(use, tmp_path):
    use(HostLauncher(tmp_path, 1, source().replace("round < 10", "round < 9")))
    with pytest.raises(UserError, match="other random words"):
        selftest.check_kernels("gpu")


def test_work_that_no_kernel_does_is_no_proof_of_it(use, one_lane, monkeypatch):
    use(one_lane._run)
    monkeypatch.setattr("dprepro.problems.erm.EmpiricalRisk._obstacle_to_gradients", lambda self: "none of them")
    outcome = seen()
    assert not outcome.ok
    assert outcome.seen == "full gradient in float64 was not done by a kernel: array operations: none of them"
