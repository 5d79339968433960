"""Bounds hold with confidence 1 - beta by construction; beta is 1e-3 wherever a test does not say otherwise.

Seeds are fixed, so a passing test stays passing. The false-alarm probabilities stated are those of a fresh seed for
correct code.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from dprepro.errors import UserError
from dprepro.privacy import bounds
from dprepro.privacy.accounting import gaussian_delta, gaussian_epsilon
from dprepro.privacy.bounds import audit_bounds, largest_refuted_scale, split, violates

DELTA = 1e-5
# So small that it says nothing about mechanisms of pure DP.
NO_DELTA = 1e-12
RUNS = 20_000


def mu_of(epsilon):
    return brentq(lambda mu: gaussian_delta(mu, epsilon) - DELTA, 1e-3, 20.0, xtol=1e-14)


def gaussian_scores(rng, mu, runs=RUNS):
    return rng.normal(size=runs), mu + rng.normal(size=runs)


@functools.cache
def bounds_at_exact_calibration():
    rng = np.random.default_rng(11)
    return [audit_bounds(*gaussian_scores(rng, mu_of(1.0)), DELTA) for _ in range(200)]


# Confidence


def test_the_true_rates_escape_the_corners_with_probability_at_most_beta():
    """Exact over all outcomes of 100 and 150 runs: no false alarms."""
    negatives, positives, beta = 100, 150, 0.01
    every_count = bounds._Errors(
        np.arange(negatives + 1)[:, np.newaxis], negatives, np.arange(positives + 1)[:, np.newaxis], positives
    )
    fpr_upper, fnr_upper = bounds._upper_corners(every_count, beta)
    escapes = []
    for fpr in (0.001, 0.03, 0.2, 0.5, 0.8, 0.99):
        for fnr in (0.001, 0.02, 0.3, 0.5, 0.9, 0.999):
            covered = ((fpr_upper >= fpr).astype(float) @ (fnr_upper >= fnr).astype(float).T) > 0
            chance = np.outer(
                binom.pmf(np.arange(negatives + 1), negatives, fpr), binom.pmf(np.arange(positives + 1), positives, fnr)
            )
            escapes.append(chance[~covered].sum())
    assert max(escapes) <= beta
    assert max(escapes) > 0.1 * beta


@pytest.mark.parametrize("errors", [0, 1, 37, 199])
def test_clopper_pearson_inverts_the_binomial_distribution(errors):
    upper = float(bounds._clopper_pearson_upper(np.asarray(errors), 200, 1e-3))
    assert binom.cdf(errors, 200, upper) == pytest.approx(1e-3, rel=1e-6)


def test_clopper_pearson_is_one_where_every_run_is_an_error():
    assert float(bounds._clopper_pearson_upper(np.asarray(200), 200, 1e-3)) == 1.0


def test_at_exact_calibration_bounds_stay_below_the_truth():
    """Each of 200 bounds may exceed the truth with probability 1e-3, which is 0.2 cases expected.

    Four or more have probability 6e-5 at the guaranteed rate, and far less at the real one: the corners miss with
    4e-4 here and Clopper-Pearson, which also gives away the shape of the curve, practically never.
    """
    truth = gaussian_epsilon(mu_of(1.0), DELTA)
    found = bounds_at_exact_calibration()
    assert sum(bound.epsilon_tradeoff > truth for bound in found) <= 3
    assert sum(bound.epsilon_clopper_pearson > truth for bound in found) == 0


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_clopper_pearson_stays_below_the_epsilon_of_the_laplace_mechanism(epsilon):
    """A Laplace threshold attains epsilon itself, so 100 bounds miss 0.1 times in expectation; 3 or more: 2e-4."""
    rng = np.random.default_rng(12)
    found = []
    for _ in range(100):
        scores0, scores1 = rng.laplace(0.0, 1 / epsilon, 4000), rng.laplace(1.0, 1 / epsilon, 4000)
        found.append(audit_bounds(scores0, scores1, NO_DELTA).epsilon_clopper_pearson)
    assert sum(bound > epsilon for bound in found) <= 2
    assert np.median(found) > 0.3 * epsilon


def test_clopper_pearson_is_nearly_tight_for_randomized_response():
    """Discrete scores: epsilon = log 3 exactly. Above the truth: 1e-3; below 80 % of it: under 1e-9."""
    rng = np.random.default_rng(13)
    scores0, scores1 = rng.random(RUNS) < 0.25, rng.random(RUNS) < 0.75
    bound = audit_bounds(scores0, scores1, NO_DELTA)
    assert 0.8 * math.log(3) < bound.epsilon_clopper_pearson <= math.log(3)


@pytest.mark.parametrize("seed", range(5))
def test_identical_distributions_give_zero(seed):
    """Each of the two bounds is positive with probability at most 1e-3."""
    bound = audit_bounds(*gaussian_scores(np.random.default_rng(seed), 0.0), DELTA)
    assert (bound.epsilon_clopper_pearson, bound.epsilon_tradeoff, bound.mu_lower) == (0.0, 0.0, 0.0)


def test_constant_scores_give_zero():
    bound = audit_bounds(np.full(300, 2.0), np.full(400, 2.0), DELTA)
    assert (bound.epsilon_clopper_pearson, bound.epsilon_tradeoff) == (0.0, 0.0)
    assert bound.threshold == 2.0


# Power


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_the_tradeoff_bound_of_a_correct_mechanism_is_typically_within_70_and_100_percent(epsilon):
    """The median of 61 bounds. At epsilon = 1 one bound in six is below 70 %, the median with probability 1e-9.

    Higher floors for single bounds need more runs; 35 % is missed with probability under 1e-6.
    """
    rng = np.random.default_rng(14)
    found = [audit_bounds(*gaussian_scores(rng, mu_of(epsilon)), DELTA).epsilon_tradeoff for _ in range(61)]
    assert 0.7 * epsilon <= np.median(found) <= epsilon
    assert min(found) > 0.35 * epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_noise_two_times_too_small_is_detected(epsilon):
    """Short of the claim: 1e-5 at epsilon = 0.5, much less above. Above the truth: 1e-3 per seed."""
    truth = gaussian_epsilon(2 * mu_of(epsilon), DELTA)
    for seed in range(5):
        scores = gaussian_scores(np.random.default_rng(seed), 2 * mu_of(epsilon))
        assert epsilon < audit_bounds(*scores, DELTA).epsilon_tradeoff <= truth


def test_clopper_pearson_finds_gross_errors():
    """Noise eight times too small at epsilon = 1; short of twice the claim with probability under 1e-6."""
    scores = gaussian_scores(np.random.default_rng(15), 8 * mu_of(1.0))
    found = audit_bounds(*scores, DELTA).epsilon_clopper_pearson
    assert 2.0 < found < gaussian_epsilon(8 * mu_of(1.0), DELTA)


def test_more_confidence_means_a_smaller_bound():
    scores = gaussian_scores(np.random.default_rng(16), 1.0)
    found = [audit_bounds(*scores, DELTA, beta) for beta in (1e-6, 1e-3, 0.05)]
    for bound in ("mu_lower", "epsilon_tradeoff", "epsilon_clopper_pearson"):
        sure, usual, unsure = (getattr(each, bound) for each in found)
        assert sure < usual < unsure


# Invariance: exact, no false alarms.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a, b: (b, a), id="datasets swapped"),
        pytest.param(lambda a, b: (-a, -b), id="scores negated"),
        pytest.param(lambda a, b: (0.25 * a, 0.25 * b), id="scaled"),
        pytest.param(lambda a, b: (a + 3.0, b + 3.0), id="shifted"),
        pytest.param(lambda a, b: (7.0 - 100.0 * b, 7.0 - 100.0 * a), id="all at once"),
    ],
)
@pytest.mark.parametrize("rounded", [False, True])
def test_bounds_do_not_depend_on_names_signs_or_units(seed, change, rounded):
    scores = gaussian_scores(np.random.default_rng(seed), 0.8, 4001)
    scores = tuple(np.round(2 * side) for side in scores) if rounded else scores
    before, after = audit_bounds(*scores, DELTA), audit_bounds(*change(*scores), DELTA)
    assert after.epsilon_clopper_pearson == pytest.approx(before.epsilon_clopper_pearson, rel=1e-12)
    assert after.mu_lower == pytest.approx(before.mu_lower, rel=1e-12)
    assert after.epsilon_tradeoff == pytest.approx(before.epsilon_tradeoff, rel=1e-9)


def test_the_record_tells_the_errors_of_the_judged_half_at_its_threshold():
    scores = gaussian_scores(np.random.default_rng(17), 0.8, 5000)
    bound = audit_bounds(*scores, DELTA, beta=0.01)
    assert bound.epsilon_tradeoff == gaussian_epsilon(bound.mu_lower, DELTA)
    _, (judged0, judged1) = split(*scores)
    assert bound.fpr == np.mean(judged0 > bound.threshold)
    assert bound.fnr == np.mean(judged1 <= bound.threshold)
    assert (bound.replicates, bound.beta) == (5000, 0.01)
    with pytest.raises(dataclasses.FrozenInstanceError):
        bound.beta = 0.5


def test_split_keeps_order_and_sizes():
    (choose0, choose1), (judge0, judge1) = split(np.arange(201), np.arange(300))
    assert (len(choose0), len(choose1), len(judge0), len(judge1)) == (100, 150, 101, 150)
    np.testing.assert_array_equal(np.concatenate([choose0, judge0]), np.arange(201))
    np.testing.assert_array_equal(np.concatenate([choose1, judge1]), np.arange(300))


def test_unequal_numbers_of_runs_are_allowed():
    """Above the truth with probability 1e-3; below half of it with probability under 1e-6."""
    rng = np.random.default_rng(18)
    bound = audit_bounds(rng.normal(size=30_000), 1.0 + rng.normal(size=9000), DELTA)
    assert 0.5 < bound.mu_lower <= 1.0
    assert bound.replicates == 9000


def test_infinite_scores_are_the_strongest_evidence():
    """A tenth of the runs gives the dataset away. log(0.07 / 0.008) = 2.2 is the most 1000 judged runs can show.

    Short of 0.5, which takes some 25 misplaced runs, with probability under 1e-6.
    """
    rng = np.random.default_rng(19)
    scores0, scores1 = rng.normal(size=2000), rng.normal(size=2000)
    scores1[::10] = np.inf
    scores0[::10] = -np.inf
    bound = audit_bounds(scores0, scores1, DELTA)
    assert bound.epsilon_clopper_pearson > 0.5
    assert bound.mu_lower > 0.0


def test_scores_may_be_any_real_numbers():
    scores = gaussian_scores(np.random.default_rng(17), 0.8, 300)
    exact = [[Fraction(score) for score in side] for side in scores]
    assert audit_bounds(*exact, DELTA) == audit_bounds(*scores, DELTA)
    whole = [(4 * side).astype(int) for side in scores]
    assert audit_bounds(*whole, DELTA) == audit_bounds(*[side.astype(float) for side in whole], DELTA)


# Any claimed curve


def test_violates_and_the_tradeoff_bound_agree_on_gaussian_claims():
    """The same corners against the same curve, on different guesses: 15 % either way is over five standard errors."""
    scores = gaussian_scores(np.random.default_rng(20), 1.0)
    mu = audit_bounds(*scores, DELTA).mu_lower
    assert violates(*scores, lambda epsilon: gaussian_delta(0.85 * mu, epsilon))
    assert not violates(*scores, lambda epsilon: gaussian_delta(1.15 * mu, epsilon))


def test_violates_rarely_accuses_a_true_claim():
    """100 tests at 1e-3 each, 0.1 false accusations expected; 3 or more have probability 2e-4."""
    rng = np.random.default_rng(21)
    claim = functools.cache(lambda epsilon: gaussian_delta(0.5, epsilon))
    assert sum(violates(*gaussian_scores(rng, 0.5, 4000), claim) for _ in range(100)) <= 2


STEPS, SAMPLING, SIGMA = 50, 0.1, 2.0


def subsampled_scores(rng, sigma, runs=RUNS):
    """Log-likelihood ratios, with the claimed noise, of Poisson-subsampled Gaussian sums without and with a record."""
    noise = sigma * rng.normal(size=(2, runs, STEPS))
    noise[1] += rng.random((runs, STEPS)) < SAMPLING
    return np.log1p(SAMPLING * np.expm1((noise - 0.5) / SIGMA**2)).sum(axis=-1)


@functools.cache
def subsampled_profile(scale):
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    single = from_gaussian_mechanism(SIGMA / scale, sampling_prob=SAMPLING, value_discretization_interval=1e-3)
    return single.self_compose(STEPS).get_delta_for_epsilon


def test_violates_accepts_a_correct_subsampled_gaussian():
    """False alarm 1e-3 for each seed."""
    for seed in range(3):
        assert not violates(*subsampled_scores(np.random.default_rng(seed), SIGMA), subsampled_profile(1.0))


def test_violates_rejects_a_subsampled_gaussian_with_half_the_noise():
    """Missed with probability under 1e-6; a scale of 2 or more is wrongly refuted with probability 1e-3."""
    scores = subsampled_scores(np.random.default_rng(22), SIGMA / 2)
    assert violates(*scores, subsampled_profile(1.0))
    refuted = largest_refuted_scale(*scores, subsampled_profile, [2.0, 1.0, 1.5, 1.25, 1.75])
    assert refuted in (1.25, 1.5, 1.75)


def test_no_scale_is_refuted_for_a_correct_mechanism():
    """False alarm 1e-3."""
    scores = subsampled_scores(np.random.default_rng(23), SIGMA)
    assert largest_refuted_scale(*scores, subsampled_profile, [1.0, 1.5]) is None


# Bad input

GOOD = np.linspace(0.0, 1.0, 300)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (GOOD[:199], "at least 200 times"),
        ([], "at least 200 times"),
        (np.where(GOOD > 0.99, np.nan, GOOD), "are NaN"),
        (GOOD.reshape(2, 150), "flat array"),
        (["a"] * 300, "not numbers"),
        (1j * GOOD, "not numbers"),
    ],
)
def test_bad_scores_are_refused_on_either_side(scores, message):
    for pair in ((scores, GOOD), (GOOD, scores)):
        for bound in (
            lambda a, b: audit_bounds(a, b, DELTA),
            lambda a, b: violates(a, b, lambda epsilon: 0.0),
            split,
        ):
            with pytest.raises(UserError, match=message):
                bound(*pair)


@pytest.mark.parametrize("delta", [-0.1, 0.0, 1.0, math.nan, "small", None])
def test_bad_delta_is_refused(delta):
    with pytest.raises(UserError, match=r"delta is .*: give a number"):
        audit_bounds(GOOD, GOOD, delta)


@pytest.mark.parametrize("beta", [0.0, 1.0, -1.0, math.nan, "0.1", True])
def test_bad_beta_is_refused(beta):
    words = r"beta is .*: give the error probability of the bound, for example 0\.001\."
    with pytest.raises(UserError, match=words):
        audit_bounds(GOOD, GOOD, DELTA, beta)
    with pytest.raises(UserError, match=words):
        violates(GOOD, GOOD, lambda epsilon: 0.0, beta)


@pytest.mark.parametrize(
    "profile", [lambda e: math.nan, lambda e: -0.1, lambda e: 1.1, lambda e: 0.2 if e < 1 else -0.1]
)
def test_a_profile_outside_the_unit_interval_is_refused(profile):
    with pytest.raises(UserError, match="claimed delta profile"):
        violates(GOOD, GOOD, profile)


@pytest.mark.parametrize(
    "epsilons", [[], [-1.0], [math.inf], [math.nan], [0.0, -1.0], [0.0, math.inf], [1.0, math.nan]]
)
def test_a_bad_grid_of_epsilons_is_refused(epsilons):
    with pytest.raises(UserError, match="grid of epsilons"):
        violates(GOOD, GOOD, lambda epsilon: 0.1, epsilons=epsilons)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_bad_scale_is_refused(scale):
    with pytest.raises(UserError, match="noise scale"):
        largest_refuted_scale(GOOD, GOOD, lambda scale: lambda epsilon: 0.1, [scale])
