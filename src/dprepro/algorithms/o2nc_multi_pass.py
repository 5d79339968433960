"""Multi-pass algorithm for nonsmooth nonconvex empirical losses (KLT25, Algorithms 2 and 4, Theorem 4.1; Section 6).

Every step looks at all n samples: the first of a period of Sigma steps at smoothed gradients, the later ones at their
differences, each with Gaussian noise of its own. The oracle is of values (Algorithm 4) or of gradients, as Section 6
says it may be.

Privacy: all steps compose. As published the directions must be good in all T steps, for which delta/2 is set aside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dprepro.algorithms._estimators import FIRST_ORDER, ZERO_ORDER, Estimator, Scene, distance
from dprepro.algorithms._o2nc import (
    COMMON_LETTERS,
    DIRECTIONS,
    MEAN_SQUARE,
    O2NC,
    PHI,
    POWERS,
    WINDOWS,
    O2NCPlan,
    Shape,
    alpha_of,
    check_window,
    conditions,
    decided,
    gradient_is_attained,
    left_delta,
    periods_to_try,
    planned_error,
    refuse_regularizer,
    released_sums,
    run_o2nc,
    shares_directions,
    state_condition,
    step_size,
    total_error,
    window_length,
    windows_to_try,
)
from dprepro.algorithms.base import Letter, Setting, UtilityBound, refuse_vacuous
from dprepro.errors import UserError
from dprepro.metrics import GOLDSTEIN
from dprepro.privacy.events import ConditionEvent, Event, GaussianEvent, QueryPart

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case, Transcript
    from dprepro.run import Execution

Array = Any
Letters = Mapping[str, Any]

GRADIENT = "gradient of a period"
DIFFERENCE = "gradient difference"
ORACLES: Mapping[str, Mapping[str, type[Estimator]]] = {"zero_order": ZERO_ORDER, "first_order": FIRST_ORDER}
# Of each oracle the estimator as printed, and that of the other variants.
USUAL = {"zero_order": ("independent", "frame"), "first_order": ("independent", "difference_set")}
NOISE = ("bound", "distance")
# Without noise no beta follows from n: the part of L that the run is planned for.
BETA_WITHOUT_NOISE = 0.1
# In practice M is at most this: a step looks at all samples, and with the best Sigma longer windows have as much noise.
LONGEST_WINDOW = 2**5
# Steps of the longest run that is tried for the best bound.
LONGEST_RUN = 2**30


@dataclass(frozen=True, kw_only=True)
class MultiPassPlan(O2NCPlan):
    """As `O2NCPlan`, with B1 = B2 = n. `sigma` is the noise of a gradient, `sigma2` that of a difference.

    `noise` says whether that is for the largest distance of two iterates (`bound`), or in proportion to how far they
    are apart (`distance`), which follows from earlier releases.
    """

    oracle: str
    noise: str
    beta: float
    c: float

    @property
    def sigma2(self) -> float:
        """The noise of a difference of points at distance 2 D; 0 if there are no differences."""
        return next((e.sigma for e in self.events if isinstance(e, GaussianEvent) and e.label == DIFFERENCE), 0.0)


class O2NCMultiPass(O2NC):
    """Online-to-non-convex conversion with smoothed gradients of all samples in every step."""

    name = "o2nc_multi_pass"
    title = "Multi-pass O2NC"
    plan_type = MultiPassPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        **COMMON_LETTERS,
        "beta": Letter(float, "stationarity that the theorem's D and T are computed from"),
        "oracle": Letter(str, "what is asked of a sample", choices=tuple(ORACLES)),
        "estimator": Letter(str, "how directions are chosen", choices=(*ZERO_ORDER, "difference_set")),
        "noise": Letter(str, "whether a difference has noise for 2 D or for its distance", choices=NOISE),
        "c": Letter(float, "the open constant of the published noise: variance proportional to c", constant="set here"),
    }

    def audit_case(self) -> Case:
        """Return a record that moves a gradient and a difference as far as they can be; the attacker sees both."""
        return _two_kinks()

    def compute_plan(self, setting: Setting, given: Letters) -> MultiPassPlan:
        """Fill in what is not given by Theorem 4.1; in practice M and Sigma with the smallest error of the oracle."""
        refuse_regularizer(self.name, setting)
        oracle, kind, noise = _choices(setting, given)
        shape = self._shape(setting, given)
        if shape.T < shape.M:
            raise UserError(f"{self.name} with T = {shape.T} has no window of M = {shape.M} iterates: give T >= M.")
        scene = self.scene(setting, given, kind, shape)
        sigmas = _noise(setting, given, kind, scene, noise, shape)
        noise_error = _noise_error(shape, setting.problem.d, sigmas, noise)
        error = total_error(noise_error**2, kind.bounds(scene), shape)
        return MultiPassPlan(
            **self.plan_fields(setting, given, kind, scene, shape, scene.m),
            theorem="KLT25, Theorem 4.1, and Proposition 2.6",
            sigma=sigmas[0],
            utility=_utility(setting, given),
            events=_events(setting, kind, scene, shape, sigmas),
            conditions=conditions(setting, given, shape, error, noise_constant=False, shared=shares_directions(kind)),
            eta=given.get("eta") or step_size(scene.L, noise_error, shape),
            oracle=oracle,
            noise=noise,
            beta=_beta(setting, given, setting.problem.n),
            c=given.get("c", 1.0),
        )

    def shapes_to_try(self, setting: Setting, given: Letters) -> Iterator[Shape]:
        """Yield all M, T/M and Sigma that are powers of two."""
        n = setting.problem.n
        for M, windows, Sigma in itertools.product(POWERS, POWERS, POWERS):
            if Sigma <= M * windows <= LONGEST_RUN:
                yield Shape(alpha_of(given) / M, M, M * windows, Sigma, n, n)

    def noise_error(self, setting: Setting, given: Letters, shape: Shape) -> float:
        """Return the error of the noise for letters that are tried, by which they are chosen."""
        _, kind, noise = _choices(setting, given)
        sigmas = _noise(setting, given, kind, self.scene(setting, given, kind, shape), noise, shape)
        return _noise_error(shape, setting.problem.d, sigmas, noise)

    def oracle_error(self, setting: Setting, given: Letters, shape: Shape) -> float:
        """Return G0 on the empirical loss: the error of the noise, and of the samples' own directions."""
        _, kind, _ = _choices(setting, given)
        bounds = kind.bounds(self.scene(setting, given, kind, shape))
        return total_error(self.noise_error(setting, given, shape) ** 2, bounds, shape)

    def directions(self, setting: Setting, given: Letters, kind: type[Estimator], shape: Shape) -> int:
        """Return the usual number, or that of the paper where a long mean decides the bound and there is noise."""
        if kind.certain or not setting.noisy:
            return kind.usual_m(setting.problem.d)
        return _printed_m(setting, kind, alpha_of(given), shape)

    def steps_of_a_record(self, shape: Shape) -> int:
        """Return T: every step looks at all samples."""
        return shape.T

    def _shape(self, setting: Setting, given: Letters) -> Shape:
        if setting.variant != "practical":
            return _theorem_shape(setting, given)

        def judged(shape: Shape) -> float:
            return planned_error(setting.problem.G, self.noise_error(setting, given, shape), shape)

        return min(_practical_shapes(setting, given), key=judged)

    def run(self, plan: MultiPassPlan, ex: Execution) -> Array:
        """Execute Algorithm 2 with the multi-pass oracle."""
        estimator = ORACLES[plan.oracle][plan.estimator](ex, plan.scene, plan.gradient_m)
        return run_o2nc(plan, ex, MultiPassOracle(plan, ex, estimator))


