"""Mechanisms: the only place where a run draws noise, and where each draw is written down.

A mechanism is made from an event of the plan. It hands out noise for at most the planned number of releases and
counts them; at the end the ledger of what was drawn must equal the plan's events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dprepro.arrays import Backend
from dprepro.errors import LedgerMismatch
from dprepro.privacy.events import Event, GaussianEvent, UnprotectedEvent
from dprepro.streams import Streams

Array = Any

# Steps whose noise is drawn at one time: long enough to amortise the generators, short enough for the cache.
BLOCK_STEPS = 256


class GaussianMechanism:
    """Gaussian noise for the releases of one event, one independent draw per replicate and release."""

    def __init__(
        self, event: GaussianEvent, d: int, seed: int, replicates: Sequence[int | None], backend: Backend
    ) -> None:
        self.event = event
        self.drawn = 0
        self._d = d
        self._backend = backend
        self._slots = len(replicates)
        self._normals = Streams(seed, replicates, f"noise:{event.label}")
        self._indices = Streams(seed, replicates, f"sample:{event.label}")

    def noise(self, releases: int) -> Iterator[Array]:
        """Yield one noise array (K, d) of variance sigma^2 for each of the next `releases` releases."""
        for block in self._blocks(releases):
            noise = self._noise_block(*block)
            for step in range(block[1]):
                self.drawn += 1
                yield noise[step, :, :]

    def sampled(self, releases: int) -> Iterator[tuple[Array, Array]]:
        """Yield (record index (K,), noise (K, d)): each replicate looks at one uniformly drawn record."""
        population = self.event.parts[0].population
        for first, steps in self._blocks(releases):
            noise = self._noise_block(first, steps)
            index = self._backend.index(self._indices.integers(first, steps, population))
            for step in range(steps):
                self.drawn += 1
                yield index[step, :], noise[step, :, :]

    def ledger_entry(self) -> GaussianEvent:
        """Return the event as it really happened."""
        return replace(self.event, count=self.drawn)

    def _blocks(self, releases: int) -> Iterator[tuple[int, int]]:
        first = self.drawn
        if first + releases > self.event.count:
            raise LedgerMismatch(
                f"The mechanism {self.event.label!r} is planned for {self.event.count} releases, "
                f"but {first + releases} were asked for."
            )
        for start in range(first, first + releases, BLOCK_STEPS):
            yield start, min(BLOCK_STEPS, first + releases - start)

    def _noise_block(self, first: int, steps: int) -> Array:
        if self.event.sigma == 0.0:
            return self._backend.zeros((steps, self._slots, self._d))
        return self._backend.asarray(self._normals.normals(first, steps, self._d, self.event.sigma))


class Ledger:
    """What a run drew, to be compared with what its plan accounts for."""

    def __init__(
        self,
        events: Sequence[Event],
        d: int,
        seed: int,
        replicates: Sequence[int | None],
        backend: Backend,
    ) -> None:
        self._planned = tuple(events)
        self._gaussians = {
            event.label: GaussianMechanism(event, d, seed, replicates, backend)
            for event in events
            if isinstance(event, GaussianEvent)
        }
        self._unprotected: dict[str, int] = {}

    def gaussian(self, label: str) -> GaussianMechanism:
        """Return the planned Gaussian mechanism of that label."""
        if label not in self._gaussians:
            raise LedgerMismatch(f"The plan has no Gaussian mechanism {label!r}; it has {sorted(self._gaussians)}.")
        return self._gaussians[label]

    def unprotected(self, label: str) -> None:
        """Write down one use of a data-dependent quantity without noise."""
        self._unprotected[label] = self._unprotected.get(label, 0) + 1

    def entries(self) -> tuple[Event, ...]:
        """Return what happened, as events in the order of the plan."""
        drawn: list[Event] = [mechanism.ledger_entry() for mechanism in self._gaussians.values()]
        drawn += [UnprotectedEvent(label, count) for label, count in self._unprotected.items()]
        order = {event.label: position for position, event in enumerate(self._planned)}
        return tuple(sorted(drawn, key=lambda event: order.get(event.label, len(order))))

    def check(self) -> None:
        """Raise `LedgerMismatch` unless exactly the planned events happened."""
        if self.entries() != self._planned:
            raise LedgerMismatch(f"The run drew {self.entries()}, but its plan accounts for {self._planned}.")
