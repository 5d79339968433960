"""Tree-based Private Spider (ABG23, Algorithm 1; privacy Theorem 3.1, accuracy Theorem 3.2).

One pass over the data. A round estimates a gradient at the root of a binary tree of depth D and goes through the tree
in depth-first order: a left child shares point and estimate with its parent, a right child corrects the estimate of its
parent by a gradient difference over samples of its own. Every leaf takes a step of fixed length, unless its estimate
is so short that the leaf is returned. The loss must be smooth and need not be convex.

Privacy: the batches are disjoint. The points of a difference follow from earlier releases, and the steps between parent
and child bound how far they are apart. Replicates run side by side: one that has returned keeps its point, and the
releases that are still made for it go nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dprepro.algorithms.base import (
    Algorithm,
    Condition,
    Letter,
    Plan,
    Setting,
    UtilityBound,
    beyond_the_loss,
    refuse_vacuous,
    smallest_n,
)
from dprepro.errors import UserError, VacuousSetting
from dprepro.metrics import GRADIENT_NORM, RETURNED
from dprepro.privacy.events import DisjointGaussianEvent

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

ESTIMATE = "gradient estimate"
# The kinds of releases: gradients at the root, differences at right children.
ROOT, NODE = 0, 1
# What is observed of every replicate.
SAMPLES_SHARE = "share of the samples until the return"
FIRST_LEAF = "stopped at the first leaf"
MOST_DEPTH = 60

Conditions = tuple[Condition, ...]


@dataclass(frozen=True, kw_only=True)
class TreeSpiderPlan(Plan):
    """T rounds on trees of depth D with b samples at the root, and b/2^j at a right child of depth j.

    Steps have the length beta/(2^(D/2) L1); a leaf whose estimate is at most 2 alpha_tilde long is returned. L0 and L1
    are the Lipschitz constant and the smoothness of a sample's loss, F0 bounds the initial gap and p is the probability
    of failure that alpha_tilde = C alpha allows for. `sigma` is the noise at the root.
    """

    T: int
    b: int
    D: int
    alpha: float
    alpha_tilde: float
    beta: float
    F0: float
    p: float
    L0: float
    L1: float

    @property
    def step_length(self) -> float:
        """The length of every step."""
        return self.beta / (2.0 ** (self.D / 2) * self.L1)


class TreeSpider(Algorithm):
    """One-pass normalised gradient descent whose gradient estimates are kept up along a binary tree."""

    name = "tree_spider"
    title = "Tree-based Private Spider"
    paper = "ABG23"
    needs = frozenset({"smooth", "smooth_regularizer", "lipschitz"})
    plan_type = TreeSpiderPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "rounds, one tree each"),
        "b": Letter(int, "samples at the root of a tree, a multiple of 2^D"),
        "D": Letter(int, "depth of the trees"),
        "alpha": Letter(float, "accuracy that beta and alpha_tilde are computed from"),
        "beta": Letter(float, "step size parameter"),
        "alpha_tilde": Letter(float, "half the length of an estimate at which a leaf is returned"),
        "F0": Letter(float, "bound on F(0) - min F, 1 if not given"),
        "p": Letter(float, "probability of failure in the theorem's constant, 0.1 if not given"),
    }

    def audit_case(self) -> Case:
        """Return a linear loss on a disc whose first record, in the batch of the first root, turns the first step."""
        from dprepro.privacy.cases import sphere_case

        return sphere_case(500, {"T": 1, "b": 200, "D": 2, "beta": 0.5, "alpha_tilde": 1e-3})

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> TreeSpiderPlan:
        """Fill in what is not given by Theorem 3.2; in practice at mu/2 in place of epsilon, and with C = 1."""
        problem = setting.problem
        L0, L1, F0, p = problem.G, problem.L, given.get("F0", 1.0), _probability(given)
        T, b, D = _shape(setting, given)
        alpha = given.get("alpha") or _alpha(setting)
        beta = given.get("beta") or alpha * min(1.0, math.sqrt(b / problem.d) * _epsilon(setting))
        C = _constant(setting, T, D, F0, p)
        alpha_tilde = given.get("alpha_tilde") or C * alpha
        if "alpha_tilde" not in given and setting.noisy:
            _refuse_the_first_leaf(setting, given, F0, p, 2.0 * alpha_tilde / L0)
        sensitivities = (2.0 * L0 / b, 2.0 * beta * 2.0 ** (D / 2) / b)
        sigmas = tuple(S * _noise_multiplier(setting) for S in sensitivities)
        return TreeSpiderPlan(
            **self.plan_head(setting),
            theorem="ABG23, Theorems 3.1 and 3.2",
            sigma=sigmas[ROOT],
            rounds=T * 2**D,
            gradient_evaluations=T * b * (D + 1),
            utility=UtilityBound(
                "ABG23, Theorem 3.2",
                GRADIENT_NORM,
                "3 sqrt(2) L0 C max(n^(-1/3), (sqrt(d) / (n epsilon))^(1/2)); in practice C = 1, and mu/2 for epsilon",
                3.0 * C * _alpha(setting),
            ),
            # The root's is attained by linear losses; both kinds have the same noise for their sensitivity.
            events=(DisjointGaussianEvent(ESTIMATE, sigmas, sensitivities, T * 2**D, setting.spread_attained),),
            conditions=_conditions(setting, given, (T, b, D), 2.0 * alpha_tilde / L0),
            T=T,
            b=b,
            D=D,
            alpha=alpha,
            alpha_tilde=alpha_tilde,
            beta=beta,
            F0=F0,
            p=p,
            L0=L0,
            L1=L1,
        )

    def run(self, plan: TreeSpiderPlan, ex: Execution) -> Array:
        """Execute Algorithm 1; comments give its line numbers.

        A constraint is kept by projection, which makes no step longer; the gradient of a regulariser sees no data.
        """
        xp, mechanism = ex.xp, ex.disjoint_gaussian(ESTIMATE)
        leaves = Leaves(plan, ex)
        w = ex.start()  # 1
        for _ in range(plan.T):  # 2
            # 3: w is the point of the last leaf, before its step
            batch = ex.fresh(plan.b)  # 4
            nabla = ex.batch_gradient(w, batch) + mechanism.noise(ROOT)  # 6
            path = [(w, nabla)] * (plan.D + 1)  # the latest node of every depth
            w_next = w
            for s in depth_first(plan.D):  # 7
                w_hat, nabla_hat = path[len(s) - 1]
                if s[-1] == "0":  # 9
                    w, nabla = w_hat, nabla_hat  # 10, 11
                else:
                    w = w_next
                    batch = ex.fresh(plan.b >> len(s))  # 13
                    g = _stretch(plan, xp, len(s), w - w_hat) * mechanism.noise(NODE)  # 14
                    nabla = nabla_hat + ex.batch_difference(w, w_hat, batch) + g  # 15, 16
                path[len(s)] = (w, nabla)
                if len(s) == plan.D:  # 18
                    direction = nabla + ex.regularizer_gradient(w)
                    length = leaves.visit(w, direction)  # 19-21
                    # 23, 24; no leaf that goes on has an estimate of length zero
                    eta = plan.step_length / xp.where(length > 0.0, length, 1.0)
                    w_next = xp.where(leaves.returned, w, ex.project(w - eta * direction))
                    ex.checkpoint(w_next)
        return leaves.output()  # 28


class Leaves:
    """Which leaf every replicate returns: the first whose estimate is short, else a uniformly random one."""

    def __init__(self, plan: TreeSpiderPlan, ex: Execution) -> None:
        self._plan, self._ex = plan, ex
        self._chosen = ex.uniform_index(plan.T * 2**plan.D)
        self._visited = 0
        self._point = ex.start()
        nothing = ex.zeros()[:, :1]
        self._used = nothing + float(_samples(plan.T, plan.b, plan.D))
        self._first = self.returned = nothing > 0.0

    def visit(self, w: Array, estimate: Array) -> Array:
        """Take in the point (K, d) of the next leaf and its estimate (K, d), and return how long that is: (K, 1)."""
        xp = self._ex.xp
        length = xp.sqrt(xp.sum(estimate * estimate, axis=1, keepdims=True))
        now = xp.logical_and(length <= 2.0 * self._plan.alpha_tilde, xp.logical_not(self.returned))
        drawn = xp.logical_and(self._chosen == self._visited, xp.logical_not(self.returned))
        self._point = xp.where(xp.logical_or(now, drawn), w, self._point)
        self._used = xp.where(now, float(self._ex.samples_used), self._used)
        self.returned = xp.logical_or(self.returned, now)
        if not self._visited:
            self._first = now
        self._visited += 1
        return length

    def output(self) -> Array:
        """Return the points (K, d) and have it observed how the replicates came to them."""
        ex, number = self._ex, self._used.dtype
        ex.observe(SAMPLES_SHARE, self._used[:, 0] / self._plan.n)
        ex.observe(RETURNED, ex.xp.astype(self.returned, number)[:, 0])
        ex.observe(FIRST_LEAF, ex.xp.astype(self._first, number)[:, 0])
        return self._point


def depth_first(D: int) -> Iterator[str]:
    """Yield DFS[D]: the nodes of a binary tree of depth D but the root, as strings of 0 and 1, parents before children.

    >>> list(depth_first(2))
    ['0', '00', '01', '1', '10', '11']
    """

    def below(s: str) -> Iterator[str]:
        for child in (s + "0", s + "1"):
            yield child
            if len(child) < D:
                yield from below(child)

    return below("")


def _stretch(plan: TreeSpiderPlan, xp: Any, depth: int, moved: Array) -> Array:
    """Return how many times as far from its parent a right child is as the steps allow, at least 1: (K, 1).

    It is 1 but for the rounding of points, which in single precision is not nothing beside short steps. The sensitivity
    of a difference grows in proportion to the distance, so its noise does too.
    """
    length = xp.sqrt(xp.sum(moved * moved, axis=1, keepdims=True))
    ratio = length / (2 ** (plan.D - depth) * plan.step_length)
    return xp.where(ratio > 1.0, ratio, 1.0)


def _samples(T: int, b: int, D: int) -> int:
    """Return T b (D/2 + 1): b samples at each root and b/2 at the right children of every depth, a whole number."""
    return T * (b + D * (b // 2))


def _epsilon(setting: Setting) -> float:
    """Return the epsilon of the theorem's formulas; in practice mu/2, which the calibrated noise really stands for."""
    return 0.5 * setting.mu if setting.variant == "practical" else setting.epsilon