class MultiPassOracle:
    """Algorithm 4; unlike in a single pass, differences are added to the noisy estimate before them."""

    def __init__(self, plan: MultiPassPlan, ex: Execution, estimator: Estimator) -> None:
        self._plan, self._ex, self._estimator = plan, ex, estimator
        state_condition(plan, ex, estimator)
        self._batch = ex.whole()
        self._gradient_noise = ex.gaussian(GRADIENT).noise(plan.periods)
        later = plan.T - plan.periods
        self._difference_noise = ex.gaussian(DIFFERENCE).noise(later) if later else iter(())
        self._calls = 0
        self._z_before: Array = None
        self._g: Array = None

    def __call__(self, z: Array) -> Array:
        """Return the gradient estimate (K, d) at z; comments give line numbers of Algorithm 4."""
        if self._calls % self._plan.Sigma == 0:  # 2
            self._g = self._estimator.gradient(z, self._batch) + next(self._gradient_noise)  # 3-8
        else:
            chi = self._scale(z) * next(self._difference_noise)
            # Noise first: the sum with the estimate rounds to the size of that.
            self._g = self._g + (self._estimator.difference(z, self._z_before, self._batch) + chi)  # 10-16
        self._calls += 1
        self._z_before = z
        return self._g

    def _scale(self, z: Array) -> Any:
        """Return what the noise of a difference is multiplied by: 1, or the distance over 2 D, (K, 1)."""
        if self._plan.noise == "bound":
            return 1.0
        xp, longest = self._ex.xp, 2.0 * self._plan.D
        h = distance(xp, z, self._z_before)
        return xp.where(h < longest, h, longest) / longest


