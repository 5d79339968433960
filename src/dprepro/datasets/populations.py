"""Distributions on finitely many atoms, of which `rows` samples are drawn: risks over them are exact sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dprepro.datasets.preparation import bounded, real_number, row_sums, whole_number
from dprepro.datasets.records import DatasetInfo, Definition, Population, Prepared
from dprepro.datasets.synthetic import DEFAULT_ROWS, MAXIMUM_ENTRIES
from dprepro.errors import UserError

if TYPE_CHECKING:
    import numpy as np

# The label of the linear population: no point of the unit ball reaches it.
FAR_LABEL = 2.0
# The golden ratio: steps of about this share of a circle go through all places and leave no pattern.
_GOLDEN = 0.6180339887498949


def _linear(rows: int | None, seed: int, *, features: int = 64, signal: float = 0.5, norm: str = "l1") -> Prepared:
    """Return sign rows of mean signal * u and the label 2: on the unit ball |<w, x> - 2| is 2 - <w, x>, a linear risk.

    The atoms are the rows of a Hadamard matrix and their negatives, so that all other moments up to the second are
    those of independent signs. For the norm l1, entries are +1 or -1 and the last one leans to +1; for l2 the rows are
    divided by sqrt(d), and with probability `signal` it is the first one, u, outright.
    """
    import numpy as np

    features = whole_number("features", features, 1)
    signal = real_number("signal", signal, 0, 1)
    size = 1 << (features - 1).bit_length()
    check_size(2 * size, features)
    half = hadamard(size)[:, :features]
    signs = np.concatenate([half, -half])
    y = np.full(len(signs), FAR_LABEL, dtype=np.float32)
    if norm == "l1":
        probabilities = (1.0 + signal * signs[:, -1]) / len(signs)
        population = population_of(probabilities, rows, row_norm=math.sqrt(features), label_bound=FAR_LABEL)
        return Prepared(np.ascontiguousarray(signs, dtype=np.float32), y, "generated", population)
    if norm != "l2":
        raise UserError(f"norm must be l1 or l2, got {norm!r}: choose one of them.")
    probabilities = np.full(len(signs), (1.0 - signal) / len(signs))
    probabilities[0] += signal
    X = bounded(signs / math.sqrt(features))
    return Prepared(X, y, "generated", population_of(probabilities, rows, label_bound=FAR_LABEL))


def _sparse(
    rows: int | None,
    seed: int,
    *,
    features: int = 64,
    atoms: int = 384,
    sparsity: int = 3,
    noise: float = 0.1,
    outliers: float = 0.0,
) -> Prepared:
    """Draw rows of random signs and y = <x, truth> + noise N(0, 1), clipped to [-1, 1].

    The truth has equal entries of changing sign in the last `sparsity` coordinates and l1 norm 1. A share `outliers`
    of the atoms has the opposite label.
    """
    import numpy as np

    features, atoms = whole_number("features", features, 1), whole_number("atoms", atoms, 1)
    sparsity = whole_number("sparsity", sparsity, 1)
    if sparsity > features:
        raise UserError(f"sparsity={sparsity} is more than features={features}: give at most {features}.")
    check_size(atoms, features)
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((atoms, features)) < 0.5, np.float32(-1), np.float32(1))
    truth = np.zeros(features)
    truth[features - sparsity :] = np.where(np.arange(sparsity) % 2, -1.0, 1.0) / sparsity
    y = noisy_labels(rng, row_sums(X * truth), noise, outliers)
    return Prepared(X, y, "generated", population_of(uniform(atoms), rows, row_norm=math.sqrt(features)))


def _direction(
    rows: int | None,
    seed: int,
    *,
    features: int = 16,
    atoms: int = 384,
    share: float = 0.5,
    level: float = 0.5,
    noise: float = 0.1,
    outliers: float = 0.0,
) -> Prepared:
    """Draw x = s sqrt(share) u + sqrt(1 - share) v and y = s level + noise N(0, 1), clipped to [-1, 1].

    s is a random sign, u a unit vector that all rows share and v uniform on the unit sphere orthogonal to u.
    A share `outliers` of the atoms has the opposite label.
    """
    import numpy as np

    features, atoms = whole_number("features", features, 2), whole_number("atoms", atoms, 1)
    share, level = real_number("share", share, 0, 1), real_number("level", level, 0, 1)
    check_size(atoms, features)
    rng = np.random.default_rng(seed)
    signs = np.where(rng.random(atoms) < 0.5, -1.0, 1.0)
    points = on_sphere(rng, atoms, features - 1)
    X = np.concatenate([math.sqrt(share) * signs[:, None], math.sqrt(1.0 - share) * points], axis=1)
    y = noisy_labels(rng, level * signs, noise, outliers)
    return Prepared(bounded(X), y, "generated", population_of(uniform(atoms), rows))


def _circle(rows: int | None, seed: int, *, directions: int = 24, levels: int = 15, width: float = 1.0) -> Prepared:
    """Return rows in evenly spread directions of the half circle, and y = <x, truth> + e with evenly spread e.

    The truth is (0.3, 0.2), and e takes `levels` values in every direction, all different, on a range of this width.
    Residuals then have an even density: down to its grain, a loss with a kink has a quadratic risk around the truth.
    """
    import numpy as np

    directions, levels = whole_number("directions", directions, 2), whole_number("levels", levels, 1)
    width = real_number("width", width, 0, 1)
    number, level = np.arange(directions * levels) % directions, np.arange(directions * levels) // directions
    angles = np.pi * number / directions
    X = bounded(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    # Neighbouring directions have levels far apart.
    stride = next(k for k in range(round(_GOLDEN * directions), 2 * directions) if math.gcd(k, directions) == 1)
    places = (level * directions + number * stride % directions + 0.5) / len(X) - 0.5
    y = (row_sums(X * np.array([0.3, 0.2])) + width * places).astype(np.float32)
    return Prepared(X, y, "generated", population_of(uniform(len(X)), rows))


def _low_rank(
    rows: int | None, seed: int, *, features: int = 64, rank: int = 4, atoms: int = 256, noise: float = 0.2
) -> Prepared:
    """Draw rows uniform on the sphere of the first `rank` coordinates and y = <x, truth> + noise N(0, 1).

    The truth has length 1/2; labels are clipped to [-1, 1]. The risk is the same function of these coordinates whatever
    the number of features.
    """
    import numpy as np

    features, rank, atoms = (
        whole_number(name, value, 1) for name, value in (("features", features), ("rank", rank), ("atoms", atoms))
    )
    if rank > features:
        raise UserError(f"rank={rank} is more than features={features}: give a rank of at most {features}.")
    check_size(atoms, features)
    rng = np.random.default_rng(seed)
    points = on_sphere(rng, atoms + 1, rank)
    X = np.zeros((atoms, features))
    X[:, :rank] = points[1:]
    y = noisy_labels(rng, 0.5 * row_sums(points[1:] * points[0]), noise, 0.0)
    population = replace(population_of(uniform(atoms), rows), rank=rank)
    return Prepared(bounded(X), y, "generated", population)


def _valley(rows: int | None, seed: int, *, features: int = 10, atoms: int = 64) -> Prepared:
    """Draw rows (0, z) with z uniform on the unit sphere, each with its opposite, and labels 1/2 and 1 in turn.

    These are the data of the loss `valley`: the rows have the mean 0 and the labels the mean 3/4.
    """
    import numpy as np

    features, atoms = whole_number("features", features, 2), whole_number("atoms", atoms, 4)
    if atoms % 4:
        raise UserError(f"atoms={atoms} does not make opposite pairs with both labels: give a multiple of 4.")
    check_size(atoms, features)
    half = on_sphere(np.random.default_rng(seed), atoms // 2, features - 1)
    X = np.zeros((atoms, features))
    X[:, 1:] = np.concatenate([half, -half])
    y = np.where(np.arange(atoms) % 2, 1.0, 0.5).astype(np.float32)
    return Prepared(bounded(X), y, "generated", population_of(uniform(atoms), rows))


def _mean(
    rows: int | None, seed: int, *, features: int = 10, atoms: int = 64, radius: float = 0.25, centre: float = 0.5
) -> Prepared:
    """Draw rows uniform on a sphere around a point, all of them in the ball of the radius; labels are 0.

    The point is `centre` times the radius away from the origin, and the sphere has what is left of the radius.
    """
    import numpy as np

    features, atoms = whole_number("features", features, 1), whole_number("atoms", atoms, 2)
    radius, centre = real_number("radius", radius, 0, 1), real_number("centre", centre, 0, 1)
    check_size(atoms, features)
    points = on_sphere(np.random.default_rng(seed), atoms + 1, features)
    X = radius * (centre * points[0] + (1.0 - centre) * points[1:])
    return Prepared(bounded(X), np.zeros(atoms, dtype=np.float32), "generated", population_of(uniform(atoms), rows))


def _sphere_regression(
    rows: int | None, seed: int, *, features: int = 20, length: float = 0.5, noise: float = 0.25
) -> Prepared:
    """Return the truth as the one row: rows are uniform on the unit sphere, y = <x, truth> + noise or - noise.

    The truth has this length and a random direction; both signs of the noise are equally likely.
    """
    import numpy as np

    features = whole_number("features", features, 2)
    length, noise = real_number("length", length, 0, 1), real_number("noise", noise, 0, 1)
    if length + noise > 1.0:
        raise UserError(f"length={length} and noise={noise} make labels beyond 1: give numbers of at most 1 together.")
    truth = length * on_sphere(np.random.default_rng(seed), 1, features)
    population = replace(population_of(np.ones(1), rows), sphere=noise)
    return Prepared(bounded(truth), np.zeros(1, dtype=np.float32), "generated", population)


def noisy_labels(rng: np.random.Generator, clean: np.ndarray, noise: float, outliers: float) -> np.ndarray:
    """Return the clean labels plus noise, a share `outliers` of them with the opposite sign, clipped to [-1, 1]."""
    import numpy as np

    noise, outliers = real_number("noise", noise, 0, 100), real_number("outliers", outliers, 0, 1)
    y = np.clip(clean + noise * rng.standard_normal(len(clean)), -1, 1)
    flipped = rng.permutation(len(clean)) < round(outliers * len(clean))
    return np.where(flipped, -y, y).astype(np.float32)


def on_sphere(rng: np.random.Generator, count: int, features: int) -> np.ndarray:
    """Draw points of shape (count, features), uniform on the unit sphere."""
    import numpy as np

    points = rng.standard_normal((count, features))
    return points / np.sqrt(row_sums(points * points))[:, None]


def hadamard(size: int) -> np.ndarray:
    """Return Sylvester's Hadamard matrix of a size that is a power of two: entries +1 and -1, orthogonal columns."""
    import numpy as np

    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def uniform(atoms: int) -> np.ndarray:
    """Return equal probabilities."""
    import numpy as np

    return np.full(atoms, 1.0 / atoms)