def _rate(n: float, d: int, epsilon: float) -> float:
    """Return max(n^(-1/3), (sqrt(d)/(n epsilon))^(1/2))."""
    return float(max(n ** (-1.0 / 3.0), math.sqrt(math.sqrt(d) / (n * epsilon))))


def _alpha(setting: Setting) -> float:
    """Return the theorem's alpha, sqrt(2) L0 times the rate."""
    return math.sqrt(2.0) * setting.problem.G * _rate(setting.problem.n, setting.problem.d, _epsilon(setting))


def _noise_multiplier(setting: Setting) -> float:
    """Return sigma over sensitivity: sqrt(2 ln(1.25/delta))/epsilon of lines 5 and 14, in practice 1/mu."""
    if setting.variant == "practical":
        return 1.0 / setting.mu
    return math.sqrt(2.0 * math.log(1.25 / setting.delta)) / setting.epsilon


def _constant(setting: Setting, T: int, D: int, F0: float, p: float) -> float:
    """Return C of Theorem 3.2: 256 ln(1.25/delta) ln(2 T 2^(D+1)/p) + 4 L1 F0 sqrt(2D) (D/2 + 1)/L0^2.

    In practice it is 1.
    """
    if setting.variant == "practical":
        return 1.0
    problem = setting.problem
    chance = 256.0 * math.log(1.25 / setting.delta) * math.log(T * 2.0 ** (D + 2) / p)
    return chance + 4.0 * problem.L * F0 * math.sqrt(2.0 * D) * (D / 2 + 1) / problem.G**2


