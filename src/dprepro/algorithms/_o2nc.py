"""Online-to-non-convex conversion (KLT25, Algorithm 2) and what its private single-pass oracles share.

The iterates move by steps of length at most D. The oracle estimates gradients of the smoothed loss f_alpha in periods
of Sigma calls: the first takes a gradient over B1 fresh samples, every later one adds a gradient difference over B2
fresh samples, and a binary tree makes all partial sums private. A window of M iterates stays in a ball of radius alpha,
so the mean of its gradients is an element of the Goldstein subdifferential of f_alpha there, and one of f of radius
2 alpha. The loss must be Lipschitz and need be neither smooth nor convex.

Privacy: each sample is in one leaf of one tree. See `_estimators.py` for how far it moves that leaf.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dprepro.algorithms._estimators import Bounds, Estimator, Scene
from dprepro.algorithms.base import (
    LARGEST_N,
    Algorithm,
    Condition,
    Letter,
    Plan,
    Setting,
    UtilityBound,
    refuse_vacuous,
)
from dprepro.errors import UserError
from dprepro.metrics import GOLDSTEIN
from dprepro.privacy.composition import tree_mu, tree_nodes
from dprepro.privacy.events import ConditionEvent, Event, GaussianEvent, TreeEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case, Transcript
    from dprepro.run import Execution

Array = Any

TREE = "tree of gradient and differences"
DIRECTIONS = "means over directions are close to their expectations"
# The theorem's constants if they are not given.
ALPHA, PHI = 0.1, 1.0
# In practice: how many windows a run has, and how long they may be.
WINDOWS, MOST_WINDOW = 24, 2**12
# Sensitivities below this part of L are too close to the rounding of single precision, 6e-8 of a number.
COARSE = 1e-4
# D may be so many times larger or smaller than alpha.
FURTHEST = 1e100
# Letters that are tried for the best bound.
POWERS = tuple(2**k for k in range(20))
# E |z_t - z_{t-1}|^2 over (2 D)^2 for two steps of length D in one direction and uniform s_t; it is never more.
MEAN_SQUARE = 7.0 / 24.0

Letters = Mapping[str, Any]
COMMON_LETTERS: Mapping[str, Letter] = {
    "alpha": Letter(float, "radius of the smoothing, 0.1 if not given; stationarity is of radius 2 alpha"),
    "D": Letter(float, "length of the longest step"),
    "M": Letter(int, "iterates of a window"),
    "T": Letter(int, "steps"),
    "Sigma": Letter(int, "steps of a period"),
    "m": Letter(int, "directions of an estimate"),
    "eta": Letter(float, "step size"),
    "Phi": Letter(float, "bound on F(0) - inf F, 1 if not given"),
}


SINGLE_PASS_LETTERS: Mapping[str, Letter] = {
    **COMMON_LETTERS,
    "B1": Letter(int, "samples of a period's first gradient"),
    "B2": Letter(int, "samples of a difference"),
}


@dataclass(frozen=True, kw_only=True)
class O2NCPlan(Plan):
    """T steps of length at most D in windows of M and periods of Sigma, with batches of B1 and B2 samples.

    `estimator` looks in m directions, in `gradient_m` for a gradient; L is the Lipschitz constant of a sample's loss,
    `ridge` says whether that is a function of <x, w>, and gamma is the share of a failure of the directions.
    """

    alpha: float
    D: float
    M: int
    T: int
    Sigma: int
    B1: int
    B2: int
    m: int
    gradient_m: int
    eta: float
    Phi: float
    estimator: str
    L: float
    ridge: bool
    gamma: float

    @property
    def windows(self) -> int:
        """How many windows there are; iterates behind the last are dropped."""
        return self.T // self.M

    @property
    def periods(self) -> int:
        """How many periods there are; the last may be cut short."""
        return _periods(self.T, self.Sigma)

    @property
    def scene(self) -> Scene:
        """What the bounds of the estimator depend on."""
        return Scene(self.L, self.d, self.ridge, self.alpha, 2.0 * self.D, self.m, self.gamma)


def _periods(T: int, Sigma: int) -> int:
    """Return how many periods of Sigma steps T steps begin."""
    return -(-T // Sigma)


class Oracle(Protocol):
    """A private stochastic gradient of the smoothed loss: the points z_t (K, d) of one step after the other."""

    def __call__(self, z: Array) -> Array:
        """Return the estimate (K, d) at z."""


def run_o2nc(plan: O2NCPlan, ex: Execution, oracle: Oracle) -> Array:
    """Execute Algorithm 2; comments give its line numbers."""
    _check_precision(plan, ex)
    xp, steps = ex.xp, _uniform_numbers(plan, ex)
    chosen = ex.uniform_index(plan.windows)  # 14
    x = output = ex.start()
    Delta, total = ex.zeros(), ex.zeros()  # 2
    for t in range(1, plan.T + 1):  # 3
        s = next(steps)  # 4
        z = x + s * Delta  # 6, with x_{t-1}
        x = x + Delta  # 5
        g = oracle(z)  # 7
        v = Delta - plan.eta * g
        length = xp.sqrt(xp.sum(v * v, axis=1, keepdims=True))
        Delta = xp.where(length > plan.D, plan.D / xp.where(length > 0.0, length, 1.0), 1.0) * v  # 8
        total = total + z
        if t % plan.M == 0:  # 11, 12
            x_bar, k = total / plan.M, t // plan.M - 1
            ex.candidate(x_bar, k, plan.windows)
            output = xp.where(chosen == k, x_bar, output)
            total = ex.zeros()
        ex.checkpoint(x + Delta)
    return output  # 15


def state_condition(plan: O2NCPlan, ex: Execution, estimator: Estimator) -> None:
    """State that the noise relies on the directions where the estimator's bounds do: the plan must pay for it."""
    if math.isfinite(plan.epsilon) and estimator.relies_on_directions(plan.scene):
        ex.condition(DIRECTIONS)


