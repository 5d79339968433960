"""Lower bounds on epsilon from scores: the statistics of a privacy audit.

An audit runs a mechanism many times on each of two neighbouring datasets and computes one score per run. Guessing
the dataset from the side of a threshold on which the score falls gives two error rates, and privacy forbids both to
be small. The threshold is chosen on the first half of the runs and judged on the second, so the judged error counts
are binomial whatever the scores look like. All runs must be independent, those on the one dataset of those on the
other too: no random numbers shared between the sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, lambertw, ndtri

from dprepro.errors import UserError
from dprepro.privacy.accounting import check_delta, gaussian_epsilon

BETA = 1e-3
MIN_REPLICATES = 200

# Steps of the boundary of the confidence region; more steps gain less than one part in a thousand.
_STEPS = 100
# Dense near zero, where the curves of strong claims bend, and reaching far enough for weak ones.
_EPSILONS = tuple(0.5 * np.sinh(np.linspace(0.0, math.asinh(60.0), 160)))

Floats = NDArray[np.float64]
DeltaProfile = Callable[[float], float]


@dataclass(frozen=True)
class AuditBound:
    """What an audit of one mechanism shows; each bound holds with confidence 1 - beta by itself.

    `threshold`, `fpr` and `fnr` belong to the trade-off bound: the chosen threshold and the observed error rates of
    the judged half, where taking dataset 0 for dataset 1 is a false positive. `replicates` counts the runs per side,
    choosing and judging together (of the smaller side, where they differ).
    """

    epsilon_clopper_pearson: float
    epsilon_tradeoff: float
    mu_lower: float
    threshold: float
    fpr: float
    fnr: float
    replicates: int
    beta: float


def split(scores0: ArrayLike, scores1: ArrayLike) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return the halves (for choosing the threshold, for judging it), each a pair of score arrays.

    Runs are taken in the order given; of an odd number the judged half gets one more. Infinite scores are allowed
    (log-likelihood ratios can be infinite) and count as the largest finite number.
    """
    checked0, checked1 = _checked_scores(scores0, "dataset 0"), _checked_scores(scores1, "dataset 1")
    half0, half1 = len(checked0) // 2, len(checked1) // 2
    return (checked0[:half0], checked1[:half1]), (checked0[half0:], checked1[half1:])


def audit_bounds(scores0: ArrayLike, scores1: ArrayLike, delta: float, beta: float = BETA) -> AuditBound:
    """Return both bounds from one split, each with its own guess and its own confidence 1 - beta.

    `epsilon_clopper_pearson` holds for every mechanism. `mu_lower` is the mu below which every claim of mu-GDP is
    refuted, and `epsilon_tradeoff` the epsilon of that mu at `delta`. Assumed is that the claim under test is Gaussian
    DP, that is FNR >= Phi(Phi^-1(1 - FPR) - mu) for every guess (Dong, Roth and Su 2022). If the mechanism is mu-GDP,
    `mu_lower` exceeds mu with probability at most beta; nothing is assumed about the scores. For a mechanism whose own
    trade-off curve is Gaussian (full-batch Gaussian releases and their composition) it is a lower bound on its mu. For
    another mechanism it only says which Gaussian claims are false, which is no lower bound on its epsilon at a given
    delta: use `epsilon_clopper_pearson` or `violates` there.

    That both bounds hold at once has confidence 1 - 2 beta at least.
    """
    delta, beta = check_delta(delta), _checked_beta(beta)
    choosing, judging = split(scores0, scores1)
    guess = _gaussian_guess(choosing, beta)
    errors = _count(judging, guess.threshold, guess.above, guess.swapped)
    mu_lower = _tradeoff_mu(guess, judging, beta)
    return AuditBound(
        epsilon_clopper_pearson=_clopper_pearson_epsilon(choosing, judging, delta, beta),
        epsilon_tradeoff=gaussian_epsilon(mu_lower, delta),
        mu_lower=mu_lower,
        threshold=guess.threshold,
        fpr=float(errors.false_positives / errors.negatives),
        fnr=float(errors.false_negatives / errors.positives),
        replicates=min(len(choosing[0]) + len(judging[0]), len(choosing[1]) + len(judging[1])),
        beta=beta,
    )


