"""Pairs of neighbouring datasets that make an algorithm leak, and the attacker's scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.geometry import RealSpace, get_set
from dprepro.losses import Huber, Sigmoid
from dprepro.problems.erm import FAR_LABEL, ProblemSpec
from dprepro.regularizers import Regularizer

if TYPE_CHECKING:
    from dprepro.algorithms.base import Plan

Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Transcript:
    """What an attacker sees of a run: the output, every point before and after a proximal step, and after a round.

    `before[t]`, `after[t]` and `points[r]` have shape (K, d); `eta` is the step size.
    """

    output: np.ndarray
    before: np.ndarray
    after: np.ndarray
    points: np.ndarray
    eta: float

    @property
    def directions(self) -> np.ndarray:
        """The released directions v_t = (x_{t-1} - before_t) / eta of a run that starts at 0: (steps, K, d)."""
        start = np.concatenate([np.zeros_like(self.after[:1]), self.after[:-1]])
        return (start - self.before) / self.eta


@dataclass(frozen=True)
class Case:
    """A pair of neighbouring datasets, the letters of the runs, and the attacker's score of a transcript.

    `published` are the letters of that variant where they are others, such as those of its own estimator.
    """

    name: str
    spec: ProblemSpec
    rows: Rows
    neighbour: Rows
    letters: Mapping[str, Any]
    score: Callable[[Transcript, Case, Plan], np.ndarray]
    published: Mapping[str, Any] | None = None
    # Whether it was made without knowing the algorithm.
    generic: bool = False

    def letters_of(self, variant: str) -> Mapping[str, Any]:
        """Return the letters of the runs of a variant."""
        return self.letters if self.published is None or variant != "published" else self.published


def linear_case(n: int, letters: Mapping[str, Any]) -> Case:
    """Return a case on which every full gradient moves by exactly 2G/n: one record whose loss is linear.

    The other records are zero. The score is the output's coordinate along the record.
    """
    X = np.zeros((n, 2))
    X[0, 0] = 1.0
    up, down = np.zeros(n), np.zeros(n)
    up[0], down[0] = FAR_LABEL, -FAR_LABEL
    spec = ProblemSpec(n, 2, Huber(1.0), Regularizer(), RealSpace(), label_bound=FAR_LABEL)
    return Case("linear loss, output", spec, (X, up), (X, down), letters, lambda seen, case, plan: seen.output[:, 0])


def generic_case(needs: frozenset[str], letters: Mapping[str, Any]) -> Case:
    """Return the linear case for an algorithm of which no more is known than what it needs of a problem.

    Bounded sets are so large that steps hardly meet their boundary, a regulariser so weak that it hardly moves them.
    """
    case = linear_case(50, letters)
    if needs & {"bounded", "centrally_symmetric", "polytope"}:
        case = linear_ball_case(50, "l1_ball:1000" if "polytope" in needs else "l2_ball:1000", letters)
    if "strongly_convex" in needs:
        case = replace(case, spec=replace(case.spec, regularizer=Regularizer(l2=1e-3)))
    return replace(case, generic=True)


def drifting_case(letters: Mapping[str, Any]) -> Case:
    """Return a case on which the sampled difference of one record turns by up to 2G, in opposite directions.

    All records but one have a constant gradient that drives the iterate along the first axis. The record x or x' in
    question leans a little towards that axis and points up or down along the second: where the iterate has turned
    its gradient from -x to +x, the difference is 2x on the one dataset and 2x' on the other. The score is the exact
    log-likelihood ratio of the released directions, which the attacker can compute, since every other record is
    known and contributes no difference.

    The accountant lets the difference and the full gradient shift together in the worst way, by 4G/b and 2G/n. For
    convex losses the two shifts oppose each other on average, so no case can prove all that is accounted.
    """
    n = 20
    lean = 0.3
    X = np.zeros((n, 2))
    X[1:, 0] = 1.0
    y = np.full(n, FAR_LABEL)
    y[0] = 1.0
    record = np.array([lean, math.sqrt(1.0 - lean**2)])
    X[0] = record
    mirrored = X.copy()
    mirrored[0, 1] = -record[1]
    spec = ProblemSpec(n, 2, Huber(1.0), Regularizer(l2=1e-6), RealSpace(), label_bound=FAR_LABEL)
    return Case("drifting iterate, transcript", spec, (X, y), (mirrored, y), letters, _likelihood_ratio)


def sampled_case(letters: Mapping[str, Any]) -> Case:
    """Return the linear case for an algorithm of sampled gradients with a constant step.

    A gradient is +1/b or -1/b along the record where the record was drawn, and zero else. The score is the exact
    log-likelihood ratio of the released directions.
    """
    case = linear_case(20, letters)
    return replace(case, name="linear loss, transcript", score=_sampled_likelihood_ratio)


def _sampled_likelihood_ratio(seen: Transcript, case: Case, plan: Plan) -> np.ndarray:
    """Return log(density under the dataset / density under its neighbour) of all released directions: (K,)."""
    sampled = next(part for event in plan.events for part in getattr(event, "parts", ()) if not part.full)
    q, b = sampled.batch / sampled.population, sampled.batch
    along = seen.directions[:, :, 0]

    def log_density(slope: float) -> np.ndarray:
        unseen, drawn = (-0.5 * (along - shift) ** 2 / plan.sigma**2 for shift in (0.0, slope / b))
        return np.sum(np.logaddexp(np.log1p(-q) + unseen, np.log(q) + drawn), axis=0)

    # The gradient of the Huber loss is against its label.
    return log_density(-1.0) - log_density(1.0)


def _likelihood_ratio(seen: Transcript, case: Case, plan: Any) -> np.ndarray:
    """Return log(density under the dataset / density under its neighbour) of all released directions: (K,)."""
    sampled = next(part for event in plan.events for part in getattr(event, "parts", ()) if not part.full)
    q, b = sampled.batch / sampled.population, sampled.batch
    points = np.concatenate([np.zeros_like(seen.after[:1]), seen.after[:-1]])

    def log_density(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        record = X[0]
        rest = seen.directions - (np.clip(-y, -1.0, 1.0) @ X) / len(y)
        turned = np.clip(points @ record - y[0], -1.0, 1.0) - np.clip(-y[0], -1.0, 1.0)
        if plan.r is not None:
            turned = np.clip(turned, -plan.r, plan.r)  # the record has norm one
        moved = rest - turned[..., None] * record / b
        unseen, drawn = (-0.5 * np.sum(r**2, axis=-1) / plan.sigma**2 for r in (rest, moved))
        return np.sum(np.logaddexp(np.log1p(-q) + unseen, np.log(q) + drawn), axis=0)

    return log_density(*case.rows) - log_density(*case.neighbour)


def linear_ball_case(n: int, constraint: str, letters: Mapping[str, Any]) -> Case:
    """Return `linear_case` for algorithms that need a bounded set: the same records, over a ball.

    On a large l2 ball the steps of mirror methods never meet the boundary, so that the output is a weighted sum of all
    noisy gradients.
    """
    case = linear_case(n, letters)
    spec = replace(case.spec, constraint=get_set(constraint))
    return replace(case, name=f"linear loss on {constraint}, output", spec=spec)


def vertex_case(n: int, letters: Mapping[str, Any]) -> Case:
    """Return a case in one dimension for algorithms that choose a vertex with noise: the first record tips the choice.

    Its gradient is -1 or 1, that of the next two records 1, and 0 for the others. One of the two vertices is therefore
    chosen less often, and how much less is what the record tells: two equally likely choices would differ by half of
    epsilon only. The score is where the first step went.
    """
    X, labels = np.zeros((n, 1)), np.full(n, -FAR_LABEL)
    X[:3] = 1.0
    other = labels.copy()
    other[0] = FAR_LABEL
    spec = ProblemSpec(n, 1, Huber(1.0), Regularizer(), get_set("l1_ball:1"), label_bound=FAR_LABEL)
    return Case("first vertex, leaning", spec, (X, labels), (X, other), letters, _first_step)


def sphere_case(n: int, letters: Mapping[str, Any]) -> Case:
    """Return a case in the plane for algorithms that step towards the end of the ball along a noisy gradient.

    All records but the first have the gradient 1 along the second axis. The direction of the first step then tells what
    noise and first record add along the first axis, as if the gradient itself were seen. The score is that coordinate.
    """
    X, labels = np.zeros((n, 2)), np.full(n, -FAR_LABEL)
    X[0, 0] = 1.0
    X[1:, 1] = 1.0
    other = labels.copy()
    other[0] = FAR_LABEL
    spec = ProblemSpec(n, 2, Huber(1.0), Regularizer(), get_set("l2_ball:1"), label_bound=FAR_LABEL)
    return Case("first step on the disc", spec, (X, other), (X, labels), letters, _first_step)


def _first_step(seen: Transcript, case: Case, plan: Plan) -> np.ndarray:
    """Return the first coordinate of the point after the first round: (K,)."""
    return np.asarray(seen.points[0, :, 0])


def turning_case(letters: Mapping[str, Any]) -> Case:
    """Return a case on one line for algorithms of gradients and of gradient differences, with a constant step.

    The sigmoid loss of the first record has the label +1 or -1: the one gradient is minus the other, and so is the one
    curvature. All other records drive the iterate from 0, where gradients are longest, to where curvature is largest.
    The score is the exact log-likelihood ratio of all releases, which the points after every step give away.
    """
    n = 200
    X, labels = np.ones((n, 1)), np.ones(n)
    other = labels.copy()
    other[0] = -1.0
    spec = ProblemSpec(n, 1, Sigmoid(), Regularizer(), RealSpace())
    return Case("sigmoid of two signs, transcript", spec, (X, labels), (X, other), letters, _releases_ratio)


def _releases_ratio(seen: Transcript, case: Case, plan: Any) -> np.ndarray:
    """Return log(density under the dataset / density under its neighbour) of gradients and full differences: (K,)."""
    after = seen.points
    before = np.concatenate([np.zeros_like(after[:1]), after[:-1]])
    estimates = (before - after) / plan.eta
    moves = np.linalg.norm(np.diff(before, axis=0), axis=-1)
    first = np.arange(len(after)) % plan.q == 0
    releases = np.where(first[:, None, None], estimates, np.diff(estimates, axis=0, prepend=0.0))
    scales = np.concatenate([np.ones_like(moves[:1]), np.minimum(moves, plan.longest)])
    sigmas = np.where(first[:, None], plan.sigma, plan.sigma2 * scales)

    def log_density(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        A = y[:, None] * X  # the sigmoid is a margin loss
        gradients = case.spec.loss.derivative(np, before @ A.T, y) @ A / len(y)
        means = np.where(first[:, None, None], gradients, np.diff(gradients, axis=0, prepend=0.0))
        return -0.5 * np.sum(np.sum((releases - means) ** 2, axis=-1) / sigmas**2, axis=0)

    return log_density(*case.rows) - log_density(*case.neighbour)