def _check_precision(plan: O2NCPlan, ex: Execution) -> None:
    """Refuse single precision where a record moves a release by little more than the rounding of estimates."""
    if not math.isfinite(plan.epsilon):
        return
    smallest = min(itertools.chain.from_iterable(_moves(event) for event in plan.events))
    if smallest < COARSE * plan.L:
        who = f"{plan.algorithm} with a sensitivity of {smallest:.1e} runs"
        ex.require_double(who, "rounding of its estimates would add to it")


def _moves(event: Event) -> Iterator[float]:
    """Yield how far a record moves each kind of release of an event; a tree of one leaf has the first kind alone."""
    if isinstance(event, TreeEvent):
        yield event.sensitivity if event.first is None else event.first
        if event.leaves > 1:
            yield event.sensitivity
    elif isinstance(event, GaussianEvent):
        yield from (part.sensitivity for part in event.parts)


def _uniform_numbers(plan: O2NCPlan, ex: Execution) -> Iterator[Array]:
    """Yield s_t, uniform in [0, 1], of every replicate as (K, 1)."""
    streams, like, block = ex.streams("places on the steps"), ex.zeros(), 256
    for first in range(0, plan.T, block):
        drawn = streams.uniforms(first, min(block, plan.T - first))
        for row in drawn:
            yield ex.xp.asarray(row[:, None], dtype=like.dtype, device=like.device)


class SinglePassOracle:
    """Algorithms 3 and 5: every sample is looked at in one call, and a tree makes the sums of a period private.

    Printed, the tree is asked for t mod Sigma, which is 0 at the end of a period, where TREE is not defined. Here the
    calls of a period are the leaves 1 to Sigma of its own tree.
    """

    def __init__(self, plan: O2NCPlan, ex: Execution, estimator: Estimator) -> None:
        self._plan, self._ex, self._estimator = plan, ex, estimator
        state_condition(plan, ex, estimator)
        self._tree = ex.tree(TREE)
        self._calls = 0
        self._z_before: Array = None

    def __call__(self, z: Array) -> Array:
        """Return the gradient estimate (K, d) at z; comments give line numbers of Algorithm 3."""
        if self._calls % self._plan.Sigma == 0:  # 2
            self._tree.start()
            leaf = self._estimator.gradient(z, self._ex.fresh(self._plan.B1))  # 3-8
        else:
            leaf = self._estimator.difference(z, self._z_before, self._ex.fresh(self._plan.B2))  # 10-16
        self._calls += 1
        self._z_before = z
        return self._tree.add(leaf)  # 16, 18


@dataclass(frozen=True)
class Shape:
    """The letters that say how long a run is, and on how many samples."""

    D: float
    M: int
    T: int
    Sigma: int
    B1: int
    B2: int

    @property
    def periods(self) -> int:
        """How many periods there are."""
        return _periods(self.T, self.Sigma)

    @property
    def samples(self) -> int:
        """How many samples a single pass takes."""
        return self.periods * self.B1 + (self.T - self.periods) * self.B2