def _probability(given: Mapping[str, Any]) -> float:
    p = float(given.get("p", 0.1))
    if not p < 1.0:
        raise UserError(f"p of {TreeSpider.name} is {p:g}: give a probability, a number with 0 < p < 1.")
    return p


def _depth(b: float) -> float:
    """Return the D with D 2^(D+1) = b."""
    low, high = 0.0, max(1.0, math.log2(b))
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle * 2.0 ** (middle + 1.0) < b else (low, middle)
    return high


def _whole_depth(b: float) -> int:
    """Return the D with D 2^(D+1) = b, rounded down."""
    return math.floor(_depth(b) + 1e-9)


def _real_tree(setting: Setting, given: Mapping[str, Any], n: float) -> tuple[float, float]:
    """Return b and D as given, else by the theorem: max(n^(2/3), sqrt(n) d^(1/4)/sqrt(epsilon)) and D 2^(D+1) = b."""
    b = max(n ** (2.0 / 3.0), math.sqrt(n * math.sqrt(setting.problem.d) / _epsilon(setting)))
    b = given.get("b", b)
    return b, given.get("D") or _depth(b)


def _fits(setting: Setting, given: Mapping[str, Any], n: float) -> bool:
    """Whether n samples are enough for one tree: n >= b (D/2 + 1), the theorem's own condition on n."""
    b, D = _real_tree(setting, given, n)
    return D >= 1.0 - 1e-9 and b >= 2.0**D and b * (D / 2 + 1) <= n


