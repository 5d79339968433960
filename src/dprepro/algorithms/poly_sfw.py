"""Private polyhedral stochastic Frank-Wolfe (BGM21, Algorithm 1, Theorems 7 and 8).

One pass over the data; every step goes to a vertex of the polytope, chosen by a noisy maximum over the values of a
recursive gradient estimate. The loss must be smooth and need not be convex.

Privacy: the batches are disjoint, but the estimate carries a sample along from its own step to the last one of the
round, less with every step. Vertex values move with the l1 norm: only their differences matter to a selection, and
these move by at most D times the movement of the estimate in the sup norm, so that D/2 times it is a sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms import _sfw
from dprepro.algorithms.base import CALIBRATED, Algorithm, Letter, Setting, UtilityBound
from dprepro.privacy.events import FadingSelectionEvent, ParallelEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any
Profile = tuple[tuple[float, int], ...]

ROUNDS = "rounds"
# Constants of the bound that chooses R in practice, found by looking at runs without noise on a synthetic problem.
C_CURVATURE, C_SAMPLING = 0.5, 0.25
# What having few profiles with few levels may add to their sums; all of it is on the safe side.
_MERGED, _LEVEL = 0.02, 0.001
# Samples of so many groups of batches are told apart.
_GROUPS = 512


@dataclass(frozen=True, kw_only=True)
class PolySFWPlan(_sfw.SFWPlan):
    """A polytope with J vertices; sigma is the scale of the noise of the last round, of the law `noise`."""

    J: int
    noise: str


class PolySFW(Algorithm):
    """One-pass stochastic Frank-Wolfe on a polytope, with vertices chosen by a noisy maximum."""

    name = "poly_sfw"
    title = "Polyhedral SFW"
    paper = "BGM21"
    needs = frozenset({"smooth", "smooth_regularizer", "lipschitz", "bounded", "polytope"})
    plan_type = PolySFWPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "R": Letter(int, "rounds, the last of 2^(R-1) steps"),
        "b": Letter(int, "samples in the first batch of a round"),
        "noise": Letter(str, "law of the noise on the values of the vertices", choices=("laplace", "gumbel")),
    }

    def audit_case(self) -> Case:
        """Return a linear loss in one dimension: two vertices, between which the first record decides in round 0."""
        from dprepro.privacy.cases import vertex_case

        return vertex_case(500, {"R": 2, "b": 200})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> PolySFWPlan:
        """Fill in what is not given by Theorem 8; certified noise is Gumbel's, in practice R has the best bound."""
        problem = setting.problem
        n, J = problem.n, _vertices(setting)
        L0, L1, D = problem.lipschitz_in(1.0), problem.smoothness_in(1.0), problem.constraint.diameter(1.0, problem.d)
        noise = given.get("noise", "gumbel" if setting.variant in CALIBRATED else "laplace")
        practical = setting.variant == "practical"
        R = given.get("R") or (_best_rounds(setting, J, noise) if practical else _rounds(setting, J))
        b = given.get("b") or (_sfw.largest_batch(R, n) if practical else _sfw.theorems_batch(n))
        _sfw.check_rounds(self.name, R, b, n)
        profiles = [fading_profiles([0.5 * D * S for S in _sfw.moves(2**r, b, L0, L1 * D)]) for r in range(R)]
        scales = [_scale(setting, noise, profiles[r], D * (L0 + L1 * D) * 2**r / b) for r in range(R)]
        events = [
            FadingSelectionEvent(_label(r), noise, scale, profile, 2**r)
            for r, (scale, profile) in enumerate(zip(scales, profiles, strict=True))
        ]
        return PolySFWPlan(
            **self.plan_head(setting),
            theorem="BGM21, Theorems 7 and 8",
            sigma=scales[-1],
            rounds=2**R - 1,
            gradient_evaluations=_sfw.gradient_evaluations(R, b),
            utility=_utility(setting, J, D * (L0 + L1 * D)),
            events=(ParallelEvent(ROUNDS, tuple((event,) for event in events)),),
            conditions=_sfw.conditions(setting, R, b),
            R=R,
            b=b,
            p=1.0,
            L0=L0,
            L1=L1,
            D=D,
            J=J,
            noise=noise,
        )

    def run(self, plan: PolySFWPlan, ex: Execution) -> Array:
        """Execute Algorithm 1 from the middle of the set."""
        W = ex.constraint

        def towards(r: int, nabla: Array) -> Array:
            values = W.vertex_values(ex.xp, nabla)
            return W.vertex(ex.xp, ex.selection(_label(r)).largest(-values), nabla)

        return _sfw.run_rounds(plan, ex, lambda t, moved: 0.0, towards)