def _choices(setting: Setting, given: Letters) -> tuple[str, type[Estimator], str]:
    """Return the oracle, its estimator and how differences are noised."""
    name = O2NCMultiPass.name
    oracle = given.get("oracle", "zero_order")
    estimator = given.get("estimator", USUAL[oracle][setting.variant != "published"])
    if estimator not in ORACLES[oracle]:
        raise UserError(
            f"estimator of {name} is {estimator!r} with oracle={oracle}: use one of {', '.join(ORACLES[oracle])}."
        )
    kind = ORACLES[oracle][estimator]
    noise = given.get("noise", "distance" if setting.variant == "practical" and kind.certain else "bound")
    if noise == "distance" and not kind.certain:
        raise UserError(
            f"noise=distance of {name} needs a sensitivity in proportion to the distance, which estimator={estimator} "
            "has not: use noise=bound."
        )
    return oracle, kind, noise


def _beta(setting: Setting, given: Letters, n: float) -> float:
    """Return the beta for which the theorem asks for n samples: (sqrt(Phi) L d^(3/4)/(epsilon sqrt(alpha) n))^(2/3)."""
    problem = setting.problem
    if "beta" in given:
        return float(given["beta"])
    if not setting.noisy:
        return BETA_WITHOUT_NOISE * problem.G
    root = math.sqrt(given.get("Phi", PHI) / alpha_of(given))
    return float((root * problem.G * problem.d**0.75 / (setting.epsilon * n)) ** (2 / 3))


def _real(setting: Setting, given: Letters, n: float) -> tuple[float, float, float, float]:
    """Return D = alpha beta^2/L^2, M, T = Phi L^2/(alpha beta^3) and Sigma = alpha/(D sqrt(d)) as real numbers.

    Printed are alpha^2 beta^2/L^2 and Phi L^2/(alpha^2 beta^3), whose units do not fit; D T is the same.
    """
    alpha, L, beta = alpha_of(given), setting.problem.G, _beta(setting, given, n)
    D = given.get("D") or alpha * (beta / L) ** 2
    M = window_length(given, D)
    T = given.get("T") or given.get("Phi", PHI) * L**2 / (alpha * beta**3)
    return D, M, T, given.get("Sigma") or alpha / (D * math.sqrt(setting.problem.d))


def _theorem_shape(setting: Setting, given: Letters) -> Shape:
    """Return the theorem's letters as whole numbers."""

    def works(n: float) -> bool:
        _, M, T, Sigma = _real(setting, given, n)
        return M >= 1.0 - 1e-9 and Sigma >= 0.5 and math.ceil(T) >= int(M + 1e-9)

    if {"D", "beta"} & set(given):
        D, M, *_ = _real(setting, given, setting.problem.n)
        check_window(O2NCMultiPass.name, alpha_of(given), D, M)
    if not decided(given):
        refuse_vacuous(
            setting,
            works,
            f"{O2NCMultiPass.name} has no window",
            "M = alpha/(4 D), Sigma and T/M of KLT25 Theorem 4.1 are not all at least 1",
            "T and M",
        )
    n = setting.problem.n
    D, M, T, Sigma = _real(setting, given, n)
    steps = math.ceil(T - 1e-9)
    return Shape(D, int(M + 1e-9), steps, min(max(1, round(Sigma)), steps), n, n)


