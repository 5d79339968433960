"""The engine with kernels: it uses them where they apply, says so, and comes to the results of array operations.

The kernels are compiled for the CPU where there is no GPU: the engine takes the same way through the same Python code.
"""

from __future__ import annotations

import numpy as np
import pytest
from support import make_problem, rows

import dprepro
from dprepro import arrays
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend
from dprepro.errors import UserError
from dprepro.kernels import GRADIENT, NOISE, SELECTION, STEPS, TREE, Kernels
from dprepro.run import execute

KERNEL = "kernel"


@pytest.fixture(params=["host", pytest.param("gpu", marks=pytest.mark.gpu)])
def accelerated(request):
    """A backend with kernels, compiled for the CPU or on a GPU: the same runs on both."""
    if request.param == "host":
        return request.getfixturevalue("fused")
    if problem := arrays.gpu_problem():
        pytest.skip(problem)
    return get_backend("gpu", "float64")


N, D = 90, 6


def ran(backend, name, letters, variant="published", **problem):
    risk = make_problem(n=N, d=D, backend=backend, **problem)
    plan = get_algorithm(name).plan(Setting(risk.spec, 2.0, 1e-3, variant), **letters)
    return execute(plan, risk, seed=3, replicates=[0, 1, 5], tile=8)


def assert_same(found, expected, tolerance=1e-4):
    """Equal up to the rounding of the noise, at every checkpoint; what is counted is exactly equal."""
    np.testing.assert_array_equal(found.rounds, expected.rounds)
    np.testing.assert_array_equal(found.gradient_evaluations, expected.gradient_evaluations)
    assert np.ptp(expected.objective) > 1e-3, "the run goes somewhere"
    scale = 1.0 + np.max(np.abs(expected.w))
    np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=tolerance, atol=tolerance)


BOUNDED = {"regularizer": 0.0, "constraint": "l1_ball:2"}


@pytest.mark.parametrize(
    ("name", "letters", "problem", "by_kernel"),
    [
        ("dp_gd", {"T": 40}, {}, {GRADIENT, NOISE}),
        ("dp_sgd", {"T": 300}, {}, {STEPS}),
        ("dp_sgd", {"T": 300, "output": "mean", "eta": 0.05}, {"regularizer": 0.0}, {STEPS}),
        ("dp_sgd", {"T": 301, "output": "suffix", "eta": 0.05}, {}, {STEPS}),
        ("dp_svrg", {"T": 3, "m": 150, "eta": 0.05}, {}, {STEPS, GRADIENT}),
        ("dp_svrg", {"T": 3, "m": 50, "eta": 0.05, "step": "bb", "r": 0.05}, {}, {STEPS, GRADIENT}),
        ("dp_svrg_pp", {"T": 3, "m": 21, "eta": 0.05}, {"regularizer": 0.0}, {STEPS, GRADIENT}),
        ("noisy_frank_wolfe", {"T": 20}, BOUNDED, {SELECTION, GRADIENT}),
        ("noisy_frank_wolfe", {"T": 20, "noise": "gumbel"}, BOUNDED, {SELECTION, GRADIENT}),
        ("spiderboost", {"T": 12, "q": 4}, {"regularizer": 0.0}, {NOISE, GRADIENT}),
    ],
)
def test_a_run_with_kernels_is_the_run_without_up_to_rounding(accelerated, name, letters, problem, by_kernel):
    found, expected = ran(accelerated, name, letters, **problem), ran(None, name, letters, **problem)
    assert_same(found, expected)
    assert {work for work, how in found.kernels.items() if how == KERNEL} == by_kernel
    assert expected.kernels == {}
    assert expected.circumstances == {}


def test_the_noise_of_trees_comes_from_a_kernel(accelerated):
    results = []
    for backend in (accelerated, None):
        risk = make_problem(regularizer=0.0, backend=backend, data=rows(400, 3))
        plan = get_algorithm("o2nc_first_order").plan(Setting(risk.spec, 50.0, 1e-3, "practical"))
        results.append(execute(plan, risk, seed=3, replicates=[0, 1], tile=8))
    assert_same(*results)
    assert results[0].kernels[TREE] == KERNEL


@pytest.mark.parametrize(
    ("name", "letters", "problem", "work", "reason"),
    [
        ("dp_gd", {"T": 10}, {"loss": "huber:1"}, GRADIENT, "the loss huber"),
        ("dp_sgd", {"T": 60}, {"loss": "logistic_as_printed"}, STEPS, "the loss logistic_as_printed"),
        ("dp_sgd", {"T": 60}, {"constraint": "l2_ball:1"}, STEPS, "an l1 term or a constraint"),
        ("dp_sgd", {"T": 60, "eta": 0.1}, {"regularizer": {"l1": 0.01}}, STEPS, "an l1 term or a constraint"),
        ("dp_sgd", {"T": 60, "b": 3}, {}, STEPS, "batches other than of one record"),
        ("dp_sgd", {"T": 60, "sampling": "poisson"}, {}, STEPS, "batches other than of one record"),
        ("dp_sgd", {"T": 30, "b": 3, "sampling": "once"}, {}, STEPS, "records in their order"),
        ("dp_sgd", {"T": 60, "output": "uniform"}, {}, STEPS, "a uniform output"),
        ("dp_svrg", {"T": 2, "m": 30, "eta": 0.05, "b": 2}, {}, STEPS, "batches other than of one record"),
    ],
)
def test_what_kernels_do_not_cover_is_left_to_array_operations_and_noted(
    accelerated, name, letters, problem, work, reason
):
    found, expected = ran(accelerated, name, letters, **problem), ran(None, name, letters, **problem)
    assert found.kernels[work] == f"array operations: {reason}"
    assert_same(found, expected)


