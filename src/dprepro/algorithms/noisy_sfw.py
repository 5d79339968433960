"""Private noisy stochastic Frank-Wolfe in the l_p setting, 1 < p <= 2 (BGM21, Algorithm 6, Theorems 10 and 11).

One pass over the data; every step goes to the exact linear minimiser of a recursive gradient estimate to which
Gaussian noise was added. The loss must be smooth and need not be convex.

Privacy: every step releases its estimate, which goes on from the released one before it: only its own batch is new, and
the batches are disjoint. A record is in one release. Calibrated noise is sized by how far the points of a step really
are apart, which the releases before it have decided: see `_shrink`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms import _sfw
from dprepro.algorithms.base import CALIBRATED, Algorithm, Letter, Setting, UtilityBound
from dprepro.errors import UserError
from dprepro.geometry import LpBall
from dprepro.privacy.events import DisjointGaussianEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

ESTIMATE = "estimate"
# Constants of the bound that chooses R in practice, found by looking at runs on synthetic problems.
C_CURVATURE, C_SAMPLING, C_NOISE = 0.5, 0.25, 0.125


@dataclass(frozen=True, kw_only=True)
class NoisySFWPlan(_sfw.SFWPlan):
    """The regularity constants kappa and kappa_tilde; sigma is the noise on the first estimate of a round.

    G and L are the Lipschitz constant and the smoothness in the l2 norm.
    """

    kappa: float
    kappa_tilde: float
    G: float
    L: float


class NoisySFW(Algorithm):
    """One-pass stochastic Frank-Wolfe with Gaussian noise on its gradient estimates."""

    name = "noisy_sfw"
    title = "Noisy SFW"
    paper = "BGM21"
    needs = frozenset({"smooth", "smooth_regularizer", "lipschitz", "bounded"})
    plan_type = NoisySFWPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "R": Letter(int, "rounds, the last of 2^(R-1) steps"),
        "b": Letter(int, "samples in the first batch of a round"),
        "p": Letter(float, "the norm of the constants, 1 < p <= 2; that of an lp_ball by default, else 2"),
    }

    def audit_case(self) -> Case:
        """Return a linear loss on a disc whose first record, in the batch of round 0, turns the first step."""
        from dprepro.privacy.cases import sphere_case

        return sphere_case(500, {"R": 2, "b": 200})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> NoisySFWPlan:
        """Fill in what is not given by Theorem 11; in practice R has the best bound."""
        problem = setting.problem
        n, d, p = problem.n, problem.d, _exponent(setting, given)
        L0, L1, D = problem.lipschitz_in(p), problem.smoothness_in(p), problem.constraint.diameter(p, d)
        kappa, kappa_tilde = _regularity(p, d)
        practical = setting.variant == "practical"
        R = given.get("R") or (_best_rounds if practical else _rounds)(setting, p)
        b = given.get("b") or (_sfw.largest_batch(R, n) if practical else _sfw.theorems_batch(n))
        _sfw.check_rounds(self.name, R, b, n)
        sensitivities = _sfw.moves(2 ** (R - 1), b, *_euclidean(setting, p))
        sigmas = _sigmas(setting, p, b, sensitivities)
        return NoisySFWPlan(
            **self.plan_head(setting),
            theorem="BGM21, Theorems 10 and 11",
            sigma=sigmas[0],
            rounds=2**R - 1,
            gradient_evaluations=_sfw.gradient_evaluations(R, b),
            utility=_utility(setting, p, D * (L0 + L1 * D)),
            # Some smooth losses attain the sensitivities, others do not: the account of one loss is an upper bound.
            events=(DisjointGaussianEvent(ESTIMATE, tuple(sigmas), tuple(sensitivities), 2**R - 1, attained=False),),
            conditions=_sfw.conditions(setting, R, b),
            R=R,
            b=b,
            p=p,
            L0=L0,
            L1=L1,
            D=D,
            kappa=kappa,
            kappa_tilde=kappa_tilde,
            G=_euclidean(setting, p)[0],
            L=problem.L,
        )

    def run(self, plan: NoisySFWPlan, ex: Execution) -> Array:
        """Execute Algorithm 6 from the middle of the set; what noise on Delta and on g adds up to is drawn as one."""
        W, mechanism = ex.constraint, ex.disjoint_gaussian(ESTIMATE)

        def noise(t: int, moved: Array) -> Array:
            drawn = mechanism.noise(t)
            return drawn if plan.variant == "published" or t == 0 else _shrink(plan, ex.xp, t, moved) * drawn

        return _sfw.run_rounds(plan, ex, noise, lambda r, nabla: W.linear_minimizer(ex.xp, nabla))


def _exponent(setting: Setting, given: Mapping[str, Any]) -> float:
    """Return p: the given one, that of an l_p ball, else 2."""
    constraint = setting.problem.constraint
    p = given.get("p", constraint.p if isinstance(constraint, LpBall) else 2.0)
    if not 1.0 < p <= 2.0:
        raise UserError(f"p of {NoisySFW.name} is {p:g}: give a number with 1 < p <= 2.")
    return float(p)


def _regularity(p: float, d: int) -> tuple[float, float]:
    """Return kappa = min(1/(p-1), 2 ln d), at least 1, and kappa_tilde = 1 + ln(d) for p < 2, 1 for p = 2."""
    return max(1.0, min(1.0 / (p - 1.0), 2.0 * math.log(d))), 1.0 + (math.log(d) if p < 2.0 else 0.0)


def _stretch(p: float, d: int) -> float:
    """Return d^(1/p - 1/2), the largest ratio of the l2 norm to the dual norm of the l_p norm."""
    return float(d ** (1.0 / p - 0.5))


def _euclidean(setting: Setting, p: float) -> tuple[float, float]:
    """Return bounds in the l2 norm on a sample's gradient, and on its change between the ends of the set.

    The dual norm bounds both up to d^(1/p - 1/2); the constants of the l2 norm itself may be smaller.
    """
    problem, stretch = setting.problem, _stretch(p, setting.problem.d)
    turns = [
        factor * problem.smoothness_in(q) * problem.constraint.diameter(q, problem.d)
        for q, factor in ((p, stretch), (2.0, 1.0))
    ]
    return min(stretch * problem.lipschitz_in(p), problem.G), min(turns)


def _shrink(plan: NoisySFWPlan, xp: Any, t: int, moved: Array) -> Array:
    """Return c <= 1 (K, 1): the sensitivity of step t >= 1 for points that are `moved` (K, d) apart, over the planned.

    The points are known from earlier releases. Given them, the estimate divided by c has at most the planned
    sensitivity; with the planned noise it is released, and multiplied by c: noise and sensitivity shrink alike.
    """
    size = xp.abs(moved)
    in_p = xp.sum(size**plan.p, axis=1, keepdims=True) ** (1.0 / plan.p)
    in_2 = xp.sqrt(xp.sum(moved * moved, axis=1, keepdims=True))
    change = xp.minimum(_stretch(plan.p, plan.d) * plan.L1 * in_p, plan.L * in_2)
    change = xp.where(change < 2.0 * plan.G, change, 2.0 * plan.G)
    (event,) = plan.events
    assert isinstance(event, DisjointGaussianEvent)
    ratio = _sfw.move(t, plan.b, plan.G, change) / event.sensitivities[t]
    return xp.where(ratio < 1.0, ratio, 1.0)


def _sigmas(setting: Setting, p: float, b: int, sensitivities: list[float]) -> list[float]:
    """Return the noise on the estimate of each step t.

    As published, the estimate gets (1 - eta_t) N^ + eta_t N with standard deviations 4 L1 D eta_t u and 4 L0 u,
    u = (t+1) d^(1/p - 1/2) sqrt(ln(1/delta)) / (b epsilon). For calibration the noise is proportional to the true
    sensitivity of the sum, which makes every step cost the same.
    """
    problem = setting.problem
    if not setting.noisy:
        return [0.0] * len(sensitivities)
    if setting.variant in CALIBRATED:
        return [S / _sfw.signal(setting) for S in sensitivities]
    L0, turn = problem.lipschitz_in(p), problem.smoothness_in(p) * problem.constraint.diameter(p, problem.d)
    unit = 4.0 * _stretch(p, problem.d) / (b * _sfw.signal(setting))
    found = []
    for t in range(len(sensitivities)):
        eta = _sfw.eta(t)
        found.append(unit * (t + 1) * eta * math.hypot((1.0 - eta) * turn, L0))
    return found


def _rounds(setting: Setting, p: float) -> int:
    """Return R = (4/5) log2(n epsilon / (sqrt(d kappa_tilde ln(1/delta)) kappa^(5/3) ln(n)^2)) of Theorem 11.

    It is at most (2/3) log2(n / (kappa ln(n))^2), where the sampling term balances the first one. The proof gets there
    by embedding a problem of few dimensions in more of them, which would give the same R; without noise it is R.
    """
    d = setting.problem.d
    kappa, kappa_tilde = _regularity(p, d)

    def rounds(n: float) -> float:
        logs = max(1.0, math.log(n)) ** 2
        most = 2.0 / 3.0 * math.log2(n / (kappa**2 * logs))
        if not setting.noisy:
            return most
        scale = math.sqrt(d * kappa_tilde) * kappa ** (5.0 / 3.0) * logs
        return min(most, 0.8 * math.log2(n * _sfw.signal(setting) / scale))

    return _sfw.theorems_rounds(NoisySFW.name, "Theorem 11 of BGM21", setting, rounds)


def _best_rounds(setting: Setting, p: float) -> int:
    """Return the R of the smallest bound: curvature, sampling, and the noise of a last estimate over the set."""
    problem = setting.problem
    L0, L1, D = problem.lipschitz_in(p), problem.smoothness_in(p), problem.constraint.diameter(p, problem.d)
    width, (kappa, _) = problem.constraint.gaussian_width(problem.d), _regularity(p, problem.d)

    def bound(R: int, b: int) -> float:
        value = C_CURVATURE * L1 * D**2 * 2.0 ** (-R / 2)
        value += C_SAMPLING * D * (L0 + L1 * D) * math.sqrt(kappa / b) * 2.0 ** (R / 4)
        if setting.noisy:
            sigmas = _sigmas(setting, p, b, _sfw.moves(2 ** (R - 1), b, *_euclidean(setting, p)))
            value += C_NOISE * width * _gathered(sigmas)
        return value

    return _sfw.practical_rounds(NoisySFW.name, setting, bound)


def _gathered(sigmas: list[float]) -> float:
    """Return the standard deviation of the noise in the last estimate of a round."""
    variance = 0.0
    for t, sigma in enumerate(sigmas):
        variance = (1.0 - _sfw.eta(t)) ** 2 * variance + sigma**2
    return math.sqrt(variance)


def _utility(setting: Setting, p: float, unit: float) -> UtilityBound:
    """Return Theorem 11's bound on the expected gap of the output."""
    n, d = setting.problem.n, setting.problem.d
    kappa, kappa_tilde = _regularity(p, d)
    value = math.log(n) ** (2.0 / 3.0) / n ** (1.0 / 3.0)
    if setting.noisy:
        private = n * _sfw.signal(setting) / math.sqrt(d * kappa_tilde)
        value += math.log(n) ** 0.8 / private**0.4
    formula = (
        "D (L0 + L1 D) kappa^(2/3) (ln(n)^(2/3) / n^(1/3) "
        "+ (d kappa_tilde ln(1/delta))^(1/5) ln(n)^(4/5) / (n epsilon)^(2/5))"
    )
    return UtilityBound("BGM21, Theorem 11", _sfw.GAP, formula, unit * kappa ** (2.0 / 3.0) * value)


ALGORITHM = NoisySFW()
