"""Recorded answers of the calibration: they only tell that something moved.

That they are right is shown by the other tests. `python tests/privacy/test_recorded_calibrate.py` writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from recorded import assert_same, record, recorded
from test_recorded_accounting import (
    BALL,
    CONDITION,
    DELTA,
    DISJOINT,
    FADING,
    FADING_MAX,
    FEW_GUMBEL,
    FULL,
    GAMMA,
    GUMBEL,
    LAPLACE,
    LAST,
    MAX,
    OTHER_GUMBEL,
    OTHER_MAX,
    POISSON,
    SAMPLED,
    SILENT,
    SUM,
    TREE,
    TWO_FULL,
    UNPROTECTED,
    refusal,
)

from dprepro.privacy import calibrate
from dprepro.privacy.events import ConditionEvent, Event, ParallelEvent

PLANS: dict[str, tuple[Event, ...]] = {
    "full": (FULL,),
    "two full": (FULL, TWO_FULL),
    "last": (LAST,),
    "tree": (TREE, FULL),
    "disjoint": (DISJOINT,),
    "condition": (FULL, CONDITION),
    "more than delta": (FULL, ConditionEvent("condition", 2 * DELTA)),
    "no noise": (SILENT,),
    "unprotected": (FULL, UNPROTECTED),
    "objective": (BALL,),
    "objective, gamma": (GAMMA,),
    "objective and more": (BALL, FULL),
    "sampled": (SAMPLED,),
    "poisson": (POISSON,),
    "sum": (SUM,),
    "laplace": (LAPLACE,),
    "max": (MAX,),
    "two max": (MAX, OTHER_MAX),
    "gumbel": (GUMBEL,),
    "few gumbel": (FEW_GUMBEL,),
    "two gumbel": (GUMBEL, OTHER_GUMBEL),
    "fading": (FADING,),
    "fading max": (FADING_MAX,),
    "phases": (ParallelEvent("phases", ((FULL,), (TREE,), (GAMMA,))),),
}


def crossed(threshold: float, start: float, tolerance: float) -> dict[str, Any]:
    """The factor that is found for a known threshold, and the factors that were tried."""
    tried: list[float] = []

    def enough(factor: float) -> bool:
        tried.append(factor)
        assert len(tried) < 1000
        return factor >= threshold

    return {"factor": calibrate._crossing(enough, start, tolerance), "steps": len(tried), "tried": tried}


CASES: dict[str, Callable[[], Any]] = {
    **{
        f"crossing {question[0]} from {question[1]}, {question[2]}": lambda question=question: crossed(*question)
        for question in (
            (1.0, 1.0, 0.02),
            (1.01, 1.0, 0.02),
            (0.97, 1.0, 0.02),
            (3.0, 1.0, 0.02),
            (1e-3, 1.0, 0.02),
            (4567.0, 1.0, 0.02),
            (1e-11, 1.0, 0.02),
            (1e11, 1.0, 0.02),
            (0.0, 1.0, 0.02),
            (1e300, 1.0, 0.02),
            (0.0, 1.5e-12, 0.02),
            (0.0, 2e-12, 0.5),
            (1e12, 5e11, 0.5),
            (1.5e12, 5e11, 0.02),
            (50.0, 1.0, 7.0),
            (2.345, 2.4, 1e-3),
            (2.345, 2.3, 1e-3),
        )
    },
    **{
        f"factor of {name} at {epsilon}": lambda events=events, epsilon=epsilon: refusal(
            lambda: calibrate._search(events, epsilon, DELTA)
        )
        for name, events in PLANS.items()
        for epsilon in (0.5, 2.0)
    },
    "seal": lambda: [calibrate._seal("question", factor) for factor in (1.0, 0.1)],
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return recorded("calibrate")


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_the_recorded_one(case: str, answers: dict[str, Any]) -> None:
    assert_same(CASES[case](), answers[case], 1e-12)


def test_every_recorded_answer_has_its_question(answers: dict[str, Any]) -> None:
    assert set(answers) == set(CASES)


if __name__ == "__main__":
    record("calibrate", CASES)