def violates(
    scores0: ArrayLike,
    scores1: ArrayLike,
    delta_profile: DeltaProfile,
    beta: float = BETA,
    epsilons: Iterable[float] | None = None,
) -> bool:
    """Return whether the scores contradict the claim of (epsilon, delta_profile(epsilon))-DP for all `epsilons`.

    If the claim holds, the answer is True with probability at most beta, whatever the mechanism and the grid; a
    coarser grid only loses power. The profile must hold for both orders of the two datasets, as that of a
    privacy-loss distribution of a symmetric relation does. It is evaluated once per epsilon (160 values from 0 to 30
    unless told otherwise).
    """
    beta = _checked_beta(beta)
    choosing, judging = split(scores0, scores1)
    claimed_fnr = _claimed_tradeoff(delta_profile, _EPSILONS if epsilons is None else epsilons)
    # Distance of the two curves on the Gaussian scale, so that centre and tails compare fairly.
    guess = _balanced_guess(choosing, beta, lambda fpr, fnr: ndtri(claimed_fnr(fpr)) - ndtri(fnr))
    fpr, fnr = _upper_corners(_count(judging, guess.threshold, guess.above, guess.swapped), beta)
    return bool(np.all(fnr < claimed_fnr(fpr)))


def largest_refuted_scale(
    scores0: ArrayLike,
    scores1: ArrayLike,
    profile_at_scale: Callable[[float], DeltaProfile],
    scales: Iterable[float],
    beta: float = BETA,
    epsilons: Iterable[float] | None = None,
) -> float | None:
    """Return the largest of `scales` by which the noise is shown to be too small, or None where none is shown.

    profile_at_scale(s) is the delta profile of the mechanism with its claimed noise divided by s; s = 1 is the claim
    itself. The scales are tried in increasing order up to the first that is not refuted, so the whole sequence has
    the false-alarm probability beta of a single test: a false refutation must begin at the first true claim.
    """
    refuted = None
    for scale in sorted(float(scale) for scale in scales):
        if not scale > 0.0:
            raise UserError(f"A noise scale is {scale}: give numbers > 0, where 1 stands for the claimed noise.")
        if not violates(scores0, scores1, profile_at_scale(scale), beta, epsilons):
            break
        refuted = scale
    return refuted


@dataclass(frozen=True)
class _Guess:
    """Positive are the scores above (or below) the threshold; swapped: dataset 0 is the positive one."""

    threshold: float
    above: bool
    swapped: bool


@dataclass(frozen=True)
class _Errors:
    """Error counts of one guess, or of one guess per threshold, out of the runs on each side."""

    false_positives: NDArray[np.intp]
    negatives: int
    false_negatives: NDArray[np.intp]
    positives: int


def _clopper_pearson_epsilon(
    choosing: tuple[Floats, Floats], judging: tuple[Floats, Floats], delta: float, beta: float
) -> float:
    """Return a lower bound on epsilon at `delta` that holds with confidence 1 - beta for every mechanism.

    (epsilon, delta)-DP means 1 - FNR <= e^epsilon FPR + delta for each guess, whichever dataset is the positive one
    (Kairouz, Oh and Viswanath 2015); both rates are replaced by their Clopper-Pearson upper bounds at beta/2. The
    guess (threshold, side, positive dataset) is fixed on the first half.
    """

    def epsilon(errors: _Errors) -> Floats:
        fpr, fnr = _upper_box(errors, beta)
        return np.log(np.maximum(1.0 - delta - fnr, 1e-300) / fpr)

    thresholds = _thresholds(choosing)
    best, guess = -math.inf, _Guess(float(thresholds[0]), True, False)
    for above in (True, False):
        for swapped in (False, True):
            values = epsilon(_count(choosing, thresholds, above, swapped))
            index = int(values.argmax())
            if values[index] > best:
                best, guess = values[index], _Guess(float(thresholds[index]), above, swapped)
    return max(0.0, float(epsilon(_count(judging, guess.threshold, guess.above, guess.swapped))))


