"""Recorded answers of audit.py: they only tell that something moved. That they are right is shown elsewhere.

`python tests/privacy/test_recorded_audit.py` records them anew.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from recorded import assert_same, record, recorded
from scipy.special import ndtri

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend
from dprepro.privacy import audit as audits
from dprepro.privacy.audit import audit, side_scores
from dprepro.privacy.events import GaussianEvent, QueryPart, SelectionEvent

TOLERANCE = 1e-6  # noise is drawn in single precision
FEW = 200


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))


def row(name, variant, epsilon=2.0, replicates=FEW, **options):
    return audit(get_algorithm(name), variant=variant, epsilon=epsilon, delta=1e-5, replicates=replicates, **options)


def scores(name, variant, replicates, score=None):
    """The scores on both sides, or what else is asked of the transcripts."""
    algorithm, backend = get_algorithm(name), get_backend("cpu", "float64")
    case = algorithm.audit_case()
    case = dataclasses.replace(case, score=score or case.score)
    plan = algorithm.plan(Setting(case.spec, 2.0, 1e-5, variant), **case.letters_of(variant))
    return [
        side_scores(algorithm, plan, case, rows, seed=4, replicates=replicates, backend=backend)
        for rows in (case.rows, case.neighbour)
    ]


def summary(values):
    """The number of values, their sum and a sum that notices their order."""
    return [len(values), np.sum(values), values @ np.cos(np.arange(len(values)))]


def seen_by_attackers(seen, case, plan):
    """One number for each run, of all that is seen of it."""
    places = [np.cos(1.0 + np.arange(each.size)).reshape(each.shape) for each in (seen.before, seen.after, seen.points)]
    steps = zip((seen.before, seen.after, seen.points), places, strict=True)
    return seen.eta * sum((each * place).sum(axis=(0, 2)) for each, place in steps if each.size) + seen.output[:, 0]


def refuted(mu, events, runs=1500):
    """The epsilon of the strongest claim that is refuted by Gaussian scores at the distance mu."""
    quantiles = ndtri((0.5 + np.outer([0.6180339887, 0.7548776662], np.arange(runs))) % 1.0)
    return audits._refuted_epsilon([quantiles[0], mu + quantiles[1]], events, 1e-5)


FULL = (GaussianEvent("step", 1.0, (QueryPart(3.0, 10, 10),), 1),)
SELECTED = (SelectionEvent("choice", "laplace", 1.0, 0.5, 4),)
CASES = {
    "a Gaussian mechanism": lambda: row("dp_gd", "published", seed=3),
    "a Gaussian mechanism that proves nothing": lambda: row("dp_gd", "published", epsilon=0.1, seed=0, replicates=260),
    "a selection": lambda: row("noisy_frank_wolfe", "certified", seed=3),
    "gradients and differences": lambda: row("spiderboost", "published", seed=1),
    "scores": lambda: [summary(side) for side in scores("dp_gd", "published", 130)],
    "scores of one tile": lambda: [summary(side) for side in scores("dp_gd", "published", 64)],
    "transcripts": lambda: [summary(side) for side in scores("spiderboost", "published", 3, seen_by_attackers)],
    "transcripts of proximal steps": lambda: [
        summary(side) for side in scores("dp_svrg_anchor", "published", 3, seen_by_attackers)
    ],
    "transcripts without a step size": lambda: [
        summary(side) for side in scores("noisy_frank_wolfe", "published", 3, seen_by_attackers)
    ],
    "refuted Gaussian claims": lambda: [refuted(mu, FULL) for mu in np.linspace(0.1, 4.0, 27)],
    "refuted selections": lambda: [refuted(mu, SELECTED, 500) for mu in (0.0, 1.0, 4.0)],
}
RECORDED = recorded("audit") if __name__ != "__main__" else {}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_the_recorded_ones(case):
    assert_same(CASES[case](), RECORDED[case], TOLERANCE)


if __name__ == "__main__":
    record("audit", CASES)
