"""Mechanisms: the only place where a run draws noise, and where each draw is written down.

A mechanism is made from an event of the plan. It hands out noise for at most the planned number of releases and
counts them; at the end the ledger of what was drawn must equal the plan's events. Post-processing that sees no data
(a step, a projection, an average) is free and needs no mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from dprepro.arrays import Backend
from dprepro.errors import LedgerMismatch
from dprepro.kernels import Draws
from dprepro.privacy.events import (
    ConditionEvent,
    DisjointGaussianEvent,
    Event,
    FadingSelectionEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    ParallelEvent,
    QueryPart,
    SelectionEvent,
    TreeEvent,
    UnprotectedEvent,
    leaves,
    replace_leaves,
)
from dprepro.streams import DRAWN_STEPS, Streams

Array = Any

# Steps whose noise is drawn at one time: long enough to amortise the generators, short enough for the cache.
BLOCK_STEPS = 256
# Releases on disjoint batches whose noise is drawn at one time.
DISJOINT_STEPS = 32
# Leaves of a tree whose noise is drawn at one time.
TREE_STEPS = 32


@dataclass
class BatchAtHand:
    """A random batch as it was handed out for the release under way, and whether it was looked at."""

    batch: Any
    looked_at: bool = False


@dataclass(frozen=True)
class Slots:
    """Where noise is drawn for: one stream per replicate of a tile, on a backend."""

    seed: int
    replicates: tuple[int | None, ...]
    backend: Backend
    # Called with the label of an event before every draw for it.
    witness: Callable[[str], None] = lambda label: None
    # The random batch of each event whose release is under way: nothing else may be looked at by number.
    at_hand: dict[str, BatchAtHand] = field(default_factory=dict)
    # Whether somebody notes which batches are looked at.
    watched: bool = False

    def check_looked_at(self, label: str) -> None:
        """Raise if the batch at hand of an event was not looked at: another that stood in for it is not accounted."""
        at_hand = self.at_hand.get(label)
        if self.watched and at_hand is not None and not at_hand.looked_at:
            raise LedgerMismatch(
                f"A batch of the event {label!r} was not looked at before its release was over: look at every batch "
                "that is drawn; two queries on one batch are one event with the sensitivity of both."
            )

    def streams(self, purpose: str) -> Streams:
        """Return the streams of all slots for one purpose."""
        return Streams(self.seed, self.replicates, purpose)

    def normals(self, streams: Streams, first: int, steps: int, d: int, scale: float) -> Array:
        """Return `scale` times normals (steps, K, d) on the backend: drawn there by its kernels, if any, else moved."""
        if (kernels := self.backend.kernels) is not None:
            return kernels.normals(streams, first, steps, d, scale, self.backend.dtype)
        return self.backend.asarray(streams.normals(first, steps, d, scale))


@dataclass(frozen=True)
class PoissonBatch:
    """The records of one step in which every replicate has a Poisson batch of its own.

    Replicate k looks at rows[starts[k] : starts[k + 1]] (to the end for the last one). Each of these segments begins
    with the sentinel record `population`, a row of zeros behind the data, so that none is empty. `size` is the
    expected number of records, by which a sum becomes a mean.
    """

    rows: Array  # (M,)
    starts: Array  # (K,)
    size: int


class Mechanism:
    """Counts the releases of one event and refuses more than the plan has."""

    def __init__(self, event: Any, slots: Slots) -> None:
        self.event = event
        self.drawn = 0
        # Releases that were promised to somebody, drawn or not: no two of them share noise or records.
        self._promised = 0
        self._slots = slots

    @property
    def begun(self) -> bool:
        """Whether any release was asked for."""
        return self._promised > 0

    def ledger_entry(self) -> Any:
        """Return the event as it really happened."""
        return replace(self.event, count=self.drawn)

    def _take(self, releases: int) -> int:
        """Check that `releases` more are planned, keep them for the caller and return the number of the first."""
        first = self._planned(releases)
        self._slots.witness(self.event.label)
        return first

    def _release(self) -> None:
        """Count one release of those that were kept, in the turn in which it is made."""
        self.drawn += 1
        self._slots.witness(self.event.label)

    def _steps(self, usual: int) -> int:
        """Return for how many steps noise is drawn at one time; no number depends on it."""
        return self._slots.backend.steps(usual)

    def _planned(self, releases: int) -> int:
        first = self._promised
        if releases < 0:
            raise LedgerMismatch(f"{releases} releases of the mechanism {self.event.label!r} were asked for.")
        if first + releases > self.event.count:
            raise LedgerMismatch(
                f"The mechanism {self.event.label!r} is planned for {self.event.count} releases, "
                f"but {first + releases} were asked for."
            )
        self._promised += releases
        return first


class GaussianMechanism(Mechanism):
    """Gaussian noise for the releases of one event, one independent draw per replicate and release."""

    event: GaussianEvent

    def __init__(self, event: GaussianEvent, d: int, slots: Slots) -> None:
        super().__init__(event, slots)
        self._d = d
        self._normals = slots.streams(f"noise:{event.label}")
        self._indices = slots.streams(f"sample:{event.label}")

    def noise(self, releases: int) -> Iterator[Array]:
        """Yield one noise array (K, d) of variance sigma^2 for each of the next `releases`, all of full batches."""
        if not all(part.full for part in self.event.parts):
            raise LedgerMismatch(
                f"The event {self.event.label!r} is accounted as one on random batches: take the noise from `sampled`, "
                "with the batch that it is for."
            )
        for first, steps in self._blocks(releases, self._steps(BLOCK_STEPS)):
            noise = self._noise_block(first, steps)
            for step in range(steps):
                self._release()
                yield noise[step, :, :]

    def sampled(self, releases: int) -> Iterator[tuple[Array, Array]]:
        """Yield (record indices, noise (K, d)): each replicate looks at its own random batch.

        The indices have shape (K,) for a batch of one and (K, b) for a batch of b distinct records; those of Poisson
        batches are a `PoissonBatch`.
        """
        part = self._sampled_part()
        draw = self._poisson_batches if part.poisson else self._batches
        for first, steps in self._blocks(releases, self._steps(BLOCK_STEPS // part.batch)):
            noise = self._noise_block(first, steps)
            for step, index in enumerate(draw(first, steps, part)):
                self._release()
                at_hand = self.hand_out(index)
                yield index, noise[step, :, :]
                self.take_back(at_hand)

    def counted(self, releases: int, copies: np.ndarray) -> Iterator[tuple[tuple[np.ndarray, int], Array]]:
        """Yield ((counts (K, M), size), noise (K, d)) as `sampled` does, for records that are copies of M atoms.

        There are `copies[m]` of atom m. How many of each are in a random batch has the same law as if the records were
        drawn by number; `size` is that of the batch, expected for Poisson batches.
        """
        part = self._sampled_part()
        if int(copies.sum()) != part.population:
            raise LedgerMismatch(f"The event {self.event.label!r} is planned for {part.population} records, not these.")
        draw = self._indices.binomials if part.poisson else self._indices.hypergeometrics
        for first, steps in self._blocks(releases, self._steps(DRAWN_STEPS)):
            noise = self._noise_block(first, steps)
            counts = draw(first, steps, part.batch, copies)
            for step in range(steps):
                self._release()
                yield (counts[step], part.batch), noise[step, :, :]

    def _sampled_part(self) -> QueryPart:
        for part in self.event.parts:
            if not part.full:
                return part
        raise LedgerMismatch(
            f"The event {self.event.label!r} is accounted as one on all records: take its noise from `noise`, or plan "
            "a part with a batch smaller than the population."
        )

    def hand_out(self, batch: Any) -> BatchAtHand:
        """Let the batch of a release be looked at until it is taken back or the next one is handed out."""
        self._slots.check_looked_at(self.event.label)
        self._slots.at_hand[self.event.label] = at_hand = BatchAtHand(batch)
        return at_hand

    def take_back(self, at_hand: BatchAtHand) -> None:
        """End the turn of a batch."""
        if self._slots.at_hand.get(self.event.label) is at_hand:
            self._slots.check_looked_at(self.event.label)
            del self._slots.at_hand[self.event.label]

    @property
    def obstacle_to_steps(self) -> str:
        """What keeps a kernel from drawing the records of this event; empty if nothing does."""
        single = any(part.batch == 1 and not part.full and not part.poisson for part in self.event.parts)
        return "" if single else "batches other than of one record"

    def handed_over(self, releases: int) -> Draws:
        """Return the next `releases` releases, of one record each, for a kernel that draws noise and records itself."""
        if obstacle := self.obstacle_to_steps:
            raise LedgerMismatch(
                f"A kernel draws one record for each release, but the event {self.event.label!r} is for {obstacle}: "
                "take its releases from `sampled` or `noise`."
            )
        first = self._take(releases)
        self.drawn += releases
        draws = Draws(self._normals, self._indices, first, releases, self.event.sigma)
        self.hand_out(draws)
        return draws

    def _batches(self, first: int, steps: int, part: QueryPart) -> Iterator[Array]:
        if part.batch == 1:
            drawn = self._indices.integers(first, steps, part.population)
        else:
            drawn = self._indices.subsets(first, steps, part.batch, part.population)
        index = self._slots.backend.index(drawn)
        for step in range(steps):
            yield index[step, ...]

    def _poisson_batches(self, first: int, steps: int, part: QueryPart) -> Iterator[PoissonBatch]:
        records, counts = self._indices.poisson(first, steps, part.batch, part.population)
        sentinels = np.full((*counts.shape, 1), part.population)
        kept = np.arange(records.shape[-1] + 1) <= counts[..., None]
        rows = self._slots.backend.index(np.concatenate([sentinels, records], axis=-1)[kept])
        lengths = counts + 1
        starts = self._slots.backend.index(np.cumsum(lengths, axis=1) - lengths)
        ends = [0, *np.cumsum(lengths.sum(axis=1)).tolist()]
        for step in range(steps):
            yield PoissonBatch(rows[ends[step] : ends[step + 1]], starts[step, :], part.batch)

    def _blocks(self, releases: int, longest: int) -> Iterator[tuple[int, int]]:
        first = self._take(releases)
        for start in range(first, first + releases, longest):
            yield start, min(longest, first + releases - start)

    def _noise_block(self, first: int, steps: int) -> Array:
        backend = self._slots.backend
        if self.event.sigma == 0.0:
            return backend.zeros((steps, len(self._slots.replicates), self._d))
        return self._slots.normals(self._normals, first, steps, self._d, self.event.sigma)


class DisjointGaussianMechanism(Mechanism):
    """Gaussian noise for releases on disjoint batches, each of a kind that the run names."""

    event: DisjointGaussianEvent

    def __init__(self, event: DisjointGaussianEvent, d: int, slots: Slots) -> None:
        super().__init__(event, slots)
        self._d = d
        self._normals = slots.streams(f"noise:{event.label}")
        self._block: tuple[int, np.ndarray] | None = None

    def noise(self, kind: int) -> Array:
        """Return the noise (K, d) of one release of this kind."""
        step, sigma = self._take(1), self.event.sigmas[kind]
        self.drawn += 1
        if sigma == 0.0:
            return self._slots.backend.zeros((len(self._slots.replicates), self._d))
        if self._slots.backend.kernels is not None:
            return self._slots.normals(self._normals, step, 1, self._d, sigma)[0, :, :]
        return self._slots.backend.asarray(np.float32(sigma) * self._unit_noise(step))

    def _unit_noise(self, step: int) -> np.ndarray:
        """Return the standard normals (K, d) of a step; they are drawn in blocks."""
        steps = self._steps(DISJOINT_STEPS)
        number, place = divmod(step, steps)
        if self._block is None or self._block[0] != number:
            self._block = number, self._normals.normals(number * steps, steps, self._d)
        return self._block[1][place]


class LaplaceMechanism(Mechanism):
    """Laplace noise in every coordinate of each release."""

    event: LaplaceEvent

    def __init__(self, event: LaplaceEvent, d: int, slots: Slots) -> None:
        super().__init__(event, slots)
        self._d = d
        self._uniforms = slots.streams(f"noise:{event.label}")

    def noise(self, releases: int) -> Iterator[Array]:
        """Yield one noise array (K, d) of Laplace(scale) numbers for each of the next `releases` releases."""
        first = self._take(releases)
        for step in range(first, first + releases):
            uniforms = self._uniforms.uniforms(step * self._d, self._d).T
            self._release()
            yield self._slots.backend.asarray(self.event.scale * _laplace(uniforms))


class SelectionMechanism(Mechanism):
    """Report noisy max (Laplace) or the exponential mechanism (Gumbel): releases the position of the largest score."""

    event: SelectionEvent | FadingSelectionEvent

    def __init__(self, event: SelectionEvent | FadingSelectionEvent, slots: Slots) -> None:
        super().__init__(event, slots)
        self._uniforms = slots.streams(f"noise:{event.label}")
        self._candidates = 0

    def largest(self, scores: Array) -> Array:
        """Return the position of the largest noisy score of each replicate: (K, J) -> (K,). One release."""
        step, candidates = self._take(1), scores.shape[1]
        # A candidate's noise is found by its number among the candidates of all selections.
        if candidates != (self._candidates or candidates):
            raise LedgerMismatch(
                f"The event {self.event.label!r} selects among {candidates} candidates after {self._candidates}: "
                "give selections of another number an event of their own."
            )
        self._candidates = candidates
        if (kernels := self._slots.backend.kernels) is not None:
            self.drawn += 1
            return kernels.noisy_max(scores, self._uniforms, step * candidates, self.event.scale, self.event.noise)
        uniforms = self._uniforms.uniforms(step * candidates, candidates).T
        quantile = _laplace if self.event.noise == "laplace" else _gumbel
        noise = self._slots.backend.asarray(self.event.scale * quantile(uniforms))
        self.drawn += 1
        return self._slots.backend.xp.argmax(scores + noise, axis=1)


class TreeMechanism(Mechanism):
    """Prefix sums of streams of vectors by binary trees, one after the other; keeps only the nodes that are open.

    The t-th leaf of a tree completes the node of the 2^l leaves up to it, 2^l being the largest power of two that
    divides t. This node alone gets noise: it is the one that prefixes use. The prefix of t leaves is the sum of one
    node for each bit of t, so its noise has variance sigma^2 times the number of ones, and at most bit_length(leaves)
    nodes are kept. Between leaves, samples must have been handed out: every leaf is a release of its own in the
    ledger's sense of a turn.
    """

    event: TreeEvent

    def __init__(self, event: TreeEvent, d: int, slots: Slots) -> None:
        super().__init__(event, slots)
        self._d = d
        self._normals = slots.streams(f"noise:{event.label}")
        self._block: tuple[int, np.ndarray] | None = None
        self._leaf = event.leaves  # no tree is open
        self._open: list[_OpenNode] = []

    def start(self) -> None:
        """Begin the next tree."""
        self._planned(1)
        self.drawn += 1
        self._leaf, self._open = 0, []

    def add(self, vector: Array) -> Array:
        """Take in the next leaf of the tree (K, d) and return the noisy sum of its leaves so far (K, d)."""
        if self._leaf >= self.event.leaves:
            raise LedgerMismatch(f"The tree {self.event.label!r} has {self.event.leaves} leaves, but got more.")
        self._slots.witness(self.event.label)
        self._leaf += 1
        level, total = 0, vector
        while self._open and self._open[-1].level == level:
            total = total + self._open.pop().total
            level += 1
        step = (self.drawn - 1) * self.event.leaves + self._leaf - 1
        prefix = self._prefix(total, step)
        self._open.append(_OpenNode(level, total, prefix, step))
        return prefix

    def _prefix(self, total: Array, step: int) -> Array:
        """Return the noisy sum (K, d) of the open nodes and of the one with this total that a leaf completes.

        Noise goes to the node before anything is rounded to the size of the whole sum.
        """
        if (kernels := self._slots.backend.kernels) is not None:
            totals = self._slots.backend.xp.stack([*(node.total for node in self._open), total])
            steps = [*(node.step for node in self._open), step]
            return kernels.tree_prefix(totals, steps, self._normals, self.event.sigma)
        noisy = total + self._node_noise(step)
        return self._open[-1].prefix + noisy if self._open else noisy

    def _node_noise(self, step: int) -> Array:
        """Return the noise (K, d) of the node that a leaf completes; each leaf has a step of the stream."""
        if self.event.sigma == 0.0:
            return self._slots.backend.zeros((len(self._slots.replicates), self._d))
        steps = self._steps(TREE_STEPS)
        number, place = divmod(step, steps)
        if self._block is None or self._block[0] != number:
            self._block = number, self._normals.normals(number * steps, steps, self._d, self.event.sigma)
        return self._slots.backend.asarray(self._block[1][place])


@dataclass(frozen=True)
class _OpenNode:
    """A node that is part of the current prefix: the sum of its leaves, and the noisy prefix up to its end (K, d).

    `step` is that of its noise in the stream.
    """

    level: int
    total: Array
    prefix: Array
    step: int


class ObjectivePerturbationMechanism(Mechanism):
    """The random linear term of a perturbed objective."""

    event: ObjectivePerturbationEvent

    def __init__(self, event: ObjectivePerturbationEvent, d: int, slots: Slots) -> None:
        super().__init__(event, slots)
        self._d = d
        self._normals = slots.streams(f"noise:{event.label}")
        self._radii = slots.streams(f"radius:{event.label}")

    def draw(self) -> Array:
        """Return the random vector b of each replicate (K, d). One release."""
        self._take(1)
        self.drawn += 1
        normals = self._normals.normals(0, 1, self._d)[0].astype(np.float64)
        return self._slots.backend.asarray(self.event.scale * self._unit(normals))

    def _unit(self, normals: np.ndarray) -> np.ndarray:
        """Return the noise of scale one: its direction is that of the normals."""
        if self.event.noise == "gaussian":
            return normals
        from scipy.special import gammaincinv

        # The radius of the density exp(-||b||) in d dimensions is Gamma(d); empty slots hold 0 and stay there.
        radius = gammaincinv(self._d, self._radii.uniforms(0, 1).T)
        length = np.linalg.norm(normals, axis=1, keepdims=True)
        return normals * (radius / np.where(length > 0.0, length, 1.0))


AnyMechanism = TypeVar("AnyMechanism", bound=Mechanism)


class Ledger:
    """What a run drew, to be compared with what its plan accounts for.

    `turn` tells fresh batches apart: it changes whenever samples are handed out. Events that count a record once may
    release once in a turn, and of the branches of a parallel event only one may release in it.
    """

    def __init__(
        self,
        events: Sequence[Event],
        d: int,
        seed: int,
        replicates: Sequence[int | None],
        backend: Backend,
        turn: Callable[[], int] | None = None,
    ) -> None:
        self._planned = tuple(events)
        self._turn = turn
        self._once = {event.label for event in leaves(events) if _counts_once(event)}
        self._branch = {
            leaf.label: (number, branch)
            for number, event in enumerate(events)
            if isinstance(event, ParallelEvent)
            for branch, inner in enumerate(event.branches)
            for leaf in leaves(inner)
        }
        # The last turn in which an event released, and for parallel events the branch. Turns only grow.
        self._last_turn: dict[str, int] = {}
        self._last_branch: dict[int, tuple[int, int]] = {}
        self._slots = slots = Slots(seed, tuple(replicates), backend, self._witness, watched=turn is not None)
        self.at_hand = slots.at_hand
        self._mechanisms: dict[str, Mechanism] = {}
        for event in leaves(events):
            if event.label in self._mechanisms:
                raise LedgerMismatch(f"The plan has two events {event.label!r}; labels must differ.")
            if isinstance(event, GaussianEvent):
                self._mechanisms[event.label] = GaussianMechanism(event, d, slots)
            elif isinstance(event, LaplaceEvent):
                self._mechanisms[event.label] = LaplaceMechanism(event, d, slots)
            elif isinstance(event, DisjointGaussianEvent):
                self._mechanisms[event.label] = DisjointGaussianMechanism(event, d, slots)
            elif isinstance(event, SelectionEvent | FadingSelectionEvent):
                self._mechanisms[event.label] = SelectionMechanism(event, slots)
            elif isinstance(event, TreeEvent):
                self._mechanisms[event.label] = TreeMechanism(event, d, slots)
            elif isinstance(event, ObjectivePerturbationEvent):
                self._mechanisms[event.label] = ObjectivePerturbationMechanism(event, d, slots)
        self._unprotected: dict[str, int] = {}
        self._conditions: set[str] = set()

    def gaussian(self, label: str) -> GaussianMechanism:
        """Return the planned Gaussian mechanism of that label."""
        return self._mechanism(label, GaussianMechanism)

    def disjoint_gaussian(self, label: str) -> DisjointGaussianMechanism:
        """Return the planned Gaussian mechanism on disjoint batches of that label."""
        return self._mechanism(label, DisjointGaussianMechanism)

    def laplace(self, label: str) -> LaplaceMechanism:
        """Return the planned Laplace mechanism of that label."""
        return self._mechanism(label, LaplaceMechanism)

    def selection(self, label: str) -> SelectionMechanism:
        """Return the planned selection mechanism of that label."""
        return self._mechanism(label, SelectionMechanism)

    def tree(self, label: str) -> TreeMechanism:
        """Return the planned tree mechanism of that label."""
        return self._mechanism(label, TreeMechanism)

    def objective_perturbation(self, label: str) -> ObjectivePerturbationMechanism:
        """Return the planned objective perturbation of that label."""
        return self._mechanism(label, ObjectivePerturbationMechanism)

    def declare(self, label: str, releases: int) -> set[str]:
        """Write down releases that another library says it made; return the kinds of query that they cover."""
        mechanism = self._mechanism(label, Mechanism)
        mechanism._take(releases)
        mechanism.drawn += releases
        return _looks_at(mechanism.event)

    def unprotected(self, label: str) -> None:
        """Write down one use of a data-dependent quantity without noise."""
        self._unprotected[label] = self._unprotected.get(label, 0) + 1

    def condition(self, label: str) -> None:
        """Write down that the run relies on the planned condition of that label."""
        self._conditions.add(label)

    @property
    def begun(self) -> bool:
        """Whether anything was asked of a mechanism or written down."""
        asked = any(mechanism.begun for mechanism in self._mechanisms.values())
        return asked or bool(self._unprotected or self._conditions)

    def entries(self) -> tuple[Event, ...]:
        """Return what happened, in the shape of the plan; what was never planned stands at the end.

        A condition that no share of delta was planned for protects nothing.
        """
        planned = {event.label for event in leaves(self._planned)}
        happened = replace_leaves(self._planned, self._happened)
        used = {**self._unprotected, **dict.fromkeys(sorted(self._conditions), 1)}
        return (*happened, *(UnprotectedEvent(label, count) for label, count in used.items() if label not in planned))

    def check(self, full: bool = False, sampled: bool = False, fresh: bool = False) -> None:
        """Raise `LedgerMismatch` unless exactly the planned events happened.

        `full`, `sampled` and `fresh` say which kinds of query looked at the data: of all records, of records drawn by
        number, of samples that are handed out once. Each must be a part of some event.
        """
        for label in self.at_hand:
            self._slots.check_looked_at(label)
        if self.entries() != self._planned:
            drawn, planned = (", ".join(_counted(events)) for events in (self.entries(), self._planned))
            raise LedgerMismatch(f"The run drew {drawn}; its plan accounts for {planned}.")
        covered = {kind for event in self._planned for kind in _looks_at(event)}
        for kind, asked in (("full gradients", full), ("sampled gradients", sampled), ("fresh samples", fresh)):
            if asked and kind not in covered:
                raise LedgerMismatch(f"The run looked at {kind}, but no event of its plan has such a part.")

    def counts_once_in(self, turn: int) -> bool:
        """Whether an event that counts a record once, or of a parallel branch, has released in this turn."""
        return turn in (*self._last_turn.values(), *(last for last, _ in self._last_branch.values()))

    def _witness(self, label: str) -> None:
        """Raise if the batch at hand was released on before by an event that counts each of its records once."""
        if self._turn is None:
            return
        turn = self._turn()
        if turn == 0 and (label in self._once or label in self._branch):
            raise LedgerMismatch(f"The event {label!r} would release before any batch was handed out for it.")
        if label in self._once:
            if self._last_turn.get(label, -1) >= turn:
                raise LedgerMismatch(f"The event {label!r} would release twice on one batch, but counts a record once.")
            self._last_turn[label] = turn
        if label in self._branch:
            event, branch = self._branch[label]
            last_turn, last_branch = self._last_branch.get(event, (-1, branch))
            if last_turn >= turn and last_branch != branch:
                raise LedgerMismatch(f"The event {label!r} would release on a batch of another parallel branch.")
            self._last_branch[event] = turn, branch

    def _mechanism(self, label: str, kind: type[AnyMechanism]) -> AnyMechanism:
        mechanism = self._mechanisms.get(label)
        if not isinstance(mechanism, kind):
            known = sorted(name for name, other in self._mechanisms.items() if isinstance(other, kind))
            raise LedgerMismatch(f"The plan has no {kind.__name__} {label!r}; it has {known}.")
        return mechanism

    def _happened(self, event: Event) -> Event | None:
        if isinstance(event, UnprotectedEvent):
            return replace(event, count=self._unprotected.get(event.label, 0))
        if isinstance(event, ConditionEvent):
            return event if event.label in self._conditions else None
        entry: Event = self._mechanisms[event.label].ledger_entry()
        return entry


def _counts_once(event: Event) -> bool:
    """Whether an event counts each record in one of its releases only, that on the batch the record is in.

    Of a tree, in one of its leaves.
    """
    return isinstance(event, DisjointGaussianEvent | FadingSelectionEvent | TreeEvent)


def _looks_at(event: Event) -> set[str]:
    """Return the kinds of query that an event covers.

    Events that count a record once, in a batch of its own, cover fresh samples only. What covers a query of all records
    covers one of fresh samples too. In a tree a record sits in one leaf, so its leaves are of fresh samples. An
    unprotected event states that data are used without noise, of whatever kind. An event of no release covers nothing.
    """
    if isinstance(event, ConditionEvent) or not any(getattr(leaf, "count", 1) for leaf in leaves([event])):
        return set()
    if isinstance(event, ParallelEvent) or _counts_once(event):
        return {"fresh samples"}
    if isinstance(event, UnprotectedEvent):
        return {"full gradients", "sampled gradients", "fresh samples"}
    covered = {"full gradients", "fresh samples"}
    if isinstance(event, GaussianEvent):
        kinds = {part.full for part in event.parts}
        return (covered if True in kinds else set()) | ({"sampled gradients"} if False in kinds else set())
    return covered


def _counted(events: Sequence[Event]) -> list[str]:
    """Return the labels of events, each with the number of its releases."""
    return [f"{getattr(leaf, 'count', 1)} x {leaf.label!r}" for leaf in leaves(events)] or ["nothing"]


def _laplace(uniforms: np.ndarray) -> np.ndarray:
    """Return Laplace(1) numbers by inversion of uniforms in (0, 1)."""
    centred = np.where(uniforms > 0.0, uniforms, 0.5) - 0.5  # empty slots hold 0 and get no noise
    return -np.sign(centred) * np.log1p(-2.0 * np.abs(centred))


def _gumbel(uniforms: np.ndarray) -> np.ndarray:
    """Return standard Gumbel numbers by inversion of uniforms in (0, 1)."""
    return -np.log(-np.log(np.where(uniforms > 0.0, uniforms, np.exp(-1.0))))  # empty slots get no noise