def _practical_shapes(setting: Setting, given: Letters) -> Iterator[Shape]:
    """Yield the shapes to choose from, with D = alpha/M and T = 24 M."""
    n = setting.problem.n
    for M, D in windows_to_try(given, alpha_of(given)):
        if M > LONGEST_WINDOW and not {"M", "D"} & set(given):
            return
        T = given.get("T", WINDOWS * M)
        yield from (Shape(D, M, T, Sigma, n, n) for Sigma in periods_to_try(given, T))


def _printed_m(setting: Setting, kind: type[Estimator], alpha: float, shape: Shape) -> int:
    """Return L^2 d Sigma/(n sigma_1^2) + L^2 d/(n sigma_2^2) of Theorem 4.1; with gradients d^2 times less."""
    problem = setting.problem
    first, later = _printed_noise(setting, alpha, shape, 1.0)
    m = problem.G**2 * problem.d / problem.n * (shape.Sigma / first**2 + 1.0 / later**2)
    return math.ceil(m if kind.asks_for == "values" else m / problem.d**2)


def _printed_noise(setting: Setting, alpha: float, shape: Shape, c: float) -> tuple[float, float]:
    """Return sigma_1 = L sqrt(c T ln(1/delta)/Sigma)/(n epsilon) and sigma_2 = sigma_1 sqrt(Sigma d) D/alpha."""
    first = setting.noise(c * shape.T / shape.Sigma, 1)
    return first, first * math.sqrt(shape.Sigma * setting.problem.d) * shape.D / alpha


def _noise(
    setting: Setting, given: Letters, kind: type[Estimator], scene: Scene, noise: str, shape: Shape
) -> tuple[float, float]:
    """Return the noise of a gradient and of a difference: printed, or with the least error that mu allows.

    With a = s1 sqrt(N1) and b = s2 sqrt(N2), (a/sigma_1)^2 + (b/sigma_2)^2 = mu^2, and sigma_1^2 + k sigma_2^2 is
    least at sigma_1^2 = a (a + b sqrt(k))/mu^2 and sigma_2^2 = b (a + b sqrt(k))/(mu^2 sqrt(k)). k is the mean number
    of differences in an estimate, times their mean share of the noise.
    """
    if not setting.noisy:
        return 0.0, 0.0
    if setting.variant == "published":
        return _printed_noise(setting, alpha_of(given), shape, given.get("c", 1.0))
    bounds, n = kind.bounds(scene), setting.problem.n
    mu = left_delta(setting, not kind.relies_on_directions(scene)).mu
    a = 2.0 * bounds.gradient / n * math.sqrt(shape.periods)
    b = 2.0 * bounds.difference / n * math.sqrt(shape.T - shape.periods)
    if not b:
        return a / mu, 0.0
    root = math.sqrt(_differences_in(shape, noise))
    return math.sqrt(a * (a + b * root)) / mu, math.sqrt(b * (a + b * root) / root) / mu


def _differences_in(shape: Shape, noise: str) -> float:
    """Return the mean number of differences in an estimate, times their mean share of the noise's variance."""
    return (shape.Sigma - 1) / 2.0 * (MEAN_SQUARE if noise == "distance" else 1.0)


def _noise_error(shape: Shape, d: int, sigmas: tuple[float, float], noise: str) -> float:
    """Return the root mean square of the noise over a period, which letters are chosen by."""
    return math.sqrt(d * (sigmas[0] ** 2 + _differences_in(shape, noise) * sigmas[1] ** 2))