def _gaussian_guess(choosing: tuple[Floats, Floats], beta: float) -> _Guess:
    return _balanced_guess(choosing, beta, lambda fpr, fnr: -ndtri(fpr) - ndtri(fnr))


def _tradeoff_mu(guess: _Guess, judging: tuple[Floats, Floats], beta: float) -> float:
    """Return mu >= -Phi^-1(FPR) - Phi^-1(FNR), minimised over the joint confidence region of the two rates.

    See `_upper_corners`, which needs the two samples to be independent of each other.
    """
    fpr, fnr = _upper_corners(_count(judging, guess.threshold, guess.above, guess.swapped), beta)
    return max(0.0, float(np.min(-ndtri(fpr) - ndtri(fnr))))


def _balanced_guess(
    choosing: tuple[Floats, Floats], beta: float, excess_mu: Callable[[Floats, Floats], Floats]
) -> _Guess:
    """Return the guess with the most balanced error rates among those whose `excess_mu` is close to the largest.

    The largest value is flat over many thresholds and picked by noise, sometimes far out where the judged half says
    little. Close is therefore measured by the uncertainty of the largest value itself: a quarter of its distance to
    its median estimate, about one standard error at beta = 1e-3. Exchanging the datasets mirrors the claim, so one
    order is enough.
    """
    thresholds = _thresholds(choosing)
    sides = [_count(choosing, thresholds, above, False) for above in (True, False)]
    values = np.concatenate([excess_mu(*_upper_box(errors, beta)) for errors in sides])
    imbalance = np.concatenate(
        [
            np.abs(errors.false_positives / errors.negatives - errors.false_negatives / errors.positives)
            for errors in sides
        ]
    )
    best = int(values.argmax())
    medians = np.concatenate([excess_mu(*_upper_box(errors, 1.0)) for errors in sides])
    margin = 0.25 * (medians[best] - values[best]) if np.isfinite(values[best]) else 0.0
    close = np.flatnonzero(values >= values[best] - margin)
    index = int(close[np.lexsort((-values[close], imbalance[close]))[0]])
    return _Guess(float(np.tile(thresholds, 2)[index]), index < len(thresholds), False)