def test_features_beyond_a_block_s_memory_are_left_to_array_operations(fused):
    """The gradient has room for 122 features in double precision and for 250 in single precision."""
    obstacles = {}
    for dtype in ("float64", "float32"):
        backend = fused.with_dtype(dtype)
        for d in (122, 123, 250, 251, 6144, 6145):
            problem = make_problem(n=3, d=d, backend=backend)
            obstacles[dtype, d] = (problem._obstacle_to_gradients(), problem.obstacle_to_steps())
    covered = [case for case, (gradient, _) in obstacles.items() if not gradient]
    assert covered == [("float64", 122), ("float32", 122), ("float32", 123), ("float32", 250)]
    assert "6145 features" in obstacles["float32", 6145][1]
    assert obstacles["float64", 6144][1] == ""


def test_what_a_kernel_and_array_operations_both_did_is_noted_as_both(one_lane):
    """As for a run in single precision with 200 features that is judged in double precision."""
    one_lane.paths.clear()
    assert [one_lane.allowed("work", obstacle) for obstacle in ("", "too long", "", "too long")] == [True, False] * 2
    assert one_lane.paths == {"work": "kernel; array operations: too long"}


def test_populations_are_left_to_array_operations(fused):
    """Their atoms have weights."""
    from dprepro.problems.population import PopulationRisk

    plain = make_problem(n=20, d=3)
    weights = np.full(20, 1 / 20)
    X, y = rows(20, 3)
    found = PopulationRisk(plain.spec, X, y, weights, fused)
    assert found._obstacle_to_gradients() == "weighted records"
    assert found.obstacle_to_steps() == "records are not stored one by one"
    np.testing.assert_allclose(found.gradient(np.ones((2, 3))), plain.gradient(np.ones((2, 3))), atol=1e-12)


def test_a_planned_release_in_a_kernel_is_counted_as_any_other(fused):
    from dprepro.errors import LedgerMismatch
    from dprepro.privacy.events import GaussianEvent, QueryPart
    from dprepro.privacy.mechanisms import Ledger

    ledger = Ledger((GaussianEvent("step", 1.0, (QueryPart(1.0, 1, 9),), 5),), 2, 0, [0], fused)
    ledger.gaussian("step").handed_over(3)
    with pytest.raises(LedgerMismatch, match="drew"):
        ledger.check()
    ledger.gaussian("step").handed_over(2)
    ledger.check(sampled=True)
    with pytest.raises(LedgerMismatch, match="planned for 5 releases, but 6"):
        ledger.gaussian("step").handed_over(1)


def test_an_audit_sees_every_step_although_there_are_kernels(fused):
    from dprepro.privacy.audit import side_scores

    fused.kernels.paths.clear()
    for name in ("dp_sgd", "dp_svrg"):
        algorithm = get_algorithm(name)
        case = algorithm.audit_case()
        letters = {**case.letters_of("certified"), "b": 1}
        plan = algorithm.plan(Setting(case.spec, 2.0, 1e-3, "certified"), **letters)
        scores = [
            side_scores(algorithm, plan, case, case.rows, seed=1, replicates=70, backend=backend)
            for backend in (fused, get_backend("cpu", "float64"))
        ]
        assert fused.kernels.paths.pop(STEPS) == "array operations: an audit sees every step"
        np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


def test_the_provenance_says_what_kernels_did(fused, monkeypatch):
    X, y = rows(200, 4)
    options = {"regularizer": 0.1, "epsilon": 1.0, "delta": 1e-3, "T": 30, "replicates": 2, "device": "cpu"}
    plain = dprepro.solve("dp_sgd", X, y, **options)
    assert "kernels" not in plain.provenance
    monkeypatch.setattr("dprepro.api.get_backend", lambda device, dtype: fused.with_dtype(dtype))
    solution = dprepro.solve("dp_sgd", X, y, **options)
    assert solution.provenance["kernels"] == {STEPS: KERNEL}
    np.testing.assert_allclose(solution.w, plain.w, atol=1e-4 * (1 + np.abs(plain.w).max()))


class Answer:
    """What a stand-in for CuPy answers to the test kernel."""

    def __pow__(self, power):
        return self

    def sum(self):
        return self

    def get(self):
        return 14


@pytest.mark.parametrize("sound", [True, False])
def test_a_gpu_is_used_only_if_the_kernels_draw_the_words_of_the_host(monkeypatch, one_lane, sound):
    """With a stand-in for CuPy that has no device: the backend is made of these parts, and checks the words first."""
    import sys
    import types

    runtime = types.SimpleNamespace(memGetInfo=lambda: (10**9, 2 * 10**9))
    cuda = types.SimpleNamespace(runtime=runtime, Device=lambda: None, is_available=lambda: True)
    cupy = types.SimpleNamespace(cuda=cuda, arange=lambda *a, **k: Answer(), int64=None)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "array_api_compat.cupy", np)
    monkeypatch.setattr("dprepro.kernels.CudaLauncher", lambda: one_lane._run)
    if not sound:
        words = Kernels.words
        monkeypatch.setattr(Kernels, "words", lambda self, *given: words(self, *given) + np.uint64(1))
    arrays.gpu_problem.cache_clear()
    try:
        backend = get_backend("auto")
        assert (backend.kernels is not None) == sound
        if sound:
            assert backend.halves
            assert backend.why.endswith("a GPU answered a test kernel and draws the random words of the host")
        else:
            assert "The GPU draws other random words than the host" in backend.why
            with pytest.raises(UserError, match="A GPU was asked for by the argument, but CuPy cannot run a kernel"):
                get_backend("gpu")
    finally:
        arrays.gpu_problem.cache_clear()
