"""`dprepro selftest`: it passes here, and each of its checks fails when what it looks at is broken."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import importlib.metadata
import json
import math
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest

from dprepro import datasets, geometry, selftest
from dprepro.algorithms import get_algorithm, objective_perturbation
from dprepro.arrays import get_backend, strict_backend
from dprepro.cli import main
from dprepro.datasets import adult, sources
from dprepro.privacy.mechanisms import GaussianMechanism
from dprepro.problems import near_stationarity, optimum
from dprepro.run import Execution
from dprepro.selftest import AUDITED, MINIMA, SEEDED_RUNS, Check, CheckFailed, Outcome
from dprepro.streams import Streams

PAPERS = ["WYX17", "BGM21", "ABG23", "KLT25"]


def outcome_of(name: str, device: str = "auto") -> Outcome:
    (check,) = [check for check in selftest.checks(device) if check.name == name]
    (outcome,) = selftest.outcomes([check])
    return outcome


def assert_fails(name: str, *parts: str, device: str = "auto") -> None:
    outcome = outcome_of(name, device)
    assert not outcome.ok, outcome
    assert "\n" not in outcome.seen
    for part in parts:
        assert part in outcome.seen


@pytest.fixture(scope="module")
def whole() -> list[Outcome]:
    return list(selftest.outcomes(selftest.checks("cpu")))


def test_every_check_passes_here_and_together_they_take_less_than_two_minutes(whole):
    assert [outcome for outcome in whole if not outcome.ok] == []
    assert sum(outcome.seconds for outcome in whole) < 120.0


def test_every_paper_has_a_minimum_and_a_seeded_run_and_an_audit():
    assert [case.paper for case in MINIMA] == PAPERS
    assert [case.paper for case in SEEDED_RUNS] == PAPERS
    assert [get_algorithm(case.algorithm).paper for case in (*MINIMA, *SEEDED_RUNS)] == 2 * PAPERS
    assert [get_algorithm(name).paper for name in AUDITED] == PAPERS


def test_every_dataset_with_a_recorded_checksum_is_looked_at(whole):
    looked_at = {outcome.name.removeprefix("data: ") for outcome in whole if outcome.name.startswith("data: ")}
    assert looked_at == {"covertype", "adult", "breast_cancer", "digits", "diabetes"}


# --- the command ------------------------------------------------------------------------------------------------


def use_checks(monkeypatch, *looks):
    monkeypatch.setattr(
        selftest, "checks", lambda device: [Check(f"check {k}", look) for k, look in enumerate(looks, start=1)]
    )


def broken() -> str:
    raise ValueError("this is\nbroken")


def test_a_check_that_raises_is_told_in_one_line_and_the_others_go_on(monkeypatch, capsys):
    use_checks(monkeypatch, lambda: "fine", broken, lambda: "fine too")
    assert main(["selftest"]) == 1
    out, err = capsys.readouterr()
    assert [line.split(None, 1)[0] for line in out.splitlines()] == ["ok", "FAILED", "ok"]
    assert "ValueError: this is broken (0.0 s)" in out
    assert "1 of 3 checks failed (check 2)" in err
    assert "Traceback" not in err


def test_success_ends_with_code_0_and_a_closing_line(monkeypatch, capsys):
    use_checks(monkeypatch, lambda: "fine")
    assert main(["selftest"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first == "ok      check 1                             fine (0.0 s)"
    assert last == "All 1 checks passed in 0 s."


def test_json_has_every_check_and_the_same_exit_code(monkeypatch, capsys):
    use_checks(monkeypatch, lambda: "fine", broken)
    assert main(["selftest", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["ok"] is False
    assert [(check["name"], check["ok"]) for check in record["checks"]] == [("check 1", True), ("check 2", False)]
    assert record["seconds"] == pytest.approx(sum(check["seconds"] for check in record["checks"]))


def test_a_machine_without_a_package_is_told_so_without_a_traceback():
    program = "import sys; sys.modules['scipy'] = None; from dprepro.cli import main; sys.exit(main(['selftest']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "A package that dprepro needs cannot be imported" in done.stderr


def test_an_unknown_device_is_bad_input(capsys):
    assert main(["selftest", "--device", "tpu"]) == 2
    assert "Unknown device 'tpu'" in capsys.readouterr().err


# --- environment ------------------------------------------------------------------------------------------------


def test_an_old_package_and_a_missing_one_are_seen(monkeypatch):
    installed = importlib.metadata.version
    changed = {"scipy": "1.2.0"}

    def version(name):
        if name == "pooch":
            raise importlib.metadata.PackageNotFoundError(name)
        return changed.get(name) or installed(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert_fails("environment: Python and packages", "scipy 1.2.0 (wanted >=1.13)", "pooch missing (wanted >=1.8)")


def test_an_old_python_is_seen(monkeypatch):
    monkeypatch.setattr(selftest.platform, "python_version", lambda: "3.10.1")
    assert_fails("environment: Python and packages", "Python 3.10.1 (wanted >=3.11)")


def test_a_package_that_only_an_extra_wants_may_be_missing():
    assert importlib.metadata.requires("dprepro")
    assert selftest._version("cupy-cuda12x") is None
    assert outcome_of("environment: Python and packages").ok


def test_blas_with_more_threads_than_asked_for_is_seen(monkeypatch):
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [{"user_api": "blas", "num_threads": 4}])
    assert_fails("environment: BLAS threads", "BLAS runs 4 threads")


def test_a_cache_folder_that_cannot_be_written_is_seen(monkeypatch, tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert_fails("environment: cache folder", "cannot be written", "set DPREPRO_CACHE_DIR")


# --- data -------------------------------------------------------------------------------------------------------


def test_a_changed_data_file_is_seen(monkeypatch, tmp_path: Path):
    genuine = gzip.decompress((sources.EMBEDDED / "adult.data.gz").read_bytes())
    (tmp_path / "adult.data.gz").write_bytes(gzip.compress(genuine.replace(b"Bachelors", b"Masters", 1)))
    monkeypatch.setenv("DPREPRO_DATA_DIR", str(tmp_path))
    assert_fails("data: adult", "is not the genuine adult.data.gz")


def test_another_recorded_checksum_is_seen(monkeypatch):
    train, test = adult.SPLITS["train"], adult.SPLITS["test"]
    wrong = tuple(dataclasses.replace(form, sha256="0" * 64) for form in test)
    monkeypatch.setattr(adult, "SPLITS", {"train": train, "test": wrong})
    assert_fails("data: adult", "is not the genuine adult.test.gz")
    monkeypatch.setitem(datasets.info("digits").sha256, "data", "0" * 64)
    assert_fails("data: digits", "is not the known one")


def test_a_missing_data_file_is_not_downloaded(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DPREPRO_OFFLINE", raising=False)
    monkeypatch.setattr(sources.fetch, "__kwdefaults__", {**sources.fetch.__kwdefaults__, "embedded": tmp_path})
    assert_fails("data: adult", "adult.data", "DPREPRO_DATA_DIR")
    assert "DPREPRO_OFFLINE" not in selftest.os.environ


# --- known answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "delta", "epsilon"), selftest.GAUSSIAN_EPSILONS)
def test_the_tabulated_epsilons_solve_their_equation_in_forty_digits(mu, delta, epsilon):
    with mpmath.workdps(40):
        mu, delta = mpmath.mpf(str(mu)), mpmath.mpf(str(delta))

        def excess(e):
            return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu) - delta

        exact = mpmath.findroot(excess, (epsilon * 0.999, epsilon * 1.001), solver="anderson")
    assert epsilon == pytest.approx(float(exact), rel=1e-15)


@pytest.mark.parametrize("factor", [1.0 + 1e-10, math.nan])
def test_an_accountant_that_is_off_is_seen(monkeypatch, factor):
    original = selftest.gaussian_epsilon
    monkeypatch.setattr(selftest, "gaussian_epsilon", lambda mu, delta: original(mu, delta) * factor)
    assert_fails("known answer: Gaussian epsilon", "at mu = 0.1")


def test_another_generator_is_seen(monkeypatch):
    monkeypatch.setattr(np.random, "Philox", np.random.PCG64)
    assert not outcome_of("known answer: words of Philox").ok


def test_streams_that_are_shifted_by_a_word_are_seen(monkeypatch):
    original = Streams.integers
    monkeypatch.setattr(Streams, "integers", lambda self, first, steps, n: original(self, first + 1, steps, n))
    assert_fails("known answer: words of Philox", "a stream gives")


@pytest.mark.parametrize("case", MINIMA, ids=lambda case: case.algorithm)
def test_a_gradient_that_is_turned_a_little_misses_the_minimum(case, monkeypatch):
    """The labels that the loss sees are moved by 0.2, as a wrong derivative would do."""
    kind = type(case.risk().spec.loss)
    original = kind.core
    monkeypatch.setattr(kind, "core", lambda self, xp, s, y: original(self, xp, s, y - 0.2))
    if case.algorithm == "o2nc_multi_pass":
        # It looks at values alone.
        value = kind.value
        monkeypatch.setattr(kind, "value", lambda self, xp, t, y: value(self, xp, t, y - 0.2))
        monkeypatch.setattr(selftest, "execute", judged_by(value, kind, monkeypatch))
    assert_fails(f"minimum: {case.algorithm}", "from the minimum")


def judged_by(value, kind, monkeypatch):
    """Return `execute` that runs with the values of now and judges the end by those of before."""
    original = selftest.execute

    def execute(plan, problem, **options):
        result = original(plan, problem, **options)
        monkeypatch.setattr(kind, "value", value)
        return dataclasses.replace(result, final_objective=problem.objective(result.w))

    return execute


TOO_TIGHT = {
    "solver: Newton's method": (optimum, "_NEWTON_STEPS", 0, "was found only to"),
    "solver: accelerated": (optimum, "_FISTA_STEPS", 2, "was found only to"),
    "solver: linear program": (optimum, "KINK_TOLERANCE", -1.0, "by linear program"),
    "solver: envelopes": (optimum, "KINK_TOLERANCE", 1e-18, "by envelopes"),
    "solver: perturbed objectives": (objective_perturbation, "TOLERANCE", 1e-15, "did not reach the minimiser"),
    "solver: projection onto a polytope": (geometry, "_WOLFE_STEPS", 1, "not to 1e-06"),
    "solver: proximal points": (near_stationarity, "ACCURACY", 1e-18, "were found to"),
}


@pytest.mark.parametrize("name", TOO_TIGHT)
def test_a_tolerance_that_no_machine_meets_and_steps_that_do_not_do_are_seen(name, monkeypatch):
    module, constant, value, said = TOO_TIGHT[name]
    monkeypatch.setattr(module, constant, value)
    assert_fails(name, said)


def test_every_solver_that_may_not_end_is_looked_at(whole):
    assert {outcome.name for outcome in whole if outcome.name.startswith("solver: ")} == set(TOO_TIGHT)


def test_perturbed_objectives_are_those_of_both_noises_and_methods(monkeypatch):
    seen = set()
    original = selftest.execute

    def execute(plan, problem, *, seed, **options):
        seen.add((plan.noise, plan.method, problem.backend.dtype_name, seed))
        return original(plan, problem, seed=seed, **options)

    monkeypatch.setattr(selftest, "execute", execute)
    assert outcome_of("solver: perturbed objectives").ok
    ways = {("gaussian", "newton"), ("gamma", "newton"), ("gaussian", "accelerated")}
    assert {(noise, method) for noise, method, *_ in seen} == ways
    assert {(*way, "float32", seed) for way in ways for seed in range(5)} <= seen


def test_single_precision_on_the_way_to_a_minimiser_is_seen(monkeypatch):
    monkeypatch.setattr(Execution, "in_double", lambda self: contextlib.nullcontext())
    monkeypatch.setattr(Execution, "double", lambda self, values: values)
    assert_fails("solver: perturbed objectives", "did not reach the minimiser")


@pytest.mark.parametrize("case", SEEDED_RUNS, ids=lambda case: case.algorithm)
def test_a_seeded_run_is_met_where_noise_is_rounded_otherwise_but_not_with_other_noise(case, monkeypatch):
    """Every normal number moved by its last bit, up or down: what another machine's cosine could do."""
    original = Streams.normals
    rng = np.random.default_rng(0)

    def rounded(self, *arguments):
        block = original(self, *arguments)
        return np.nextafter(block, np.where(rng.random(block.shape) < 0.5, -np.inf, np.inf).astype(np.float32))

    monkeypatch.setattr(Streams, "normals", rounded)
    assert selftest.check_seeded_run(case).endswith("as recorded")
    monkeypatch.setattr(Streams, "normals", lambda self, *arguments: np.float32(1.01) * original(self, *arguments))
    with pytest.raises(CheckFailed, match="recorded is"):
        selftest.check_seeded_run(case)


