"""Populations for losses that are neither smooth nor convex: their samples are drawn as they are asked for."""

from __future__ import annotations

import math
from dataclasses import replace

from dprepro.datasets.populations import check_size, on_sphere, population_info, population_of, uniform
from dprepro.datasets.preparation import bounded, real_number, row_sums, whole_number
from dprepro.datasets.records import Definition, Prepared
from dprepro.errors import UserError

# Beyond any use; keeps closed forms within their accuracy.
_FAR = 1e3
# Closed forms divide by the spread of labels; rounding leaves 1e-9 of gradients here, and more of them below.
_NARROW = 1e-6


def _spiked(
    rows: int | None,
    seed: int,
    *,
    features: int = 10,
    share: float = 0.5,
    distance: float = 8.0,
    spread: float = 0.5,
    outliers: float = 0.2,
    gap: float = -20.0,
) -> Prepared:
    """Return the direction that all rows share as the one row, and the law of rows and labels.

    x = (sqrt(share), sqrt(1 - share) u) with u uniform on the sphere; y is uniform within `spread` of
    distance sqrt(share), which is <x, w> at w = (distance, 0, ..., 0), and with probability `outliers` it has `gap`
    added. Nothing is drawn here.
    """
    import numpy as np

    features = whole_number("features", features, 2)
    share, outliers = real_number("share", share, 0, 1), real_number("outliers", outliers, 0, 1)
    distance, spread = real_number("distance", distance, -_FAR, _FAR), real_number("spread", spread, 0, _FAR)
    gap = real_number("gap", gap, -_FAR, _FAR)
    if 0.0 < spread < _NARROW:
        raise UserError(f"A spread of {spread:g} is too small for exact risks: give 0, or at least {_NARROW:g}.")
    centre = distance * math.sqrt(share)
    largest = spread + max(abs(centre), abs(centre + gap) if outliers else 0.0)
    law = {
        "name": "spiked",
        "share": share,
        "centre": centre,
        "spread": spread,
        "outliers": outliers,
        "gap": gap,
    }
    population = replace(population_of(np.ones(1), rows, label_bound=max(1.0, largest)), law=law)
    shared = np.zeros((1, features), dtype=np.float32)
    shared[0, 0] = 1.0
    return Prepared(shared, np.zeros(1, dtype=np.float32), "generated", population)


def _network(
    rows: int | None,
    seed: int,
    *,
    features: int = 5,
    hidden: int = 4,
    atoms: int = 4096,
    length: float = 2.0,
    noise: float = 0.1,
    start: float = 1.0,
) -> Prepared:
    """Draw a pool of inputs on the unit sphere and their labels by a network with weights of this length and noise.

    The network is that of the loss `relu_network` with as many hidden units. The weights to start from, of the length
    `start` in each unit, have random directions too. Labels are clipped to sqrt(hidden) length.
    """
    import numpy as np

    features, hidden = whole_number("features", features, 1), whole_number("hidden", hidden, 1)
    atoms = whole_number("atoms", atoms, 1)
    length, start = real_number("length", length, 0, _FAR), real_number("start", start, 0, _FAR)
    noise = real_number("noise", noise, 0, _FAR)
    check_size(atoms, features)
    rng = np.random.default_rng(seed)
    X = bounded(on_sphere(rng, atoms, features))
    teacher, first = length * on_sphere(rng, hidden, features), start * on_sphere(rng, hidden, features)
    signs = np.where(np.arange(hidden) % 2, -1.0, 1.0) / math.sqrt(hidden)
    active = [np.maximum(row_sums(X * weights), 0.0) for weights in teacher]
    clean = sum(sign * unit for sign, unit in zip(signs, active, strict=True))
    largest = math.sqrt(hidden) * length
    y = np.clip(clean + noise * rng.standard_normal(atoms), -largest, largest).astype(np.float32)
    law = {"name": "network", "start": first.ravel().tolist()}
    # Rounding a label to single precision must not take it over the bound.
    population = population_of(uniform(atoms), rows, label_bound=largest * (1.0 + 2.0**-23))
    return Prepared(X, y, "generated", replace(population, law=law, weights=features * hidden))


DATASETS = (
    Definition(
        population_info(
            "population_spiked",
            "Spiked design",
            "A row is (sqrt(share), sqrt(1 - share) u) with share=0.5 and u uniform on the unit sphere; the label is "
            "uniform within spread=0.5 of distance sqrt(share), distance=8, and with probability outliers=0.2 it has "
            "gap=-20 added. Samples are drawn as they are asked for; risks over them have closed forms.",
        ),
        _spiked,
    ),
    Definition(
        population_info(
            "population_network",
            "Labels of a network with one hidden layer",
            "Samples are drawn with replacement from atoms=4096 inputs, uniform on the unit sphere of features=5 "
            "dimensions; labels are the output of a network of hidden=4 units with weights of length=2 each, plus "
            "noise N(0, 1) with noise=0.1. Runs start from weights of length start=1 in random directions. The seed "
            "and the parameters fix every draw.",
        ),
        _network,
    ),
)
