"""What every registered algorithm must keep; a new file in algorithms/ is covered without touching this one."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from support import make_problem, rows

from dprepro.algorithms import get_algorithm, names
from dprepro.algorithms.base import Plan, Setting
from dprepro.arrays import TILE, get_backend, strict_backend
from dprepro.errors import LedgerMismatch, RunFailed, UserError
from dprepro.files import jsonable
from dprepro.privacy.events import leaves, replace_leaves
from dprepro.privacy.mechanisms import Mechanism
from dprepro.run import Execution, checkpoint_rounds, execute

O2NC = {"alpha": 0.5, "D": 0.1, "M": 2, "T": 8, "Sigma": 4}
SMALL = {
    "dp_acc_md": [{"T": 8}, {"T": 8, "noise": "both"}],
    "dp_gd": [{"T": 12}, {"T": 12, "output": "uniform"}, {"T": 12, "release": "last"}],
    "dp_sgd": [
        {"T": 40, "c": 1.0},
        {"T": 40, "b": 4, "c": 1.0},
        {"T": 40, "b": 4, "c": 1.0, "sampling": "poisson", "output": "suffix"},
        {"b": 4, "sampling": "once", "output": "uniform"},
    ],
    "dp_svrg": [
        {"T": 3, "m": 40},
        {"T": 3, "m": 40, "step": "bb"},
        {"T": 3, "m": 40, "r": 0.05, "b": 3},
        {"T": 3, "m": 40, "r": 0.05, "sampling": "poisson"},
    ],
    "dp_svrg_anchor": [{"T": 3, "m": 10, "b": 5}, {"T": 3, "m": 10, "b": 5, "sampling": "fixed"}],
    "dp_svrg_pp": [{"T": 3, "m": 5}, {"T": 3, "m": 5, "r": 0.05, "sampling": "poisson"}],
    "jl_method": [{"base": "dp_gd", "T": 8, "k": 4, "clip": "rows"}, {"base": "dp_gd", "T": 8, "k": 4}],
    "noisy_frank_wolfe": [{"T": 8}, {"T": 8, "noise": "gumbel"}, {"T": 8, "noise": "gaussian"}],
    "noisy_gd": [{"T": 8, "c": 1.0}],
    "noisy_mirror_descent": [{"T": 8}],
    "noisy_sfw": [{"R": 3, "b": 20}],
    "o2nc_first_order": [
        {**O2NC, "B1": 12, "B2": 6, "estimator": "difference_set"},
        {**O2NC, "B1": 12, "B2": 6, "estimator": "independent", "m": 3},
    ],
    "o2nc_multi_pass": [
        {**O2NC, "estimator": "frame", "noise": "distance"},
        {**O2NC, "oracle": "first_order", "estimator": "difference_set"},
        {**O2NC, "estimator": "independent", "m": 3},
    ],
    "o2nc_zero_order": [
        {**O2NC, "B1": 12, "B2": 6, "estimator": "frame"},
        {**O2NC, "B1": 12, "B2": 6, "estimator": "clipped"},
        {**O2NC, "B1": 12, "B2": 6, "estimator": "independent", "m": 3},
    ],
    "zhang24": [{**O2NC, "B1": 12, "B2": 6}],
    "objective_perturbation": [{}, {"noise": "gamma"}],
    "output_perturbation": [{"T": 12}],
    "phased_sgd": [{"eta": 1.0}, {"eta": 1.0, "K": 2}],
    "poly_sfw": [{"R": 3, "b": 20}, {"R": 3, "b": 20, "noise": "gumbel"}],
    "prox_guided_md": [
        {"R": 3, "T": 5, "rho": 0.2, "c": 1.0, "output": "last"},
        {"R": 3, "T": 5, "rho": 0.2},
        {"R": 3, "T": 5, "rho": 0.2, "p": 2.0},
    ],
    "recursive_regularization": [
        {"T": 2, "K": 4, "lam": 0.01, "c": 1.0},
        {"T": 2, "K": 4, "lam": 0.01, "data": "all", "start": "warm"},
        {"T": 2, "lam": 0.01, "subroutine": "phased_sgd"},
    ],
    "spiderboost": [{"T": 8, "q": 4, "batches": "full"}, {"T": 8, "q": 4, "b2": 10}],
    "tree_spider": [{"T": 2, "b": 20, "D": 2, "alpha_tilde": 1e-3, "beta": 0.1}],
}
# Sets that an algorithm needs, and where its pure noise or its stability makes another law of the noise.
SETS = dict.fromkeys(
    ("dp_acc_md", "noisy_gd", "noisy_mirror_descent", "noisy_frank_wolfe", "noisy_sfw", "poly_sfw", "prox_guided_md"),
    "l1_ball:2.0",
)
# Algorithms that take no set, and those that take no regularizer.
O2NCS = {"o2nc_first_order", "o2nc_multi_pass", "o2nc_zero_order", "zhang24"}
UNCONSTRAINED = {"jl_method", "recursive_regularization", *O2NCS}
UNREGULARIZED = {"jl_method", *O2NCS}
# Names that stand for algorithms whose steps shrink below the resolution of single precision.
DOUBLE_ONLY = {"phased_sgd", "spiderboost"}
CASES = [(name, letters) for name in names() for letters in SMALL.get(name, [{}])]
each_case = pytest.mark.parametrize(("name", "letters"), CASES, ids=lambda value: str(value))
each_algorithm = pytest.mark.parametrize("name", names())


def planned(name, problem, letters, epsilon=1.0, delta=1e-3):
    return get_algorithm(name).plan(Setting(problem.spec, epsilon, delta), **letters)


def problem_for(name, **changes):
    """A small problem on a set that the algorithm can use."""
    regularizer = 0.0 if name in UNREGULARIZED else 0.1
    return make_problem(**{"constraint": SETS.get(name), "regularizer": regularizer, **changes})


@each_case
def test_same_numbers_on_numpy_and_on_strict_arrays_of_another_device(name, letters):
    results = []
    for backend in (get_backend("cpu"), strict_backend()):
        problem = problem_for(name, backend=backend)
        results.append(execute(planned(name, problem, letters), problem, seed=1, replicates=range(3)))
    np.testing.assert_allclose(results[0].w, results[1].w, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(results[0].objective, results[1].objective, rtol=1e-12)


@each_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_replicate_has_the_same_bits_in_any_company_and_batch_split(name, letters, dtype):
    problem = problem_for(name, n=700, d=11, dtype=dtype)
    plan = planned(name, problem, letters)
    if dtype == "float32" and DOUBLE_ONLY & {name, letters.get("subroutine")}:
        with pytest.raises(UserError, match="use dtype float64"):
            execute(plan, problem, seed=3, replicates=[0])
        return
    whole = execute(plan, problem, seed=3, replicates=range(TILE + 6))
    for chosen in ([5], [0, 5, 63], [64], range(60, 69), [2, 66]):
        part = execute(plan, problem, seed=3, replicates=chosen)
        np.testing.assert_array_equal(part.w, whole.w[list(chosen)])
        np.testing.assert_array_equal(part.objective, whole.objective[list(chosen)])
        np.testing.assert_array_equal(part.final_objective, whole.final_objective[list(chosen)])


@each_case
def test_another_seed_gives_other_numbers_and_replicates_differ(name, letters):
    problem = problem_for(name)
    plan = planned(name, problem, letters)
    one, two = (execute(plan, problem, seed=seed, replicates=range(2)) for seed in (1, 2))
    # A few coordinates may agree where an output is made of vertices.
    assert np.all(np.any(one.w != two.w, axis=1))
    assert np.any(one.w[0] != one.w[1])


@each_case
def test_gradient_evaluations_and_rounds_are_counted_to_the_formula(name, letters):
    problem = problem_for(name)
    plan = planned(name, problem, letters)
    result = execute(plan, problem, seed=1, replicates=[0])
    assert result.gradient_evaluations[0] == 0
    assert result.gradient_evaluations[-1] == plan.gradient_evaluations
    assert result.rounds[-1] == plan.rounds


@each_case
def test_plan_survives_json_with_all_its_numbers(name, letters):
    for epsilon in (0.5, math.inf):
        plan = planned(name, problem_for(name), letters, epsilon=epsilon)
        text = json.dumps(jsonable(plan.to_json()), allow_nan=False)
        assert get_algorithm(name).plan_type.from_json(json.loads(text)) == plan


@each_algorithm
def test_certificate_events_cover_every_noise_scale(name):
    plan = planned(name, problem_for(name), SMALL[name][0])
    noises = [getattr(event, "sigma", getattr(event, "scale", None)) for event in leaves(plan.events)]
    noises = [noise for noise in noises if noise is not None]
    assert plan.sigma in noises
    assert all(noise > 0 for noise in noises)


@pytest.mark.parametrize("name", [name for name in names() if "c" in get_algorithm(name).letters])
def test_published_noise_scales_as_the_theorem_says(name):
    """Noise is proportional to sqrt(c) G / (n epsilon), or to c where c is a factor of the noise itself."""
    power = 1.0 if name == "spiderboost" else 0.5
    letters = SMALL[name][0]
    problem = problem_for(name, n=120)
    base = planned(name, problem, letters).sigma
    assert planned(name, problem, letters, epsilon=0.5).sigma == pytest.approx(2 * base)
    assert planned(name, problem, {**letters, "c": 4.0}).sigma == pytest.approx(4.0**power * base)
    assert planned(name, problem_for(name, n=240), letters).sigma == pytest.approx(base / 2)
    assert planned(name, problem, letters, epsilon=math.inf).sigma == 0.0


@each_algorithm
def test_letters_are_checked(name):
    problem = problem_for(name)
    known = get_algorithm(name).letters
    for letters, sentence in (
        ({"Z": 1}, "has no parameter 'Z': it takes"),
        ({"T": 2.5}, "give a whole number"),
        ({"T": 0}, "give a finite number > 0"),
        ({"T": True}, "give a whole number"),
        ({"eta": "fast"}, "give a number"),
        ({"eta": math.inf}, "give a finite number"),
    ):
        if set(letters) <= {"Z", *known}:
            with pytest.raises(UserError, match=sentence):
                planned(name, problem, letters)


@each_algorithm
def test_an_algorithm_that_skips_a_planned_release_is_refused(name, monkeypatch):
    """Planted bug: the run makes one release fewer than its plan accounts for."""
    problem = problem_for(name)
    plan = planned(name, problem, SMALL[name][0])
    first = next(leaves(plan.events))

    def cheat():
        more = replace_leaves(
            plan.events, lambda event: dataclasses.replace(event, count=event.count + 1) if event is first else event
        )
        execute(dataclasses.replace(plan, events=more), problem, seed=1, replicates=[0])

    # The event of objective perturbation can happen only once and refuses a second release by itself.
    with pytest.raises(UserError if name == "objective_perturbation" else LedgerMismatch):
        cheat()


@each_algorithm
def test_noise_that_is_halved_behind_the_ledgers_back_is_seen_in_the_plan(name, monkeypatch):
    """Planted bug: a mechanism whose event has half the sigma of the plan does not match the ledger."""
    original = Mechanism.ledger_entry
    monkeypatch.setattr(Mechanism, "ledger_entry", lambda self: original(self).scaled(0.5))
    problem = problem_for(name)
    with pytest.raises(LedgerMismatch):
        execute(planned(name, problem, SMALL[name][0]), problem, seed=1, replicates=[0])


@each_algorithm
def test_a_run_with_uncounted_gradients_is_refused(name, monkeypatch):
    """Planted bug: gradients that do not count."""
    for oracle in ORACLES:
        monkeypatch.setattr(Execution, oracle, _uncounted(getattr(Execution, oracle)))
    problem = problem_for(name)
    with pytest.raises(RunFailed, match="evaluations"):
        execute(planned(name, problem, SMALL[name][0]), problem, seed=1, replicates=[0])


ORACLES = (
    "full_gradient",
    "sample_gradient",
    "gradient_difference",
    "batch_gradient",
    "batch_difference",
    "batch_values",
    "batch_subgradients",
)


def _uncounted(oracle):
    def forgetful(self, *arguments, **options):
        before = self.gradient_evaluations, self.function_evaluations
        result = oracle(self, *arguments, **options)
        self.gradient_evaluations, self.function_evaluations = before
        return result

    return forgetful


@pytest.mark.parametrize("name", sorted(UNCONSTRAINED))
def test_a_set_is_refused_by_algorithms_that_keep_none(name):
    with pytest.raises(UserError, match="needs no constraint"):
        planned(name, problem_for(name, constraint="l2_ball:1.0"), SMALL[name][0])


@pytest.mark.parametrize("name", [name for name in names() if name not in UNCONSTRAINED])
def test_constraint_sets_are_kept(name):
    kind, order = ("l1_ball", 1) if name in SETS else ("l2_ball", 2)
    norms = {}
    for constraint in (f"{kind}:0.2", f"{kind}:1000.0"):
        problem = make_problem(constraint=constraint)
        result = execute(planned(name, problem, SMALL[name][0], epsilon=0.05), problem, seed=1, replicates=range(4))
        norms[constraint] = np.linalg.norm(result.w, ord=order, axis=1)
    assert np.all(norms[f"{kind}:0.2"] <= 0.2 * (1 + 1e-12))
    assert np.all(norms[f"{kind}:1000.0"] > 0.2), "the constraint does not bind, so the test says nothing"


def test_output_shifts_with_the_noise_of_its_own_replicate_only():
    """Replicate k is a function of stream k: swapping the seeds of others does not move it (see the bits test)."""
    problem = make_problem()
    plan = planned("dp_gd", problem, {"T": 5})
    alone = execute(plan, problem, seed=9, replicates=[17]).w
    crowd = execute(plan, problem, seed=9, replicates=range(64)).w
    np.testing.assert_array_equal(alone[0], crowd[17])


def test_checkpoints_include_first_and_last_and_stay_few():
    for rounds in (1, 2, 15, 24, 25, 1500):
        kept = checkpoint_rounds(rounds)
        assert {1, rounds} <= kept <= set(range(1, rounds + 1))
        assert len(kept) <= 24
    assert checkpoint_rounds(15) == frozenset(range(1, 16))


def test_a_run_that_blows_up_is_recorded_not_hidden():
    X, y = rows(120, 7)
    problem = make_problem(data=(X, y), regularizer=50.0)
    result = execute(planned("dp_gd", problem, {"T": 400, "eta": 1.0}), problem, seed=1, replicates=[0])
    assert not np.all(np.isfinite(result.final_objective))


def test_plan_is_frozen():
    plan = planned("dp_gd", make_problem(), {"T": 2})
    assert isinstance(plan, Plan)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.sigma = 0.0
