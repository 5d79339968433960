"""Recorded answers of bounds.py: they only tell that something moved. That they are right is shown elsewhere.

`python tests/privacy/test_recorded_bounds.py` records them anew.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from recorded import assert_same, record, recorded
from scipy.special import ndtri

from dprepro.privacy import bounds
from dprepro.privacy.accounting import gaussian_delta
from dprepro.privacy.bounds import audit_bounds, largest_refuted_scale, split, violates

TOLERANCE = 1e-10


def scattered(runs, step):
    """Numbers spread evenly over (0, 1), in an order that looks random."""
    return (0.5 + step * np.arange(runs)) % 1.0


def gaussian(mu, runs0=401, runs1=500):
    return ndtri(scattered(runs0, 0.6180339887)), mu + ndtri(scattered(runs1, 0.7548776662))


def errors(false_positives, negatives, false_negatives, positives):
    return bounds._Errors(np.asarray(false_positives), negatives, np.asarray(false_negatives), positives)


def summary(values):
    """The number of values, their sum and a sum that notices their order."""
    values = np.asarray(values, dtype=float)
    return [values.size, values.sum(), values.ravel() @ np.cos(np.arange(values.size))]


def mirrored():
    """Samples to choose from that are the mirror images of each other, but not those to judge by."""
    scores = ndtri(scattered(300, 0.6180339887)) - 0.8
    return np.concatenate([scores, scores]), np.concatenate([-scores, np.abs(scores)])


def three_values(counts0, counts1):
    """Scores 0, 1 and 2 so many times, the same in both halves."""
    return tuple(np.tile(np.repeat([0.0, 1.0, 2.0], counts), 2) for counts in (counts0, counts1))


def asked():
    """The epsilons at which a claim is asked for its delta unless told otherwise."""
    epsilons = []
    violates(*SCORES["near"], lambda epsilon: epsilons.append(epsilon) or 0.5)
    return summary(epsilons)


SCORES = {
    "far": gaussian(3.0),
    "near": gaussian(0.6, 902, 640),
    "below": gaussian(-1.5),
    "the same": gaussian(0.0),
    "separated": gaussian(50.0),
    "rounded": tuple(np.round(side) for side in gaussian(1.2)),
    "two values": tuple((side > 0.3).astype(float) for side in gaussian(1.5)),
    "three values": tuple(np.clip(np.round(side), -1.0, 1.0) for side in gaussian(1.5)),
    "constant": (np.full(200, 2.0), np.full(200, 2.0)),
    "infinite": tuple(np.where(np.abs(side) > 2.0, np.copysign(np.inf, side), side) for side in gaussian(2.0)),
    "outlying": (gaussian(0.0)[0], np.where(np.arange(500) % 5 < 2, 9.0, gaussian(0.0)[1])),
    "rarely seen": (gaussian(0.0)[0], np.where(np.arange(500) % 9 < 2, -9.0, gaussian(0.0)[1])),
    "no less often": (np.where(np.arange(401) % 7 < 3, 8.0, gaussian(0.0)[0]), gaussian(0.0)[1]),
    "huge": tuple(1e308 * (1.0 + 0.7 * (side > 0.3)) for side in gaussian(2.0)),
    "mirrored": mirrored(),
    "as balanced at either threshold": three_values((87 + 28, 3, 10), (11, 1, 88 + 28)),
    "on both ends": (gaussian(0.0)[0], 3.0 * gaussian(0.0)[1]),
    "in the middle": (4.0 * gaussian(0.0)[0], gaussian(0.0)[1]),
}


def curves(name):
    """The guesses and the bounds for one pair of samples."""
    choosing, judging = split(*SCORES[name])
    found = {"thresholds": summary(bounds._thresholds(choosing))}
    for beta in (1e-3, 0.2):
        found |= {f"bounds {beta}": dataclasses.asdict(audit_bounds(*SCORES[name], 1e-5, beta))}
        found |= {f"guess {beta}": dataclasses.asdict(bounds._gaussian_guess(choosing, beta))}
    found["a large delta"] = bounds._clopper_pearson_epsilon(choosing, judging, 0.3, 0.01)
    found["refuted"] = [violates(*SCORES[name], lambda e, mu=mu: gaussian_delta(mu, e), 0.01) for mu in (0.3, 1.0, 2.5)]
    found["refuted on a grid"] = [
        violates(*SCORES[name], lambda e: max(0.0, 0.2 - e), 0.01, grid) for grid in ([0.0], [0.1, 1.0], [3.0])
    ]
    return found


CASES = {
    "epsilons": asked,
    "split": lambda: [[summary(side) for side in half] for half in split(np.arange(201), np.arange(204.0))],
    **{name: lambda name=name: curves(name) for name in SCORES},
    "counts": lambda: [
        [summary(count.false_positives), summary(count.false_negatives), count.negatives, count.positives]
        for above in (True, False)
        for swapped in (True, False)
        for count in [bounds._count(SCORES["rounded"], np.array([-1.0, 0.0, 0.5, 2.0, 9.0]), above, swapped)]
    ],
    "box": lambda: bounds._upper_box(errors([0, 3, 7, 50], 50, [2, 0, 80, 11], 80), 0.01),
    "corners": lambda: [
        [summary(side) for side in bounds._upper_corners(errors(*counts), beta)]
        for counts in ((0, 50, 3, 60), (4, 50, 0, 60), (50, 50, 60, 60))
        for beta in (1e-3, 0.3)
    ],
    "upper": lambda: bounds._clopper_pearson_upper(np.array([0, 1, 98, 99, 100]), 100, 0.02),
    "claimed": lambda: bounds._claimed_tradeoff(lambda e: 0.3 * math.exp(-e), [0.0, 0.5, 1.0, 4.0])(
        np.array([1e-6, 0.01, 0.2, 0.4, 0.6, 0.7, 0.9, 1.0])
    ),
    "claimed of probability one": lambda: bounds._claimed_tradeoff(lambda e: float(e > 0.5), [0.0, 1.0])(
        np.array([1.0, 0.0])
    ),
    "claimed by one": lambda: bounds._claimed_tradeoff(lambda e: 0.1, [0.7])(np.linspace(0.0, 1.0, 7)),
    "refuted scale": lambda: [
        largest_refuted_scale(*SCORES[name], lambda s: lambda e: gaussian_delta(0.9 * s, e), scales, 0.05)
        for name in ("near", "far", "below")
        for scales in ([0.1, 0.2, 0.5, 1.0, 3.0], [2.0, 0.25, 0.75], [1.5], [0.5])
    ],
}
RECORDED = recorded("bounds") if __name__ != "__main__" else {}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_the_recorded_ones(case):
    assert_same(CASES[case](), RECORDED[case], TOLERANCE)


if __name__ == "__main__":
    record("bounds", CASES)
