"""Noisy Frank-Wolfe (Talwar, Thakurta, Zhang, NeurIPS 2015, Algorithm 2; reference [29] in WYX17's Table 3).

A loss with kinks is replaced by its beta-envelope, with the numbers of BGM21, Algorithm 5 and Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import Algorithm, Condition, Letter, Plan, Setting, UtilityBound, refuse_vacuous
from dprepro.errors import UserError
from dprepro.geometry import Polytope, Simplex
from dprepro.privacy.events import Event, GaussianEvent, SelectionEvent
from dprepro.problems.erm import ProblemSpec
from dprepro.smoothing import MoreauEnvelope

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

VERTEX = "vertex"
ON_VERTICES = ("laplace", "gumbel")
GRADIENT = "gradient"
# Without noise the theorem's number of steps is infinite.
STEPS_WITHOUT_NOISE = 1000
# The theorem's T is far too large for certified noise: these were chosen by hand on one synthetic problem.
C_IN_PRACTICE = {"laplace": 0.003, "gumbel": 0.003, "gaussian": 0.01}
# The numerator of the step towards the vertex, mu_t = numerator / (t + 2).
STEPS = {"ttz15": 2.0, "bgm21": 3.0}


@dataclass(frozen=True, kw_only=True)
class NoisyFrankWolfePlan(Plan):
    """T steps towards a point that noise has a say in.

    With `laplace` a vertex is selected by report noisy max, and sigma is the scale of the Laplace noise on its value;
    with `gumbel` by the exponential mechanism, which tells less at the same scale; with `gaussian` sigma is the
    standard deviation of the noise on the gradient, whose linear minimiser is taken. Step t goes the part 2/(t+2) of
    the way if `step` is ttz15, 3/(t+2) if bgm21. Gradients are those of the loss's beta-envelope, unless beta is None.
    """

    T: int
    c: float
    C: float
    noise: str
    step: str
    beta: float | None


class NoisyFrankWolfe(Algorithm):
    """Frank-Wolfe whose every step goes to a vertex selected with noise."""

    name = "noisy_frank_wolfe"
    title = "Noisy Frank-Wolfe"
    paper = "TTZ15"
    needs = frozenset({"convex", "smooth_regularizer", "lipschitz", "bounded"})
    plan_type = NoisyFrankWolfePlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "c": Letter(float, "a factor on the square of the published noise scale", constant="stated"),
        "C": Letter(float, "the constant of the number of steps"),
        "noise": Letter(
            str, "noise on the values of the vertices or on the gradient", choices=(*ON_VERTICES, "gaussian")
        ),
        "step": Letter(str, "2/(t+2) of the way (ttz15) or 3/(t+2) (bgm21)", choices=tuple(STEPS)),
        "beta": Letter(float, "smoothness of the envelope of a loss with kinks"),
    }

    def audit_case(self) -> Case:
        """Return a linear loss in one dimension and one step: two vertices, between which the first record decides."""
        from dprepro.privacy.cases import vertex_case

        return vertex_case(50, {"T": 1})

    def constant_set_here(self, plan: Plan, given: Mapping[str, Any]) -> str:
        """Return c where the noise is Gaussian, of which TTZ15 has none, and elsewhere if it is given."""
        return f"c = {plan.letters()['c']:.4g}" if "c" in given or plan.letters()["noise"] == "gaussian" else ""

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> NoisyFrankWolfePlan:
        """Fill in what is not given: Laplace noise on a polytope, else Gaussian; T by the theorem.

        TTZ15 has the numbers for smooth losses, BGM21 those for losses with kinks.
        """
        problem = setting.problem
        noise = given.get("noise") or _usual_noise(setting)
        if noise in ON_VERTICES and "polytope" not in problem.properties:
            raise UserError(
                f"noisy_frank_wolfe with noise={noise} selects a vertex, but {problem.constraint.name} has none: "
                "use constraint='l1_ball:1.0', or noise=gaussian."
            )
        smooth = problem.loss.smooth
        if problem.constraint.diameter(2.0, problem.d) == 0.0:
            raise UserError(
                "The set of noisy_frank_wolfe is a single point, so that nothing is to be chosen: enlarge it."
            )
        _check_smoothing(setting, given, noise)
        C = given.get("C", C_IN_PRACTICE[noise] if smooth and setting.variant == "practical" else 1.0)
        exact = float(given.get("T") or (_steps(setting, noise, C) if smooth else _steps_with_kinks(setting, C)))
        T = max(1, math.floor(exact))
        c = given.get("c", 1.0)
        sigma = _noise_scale(setting, noise, c, T)
        return NoisyFrankWolfePlan(
            **self.plan_head(setting),
            theorem=_theorem(smooth, noise),
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * problem.n,
            utility=_utility(setting),
            events=(_event(setting, noise, sigma, T),),
            conditions=_conditions(setting),
            T=T,
            c=c,
            C=C,
            noise=noise,
            step=given.get("step", "ttz15" if smooth else "bgm21"),
            beta=None if smooth else given.get("beta", _envelope_smoothness(problem, exact)),
        )

    def run(self, plan: NoisyFrankWolfePlan, ex: Execution) -> Array:
        """Execute TTZ15's Algorithm 2 from the centre, with T steps; comments give its line numbers."""
        if plan.beta is not None:
            ex.replace_loss(MoreauEnvelope(ex.loss, plan.beta))  # type: ignore[arg-type]  # others are refused there
        theta = ex.start()  # 1
        towards = _chooser(plan, ex)
        for t in range(1, plan.T + 1):  # 2
            nabla = ex.full_gradient(theta) + ex.regularizer_gradient(theta)
            mu = STEPS[plan.step] / (t + 2.0)
            theta = (1.0 - mu) * theta + mu * towards(nabla)  # 3, 4, 5
            ex.checkpoint(theta)
        return theta  # 6