def _thresholds(choosing: tuple[Floats, Floats]) -> Floats:
    """Return a few hundred cuts between neighbouring values of the pooled scores, closer together in both tails.

    Ranks and cuts are taken symmetrically from both ends, so that negating the scores changes nothing.
    """
    pooled = np.sort(np.concatenate(choosing))
    distinct = np.unique(pooled)
    if len(distinct) == 1:
        return distinct
    tail = np.geomspace(1, len(pooled) // 2, 60).astype(np.intp) - 1
    centre = np.linspace(0, len(pooled) // 2, 60).astype(np.intp)
    ranks = np.unique(np.concatenate([tail, centre]))
    positions = np.searchsorted(distinct, np.concatenate([pooled[ranks], pooled[::-1][ranks]]))
    below = np.unique(np.clip(np.concatenate([positions - 1, positions]), 0, len(distinct) - 2))
    return 0.5 * distinct[below] + 0.5 * distinct[below + 1]


def _count(scores: tuple[Floats, Floats], thresholds: Floats | float, above: bool, swapped: bool) -> _Errors:
    negative, positive = scores[::-1] if swapped else scores
    sign = 1.0 if above else -1.0
    cut = sign * np.asarray(thresholds)
    return _Errors(
        false_positives=np.asarray(len(negative) - np.searchsorted(np.sort(sign * negative), cut, side="right")),
        negatives=len(negative),
        false_negatives=np.asarray(np.searchsorted(np.sort(sign * positive), cut, side="right")),
        positives=len(positive),
    )


def _upper_box(errors: _Errors, beta: float) -> tuple[Floats, Floats]:
    """Return upper bounds on FPR and FNR that hold together with confidence 1 - beta (Bonferroni)."""
    return (
        _clopper_pearson_upper(errors.false_positives, errors.negatives, beta / 2),
        _clopper_pearson_upper(errors.false_negatives, errors.positives, beta / 2),
    )


def _upper_corners(errors: _Errors, beta: float) -> tuple[Floats, Floats]:
    """Return corners such that with confidence 1 - beta the true (FPR, FNR) lies below at least one of them.

    The probabilities of at most the observed false positives and false negatives, at the true rates, are independent
    and at least as large as uniform numbers U, V. Fisher's product test: P(U V <= c) = c (1 - ln c) = beta. So
    P(U V > c) >= 1 - beta, and the region U V > c is covered by the boxes U >= a_i, V >= c / a_(i+1) over a grid
    c = a_0 < ... < a_K = 1. This loses much less than one box at beta/2 per rate, because both rates are rarely
    underestimated at once.
    """
    log_c = 1.0 + float(lambertw(-beta / math.e, -1).real)
    levels = np.exp(np.linspace(log_c, 0.0, _STEPS + 1))[:-1]
    return (
        _clopper_pearson_upper(errors.false_positives, errors.negatives, levels),
        _clopper_pearson_upper(errors.false_negatives, errors.positives, levels[::-1]),
    )


def _clopper_pearson_upper(errors: NDArray[np.intp], runs: int, level: float | Floats) -> Floats:
    """Return the rate at which `errors` or fewer of `runs` have probability `level`; 1 where every run is an error."""
    bound = betainccinv(errors + 1.0, np.maximum(runs - errors, 1.0), level)
    return np.where(errors >= runs, 1.0, bound)


def _claimed_tradeoff(delta_profile: DeltaProfile, epsilons: Iterable[float]) -> Callable[[Floats], Floats]:
    """Return the least FNR that the claim allows as a function of FPR."""
    grid = np.array([float(epsilon) for epsilon in epsilons])
    if grid.size == 0 or not (np.isfinite(grid).all() and (grid >= 0.0).all()):
        raise UserError(
            "The grid of epsilons is empty or holds a negative or infinite value: give finite numbers >= 0."
        )
    deltas = np.array([float(delta_profile(epsilon)) for epsilon in grid.tolist()])
    if not ((deltas >= 0.0) & (deltas <= 1.0)).all():
        raise UserError("The claimed delta profile leaves [0, 1]: give a function from epsilon to a probability.")
    grid, deltas = grid[:, np.newaxis], deltas[:, np.newaxis]

    def least_fnr(fpr: Floats) -> Floats:
        lines = np.maximum(1.0 - deltas - np.exp(grid) * fpr, np.exp(-grid) * (1.0 - deltas - fpr))
        return np.maximum(0.0, lines.max(axis=0))

    return least_fnr


def _checked_scores(scores: ArrayLike, name: str) -> Floats:
    try:
        given = np.asarray(scores)
        # A plain cast would drop an imaginary part with no more than a warning.
        checked = given.astype(np.float64, casting="unsafe" if given.dtype == object else "same_kind")
    except (TypeError, ValueError):
        raise UserError(f"The scores of {name} are not numbers: give one real number per run.") from None
    if checked.ndim != 1:
        raise UserError(f"The scores of {name} have shape {checked.shape}: give one number per run in a flat array.")
    if len(checked) < MIN_REPLICATES:
        raise UserError(
            f"{name} has {len(checked)} scores: run the mechanism at least {MIN_REPLICATES} times per side."
        )
    if np.isnan(checked).any():
        count = int(np.isnan(checked).sum())
        raise UserError(f"{count} scores of {name} are NaN: give every run a score, for example -inf for a failed one.")
    largest = np.finfo(np.float64).max
    return np.clip(checked, -largest, largest)


def _checked_beta(beta: float) -> float:
    if isinstance(beta, bool) or not isinstance(beta, int | float | np.floating) or not 0.0 < beta < 1.0:
        raise UserError(f"beta is {beta!r}: give the error probability of the bound, for example {BETA}.")
    return float(beta)
