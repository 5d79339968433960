"""Recorded answers of privacy-loss distributions: laws, windows, allowances for rounding, closed bounds, checks.

Recorded numbers only tell that something moved; that they are right is shown by test_pld.py and test_poisson.py.
After a change that is meant, `python tests/privacy/test_recorded_pld.py` writes them anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.special
import scipy.stats
from recorded import assert_same, record, recorded

from dprepro.errors import UserError
from dprepro.privacy import pld

Case = Callable[[], Any]
ARITHMETIC: dict[str, Case] = {}  # compared at 1e-12
TRANSFORMS: dict[str, Case] = {}  # with a Fourier transform, a search or a long sum in between: compared at 1e-9


def outcome(call: Case) -> Any:
    """What a call returns, or the name of its error."""
    try:
        return call()
    except (UserError, ArithmeticError, ValueError) as error:
        return type(error).__name__


def loudly(call: Case) -> Any:
    """What a call returns that must not divide by zero."""
    with np.errstate(divide="raise"):
        return call()


def accepted(call: Case) -> str:
    """Whether a call is let through, or the name of its error."""
    found = outcome(call)
    return found if isinstance(found, str) else "accepted"


@contextmanager
def watched(owner: Any, name: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the list of the arguments with which `owner.name` is called."""
    calls, real = [], getattr(owner, name)

    def watching(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return real(*args, **options)

    with mock.patch.object(owner, name, watching):
        yield calls


# --- laws -------------------------------------------------------------------------------------------------------


def law_of(loss: pld.PrivacyLoss) -> pld.Law:
    ((law, count),) = loss.factors
    assert count == 1
    return law


def summary(loss: pld.PrivacyLoss) -> dict[str, Any]:
    """Numbers that move with every mass."""
    law = law_of(loss)
    masses, indices = law.masses, law.indices
    middle = -law.start
    return {
        "interval": [loss.interval, law.interval],
        "start": law.start,
        "size": masses.size,
        "infinity": law.infinity,
        "above": masses[indices > 0].sum(),
        "below": masses[indices < 0].sum(),
        "first": masses @ np.abs(indices),
        "second": masses @ indices**2,
        "low": masses[:3],
        "middle": masses[max(middle - 2, 0) : middle + 3],
        "high": masses[-3:],
    }


def before_rounding(build: Case) -> dict[str, Any]:
    """What a constructor hands over to be made symmetric."""
    with watched(pld, "_symmetric") as calls:
        build()
    ((interval, masses, infinity, rounding),) = calls
    return {"interval": interval, "sum": float(masses.sum()), "infinity": infinity, "rounding": rounding}


LAWS: dict[str, Callable[[], pld.PrivacyLoss]] = {
    "gaussian": lambda: pld.gaussian(1.0, 1.0, 0.25),
    "gaussian 3": lambda: pld.gaussian(0.5, 1.5, 0.5),
    "gaussian 20": lambda: pld.gaussian(1.0, 20.0, 1.0),
    "gaussian small": lambda: pld.gaussian(1.0, 0.2, 0.1),
    "gaussian without sensitivity": lambda: pld.gaussian(1.0, 0.0, 0.25),
    "gaussian without both": lambda: pld.gaussian(0.0, 0.0, 0.25),
    "gaussian without noise": lambda: pld.gaussian(0.0, 1.0, 0.25),
    "sampled": lambda: pld.sampled_gaussian(2.0, 1.0, 3, 10, 0.1),
    "sampled rare": lambda: pld.sampled_gaussian(1.0, 3.0, 1, 100, 0.25),
    "sampled large": lambda: pld.sampled_gaussian(1.0, 12.0, 1, 1000, 1.0),
    "sampled cut": lambda: pld.sampled_gaussian(0.5, 2.0, 1, 50, 0.5, slack=1e-6),
    "sampled cut at epsilon": lambda: pld.sampled_gaussian(0.5, 2.0, 1, 50, 0.25, slack=1e-6, epsilon=1.5),
    "sampled with much slack": lambda: pld.sampled_gaussian(1.0, 0.5, 1, 4, 0.05, slack=0.9, epsilon=0.1),
    "sampled one cell": lambda: pld.sampled_gaussian(1.0, 0.5, 1, 4, 50.0),
    "sampled without noise": lambda: pld.sampled_gaussian(0.0, 1.0, 1, 4, 0.25),
    "sampled without sensitivity": lambda: pld.sampled_gaussian(1.0, 0.0, 1, 4, 0.25),
    "poisson": lambda: pld.poisson_gaussian(2.0, 1.0, 3, 10, 0.1),
    "poisson all": lambda: pld.poisson_gaussian(1.0, 0.5, 7, 7, 0.25),
    "poisson all 20": lambda: pld.poisson_gaussian(1.0, 10.0, 7, 7, 1.0),
    "poisson rare": lambda: pld.poisson_gaussian(1.0, 3.0, 1, 100, 0.25),
    "poisson large": lambda: pld.poisson_gaussian(1.0, 12.0, 1, 1000, 1.0),
    "poisson small": lambda: pld.poisson_gaussian(1.0, 0.1, 1, 10, 0.05),
    "poisson cut": lambda: pld.poisson_gaussian(0.5, 2.0, 1, 50, 0.5, slack=1e-6),
    "poisson cut at epsilon": lambda: pld.poisson_gaussian(0.5, 2.0, 1, 50, 0.25, slack=1e-6, epsilon=1.5),
    "poisson with much slack": lambda: pld.poisson_gaussian(1.0, 0.5, 1, 4, 0.05, slack=0.9, epsilon=0.1),
    "poisson without noise": lambda: pld.poisson_gaussian(0.0, 1.0, 1, 4, 0.25),
    "poisson without sensitivity": lambda: pld.poisson_gaussian(1.0, 0.0, 1, 4, 0.25),
    "laplace": lambda: pld.laplace(1.0, 1.1, 0.25),
    "laplace on the grid": lambda: pld.laplace(2.0, 2.0, 0.125),
    "laplace large": lambda: pld.laplace(0.25, 3.0, 0.5),
    "laplace one cell": lambda: pld.laplace(1.0, 0.3, 0.5),
    "laplace without sensitivity": lambda: pld.laplace(1.0, 0.0, 0.25),
    "laplace without noise": lambda: pld.laplace(0.0, 1.0, 0.25),
    "pure": lambda: pld.pure(1.1, 0.25),
    "pure on the grid": lambda: pld.pure(1.0, 0.25),
    "pure two cells": lambda: pld.pure(0.3, 0.25),
    "pure one cell": lambda: pld.pure(0.2, 0.25),
    "pure nothing": lambda: pld.pure(0.0, 0.25),
    "pure large": lambda: pld.pure(40.0, 3.0),
}  # fmt: skip

for name, build in LAWS.items():
    ARITHMETIC[f"law of {name}"] = lambda build=build: summary(build())
    ARITHMETIC[f"before rounding: {name}"] = lambda build=build: before_rounding(build)


def moments(loss: pld.PrivacyLoss) -> dict[str, Any]:
    law = law_of(loss)
    losses, log_masses = law.sketch
    thetas = (-3.0, -0.5, 0.25, 1.0, 4.0)
    return {
        "indices": [int(law.indices[0]), int(law.indices[-1]), law.indices.size],
        "log masses": [law.log_masses[0], law.log_masses[-1]],
        "sketch": [losses.size, losses[0], losses[-1], np.abs(losses).sum(), log_masses[0], log_masses[-1]],
        "moments": [law.log_moment(theta) for theta in thetas],
        "sketched": [law.log_moment_sketched(theta) for theta in thetas],
        "of the loss": [loss._log_moment_sketched(theta) for theta in thetas],
    }


for name in ("gaussian", "sampled rare", "poisson", "laplace", "pure"):
    ARITHMETIC[f"moments of {name}"] = lambda build=LAWS[name]: moments(build())
TRANSFORMS["moments of a law with more atoms than a sketch"] = lambda: moments(pld.gaussian(1.0, 1.0, 0.002))
TRANSFORMS["moments of a law with as many atoms as a sketch, and one more"] = lambda: [
    [losses.size for losses in pld.Law(1.0, 0, np.ones(size), 0.0).sketch] for size in (4096, 4097)
]
TRANSFORMS["moments of a law with gaps"] = lambda: moments(pld.pure(3.0, 0.0003))


def made_symmetric(masses: list[float], infinity: float, rounding: float) -> list[Any]:
    law = law_of(pld._symmetric(0.5, np.array(masses), infinity, rounding))
    return [law.start, law.masses, law.infinity, law.interval]


ARITHMETIC |= {
    "symmetric": lambda: made_symmetric([0.25, 0.125], 0.0625, 0.03125),
    "symmetric with zeros": lambda: made_symmetric([0.0, 0.25, 0.0, 0.0], 0.0, 0.0),
    "symmetric only zeros": lambda: made_symmetric([0.0, 0.0], 0.5, 0.25),
    "symmetric without masses": lambda: made_symmetric([], 0.5, 0.0),
    "symmetric with large rounding": lambda: made_symmetric([0.25, 0.125], 0.75, 2.0),
    "symmetric with more than one": lambda: made_symmetric([0.75, 0.5], 0.0, 0.0),
    "what the atom at zero has too much": lambda: float(law_of(pld.pure(0.0, 1.0)).masses[0]) - 1.0,
    "what an atom at zero of nothing has": lambda: law_of(pld.gaussian(0.0, 1.0, 1.0)).masses,
    "share raised": lambda: [pld._raised_share(1.1, 5, 0.25), pld._raised_share(0.9, 3, 0.4)],
    "share raised, cell full": lambda: [pld._raised_share(1.0, 4, 0.25), pld._raised_share(3.0, 2, 0.5)],
    "share raised by the error of a loss": lambda: [
        pld._raised_share(cells - 1.0, cells, 1.0) for cells in (2, 1 << 20)
    ],
    "sampled loss": lambda: [
        [pld._sampled_loss(log_a, q) for log_a in (-800.0, -2.0, 0.0, 1.5, 30.0, 900.0)] for q in (0.01, 0.5, 1.0)
    ],
    "unsampled loss": lambda: [
        pld._unsampled_loss(np.array([0.0, 1e-9, 0.3, 1.0, 1.25, 40.0, 900.0]), q) for q in (0.01, 0.5, 1.0)
    ],
    "Poisson point": lambda: [
        pld._poisson_point(np.array([1e-9, 0.3, 1.0, 1.25, 18.0, 19.9, 20.1, 40.0, 900.0]), r, q)
        for r, q in ((0.5, 0.01), (2.0, 0.5), (0.7, 1.0), (3.0, 1e-6))
    ],
    "Poisson point at zero": lambda: [pld._poisson_point(np.zeros(1), 0.5, q) for q in (0.01, 1.0)],
    "last point": lambda: [
        pld._last_point(shift, q, slack, epsilon)
        for shift in (0.5, 8.0)
        for q in (1e-3, 0.25, 1.0)
        for slack in (1e-20, 1e-3, 0.9)
        for epsilon in (math.inf, 30.0, 1.0)
    ],
    "last point refused": lambda: [
        accepted(lambda slack=slack: pld._last_point(1.0, 0.5, slack, 1.0))
        for slack in (-1.0, 0.0, 0.5, 1.0, 1.5, math.nan)
    ],
    "log-sum-exp": lambda: [pld._log_sum_exp(np.array(v)) for v in ([2.0], [-800.0, -801.0], [900.0, 1.0])],
    "constants": lambda: [pld.MAX_CELLS, pld._SKETCH, pld._WRAPPED, pld._ULP],
}
TRANSFORMS |= {
    "argmin": lambda: [
        pld._argmin(lambda t, m=m: abs(math.log(t / m)) ** 1.5, largest)
        for m, largest in ((1.0, 100.0), (1e-3, 8.0), (1e-20, 8.0), (1e9, 5.0))
    ],
    "argmin needs so many tries": lambda: _tries(lambda t: -t),
}


def _tries(objective: Callable[[float], float]) -> list[Any]:
    tried: list[float] = []

    def counting(t: float) -> float:
        tried.append(t)
        return objective(t)

    return [pld._argmin(counting, 3.0), len(tried), min(tried), max(tried)]


# --- compositions -----------------------------------------------------------------------------------------------

LOSSES: dict[str, Callable[[], pld.PrivacyLoss]] = {
    "nothing": lambda: pld.PrivacyLoss(0.25, ()),
    "none of it": lambda: pld.gaussian(1.0, 1.0, 0.25).self_compose(0),
    "one gaussian": lambda: pld.gaussian(1.0, 1.0, 0.25),
    "40 sampled": lambda: pld.sampled_gaussian(1.0, 1.5, 1, 10, 0.05).self_compose(40),
    "30 cut": lambda: pld.sampled_gaussian(1.0, 1.5, 1, 10, 0.05, slack=1e-7).self_compose(30),
    "20 Poisson": lambda: pld.poisson_gaussian(1.0, 0.8, 1, 10, 0.05).self_compose(20),
    "5 pure": lambda: pld.pure(0.5, 0.25).self_compose(5),
    "100 pure": lambda: pld.pure(0.5, 0.25).self_compose(100),
    "12 laplace": lambda: pld.laplace(2.0, 1.0, 0.1).self_compose(12),
    "with little noise": lambda: pld.sampled_gaussian(0.002, 2.0, 1, 1000, 2000.0).self_compose(50),
    "with no noise": lambda: pld.sampled_gaussian(0.0, 1.0, 1, 1000, 0.25).self_compose(50),
    "a mixture": lambda: (
        pld.gaussian(1.0, 0.7, 0.1)
        .compose(pld.laplace(3.0, 1.0, 0.1).self_compose(2))
        .compose(pld.pure(0.25, 0.1).self_compose(3))
        .compose(pld.sampled_gaussian(1.0, 2.0, 1, 100, 0.1, slack=1e-8).self_compose(4))
    ),
    "a mixture with no noise": lambda: pld.gaussian(1.0, 0.7, 0.1).self_compose(3).compose(pld.gaussian(0.0, 1.0, 0.1)),
    "twice and thrice": lambda: pld.pure(0.25, 0.1).self_compose(2).compose(pld.pure(0.5, 0.1)).self_compose(3),
}


def composition(loss: pld.PrivacyLoss) -> dict[str, Any]:
    return {
        "factors": [(law.masses.size, count) for law, count in loss.factors],
        "infinity": loss._infinity(),
        "largest": loss._largest(),
        "tilt": loss._largest_tilt(),
        "moment": loss._log_moment_sketched(0.5) if loss.factors else 0.0,
    }


EPSILONS = (0.0, 0.01, 0.13, 0.5, 1.0, 2.5, 2.6, 6.0, 40.0, 1e6, math.inf)
DELTAS = (1e-30, 1e-9, 1e-5, 1e-3, 0.1, 0.5, 0.999)
for name, build in LOSSES.items():
    TRANSFORMS[f"composition of {name}"] = lambda build=build: composition(build())
    TRANSFORMS[f"deltas of {name}"] = lambda build=build: [build().delta(epsilon) for epsilon in EPSILONS]
    TRANSFORMS[f"epsilons of {name}"] = lambda build=build: [build().epsilon(delta) for delta in DELTAS]

ARITHMETIC |= {
    "grids that differ": lambda: accepted(lambda: pld.pure(1.0, 0.25).compose(pld.pure(1.0, 0.125))),
    "counts": lambda: [
        accepted(lambda count=count: pld.pure(1.0, 0.25).self_compose(count)) for count in (-1, 0, 1, True, 1.0)
    ],
    "epsilons asked": lambda: [
        accepted(lambda epsilon=epsilon: pld.PrivacyLoss(0.25, ()).delta(epsilon)) for epsilon in (-1e-9, 0.0, math.nan)
    ],
    "deltas asked": lambda: [
        accepted(lambda delta=delta: pld.PrivacyLoss(0.25, ()).epsilon(delta)) for delta in (0.0, 0.5, 1.0)
    ],
    "certain infinity": lambda: [
        pld.PrivacyLoss(1.0, ((pld.Law(1.0, 0, np.ones(1), infinity), 1),))._infinity()
        for infinity in (0.0, 0.25, 1.0 - 1e-15, 1.0, 1.0 + 1e-9)
    ],
    "room in infinity": lambda: pld.PrivacyLoss(1.0, ((pld.Law(1.0, 0, np.ones(1), 0.5), 1),))._infinity() - 0.5,
}


class Loop(pld.PrivacyLoss):
    """A loss whose windows are made up: one epsilon for all, and a first point that comes down."""

    def _window(self, theta: float, lowest: float) -> Any:
        self.asked.append((theta, lowest))
        return mock.Mock(first=self.firsts[len(self.asked) - 1], epsilon=lambda delta: self.values[len(self.asked) - 1])


def looped(values: list[float], firsts: list[float], largest: float = 8.0) -> list[Any]:
    """The epsilon from made-up windows, and the tilts with which they were asked for."""
    loss = Loop(0.25, pld.pure(largest, 0.25).factors)
    vars(loss).update(values=values, firsts=firsts, asked=[])
    return [loss.epsilon(1e-3), loss.asked]


TRANSFORMS |= {
    "loop ends inside a window": lambda: looped([3.0, 2.0], [0, 0]),
    "loop ends at zero": lambda: looped([0.0, 0.0], [1, 0]),
    "loop goes on below a window": lambda: looped([3.0, 2.0, 1.5, 1.25], [16, 8, 6, 4]),
    "loop goes on at the first point": lambda: looped([3.0, 2.0, 1.5], [12, 8, 4]),
    "loop keeps the smallest": lambda: looped([5.0, 6.0, 7.0], [40, 30, 4]),
    "loop gives up": lambda: looped([3.0] * 20, [40] * 20),
    "loop never says more than the largest": lambda: looped([math.inf] * 20, [40] * 20),
    "loop never says more than a small largest": lambda: looped([math.inf] * 20, [40] * 20, largest=0.5),
}


# --- windows ----------------------------------------------------------------------------------------------------


def window(loss: pld.PrivacyLoss, theta: float, lowest: float) -> dict[str, Any]:
    """Numbers of a window, and what it was asked for."""
    with watched(pld.PrivacyLoss, "_convolve") as calls, watched(pld, "_check_cells") as checks:
        found = loss._window(theta, lowest)
    ((_, tilt, log_moments, first, cells, log_above),) = calls
    tilted = _tilted(found, theta)
    peak = int(np.argmax(tilted))
    places = [0, found.masses.size // 3, peak, -1]
    return {
        "asked": [tilt, log_moments, first, cells, checks],
        "above": log_above,
        "first": found.first,
        "sizes": [found.masses.size, found.added.size, found.tails.size, found.deltas.size],
        "peak": [peak, tilted[peak], tilted.sum(), tilted @ np.arange(tilted.size)],
        "added": found.added[places],
        "room": (found.added - loss._infinity())[places[:3]] if loss._infinity() == 0.0 else [],
        "tail": found.tails[peak - 1],
        "delta": found.deltas[peak - 1],
    }


def _tilted(found: pld._Window, theta: float) -> Any:
    """Masses on which the rounding of the transform is small against all of them."""
    return found.masses * np.exp(theta * found.interval * np.arange(found.masses.size))


WINDOWS = {
    "one gaussian": ((1.0, math.inf), (4.0, 0.5), (0.25, -3.0)),
    "40 sampled": ((3.0, math.inf), (0.5, 0.01)),
    "30 cut": ((2.0, math.inf),),
    "20 Poisson": ((2.0, 1.0),),
    "5 pure": ((2.0, math.inf), (0.1, 0.25), (31.0, 1.0)),
    "100 pure": ((0.4, math.inf), (1.5, 3.0), (1e-3, 3.0)),
    "a mixture": ((2.0, math.inf), (0.5, -20.0)),
    "a mixture with no noise": ((2.0, math.inf),),
    "with little noise": ((1e-4, math.inf),),
}
for name, tilts in WINDOWS.items():
    for theta, lowest in tilts:
        TRANSFORMS[f"window of {name} at {theta}, {lowest}"] = lambda name=name, theta=theta, lowest=lowest: window(
            LOSSES[name](), theta, lowest
        )


def room(loss: pld.PrivacyLoss, theta: float, first: int, cells: int, log_above: float) -> list[Any]:
    """What a convolution adds for rounding, with no infinite loss."""
    log_moments = [law.log_moment(theta) for law, _ in loss.factors]
    found = loss._convolve(theta, log_moments, first, cells, log_above)
    tilted = _tilted(found, theta)
    return [found.first, tilted.size, found.added[[0, -1]], tilted.sum(), tilted @ np.arange(1, tilted.size + 1)]


TRANSFORMS |= {
    "room of few": lambda: room(LOSSES["5 pure"](), 2.0, -2, 14, -math.inf),
    "room of 16": lambda: room(LOSSES["5 pure"](), 2.0, -2, 16, -math.inf),
    "room of 17": lambda: room(LOSSES["5 pure"](), 2.0, -3, 17, -math.inf),
    "room of 1000": lambda: room(LOSSES["5 pure"](), 0.7, -11, 1000, -math.inf),
    "room of a weak tilt": lambda: room(LOSSES["5 pure"](), 1e-12, -11, 50, -math.inf),
    "room of a strong tilt": lambda: room(LOSSES["100 pure"](), 32.0, 150, 60, -math.inf),
    "room of what lies above": lambda: room(LOSSES["5 pure"](), 2.0, -2, 14, -5.0),
    "room of much above": lambda: room(LOSSES["5 pure"](), 2.0, -2, 14, 5.0),
    "room of a wrapped law": lambda: room(LOSSES["12 laplace"](), 2.0, 20, 32, -20.0),
    "room of a hundred thousand": lambda: room(
        pld.pure(2.0**-16, 2.0**-16).self_compose(10**5), 40.0, -16, 1 << 12, -math.inf
    ),
    "room far below": lambda: room(LOSSES["100 pure"](), 8.0, -400, 700, -math.inf),
    "room wholly below": lambda: room(LOSSES["100 pure"](), 8.0, 1, 16, -math.inf),
    "room of a spectrum with a zero": lambda: room(
        pld.PrivacyLoss(0.25, ((pld.Law(0.25, 0, np.array([0.5, 0.5]), 0.0), 2),)), 1e-300, 0, 16, -math.inf
    ),
}


def far_atoms() -> pld.PrivacyLoss:
    """Fifty losses with atoms at -100, 0 and 300: under the tilt 16 all exponents are whole numbers."""
    masses = np.zeros(401)
    masses[[0, 100, 400]] = 0.25, 0.5, 0.25
    return pld.PrivacyLoss(0.25, ((pld.Law(0.25, -100, masses, 0.0), 50),))


ARITHMETIC["room of a reach"] = lambda: far_atoms()._convolve(16.0, [1200.0], 14995, 20, -math.inf).masses[5]
EVEN = pld.Law(0.25, -1, np.array([0.25, 0.5, 0.25]), 0.0)
TRANSFORMS["room of an error beyond all"] = lambda: (
    pld.PrivacyLoss(0.25, ((EVEN, 10**16),))._convolve(1e-9, [0.0], -10, 1 << 10, -math.inf).added[[0, -1]]
)
ARITHMETIC["room of log-moments"] = lambda: (
    pld.pure(0.5, 0.25).compose(pld.pure(0.5, 0.25))._convolve(2.0, [340.0, -340.0], -8, 20, -math.inf).masses[12]
)


# masses and rooms are powers of two, so that all sums are exact
SMALL = {
    "first": 3,
    "interval": 0.5,
    "masses": np.array([0.0625, 0.25, 0.125, 0.0625, 0.03125]),
    "added": np.array([0.125, 0.0625, 0.03125, 0.03125, 0.015625]),
}


def small(**changed: Any) -> pld._Window:
    return pld._Window(**{**SMALL, **changed})


def flat(size: int, interval: float) -> pld._Window:
    return pld._Window(interval, 0, np.full(size, 1.0 / size), np.zeros(size))


def negative_excess() -> pld._Window:
    """A delta just below the first bound exceeds the tail itself, which is given less room."""
    return pld._Window(128.0, 0, np.full(8, 0.125), np.zeros(8))


def zero_excess() -> pld._Window:
    """At delta 3/16 the room of the difference makes up for all that is missing in tail + added - delta."""
    found = small(first=0, added=np.array([0.125 - 2.0**-52, 0.0, 0.0, 0.0, 0.0]))
    vars(found).update(
        tails=np.array([0.0625, 0.0, 0.0, 0.0, 0.0]), deltas=np.array([0.0625, 0.0, 0.0, 0.0, 0.0]) * 1.1
    )
    return found


WIDE = {"interval": 128.0, "masses": np.array([0.25, 0.25, 0.125]), "added": np.array([0.0, 0.0, 0.0])}
HIGH = {"interval": 1.0, "first": 2**30, "masses": np.array([0.25, 0.25, 0.25]), "added": np.zeros(3)}
ARITHMETIC |= {
    "small window": lambda: [small().tails, small().deltas],
    "delta of a small window": lambda: [
        small().delta(epsilon)
        for epsilon in (0.0, 1.0, 1.4999, 1.5, 1.6, 1.999, 2.0, 2.3, 2.75, 3.0, 3.2, 3.4999, 3.5, 4.0, 9.0)
    ],
    "delta of a window with much room": lambda: [
        small(added=np.array([0.9, 0.8, 0.7, 0.6, 3.0])).delta(epsilon) for epsilon in (1.5, 1.7, 2.3, 3.2, 3.5, 8.0)
    ],
    "delta of a window below zero": lambda: [
        small(first=-3).delta(epsilon) for epsilon in (-2.0, -1.3, -0.5, 0.0, 0.2, 0.6)
    ],
    "epsilon of a small window": lambda: [
        small().epsilon(delta)
        for delta in (0.01, 0.015625, 0.02, 0.035, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 0.9)
    ],
    "epsilon of a window below zero": lambda: [
        small(first=first).epsilon(delta) for first in (-5, -4, -3, -2, -1, 0) for delta in (0.02, 0.06, 0.15, 0.3, 0.9)
    ],
    "epsilon where bounds do not fall": lambda: [
        small(added=np.array([0.01, 0.5, 0.01, 0.2, 0.01])).epsilon(delta) for delta in (0.02, 0.1, 0.21, 0.3, 0.7)
    ],
    "epsilon where nothing is left between": lambda: [
        loudly(lambda delta=delta: small(masses=np.zeros(5)).epsilon(delta)) for delta in (0.02, 0.035, 0.08, 0.3)
    ],
    "epsilon where the excess is negative": lambda: negative_excess().epsilon(
        float(np.nextafter(negative_excess().deltas[0], 0.0))
    ),
    "epsilon where the excess is zero": lambda: zero_excess().epsilon(0.1875),
    "epsilon where nothing exceeds": lambda: small(masses=np.array([0.0, 0.0, 0.0, 1e-300, 0.0])).epsilon(0.04),
    "room of a tail": lambda: [
        flat(1 << 16, 2.0**-10).tails[[0, 1 << 15, -2, -1]], flat(1 << 16, 2.0**-10).deltas[[0, 1 << 15, -1]]
    ],
    "room of an excess": lambda: small(first=0, **WIDE).epsilon(0.125),
    "room of an epsilon": lambda: small(**HIGH).epsilon(0.3) - 2.0**30,
}  # fmt: skip


# --- refining ---------------------------------------------------------------------------------------------------


def refined(answers: list[float], bound: float = 64.0, delta: float = 1e-5, **options: float) -> list[Any]:
    """The refined epsilon from made-up answers (none where the grid is too fine), and the grids that were asked for."""
    asked: list[Any] = []

    def build(interval: float, epsilon: float) -> Any:
        asked.append((interval, epsilon))
        if math.isnan(answers[len(asked) - 1]):
            raise pld.GridTooFine("too fine")
        return mock.Mock(epsilon=lambda given: answers[len(asked) - 1] if given == delta else math.nan)

    return [pld.refined_epsilon(build, delta, bound, **options), asked]


ARITHMETIC |= {
    "refined until it settles": lambda: refined([60.0, 50.0, 49.0, 48.95, 1.0]),
    "refined to the tolerance": lambda: refined([60.0, 50.0, 49.0, 48.95, 1.0], tolerance=0.1),
    "refined to the tolerance that is not given": lambda: refined([60.0, 50.0, 49.8, 49.79, 1.0]),
    "refined just to the tolerance": lambda: refined([60.0, 40.0, 32.0, 1.0, 1.0], tolerance=0.25),
    "refined from below its bound": lambda: refined([10.0, 2.0, 1.0, 1.0, 1.0]),
    "refined to nothing": lambda: refined([10.0, 0.0, 0.0]),
    "refined from nothing": lambda: refined([], bound=0.0),
    "refined from next to nothing": lambda: refined([1.0, 1.0], bound=5e-324),
    "refined with answers above the bound": lambda: refined([100.0, 80.0, 70.0, 69.95, 1.0]),
    "refined with answers that rise": lambda: refined([40.0, 41.0, 1.0]),
    "refined with no answer": lambda: refined([math.inf, math.inf, 3.0, 3.0, 1.0]),
    "refined until the grid is too fine": lambda: refined([60.0, 50.0, math.nan, 1.0]),
    "refined on a grid that is too fine at once": lambda: refined([math.nan]),
    "refined until it is enough": lambda: refined([60.0, 50.0, 49.0, 48.95, 1.0], enough=50.5),
    "refined until it is just enough": lambda: refined([60.0, 50.0, 49.0, 48.95, 1.0], enough=50.0),
    "refined although another such change would do": lambda: refined([60.0, 50.0, 49.0, 48.95, 1.0], enough=40.0),
    "refined until it would never do": lambda: refined([60.0, 50.0, 49.0, 48.95, 1.0], enough=39.0),
    "refined where the bound is enough": lambda: refined([], enough=64.0),
    "refined and refused": lambda: accepted(lambda: refined([1.0], delta=0.0)),
}


# --- closed bounds ----------------------------------------------------------------------------------------------

STEPS = {
    "ordinary": (1.0, 1.0, 1, 100, 1000, 1e-5),
    "half": (2.0, 1.0, 50, 100, 60, 1e-6),
    "rare": (0.01, 2.0, 1, 100_000, 3000, 1e-3),
    "rare and quiet": (1.0, 60.0, 1, 100_000, 3000, 1e-3),
    "small": (1.0, 1e-3, 1, 3, 5, 1e-6),
    "tiny delta": (1.0, 1.0, 1, 100, 50, 1e-40),
    "large delta": (1.0, 3.0, 1, 4, 10, 0.5),
    "once": (1.0, 4.0, 1, 10, 1, 1e-3),
    "never above delta": (1.0, 4.0, 1, 10_000, 3, 0.01),
    "all": (1.0, 0.5, 7, 7, 9, 1e-5),
    "many": (1.0, 50.0, 1, 3 * 10**8, 3 * 10**8, 1e-4),
    "a wide range": (1000.0, 1.0, 1, 2, 10**7, 1e-4),
    "many and loud": (5.0, 1.0, 1, 1000, 10**6, 1e-4),
    "none": (1.0, 0.5, 1, 7, 0, 1e-5),
    "no sensitivity": (1.0, 0.0, 1, 7, 9, 1e-5),
    "no noise": (0.0, 1.0, 1, 1000, 9, 1e-5),
    "no noise, seldom": (0.0, 1.0, 1, 1000, 9, 0.1),
    "no noise, all": (0.0, 1.0, 7, 7, 1, 0.1),
    "neither": (0.0, 0.0, 1, 1000, 9, 1e-5),
}


class Binomial:
    """The binomial law, with its calls written down."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append([name, *(_brief(one) for one in args)])
            return getattr(BINOMIAL, name)(*args)

        return call


BINOMIAL = scipy.stats.binom


def _brief(value: Any) -> Any:
    values = np.ravel(value)
    if values.size == 1:
        return values[0]
    return [values.size, values[0], values[-1], values.sum(), np.sum(values.astype(float) ** 2)]


def inside(bound: Callable[..., float], steps: tuple[Any, ...]) -> list[Any]:
    """A bound, the binomial probabilities it asks for, and the points at which it looks."""
    binomial = Binomial()
    with mock.patch.object(scipy.stats, "binom", binomial), watched(scipy.special, "ndtr") as points:
        value = bound(*steps)
    return [value, binomial.calls, [_brief(point) for (point,) in points if np.size(point) > 1]]


for name, steps in STEPS.items():
    TRANSFORMS[f"known batches: {name}"] = lambda steps=steps: inside(pld.known_batches_epsilon, steps)
    TRANSFORMS[f"proven for sampled: {name}"] = lambda steps=steps: inside(pld.sampled_gaussian_epsilon_lower, steps)
    TRANSFORMS[f"proven for Poisson: {name}"] = lambda steps=steps: inside(pld.poisson_gaussian_epsilon_lower, steps)


def evaluations(steps: tuple[Any, ...]) -> int:
    """At how many epsilons a delta is bounded."""
    with watched(np, "minimum") as calls:
        pld.known_batches_epsilon(*steps)
    return sum(np.isscalar(zero) and zero == 0.0 for zero, _ in calls)


def emptied(sigma: float, sensitivity: float, batch: int, population: int, count: int) -> float:
    """The smallest delta at which nothing is left of epsilon: the bound at zero."""
    low, high = 1e-12, 0.9
    while high > low * (1.0 + 1e-13):
        middle = math.sqrt(low * high)
        empty = pld.known_batches_epsilon(sigma, sensitivity, batch, population, count, middle) == 0.0
        low, high = (low, middle) if empty else (middle, high)
    return high


def constant(value: float, steps: tuple[float, float, int, float]) -> list[Any]:
    """What is proven when no release is beyond a point but with one probability, and the points that were asked."""
    asked: list[Any] = []

    def log_other(c: Any) -> Any:
        asked.append(_brief(c))
        return np.full_like(c, value)

    return [pld._proven_epsilon(*steps, log_other), asked]


ARITHMETIC |= {
    "delta at which a nearly full batch is nothing": lambda: emptied(1.0, 0.01, 10**10 - 1, 10**10, 1),
    "delta at which two nearly full batches are nothing": lambda: emptied(1.0, 0.01, 10**6 - 30, 10**6, 2),
}
TRANSFORMS |= {
    "delta at which one sampled release is nothing": lambda: emptied(1.0, 0.01, 1, 10, 1),
    "delta at which tiny releases are nothing": lambda: emptied(1.0, 2e-4, 1, 3, 4),
    "delta at which many releases are nothing": lambda: emptied(1.0, 0.1, 1, 20, 2000),
    "evaluations": lambda: [evaluations(STEPS[name]) for name in ("ordinary", "rare", "large delta")],
    "proven of a constant": lambda: constant(-4.0, (2.0, 0.25, 3, 1e-3)),
    "proven of a constant, count 1": lambda: constant(-4.0, (1.0, 1.0, 1, 0.1)),
    "proven of the impossible": lambda: constant(-(2.0**30), (9.0, 0.5, 1, 0.25))[0] - 2.0**30,
    "proven of half the impossible": lambda: constant(-400.0, (9.0, 0.5, 3, 0.25)),
    "sampled at least once": lambda: [
        pld.probability_sampled(*given) for given in ((1, 10, 0), (1, 10, 3), (7, 7, 0), (7, 7, 2), (1, 10**9, 1))
    ],
    "ever": lambda: [pld._ever(q, count) for q in (1e-20, 0.5, 1.0) for count in (0, 1, 9)],
}


# --- checks -----------------------------------------------------------------------------------------------------

ARITHMETIC |= {
    "ratio": lambda: [
        pld._ratio("scale", *given) for given in ((2.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (3, 2))
    ],
    "numbers": lambda: [
        accepted(lambda value=value: pld._check_number("x", value))
        for value in (0.0, 1, -1e-9, math.inf, math.nan, True, "1", None)
    ],
    "both numbers of a ratio": lambda: [
        accepted(lambda given=given: pld._ratio("scale", *given)) for given in ((-1.0, 1.0), (1.0, -1.0), (0.0, -1.0))
    ],
    "whole numbers": lambda: [
        [accepted(lambda value=value, least=least: pld._check_count("x", value, least)) for least in (0, 1)]
        for value in (-1, 0, 1, 2, 1.0, True, "1", None, np.int64(3))
    ],
    "sampling rates": lambda: [
        outcome(lambda given=given: pld._sampling_rate(*given))
        for given in ((1, 4), (4, 4), (5, 4), (0, 4), (1, 0), (1, 1), (1.0, 4), (1, 4.0))
    ],
    "intervals": lambda: [
        accepted(lambda value=value: pld._check_interval(value))
        for value in (0.0, 1e-300, 1.0, 3, -1.0, math.inf, math.nan, "1", None)
    ],
    "cells": lambda: [
        outcome(lambda value=value: pld._check_cells(value, 1.0))
        for value in (-3.0, 0.0, 0.5, 1.0, 1.5, 2.0, pld.MAX_CELLS, pld.MAX_CELLS + 0.5, math.inf, math.nan)
    ],
    "numbers and counts of releases": lambda: [
        accepted(call)
        for call in (
            lambda: pld.known_batches_epsilon(1.0, 1.0, 1, 9, -1, 1e-5),
            lambda: pld.known_batches_epsilon(1.0, 1.0, 1, 9, 1, 0.0),
            lambda: pld.sampled_gaussian_epsilon_lower(1.0, 1.0, 1, 9, -1, 1e-5),
            lambda: pld.sampled_gaussian_epsilon_lower(1.0, 1.0, 1, 9, 1, 1.0),
            lambda: pld.poisson_gaussian_epsilon_lower(1.0, 1.0, 1, 9, True, 1e-5),
            lambda: pld.probability_sampled(1, 9, -1),
            lambda: pld.probability_sampled(1, 9, 1.0),
            lambda: pld.sampled_gaussian(1.0, 1.0, 1, 9, 0.0),
            lambda: pld.poisson_gaussian(1.0, 1.0, 1, 9, 0.0),
            lambda: pld.poisson_gaussian(1.0, 1.0, 1, 9, 1e-9),
            lambda: pld.laplace(1.0, 1.0, 0.0),
            lambda: pld.laplace(1.0, 1.0, 1e-9),
            lambda: pld.laplace(-1.0, 1.0, 0.1),
            lambda: pld.pure(1.0, 0.0),
            lambda: pld.pure(1.0, 1e-9),
            lambda: pld.pure(math.inf, 1.0),
            lambda: pld.gaussian(1.0, 1.0, 1e-6).self_compose(10**12)._window(1e-9, math.inf),
        )
    ],
}  # fmt: skip

CASES = ARITHMETIC | TRANSFORMS


@pytest.mark.parametrize("case", ARITHMETIC)
def test_what_needs_only_arithmetic_is_as_recorded(case: str) -> None:
    assert_same(ARITHMETIC[case](), recorded("pld")[case], tolerance=1e-12)


@pytest.mark.parametrize("case", TRANSFORMS)
def test_what_needs_transforms_or_searches_is_as_recorded(case: str) -> None:
    assert_same(TRANSFORMS[case](), recorded("pld")[case], tolerance=1e-9)


if __name__ == "__main__":
    record("pld", CASES)
