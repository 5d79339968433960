"""Noisy Frank-Wolfe (Talwar, Thakurta, Zhang, NeurIPS 2015, Algorithm 2; reference [29] in WYX17's Table 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Letter, Plan, Setting, UtilityBound, refuse_vacuous
from dprepro.errors import UserError
from dprepro.privacy.events import Event, GaussianEvent, QueryPart, SelectionEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

VERTEX = "vertex"
GRADIENT = "gradient"
# Without noise the theorem's number of steps is infinite.
STEPS_WITHOUT_NOISE = 1000
# The theorem's T is far too large for certified noise: these were chosen by hand on one synthetic problem.
C_IN_PRACTICE = {"laplace": 0.003, "gaussian": 0.01}


@dataclass(frozen=True, kw_only=True)
class NoisyFrankWolfePlan(Plan):
    """T steps towards a point that noise has a say in.

    With `laplace` a vertex is selected by report noisy max, and sigma is the scale of the Laplace noise on its value;
    with `gaussian` sigma is the standard deviation of the noise on the gradient, whose linear minimiser is taken.
    """

    T: int
    c: float
    C: float
    noise: str


class NoisyFrankWolfe(Algorithm):
    """Frank-Wolfe whose every step goes to a vertex selected with noise."""

    name = "noisy_frank_wolfe"
    title = "Noisy Frank-Wolfe"
    paper = "TTZ15"
    needs = frozenset({"smooth", "convex", "smooth_regularizer", "lipschitz", "bounded"})
    plan_type = NoisyFrankWolfePlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "c": Letter(float, "a factor on the square of the published noise scale"),
        "C": Letter(float, "the constant of the number of steps"),
        "noise": Letter(str, "noise on the values of the vertices or on the gradient", choices=("laplace", "gaussian")),
    }

    def audit_case(self) -> Case:
        """Return a linear loss in one dimension: two vertices, between which one record decides."""
        from dprepro.privacy.cases import linear_ball_case

        return linear_ball_case(50, "l1_ball:1", {"T": 6}, d=1)

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> NoisyFrankWolfePlan:
        """Fill in what is not given: Laplace noise on a polytope, else Gaussian; T by the theorem."""
        problem = setting.problem
        polytope = "polytope" in problem.properties
        noise = given.get("noise", "laplace" if polytope else "gaussian")
        if noise == "laplace" and not polytope:
            raise UserError(
                f"noisy_frank_wolfe with noise=laplace selects a vertex, but {problem.constraint.name} has none: "
                "use constraint='l1_ball:1.0', or noise=gaussian."
            )
        C = given.get("C", C_IN_PRACTICE[noise] if setting.variant == "practical" else 1.0)
        T = given.get("T") or _steps(setting, noise, C)
        c = given.get("c", 1.0)
        sigma = _noise_scale(setting, noise, c, T)
        return NoisyFrankWolfePlan(
            **self.plan_head(setting),
            theorem="TTZ15, Algorithm 2" if noise == "laplace" else "TTZ14 as in WYX17, Table 3",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * problem.n,
            utility=_utility(setting),
            events=(_event(setting, noise, sigma, T),),
            conditions=(),
            T=T,
            c=c,
            C=C,
            noise=noise,
        )

    def run(self, plan: NoisyFrankWolfePlan, ex: Execution) -> Array:
        """Execute TTZ15's Algorithm 2 from the origin, with T steps; comments give its line numbers."""
        theta = ex.start()  # 1
        towards = _chooser(plan, ex)
        for t in range(1, plan.T + 1):  # 2
            nabla = ex.full_gradient(theta) + ex.regularizer_gradient(theta)
            mu = 2.0 / (t + 2.0)
            theta = (1.0 - mu) * theta + mu * towards(nabla)  # 3, 4, 5
            ex.checkpoint(theta)
        return theta  # 6


def _chooser(plan: NoisyFrankWolfePlan, ex: Execution) -> Callable[[Array], Array]:
    """Return the choice of the point to step towards, a function of the gradient."""
    xp, C = ex.xp, ex.constraint
    if plan.noise == "laplace":
        selection = ex.selection(VERTEX)
        return lambda nabla: C.vertex(xp, selection.largest(-C.vertex_values(xp, nabla)), nabla)
    noise = ex.gaussian(GRADIENT).noise(plan.T)
    return lambda nabla: C.linear_minimizer(xp, nabla + next(noise))


def _event(setting: Setting, noise: str, sigma: float, T: int) -> Event:
    """Return the event of T steps; the value of a vertex moves by at most its l2 norm times that of the gradient."""
    problem = setting.problem
    moved = 2.0 * problem.G / problem.n
    if noise == "laplace":
        return SelectionEvent(VERTEX, "laplace", sigma, problem.constraint.radius * moved, T)
    return GaussianEvent(GRADIENT, sigma, (QueryPart(moved, problem.n, problem.n),), T)


def _noise_scale(setting: Setting, noise: str, c: float, T: int) -> float:
    """Return TTZ15's Laplace scale G R sqrt(8 c T ln(1/delta)) / (n eps), or G sqrt(c T ln(1/delta)) / (n eps).

    TTZ15's scale goes with a sensitivity of G R / n; replacing a record moves a value by up to twice as much.
    """
    scale = setting.noise(c, T)
    return math.sqrt(8.0) * setting.problem.constraint.radius * scale if noise == "laplace" else scale


def _curvature(setting: Setting) -> float:
    """Return the bound L diameter^2 on the curvature constant of the objective over the set."""
    problem = setting.problem
    return (problem.L + problem.regularizer.l2) * problem.constraint.l2_diameter**2


def _width(setting: Setting, noise: str) -> float:
    """Return what the error of a choice grows with: the radius for vertices, else the Gaussian width."""
    constraint = setting.problem.constraint
    return constraint.radius if noise == "laplace" else constraint.gaussian_width(setting.problem.d)


def _steps(setting: Setting, noise: str, C: float) -> int:
    """Return T = C (curvature n eps / (G width))^(2/3); without the constant it must be at least 1."""
    if not setting.noisy:
        return STEPS_WITHOUT_NOISE
    problem = setting.problem
    gain = _curvature(setting) * setting.epsilon / (problem.G * _width(setting, noise))
    refuse_vacuous(setting, lambda n: gain * n >= 1.0, "noisy_frank_wolfe has no step", "the T of TTZ15 is below 1")
    return math.ceil(C * (gain * problem.n) ** (2.0 / 3.0))


def _utility(setting: Setting) -> UtilityBound:
    """Return Table 3's bound with the factors that it takes for 1, the curvature and G."""
    problem = setting.problem
    width = problem.constraint.gaussian_width(problem.d)
    signal = problem.n * setting.epsilon / (problem.G * width)
    value = _curvature(setting) ** (1.0 / 3.0) * math.log(problem.n) ** 2 / signal ** (2.0 / 3.0)
    formula = "curvature^(1/3) (G G_C)^(2/3) ln(n)^2 / (n epsilon)^(2/3)"
    return UtilityBound("TTZ15 as in WYX17, Table 3", "optimality gap", formula, value)


ALGORITHM = NoisyFrankWolfe()