def _events(
    setting: Setting, kind: type[Estimator], scene: Scene, shape: Shape, sigmas: tuple[float, float]
) -> tuple[Event, ...]:
    n, bounds = setting.problem.n, kind.bounds(scene)
    parts = [(QueryPart(2.0 * bound / n, n, n),) for bound in (bounds.gradient, bounds.difference)]
    # One sample must attain all gradients of a run, whose points are at most D T from the first.
    attained = gradient_is_attained(setting, kind, scene, shape.D * shape.T)
    events: list[Event] = [GaussianEvent(GRADIENT, sigmas[0], parts[0], shape.periods, attained=attained)]
    if later := shape.T - shape.periods:
        # No difference is at the largest distance with certainty.
        events.append(GaussianEvent(DIFFERENCE, sigmas[1], parts[1], later, attained=False))
    if kind.relies_on_directions(scene) and setting.noisy:
        events.append(ConditionEvent(DIRECTIONS, setting.delta / 2.0))
    return tuple(events)


def _utility(setting: Setting, given: Letters) -> UtilityBound:
    """Return the beta that n samples reach for the population (Remark 4.2) with hidden constants as 1.

    The first term is that of the empirical loss, the second what Proposition 5.1 adds to it.
    """
    problem = setting.problem
    without = {key: value for key, value in given.items() if key != "beta"}
    empirical = _beta(setting, without, problem.n) if setting.noisy else 0.0
    formula = "(sqrt(Phi) L d^0.75 / (n epsilon alpha^0.5))^(2/3) + L (d/n)^0.5"
    value = empirical + problem.G * math.sqrt(problem.d / problem.n)
    return UtilityBound("KLT25, Theorem 4.1 and Remark 4.2", GOLDSTEIN, formula, value)


def _two_kinks() -> Case:
    """Return a case on a line: the first record's loss is |w - alpha| or 4 - |w - alpha|.

    At 0 the smoothed gradients of the two are -1 and 1, and right of it they change at the rates 1/alpha and -1/alpha.
    All other records have the gradient -1 and drive the iterate there. No step is cut off, so that the points give away
    both releases, and as both points are in one window, the output gives away how far apart they are. As published the
    estimator is the printed one, which on a line has no error.
    """
    from dprepro.geometry import RealSpace
    from dprepro.nonsmooth_losses import Phase
    from dprepro.privacy.cases import Case
    from dprepro.problems.erm import ProblemSpec
    from dprepro.regularizers import Regularizer

    n, alpha = 20, 1.0
    X, labels = -np.ones((n, 1)), np.full(n, 4.0)
    X[0] = 1.0
    convex = labels.copy()
    convex[0] = 0.0
    spec = ProblemSpec(n, 1, Phase(-alpha), Regularizer(), RealSpace(), label_bound=4.0)
    # D is so long that a large part of the privacy is spent on the difference.
    shape = {"alpha": alpha, "D": 2.0, "M": 2, "T": 2, "Sigma": 2, "eta": 0.1}
    letters = {**shape, "oracle": "zero_order", "estimator": "frame", "noise": "distance"}
    published = {**shape, "oracle": "zero_order", "estimator": "independent", "noise": "bound"}
    name = "two kinks, gradient and difference"
    return Case(name, spec, (X, convex), (X, labels), letters, _releases_ratio, published)


def _releases_ratio(seen: Transcript, case: Case, plan: Any) -> Any:
    """Return log(density on the dataset / density on its neighbour) of both releases but for a constant: (K,).

    The output is the mean of the first point, 0, and the second. Left of 0 no loss changes its slope.
    """
    gradient, later = released_sums(seen)[:, :, 0]
    moved = 2.0 * seen.output[:, 0]
    h = np.where(moved > 0.0, moved, 1.0)
    scale = plan.sigma2 * (np.minimum(h / (2.0 * plan.D), 1.0) if plan.noise == "distance" else 1.0)
    slope = h / plan.alpha * (later - gradient) / scale**2
    return (2.0 / plan.n) * (np.where(moved > 0.0, slope, 0.0) - gradient / plan.sigma**2)


ALGORITHM = O2NCMultiPass()
