"""Recorded draws of all mechanisms: `python tests/privacy/test_recorded_mechanisms.py` writes them anew.

Recorded numbers only tell that something moved: a release got other noise or other records than it had, and published
results cannot be made again. That the numbers are right is shown by the other tests. Normals are of single precision
and have had the same bits on every machine seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recorded import assert_same, record, recorded

from dprepro.arrays import get_backend
from dprepro.privacy.events import (
    DisjointGaussianEvent,
    Event,
    FadingSelectionEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    QueryPart,
    SelectionEvent,
    TreeEvent,
)
from dprepro.privacy.mechanisms import Ledger, _gumbel, _laplace

NAME = "mechanisms"
TOLERANCE = 1e-6  # normals are computed in single precision
REPLICATES, D = (3, None, 8), 2
# Around the border of the first block, whose length is 256 steps, and 32 on disjoint batches and in trees.
LONG, SHORT = (0, 1, 254, 255, 256, 257), (0, 1, 30, 31, 32, 33)


def ledger(event: Event) -> Ledger:
    return Ledger((event,), D, 2024, REPLICATES, get_backend("cpu", "float64"))


def gaussian(sigma: float) -> list[Any]:
    drawn = list(ledger(GaussianEvent("a", sigma, (QueryPart(1.0, 9, 9),), 258)).gaussian("a").noise(258))
    return [drawn[step] for step in LONG]


def sampled(batch: int, poisson: bool) -> list[Any]:
    event = GaussianEvent("a", 0.5, (QueryPart(1.0, batch, 50, poisson),), 258)
    drawn = list(ledger(event).gaussian("a").sampled(258))
    if poisson:
        return [[drawn[step][0].rows, drawn[step][0].starts, drawn[step][1]] for step in LONG]
    # In which order a batch comes depends on the processor.
    return [(np.sort(index, axis=-1) if batch > 1 else index, noise) for index, noise in (drawn[s] for s in LONG)]


def disjoint() -> list[Any]:
    mechanism = ledger(DisjointGaussianEvent("a", (0.5, 2.0), (1.0, 1.0), 34)).disjoint_gaussian("a")
    drawn = [mechanism.noise(step % 2) for step in range(34)]
    return [drawn[step] for step in SHORT]


def selected(event: Event) -> np.ndarray:
    mechanism, scores = ledger(event).selection("a"), np.tile([0.0, 0.3, 0.1, 0.6, 0.2], (3, 1))
    return np.array([mechanism.largest(scores) for _ in range(24)])


def prefixes(sigma: float) -> list[Any]:
    mechanism = ledger(TreeEvent("a", sigma, 1.0, 17, 2)).tree("a")
    found = []
    for number in range(2):
        mechanism.start()
        found += [mechanism.add(np.full((3, D), 1.0 + leaf + 100.0 * number)) for leaf in range(17)]
    return [found[step] for step in SHORT]


def objective(noise: str) -> np.ndarray:
    event = ObjectivePerturbationEvent("a", noise, 0.7, 1.0, 1.0, 1.0, 1)
    return np.asarray(ledger(event).objective_perturbation("a").draw())


QUANTILES = np.array([0.0, 2.0**-54, 0.01, 0.3, 0.5, 0.9, 1.0 - 2.0**-53])
CASES: dict[str, Callable[[], Any]] = {
    "Gaussian noise": lambda: gaussian(0.37),
    "Gaussian noise of scale one": lambda: gaussian(1.0),
    "no Gaussian noise": lambda: gaussian(0.0),
    "one record": lambda: sampled(1, False),
    "batches of two records": lambda: sampled(2, False),
    "batches of nine records": lambda: sampled(9, False),
    "Poisson batches": lambda: sampled(2, True),
    "disjoint batches": disjoint,
    "Laplace noise": lambda: list(ledger(LaplaceEvent("a", 0.7, 1.0, 4)).laplace("a").noise(4)),
    "report noisy max": lambda: selected(SelectionEvent("a", "laplace", 0.4, 1.0, 24)),
    "exponential mechanism": lambda: selected(SelectionEvent("a", "gumbel", 0.4, 1.0, 24)),
    "fading selections": lambda: selected(FadingSelectionEvent("a", "gumbel", 0.4, (((1.0, 24),),), 24)),
    "tree prefixes": lambda: prefixes(0.5),
    "tree prefixes with noise of scale one": lambda: prefixes(1.0),
    "tree prefixes without noise": lambda: prefixes(0.0),
    "Gaussian linear term": lambda: objective("gaussian"),
    "gamma linear term": lambda: objective("gamma"),
    "Laplace quantiles": lambda: _laplace(QUANTILES),
    "Gumbel quantiles": lambda: _gumbel(QUANTILES),
}


@pytest.mark.parametrize("case", CASES)
def test_a_draw_is_the_recorded_one(case: str) -> None:
    assert_same(CASES[case](), recorded(NAME)[case], TOLERANCE)


if __name__ == "__main__":
    record(NAME, CASES)