class O2NC(Algorithm):
    """What single and many passes share: what they need of a problem, fields of their plans, and the best bound."""

    paper = "KLT25"
    needs = frozenset({"lipschitz", "unconstrained"})
    takes_regularizer = False
    looks_at_samples = True

    @abstractmethod
    def shapes_to_try(self, setting: Setting, given: Letters) -> Iterator[Shape]:
        """Yield the shapes that the best bound is searched among."""

    @abstractmethod
    def oracle_error(self, setting: Setting, given: Letters, shape: Shape) -> float:
        """Return G0 for letters that are tried."""

    @abstractmethod
    def directions(self, setting: Setting, given: Letters, kind: type[Estimator], shape: Shape) -> int:
        """Return how many directions an estimate has if m is not given."""

    @abstractmethod
    def steps_of_a_record(self, shape: Shape) -> int:
        """Return in how many steps a record is looked at."""

    def best_bound(self, setting: Setting, given: Letters, n: float) -> float:
        """Return the least `stationarity_bound` over L that n samples have with letters that are powers of two.

        D = alpha/M, and in a single pass B1 = Sigma B2; other letters may have a smaller one, by a tenth or so. The
        bound says nothing where it is 1 or more: every gradient is at most L long. That of many passes is on the
        empirical loss. Where samples share directions it leaves out their error, see `total_error`.
        """
        at_n = replace(setting, problem=replace(setting.problem, n=int(n)))
        Phi, L, least = given.get("Phi", PHI), setting.problem.G, math.inf
        for shape in self.shapes_to_try(at_n, given):
            # Most letters are too bad even without an error, which takes most of the time.
            if stationarity_bound(Phi, L, shape, 0.0) < least:
                error = self.oracle_error(at_n, given, shape)
                least = min(least, stationarity_bound(Phi, L, shape, error))
        return least / L

    def scene(self, setting: Setting, given: Letters, kind: type[Estimator], shape: Shape) -> Scene:
        """Return what the bounds of the estimator depend on."""
        problem, m = setting.problem, given.get("m") or self.directions(setting, given, kind, shape)
        # Half of delta for the directions; two means for each of the two records that differ, in each of their steps.
        gamma = setting.delta / (8.0 * self.steps_of_a_record(shape))
        return Scene(problem.G, problem.d, problem.loss.glm, alpha_of(given), 2.0 * shape.D, m, gamma)

    def plan_fields(
        self, setting: Setting, given: Letters, kind: type[Estimator], scene: Scene, shape: Shape, gradient_m: int
    ) -> dict[str, Any]:
        """Return the fields of a plan that follow from its letters and its estimator."""
        check_directions(self.name, kind, scene)
        calls = _evaluations(kind, scene.m, gradient_m, shape)
        return {
            **self.plan_head(setting),
            **{letter: getattr(shape, letter) for letter in ("D", "M", "T", "Sigma", "B1", "B2")},
            **{name: getattr(scene, name) for name in ("alpha", "m", "L", "ridge", "gamma")},
            "rounds": shape.T,
            "gradient_evaluations": calls if kind.asks_for == "gradients" else 0,
            "function_evaluations": calls if kind.asks_for == "values" else 0,
            "gradient_m": gradient_m,
            "Phi": given.get("Phi", PHI),
            "estimator": kind.name,
        }


