"""What an algorithm may look at and claim: records that a mechanism drew for this release, and its own setting."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support import make_problem

from dprepro.algorithms import dp_sgd, get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.errors import RunFailed, UserError
from dprepro.run import Execution

LETTERS = {"T": 5, "b": 1}


@pytest.fixture
def ex() -> Execution:
    """A run of DP-SGD on single records, before its first step."""
    problem = make_problem(n=60, d=3)
    plan = get_algorithm("dp_sgd").plan(Setting(problem.spec, 1.0, 1e-3, "certified"), **LETTERS)
    return Execution(plan, problem, 0, [0, 1])


def test_a_record_that_no_mechanism_drew_is_refused(ex: Execution) -> None:
    """Amplification by sampling is accounted: a pass through the records in order would spend far more."""
    for t, (_, _) in enumerate(ex.sampled(dp_sgd.STEP, 1)):
        with pytest.raises(RunFailed, match="no mechanism drew"):
            ex.sample_gradient(ex.start(), np.full(2, t))


def test_a_batch_of_an_earlier_release_is_refused_and_the_one_at_hand_is_not(ex: Execution) -> None:
    batches = []
    for index, _ in ex.sampled(dp_sgd.STEP, 3):
        ex.sample_gradient(ex.start(), index)
        batches.append(index)
    with pytest.raises(RunFailed, match="or drew for an earlier release"):
        ex.sample_gradient(ex.start(), batches[0])


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
