"""Cases of audits: the datasets are neighbours, and the scores of attackers are likelihood ratios."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from dprepro.arrays import get_backend
from dprepro.privacy import cases
from dprepro.privacy.cases import Transcript
from dprepro.privacy.events import GaussianEvent, QueryPart
from dprepro.problems import make_risk

MAKE = {
    "linear": lambda: cases.linear_case(30, {}),
    "generic": lambda: cases.generic_case(frozenset({"bounded", "strongly_convex"}), {}),
    "drifting": lambda: cases.drifting_case({}),
    "sampled": lambda: cases.sampled_case({}),
    "on a ball": lambda: cases.linear_ball_case(30, "l2_ball:1000", {}),
    "vertex": lambda: cases.vertex_case(30, {}),
    "sphere": lambda: cases.sphere_case(30, {}),
    "turning": lambda: cases.turning_case({}),
}


@pytest.mark.parametrize("name", MAKE)
def test_the_datasets_differ_in_the_first_record_alone_and_stay_within_the_bounds_of_the_problem(name):
    case = MAKE[name]()
    (X, y), (other_X, other_y) = case.rows, case.neighbour
    assert X.shape == other_X.shape == (case.spec.n, case.spec.d)
    differ = np.any(other_X != X, axis=1) | (y != other_y)
    np.testing.assert_array_equal(np.flatnonzero(differ), [0])
    for rows, labels in (case.rows, case.neighbour):
        assert np.linalg.norm(rows, axis=1).max() == pytest.approx(case.spec.row_norm)
        assert np.abs(labels).max() <= case.spec.label_bound


def gradient(case, rows, W):
    """The gradient of the empirical risk: (K, d) -> (K, d)."""
    return make_risk(case.spec, *rows, get_backend("cpu", "float64")).gradient(W)


@pytest.mark.parametrize("name", ["linear", "generic", "sampled", "on a ball", "vertex", "sphere"])
@pytest.mark.parametrize("size", [0.0, 1.0, 500.0])
def test_the_record_moves_every_full_gradient_as_far_as_it_can(name, size):
    case = MAKE[name]()
    W = size * np.array([[1.0, -0.5], [0.3, 0.2]])[:, : case.spec.d]
    moved = gradient(case, case.rows, W) - gradient(case, case.neighbour, W)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 2.0 * case.spec.G / case.spec.n, rtol=1e-9)


def test_published_letters_are_those_of_the_published_variant_alone():
    case = cases.linear_case(30, {"T": 1})
    assert case.letters_of("published") == case.letters_of("certified") == {"T": 1}
    case = dataclasses.replace(case, published={"T": 2})
    assert (case.letters_of("published"), case.letters_of("certified")) == ({"T": 2}, {"T": 1})


SIGMA, B, N, ETA = 0.3, 5, 20, 2.0
RNG = np.random.default_rng(5)


def sampled_plan(r=None):
    parts = QueryPart(2.0 / N, N, N), QueryPart(2.0 / B, B, N)
    return SimpleNamespace(events=(GaussianEvent("step", SIGMA, parts, 4),), sigma=SIGMA, r=r)


def transcript(directions):
    """The run of proximal steps without a constraint from 0 along these directions (steps, K, d)."""
    after = -ETA * np.cumsum(directions, axis=0)
    return Transcript(after[-1], after, after, after, ETA)


def log_ratio(directions, unseen, moves):
    """log p/q of Gaussian releases that a record moves, if drawn, by moves[0] on the dataset and moves[1] on the other.

    `unseen` (steps, K, d) are the means without it, for both datasets.
    """
    densities = []
    for mean, move in zip(unseen, moves, strict=True):
        density = [norm.pdf(directions, m, SIGMA).prod(axis=-1) for m in (mean, mean + move)]
        densities.append(((1 - B / N) * density[0] + (B / N) * density[1]).prod(axis=0))
    return np.log(densities[0] / densities[1])


def test_the_score_of_sampled_gradients_is_the_logarithm_of_the_ratio_of_densities():
    case = MAKE["sampled"]()
    directions = RNG.normal(size=(4, 6, 1)) * np.array([1.0, 0.0])
    found = case.score(transcript(directions), case, sampled_plan())
    along = directions[..., :1]
    moves = [-np.sign(y[0]) * np.ones(1) / B for _, y in (case.rows, case.neighbour)]
    np.testing.assert_allclose(found, log_ratio(along, [0.0, 0.0], moves), rtol=1e-9)


@pytest.mark.parametrize("r", [None, 0.7])
@pytest.mark.parametrize("first", [None, -0.4, 1.5, -1.5])
def test_the_score_of_sampled_differences_is_the_logarithm_of_the_ratio_of_densities(r, first):
    """Steps begin with the full gradient at 0; a drawn record adds what its gradient has turned since then.

    Gradients of records with near labels are of all lengths and signs.
    """
    case = MAKE["drifting"]()
    if first is not None:
        y = np.linspace(first, 3.0, N) * (-1.0) ** np.arange(N)
        case = dataclasses.replace(case, rows=(case.rows[0], y), neighbour=(case.neighbour[0], y))
    directions = np.array([-0.4, 0.1]) + 0.5 * RNG.normal(size=(4, 6, 2))
    seen = transcript(directions)
    points = np.concatenate([np.zeros((1, 6, 2)), seen.after[:-1]])
    unseen, moves = [], []
    for X, y in (case.rows, case.neighbour):
        slopes = [case.spec.loss.derivative(np, Z, y) for Z in (np.zeros(len(y)), points @ X.T)]
        turned = (slopes[1] - slopes[0])[..., :1]
        assert first is not None or np.abs(turned).max() > 1.0
        unseen.append(slopes[0] @ X / len(y))
        moves.append((turned if r is None else np.clip(turned, -r, r)) * X[0] / B)
    found = case.score(seen, case, sampled_plan(r))
    np.testing.assert_allclose(found, log_ratio(directions, unseen, moves), rtol=1e-8)


def test_the_score_of_full_gradients_and_differences_is_the_logarithm_of_the_ratio_of_densities():
    """In every third step the gradient is released, else its difference, with noise in proportion to the move."""
    case = MAKE["turning"]()
    shorter = [(0.5 * X, y) for X, y in (case.rows, case.neighbour)]
    case = dataclasses.replace(case, rows=shorter[0], neighbour=shorter[1])
    after = np.cumsum(0.1 * RNG.normal(size=(6, 5, 1)), axis=0)
    before = np.concatenate([np.zeros((1, 5, 1)), after[:-1]])
    plan = SimpleNamespace(eta=ETA, q=3, longest=0.05, sigma=0.01, sigma2=0.2)
    estimates = (before - after) / ETA
    expected = np.zeros(5)
    for sign, rows in ((1.0, case.rows), (-1.0, case.neighbour)):
        gradients = np.array([gradient(case, rows, W) for W in before])
        for t in range(6):
            release, mean, sigma = estimates[t], gradients[t], plan.sigma
            if t % plan.q:
                release, mean = release - estimates[t - 1], mean - gradients[t - 1]
                sigma = plan.sigma2 * np.minimum(np.abs(before[t] - before[t - 1]), plan.longest)
            expected += sign * norm.logpdf(release, mean, sigma)[:, 0]
    found = case.score(Transcript(after[-1], after, after, after, 1.0), case, plan)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