class SinglePass(O2NC):
    """What the single-pass algorithms share: the plan, and the run with a tree."""

    plan_type = O2NCPlan
    # The estimators to choose from, that of the paper and the one of the other variants.
    estimators: ClassVar[Mapping[str, type[Estimator]]]
    printed_estimator: ClassVar[str]
    usual_estimator: ClassVar[str]
    theorem: ClassVar[str]
    # Powers of d in the theorem's rate: of the term without epsilon, and of that with it.
    powers: ClassVar[tuple[float, float]] = (0.5, 1.0)
    # The power of d in the period's first term, where noise of the first leaf and samples of the differences balance.
    period_power: ClassVar[float] = 0.0

    def compute_plan(self, setting: Setting, given: Letters) -> O2NCPlan:
        """Fill in what is not given by the theorem; in practice M and Sigma with the smallest error of the oracle."""
        refuse_regularizer(self.name, setting)
        kind = self._kind(setting, given)
        shape = self._shape(setting, given)
        scene = self.scene(setting, given, kind, shape)
        certain, sensitivities = not kind.relies_on_directions(scene), _sensitivities(kind.bounds(scene), shape)
        sigma = _tree_noise(self.name, setting, certain, shape.Sigma, sensitivities)
        error = self._error(setting, kind, scene, shape)
        attained = gradient_is_attained(setting, kind, scene, 0.0)
        return O2NCPlan(
            **self.plan_fields(setting, given, kind, scene, shape, self._gradient_m(kind, scene.m)),
            theorem=f"{self.theorem}, and Proposition 2.6",
            sigma=sigma,
            utility=self._utility(setting, given),
            events=_events(setting, attained, certain, shape, sensitivities, sigma),
            conditions=conditions(setting, given, shape, error, noise_constant=True, shared=shares_directions(kind)),
            eta=given.get("eta") or step_size(scene.L, error, shape),
        )

    def run(self, plan: O2NCPlan, ex: Execution) -> Array:
        """Execute Algorithm 2 with the single-pass oracle."""
        estimator = self.estimators[plan.estimator](ex, plan.scene, plan.gradient_m)
        return run_o2nc(plan, ex, SinglePassOracle(plan, ex, estimator))

    def audit_case(self) -> Case:
        """Return a linear loss whose first record is in the first leaf; the attacker sees every partial sum.

        As published the estimator is the printed one, with so many directions as are printed for single samples.
        """
        case = tree_case(20, 2, {"B1": 4, "B2": 4, "estimator": self.usual_estimator})
        printed = {"B1": 1, "B2": 1, "estimator": self.printed_estimator}
        return replace(case, published={**case.letters, **printed})

    @abstractmethod
    def printed_m(self, setting: Setting, alpha: float, shape: Shape) -> float:
        """Return the number of directions that the paper asks for."""

    def shapes_to_try(self, setting: Setting, given: Letters) -> Iterator[Shape]:
        """Yield all M, Sigma and B2 that are powers of two, with B1 = Sigma B2 and as many steps as samples allow."""
        for M, Sigma, B2 in itertools.product(POWERS, POWERS, POWERS):
            T = _fitting_steps(setting.problem.n, Sigma, Sigma * B2, B2)
            if max(M, Sigma) <= T and (Sigma > 1 or setting.variant != "published"):
                yield Shape(alpha_of(given) / M, M, T, Sigma, Sigma * B2, B2)

    def oracle_error(self, setting: Setting, given: Letters, shape: Shape) -> float:
        """Return G0 for letters that are tried."""
        kind = self._kind(setting, given)
        return self._error(setting, kind, self.scene(setting, given, kind, shape), shape)

    def directions(self, setting: Setting, given: Letters, kind: type[Estimator], shape: Shape) -> int:
        """Return the usual number, or that of the paper where a long mean decides the bound."""
        if kind.certain:
            return kind.usual_m(setting.problem.d)
        return math.ceil(self.printed_m(setting, alpha_of(given), shape))

    def steps_of_a_record(self, shape: Shape) -> int:
        """Return 1: each sample is looked at in one call."""
        return 1

    def _kind(self, setting: Setting, given: Letters) -> type[Estimator]:
        usual = self.printed_estimator if setting.variant == "published" else self.usual_estimator
        return self.estimators[given.get("estimator", usual)]

    def _gradient_m(self, kind: type[Estimator], m: int) -> int:
        """Return the directions of a gradient: Algorithm 5 has one point for each sample."""
        return 1 if kind.asks_for == "gradients" else m

    def _shape(self, setting: Setting, given: Letters) -> Shape:
        if setting.variant == "practical":
            return self._practical_shape(setting, given)
        if {"T", "D"} & set(given):
            D, M, _ = self._real(setting, given, setting.problem.n)
            check_window(self.name, alpha_of(given), D, M)
        if not decided(given):
            refuse_vacuous(
                setting,
                lambda n: self._rate(setting, given, n) < setting.problem.G and self._has_window(setting, given, n),
                f"{self.name} has no window with a guarantee",
                f"the bound of {self.theorem} is not below L, or M = alpha/(4 D) and T/M are not both at least 1",
                "T and M",
            )
        return self._theorem_shape(setting, given)

    def _has_window(self, setting: Setting, given: Letters, n: float) -> bool:
        _, M, T = self._real(setting, given, n)
        return M >= 1.0 - 1e-9 and int(T) >= int(M + 1e-9)

    def _real(self, setting: Setting, given: Letters, n: float) -> tuple[float, float, float]:
        """Return D, M and T for n samples as real numbers."""
        T = given.get("T") or n / 2.0
        D = given.get("D") or self._printed_D(setting, given, T)
        return D, window_length(given, D), T

    def _printed_D(self, setting: Setting, given: Letters, T: float) -> float:
        """Return the smallest of the theorem's four terms, with its constants as 1 and without logarithms."""
        problem, epsilon = setting.problem, setting.epsilon
        Phi, alpha, L = given.get("Phi", PHI), alpha_of(given), problem.G
        a, b = (problem.d**power for power in self.powers)
        return min(
            (Phi**2 * alpha / (L**2 * T**2)) ** (1 / 3),
            (Phi * alpha * epsilon / (b * L * T)) ** (1 / 2),
            (Phi**3 * alpha**2 * epsilon / (a * b * L**3 * T**3)) ** (1 / 5),
            (Phi**2 * alpha / (L**2 * T**2 * a)) ** (1 / 3),
        )

    def _printed_Sigma(self, setting: Setting, alpha: float, D: float) -> float:
        """Return (alpha/(epsilon D))^(2/3) + alpha/(D sqrt(d)), the first with its power of d."""
        d = setting.problem.d
        private = alpha * d**self.period_power / (setting.epsilon * D)
        return float(private ** (2 / 3) + alpha / (D * math.sqrt(d)))

    def _theorem_shape(self, setting: Setting, given: Letters) -> Shape:
        """Return the theorem's letters as whole numbers: Sigma rounded, M rounded down, T as the samples allow."""
        n, alpha = setting.problem.n, alpha_of(given)
        D, M, T = self._real(setting, given, n)
        Sigma = given.get("Sigma") or max(1, round(self._printed_Sigma(setting, alpha, D)))
        Sigma = min(Sigma, int(T))
        # The theorem has T = n/2 and single samples; steps that are given share all samples there are.
        sharing = _shared_batch(n, given["T"], Sigma) if "T" in given and not {"B1", "B2"} & set(given) else 1
        B2 = given.get("B2", max(1, sharing))
        B1 = given.get("B1", Sigma * B2 if sharing > 1 else Sigma)
        fitting = _fitting_steps(n, Sigma, B1, B2)
        steps = given.get("T", fitting)
        # A tree of more leaves than there are steps would be noised for leaves that never come.
        shape = Shape(D, int(M + 1e-9), steps, max(1, min(Sigma, steps)), B1, B2)
        return _checked(self.name, setting, shape)

    def _practical_shape(self, setting: Setting, given: Letters) -> Shape:
        """Return the M and Sigma, powers of two if not given, with the least G1/sqrt(M) + G0."""
        found = [
            (planned_error(setting.problem.G, self.oracle_error(setting, given, shape), shape), shape)
            for shape in _practical_shapes(setting, given)
        ]
        if not found:
            refuse_vacuous(
                setting,
                lambda n: any(_practical_shapes(replace(setting, problem=replace(setting.problem, n=int(n))), given)),
                f"{self.name} has no sample for every step",
                "a run takes more samples than there are",
                "T, M and Sigma",
            )
        return _checked(self.name, setting, min(found, key=lambda pair: pair[0])[1])

    def _error(self, setting: Setting, kind: type[Estimator], scene: Scene, shape: Shape) -> float:
        """Return G0, of the noise of a tree and of samples."""
        bounds, certain = kind.bounds(scene), not kind.relies_on_directions(scene)
        sigma = _tree_noise(self.name, setting, certain, shape.Sigma, _sensitivities(bounds, shape))
        noise = setting.problem.d * sigma**2 * mean_nodes(shape.Sigma)
        return total_error(noise, bounds, shape)

    def _rate(self, setting: Setting, given: Letters, n: float) -> float:
        """Return the beta that n samples reach by the theorem, its hidden constant as 1."""
        problem, alpha, Phi = setting.problem, alpha_of(given), given.get("Phi", PHI)
        a, b = (problem.d**power for power in self.powers)
        private = math.sqrt(Phi * problem.G * b / (n * alpha * setting.epsilon))
        return float((Phi * problem.G**2 * a / (n * alpha)) ** (1 / 3) + private)

    def _utility(self, setting: Setting, given: Letters) -> UtilityBound:
        formula = "(Phi L^2 d^{:g} / (n alpha))^(1/3) + (Phi L d^{:g} / (n alpha epsilon))^(1/2)".format(*self.powers)
        return UtilityBound(self.theorem, GOLDSTEIN, formula, self._rate(setting, given, setting.problem.n))