def _tree(setting: Setting, given: Mapping[str, Any], n: float) -> tuple[int, int, int]:
    """Return T, b and D for n samples as whole numbers: D is rounded down, then b to a multiple of 2^D, then T."""
    b, _ = _real_tree(setting, given, n)
    D = given.get("D") or _whole_depth(b)
    b = given.get("b") or int(b + 1e-9) >> D << D
    return int(n // (b * (D / 2 + 1))), b, D


def _shape(setting: Setting, given: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return T, b and D, or refuse what does not fit the data."""
    n, name = setting.problem.n, TreeSpider.name
    if given.get("D", 1) > MOST_DEPTH:
        raise UserError(f"D of {name} is {given['D']}: give at most {MOST_DEPTH}; a tree has 2^D leaves.")
    if "b" in given:
        D = given.get("D") or _whole_depth(given["b"])
        if not D:
            raise UserError(
                f"b of {name} is {given['b']}: give at least 4, or set D; D 2^(D+1) = b has no depth for it."
            )
        if given["b"] % 2**D:
            raise UserError(f"b of {name} is {given['b']}: give a multiple of 2^D = {2**D}, for whole batches.")
    refuse_vacuous(
        setting,
        lambda size: _fits(setting, given, size),
        f"{name} has no tree",
        "the batches of one tree, b (D/2 + 1) samples, are more than the data",
        "b",
    )
    fitting, b, D = _tree(setting, given, n)
    T = given.get("T", fitting)
    if fitting < T:
        raise UserError(
            f"{name} with T = {T}, b = {b} and D = {D} takes {_samples(T, b, D)} samples, but there are {n}: "
            f"give T <= {fitting}, or a smaller b."
        )
    return T, b, D


def first_leaf_threshold(setting: Setting, F0: float = 1.0, p: float = 0.1) -> float:
    """Return the n from which 2 alpha_tilde < L0 with the theorem's numbers; infinite if no such n is in sight.

    Below it every estimate without noise is short enough to return the first leaf, which is the initial point.
    """

    def asks_for_more(n: float) -> bool:
        if not _fits(setting, {}, n):
            return False
        T, _, D = _tree(setting, {}, n)
        C = _constant(setting, T, D, F0, p)
        return 2.0 * math.sqrt(2.0) * C * _rate(n, setting.problem.d, _epsilon(setting)) < 1.0

    try:
        return smallest_n(setting, asks_for_more)
    except VacuousSetting:
        return math.inf


def _refuse_the_first_leaf(setting: Setting, given: Mapping[str, Any], F0: float, p: float, short: float) -> None:
    """Refuse a threshold that no gradient exceeds; `short` is 2 alpha_tilde/L0."""
    if short < 1.0:
        return
    printed = not set(given) - {"F0", "p"}
    sense = f"; it makes sense from n = {first_leaf_threshold(setting, F0, p):.3g}" if printed else ""
    raise VacuousSetting(
        f"{TreeSpider.name} would return its initial point at n = {setting.problem.n}: it stops where an estimate is "
        f"at most 2 alpha_tilde = {short:.4g} L0 long, and no gradient is longer than L0{sense}. "
        "Set alpha_tilde, or use variant=practical."
    )


def printed_alpha_tilde(setting: Setting, F0: float = 1.0, p: float = 0.1) -> float:
    """Return alpha_tilde as the theorem has it, for runs that show what it does."""
    T, _, D = _shape(setting, {})
    return _constant(setting, T, D, F0, p) * _alpha(setting)


def _conditions(setting: Setting, given: Mapping[str, Any], shape: tuple[int, int, int], short: float) -> Conditions:
    """Return the conditions of the theorems; `short` is 2 alpha_tilde/L0."""
    problem, (T, b, D) = setting.problem, shape
    from_n = ""
    if short >= 1.0 and not set(given) - {"F0", "p"}:
        needed = first_leaf_threshold(setting, given.get("F0", 1.0), _probability(given))
        from_n = f"; below 1 from n = {needed:.3g}"
    used = _samples(T, b, D)
    conditions: Conditions = (
        Condition("all batches fit into the data", used <= problem.n, f"{used} of {problem.n} samples", privacy=True),
        Condition(
            "2 alpha_tilde < L0; else the first leaf, the initial point, is returned whatever the data",
            short < 1.0,
            f"2 alpha_tilde / L0 = {short:.3g}{from_n}",
        ),
    )
    if setting.variant == "published" and setting.noisy:
        text = "epsilon <= 1, for which the classical Gaussian noise is proved"
        conditions += (Condition(text, setting.epsilon <= 1.0, f"epsilon = {setting.epsilon:g}", privacy=True),)
    return conditions + beyond_the_loss(problem)


ALGORITHM = TreeSpider()
