"""What DP-SVRG and DP-SVRG++ share: how an inner step looks at the data, its privacy events and the conditions.

Three letters go beyond the paper. `r` clips every sampled gradient difference: once the iterates have settled, the
differences are tiny beside their bound, and the noise need cover no more than r. `sampling` says how records are drawn.
`fall` lets noise and radius fall from epoch to epoch: early differences are long, so that a small constant radius makes
an epoch overshoot and the run diverge, and early noise is soon forgotten. They fall by powers of two: few levels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from dprepro.algorithms.base import Condition, Letter, Plan, Setting
from dprepro.errors import UserError
from dprepro.privacy.events import GaussianEvent, QueryPart

if TYPE_CHECKING:
    from dprepro.privacy.mechanisms import GaussianMechanism
    from dprepro.run import Execution

Array = Any

INNER = "inner step"
# The practical radius is b times twice the noise that the releases of the full gradient need by themselves.
RADIUS_TO_NOISE = 2.0
# Beyond any use; keeps the multiples within integers.
MOST_HALVINGS = 30
# A product that falls short of a whole number by rounding still counts as that number.
ROUNDING = 1e-9
# The distance from 0 to the optimum that the practical variants count on, in units of 1/row_norm.
DISTANCE = 4.0

SAMPLING = Letter(str, "how the records of an inner step are drawn", choices=("fixed", "poisson"))
LETTERS: Mapping[str, Letter] = {
    "r": Letter(float, "clip radius of one sampled gradient difference in the last epoch; absent: not clipped"),
    "sampling": SAMPLING,
    "fall": Letter(float, "factor by which noise and radius fall per epoch, at most 1 (1 in the paper)"),
}


@dataclass(frozen=True)
class Epochs:
    """What the inner steps must know of their algorithm: T epochs of steps of size eta.

    `steps(first, last)` counts the inner steps of some epochs, `leftover(s)` estimates the gradient at the snapshot of
    epoch s, which the differences must be able to cancel, and `fall` is that of the practical variant.
    """

    T: int
    eta: float
    steps: Callable[[int, int], int]
    leftover: Callable[[int], float]
    fall: float


@dataclass(frozen=True)
class Inner:
    """The inner steps of T epochs: b records drawn by `sampling`, their differences clipped at r.

    `widest` bounds the multiple of the last epoch's noise and radius that the first epochs have.
    """

    T: int
    b: int
    r: float | None
    sampling: str
    fall: float
    widest: int = 2**MOST_HALVINGS

    @classmethod
    def of(cls, setting: Setting, given: Mapping[str, Any], epochs: Epochs) -> Self:
        """Return the letters as given, else as the variant has them.

        The paper neither clips nor lets the noise fall. The practical variant draws Poisson batches and has r = 2 b s,
        where s is the noise that the releases of the full gradient need by themselves. That much cannot be avoided;
        differences of norm r cost less than r/b beside it, and those that noise of size s drives are far shorter. Nor
        is the radius of any epoch less than the gradient that it starts from.
        """
        practical = setting.variant == "practical"
        inner = cls(
            epochs.T,
            given.get("b", 1),
            given.get("r"),
            given.get("sampling", "poisson" if practical else "fixed"),
            given.get("fall", epochs.fall if practical else 1.0),
        )
        if inner.fall > 1.0:
            raise UserError(f"fall is {inner.fall:g}: give a number of at most 1 (1 keeps the noise constant).")
        if inner.r is None and practical and setting.noisy:
            noise = inner.snapshot_noise(setting, epochs)
            inner = replace(inner, r=max(RADIUS_TO_NOISE * inner.b * noise, inner.least_radius(epochs)))
        if inner.r is None:
            return inner
        # Where the radius exceeds every difference, more noise would buy nothing.
        ratio = max(1.0, setting.problem.gradient_spread / inner.r)
        return replace(inner, widest=2 ** math.ceil(min(math.log2(ratio), MOST_HALVINGS)))

    def weight(self, s: int) -> int:
        """Return the multiple of the last epoch's noise and radius that epoch s = 1, ..., T has, a power of two."""
        halvings = min(ROUNDING - (self.T - s) * math.log2(self.fall), MOST_HALVINGS)
        return min(2 ** math.floor(halvings), self.widest)

    def radius(self, s: int) -> float | None:
        """Return the clip radius of epoch s."""
        return None if self.r is None else self.r * self.weight(s)

    def label(self, s: int) -> str:
        """Return the label of the event that epoch s belongs to."""
        weight = self.weight(s)
        return INNER if weight == 1 else f"{INNER}, {weight} times the last noise"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all events."""
        return tuple(self.label(last) for _, last in self._levels())

    def least_radius(self, epochs: Epochs) -> float:
        """Return the last epoch's radius with which every epoch has one of at least the gradient it starts from."""
        return max(epochs.leftover(first) / self.weight(first) for first, _ in self._levels())

    def events(self, setting: Setting, sigma: float, epochs: Epochs) -> tuple[GaussianEvent, ...]:
        """Return one event for each level of noise: a mean of sampled gradient differences plus the full gradient.

        The full gradient is computed once per epoch but released again in every inner step. `sigma` is the noise of
        the last epoch.
        """
        return tuple(
            GaussianEvent(
                self.label(last),
                sigma * self.weight(last),
                (sampled_part(setting, self.b, self.radius(last), self.sampling), setting.full_part),
                epochs.steps(first, last),
                # An epoch begins with differences of zero, and its steps are too short for all of them to turn fully.
                attained=False,
            )
            for first, last in self._levels()
        )

    def snapshot_noise(self, setting: Setting, epochs: Epochs) -> float:
        """Return the noise of the last epoch with which the releases of the full gradient alone are private enough."""
        from dprepro.privacy.calibrate import smallest_scale

        events = [
            GaussianEvent(self.label(last), self.weight(last), (setting.full_part,), epochs.steps(first, last))
            for first, last in self._levels()
        ]
        return smallest_scale(events, setting.epsilon, setting.delta)

    def _levels(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last epoch of each level of noise, in the order in which they run."""
        first = 1
        for halvings in reversed(range(1, self.weight(1).bit_length())):
            last = self.T - math.ceil((ROUNDING - halvings) / math.log2(self.fall))
            if last >= first:
                yield first, last
                first = last + 1
        yield first, self.T


@dataclass(frozen=True, kw_only=True)
class InnerPlan(Plan):
    """The letters of the inner steps; see `Inner`."""

    T: int
    b: int
    r: float | None
    sampling: str
    fall: float
    widest: int

    @property
    def inner(self) -> Inner:
        """The inner steps."""
        return Inner(self.T, self.b, self.r, self.sampling, self.fall, self.widest)


def inner_steps(
    ex: Execution,
    mechanism: GaussianMechanism,
    m: int,
    x: Array,
    x_tilde: Array,
    v_tilde: Array,
    eta: Any,
    radius: float | None,
) -> tuple[Array, Array]:
    """Execute m inner steps from x: lines 5 to 9 of WYX17's Algorithm 1. Return the last iterate and the sum of all."""
    if ex.steps_in_kernel(mechanism.event.label):
        return ex.descend_around(mechanism, m, x, x_tilde, v_tilde, eta, radius)
    total = ex.zeros()
    for i, u in ex.sampled(mechanism.event.label, m):  # 5, 6
        v = ex.gradient_difference(x, x_tilde, i, radius) + v_tilde + u  # 7
        x = ex.prox(x - eta * v, eta)  # 8
        total = total + x
    return x, total


def sampled_part(setting: Setting, b: int, r: float | None, sampling: str) -> QueryPart:
    """Return the part of a mean of b sampled gradient differences, each of norm at most min(spread, r).

    A batch of fixed size moves by the distance of two such vectors over b when one of its records is replaced; of a
    Poisson batch the part states the contribution of one record.
    """
    n, longest = setting.problem.n, setting.problem.gradient_spread
    if b >= n:
        raise UserError(f"b is {b}, but there are only {n} records: give a smaller inner batch.")
    longest = longest if r is None else min(longest, r)
    if sampling == "poisson":
        return QueryPart(longest / b, b, n, poisson=True)
    return QueryPart(2.0 * longest / b, b, n)


def inner_conditions(setting: Setting, inner: Inner, sigma: float, epochs: Epochs) -> tuple[Condition, ...]:
    """Return what the inner steps owe to the theorems, and whether r is large enough for a run to settle."""
    fall = "constant" if inner.weight(1) == 1 else f"falling by {inner.fall:.3g} per epoch"
    clipped = "not clipped" if inner.r is None else f"clipped at r = {inner.r:.3g}"
    conditions: tuple[Condition, ...] = (
        batch_condition(inner.b),
        Condition(
            "inner steps as printed: differences not clipped, batches of fixed size, constant noise",
            inner.r is None and inner.sampling == "fixed" and inner.weight(1) == 1,
            f"{clipped}, {inner.sampling} batches, noise {fall}",
            privacy=True,
        ),
    )
    if inner.r is None:
        return conditions
    driven, least = _driven_difference(setting, inner, sigma, epochs), inner.least_radius(epochs)
    return (
        *conditions,
        Condition(
            "r long enough for the differences that settle a run; else it may diverge",
            inner.r >= max(driven, least),
            f"r = {inner.r:.3g} against {driven:.3g} driven by the noise and {least:.3g} to cancel the gradients",
        ),
    )


def _driven_difference(setting: Setting, inner: Inner, sigma: float, epochs: Epochs) -> float:
    """Return the size of a record's gradient difference that the noise of the last epoch alone gives rise to.

    The noise moves each coordinate by about sigma sqrt(eta min(eta m, 1/(2 mu))) from the snapshot. Where it is yet to
    be calibrated, the noise that the full gradient needs by itself stands for it.
    """
    problem = setting.problem
    if setting.noisy and setting.variant != "published":
        sigma = inner.snapshot_noise(setting, epochs)
    time = epochs.eta * epochs.steps(epochs.T, epochs.T)
    if problem.mu > 0.0:
        time = min(time, 0.5 / problem.mu)
    return problem.L * sigma * math.sqrt(epochs.eta * time)


def batch_condition(b: int) -> Condition:
    """Return the condition that the theorems are stated for one record per inner step."""
    return Condition("one record per inner step (b = 1)", b == 1, f"b = {b}", privacy=True)


def sampling_condition(setting: Setting, name: str, steps: int) -> Condition:
    """Return the condition epsilon <= c1 steps / n^2 of Theorems 4.1 and 4.3 (c1, unstated, taken as 1)."""
    bound = steps / setting.problem.n**2
    return Condition(
        f"epsilon <= c1 {name} / n^2 (c1 unstated, taken as 1)",
        setting.epsilon <= bound,
        f"epsilon = {setting.epsilon:g} against {bound:.3g}, a ratio of {setting.epsilon / bound:.3g}",
        privacy=True,
        set_here="c1 = 1",
    )
