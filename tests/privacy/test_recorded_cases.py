"""Recorded answers of cases.py: they only tell that something moved. That they are right is shown elsewhere.

`python tests/privacy/test_recorded_cases.py` records them anew.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from recorded import assert_same, record, recorded

from dprepro.privacy import cases
from dprepro.privacy.cases import Transcript
from dprepro.privacy.events import GaussianEvent, QueryPart

TOLERANCE = 1e-12
# Scores are small differences of logarithms, and of numbers in single precision.
SCORE_TOLERANCE = 1e-6
LETTERS = {"T": 3}


def numbers(*shape, step=0.6180339887):
    """Numbers between -1 and 1 that look random."""
    return 2.0 * ((0.5 + step * np.arange(1, 1 + np.prod(shape))) % 1.0).reshape(shape) - 1.0


def transcript(d, *, steps=4, runs=3, size=1.0, eta=0.5):
    """A run as it might have been: (steps, runs, d) numbers at each place."""
    after, before, points = (size * numbers(steps, runs, d, step=step) for step in (0.7548776662, 0.5698402910, 0.8191))
    return Transcript(numbers(runs, d), before, after, points, eta)


def described(case):
    """All that a case consists of, its rows by sums that notice where each number stands."""
    spec = case.spec
    found = {
        "name": case.name,
        "spec": [spec.n, spec.d, repr(spec.loss), repr(spec.regularizer), repr(spec.constraint), spec.label_bound],
        "letters": [case.letters_of(variant) for variant in ("published", "certified")],
        "generic": case.generic,
    }
    for side in ("rows", "neighbour"):
        X, y = getattr(case, side)
        found[side] = [X.shape, X[0], X[-1], X.sum(axis=0), y[:3], y[-1], y.sum(), len(y)]
    return found


def plan(*, r=None, batch=5, population=20, full=True):
    """A plan with a full and a sampled part, as SVRG has it."""
    parts = (QueryPart(0.1, population, population),) * full + (QueryPart(0.2, batch, population),)
    return SimpleNamespace(events=(GaussianEvent("step", 0.7, parts, 4),), sigma=0.7, r=r)


CASES = {
    "linear": lambda: described(cases.linear_case(7, LETTERS)),
    **{
        f"generic, {' and '.join(sorted(needs)) or 'nothing'}": lambda needs=needs: described(
            cases.generic_case(frozenset(needs), LETTERS)
        )
        for needs in (
            (),
            ("smooth",),
            ("bounded",),
            ("centrally_symmetric", "polytope"),
            ("polytope", "strongly_convex"),
            ("strongly_convex",),
        )
    },
    "drifting": lambda: described(cases.drifting_case(LETTERS)),
    "sampled": lambda: described(cases.sampled_case(LETTERS)),
    "on a ball": lambda: described(cases.linear_ball_case(9, "l2_ball:3", LETTERS)),
    "vertex": lambda: described(cases.vertex_case(8, LETTERS)),
    "sphere": lambda: described(cases.sphere_case(8, LETTERS)),
    "turning": lambda: described(cases.turning_case(LETTERS)),
    "directions": lambda: [transcript(2).directions, transcript(1, eta=4.0).directions],
    "score of the output": lambda: [
        case.score(transcript(2), case, None)
        for case in (cases.linear_case(5, LETTERS), cases.linear_ball_case(5, "l2_ball:3", LETTERS))
    ],
    "score of the first step": lambda: [
        cases.vertex_case(5, LETTERS).score(transcript(1), None, None),
        cases.sphere_case(5, LETTERS).score(transcript(2), None, None),
    ],
    "score of a sampled run": lambda: [
        cases.sampled_case(LETTERS).score(transcript(2, size=size), None, plan(full=full))
        for size in (0.4, 1.0)
        for full in (False, True)
    ],
    "score of a drifting run": lambda: [
        case.score(transcript(2, size=size), case, plan(r=r))
        for case in [cases.drifting_case(LETTERS)]
        for size in (0.5, 3.0, 40.0)
        for r in (None, 0.3)
    ],
    "score of a turning run": lambda: [
        case.score(
            transcript(1, steps=steps),
            case,
            SimpleNamespace(eta=0.4, q=3, longest=longest, sigma=0.7, sigma2=1.3),
        )
        for case in [cases.turning_case(LETTERS)]
        for steps in (2, 7)
        for longest in (0.2, 100.0)
    ],
}
RECORDED = recorded("cases") if __name__ != "__main__" else {}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_the_recorded_ones(case):
    assert_same(CASES[case](), RECORDED[case], SCORE_TOLERANCE if case.startswith("score") else TOLERANCE)


if __name__ == "__main__":
    record("cases", CASES)
