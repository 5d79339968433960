from __future__ import annotations

import numpy as np
import pytest

from dprepro.streams import Streams

# A two-sided |z| beyond this has a probability of 4e-9. The block noise has 17 such statistics and a chi-square of
# 1e-7: the chance of a false alarm is below 2e-7 in all, and nil once seen to pass with a fixed seed.
Z = 5.9


def test_a_normal_depends_only_on_seed_replicate_step_and_coordinate():
    whole = Streams(3, [0, 1, 2], "noise").normals(0, 40, 5)
    # other company, other block cut, other slot
    other = Streams(3, [2, None, 7, 0], "noise")
    pieces = np.concatenate([other.normals(0, 7, 5), other.normals(7, 12, 5), other.normals(19, 21, 5)])
    np.testing.assert_array_equal(pieces[:, 0], whole[:, 2])
    np.testing.assert_array_equal(pieces[:, 3], whole[:, 0])


@pytest.mark.parametrize("start", [1, 2, 13, 28])
def test_random_access_gives_what_reading_through_gives(start):
    whole = Streams(3, [4], "noise").normals(0, 40, 5)
    np.testing.assert_array_equal(Streams(3, [4], "noise").normals(start, 9, 5), whole[start : start + 9])


def test_reading_backwards_gives_the_same_numbers():
    streams = Streams(3, [4], "noise")
    late, early = streams.normals(20, 8, 5), streams.normals(0, 8, 5)
    whole = Streams(3, [4], "noise").normals(0, 28, 5)
    np.testing.assert_array_equal(np.concatenate([early, late]), whole[[*range(8), *range(20, 28)]])


def test_streams_of_other_seed_replicate_or_purpose_differ():
    base = Streams(3, [4], "noise").normals(0, 8, 5)
    for seed, replicate, purpose in ((4, 4, "noise"), (3, 5, "noise"), (3, 4, "sampling")):
        assert not np.any(Streams(seed, [replicate], purpose).normals(0, 8, 5) == base)


def test_empty_slots_are_zero():
    block = Streams(0, [None, 1], "noise").normals(0, 6, 3)
    assert np.all(block[:, 0] == 0)
    assert np.all(block[:, 1] != 0)


def test_scale_multiplies_the_noise():
    unit = Streams(0, [1], "noise").normals(0, 100, 3)
    np.testing.assert_allclose(Streams(0, [1], "noise").normals(0, 100, 3, 0.25), 0.25 * unit, rtol=1e-6)


PIECES, PIECE = 8, (1000, 64, 100)
CUTS = (1.0, 2.0, 3.0, 4.0, 4.5)
# Cells of equal width from -4 to 4, and one beyond each end.
CELLS_PER_UNIT = 64
PAIRS = {
    "cosine and sine of one word": (np.s_[0::2], np.s_[1::2]),
    "coordinates": (np.s_[..., :-1], np.s_[..., 1:]),
    "replicates": (np.s_[:, :-1], np.s_[:, 1:]),
    "words": (np.s_[:-2], np.s_[2:]),
}


@pytest.fixture(scope="module")
def tally():
    """What 5.12e7 normals add up to, 6.4 million at a time: 64 replicates, 8000 steps, 100 coordinates."""
    streams, found = Streams(11, list(range(64)), "noise"), {"count": 0}

    def add(name, value):
        found[name] = found.get(name, 0) + value

    for piece in range(PIECES):
        x = streams.normals(piece * PIECE[0], PIECE[0], PIECE[2])
        assert x.shape == PIECE
        square = x * x
        add("count", x.size)
        for power, terms in ((1, x), (2, square), (3, square * x), (4, square * square)):
            add(power, np.sum(terms, dtype=np.float64))
        size = np.abs(x)
        for cut in CUTS:
            add(f"beyond {cut}", np.count_nonzero(size > cut))
        cells = np.clip(np.floor(x.ravel() * CELLS_PER_UNIT) + 4 * CELLS_PER_UNIT + 1, 0, 8 * CELLS_PER_UNIT + 1)
        add("cells", np.bincount(cells.astype(np.int16), minlength=8 * CELLS_PER_UNIT + 2))
        square -= 1.0
        for name, (one, other) in PAIRS.items():
            add(name, np.sum(x[one] * x[other], dtype=np.float64))
            add(f"squares: {name}", np.sum(square[one] * square[other], dtype=np.float64))
            add(f"pairs: {name}", x[one].size)
    return found


def test_fifty_million_normals_have_the_moments_of_the_standard_normal(tally):
    assert tally["count"] >= 5e7
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        z = (tally[power] / tally["count"] - mean) / np.sqrt(variance / tally["count"])
        assert abs(z) < Z, f"moment {power}: z = {z:.2f}"


def test_tails_have_the_right_weight(tally):
    from scipy.stats import norm

    for cut in CUTS:
        expected = 2 * norm.sf(cut)
        z = (tally[f"beyond {cut}"] / tally["count"] - expected) / np.sqrt(expected * (1 - expected) / tally["count"])
        assert abs(z) < Z, f"P(|Z| > {cut}): z = {z:.2f}"