def check_directions(name: str, kind: type[Estimator], scene: Scene) -> None:
    """Refuse a number of directions that the estimator cannot have."""
    if not kind.whole(scene):
        raise UserError(
            f"m of {name} is {scene.m} with estimator={kind.name}: give a multiple of d = {scene.d}, for whole frames."
        )


def alpha_of(given: Letters) -> float:
    """Return the radius of the smoothing."""
    return float(given.get("alpha", ALPHA))


def refuse_regularizer(name: str, setting: Setting) -> None:
    """Refuse a regulariser: the estimators look at the loss alone."""
    if setting.problem.regularizer.name != "none":
        raise UserError(f"{name} looks at the loss alone: use regularizer 0, or an algorithm that takes one.")


def decided(given: Letters) -> bool:
    """Whether steps and windows are given, so that no theorem has to have an answer."""
    return "T" in given and bool({"M", "D"} & set(given))


def window_length(given: Letters, D: float) -> float:
    """Return M as given, else alpha/(4 D); refuse a D so far from alpha that squares of their ratio overflow."""
    alpha = alpha_of(given)
    if not (alpha <= FURTHEST * D and FURTHEST * alpha >= D):
        raise UserError(
            f"Steps of D = {D:g} are too far from alpha = {alpha:g} to compute with: give D and M, or an alpha and a "
            "Phi that are nearer to 1."
        )
    return float(given.get("M") or alpha / (4.0 * D))