def _label(r: int) -> str:
    return f"round {r}"


def _vertices(setting: Setting) -> int:
    """Return J, the number of vertices."""
    import numpy as np

    constraint: Any = setting.problem.constraint
    return int(constraint.vertex_values(np, np.zeros((1, setting.problem.d))).shape[1])


def fading_profiles(moves: list[float]) -> tuple[Profile, ...]:
    """Return profiles of sensitivities among which every sample of a round has one that is at least its own.

    A sample of batch k moves the values of step t >= k by moves[k] (1 - eta_{k+1}) ... (1 - eta_t). The samples of a
    group of consecutive batches are covered by the largest of their moves, by the factors behind the group's last
    batch, which are the largest ones, and by the number of steps from the group's first batch on. Groups are merged,
    place by place, as long as the merged profile hardly adds up to more than the worst groups, by sum and by squares:
    few selections cost about their sum, many about the root of their squares.
    """
    import numpy as np

    steps = len(moves)
    width = -(-steps // _GROUPS)
    factors = 1.0 - 1.0 / np.sqrt(np.arange(1.0, 2 * steps + 1))
    groups = []
    for first in range(0, steps, width):
        last = min(first + width, steps) - 1
        profile = np.zeros(steps)
        profile[0] = 1.0
        profile[1 : steps - first] = np.cumprod(factors[last + 1 : last + steps - first])
        groups.append(max(moves[first : last + 1]) * profile)
    most = (1.0 + _MERGED) * np.max([_sums(group) for group in groups], axis=0)
    merged = [groups[-1]]
    for group in reversed(groups[:-1]):
        both = np.maximum(merged[-1], group)
        if np.all(_sums(both) <= most):
            merged[-1] = both
        else:
            merged.append(group)
    return tuple(_levels(profile) for profile in merged)


def _levels(profile: Any) -> Profile:
    """Return falling sensitivities as (sensitivity, selections), rounded up to few levels.

    A level is as long as what rounding adds to the sum, and to that of squares, is at most the share `_LEVEL` of it.
    """
    import numpy as np

    falling = profile[profile > 0.0]
    most, levels = _LEVEL * _sums(falling), []
    while len(falling):
        counts = np.arange(1, len(falling) + 1)
        added = [counts * falling[0] ** power - np.cumsum(falling**power) for power in (1, 2)]
        fits = [int(np.searchsorted(a, m, side="right")) for a, m in zip(added, most, strict=True)]
        count = max(1, min(fits))
        levels.append((float(falling[0]), count))
        falling = falling[count:]
    return tuple(levels)


def _sums(profile: Any) -> Any:
    """Return the sum of a profile and that of its squares."""
    import numpy as np

    return np.array([np.sum(profile), np.sum(profile**2)])


def _squares(profiles: tuple[Profile, ...]) -> float:
    """Return the largest sum of squared sensitivities of a profile."""
    return max(sum(count * sensitivity**2 for sensitivity, count in profile) for profile in profiles)


def _scale(setting: Setting, noise: str, profiles: tuple[Profile, ...], unit: float) -> float:
    """Return the noise scale of a round: s_r = 2 D (L0 + L1 D) 2^r sqrt(ln(1/delta)) / (b epsilon) as published.

    For calibration it is proportional to the root of the profile's squares, which gives every round the same zCDP.
    """
    if not setting.noisy:
        return 0.0
    if setting.variant in CALIBRATED:
        return _zcdp_scale(setting, noise, _squares(profiles))
    return 2.0 * unit * math.sqrt(math.log(1.0 / setting.delta)) / setting.epsilon


def _zcdp_scale(setting: Setting, noise: str, squares: float) -> float:
    """Return the scale with which selections of these squared sensitivities are (epsilon, delta)-DP by zCDP.

    A selection is 2s/scale-DP, hence (2 s^2/scale^2)-zCDP, and with Gumbel noise a quarter of that. rho-zCDP implies
    epsilon = rho + 2 sqrt(rho ln(1/delta)).
    """
    log_delta = math.log(1.0 / setting.delta)
    root_rho = setting.epsilon / (math.sqrt(log_delta + setting.epsilon) + math.sqrt(log_delta))
    return math.sqrt((0.5 if noise == "gumbel" else 2.0) * squares) / root_rho


def _rounds(setting: Setting, J: int) -> int:
    """Return R = (2/3) log2(n epsilon / (ln(J)^2 ln(n)^2 sqrt(ln(1/delta)))) of Theorem 8.

    Without noise the last factor and epsilon are taken as 1: then the sampling term balances the first one.
    """

    def rounds(n: float) -> float:
        logs = math.log(max(J, 2)) * max(1.0, math.log(n))
        return 2.0 / 3.0 * math.log2(n * _sfw.signal(setting) / logs**2)

    return _sfw.theorems_rounds(PolySFW.name, "Theorem 8 of BGM21", setting, rounds)


def _best_rounds(setting: Setting, J: int, noise: str) -> int:
    """Return the R of the smallest bound: curvature, sampling and certified noise of the last round."""
    problem = setting.problem
    L0, L1, D = problem.lipschitz_in(1.0), problem.smoothness_in(1.0), problem.constraint.diameter(1.0, problem.d)

    def bound(R: int, b: int) -> float:
        value = C_CURVATURE * L1 * D**2 * 2.0 ** (-R / 2)
        value += C_SAMPLING * D * (L0 + L1 * D) * math.sqrt(2.0 * math.log(J) / b) * 2.0 ** (R / 4)
        if setting.noisy:
            squares = _worst_squares([0.5 * D * S for S in _sfw.moves(2 ** (R - 1), b, L0, L1 * D)])
            value += _zcdp_scale(setting, noise, squares) * math.log(J)
        return value

    return _sfw.practical_rounds(PolySFW.name, setting, bound)


def _worst_squares(moves: list[float]) -> float:
    """Return the largest sum over t >= k of the squared sensitivities of a sample of batch k, over all k."""
    worst = behind = 0.0
    for k in range(len(moves) - 1, -1, -1):
        # `behind` is the sum for a unit move, by the recursion from the last batch on
        behind = 1.0 + (1.0 - _sfw.eta(k + 1)) ** 2 * behind
        worst = max(worst, moves[k] ** 2 * behind)
    return worst


def _utility(setting: Setting, J: int, unit: float) -> UtilityBound:
    """Return Theorem 8's bound on the expected gap of the output."""
    n = setting.problem.n
    value = unit * (math.log(J) * math.log(n)) ** (2.0 / 3.0) / (n * _sfw.signal(setting)) ** (1.0 / 3.0)
    formula = "D (L0 + L1 D) ln(J)^(2/3) ln(n)^(2/3) ln(1/delta)^(1/6) / (n epsilon)^(1/3)"
    return UtilityBound("BGM21, Theorem 8", _sfw.GAP, formula, value)


ALGORITHM = PolySFW()