@pytest.mark.parametrize("case", SEEDED_RUNS, ids=lambda case: case.algorithm)
def test_an_accounted_epsilon_that_is_off_by_two_percent_is_seen(case, monkeypatch):
    original = selftest.certify

    def certify(plan):
        certificate = original(plan)
        return {**certificate, "epsilon_accounted": 1.02 * certificate["epsilon_accounted"]}

    monkeypatch.setattr(selftest, "certify", certify)
    assert_fails(f"seeded run: {case.algorithm}", "is accounted, recorded is")


# --- audits -----------------------------------------------------------------------------------------------------


def test_an_audit_of_noise_that_is_too_small_fails(monkeypatch):
    original = GaussianMechanism._noise_block
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 0.5 * original(self, *block))
    assert_fails("audit: dp_gd", "the accountant is wrong")


def test_an_audit_that_proves_next_to_nothing_fails(monkeypatch):
    original = GaussianMechanism._noise_block
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 5.0 * original(self, *block))
    assert_fails("audit: dp_gd", "the attack proves only")


def test_a_planted_bug_that_is_not_caught_is_a_failure(monkeypatch):
    original = GaussianMechanism._noise_block
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 2.0 * original(self, *block))
    assert_fails("audit: half of the noise left out", "not caught")


def test_noise_is_calibrated_anew_and_the_users_cache_is_left_alone(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))
    assert outcome_of("audit: spiderboost").ok
    assert list(tmp_path.iterdir()) == []


