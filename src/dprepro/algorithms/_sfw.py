"""What the two one-pass stochastic Frank-Wolfe methods share (BGM21, section 4, Algorithms 1 and 6).

R rounds; round r takes 2^r steps with eta_t = 1/sqrt(t+1), on batches that no other step sees: b samples at t = 0 and
floor(b/(t+1)) at t >= 1. Within a round the gradient is estimated recursively,

    nabla^t = (1 - eta_t) (nabla^{t-1} + Delta^t) + eta_t g^t

with g^t the mean gradient at w^t over the batch of step t and Delta^t that of the change since w^{t-1}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dprepro.algorithms.base import Condition, Plan, Setting, smallest_n
from dprepro.errors import UserError, VacuousSetting

if TYPE_CHECKING:
    from dprepro.run import Execution

Array = Any

# What the theorems bound; it is observed by `Execution.candidate`.
GAP = "stationarity gap"
# With one round the output is the initial point.
FEWEST_ROUNDS = 2
# Twenty rounds are a million steps.
MOST_ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class SFWPlan(Plan):
    """R rounds and the batch size b; constants L0, L1 and the diameter D are in the l_p norm."""

    R: int
    b: int
    p: float
    L0: float
    L1: float
    D: float


def signal(setting: Setting) -> float:
    """Return epsilon / sqrt(ln(1/delta)); 1 without noise, where the sampling error alone sets the rounds."""
    return setting.epsilon / math.sqrt(math.log(1.0 / setting.delta)) if setting.noisy else 1.0


def eta(t: int) -> float:
    """Return the step size of step t of a round."""
    return 1.0 / math.sqrt(t + 1.0)


def samples(R: int, b: int) -> int:
    """Return how many samples all batches take together: sum over r < R and t < 2^r of floor(b/(t+1))."""
    # Step t is taken by every round with 2^r > t.
    return sum((R - t.bit_length()) * (b // (t + 1)) for t in range(2 ** (R - 1)))


def gradient_evaluations(R: int, b: int) -> int:
    """Return the number of gradients: two for each sample, one for those of the first step of a round."""
    return 2 * samples(R, b) - R * b


def largest_batch(R: int, n: int) -> int:
    """Return b = floor(n / sum_r H(2^r)), the largest with which the batches b/(t+1) of R rounds take n samples."""
    shares = sum((R - t.bit_length()) / (t + 1) for t in range(2 ** (R - 1)))
    return int(n / shares)


def theorems_batch(n: int) -> int:
    """Return b = floor(n / ln(n)^2) of Theorems 8 and 11."""
    return int(n / max(1.0, math.log(n)) ** 2)


def theorems_rounds(name: str, theorem: str, setting: Setting, rounds: Callable[[float], float]) -> int:
    """Return floor(rounds(n)), at least two, or raise `VacuousSetting` with the first n that has two.

    For the few samples of a large epsilon it is cut where batches of the theorem's size would not suffice.
    """

    def fitting(n: float) -> int:
        b = theorems_batch(int(n))
        R = math.floor(min(rounds(n) + 1e-9, b.bit_length()))
        while R >= FEWEST_ROUNDS and samples(R, b) > n:
            R -= 1
        return R

    R = fitting(setting.problem.n)
    if R >= FEWEST_ROUNDS:
        return R
    # ln(n)^2/n falls from n = 8 on only.
    enough = smallest_n(setting, lambda n: n >= 8.0 and fitting(n) >= FEWEST_ROUNDS)
    raise VacuousSetting(
        f"{name} does not look at the data at n = {setting.problem.n}: {theorem} has R = {max(R, 0)} rounds, and with "
        f"fewer than two the output is the initial point; it makes sense from n = {enough}. Give more data, a larger "
        "epsilon, or set R."
    )


def practical_rounds(name: str, setting: Setting, bound: Callable[[int, int], float]) -> int:
    """Return the R up to which `bound(R, b)` falls, with the largest b that the data allow."""
    n = setting.problem.n
    best, smallest = 0, math.inf
    for R in range(FEWEST_ROUNDS, MOST_ROUNDS + 1):
        b = largest_batch(R, n)
        if b < 2 ** (R - 1) or (value := bound(R, b)) >= smallest:
            break
        best, smallest = R, value
    if not best:
        raise VacuousSetting(f"{name} has no batches for two rounds at n = {n}: give at least 5 samples.")
    return best


def check_rounds(name: str, R: int, b: int, n: int) -> None:
    """Raise `UserError` unless R rounds look at data, no batch is empty and all are of different samples."""
    if not FEWEST_ROUNDS <= R <= MOST_ROUNDS:
        raise UserError(
            f"R of {name} is {R}: give {FEWEST_ROUNDS} to {MOST_ROUNDS} rounds; with one the output is the initial "
            "point."
        )
    if b < 2 ** (R - 1):
        raise UserError(f"b of {name} is {b}: the last of {2 ** (R - 1)} steps has no sample; give a larger b.")
    if samples(R, b) > n:
        raise UserError(
            f"{name} with R = {R} and b = {b} takes {samples(R, b)} samples, but there are {n}: "
            f"give b <= {largest_batch(R, n)} or a smaller R."
        )


def one_pass(R: int, b: int, n: int) -> Condition:
    """Return the condition that the batches are disjoint, with the share of the data that they take."""
    used = samples(R, b)
    detail = f"{used} of {n} samples ({used / n:.2%})"
    return Condition("all batches fit into the data", used <= n, detail, privacy=True)


def conditions(setting: Setting, R: int, b: int) -> tuple[Condition, ...]:
    """Return the conditions of Theorems 8 and 11."""
    fits = one_pass(R, b, setting.problem.n)
    if setting.problem.regularizer.name == "none":
        return (fits,)
    return (fits, Condition("no regularizer", False, "the theorem bounds the gap of the loss alone"))


def moves(steps: int, b: int, lipschitz: float, turn: float) -> list[float]:
    """Return S_k: how far replacing a sample of batch k moves nabla^k, in the norm of the constants.

    `lipschitz` bounds the gradients of a sample, `turn` the change of one between points as far apart as the set is
    wide. As ||w^k - w^{k-1}|| <= eta_{k-1} D, the change of one is at most eta_{k-1} turn, and at most 2 lipschitz:

        S_0 = 2 lipschitz / b,
        S_k = 2 ((1 - eta_k) min(eta_{k-1} turn, 2 lipschitz) + eta_k lipschitz) / floor(b/(k+1)).

    The factor two is that of a replacement. In nabla^t, t > k, the sample moves by S_k (1 - eta_{k+1}) ... (1 - eta_t):
    the points are functions of what was released before, the same on both neighbours.
    """
    changes = [0.0] + [min(eta(k - 1) * turn, 2.0 * lipschitz) for k in range(1, steps)]
    return [move(k, b, lipschitz, change) for k, change in enumerate(changes)]


def move(k: int, b: int, lipschitz: float, change: Any) -> Any:
    """Return S_k for a sample whose gradient changes by at most `change` from w^{k-1} to w^k."""
    return 2.0 * ((1.0 - eta(k)) * change + eta(k) * lipschitz) / (b // (k + 1))


def run_rounds(
    plan: SFWPlan,
    ex: Execution,
    noise: Callable[[int, Array], Array | float],
    towards: Callable[[int, Array], Array],
) -> Array:
    """Execute the rounds and return a uniformly random one of the 2^R - 1 points at which a step begins.

    `noise(t, w - w_before)` is added to the estimate of step t and goes along with it; `towards(r, nabla)` is the point
    to step towards. Comments give the line numbers of Algorithm 1.
    """
    chosen = ex.uniform_index(2**plan.R - 1)
    w = w_before = output = ex.start()  # 1
    nabla = ex.zeros()
    step = 0
    for r in range(plan.R):  # 2
        for t in range(2**r):  # 8
            output = ex.xp.where(chosen == step, w, output)  # 15
            ex.candidate(w)
            batch = ex.fresh(plan.b // (t + 1))  # 4, 9
            g = ex.batch_gradient(w, batch)  # 5
            if t > 0:
                # 10, 11 with the two terms of g^t put together, so that a sample is differentiated twice
                g = g + (1.0 - eta(t)) * (nabla - ex.batch_gradient(w_before, batch))
            nabla = g + noise(t, w - w_before)
            v = towards(r, nabla + ex.regularizer_gradient(w))  # 6, 12
            w_before, w = w, (1.0 - eta(t)) * w + eta(t) * v  # 7, 13
            ex.checkpoint(w)
            step += 1
    return output
