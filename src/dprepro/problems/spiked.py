"""Population risk of a piecewise linear loss on a spiked design: closed forms in two numbers of w.

Rows are x = (tau, kappa u) with tau^2 + kappa^2 = 1 and u uniform on the unit sphere of R^(d-1); labels are independent
of them and uniform on an interval, or on a second one for the outliers. <x, w> = A + C v then, with A = tau w_1,
C = kappa ||(w_2, ..., w_d)|| and v one coordinate of u. A loss made of hinges (t - k)_+ has a mean over labels made of
squares (t - k)_+^2, and what they are on average over v follows from the tails of v alone:
with a = -z/C, E (z + C v)_+^2 = z^2 M_0(a) + 2 z C M_1(a) + C^2 M_2(a), where M_i(a) = E[v^i; v > a]. M_0 is an
incomplete beta function, M_1 an elementary one and M_2 = ((m - 1) a M_1 + M_0)/m for a coordinate of the sphere of R^m.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dprepro.arrays import Backend
from dprepro.errors import UserError
from dprepro.nonsmooth_losses import Hinges, NonsmoothLoss
from dprepro.problems.erm import Array, ProblemSpec
from dprepro.problems.sampled import SampledPopulation
from dprepro.streams import Streams


class Profile(NamedTuple):
    """F as a function of w_1 and rho = ||(w_2, ..., w_d)||: its value and both partial derivatives, each (N,)."""

    value: np.ndarray
    first: np.ndarray
    across: np.ndarray


class SpikedPopulation(SampledPopulation):
    """The risk for a law with the numbers `share` = tau^2, `centre`, `spread`, `outliers` and `gap` of the labels.

    A label is uniform within `spread` of `centre`, and with probability `outliers` of `centre + gap`. With r the
    largest of ||w||, the labels and the places of kinks, the objective is exact to about 1e-15 r^2/spread and the
    gradient to 1e-15 r/spread, without a spread to 1e-15 r and 1e-15.
    """

    name = "population_spiked"

    def __init__(
        self, spec: ProblemSpec, X: np.ndarray, y: np.ndarray, law: Mapping[str, Any], backend: Backend
    ) -> None:
        super().__init__(spec, X, y, np.ones(1), backend)
        self._law = law
        self._hinges = _checked(spec, law)
        self._tau, self._kappa = math.sqrt(law["share"]), math.sqrt(1.0 - law["share"])

    @property
    def axis(self) -> np.ndarray:
        """The unit vector e_1 (d,): the risk depends on a point by its part along it and the length of the rest."""
        return np.eye(1, self.spec.d)[0]

    def objective(self, W: Array) -> Array:
        """Return F^r at each row of W as an array (K,)."""
        first, across = _parts(self.backend.to_host(W))
        values = self.backend.asarray(self.profile(first, np.linalg.norm(across, axis=1)).value)
        return values + self.spec.regularizer.value(self.backend.xp, W)

    def gradient(self, W: Array) -> Array:
        """Return the gradient of F at each row of W: (K, d) -> (K, d)."""
        first, across = _parts(self.backend.to_host(W))
        rho = np.linalg.norm(across, axis=1)
        profile = self.profile(first, rho)
        return self._turned(profile.first, profile.across, across, rho)

    def profile(self, first: np.ndarray, rho: np.ndarray) -> Profile:
        """Return F and its partial derivatives at points with this w_1 and this norm of the other coordinates."""
        A, C = self._tau * first, self._kappa * rho
        value, along, turned = self._means(self.spec.d - 1, A, C)
        return Profile(value, self._tau * along, self._kappa * turned)

    def _means(self, m: int, A: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return E psi(A + C v), E psi'(A + C v) and E[v psi'(A + C v)], psi the mean of the loss over labels."""
        value = self._hinges.constant + self._hinges.slope * A
        along, turned = self._hinges.slope * np.ones_like(A), np.zeros_like(A)
        for weight, at, width in self._terms():
            means = _widened_hinge(m, A - at, C, width)
            value, along, turned = (
                total + weight * mean for total, mean in zip((value, along, turned), means, strict=True)
            )
        return value + self._hinges.label_slope * self._mean_label, along, turned

    def _terms(self) -> Iterator[tuple[float, float, float]]:
        """Yield weight, place and half width of every hinge of the mean over labels."""
        law = self._law
        parts = ((1.0 - law["outliers"], law["centre"]), (law["outliers"], law["centre"] + law["gap"]))
        for share, centre in parts:
            for hinge in self._hinges.terms if share else ():
                width = abs(hinge.label) * law["spread"]
                yield share * hinge.weight, hinge.at + hinge.label * centre, width

    @property
    def _mean_label(self) -> float:
        return float(self._law["centre"] + self._law["outliers"] * self._law["gap"])

    def _turned(self, along: np.ndarray, turned: np.ndarray, across: np.ndarray, rho: np.ndarray) -> Array:
        """Return the gradient (K, d) with these parts along the first coordinate and along the others of w."""
        # On the axis the gradient points along it.
        direction = across / np.where(rho > 0.0, rho, 1.0)[:, None]
        return self.backend.asarray(np.concatenate([along[:, None], turned[:, None] * direction], axis=1))

    def _draw(self, streams: Streams, number: int, first: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        law = self._law
        u, _ = streams.spherical(number, size, self.spec.d - 1)
        X = np.concatenate([np.full((*u.shape[:2], 1), self._tau), self._kappa * u], axis=2)
        # One uniform number says whether a label is an outlier and, by where it lies in its part, the label itself.
        drawn, share = streams.uniforms(first, size).T, law["outliers"]
        outlier = drawn < share
        place = np.where(outlier, drawn / max(share, 1e-300), (drawn - share) / max(1.0 - share, 1e-300))
        return X, law["centre"] + law["spread"] * (2.0 * place - 1.0) + law["gap"] * outlier

    def _on(self, backend: Backend) -> SpikedPopulation:
        return type(self)(self.spec, *self._host, self._law, backend)


def _checked(spec: ProblemSpec, law: Mapping[str, Any]) -> Hinges:
    """Return what the loss is made of, or refuse one whose mean over the labels is not known in closed form."""
    loss = spec.loss
    if not (isinstance(loss, NonsmoothLoss) and loss.glm):
        raise UserError(
            f"The loss {loss.name!r} is not made of hinges: choose capped_absolute, ramp or phase for "
            "population_spiked."
        )
    hinges, spread = loss.hinges, law["spread"]
    if hinges.period is not None and (spread == 0.0 or (2.0 * spread / hinges.period) % 1.0 != 0.0):
        raise UserError(
            f"The wave of the loss {loss.name!r} does not average out over labels within {spread:g} of their centre: "
            f"give a spread that is a multiple of {0.5 * hinges.period:g}."
        )
    smallest = law["centre"] - spread + min(0.0, law["gap"] if law["outliers"] else 0.0)
    if not loss.residual and smallest < 0.0:
        raise UserError(
            f"The loss {loss.name!r} needs labels >= 0, but some reach {smallest:g}: change gap or distance."
        )
    return hinges


def _parts(W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first coordinate (K,) and the others (K, d - 1) in double precision."""
    W = W.astype(np.float64)
    return W[:, 0], W[:, 1:]


def _widened_hinge(m: int, z: np.ndarray, C: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E h(z + C v), E h'(z + C v) and E[v h'(z + C v)], h(r) the mean of (r + e)_+ over |e| <= width."""
    if width == 0.0:
        M0, M1, _ = _tails(m, z, C)
        return z * M0 + C * M1, M0, M1
    (high_2, high_1, high_v), (low_2, low_1, low_v) = (_squares(m, z + side, C) for side in (width, -width))
    return (high_2 - low_2) / (4.0 * width), (high_1 - low_1) / (2.0 * width), (high_v - low_v) / (2.0 * width)


def _squares(m: int, z: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E (z + C v)_+^2, E (z + C v)_+ and E[v (z + C v)_+]."""
    M0, M1, M2 = _tails(m, z, C)
    first, turned = z * M0 + C * M1, z * M1 + C * M2
    return z * first + C * turned, first, turned


def sphere_tail(m: int, a: Any) -> Any:
    """Return P(v > a) for -1 <= a <= 1, v a coordinate on the unit sphere of R^m, m >= 2."""
    from scipy.special import betainc

    return betainc(0.5 * (m - 1), 0.5 * (m - 1), 0.5 * (1.0 - a))


def _tails(m: int, z: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return P(z + C v > 0) and the first two moments of v there, v a coordinate on the unit sphere of R^m."""
    z, C = np.broadcast_arrays(z, C)
    a = np.clip(-z / np.where(C > 0.0, C, 1e-300), -1.0, 1.0)
    if m == 1:
        high, low = 0.5 * (a < 1.0), 0.5 * (a <= -1.0)
        return high + low, high - low, high + low
    half = 0.5 * (m - 1)
    M0 = np.where(a < 0.0, 1.0, 0.0)
    inside = np.abs(a) < 1.0
    M0[inside] = sphere_tail(m, a[inside])
    top = math.exp(math.lgamma(half + 0.5) - math.lgamma(half + 1.0)) / (2.0 * math.sqrt(math.pi))
    M1 = top * (1.0 - a * a) ** half
    return M0, M1, ((m - 1) * a * M1 + M0) / m
