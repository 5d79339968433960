"""Accounting under replace-one adjacency. Every epsilon here is an upper bound unless it is called `lower`."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dprepro.errors import UserError, is_number
from dprepro.privacy.events import (
    ConditionEvent,
    DisjointGaussianEvent,
    Event,
    FadingSelectionEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    ParallelEvent,
    QueryPart,
    SelectionEvent,
    TreeEvent,
    UnprotectedEvent,
    leaves,
    replace_leaves,
)

if TYPE_CHECKING:
    from dprepro.privacy.pld import PrivacyLoss

SMALLEST_DELTA = 1e-300
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-100, 1e100
# Relative changes at which an epsilon counts as settled: for comparing divisions of the noise, whose errors are alike;
# while searching; and of a result.
ALIKE, ROUGH, FINE = 0.1, 0.02, 0.003
# Below this mu the two terms of a Gaussian delta cancel.
SMALL_MU = 0.01
# Above this one deltas at an epsilon have too few digits to be compared.
LARGE_MU = 1e7
# Share of the noise before the best division is known, and the range of logits in which that is searched for.
FIRST_SHARE = 0.6
SHARES = (-3.0, 8.0)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta at `epsilon` of a mu-GDP mechanism (Balle and Wang 2018, Dong et al. 2022).

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    For a small mu the two terms are nearly equal. With t = epsilon/mu and Mills' ratio M their difference is
    phi(t - mu/2) times the integral of -M'(y) = 1 - y M(y) over y in t +- mu/2, here by three Gauss-Legendre points.
    """
    from scipy.special import erfcx, log_ndtr

    if mu == 0.0:
        return 0.0
    if mu < SMALL_MU and epsilon >= 0.0:
        # Where t is larger, the density is zero in double precision.
        t, apart = min(epsilon / mu, 40.0), math.sqrt(0.15) * mu
        below, middle, above = (
            1.0 - y * math.sqrt(math.pi / 2.0) * float(erfcx(y / math.sqrt(2.0))) for y in (t - apart, t, t + apart)
        )
        density = math.exp(-0.5 * (t - mu / 2.0) ** 2) / math.sqrt(2.0 * math.pi)
        return density * mu * (5.0 * below + 8.0 * middle + 5.0 * above) / 18.0
    log_first = float(log_ndtr(mu / 2 - epsilon / mu))
    log_second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(log_first) * -math.expm1(min(0.0, log_second - log_first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the exact epsilon of a mu-GDP mechanism at `delta`, to 1e-12 relative (1e-7 from mu = 1e9 on).

    mu is the sensitivity over the noise's standard deviation; k releases of mu_i compose to
    sqrt(sum of mu_i^2).
    """
    if not (mu >= 0.0):
        raise UserError(f"mu is {mu}: give a number >= 0 (sensitivity over standard deviation).")
    check_delta(delta)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    # mu-GDP is (mu^2/2)-zCDP, and its conversion bounds epsilon from above.
    high = 0.5 * mu * mu + mu * math.sqrt(2.0 * math.log(1.0 / delta))
    return _smallest_epsilon(lambda epsilon: gaussian_delta(mu, epsilon), delta, high)


def _smallest_epsilon(spent: Callable[[float], float], delta: float, high: float) -> float:
    """Return where the decreasing function `spent` comes down to `delta`, in [0, high] and from above."""
    if spent(0.0) <= delta:
        return 0.0
    low = 0.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


def last_iterate_mu(mu: float, count: int, contraction: float) -> float:
    """Return the mu of the last of `count` iterates when each step by itself is mu-GDP (Bok, Su and Altschuler 2024).

    mu sqrt((1-c^T)/(1+c^T) (1+c)/(1-c)) for T steps of contraction c, mu sqrt(T) for c = 1.

    On either neighbour a step is a c-Lipschitz map of the iterate plus N(0, 1) noise, both start at one point, and the
    maps are at most mu apart. Shifted interpolation: follow a process that begins with the one chain and in step t is
    moved by a_t >= 0 towards the other, at the price of a_t in Gaussian DP. The distance left obeys
    z_t = c z_(t-1) + mu - a_t; if it ends at zero, z_T = sum c^(T-t) (mu - a_t) = 0, the chains have met, and the last
    iterate is sqrt(sum a_t^2)-GDP. By the Cauchy-Schwarz inequality the smallest price under this condition has
    a_t proportional to c^(T-t), which gives the formula; these a_t grow with t, so that no z_t is negative before the
    end. Steps w -> c w + shift meet it: their last iterate is Gaussian, mu sum c^i apart, of variance sum c^(2i).
    """
    if contraction == 1.0:
        return mu * math.sqrt(count)
    log_power = count * math.log(contraction)
    steps = -math.expm1(log_power) / (1.0 + math.exp(log_power)) * (1.0 + contraction) / (1.0 - contraction)
    return mu * math.sqrt(min(float(count), steps))


def check_epsilon(epsilon: float) -> float:
    """Return a valid epsilon (positive, infinity allowed) or raise `UserError`."""
    value = float(epsilon) if is_number(epsilon) else math.nan
    if not (SMALLEST_EPSILON <= value <= LARGEST_EPSILON or value == math.inf):
        raise UserError(f"epsilon is {epsilon!r}: give a number > 0 (inf for no noise).")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """Return a valid delta or raise `UserError`."""
    # 1/delta must exist as a number: smaller ones are no use to anybody.
    if not is_number(delta) or not SMALLEST_DELTA <= delta < 1.0:
        raise UserError(f"delta is {delta!r}: give a number strictly between 0 and 1, for example 1e-5.")
    return float(delta)


@dataclass(frozen=True)
class Accounted:
    """What a composition of events spends at some delta.

    `epsilon` is an upper bound. `lower` is a lower bound for the worst query with the stated sensitivities, equal to
    `epsilon` where the argument is exact (`tight`). `delta` gives an upper bound on delta at another epsilon.
    """

    epsilon: float
    lower: float
    accountant: str
    delta: Callable[[float], float] = field(repr=False)

    @property
    def tight(self) -> bool:
        """Whether upper and lower bound agree within one part in a hundred."""
        return self.epsilon == self.lower or self.epsilon <= 1.01 * self.lower

    @property
    def argument(self) -> str:
        """The accountant, called exact only where what it finds is certainly spent."""
        return f"{self.accountant}, exact" if self.epsilon == self.lower else self.accountant


def account(events: Sequence[Event], delta: float) -> Accounted:
    """Return what the adaptive composition of `events` spends at `delta`.

    Full-batch Gaussian releases, contracting last iterates and trees compose exactly as Gaussian DP. Objective
    perturbation is accounted by itself. Everything else goes through privacy-loss distributions. A release that sums a
    sampled and a full part under one noise is charged as two releases with the variance divided between them, for the
    best division; the sum is a function of the two, so this is sound. Selections by Gumbel noise have bounded range,
    which adds up as zCDP: the smaller of the two bounds counts. Events with several alternatives cost as much as the
    costliest; conditions take their share of delta beforehand. What is not known to be attained counts in the upper
    bound alone: a composition leaks at least what any part of it does.
    """
    check_delta(delta)
    found = [_account_sequence(sequence, delta) for sequence in _sequences(events)]
    worst = max(found, key=lambda accounted: accounted.epsilon)
    # A branch that is cheaper at this delta may be dearer at another epsilon.
    dearest = replace(worst, delta=lambda epsilon: max(accounted.delta(epsilon) for accounted in found))
    attained = replace_leaves(events, lambda event: event if getattr(event, "attained", True) else None)
    return dearest if attained == tuple(events) else replace(dearest, lower=account(attained, delta).lower)


def within(events: Sequence[Event], epsilon: float, delta: float, share: float, tolerance: float) -> bool:
    """Whether the composition is shown to be (epsilon, delta)-DP with a given division of the noise; for searches.

    `share` of the variance of summed releases goes to the sampled part. The grid is refined, as in `account`, until the
    answer is plain or epsilon settles up to the relative `tolerance`. True is a proof; False may only mean that the
    division or the tolerance is too poor.
    """
    return all(_sequence_within(sequence, epsilon, delta, share, tolerance) for sequence in _sequences(events))


def _sequence_within(events: Sequence[Event], epsilon: float, delta: float, share: float, tolerance: float) -> bool:
    kinds = _Sorted.of(events)
    if kinds.problem:
        return False
    if _gdp_only(kinds) or kinds.objective:
        return _account_sequence(events, delta).epsilon <= epsilon
    rest = delta - kinds.spent_delta
    if rest <= 0.0 or (lower := _lower(kinds, rest)) > epsilon:
        return False
    divided = _divided(kinds, math.sqrt(kinds.squared_mu), share)
    return _losses_epsilon(divided, rest, lower, tolerance, epsilon) <= epsilon


def has_summed_parts(events: Sequence[Event]) -> bool:
    """Whether some release sums a sampled and a full part under one noise."""
    kinds = [{part.full for part in event.parts} for event in leaves(events) if isinstance(event, GaussianEvent)]
    return {True, False} in kinds


def best_share(events: Sequence[Event], delta: float) -> float:
    """Return about the best share of the variance for the sampled parts: the one with the least epsilon at `delta`."""
    kinds = next((_Sorted.of(sequence) for sequence in _sequences(events) if has_summed_parts(sequence)), None)
    if kinds is None:
        return FIRST_SHARE
    return _best_share(kinds, math.sqrt(kinds.squared_mu), delta - kinds.spent_delta, 0.0)


def _best_share(kinds: _Sorted, mu: float, delta: float, lower: float) -> float:
    """Minimise epsilon over the logit of the share; a poor minimum costs tightness, not soundness."""
    from scipy.optimize import minimize_scalar

    def share(logit: float) -> float:
        return 1.0 / (1.0 + math.exp(-logit))

    found = minimize_scalar(
        lambda logit: _losses_epsilon(_divided(kinds, mu, share(logit)), delta, lower, ALIKE),
        bounds=SHARES,
        method="bounded",
        options={"xatol": 0.1, "maxiter": 10},
    )
    return share(float(found.x))


def is_gaussian(events: Sequence[Event]) -> bool:
    """Whether the composition is exactly Gaussian DP."""
    sorted_events = [_Sorted.of(sequence) for sequence in _sequences(events)]
    return all(_gdp_only(kinds) and kinds.spent_delta == 0.0 for kinds in sorted_events)


def confirms(events: Sequence[Event], epsilon: float, delta: float) -> bool | None:
    """Whether events are accounted `epsilon` at `delta`, by a second computation; None where that has no closed form.

    It has one for compositions that are exactly Gaussian DP, for a single objective perturbation, and where nothing
    finite is accounted, as without noise. Other functions than the accountant's are used, which load no SciPy, unless
    mu is small. One part in a hundred of delta is allowed for rounding.
    """
    kinds = [_Sorted.of(sequence) for sequence in _sequences(events)]
    if any(one.problem or one.spent_delta >= delta for one in kinds):
        return math.isinf(epsilon)
    if len(events) == 1 and isinstance(events[0], ObjectivePerturbationEvent):
        return _confirms_objective(events[0], epsilon, delta)
    if not is_gaussian(events):
        return None
    mu = math.sqrt(max(one.squared_mu for one in kinds))
    if mu == 0.0 or math.isinf(mu):
        return epsilon == mu
    if mu > LARGE_MU:
        # Rounding leaves delta no digit, and epsilon is mu^2/2 but for its last ones.
        return math.isclose(epsilon, 0.5 * mu * mu, rel_tol=1e-5)
    spent = gaussian_delta(mu, epsilon) if mu < SMALL_MU else _gaussian_spent(mu, epsilon)
    return spent <= 1.01 * delta and (epsilon == 0.0 or spent >= 0.99 * delta)


# Standard deviations beyond which exp(x^2/2) is no number.
_FAR = 30.0


def _confirms_objective(event: ObjectivePerturbationEvent, epsilon: float, delta: float) -> bool | None:
    """Whether objective perturbation is accounted `epsilon`: delta is two to four times that of Gaussian noise."""
    mu, rest = event.sensitivity / event.scale, epsilon - _curvature(event)
    if event.noise == "gamma":
        return math.isclose(rest, mu, rel_tol=1e-6, abs_tol=1e-9 * epsilon)
    if mu == 0.0 or rest / mu < -_FAR:
        return None
    spent = _gaussian_spent(mu, rest)
    return 2.0 * spent <= 1.01 * delta and (epsilon == 0.0 or 4.0 * spent >= 0.99 * delta)


def _gaussian_spent(mu: float, epsilon: float) -> float:
    """Return the delta of mu-GDP: Phi(-x) - phi(x) M(y) with x, y = epsilon/mu -+ mu/2 and M Mills' ratio."""
    x, y = epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0
    density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return 0.5 * math.erfc(x / math.sqrt(2.0)) - density * _mills(y)


def _mills(y: float) -> float:
    """Return Mills' ratio (1 - Phi(y)) / phi(y): by its continued fraction where the tail is small."""
    if y < 5.0:
        return math.sqrt(math.pi / 2.0) * math.erfc(y / math.sqrt(2.0)) * math.exp(0.5 * y * y)
    value = y
    for k in range(60, 0, -1):
        value = y + k / value
    return 1.0 / value


def delta_profile(events: Sequence[Event], delta: float) -> Callable[[float], float]:
    """Return an upper bound on delta as a function of epsilon; the grid is chosen for about this delta."""
    profiles = [_account_sequence(sequence, delta).delta for sequence in _sequences(events)]
    return lambda epsilon: max(profile(epsilon) for profile in profiles)


def advanced_composition_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the epsilon that the textbook argument gives, for comparison; NaN where it does not apply.

    Each of k full-batch releases is (epsilon0, delta/2k)-DP by the classical Gaussian mechanism, valid for
    epsilon0 <= 1, and advanced composition adds them up with a slack of delta/2.
    """
    from dprepro.privacy.composition import advanced

    gaussians = [event for event in events if isinstance(event, GaussianEvent)]
    if len(gaussians) != 1 or len(events) != 1 or not all(part.full for part in gaussians[0].parts):
        return math.nan
    (event,) = gaussians
    if event.sigma == 0.0 or event.count == 0:
        return math.nan
    share = delta / (2.0 * event.count)
    distance = sum(part.sensitivity for part in event.parts)
    epsilon0 = math.sqrt(2.0 * math.log(1.25 / share)) * distance / event.sigma
    return advanced(epsilon0, share, event.count, delta / 2.0)[0] if epsilon0 <= 1.0 else math.nan


def probability_sampled(events: Sequence[Event]) -> float:
    """Return the probability that a given record is in at least one random batch; 1 where no batch is random."""
    from dprepro.privacy import pld

    batches = [
        (part.batch, part.population, event.count)
        for event in leaves(events)
        if isinstance(event, GaussianEvent)
        for part in event.parts
        if not part.full
    ]
    if not batches:
        return 1.0
    return 1.0 - math.prod(1.0 - pld.probability_sampled(*batch) for batch in batches)


def objective_perturbation_delta(event: ObjectivePerturbationEvent, epsilon: float) -> float:
    """Return an upper bound on the delta at `epsilon` of the minimiser of a perturbed objective.

    The released w tells b, minus the gradient of the rest of the objective at w, and b tells w: the density of w is
    that of the noise at b(w) times the determinant of the Hessian H(w) of the rest. Let A be the part of H that the
    neighbours share, at least `convexity` I, and a x x^T, a' x' x'^T what the differing records add, each at most
    `smoothness` I.

    * The determinants have the ratio (1 + a x^T A^-1 x) / (1 + a' x'^T A^-1 x') <= 1 + smoothness/convexity = e^c,
      since a and a' are not negative.
    * The two values of b differ by v = g x^ - g' x'^ with unit vectors x^, x'^ that do not depend on w and numbers with
      |g|, |g'| <= sensitivity/2.

    Gamma noise: the ratio of the densities is at most e^(||v||/scale), so w is epsilon0-DP with
    epsilon0 = sensitivity/scale + c, and delta is at most (e^epsilon0 - e^epsilon)/(e^epsilon0 + 1), that of
    randomised response (Kairouz, Oh and Viswanath 2015).

    Gaussian noise: let mu = sensitivity/scale. The loss is at most c + <b, v>/scale^2 + ||v||^2/(2 scale^2), which is
    at most c + mu (|N| + |N'|)/2 + mu^2/2 with N = <b, x^>/scale and N' = <b, x'^>/scale standard normal. delta is the
    expectation of the increasing function h(loss) = (1 - e^(epsilon - loss))_+. As h of a mean of two numbers is at
    most h of the one plus h of the other, and E h(mu |N| + mu^2/2) <= 2 E h(mu N + mu^2/2), delta is at most four
    times that of mu-GDP at epsilon - c. This is halved where `_halves_add_up` holds.
    """
    curvature = _curvature(event)
    if event.noise == "gamma":
        epsilon0 = event.sensitivity / event.scale + curvature
        return max(0.0, -math.expm1(min(0.0, epsilon - epsilon0)) / (1.0 + math.exp(-epsilon0)))
    mu = event.sensitivity / event.scale
    times = 2.0 if _halves_add_up(mu, epsilon - curvature) else 4.0
    return min(1.0, times * gaussian_delta(mu, epsilon - curvature))


def _curvature(event: ObjectivePerturbationEvent) -> float:
    """What the ratio of the determinants takes of epsilon."""
    return math.log1p(event.smoothness / event.convexity)


def _halves_add_up(mu: float, epsilon: float) -> bool:
    """Whether twice the delta of mu-GDP covers E h(mu (|N| + |N'|)/2 + mu^2/2) for any two standard normals N, N'.

    (|N| + |N'|)/2 is the larger of |U| = |N + N'|/2 and |V| = |N - N'|/2, which are independent normals with variances
    that add up to 1. With T = epsilon - mu^2/2 >= 0 and f(s) = E(1 - e^(T - s N))_+ the expectation is therefore at
    most 2 f(mu sqrt(u)) + 2 f(mu sqrt(1-u)) for some u in [0, 1], which is at most 2 f(mu), twice that delta, if
    f(s)/s^2 does not fall on (0, mu]. Let M be Mills' ratio and t = T/s. Then f = phi(t) (M(t) - M(t+s)), and the
    derivative of f by s^2 is phi(t) (1/s - M(t+s))/2, so the condition is M(t) - M(t+s) <= s (1 - s M(t+s))/2. The
    left-hand side is the integral of 1 - y M(y), which decreases in y, from t to t + s; and M(t+s) <= 1/(t+s). Both
    get worse as s grows, so 1 - t M(t) <= t/(2 (t+s)) at s = mu is enough.
    """
    from scipy.special import erfcx

    t = epsilon / mu - mu / 2.0
    if t < 0.0:
        return False
    mills = math.sqrt(math.pi / 2.0) * float(erfcx(t / math.sqrt(2.0)))
    return 1.0 - t * mills <= 0.5 * t / (t + mu)


# epsilon0, count, whether of bounded range
_Pure = tuple[float, int, bool]


@dataclass(frozen=True)
class _Sorted:
    """The events of one sequence by the argument that accounts for them."""

    spent_delta: float
    squared_mu: float
    sampled: tuple[GaussianEvent, ...]
    pure: tuple[_Pure, ...]
    laplace: tuple[LaplaceEvent, ...]
    objective: tuple[ObjectivePerturbationEvent, ...]
    problem: str

    @classmethod
    def of(cls, events: Sequence[Event]) -> _Sorted:
        """Sort the events that were used at least once."""
        from dprepro.privacy.composition import tree_mu

        _check_known(events)
        used = [event for event in events if getattr(event, "count", 1)]
        gaussians = [event for event in used if isinstance(event, GaussianEvent)]
        sampled = tuple(event for event in gaussians if any(not part.full for part in event.parts))
        trees = [event for event in used if isinstance(event, TreeEvent)]
        noises = [event.sigma for event in gaussians] + [event.sigma for event in trees]
        scaled = (LaplaceEvent, SelectionEvent, ObjectivePerturbationEvent)
        noises += [event.scale for event in used if isinstance(event, scaled)]
        problem = "none: no noise was added" if 0.0 in noises else ""
        objective = tuple(event for event in used if isinstance(event, ObjectivePerturbationEvent))
        if objective and sum(not isinstance(event, ConditionEvent) for event in used) > 1:
            problem = problem or "none: no argument here composes objective perturbation with other releases"
        if any(isinstance(event, UnprotectedEvent) for event in used):
            problem = "none: a data-dependent quantity was used without noise"
        squared_mu = 0.0
        if not problem:
            squared_mu += sum(
                _square(
                    last_iterate_mu(
                        sum(part.sensitivity for part in event.parts) / event.sigma, event.count, event.contraction
                    )
                )
                for event in gaussians
                if event not in sampled
            )
            squared_mu += sum(
                (1 if event.disjoint else event.count)
                * _square(tree_mu(event.sensitivity, event.sigma, event.leaves, event.first))
                for event in trees
            )
        return cls(
            sum(event.delta for event in used if isinstance(event, ConditionEvent)),
            squared_mu,
            sampled,
            tuple(
                (event.epsilon0, event.count, event.noise == "gumbel")
                for event in used
                if isinstance(event, SelectionEvent)
            ),
            tuple(event for event in used if isinstance(event, LaplaceEvent)),
            objective,
            problem,
        )


def _square(value: float) -> float:
    """Return the square, infinite where it is no number in double precision."""
    return value * value


def _gdp_only(kinds: _Sorted) -> bool:
    return not (kinds.sampled or kinds.pure or kinds.laplace or kinds.objective or kinds.problem)


def _check_known(events: Sequence[Event]) -> None:
    """Refuse an event that no argument here accounts for: it would count as free."""
    known = (
        GaussianEvent,
        LaplaceEvent,
        SelectionEvent,
        TreeEvent,
        ObjectivePerturbationEvent,
        UnprotectedEvent,
        ConditionEvent,
    )
    for event in events:
        if not isinstance(event, known):
            raise UserError(f"No sound accountant is known for the event {event!r}: add one before running it.")


def _sequences(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Return every sequence of events that one record can meet: one alternative of each event that has several."""
    sequences: list[tuple[Event, ...]] = [()]
    for event in events:
        if isinstance(event, ParallelEvent | FadingSelectionEvent | DisjointGaussianEvent):
            branches = [inner for branch in event.alternatives() for inner in _sequences(branch)] or [()]
            sequences = [(*sequence, *branch) for sequence in sequences for branch in dict.fromkeys(branches)]
        else:
            sequences = [(*sequence, event) for sequence in sequences]
    return sequences


# A plan is accounted when its noise is calibrated, and again for its certificate.
@functools.lru_cache(maxsize=8)
def _account_sequence(events: tuple[Event, ...], delta: float) -> Accounted:
    kinds = _Sorted.of(events)
    if kinds.problem:
        # Whatever is used without noise, the noisy releases leak at least what they leak by themselves.
        protected = tuple(event for event in events if not isinstance(event, UnprotectedEvent))
        lower = _account_sequence(protected, delta).lower if protected != events else 0.0
        return Accounted(math.inf, lower, kinds.problem, lambda epsilon: 1.0)
    rest = delta - kinds.spent_delta
    if rest <= 0.0:
        text = "none: the conditions alone spend more than delta"
        return Accounted(math.inf, 0.0, text, lambda epsilon: 1.0)
    mu = math.sqrt(kinds.squared_mu)
    if _gdp_only(kinds):
        epsilon = gaussian_epsilon(mu, rest)
        lower = epsilon if kinds.spent_delta == 0.0 else 0.0
        return Accounted(epsilon, lower, "Gaussian DP", lambda e: min(1.0, gaussian_delta(mu, e) + kinds.spent_delta))
    if kinds.objective:
        return _account_objective(kinds.objective[0], kinds.spent_delta, rest)
    return _account_by_losses(kinds, mu, rest, _lower(kinds, delta) if kinds.spent_delta == 0.0 else 0.0)


def _account_objective(event: ObjectivePerturbationEvent, spent_delta: float, delta: float) -> Accounted:
    """Account for one objective perturbation: pure DP with gamma noise, a multiple of Gaussian DP's delta otherwise."""
    mu, curvature = event.sensitivity / event.scale, _curvature(event)
    if event.noise == "gamma":
        epsilon = mu + curvature
    else:
        high = curvature + gaussian_epsilon(mu, delta / 4.0)
        epsilon = _smallest_epsilon(lambda e: objective_perturbation_delta(event, e), delta, high)
    text = f"objective perturbation, in which the curvature alone takes epsilon = {curvature:.4g}"
    return Accounted(epsilon, 0.0, text, lambda e: min(1.0, spent_delta + objective_perturbation_delta(event, e)))


def _lower(kinds: _Sorted, delta: float) -> float:
    """Return a lower bound on epsilon from the costliest sampled part alone, under all of its noise."""
    found = [
        _SampledRelease(event.sigma, part, event.count).lower(delta)
        for event in kinds.sampled
        for part in event.parts
        if not part.full
    ]
    return max(found, default=0.0)


def _account_by_losses(kinds: _Sorted, mu: float, delta: float, lower: float) -> Accounted:
    """Account by privacy-loss distributions, for the best division of the noise of summed parts."""
    from dprepro.privacy.composition import zcdp_delta

    if not any(part.full for event in kinds.sampled for part in event.parts):
        share = 1.0
    else:
        share = _best_share(kinds, mu, delta, lower)
    divided = _divided(kinds, mu, share)
    epsilon = _losses_epsilon(divided, delta, lower, FINE)

    @functools.cache
    def composed() -> list[PrivacyLoss]:
        return _composed(divided, delta, max(epsilon, 1e-3))

    def profile(at: float) -> float:
        found = _delta_on_the_finest(composed(), at)
        if at >= epsilon:
            found = min(found, delta)
        if divided.bounded_only:
            found = min(found, zcdp_delta(divided.rho, at))
        return min(1.0, kinds.spent_delta + found)

    text = "bounded range and zCDP" if divided.bounded_only else "privacy-loss distributions"
    return Accounted(epsilon, min(lower, epsilon), text, profile)


def _composed(divided: _Divided, delta: float, epsilon: float) -> list[PrivacyLoss]:
    """Return the composition on finer and finer grids, until hardly more than the known `epsilon` is spent at `delta`.

    What many releases lose by a grid adds up. The closed bounds of selections are not those of a grid.
    """
    from dprepro.privacy.pld import GridTooFine

    interval = epsilon / 4096.0
    found = [_compose(divided, interval, delta, math.inf)]
    with contextlib.suppress(GridTooFine):
        while not divided.pure_only and found[-1].epsilon(delta) > (1.0 + FINE) * epsilon:
            interval /= 4.0
            found.append(_compose(divided, interval, delta, math.inf))
    return found


def _delta_on_the_finest(grids: Sequence[PrivacyLoss], epsilon: float) -> float:
    """Return the bound of the finest grid on which delta at `epsilon` can be computed."""
    from dprepro.privacy.pld import GridTooFine

    *coarser, finest = grids
    if not coarser:
        return finest.delta(epsilon)
    try:
        return finest.delta(epsilon)
    except GridTooFine:
        return _delta_on_the_finest(coarser, epsilon)


@dataclass(frozen=True)
class _SampledRelease:
    """`count` releases of one sampled part under noise of its own."""

    sigma: float
    part: QueryPart
    count: int

    @property
    def _numbers(self) -> tuple[float, float, int, int]:
        return self.sigma, self.part.sensitivity, self.part.batch, self.part.population

    def lower(self, delta: float) -> float:
        """Return a lower bound on epsilon for the worst query."""
        from dprepro.privacy import pld

        bound = pld.poisson_gaussian_epsilon_lower if self.part.poisson else pld.sampled_gaussian_epsilon_lower
        return bound(*self._numbers, self.count, delta)

    def known_batches(self, delta: float) -> float:
        """Return the epsilon if the batches were public."""
        from dprepro.privacy import pld

        sigma, sensitivity, batch, population = self._numbers
        # A record of a known Poisson batch moves the query by twice what one record adds.
        distance = 2.0 * sensitivity if self.part.poisson else sensitivity
        return pld.known_batches_epsilon(sigma, distance, batch, population, self.count, delta)

    def losses(self, interval: float, slack: float, epsilon: float) -> PrivacyLoss:
        """Return the privacy loss on a grid."""
        from dprepro.privacy import pld

        step = pld.poisson_gaussian if self.part.poisson else pld.sampled_gaussian
        return step(*self._numbers, interval, slack=slack, epsilon=epsilon).self_compose(self.count)


@dataclass(frozen=True)
class _Divided:
    """A composition of separate releases: one of GDP mu, sampled ones and others."""

    mu: float
    sampled: tuple[_SampledRelease, ...]
    pure: tuple[_Pure, ...]
    laplace: tuple[LaplaceEvent, ...]

    @property
    def pure_only(self) -> bool:
        """Whether there are selections only, each of pure DP."""
        return bool(self.pure) and not (self.mu > 0.0 or self.sampled or self.laplace)

    @property
    def bounded_only(self) -> bool:
        """Whether there are selections of bounded range only."""
        return self.pure_only and all(bounded for *_, bounded in self.pure)

    @property
    def rho(self) -> float:
        """The zCDP of the selections: epsilon0^2/2 each (Bun and Steinke 2016), epsilon0^2/8 with bounded range."""
        return sum(count * epsilon0**2 / (8.0 if bounded else 2.0) for epsilon0, count, bounded in self.pure)


def _divided(kinds: _Sorted, mu: float, share: float) -> _Divided:
    """Give `share` of the variance of each summed release to its sampled part and the rest to its full part."""
    squared, sampled = mu * mu, []
    for event in kinds.sampled:
        full = sum(part.sensitivity for part in event.parts if part.full)
        own = share if full else 1.0
        if full:
            squared += event.count * (full / event.sigma) ** 2 / (1.0 - own)
        (part,) = (part for part in event.parts if not part.full)
        sampled.append(_SampledRelease(event.sigma * math.sqrt(own), part, event.count))
    return _Divided(math.sqrt(squared), tuple(sampled), kinds.pure, kinds.laplace)


def _simple_bound(divided: _Divided, delta: float) -> float:
    """Return an epsilon at `delta` in closed form: the sum of the pieces', or what selections add up to as zCDP."""
    from dprepro.privacy.composition import zcdp_epsilon

    pieces = len(divided.sampled) + len(divided.pure) + len(divided.laplace) + (divided.mu > 0)
    share = delta / pieces
    total = gaussian_epsilon(divided.mu, share)
    total += sum(release.known_batches(share) for release in divided.sampled)
    total += sum(epsilon0 * count for epsilon0, count, _ in divided.pure)
    total += sum(event.count * event.sensitivity / event.scale for event in divided.laplace)
    return min(total, zcdp_epsilon(divided.rho, delta)) if divided.pure_only else total


def _losses_epsilon(
    divided: _Divided, delta: float, lower: float, tolerance: float, enough: float | None = None
) -> float:
    """Return an upper bound on epsilon, settled up to `tolerance`.

    The search stops as soon as the bound is at most `enough`, and where no finer grid would lead there.
    """
    from dprepro.privacy import pld
    from dprepro.privacy.composition import bounded_range, optimal_pure

    bound = _simple_bound(divided, delta)
    if bound == 0.0 or lower >= (1.0 - tolerance) * bound:
        return bound
    if divided.pure_only and len(divided.pure) == 1:
        ((epsilon0, count, bounded),) = divided.pure
        return (bounded_range if bounded else optimal_pure)(epsilon0, count, delta)
    if divided.bounded_only:
        return bound  # randomised responses know of no range: where they cost less than their sum, zCDP does so before
    return pld.refined_epsilon(
        lambda interval, epsilon: _compose(divided, interval, delta, epsilon), delta, bound, tolerance, enough
    )


def _compose(divided: _Divided, interval: float, delta: float, epsilon: float) -> PrivacyLoss:
    from dprepro.privacy import pld

    total = pld.PrivacyLoss(interval, ())
    if divided.mu > 0.0:
        total = total.compose(pld.gaussian(1.0, divided.mu, interval))
    for release in divided.sampled:
        total = total.compose(release.losses(interval, 1e-4 * delta / release.count, epsilon))
    for epsilon0, count, _ in divided.pure:
        total = total.compose(pld.pure(epsilon0, interval).self_compose(count))
    for event in divided.laplace:
        total = total.compose(pld.laplace(event.scale, event.sensitivity, interval).self_compose(event.count))
    return total
