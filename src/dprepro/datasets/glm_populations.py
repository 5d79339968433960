"""Distributions for generalized linear models whose rows span few of the coordinates."""

from __future__ import annotations

import math
from dataclasses import replace

from dprepro.datasets.populations import check_size, hadamard, on_sphere, population_info, population_of
from dprepro.datasets.preparation import bounded, real_number, row_sums, whole_number
from dprepro.datasets.records import Definition, Prepared
from dprepro.errors import UserError


def _glm_valley(
    rows: int | None, seed: int, *, features: int = 64, rank: int = 8, share: float = 0.5, noise: float = 0.25
) -> Prepared:
    """Return data of the loss `glm_valley` in the first `rank` coordinates, the others zero; no draw is random.

    With probability `share` a row is the first unit vector, along which the valley falls. The others have signs in the
    next rank - 1 coordinates, those of a Hadamard matrix over sqrt(rank - 1), so that all directions between the walls
    are alike, and y = <x, truth> + noise or - noise with a truth of length 1/2. A row with y > 0 is stored as its
    opposite, as positive labels are those of the valley: the Huber loss is even.
    """
    import numpy as np

    features, rank = whole_number("features", features, 2), whole_number("rank", rank, 2)
    share, noise = real_number("share", share, 0, 1), real_number("noise", noise, 0, 0.5)
    if rank > features:
        raise UserError(f"rank={rank} is more than features={features}: give a rank of at most {features}.")
    size = 1 << (rank - 2).bit_length()
    check_size(2 * size + 1, features)
    signs = hadamard(size)[:, : rank - 1] / math.sqrt(rank - 1)
    walls = np.concatenate([signs, signs])
    truth = np.where(np.arange(rank - 1) % 2, -0.5, 0.5) / math.sqrt(rank - 1)
    labels = row_sums(walls * truth) + np.repeat([noise, -noise], size)
    X = np.zeros((2 * size + 1, features))
    X[0, 0] = 1.0
    X[1:, 1:rank] = np.where(labels[:, None] > 0.0, -walls, walls)
    y = np.append(1.0, -np.abs(labels)).astype(np.float32)
    probabilities = np.append(share, np.full(2 * size, (1.0 - share) / (2 * size)))
    population = replace(population_of(probabilities, rows), rank=rank)
    return Prepared(bounded(X), y, "generated", population)


def _low_rank_signs(
    rows: int | None,
    seed: int,
    *,
    features: int = 64,
    rank: int = 4,
    atoms: int = 256,
    margin: float = 4.0,
    parts: int | None = None,
) -> Prepared:
    """Draw rows uniform on the sphere of the first `rank` coordinates; each is two atoms, with the labels +1 and -1.

    P(y = +1 | x) = 1 / (1 + exp(-margin <x, truth>)) with a truth of length 1, so that margin times the truth minimises
    the logistic risk exactly. With `parts` this probability is rounded to a multiple of 1/parts: a multiple of
    parts atoms/2 records can then be copies of the atoms. The risk is the same function of the first `rank`
    coordinates whatever the number of features.
    """
    import numpy as np

    features, rank, atoms = (
        whole_number(name, value, 1) for name, value in (("features", features), ("rank", rank), ("atoms", atoms))
    )
    margin = real_number("margin", margin, 0, 1000)
    if rank > features:
        raise UserError(f"rank={rank} is more than features={features}: give a rank of at most {features}.")
    if atoms % 2:
        raise UserError(f"atoms={atoms} does not make pairs with both labels: give an even number.")
    check_size(atoms, features)
    points = on_sphere(np.random.default_rng(seed), atoms // 2 + 1, rank)
    X = np.zeros((atoms // 2, features))
    X[:, :rank] = points[1:]
    X = bounded(X)
    positive = 0.5 + 0.5 * np.tanh(0.5 * margin * row_sums(X[:, :rank] * points[0]))
    if parts is not None:
        parts = whole_number("parts", parts, 1)
        positive = np.rint(parts * positive) / parts
    probabilities = np.concatenate([positive, 1.0 - positive]) / len(X)
    population = replace(population_of(probabilities, rows), rank=rank)
    y = np.repeat(np.array([1.0, -1.0], dtype=np.float32), len(X))
    return Prepared(np.concatenate([X, X]), y, "generated", population)


_SIGNS = population_info(
    "population_low_rank_signs",
    "Logistic model of low rank, as a population",
    "The rows of the atoms=256 atoms are uniform on the sphere of the first rank=4 coordinates, and every row has "
    "both labels: P(y = +1 | x) = 1 / (1 + exp(-margin <x, truth>)) with margin=4 and a truth of length 1, rounded to "
    "a multiple of 1/parts if parts is given. The seed and the parameters fix every draw.",
)


DATASETS = (
    Definition(
        population_info(
            "population_glm_valley",
            "Data of the valley as a generalized linear model",
            "With probability share=0.5 a row is the first unit vector with the label 1; the others have signs of a "
            "Hadamard matrix in the next coordinates, together rank=8 of them, and y = <x, truth> + noise or - noise "
            "with noise=0.25 and a truth of length 1/2, stored with the sign that makes y negative. No draw is random.",
        ),
        _glm_valley,
    ),
    Definition(replace(_SIGNS, task="classification"), _low_rank_signs),
)
