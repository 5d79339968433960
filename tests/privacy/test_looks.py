"""What an algorithm may look at and claim: records that a mechanism drew for this release, and its own setting."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support import make_problem

from dprepro.algorithms import dp_sgd, get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.errors import LedgerMismatch, RunFailed, UserError
from dprepro.privacy.events import QueryPart
from dprepro.run import Execution, execute

LETTERS = {"T": 5, "b": 1}


@pytest.fixture
def ex() -> Execution:
    """A run of DP-SGD on single records, before its first step."""
    problem = make_problem(n=60, d=3)
    plan = get_algorithm("dp_sgd").plan(Setting(problem.spec, 1.0, 1e-3, "certified"), **LETTERS)
    return Execution(plan, problem, 0, [0, 1])


def test_a_record_that_no_mechanism_drew_is_refused(ex: Execution) -> None:
    """Amplification by sampling is accounted: a pass through the records in order would spend far more."""
    for t, (index, _) in enumerate(ex.sampled(dp_sgd.STEP, 1)):
        ex.sample_gradient(ex.start(), index)
        with pytest.raises(RunFailed, match="no mechanism drew"):
            ex.sample_gradient(ex.start(), np.full(2, t))


def test_a_batch_of_an_earlier_release_is_refused_and_the_one_at_hand_is_not(ex: Execution) -> None:
    batches = []
    for index, _ in ex.sampled(dp_sgd.STEP, 3):
        ex.sample_gradient(ex.start(), index)
        batches.append(index)
    with pytest.raises(RunFailed, match="or drew for an earlier release"):
        ex.sample_gradient(ex.start(), batches[0])


def test_a_batch_is_not_at_hand_after_its_last_release(ex: Execution) -> None:
    for index, _ in ex.sampled(dp_sgd.STEP, 5):
        ex.sample_gradient(ex.start(), index)
    with pytest.raises(RunFailed, match="or drew for an earlier release"):
        ex.sample_gradient(ex.start(), index)


def test_a_batch_that_another_stands_in_for_is_noticed(ex: Execution) -> None:
    """Two queries on one batch are hit together: two events, each on a batch of its own, would cost less."""
    releases = ex.sampled(dp_sgd.STEP, 5)
    next(releases)
    with pytest.raises(LedgerMismatch, match="was not looked at before its release was over"):
        next(releases)


def test_a_plan_for_another_number_of_records_is_not_executed() -> None:
    problem = make_problem(n=60, d=3)
    plan = get_algorithm("dp_sgd").plan(Setting(problem.spec, 1.0, 1e-3, "certified"), **LETTERS)
    with pytest.raises(RunFailed, match="for 60 records of 3 coordinates, but the problem has 50 of 3"):
        execute(plan, make_problem(n=50, d=3), seed=0, replicates=[0])


def test_what_an_algorithm_keeps_in_itself_does_not_go_into_the_next_run(monkeypatch) -> None:
    class Keeping(type(get_algorithm("dp_gd"))):  # type: ignore[misc]
        last = None

        def run(self, plan, ex):
            assert self.last is None
            self.last = super().run(plan, ex)
            return self.last

    keeping = Keeping()
    monkeypatch.setattr("dprepro.run.get_algorithm", lambda name: keeping)
    problem = make_problem(n=60, d=3)
    plan = get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3, "certified"), T=3)
    for _ in range(2):
        execute(plan, problem, seed=0, replicates=[0])


def _changed(change):
    class Changed(type(get_algorithm("dp_sgd"))):  # type: ignore[misc]
        def compute_plan(self, setting, given):
            plan = super().compute_plan(setting, given)
            return dataclasses.replace(plan, events=tuple(change(event) for event in plan.events))

    return Changed().plan(Setting(make_problem(n=60, d=3).spec, 1.0, 1e-3, "published"), **LETTERS)


def test_batches_from_another_number_of_records_than_there_are_are_refused() -> None:
    """From more there would be more amplification than the data give, from fewer some record would be in each batch."""
    for population in (61, 59):
        parts = (dataclasses.replace(QueryPart(1.0, 1, 60), population=population),)
        with pytest.raises(UserError, match=f"from {population}, but there are 60"):
            _changed(lambda event, parts=parts: dataclasses.replace(event, parts=parts))


def test_events_that_never_happen_declare_nothing() -> None:
    with pytest.raises(UserError, match="declares no sensitivity"):
        _changed(lambda event: dataclasses.replace(event, count=0))


@pytest.mark.parametrize(
    ("key", "value"), [("delta", 0.5), ("epsilon", 9.0), ("n", 7), ("d", 2), ("variant", "practical")]
)
def test_a_plan_for_another_setting_is_refused(key: str, value: object) -> None:
    class Astray(type(get_algorithm("dp_sgd"))):  # type: ignore[misc]
        def compute_plan(self, setting, given):
            return dataclasses.replace(super().compute_plan(setting, given), **{key: value})

    problem = make_problem(n=60, d=3)
    with pytest.raises(UserError, match=f"was asked for {key} = .* but its plan has {value}"):
        Astray().plan(Setting(problem.spec, 1.0, 1e-3, "published"), **LETTERS)
