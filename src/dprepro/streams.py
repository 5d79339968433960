"""Randomness: one counter-based stream per replicate and purpose, drawn in blocks.

A normal number depends only on (root seed, replicate, purpose, step, coordinate): neither on the replicates that
run beside it nor on how the steps are cut into blocks. The streams are Philox 4x64-10 on the host, and every backend
receives the same numbers; kernels on a GPU draw the same words and round normals by themselves.

These generators are seeded so that experiments can be repeated. They are not fit for releasing real data.
"""

from __future__ import annotations

import decimal
import functools
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from dprepro.errors import RunFailed

# Bits of a 64-bit word: the high 40 give the radius (largest normal 7.5), the low 24 the angle.
_ANGLE_BITS = 24
_RADIUS_BITS = 64 - _ANGLE_BITS
_ANGLE_MASK = np.uint64((1 << _ANGLE_BITS) - 1)
_ANGLE_SCALE = np.float32(2.0 * np.pi / (1 << _ANGLE_BITS))
_QUARTER_TURN = np.float32(np.pi / 2.0)
_RADIUS_SCALE = np.float32(2.0**-_RADIUS_BITS)
_WORDS_PER_COUNTER = 4
# Words turned into normals at one time: the temporaries stay in the first two levels of cache.
_PIECE_WORDS = 8192
# Draws of unknown length start 2^96 counters apart: no two of them can meet.
_DRAW_BITS = 96
# Steps that one generator serves where a draw takes no fixed number of words.
DRAWN_STEPS = 64
# Running out of words must be rarer than this.
_NEVER = 1e-30


class _Words:
    """The raw 64-bit words of one stream, by position. Reading on where the last read ended costs nothing."""

    def __init__(self, seed: int, replicate: int, purpose: str) -> None:
        self._entropy = np.random.SeedSequence(seed, spawn_key=(replicate, zlib.crc32(purpose.encode())))
        self._generator = np.random.Philox(self._entropy)
        self._position = 0

    def read(self, start: int, count: int) -> np.ndarray:
        """Return words `start` to `start + count` as uint64."""
        if start != self._position:
            counters, rest = divmod(start, _WORDS_PER_COUNTER)
            self._generator = np.random.Philox(self._entropy)
            self._generator.advance(counters)
            self._generator.random_raw(rest)
        self._position = start + count
        return self._generator.random_raw(count)

    @property
    def key(self) -> np.ndarray:
        """The two words of the Philox key."""
        return np.random.Philox(self._entropy).state["state"]["key"]

    def generator(self, number: int) -> np.random.Generator:
        """Return a generator for draws that take no fixed number of words, behind the words that are read."""
        bits = np.random.Philox(self._entropy)
        bits.advance((number + 1) << _DRAW_BITS)
        return np.random.Generator(bits)


