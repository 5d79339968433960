"""Recorded certificates: they only tell that something moved.

That they are right is shown by the other tests. `python tests/privacy/test_recorded_certificate.py` writes them anew.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import assert_same, record, recorded
from test_recorded_accounting import (
    CONDITION,
    DELTA,
    FULL,
    GAMMA,
    GUMBEL,
    LAPLACE,
    LAST,
    OPEN,
    PARALLEL,
    SAMPLED,
    SILENT,
    TREE,
    UNPROTECTED,
)

from dprepro.algorithms.base import Condition, Plan
from dprepro.privacy.accounting import Accounted
from dprepro.privacy.certificate import _verdict, certify
from dprepro.privacy.events import Event

HOLDS, FAILS = Condition("epsilon <= 1", True, "0.5", privacy=True), Condition("small n", False, "n = 9", privacy=True)
UTILITY = Condition("eta <= 1/L", False, "eta = 3")
PLANS: dict[str, tuple[Event, ...]] = {
    "full": (FULL,),
    "last, tree": (LAST, TREE),
    "gumbel": (GUMBEL,),
    "laplace": (LAPLACE,),
    "sampled": (SAMPLED,),
    "open": (OPEN, FULL),
    "parallel": (PARALLEL,),
    "gamma": (GAMMA, CONDITION),
    "silent": (SILENT,),
    "unprotected": (FULL, UNPROTECTED),
    "nothing": (),
}


def plan(
    events: tuple[Event, ...],
    epsilon: float = 1.5,
    variant: str = "published",
    conditions: tuple[Condition, ...] = (HOLDS, UTILITY),
    drawn_by: str = "",
) -> Plan:
    return Plan(
        algorithm="dp_gd",
        variant=variant,
        theorem="Theorem 1",
        n=100,
        d=3,
        epsilon=epsilon,
        delta=DELTA,
        sigma=2.0,
        rounds=4,
        gradient_evaluations=400,
        events=events,
        conditions=conditions,
        drawn_by=drawn_by,
    )


def certificate(*arguments: Any, compare: bool = True, **more: Any) -> dict[str, Any]:
    """All but the version of the package."""
    found = certify(plan(*arguments, **more), compare=compare)
    version = found.pop("accountant_version")
    return {**found, "drawn_by": found["drawn_by"].replace(version, "VERSION")}


CASES: dict[str, Callable[[], Any]] = {
    **{f"{name} at 1.5": lambda events=events: certificate(events) for name, events in PLANS.items()},
    **{
        f"{name} at 0.2": lambda events=events: certificate(events, 0.2, compare=False)
        for name, events in PLANS.items()
    },
    "compared unless told otherwise": lambda: certify(plan((FULL,)))["noise_ratio"],
    "certified": lambda: certificate((FULL,), variant="certified", compare=False),
    "certified, compared": lambda: certificate((FULL,), variant="certified"),
    "no privacy": lambda: certificate((FULL,), math.inf),
    "no privacy, library": lambda: certificate((FULL,), math.inf, drawn_by="library 2.0"),
    "library": lambda: certificate((FULL,), drawn_by="library 2.0"),
    "a condition fails": lambda: certificate((OPEN, FULL), conditions=(HOLDS, FAILS), compare=False),
    "no condition": lambda: certificate((GAMMA,), 0.3, conditions=(), compare=False),
    "verdicts at the edges": lambda: [
        _verdict(
            plan((FULL,), claimed, variant, (HOLDS, UTILITY)), Accounted(upper, lower, "none: no noise", float), ratio
        )
        for claimed, upper, lower in (
            (1.0, 1.0, 1.0),
            (1.0, 1.5, 1.0),
            (1.0, 1.5, 1.2),
            (1.0, 1.5, 1.5),
            (1.0, math.inf, 0.5),
        )
        for variant in ("published", "certified")
        for ratio in (0.99, 1.0, 1.02, 1.03, 1.5, 2.5, math.nan)
    ],
    "loose by three parts in a hundred": lambda: certificate((FULL,), 1.17),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return recorded("certificate")


@pytest.mark.parametrize("case", CASES)
def test_the_certificate_is_the_recorded_one(case: str, answers: dict[str, Any]) -> None:
    assert_same(CASES[case](), answers[case], 1e-9)


def test_every_recorded_certificate_has_its_plan(answers: dict[str, Any]) -> None:
    assert set(answers) == set(CASES)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPREPRO_CACHE_DIR"] = folder
        record("certificate", CASES)