def check_window(name: str, alpha: float, D: float, M: float) -> None:
    """Refuse steps so long that no window of theirs stays within alpha, whatever n is."""
    if M < 1.0 - 1e-9:
        raise UserError(
            f"{name} with D = {D:.3g} leaves no window within alpha = {alpha:g}: give D <= alpha/4 = {alpha / 4:.3g}, "
            "or M."
        )


def _fitting_steps(n: int, Sigma: int, B1: int, B2: int) -> int:
    """Return how many steps n samples last for."""
    period = B1 + (Sigma - 1) * B2
    periods, rest = divmod(n, period)
    return periods * Sigma + (1 + (rest - B1) // B2 if rest >= B1 else 0)


def _shared_batch(n: int, T: int, Sigma: int) -> int:
    """Return the samples of a difference if T steps share n samples and a gradient has Sigma times as many."""
    periods = _periods(T, Sigma)
    return n // (periods * Sigma + T - periods)


def _checked(name: str, setting: Setting, shape: Shape) -> Shape:
    """Return the shape or refuse what the samples or the windows do not allow."""
    if shape.samples > setting.problem.n:
        raise UserError(
            f"{name} with T = {shape.T}, Sigma = {shape.Sigma}, B1 = {shape.B1} and B2 = {shape.B2} takes "
            f"{shape.samples} samples, but there are {setting.problem.n}: give a smaller T, B1 or B2."
        )
    if shape.T < shape.M:
        raise UserError(f"{name} with T = {shape.T} has no window of M = {shape.M} iterates: give T >= M.")
    return shape


def _practical_shapes(setting: Setting, given: Letters) -> Iterator[Shape]:
    """Yield the shapes to choose from, with D = alpha/M, T = 24 M, B1 = Sigma B2 and as many samples as there are."""
    n, alpha = setting.problem.n, alpha_of(given)
    for M, D in windows_to_try(given, alpha):
        T = given.get("T", WINDOWS * M)
        for Sigma in periods_to_try(given, T):
            periods = _periods(T, Sigma)
            if "B1" in given:
                B1, later = given["B1"], T - periods
                # Where every step is a gradient no batch of differences is taken.
                B2 = given.get("B2") or ((n - periods * B1) // later if later else 1)
            else:
                B2 = given.get("B2") or _shared_batch(n, T, Sigma)
                B1 = Sigma * B2
            shape = Shape(D, M, T, Sigma, B1, B2)
            if B2 >= 1 and shape.samples <= n:
                yield shape


def windows_to_try(given: Letters, alpha: float) -> Iterator[tuple[int, float]]:
    """Yield M and D: as given, else powers of two and D = alpha/M."""
    if "M" in given or "D" in given:
        M = given.get("M") or max(1, int(4.0 * window_length(given, given["D"]) + 1e-9))
        yield M, given.get("D", alpha / M)
        return
    M, longest = 1, min(MOST_WINDOW, given.get("T", MOST_WINDOW))
    while longest >= M:
        yield M, alpha / M
        M *= 2


def periods_to_try(given: Letters, T: int) -> Iterator[int]:
    """Yield Sigma: as given, else powers of two up to T."""
    if "Sigma" in given:
        yield min(given["Sigma"], T)
        return
    Sigma = 1
    while Sigma <= T:
        yield Sigma
        Sigma *= 2


def _sensitivities(bounds: Bounds, shape: Shape) -> tuple[float, float]:
    """Return how far a replaced record moves the first leaf of a tree and any other: twice what it adds."""
    return 2.0 * bounds.gradient / shape.B1, 2.0 * bounds.difference / shape.B2


def gradient_is_attained(setting: Setting, kind: type[Estimator], scene: Scene, moved: float) -> bool:
    """Whether some sample is known to add all of the bound to a gradient, at every point within `moved` of one.

    Its loss must be linear with the slope L wherever the estimator looks, in the ball of radius alpha around a point.
    """
    problem = setting.problem
    seen = problem.row_norm * (scene.alpha + moved)
    return kind.gradient_is_attained(scene) and problem.loss.linear_radius >= seen


def left_delta(setting: Setting, certain: bool) -> Setting:
    """Return the setting with the delta that is left for the noise: half of it goes to an uncertain sensitivity."""
    return setting if certain else replace(setting, delta=setting.delta / 2.0)


def _tree_noise(name: str, setting: Setting, certain: bool, Sigma: int, sensitivities: tuple[float, float]) -> float:
    """Return 4 s sqrt(ln(Sigma) ln(1/delta))/epsilon of Proposition 2.5; in the other variants the smallest noise."""
    if not setting.noisy:
        return 0.0
    first, later = sensitivities
    if setting.variant != "published":
        return tree_mu(later, 1.0, Sigma, first) / left_delta(setting, certain).mu
    if Sigma == 1:
        raise UserError(
            f"{name} as published has no noise with Sigma = 1, as it is in proportion to sqrt(ln Sigma): "
            "give Sigma >= 2, or variant certified."
        )
    return 4.0 * max(first, later) * math.sqrt(math.log(Sigma) * math.log(1.0 / setting.delta)) / setting.epsilon


def _events(
    setting: Setting,
    gradient_is_attained: bool,
    certain: bool,
    shape: Shape,
    sensitivities: tuple[float, float],
    sigma: float,
) -> tuple[Event, ...]:
    first, later = sensitivities
    nodes = tree_nodes(shape.Sigma)
    # No difference is at the largest distance with certainty.
    attained = gradient_is_attained and math.sqrt(nodes) * first >= math.sqrt(nodes - 1) * later
    tree = TreeEvent(TREE, sigma, later, shape.Sigma, shape.periods, first, disjoint=True, attained=attained)
    if certain or not setting.noisy:
        return (tree,)
    return (tree, ConditionEvent(DIRECTIONS, setting.delta / 2.0))


def mean_nodes(Sigma: int) -> float:
    """Return the mean of |NODE(t)|, the number of ones of t, over t = 1, ..., Sigma."""
    ones = 0
    for level in range(Sigma.bit_length()):
        whole, rest = divmod(Sigma + 1, 2 << level)
        ones += whole * (1 << level) + max(0, rest - (1 << level))
    return ones / Sigma


def total_error(noise: float, bounds: Bounds, shape: Shape) -> float:
    """Return G0, the root mean square error of the oracle over a period: of noise, given by its square, and of samples.

    What samples add is an upper bound where every sample has directions of its own: the mean over B samples has then at
    most 1/B of the largest square of what one adds. Mostly that is far above the mean square, d^2 L^2 against about
    2 L^2 for d independent directions. Two errors are left out, so that G0 is an estimate and no bound: that of
    directions which samples share (on |w_1 - s| up to 0.22 L for a frame, whatever B is, none where the mean of the
    losses is linear; there up to L sqrt((d-1)/(32 m)) for the groups of `common`), and the bias of `clipped`.
    """
    later = MEAN_SQUARE * bounds.difference**2 * (shape.Sigma - 1) / 2.0
    return math.sqrt(noise + bounds.gradient**2 / shape.B1 + later / shape.B2)


def _evaluations(kind: type[Estimator], m: int, gradient_m: int, shape: Shape) -> int:
    """Return the evaluations of a run: of a sample's loss two for each direction and point, of gradients one."""
    each = 2 if kind.asks_for == "values" else 1
    first = shape.periods * shape.B1 * gradient_m
    return each * (first + 2 * m * (shape.T - shape.periods) * shape.B2)


def step_size(L: float, error: float, shape: Shape) -> float:
    """Return eta = D/(G1 sqrt(M)) of Proposition 2.6, with G1^2 = L^2 + G0^2."""
    return shape.D / (math.hypot(L, error) * math.sqrt(shape.M))


def planned_error(L: float, error: float, shape: Shape) -> float:
    """Return G1/sqrt(M) + G0, what practical letters are chosen by: the bound without its constants and Phi/(D T)."""
    return math.hypot(L, error) / math.sqrt(shape.M) + error


def shares_directions(kind: type[Estimator]) -> bool:
    """Whether samples share directions, whose error G0 leaves out."""
    return bool(getattr(kind, "shared", False))


def informative_from(bound: Callable[[float], float]) -> float:
    """Return the n, to one part in a hundred, from which a falling bound is below 1."""
    low = high = 1.0
    while bound(high) >= 1.0:
        low, high = high, 4.0 * high
        if high > LARGEST_N:
            return math.inf
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if bound(middle) < 1.0 else (middle, high)
    return high


def stationarity_bound(Phi: float, L: float, shape: Shape, error: float) -> float:
    """Return 2 Phi/(D T) + 5 G1/(2 sqrt(M)) + 2 G0: Proposition 2.6 with constants that hold.

    T counts the steps of whole windows, over which equation (18) averages; those behind the last are dropped.
    """
    in_windows = shape.T // shape.M * shape.M
    return 2.0 * Phi / (shape.D * in_windows) + 2.5 * math.hypot(L, error) / math.sqrt(shape.M) + 2.0 * error


def conditions(
    setting: Setting, given: Letters, shape: Shape, error: float, *, noise_constant: bool, shared: bool
) -> tuple[Condition, ...]:
    """Return the conditions of the theorems, and whether their bound says anything.

    With `shared` directions G0 is without their error, and the condition says so.

    The regret of a window is proved with 3/2 from Delta = 0, but only the first window starts there: 5/2 holds for all.
    The error G0 meets a comparator at distance up to 2 D, not D.
    """
    alpha, Phi, L = alpha_of(given), given.get("Phi", PHI), setting.problem.G
    bound, reach = stationarity_bound(Phi, L, shape, error) / L, shape.M * shape.D / alpha
    without = ", without the error of directions that samples share in G0" if shared else ""
    found: tuple[Condition, ...] = (
        Condition("M D <= alpha", reach <= 1 + 1e-9, f"M D / alpha = {reach:.3g}"),
        Condition("alpha <= Phi / L", alpha * L <= Phi * (1 + 1e-9), f"alpha L / Phi = {alpha * L / Phi:.3g}"),
        Condition(
            f"the bound 2 Phi/(D T) + 5 G1/(2 sqrt(M)) + 2 G0 is below L, which every gradient is{without}",
            bound < 1.0,
            f"bound / L = {bound:.3g}",
        ),
    )
    if noise_constant and setting.variant == "published" and setting.noisy:
        text = "epsilon <= 1, for which noise of this form is proved"
        found += (
            Condition(text, setting.epsilon <= 1.0, f"epsilon = {setting.epsilon:g}", privacy=True),
            Condition(
                "every estimate of a period has noise of its tree",
                True,
                "at the end of a period the printed index t mod Sigma is 0, for which TREE is not defined; run with "
                "leaves 1 to Sigma",
                privacy=True,
            ),
        )
    return found


def tree_case(n: int, d: int, letters: Letters) -> Case:
    """Return a linear loss whose first record is in the first leaf of the first tree, the one in most nodes.

    Steps are so short that none is cut off: the points give away every partial sum. Those of 1, 2 and 4 leaves are
    single nodes of a tree of 4, all of which hold the first leaf. The score is their sum along the record, which
    orders outcomes as their likelihood ratio does.
    """
    from dprepro.privacy.cases import linear_case

    shape = {"alpha": 1000.0, "D": 200.0, "M": 1, "T": 5, "Sigma": 4, "eta": 1e-4}
    case = linear_case(n, {**shape, **letters})
    (X, up), (_, down) = case.rows, case.neighbour
    spec = replace(case.spec, d=d)
    rows, neighbour = (X[:, :d], up), (X[:, :d], down)
    return replace(
        case, name="linear loss, sums of a tree", spec=spec, rows=rows, neighbour=neighbour, score=_nodes_sum
    )


def released_sums(seen: Transcript) -> Array:
    """Return the estimates (T, K, d) that the points of a run from 0 give away where no step was cut off."""
    import numpy as np

    points = np.concatenate([np.zeros_like(seen.points[:1]), np.zeros_like(seen.points[:1]), seen.points])
    steps = np.diff(points, axis=0)
    return -np.diff(steps, axis=0) / seen.eta


def _nodes_sum(seen: Transcript, case: Case, plan: Any) -> Any:
    """Return minus the sum of the nodes over the first leaf, along the record: (K,)."""
    sums = released_sums(seen)
    ends = [1 << level for level in range(tree_nodes(plan.Sigma))]
    # The gradient of the Huber loss is against its label.
    return -sum(sums[end - 1, :, 0] for end in ends)