def _chooser(plan: NoisyFrankWolfePlan, ex: Execution) -> Callable[[Array], Array]:
    """Return the choice of the point to step towards, a function of the gradient."""
    xp, C = ex.xp, ex.constraint
    if plan.noise in ON_VERTICES:
        selection = ex.selection(VERTEX)
        return lambda nabla: C.vertex(xp, selection.largest(-C.vertex_values(xp, nabla)), nabla)
    noise = ex.gaussian(GRADIENT).noise(plan.T)
    return lambda nabla: C.linear_minimizer(xp, nabla + next(noise))


def _conditions(setting: Setting) -> tuple[Condition, ...]:
    """Return that BGM21's theorem, for losses with kinks, bounds the risk of the loss alone."""
    if setting.problem.loss.smooth or setting.problem.regularizer.name == "none":
        return ()
    return (Condition("no regularizer", False, "the theorem bounds the risk of the loss alone"),)


def _usual_noise(setting: Setting) -> str:
    """Return the noise of the papers, Laplace for vertices; in practice a loss with kinks gets Gumbel noise there."""
    if "polytope" not in setting.problem.properties:
        return "gaussian"
    return "laplace" if setting.problem.loss.smooth or setting.variant != "practical" else "gumbel"


def _theorem(smooth: bool, noise: str) -> str:
    if not smooth:
        return "BGM21, Theorem 6"
    return "TTZ15, Algorithm 2" if noise in ON_VERTICES else "TTZ14 as in WYX17, Table 3"


def _check_smoothing(setting: Setting, given: Mapping[str, Any], noise: str) -> None:
    """Refuse a beta where there is nothing to smooth, and a loss with kinks that BGM21 has no numbers for."""
    problem = setting.problem
    if problem.loss.smooth:
        if "beta" in given:
            raise UserError(
                f"noisy_frank_wolfe was given beta, but takes the smooth loss {problem.loss.full_name!r} as it is: "
                "drop beta."
            )
        return
    if noise not in ON_VERTICES:
        raise UserError(
            f"noisy_frank_wolfe smooths the loss {problem.loss.full_name!r} for noise on the vertices of a polytope "
            "only: use constraint='l1_ball:1.0' and noise=laplace."
        )
    MoreauEnvelope(problem.loss, 1.0)  # type: ignore[arg-type]  # refuses a loss without closed form


def _reach(problem: ProblemSpec) -> float:
    """Return the largest value |<v, g>| of a vertex v for the gradient g of one record, by the better of two norms."""
    return min(_longest_vertex(problem, p) * problem.lipschitz_in(p) for p in (1.0, 2.0))


def _longest_vertex(problem: ProblemSpec, p: float) -> float:
    """Return the largest l_p norm of a vertex; those of the l1 ball and the simplex are multiples of unit vectors."""
    constraint = problem.constraint
    if isinstance(constraint, Polytope):
        return max(float(sum(abs(x) ** p for x in v) ** (1.0 / p)) for v in constraint.vertices)
    return constraint.radius


def _vertices(problem: ProblemSpec) -> int:
    """Return J, the number of vertices, at least 2."""
    constraint = problem.constraint
    if isinstance(constraint, Polytope):
        return max(2, len(constraint.vertices))
    return max(2, problem.d if isinstance(constraint, Simplex) else 2 * problem.d)


def _norm(problem: ProblemSpec) -> float:
    """Return the p in {1, 2} of the l_p norm in which L0 R D, the range of one record's loss, is smaller."""
    return min((1.0, 2.0), key=lambda p: problem.lipschitz_in(p) * problem.constraint.diameter(p, problem.d))


def _range(problem: ProblemSpec) -> float:
    """Return L0 R D: the Lipschitz constant of one record's loss times the diameter, in the better norm."""
    p = _norm(problem)
    return problem.lipschitz_in(p) * problem.constraint.diameter(p, problem.d)


