"""The rounds of Recursive Regularization (ABG23, Algorithm 3): their numbers, their noise and their privacy events.

Round t = 1, ..., T minimises f^(t-1)(w; x) = f(w; x) + sum_{s<t} lambda_s/2 ||w - w_s||^2, lambda_s = 2^s lambda, over
the ball of radius R_t = 2^(t/2) R. What is added to f sees no data and is A_t-strongly convex, A_t = lambda (2^t - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dprepro.algorithms.base import CALIBRATED
from dprepro.privacy.events import DisjointGaussianEvent, Event, GaussianEvent, ParallelEvent, QueryPart

ROUNDS = "rounds"
PHASES = "phases"
# Without noise, and in practice, more steps than this improve a round but little.
STEPS_IN_PRACTICE = 100
# How far one step of each of two neighbours may be off by rounding, in shares of a point's length: a dozen operations
# in double precision.
ROUNDING = 64.0 * 2.0**-53


@dataclass(frozen=True)
class Phase:
    """One phase of phased SGD: `steps` steps of size `eta`, one sample each, then release number `kind` of the run."""

    kind: int
    steps: int
    eta: float


@dataclass(frozen=True)
class Round:
    """The numbers of round t: K_t points w_1, ..., w_K on n_t records, so that noisy descent takes K_t - 1 steps.

    `added` is A_t, the strong convexity of what was added to the loss; `strength` is the one that step size, number of
    steps and weights are computed from.
    """

    t: int
    n_t: int
    K_t: int
    eta_t: float
    R_t: float
    added: float
    strength: float

    @property
    def label(self) -> str:
        """The name of the round's event in noisy descent."""
        return f"round {self.t}"

    def phases(self) -> list[Phase]:
        """Return the phases k = 1, ..., ceil(ln n_t) - 1 of Algorithm 5: 2^-k n_t records, steps of 4^-k eta_t.

        Algorithm 6 goes from the first of as many points as it has records to the last: one step fewer.
        """
        count = math.ceil(math.log(self.n_t)) - 1
        before = (self.t - 1) * count
        return [Phase(before + k - 1, (self.n_t >> k) - 1, self.eta_t / 4.0**k) for k in range(1, count + 1)]


