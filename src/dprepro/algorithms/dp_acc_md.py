"""DP-AccMD: accelerated mirror descent (WYX17, Algorithm 3; privacy Theorem 5.3, utility Theorem 5.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Condition, Letter, Plan, Setting, UtilityBound, refuse_vacuous
from dprepro.privacy.events import Event, GaussianEvent, UnprotectedEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

STEP = "mirror step"
BARE_STEP = "gradient step without noise"
# Without noise the theorem's number of steps is infinite.
STEPS_WITHOUT_NOISE = 1000


# What the certificate says of the letter `noise`.
_NOISE_IN = {
    "mirror": "noise is added in the mirror step only, as in the proof (59)-(71), and the gradient step uses gradients "
    "without noise",
    "both": "noise = both",
}


@dataclass(frozen=True)
class _Defaults:
    """What a variant takes where a letter is not given."""

    noise: str
    diameter: str
    C: float


_DEFAULTS = {
    "published": _Defaults(noise="mirror", diameter="diameter", C=1.0),
    # Noise in the mirror step alone cannot be certified.
    "certified": _Defaults(noise="both", diameter="diameter", C=1.0),
    # By central symmetry the radius bounds ||v||_2 / ||v||_C already.
    "practical": _Defaults(noise="both", diameter="radius", C=3.0),
}


@dataclass(frozen=True, kw_only=True)
class DPAccMDPlan(Plan):
    """Numbers of Algorithm 3: T steps for a loss that is `smoothness`-smooth in the Minkowski norm.

    `noise` is `mirror` (z-step only, as in the proof) or `both`; `diameter` says what stands for ||C||_2.
    """

    T: int
    smoothness: float
    c: float
    C: float
    noise: str
    diameter: str


class DPAccMD(Algorithm):
    """Accelerated mirror descent over a centrally symmetric set with Gaussian noise in every gradient."""

    name = "dp_acc_md"
    title = "DP-AccMD"
    paper = "WYX17"
    needs = frozenset({"smooth", "convex", "smooth_regularizer", "lipschitz", "bounded", "centrally_symmetric"})
    plan_type = DPAccMDPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "c": Letter(float, "the open constant of the noise variance, equation (9)", constant="set here"),
        "C": Letter(float, "the open constant of the number of steps, Theorem 5.4"),
        "noise": Letter(str, "which steps see noise", choices=("mirror", "both")),
        "diameter": Letter(str, "what is taken for ||C||_2", choices=("diameter", "radius")),
    }

    def audit_case(self) -> Case:
        """Return a linear loss on a large ball, where the output is a weighted sum of all noisy gradients."""
        from dprepro.privacy.cases import linear_ball_case

        return linear_ball_case(50, "l2_ball:1000", {"T": 10})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DPAccMDPlan:
        """Fill in what is not given: T by Theorem 5.4, with B_w(x*, x0) bounded by its maximum over the set."""
        problem, defaults = setting.problem, _DEFAULTS[setting.variant]
        n = problem.n
        diameter = given.get("diameter", defaults.diameter)
        size = problem.constraint.l2_diameter if diameter == "diameter" else problem.constraint.radius
        smoothness = (problem.L + problem.regularizer.l2) * size**2
        C = given.get("C", defaults.C)
        T = given.get("T") or _steps(setting, smoothness, size, C)
        c = given.get("c", 1.0)
        noise = given.get("noise", defaults.noise)
        sigma = setting.noise(c, T)
        step = GaussianEvent(STEP, sigma, (setting.full_part,), T, attained=setting.spread_attained)
        events: tuple[Event, ...] = (step,)
        if noise == "mirror":
            events += (UnprotectedEvent(BARE_STEP, T),)
        return DPAccMDPlan(
            **self.plan_head(setting),
            theorem="WYX17, Theorem 5.3",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * n,
            utility=UtilityBound(
                "WYX17, Theorem 5.4",
                "optimality gap",
                "sqrt(B_w) sqrt(G_C^2 + ||C||_2^2) G sqrt(ln(1/delta)) / (n epsilon)",
                math.sqrt(problem.constraint.bregman_radius(problem.d)) / _signal(setting, size),
            ),
            events=events,
            conditions=(
                Condition(
                    "the released point depends on the data through noisy gradients only",
                    noise == "both",
                    _NOISE_IN[noise],
                    privacy=True,
                ),
            ),
            T=T,
            smoothness=smoothness,
            c=c,
            C=C,
            noise=noise,
            diameter=diameter,
        )

    def run(self, plan: DPAccMDPlan, ex: Execution) -> Array:
        """Execute Algorithm 3, with L for the smoothness in the Minkowski norm, L ||C||_2^2."""
        xp, C, L = ex.xp, ex.constraint, plan.smoothness
        y = z = ex.start()
        for k, b in enumerate(ex.gaussian(STEP).noise(plan.T)):
            alpha = (k + 2) / (4.0 * L)
            r = 1.0 / (2.0 * alpha * L)
            x = r * z + (1.0 - r) * y
            nabla = ex.full_gradient(x) + ex.regularizer_gradient(x)
            if plan.noise == "mirror":
                ex.unprotected(BARE_STEP)
                y = C.gradient_step(xp, x, nabla, L)
            else:
                y = C.gradient_step(xp, x, nabla + b, L)
            z = C.mirror_step(xp, z, alpha * (nabla + b))
            ex.checkpoint(y)
        return y


def _signal(setting: Setting, size: float, n: float | None = None) -> float:
    """Return n epsilon / (G sqrt(ln(1/delta)) sqrt(G_C^2 + ||C||_2^2)); Lemma 5.2 gives the second root."""
    problem = setting.problem
    n = problem.n if n is None else n
    spread = math.hypot(problem.constraint.gaussian_width(problem.d), size)
    return n * setting.epsilon / (problem.G * math.sqrt(math.log(1.0 / setting.delta)) * spread)


def _steps(setting: Setting, smoothness: float, size: float, C: float) -> int:
    """Return T = C sqrt(L ||C||_2^2 sqrt(B_w) n eps / (G sqrt(ln(1/delta)) sqrt(G_C^2 + ||C||_2^2))).

    Without the constant it must be at least 1.
    """
    if not setting.noisy:
        return STEPS_WITHOUT_NOISE
    problem = setting.problem
    start = math.sqrt(problem.constraint.bregman_radius(problem.d))

    def squared(n: float) -> float:
        return smoothness * start * _signal(setting, size, n)

    refuse_vacuous(
        setting, lambda n: squared(n) >= 1.0, "dp_acc_md has no step", "the T of WYX17 Theorem 5.4 is below 1"
    )
    return math.ceil(C * math.sqrt(squared(problem.n)))


ALGORITHM = DPAccMD()
