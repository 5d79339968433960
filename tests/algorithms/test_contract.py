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
from dprepro.privacy.events import GaussianEvent
from dprepro.privacy.mechanisms import GaussianMechanism
from dprepro.run import Execution, checkpoint_rounds, execute

SMALL = {
    "dp_svrg": [{"T": 3, "m": 40}, {"T": 3, "m": 40, "step": "bb"}],
    "dp_svrg_pp": [{"T": 3, "m": 5}],
    "dp_gd": [{"T": 12}, {"T": 12, "output": "uniform"}],
}
CASES = [(name, letters) for name in names() for letters in SMALL.get(name, [{}])]
each_case = pytest.mark.parametrize(("name", "letters"), CASES, ids=lambda value: str(value))
each_algorithm = pytest.mark.parametrize("name", names())


def planned(name, problem, letters, epsilon=1.0, delta=1e-3):
    return get_algorithm(name).plan(Setting(problem.spec, epsilon, delta), **letters)


@each_case
def test_same_numbers_on_numpy_and_on_strict_arrays_of_another_device(name, letters):
    results = []
    for backend in (get_backend("cpu"), strict_backend()):
        problem = make_problem(backend=backend)
        results.append(execute(planned(name, problem, letters), problem, seed=1, replicates=range(3)))
    np.testing.assert_allclose(results[0].w, results[1].w, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(results[0].objective, results[1].objective, rtol=1e-12)


@each_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_replicate_has_the_same_bits_in_any_company_and_batch_split(name, letters, dtype):
    problem = make_problem(n=700, d=11, dtype=dtype)
    plan = planned(name, problem, letters)
    whole = execute(plan, problem, seed=3, replicates=range(TILE + 6))
    for chosen in ([5], [0, 5, 63], [64], range(60, 69), [2, 66]):
        part = execute(plan, problem, seed=3, replicates=chosen)
        np.testing.assert_array_equal(part.w, whole.w[list(chosen)])
        np.testing.assert_array_equal(part.objective, whole.objective[list(chosen)])
        np.testing.assert_array_equal(part.final_objective, whole.final_objective[list(chosen)])


@each_case
def test_another_seed_gives_other_numbers_and_replicates_differ(name, letters):
    problem = make_problem()
    plan = planned(name, problem, letters)
    one, two = (execute(plan, problem, seed=seed, replicates=range(2)) for seed in (1, 2))
    assert not np.any(one.w == two.w)
    assert not np.any(one.w[0] == one.w[1])


@each_case
def test_gradient_evaluations_and_rounds_are_counted_to_the_formula(name, letters):
    problem = make_problem()
    plan = planned(name, problem, letters)
    result = execute(plan, problem, seed=1, replicates=[0])
    assert result.gradient_evaluations[0] == 0
    assert result.gradient_evaluations[-1] == plan.gradient_evaluations
    assert result.rounds[-1] == plan.rounds


@each_case
def test_plan_survives_json_with_all_its_numbers(name, letters):
    for epsilon in (0.5, math.inf):
        plan = planned(name, make_problem(), letters, epsilon=epsilon)
        text = json.dumps(jsonable(plan.to_json()), allow_nan=False)
        assert get_algorithm(name).plan_type.from_json(json.loads(text)) == plan


@each_algorithm
def test_certificate_events_cover_every_noise_scale(name):
    plan = planned(name, make_problem(), SMALL[name][0])
    gaussians = [event for event in plan.events if isinstance(event, GaussianEvent)]
    assert gaussians
    assert all(event.sigma == plan.sigma > 0 for event in gaussians)
    assert all(part.sensitivity > 0 for event in gaussians for part in event.parts)


@each_algorithm
def test_published_noise_scales_as_the_theorem_says(name):
    """sigma is proportional to sqrt(c) G / (n epsilon)."""
    letters = SMALL[name][0]
    problem = make_problem(n=120)
    base = planned(name, problem, letters).sigma
    assert planned(name, problem, letters, epsilon=0.5).sigma == pytest.approx(2 * base)
    assert planned(name, problem, {**letters, "c": 4.0}).sigma == pytest.approx(2 * base)
    assert planned(name, make_problem(n=240), letters).sigma == pytest.approx(base / 2)
    assert planned(name, problem, letters, epsilon=math.inf).sigma == 0.0


@each_algorithm
def test_letters_are_checked(name):
    problem = make_problem()
    for letters, sentence in (
        ({"Z": 1}, "has no parameter 'Z': it takes"),
        ({"T": 2.5}, "give a whole number"),
        ({"T": 0}, "give a finite number > 0"),
        ({"T": True}, "give a whole number"),
        ({"eta": "fast"}, "give a number"),
        ({"eta": math.inf}, "give a finite number"),
    ):
        with pytest.raises(UserError, match=sentence):
            planned(name, problem, letters)


@each_algorithm
def test_an_algorithm_that_skips_a_planned_release_is_refused(name, monkeypatch):
    """Planted bug: the run makes one release fewer than its plan accounts for."""
    problem = make_problem()
    plan = planned(name, problem, SMALL[name][0])
    event = plan.events[0]
    cheat = dataclasses.replace(plan, events=(dataclasses.replace(event, count=event.count + 1), *plan.events[1:]))
    with pytest.raises(LedgerMismatch):
        execute(cheat, problem, seed=1, replicates=[0])


@each_algorithm
def test_noise_that_is_halved_behind_the_ledgers_back_is_seen_in_the_plan(name, monkeypatch):
    """Planted bug: a mechanism whose event has half the sigma of the plan does not match the ledger."""
    original = GaussianMechanism.ledger_entry
    monkeypatch.setattr(
        GaussianMechanism,
        "ledger_entry",
        lambda self: dataclasses.replace(original(self), sigma=self.event.sigma / 2),
    )
    problem = make_problem()
    with pytest.raises(LedgerMismatch):
        execute(planned(name, problem, SMALL[name][0]), problem, seed=1, replicates=[0])


@each_algorithm
def test_a_run_with_uncounted_gradients_is_refused(name, monkeypatch):
    """Planted bug: full gradients that do not count."""
    monkeypatch.setattr(Execution, "full_gradient", lambda self, W: self._problem.gradient(W))
    problem = make_problem()
    with pytest.raises(RunFailed, match="gradient evaluations"):
        execute(planned(name, problem, SMALL[name][0]), problem, seed=1, replicates=[0])


@each_algorithm
def test_constraint_sets_are_kept(name):
    norms = {}
    for constraint in ("l2_ball:0.2", None):
        problem = make_problem(constraint=constraint)
        result = execute(planned(name, problem, SMALL[name][0], epsilon=0.05), problem, seed=1, replicates=range(4))
        norms[constraint] = np.linalg.norm(result.w, axis=1)
    assert np.all(norms["l2_ball:0.2"] <= 0.2 * (1 + 1e-12))
    assert np.all(norms[None] > 0.2), "the constraint does not bind, so the test says nothing"


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