@dataclass(frozen=True)
class Schedule:
    """What all rounds follow from: the letters, the constants L0 and L1 of the loss, and the privacy asked for.

    `mu` is what Gaussian DP allows; K and eta, where they are given, hold for all rounds.
    """

    variant: str
    n: int
    d: int
    epsilon: float
    delta: float
    subroutine: str
    data: str
    lam: float
    T: int
    K: int | None
    eta: float | None
    R: float
    c: float
    L0: float
    L1: float

    @property
    def n_t(self) -> int:
        """The number of records of one round."""
        return self.n if self.data == "all" else self.n // self.T

    def rounds(self) -> list[Round]:
        """Return all rounds in their order."""
        return [self.round(t) for t in range(1, self.T + 1)]

    def round(self, t: int) -> Round:
        """Return the numbers of round t = 1, ..., T."""
        strength, K_t = self._strength(t), self._points(t)
        eta_t = self.eta or min(self.printed_step(t), self.longest_step(t))
        return Round(t, self.n_t, K_t, eta_t, 2.0 ** (0.5 * t) * self.R, self._added(t), strength)

    def longest_step(self, t: int) -> float:
        """Return the largest eta_t: 1/(L1 + A_t) for the longest step of the round, which in phases is eta_t/4."""
        return (4.0 if self.subroutine == "phased_sgd" else 1.0) / (self.L1 + self._added(t))

    def printed_step(self, t: int) -> float:
        """Return the theorem's eta_t = ln(K_t)/(lambda_t K_t) before it is cut."""
        K_t = self._points(t)
        return math.log(K_t) / (self._strength(t) * K_t)

    def _added(self, t: int) -> float:
        """Return A_t."""
        return self.lam * (2.0**t - 1.0)

    def _strength(self, t: int) -> float:
        """Return lambda_t as printed; in practice A_t, the strong convexity that the proof means."""
        return self._added(t) if self.variant == "practical" else self.lam * 2.0**t

    def _points(self, t: int) -> int:
        """Return K_t: the records of a round for phases, else by the theorem or what works in practice."""
        if self.subroutine == "phased_sgd":
            return self.n_t
        if self.K:
            return self.K
        condition = 1.0 + self.L1 / self._strength(t)
        enough = condition * math.log(condition)
        if self.variant == "practical":
            return max(2, math.ceil(min(STEPS_IN_PRACTICE, enough)))
        return max(2, math.ceil(max(enough, self._points_against_noise())))

    def _points_against_noise(self) -> float:
        """Return the second term of K_t, (n_t epsilon)^2 (L0^2 + L1^3 R^2 / lambda) / (d L0^2 ln(1/delta)).

        As in Lemma D.3, where the regularizer has the Lipschitz constant L1 2^(T/2) R. Without noise there is none.
        """
        if math.isinf(self.epsilon):
            return 0.0
        lengths = 1.0 + self.L1**3 * self.R**2 / (self.lam * self.L0**2)
        return (self.n_t * self.epsilon) ** 2 * lengths / (self.d * math.log(1.0 / self.delta))

    def gradient_evaluations(self) -> int:
        """Return how many gradients of single records all rounds take."""
        if self.subroutine == "phased_sgd":
            return sum(phase.steps for r in self.rounds() for phase in r.phases())
        return sum((r.K_t - 1) * r.n_t for r in self.rounds())

    def events(self, mu: float, attained: bool) -> tuple[Event, ...]:
        """Return what the rounds release, with noise for `mu` where it is to be calibrated.

        `attained` says whether some two samples have gradients 2 L0 apart at every point.
        """
        if self.subroutine == "phased_sgd":
            return (self._releases(mu),)
        descents = [self._descent(r, mu, attained) for r in self.rounds()]
        if self.data == "all":
            return tuple(descents)
        return (ParallelEvent(ROUNDS, tuple((event,) for event in descents)),)

    def _descent(self, r: Round, mu: float, attained: bool) -> GaussianEvent:
        """Return the K_t - 1 releases of a mean gradient, which a record moves by 2 L0/n_t.

        The noise is Lemma D.3's, sigma^2 = c L0^2 K_t ln(1/delta)/(n_t epsilon)^2 with c = 64, T times that where all
        rounds look at all records: each then has an equal share of the squared budget.
        """
        sensitivity, shares = 2.0 * self.L0 / self.n_t, self.T if self.data == "all" else 1
        if math.isinf(self.epsilon):
            sigma = 0.0
        elif self.variant in CALIBRATED:
            sigma = sensitivity * math.sqrt((r.K_t - 1) * shares) / mu
        else:
            squared = self.c * r.K_t * shares * math.log(1.0 / self.delta)
            sigma = math.sqrt(squared) * self.L0 / (self.n_t * self.epsilon)
        part = QueryPart(sensitivity, self.n_t, self.n_t)
        return GaussianEvent(r.label, sigma, (part,), r.K_t - 1, attained=attained)

    def _releases(self, mu: float) -> DisjointGaussianEvent:
        """Return the releases of all phases, each on samples of its own."""
        found = [self._release(r, phase, mu) for r in self.rounds() for phase in r.phases()]
        sigmas, sensitivities = (tuple(pair[i] for pair in found) for i in (0, 1))
        # With its share for rounding the sensitivity is a bound that no neighbours are known to reach.
        return DisjointGaussianEvent(PHASES, sigmas, sensitivities, len(found), attained=False)

    def _release(self, r: Round, phase: Phase, mu: float) -> tuple[float, float]:
        """Return noise and sensitivity of a phase: its mean point moves by at most 2 eta_k L0, and by rounding.

        Steps of eta_k <= 1/(L1 + A_t) on a convex L1-smooth loss bring two points no further apart (Lemma D.5). The
        printed noise is eta_k sigma_t with sigma_t^2 = c L0^2 K_t^2 ln(1/delta)/(n epsilon)^2 and c = 64.
        """
        sensitivity = 2.0 * phase.eta * self.L0 + ROUNDING * phase.steps * max(1.0, r.R_t)
        if math.isinf(self.epsilon):
            return 0.0, sensitivity
        if self.variant in CALIBRATED:
            return sensitivity / mu, sensitivity
        printed = math.sqrt(self.c * math.log(1.0 / self.delta)) * self.L0 * r.K_t / (self.n * self.epsilon)
        return phase.eta * printed, sensitivity
