"""Proximal near stationarity of the population risk (BGM21, Definition 15), to a stated accuracy.

    theta(w) = max{1, beta D} ||prox(w) - w||,   prox(w) = argmin_{v in W} F(v) + beta/2 ||v - w||^2

For a rho-weakly convex F and beta = 2 rho kappa the minimum is rho-strongly convex in the norm, which is that of l_b
with b = max{p, 1 + 1/ln d} on an l_p ball (BGM21, Algorithm 2). Its kinks are rounded off over a width that falls step
by step, and each rounded problem is solved by Newton's method for all points side by side, on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dprepro.bregman import lp_norm, map_gradient, map_inverse
from dprepro.errors import NotConverged, UserError
from dprepro.geometry import ball_exponent
from dprepro.losses import Kink, Loss, MinimaxConcave, PiecewiseLinear
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec

# Every value of theta is right to this, which is checked for each of them.
ACCURACY = 1e-4
# The widths over which kinks are rounded off, each a tenth of the one before.
_SHRINK = 0.1
_WIDTHS = tuple(_SHRINK**power for power in range(1, 12))
_NEWTON_STEPS = 200
_HALVINGS = 50
# The multiplier of a ball that binds is found to 2^-40.
_BISECTIONS = 40
# Numbers in one temporary of shape (points, records).
_BLOCK = 2**18
# A coordinate of a point this small is 0, as far as the accuracy goes.
_ZERO = 1e-10


@dataclass(frozen=True)
class ProximalSetting:
    """The constants of BGM21's Theorem 16 in the norm of l_b; the set is a ball of l_p with this size.

    1/2 ||.||_b^2 is 1/kappa-strongly convex. D is the diameter of the set, L0 the Lipschitz constant.
    """

    p: float
    b: float
    size: float
    kappa: float
    kappa_tilde: float
    rho: float
    L0: float
    D: float

    @property
    def beta(self) -> float:
        """The weight 2 rho kappa of the proximal term."""
        return 2.0 * self.rho * self.kappa

    @property
    def factor(self) -> float:
        """What Definition 15 multiplies the distance by."""
        return max(1.0, self.beta * self.D)


def proximal_setting(spec: ProblemSpec, p: float | None = None, rho: float | None = None) -> ProximalSetting:
    """Return the constants of the problem; p and rho are those of the set and the loss unless given.

    All of them are taken in l_b, in which the subproblems are strongly convex. For p >= 1 + 1/ln d this is l_p; below,
    where the proof says nothing, the problem is one of the l_b setting with constants that are larger by less than
    e (L0) and e^2 (rho). In at most e dimensions b is 2.
    """
    own = ball_exponent(spec.constraint)
    if own is None:
        raise UserError(
            f"Proximal near stationarity is for l_p balls with 1 <= p <= 2, not for {spec.constraint.name}: use for "
            "example constraint='l2_ball:1.0'."
        )
    p = own if p is None else p
    if not 1.0 <= p <= 2.0:
        raise UserError(f"p is {p:g}: give a number with 1 <= p <= 2.")
    b = min(2.0, max(p, 1.0 + 1.0 / math.log(spec.d))) if spec.d > 1 else 2.0
    least = spec.loss.weak_convexity(spec.row_norm_in(b / (b - 1.0)))
    if rho is None:
        rho = least
    if not (0.0 < rho < math.inf and rho >= least * (1.0 - 1e-12)):
        raise UserError(
            f"rho is {rho:g}, but the loss {spec.loss.full_name!r} is {least:g}-weakly convex: give a finite number "
            "> 0 that is not smaller."
        )
    return ProximalSetting(
        p=p,
        b=b,
        size=0.5 * spec.constraint.diameter(own),
        kappa=1.0 / (b - 1.0),
        kappa_tilde=1.0 + (math.log(spec.d) if b < 2.0 else 0.0),
        rho=rho,
        L0=spec.lipschitz_in(b),
        D=spec.constraint.diameter(b, spec.d),
    )


def near_stationarity(problem: EmpiricalRisk, W: np.ndarray) -> np.ndarray:
    """Return theta of each row of W (K, d) as an array (K,), right to `ACCURACY`; rows must be points of the set."""
    setting = proximal_setting(problem.spec)
    points, accuracy = proximal_points(problem, W, setting)
    distances = lp_norm(np, points - W, setting.b)
    worst = setting.factor * float(np.max(accuracy, initial=0.0))
    if not worst <= ACCURACY:
        raise NotConverged(
            f"Proximal points of {problem.spec.loss.full_name} on {problem.spec.constraint.name} were found to "
            f"{worst:.2g} only, not to {ACCURACY:g}: this problem is too badly conditioned for the method."
        )
    return setting.factor * distances


def proximal_points(problem: EmpiricalRisk, W: np.ndarray, setting: ProximalSetting) -> tuple[np.ndarray, np.ndarray]:
    """Return prox(w) of each row of W (K, d), and how far from it at most the point found is, in l_b: (K,)."""
    if not problem.spec.loss.glm:
        raise UserError(
            f"Proximal points are available for losses of <w, x> only, not for {problem.spec.loss.name!r}: choose one, "
            "for example huber, or another metric."
        )
    if problem.spec.regularizer.l1:
        raise UserError("Proximal points are not available with an l1 regularizer: drop it.")
    whole = _Subproblem.of(problem, setting)
    step = max(1, _BLOCK // len(whole.weights))
    found = [whole.at(W[i : i + step]).solve() for i in range(0, len(W), step)]
    return np.concatenate([point for point, _ in found]), np.concatenate([accuracy for _, accuracy in found])


@dataclass(frozen=True)
class _Subproblem:
    """Phi(v) = F(v) + beta/2 ||v - w||_b^2 + lam/2 ||v||_a^2 for several centres w (K, d), over M records.

    `pairs` (M, d d) holds the products of features. lam (K,) is the multiplier of the l_a ball, 0 where it does not
    bind.
    """

    setting: ProximalSetting
    spec: ProblemSpec
    weights: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    pairs: np.ndarray
    W: np.ndarray
    lam: np.ndarray

    @classmethod
    def of(cls, problem: EmpiricalRisk, setting: ProximalSetting) -> _Subproblem:
        """Return the problem without any centre."""
        weights, rows, labels = problem.records()
        pairs = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
        none = np.zeros((0, rows.shape[1]))
        return cls(setting, problem.spec, weights, rows, labels, pairs, none, np.zeros(0))

    def at(self, W: np.ndarray) -> _Subproblem:
        """Return the problem with these centres, without multipliers."""
        return replace(self, W=W, lam=np.zeros(len(W)))

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the minimisers over the ball (K, d) and bounds on their distance from the exact ones (K,)."""
        V, accuracy = self._minimize()
        outside = lp_norm(np, V, self._a) > self.setting.size
        if np.any(outside):
            V[outside], accuracy[outside] = self._part(outside)._minimize_on_sphere()
        return V, accuracy

    @property
    def _a(self) -> float:
        return ball_exponent(self.spec.constraint) or 2.0

    @property
    def _goal(self) -> float:
        """How near to the exact point is near enough."""
        return 0.5 * ACCURACY / self.setting.factor

    def _part(self, chosen: np.ndarray) -> _Subproblem:
        return replace(self, W=self.W[chosen], lam=self.lam[chosen])

    def _minimize_on_sphere(self) -> tuple[np.ndarray, np.ndarray]:
        """Find the lam at which ||v||_a is the size of the ball, by bisection: the norm falls as lam rises."""
        a, size = self._a, self.setting.size
        low, high = np.zeros(len(self.W)), np.full(len(self.W), self.setting.L0 / size)
        V, accuracy = replace(self, lam=high)._minimize()
        while np.any(above := lp_norm(np, V, a) > size):
            low, high = np.where(above, high, low), np.where(above, 4.0 * high, high)
            V, accuracy = replace(self, lam=high)._minimize()
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            V, accuracy = replace(self, lam=middle)._descend(V, _WIDTHS[-1])
            above = lp_norm(np, V, a) > size
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        scale = size / lp_norm(np, V, a)
        return V * scale[:, None], accuracy + np.abs(scale - 1.0) * lp_norm(np, V, self.setting.b)

    def _minimize(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the minimisers and their accuracy: from one width to the next until all are near enough."""
        V, accuracy = self._start(), np.full(len(self.W), np.inf)
        last, drift = V, np.zeros_like(V)
        open_ = np.arange(len(V))
        for width in _WIDTHS if _kinks(self.spec.loss) else _WIDTHS[-1:]:
            part = self._part(open_)
            # On the same kinks the minimiser is a linear function of the width.
            found, accuracy[open_] = part._descend(V[open_] + drift[open_], width)
            drift[open_], last = _SHRINK * (found - last[open_]), last.copy()
            V[open_] = last[open_] = found
            open_ = open_[accuracy[open_] > self._goal]
            if not len(open_):
                break
        return V, accuracy

    def _start(self) -> np.ndarray:
        """Return a step along the gradient: not the centre itself, where the norm of l_b has no curvature."""
        _, slope, _, _ = replace(self, lam=np.zeros(len(self.W)))._smooth(self.W, _WIDTHS[0])
        return self.W - 0.5 * map_inverse(np, slope / self.setting.beta, self.setting.b)

    def _descend(self, V: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the minimisers of the rounded problem from V on, and how far they may be from those of the problem.

        The l_b norm enters a step by the quadratic form sum_i ||u||^(2-b) |u_i|^(b-2) z_i^2, which is above its second
        derivative and has its gradient at z = u: steps go downhill, and for b < 2 the error falls by about 2 - b in
        each. Rows that have arrived stay.
        """
        V, accuracy = V.copy(), np.full(len(V), np.inf)
        enough = max(0.01 * self._goal, 0.01 * width)
        open_ = np.arange(len(V))
        for _ in range(_NEWTON_STEPS):
            part, here = self._part(open_), V[open_]
            value, slope, matrix, epsilon = part._smooth(here, width)
            residual = part._residual(here, slope)
            # A subgradient r leaves a distance of ||r||_* / rho, an epsilon-subgradient one of sqrt(2 epsilon / rho).
            accuracy[open_] = residual + np.sqrt(2.0 * epsilon / self.setting.rho)
            going = residual > enough
            if not np.any(going):
                break
            part, open_ = part._part(going), open_[going]
            slope = slope[going] + part._pull(here[going])
            direction = -np.linalg.solve(matrix[going], slope[:, :, None])[:, :, 0]
            promise = np.sum(slope * direction, axis=1)
            V[open_], useful = part._line_search(here[going], value[going], direction, promise, width)
            open_ = open_[useful]
            if not len(open_):
                break
        return V, accuracy

    def _line_search(
        self, V: np.ndarray, value: np.ndarray, direction: np.ndarray, promise: np.ndarray, width: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return V + size direction with sizes 1, 1/2, ... that keep a part of the promise, and where there was one."""
        size = np.ones(len(V))
        trying = np.arange(len(V))
        for _ in range(_HALVINGS):
            part = self._part(trying)
            moved = V[trying] + size[trying, None] * direction[trying]
            # Values are no more exact than their rounding.
            slack = 4e-16 * (1.0 + np.abs(value[trying]))
            worse = part._value(moved, width) > value[trying] + 1e-4 * size[trying] * promise[trying] + slack
            trying = trying[worse]
            if not len(trying):
                break
            size[trying] *= 0.5
        size[trying] = 0.0
        return V + size[:, None] * direction, size > 0.0

    def _residual(self, V: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return the dual norm of a subgradient of Phi over rho; `slope` is the part without the multiplier."""
        setting = self.setting
        total = slope + self._pull(V)
        if self._a == 1.0:
            # At 0 the slope of |v_i| is any number between -1 and 1.
            most = (self.lam * lp_norm(np, V, 1.0))[:, None]
            rest = np.maximum(np.abs(slope) - most, 0.0)
            total = np.where((np.abs(V) <= _ZERO) & (most > 0.0), rest, total)
        return np.asarray(lp_norm(np, total, setting.b / (setting.b - 1.0)) / setting.rho)

    def _pull(self, V: np.ndarray) -> np.ndarray:
        """Return the gradient of lam/2 ||v||_a^2."""
        if self._a == 1.0:
            return np.asarray((self.lam * lp_norm(np, V, 1.0))[:, None] * np.sign(V))
        return np.asarray(self.lam[:, None] * map_gradient(np, V, self._a))

    def _value(self, V: np.ndarray, width: float) -> np.ndarray:
        """Return the rounded Phi (K,)."""
        loss, y = self.spec.loss, self.labels[None, :]
        values = V @ self.rows.T
        losses = loss.value(np, values, y)
        for kink, v in _offsets(loss, values, y):
            s = np.clip(v / width, kink.left, kink.right)
            losses += s * (v - 0.5 * width * s) - np.maximum(kink.left * v, kink.right * v)
        return losses @ self.weights + self._without_data(V)

    def _without_data(self, V: np.ndarray) -> np.ndarray:
        """Return what Phi adds to the risk (K,)."""
        setting = self.setting
        total = 0.5 * setting.beta * lp_norm(np, V - self.W, setting.b) ** 2
        total += 0.5 * self.spec.regularizer.l2 * np.sum(V * V, axis=1)
        return np.asarray(total + 0.5 * self.lam * lp_norm(np, V, self._a) ** 2)

    def _smooth(self, V: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the rounded Phi (K,), its gradient without the multiplier (K, d), the matrix of a step (K, d, d).

        The last of the four (K,) is the epsilon of which rounded slopes are subgradients of the kinks.
        """
        loss, setting, y, d = self.spec.loss, self.setting, self.labels[None, :], V.shape[1]
        values = V @ self.rows.T
        losses, slopes, second = (part(np, values, y) for part in (loss.value, loss.derivative, loss.curvature))
        epsilon = np.zeros(len(V))
        for kink, v in _offsets(loss, values, y):
            s = np.clip(v / width, kink.left, kink.right)
            half, mean = 0.5 * (kink.right - kink.left), 0.5 * (kink.right + kink.left)
            slopes += s - (half * np.sign(v) + mean)
            second += ((v > width * kink.left) & (v < width * kink.right)) / width
            plain = np.maximum(kink.left * v, kink.right * v)
            losses += s * (v - 0.5 * width * s) - plain
            epsilon += (plain - s * v) @ self.weights
        l2 = self.spec.regularizer.l2
        slope = (slopes * self.weights) @ self.rows + l2 * V + setting.beta * map_gradient(np, V - self.W, setting.b)
        diagonal = setting.beta * _form(V - self.W, setting.b) + self.lam[:, None] * _form(V, self._a) + l2
        matrix = ((second * self.weights) @ self.pairs).reshape(-1, d, d) + diagonal[:, :, None] * np.eye(d)
        return losses @ self.weights + self._without_data(V), slope, matrix, np.maximum(epsilon, 0.0)


def _form(U: np.ndarray, s: float) -> np.ndarray:
    """Return (||u||_s / |u_i|)^(2-s): the diagonal quadratic form that has the gradient of 1/2 ||.||_s^2 at u."""
    if s == 2.0:
        return np.ones_like(U)
    norms = np.maximum(lp_norm(np, U, s), 1e-200)[:, None]
    return np.asarray((np.maximum(np.abs(U) / norms, 1e-13)) ** (s - 2.0))


def _kinks(loss: Loss) -> tuple[Kink, ...]:
    """Return the kinks of a loss that is smooth but for them."""
    if isinstance(loss, PiecewiseLinear):
        return loss.kinks
    if isinstance(loss, MinimaxConcave):
        return (Kink(0.0, -1.0, 1.0),)
    if loss.smooth:
        return ()
    raise UserError(f"The kinks of the loss {loss.name!r} are not known: proximal points need them; choose another.")


def _offsets(loss: Loss, T: np.ndarray, y: np.ndarray) -> list[tuple[Kink, np.ndarray]]:
    """Return every kink with the offsets of T = <x, w> from it."""
    residuals = T if loss.margin else T - y
    return [(kink, residuals - kink.at) for kink in _kinks(loss)]