def population_of(
    probabilities: np.ndarray, rows: int | None, row_norm: float = 1.0, label_bound: float = 1.0
) -> Population:
    """Return the population of atoms with these probabilities, of which `rows` samples are drawn."""
    samples = DEFAULT_ROWS if rows is None else rows
    return Population(probabilities, samples, row_norm=row_norm, label_bound=label_bound)


def check_size(atoms: int, features: int) -> None:
    """Refuse more numbers than fit."""
    if atoms * features > MAXIMUM_ENTRIES:
        raise UserError(
            f"{atoms} atoms times features={features} is more than {MAXIMUM_ENTRIES} numbers: ask for fewer."
        )


def population_info(name: str, title: str, text: str) -> DatasetInfo:
    """Return what is known about a population; `text` says what its atoms are."""
    return DatasetInfo(
        name=name,
        title=title,
        task="regression",
        rows=None,
        features=None,
        licence="Generated; no licence needed",
        citation="None; generated by dprepro",
        preprocessing=f"A distribution, of which rows are i.i.d. samples unless they repeat its atoms. {text}",
        sha256={},
    )


DATASETS = (
    Definition(
        population_info(
            "population_linear",
            "Signs with a weak signal",
            "Rows are the signs of a Hadamard matrix and their negatives, leaning to one direction by signal=0.5; with "
            "norm=l1 the entries are +1 and -1, with norm=l2 rows have length 1. Every label is 2, so that the "
            "absolute loss is linear on the unit ball. No draw is random.",
        ),
        _linear,
    ),
    Definition(
        population_info(
            "population_sparse",
            "Sparse linear model on signs",
            "The rows of the atoms=384 atoms are random signs, y = <x, truth> + noise N(0, 1) with noise=0.1, clipped "
            "to [-1, 1]; the truth has sparsity=3 equal entries of changing sign and l1 norm 1. A share outliers=0 of "
            "the labels is reversed. The seed and the parameters fix every draw.",
        ),
        _sparse,
    ),
    Definition(
        population_info(
            "population_direction",
            "Linear model along one direction",
            "A row is s sqrt(share) u + sqrt(1 - share) v with a sign s, a fixed unit vector u, v uniform on the "
            "sphere orthogonal to it and share=0.5; y = s level + noise N(0, 1), with level=0.5 and noise=0.1, clipped "
            "to [-1, 1]. A share outliers=0 of the labels of the atoms=384 atoms is reversed. The seed and the "
            "parameters fix every draw.",
        ),
        _direction,
    ),
    Definition(
        population_info(
            "population_circle",
            "Linear model on the circle",
            "Rows go in directions=24 directions of the half circle, and y = <x, truth> + e with levels=15 values of e "
            "in each, evenly spread on a range of width=1. No draw is random.",
        ),
        _circle,
    ),
    Definition(
        population_info(
            "population_low_rank",
            "Linear model of low rank, as a population",
            "The rows of the atoms=256 atoms are uniform on the sphere of the first rank=4 coordinates; y = <x, truth> "
            "+ noise N(0, 1) with noise=0.2, clipped to [-1, 1]; the truth has length 1/2. The seed and the parameters "
            "fix every draw.",
        ),
        _low_rank,
    ),
    Definition(
        population_info(
            "population_valley",
            "Data of the valley",
            "The rows of the atoms=64 atoms are 0 in the first coordinate and uniform on the sphere in the others, "
            "each with its opposite; labels are 1/2 and 1 in turn. The seed and the parameters fix every draw.",
        ),
        _valley,
    ),
    Definition(
        population_info(
            "population_mean",
            "Points in a ball",
            "The atoms=64 rows lie in the ball of radius=0.25 around the origin, uniform on a sphere around a point "
            "that is centre=0.5 of the radius away from it; labels are 0. The seed and the parameters fix every draw.",
        ),
        _mean,
    ),
    Definition(
        population_info(
            "population_sphere",
            "Linear model on the sphere, as a continuous population",
            "Rows are uniform on the unit sphere and y = <x, truth> + noise or - noise, with noise=0.25 and equal "
            "chances; the truth has length=0.5 and a direction that the seed fixes. Risks are integrals, found by "
            "quadrature.",
        ),
        _sphere_regression,
    ),
)