def _envelope_smoothness(problem: ProblemSpec, T: float) -> float:
    """Return beta = L0 sqrt(T)/(R D), which balances beta R^2 D^2/T and L0^2/beta; Theorem 6's for its T."""
    p = _norm(problem)
    R = problem.row_norm_in(math.inf if p == 1.0 else 2.0)
    return problem.lipschitz_in(p) * math.sqrt(T) / (R**2 * problem.constraint.diameter(p, problem.d))


def _event(setting: Setting, noise: str, sigma: float, T: int) -> Event:
    """Return the event of T steps; replacing a record moves the value of a vertex by up to twice what it adds."""
    problem = setting.problem
    if noise in ON_VERTICES:
        return SelectionEvent(VERTEX, noise, sigma, 2.0 * _reach(problem) / problem.n, T)
    return GaussianEvent(GRADIENT, sigma, (setting.full_part,), T, attained=setting.spread_attained)


def _noise_scale(setting: Setting, noise: str, c: float, T: int) -> float:
    """Return TTZ15's Laplace scale G R sqrt(8 c T ln(1/delta)) / (n eps), or G sqrt(c T ln(1/delta)) / (n eps).

    TTZ15's scale goes with a sensitivity of G R / n; replacing a record moves a value by up to twice as much. With
    kinks it is Algorithm 5's 3 L0 R D sqrt(8 T ln(1/delta)) / (n eps).
    """
    problem = setting.problem
    if not setting.noisy:
        return 0.0
    # Without the Lipschitz constant G: a vertex has its own.
    scale = setting.noise(c, T) / problem.G
    if not problem.loss.smooth:
        return 3.0 * math.sqrt(8.0) * _range(problem) * scale
    return scale * (math.sqrt(8.0) * _reach(problem) if noise in ON_VERTICES else problem.G)


def _curvature(setting: Setting) -> float:
    """Return the bound L diameter^2 on the curvature constant of the objective over the set, in the better norm."""
    problem = setting.problem
    losses = min(problem.smoothness_in(p) * problem.constraint.diameter(p, problem.d) ** 2 for p in (1.0, 2.0))
    return losses + problem.regularizer.l2 * problem.constraint.l2_diameter**2


def _width(setting: Setting, noise: str) -> float:
    """Return what the error of a choice grows with: the values of vertices, else the Gaussian width times G."""
    problem = setting.problem
    return _reach(problem) if noise in ON_VERTICES else problem.G * problem.constraint.gaussian_width(problem.d)


def _steps(setting: Setting, noise: str, C: float) -> int:
    """Return T = C (curvature n eps / (G width))^(2/3); without the constant it must be at least 1."""
    if not setting.noisy:
        return STEPS_WITHOUT_NOISE
    problem = setting.problem
    gain = _curvature(setting) * setting.epsilon / _width(setting, noise)
    refuse_vacuous(setting, lambda n: gain * n >= 1.0, "noisy_frank_wolfe has no step", "the T of TTZ15 is below 1")
    return math.ceil(C * (gain * problem.n) ** (2.0 / 3.0))


def _steps_with_kinks(setting: Setting, C: float) -> float:
    """Return Algorithm 5's T = C n eps / (ln J ln n sqrt(ln(1/delta))); without the constant it must be at least 1."""
    if not setting.noisy:
        return float(STEPS_WITHOUT_NOISE)
    problem = setting.problem
    log = math.log(_vertices(problem)) * math.sqrt(math.log(1.0 / setting.delta))

    def steps(n: float) -> float:
        return n * setting.epsilon / (log * math.log(max(n, math.e)))

    why = "the T of BGM21 Algorithm 5 is below 1"
    refuse_vacuous(setting, lambda n: steps(n) >= 1.0, "noisy_frank_wolfe has no step", why)
    return C * steps(problem.n)


def _utility(setting: Setting) -> UtilityBound:
    """Return Table 3's bound with the factors that it takes for 1, the curvature and G; with kinks Theorem 6's."""
    problem = setting.problem
    if not problem.loss.smooth:
        root = math.log(1.0 / setting.delta) ** 0.25 * math.sqrt(math.log(_vertices(problem)) * math.log(problem.n))
        value = root / math.sqrt(problem.n * setting.epsilon) + math.sqrt(math.log(max(2, problem.d)) / problem.n)
        formula = "L0 R D (ln(1/delta)^(1/4) sqrt(ln(J) ln(n) / (n epsilon)) + sqrt(ln(d) / n))"
        return UtilityBound("BGM21, Theorem 6", "excess population risk", formula, _range(problem) * value)
    width = problem.constraint.gaussian_width(problem.d)
    signal = problem.n * setting.epsilon / (problem.G * width)
    value = _curvature(setting) ** (1.0 / 3.0) * math.log(problem.n) ** 2 / signal ** (2.0 / 3.0)
    formula = "curvature^(1/3) (G G_C)^(2/3) ln(n)^2 / (n epsilon)^(2/3)"
    return UtilityBound("TTZ15 as in WYX17, Table 3", "optimality gap", formula, value)


ALGORITHM = NoisyFrankWolfe()