# --- backend ----------------------------------------------------------------------------------------------------


def test_a_replicate_that_depends_on_its_company_is_seen(monkeypatch):
    original = selftest.execute

    def execute(plan, problem, *, seed, replicates):
        result = original(plan, problem, seed=seed, replicates=replicates)
        return dataclasses.replace(result, w=result.w * (1.0 + 1e-16 * 3 * len(result.w)))

    monkeypatch.setattr(selftest, "execute", execute)
    assert_fails("backend: replicates in company", "differs from replicate 3 alone")


def test_single_precision_that_is_too_rough_is_seen(monkeypatch):
    monkeypatch.setattr(selftest, "SINGLE_TOLERANCE", 1e-9)
    assert_fails("backend: single precision", "away from float64")


def test_no_gpu_is_said_plainly_and_is_a_failure_only_if_one_was_asked_for(monkeypatch):
    monkeypatch.delenv("DPREPRO_DEVICE", raising=False)
    monkeypatch.setattr(selftest, "gpu_problem", lambda: "there is none")
    monkeypatch.setattr("dprepro.arrays.gpu_problem", lambda: "there is none")
    for name in ("backend: GPU", "backend: GPU kernels"):
        monkeypatch.delenv("DPREPRO_DEVICE", raising=False)
        assert outcome_of(name).seen == "none is used: there is none"
        assert outcome_of(name, device="cpu").ok
        assert_fails(name, "A GPU was asked for by the argument, but there is none", device="gpu")
        monkeypatch.setenv("DPREPRO_DEVICE", "gpu")
        assert_fails(name, "asked for by DPREPRO_DEVICE")


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.001, False)])
def test_a_second_device_must_agree(monkeypatch, factor, agrees):
    """In place of a GPU: the second device of array-api-strict, once with its noise and once with a little more."""
    original = GaussianMechanism._noise_block

    def noise(self, *block):
        return original(self, *block) * (1.0 if self._slots.backend.name == "numpy" else factor)

    monkeypatch.setattr(GaussianMechanism, "_noise_block", noise)
    monkeypatch.delenv("DPREPRO_DEVICE", raising=False)
    monkeypatch.setattr(selftest, "gpu_problem", lambda: "")
    other = strict_backend("float64")
    monkeypatch.setattr(
        selftest, "get_backend", lambda device, dtype: get_backend(device, dtype) if device == "cpu" else other
    )
    outcome = outcome_of("backend: GPU")
    assert outcome.ok is agrees
    assert ("CuPy is" if agrees else "the GPU is") in outcome.seen