def test_distribution_passes_a_chi_square_over_514_cells(tally):
    from scipy.stats import chi2, norm

    edges = np.arange(-4 * CELLS_PER_UNIT, 4 * CELLS_PER_UNIT + 1) / CELLS_PER_UNIT
    expected = tally["count"] * np.diff(np.concatenate([[0.0], norm.cdf(edges), [1.0]]))
    assert expected.min() > 100.0
    statistic = np.sum((tally["cells"] - expected) ** 2 / expected)
    assert chi2.sf(statistic, expected.size - 1) > 1e-7


def test_pairs_neighbours_and_squares_are_uncorrelated(tally):
    for name in PAIRS:
        for kind, variance in (("", 1.0), ("squares: ", 4.0)):
            z = tally[kind + name] / np.sqrt(variance * tally[f"pairs: {name}"])
            assert abs(z) < Z, f"{kind}{name}: z = {z:.2f}"


def test_integers_are_uniform_and_in_range():
    from scipy.stats import chi2

    drawn = Streams(5, list(range(8)), "sample").integers(0, 20_000, 37)
    assert drawn.min() == 0
    assert drawn.max() == 36
    counts = np.bincount(drawn.ravel(), minlength=37)
    statistic = np.sum((counts - counts.mean()) ** 2 / counts.mean())
    assert chi2.sf(statistic, 36) > 1e-7


def test_integers_too_depend_only_on_their_step():
    whole = Streams(5, [3], "sample").integers(0, 30, 1000)
    np.testing.assert_array_equal(Streams(5, [9, 3], "sample").integers(11, 6, 1000)[:, 1], whole[11:17, 0])


@pytest.mark.parametrize(("size", "n"), [(1, 1000), (4, 400), (3, 20), (60, 400)])
def test_poisson_batches_are_binomial_in_size_and_uniform_in_their_records(size, n):
    """Sizes and records by chi-square, each with a false alarm below 1e-7."""
    from scipy.stats import binom, chi2

    records, counts = Streams(5, list(range(16)), "sample").poisson(0, 1500, size, n)
    assert counts.shape == (1500, 16)
    edges = np.unique(binom.ppf(np.linspace(0.03, 0.97, 12), n, size / n))
    expected = counts.size * np.diff(np.concatenate([[0.0], binom.cdf(edges, n, size / n), [1.0]]))
    seen = np.bincount(np.searchsorted(edges, counts.ravel()), minlength=expected.size)
    assert chi2.sf(np.sum((seen - expected) ** 2 / expected), expected.size - 1) > 1e-7

    used = np.arange(records.shape[-1]) < counts[..., None]
    drawn = records[used]
    assert drawn.min() == 0
    assert drawn.max() == n - 1
    cells = np.bincount(drawn * 20 // n, minlength=20)
    assert chi2.sf(np.sum((cells - cells.mean()) ** 2) / cells.mean(), 19) > 1e-7
    padded = np.sort(np.where(used, records, -1 - np.arange(records.shape[-1])), axis=-1)
    assert np.all(padded[..., 1:] > padded[..., :-1]), "a record twice in a batch"


@pytest.mark.parametrize(("size", "n"), [(2, 900), (3, 20)])
def test_poisson_batches_depend_only_on_their_step(size, n):
    def sets(records, counts):
        return [[tuple(row[:k]) for row, k in zip(*pair, strict=True)] for pair in zip(records, counts, strict=True)]

    whole = sets(*Streams(5, [3, 8], "sample").poisson(0, 40, size, n))
    other = Streams(5, [9, None, 8, 3], "sample")
    parts = sets(*other.poisson(30, 10, size, n)), sets(*other.poisson(0, 30, size, n))
    assert [[step[3], step[2]] for step in parts[1] + parts[0]] == whole
    assert all(step[1] == () for part in parts for step in part), "an empty slot draws nothing"


def test_repeated_draws_of_a_poisson_batch_are_replaced_by_the_next_ones():
    from dprepro.streams import _records

    words = (np.array([[3, 7, 3, 9, 1], [3, 7, 4, 9, 1]], dtype=np.uint64) << np.uint64(60)) + np.uint64(1 << 59)
    np.testing.assert_array_equal(_records(words, np.array([3, 3]), 16), [[3, 7, 9], [3, 7, 4]])
    # the repeat stands behind the batch: nothing to replace
    np.testing.assert_array_equal(_records(words, np.array([2, 3]), 16)[0, :2], [3, 7])


@pytest.mark.parametrize(("size", "n"), [(1, 200_000), (100, 200_000), (4, 400)])
def test_the_words_of_a_poisson_batch_run_out_practically_never(size, n):
    """Union bound with exact rationals: too many repeats among the draws of the largest possible batch."""
    from fractions import Fraction
    from math import comb

    from scipy.stats import binom

    from dprepro.streams import _binomial_quantiles, _poisson_words

    quantiles = _binomial_quantiles(size, n)
    largest, width = quantiles.size, _poisson_words(quantiles.size, n)
    spare = width - 1 - largest
    assert comb(largest + spare, spare + 1) * Fraction(largest, n) ** (spare + 1) < Fraction(1, 10**30)
    assert binom.sf(largest, n, size / n) < 2.0**-63
    np.testing.assert_allclose(quantiles / 2.0**64, binom.cdf(np.arange(largest), n, size / n), rtol=1e-9, atol=1e-19)