class Streams:
    """The streams of some replicates for one purpose (`noise:LABEL`, `output`, ...).

    Numbers come in blocks over steps with one row per slot; `replicates[k]` is the replicate in slot k, and None
    marks an empty slot, whose numbers are all zero.
    """

    def __init__(self, seed: int, replicates: Sequence[int | None], purpose: str) -> None:
        self.slots = len(replicates)
        self._words = {
            slot: _Words(seed, replicate, purpose) for slot, replicate in enumerate(replicates) if replicate is not None
        }

    def seeds(self) -> dict[int, int]:
        """Return a seed of 64 bits for each slot in use, for a generator that is not of this module."""
        return {slot: int(words.read(0, 1)[0]) for slot, words in self._words.items()}

    @functools.cached_property
    def keys(self) -> np.ndarray:
        """What a device needs for the same words, (slots, 3): the Philox key and 1, or zeros for an empty slot."""
        found = np.zeros((self.slots, 3), dtype=np.uint64)
        for slot, words in self._words.items():
            found[slot] = [*words.key, 1]
        return found

    def words(self, first: int, count: int) -> np.ndarray:
        """Return raw words of shape (slots, count), uint64; 0 in empty slots."""
        block = np.zeros((self.slots, count), dtype=np.uint64)
        for slot, words in self._words.items():
            block[slot] = words.read(first, count)
        return block

    def normals(self, first_step: int, steps: int, d: int, scale: float = 1.0) -> np.ndarray:
        """Return `scale` times standard normals of shape (steps, slots, d), float32.

        Word s*d + j of a stream serves coordinate j of the steps 2s (cosine) and 2s + 1 (sine) of a Box-Muller
        pair. Single precision is drawn for every run: its elementary functions give the same bits on every
        machine seen, and one stream then serves both floating-point types.
        """
        first_pair, offset = divmod(first_step, 2)
        pairs = (offset + steps + 1) // 2
        block = np.zeros((2 * pairs, self.slots, d), dtype=np.float32)
        rows = max(1, _PIECE_WORDS // max(d, 1))
        for slot, words in self._words.items():
            raw = words.read(first_pair * d, pairs * d).reshape(pairs, d)
            for start in range(0, pairs, rows):
                stop = start + rows
                even, odd = (
                    block[2 * start : 2 * stop : 2, slot, :],
                    block[2 * start + 1 : 2 * stop : 2, slot, :],
                )
                _box_muller(raw[start:stop], np.float32(scale), even, odd)
        return block[offset : offset + steps]

    def uniforms(self, first_step: int, steps: int) -> np.ndarray:
        """Return uniforms in (0, 1) of shape (steps, slots), float64, one word each; 0 in empty slots."""
        block = np.zeros((steps, self.slots))
        for slot, words in self._words.items():
            raw = words.read(first_step, steps)
            block[:, slot] = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return block

    def integers(self, first_step: int, steps: int, n: int) -> np.ndarray:
        """Return integers uniform on {0, ..., n-1} of shape (steps, slots), int64."""
        return np.minimum((self.uniforms(first_step, steps) * n).astype(np.int64), n - 1)

    def subsets(self, first_step: int, steps: int, size: int, n: int) -> np.ndarray:
        """Return `size` distinct integers of {0, ..., n-1} per step and slot: (steps, slots, size), int64.

        A fixed number of words serves each step. Small subsets are the first distinct ones of a sequence of
        uniform integers, which makes every subset equally likely; large ones the positions of the smallest of n
        random words.
        """
        block = np.zeros((steps, self.slots, size), dtype=np.int64)
        spare = _spare_words(size, n)
        width = n if spare is None else size + spare
        for slot, words in self._words.items():
            raw = words.read(first_step * width, steps * width).reshape(steps, width)
            if spare is None:
                block[:, slot, :] = np.argpartition(raw, size - 1, axis=1)[:, :size]
            else:
                block[:, slot, :] = _first_distinct(_below(raw, n), size)
        return block

    def poisson(self, first_step: int, steps: int, size: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return Poisson batches: each of n records independently with probability size/n, per step and slot.

        The first array (steps, slots, longest) holds the records, the second (steps, slots) how many of them count.
        A fixed number of words serves each step. One word gives the binomial size by inversion, exact to 2^-64, and
        the records are the first distinct ones of a sequence of uniform integers; where that would take more words
        than there are records, each record has a word of its own.
        """
        quantiles = _binomial_quantiles(size, n)
        width = _poisson_words(quantiles.size, n)
        raw = np.zeros((steps, self.slots, n if width is None else width), dtype=np.uint64)
        for slot, words in self._words.items():
            raw[:, slot, :] = words.read(first_step * raw.shape[-1], steps * raw.shape[-1]).reshape(steps, -1)
        used = np.zeros((self.slots, 1), dtype=bool)
        used[list(self._words)] = True
        if width is None:
            return _marked((raw < np.uint64((size << 64) // n)) & used)
        counts = np.searchsorted(quantiles, raw[..., 0], side="right") * used[:, 0]
        return _records(raw[..., 1:], counts, n), counts

    def multinomial(self, number: int, size: int, probabilities: np.ndarray) -> np.ndarray:
        """Return how often each of M outcomes occurs among `size` independent draws: (slots, M), int64.

        `number` tells the draws of a stream apart. The cost is that of M binomial numbers whatever the size, up to
        10^12 and beyond. The numbers are those of NumPy's binomial generator: another version of it may draw others.
        """
        block = np.zeros((self.slots, probabilities.size), dtype=np.int64)
        for slot, words in self._words.items():
            block[slot, :] = words.generator(number).multinomial(size, probabilities)
        return block

    def spherical(self, number: int, size: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `size` uniform points of the unit sphere (slots, size, d) and as many random signs (slots, size).

        `number` tells the draws of a stream apart. Empty slots hold zeros.
        """
        points, signs = np.zeros((self.slots, size, d)), np.zeros((self.slots, size))
        for slot, words in self._words.items():
            generator = words.generator(number)
            drawn = generator.standard_normal((size, d))
            points[slot] = drawn / np.sqrt(np.einsum("ij,ij->i", drawn, drawn))[:, None]
            signs[slot] = 2.0 * generator.integers(0, 2, size) - 1.0
        return points, signs

    def hypergeometrics(self, first_step: int, steps: int, size: int, copies: np.ndarray) -> np.ndarray:
        """Return how often each of M kinds occurs among `size` of the sum(copies) items: (steps, slots, M), int64.

        There are copies[m] items of kind m, and every set of `size` items is equally likely at every step.
        """

        def draw(generator: np.random.Generator, count: int) -> np.ndarray:
            return generator.multivariate_hypergeometric(copies, size, size=count, method="marginals")

        return self._in_blocks(first_step, steps, copies.size, draw)

    def binomials(self, first_step: int, steps: int, size: int, copies: np.ndarray) -> np.ndarray:
        """Return how many of copies[m] items of each kind are taken, each with probability size/sum(copies).

        The shape is that of `hypergeometrics`.
        """

        def draw(generator: np.random.Generator, count: int) -> np.ndarray:
            return generator.binomial(copies, size / copies.sum(), size=(count, copies.size))

        return self._in_blocks(first_step, steps, copies.size, draw)

    def _in_blocks(
        self, first_step: int, steps: int, width: int, draw: Callable[[np.random.Generator, int], np.ndarray]
    ) -> np.ndarray:
        """Return steps of `draw`, which is called for aligned blocks: how steps are asked for changes nothing."""
        block = np.zeros((steps, self.slots, width), dtype=np.int64)
        numbers = range(first_step // DRAWN_STEPS, (first_step + steps - 1) // DRAWN_STEPS + 1)
        for slot, words in self._words.items():
            for number in numbers:
                start = number * DRAWN_STEPS
                low, high = max(first_step, start), min(first_step + steps, start + DRAWN_STEPS)
                drawn = draw(words.generator(number), DRAWN_STEPS)
                block[low - first_step : high - first_step, slot, :] = drawn[low - start : high - start]
        return block


@functools.cache
def _binomial_quantiles(size: int, n: int) -> np.ndarray:
    """Return P(X <= k) 2^64, rounded down, for k = 0, 1, ... while it fits a word; X ~ Binomial(n, size/n).

    Decimal arithmetic gives the same integers on every machine.
    """
    with decimal.localcontext(prec=60, Emin=decimal.MIN_EMIN):
        odds = decimal.Decimal(size) / (n - size)
        mass = (decimal.Decimal(n - size) / n) ** n
        total = mass
        found: list[int] = []
        while len(found) < n and (word := int(total * 2**64)) < 2**64 - 1:
            found.append(word)
            mass *= odds * (n - len(found) + 1) / len(found)
            total += mass
    return np.array(found, dtype=np.uint64)


@functools.cache
def _poisson_words(largest: int, n: int) -> int | None:
    """Return how many words serve one Poisson batch of at most `largest` records; None where one per record is less.

    A draw repeats an earlier one with probability below p = largest/n, so s + 1 repeats among largest + s draws have
    a probability below binom(largest + s, s + 1) p^(s + 1), which bounds that of running out with s spare words.
    """
    p, spare, failure = largest / n, 0, 1.0 * largest * largest / n
    while failure >= _NEVER and 1 + largest + spare < n:
        spare += 1
        failure *= p * (largest + spare) / (spare + 1)
    return 1 + largest + spare if 1 + largest + spare < n else None


def _marked(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the true entries of the last axis, in order and padded, and their numbers."""
    counts = chosen.sum(axis=-1)
    return np.argsort(~chosen, axis=-1, kind="stable")[..., : counts.max(initial=0)], counts


def _records(words: np.ndarray, counts: np.ndarray, n: int) -> np.ndarray:
    """Return the first `counts` distinct integers below n of each row of words; what follows them is padding."""
    longest = int(counts.max(initial=0))
    drawn = _below(words[..., :longest], n)
    place = np.arange(longest)
    # Padding gets numbers of its own, so that only true repeats are equal.
    ordered = np.sort(np.where(place < counts[..., None], drawn, -1 - place), axis=-1)
    for row in zip(*np.nonzero(np.any(ordered[..., 1:] == ordered[..., :-1], axis=-1)), strict=True):
        count = counts[row]
        drawn[row][:count] = _first_distinct(_below(words[row], n)[None, :], count)[0]
    return drawn


def _below(words: np.ndarray, n: int) -> np.ndarray:
    """Return integers uniform on {0, ..., n-1}, one for each word."""
    uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.minimum((uniforms * n).astype(np.int64), n - 1)


def _spare_words(size: int, n: int) -> int | None:
    """Return how many draws beyond `size` make running out of distinct ones practically impossible.

    The expected number of repeats is below e = size^2 / n for size <= n / 4; e + 12 sqrt(e) + 40 of them have a
    probability below 1e-30. None where ordering n words is the quicker way.
    """
    if size > n // 4 or n <= 2000 + 10 * size:
        return None
    repeats = size * size / n
    return int(repeats + 12.0 * np.sqrt(repeats) + 40.0)


def _first_distinct(drawn: np.ndarray, size: int) -> np.ndarray:
    """Return the first `size` distinct numbers of each row."""
    result = drawn[:, :size].copy()
    ordered = np.sort(result, axis=1)
    for row in np.flatnonzero(np.any(ordered[:, 1:] == ordered[:, :-1], axis=1)):
        values, places = np.unique(drawn[row], return_index=True)
        if values.size < size:
            raise RunFailed("A random batch ran out of distinct records; choose another seed.")
        result[row] = drawn[row][np.sort(places)[:size]]
    return result


def _box_muller(words: np.ndarray, scale: np.float32, even: np.ndarray, odd: np.ndarray) -> None:
    """Fill `even` and `odd` (float32) with scaled standard normals, two independent ones from each uint64 word."""
    # Both fields are below 2^63, so they are read as signed integers, which convert twice as fast; the sine is
    # taken as a shifted cosine for the same reason.
    radius = (words >> np.uint64(_ANGLE_BITS)).view(np.int64).astype(np.float32)
    radius += np.float32(0.5)
    radius *= _RADIUS_SCALE
    np.log(radius, out=radius)
    radius *= np.float32(-2.0)
    np.sqrt(radius, out=radius)
    radius *= scale
    angle = (words & _ANGLE_MASK).view(np.int64).astype(np.float32)
    angle *= _ANGLE_SCALE
    np.multiply(np.cos(angle), radius, out=even)
    angle -= _QUARTER_TURN
    np.multiply(np.cos(angle, out=angle), radius, out=odd)
