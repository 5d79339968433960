"""Single-pass first-order algorithm for nonsmooth nonconvex losses (KLT25, Algorithms 2 and 5, Theorem 6.1).

Gradients are asked for at random points of the ball around an iterate. As published a difference has m independent
points around each of its two iterates. The other variants take pairs of points in the set where the two balls differ,
with which one pair has the sensitivity of a smoothed gradient's difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from dprepro.algorithms._estimators import FIRST_ORDER
from dprepro.algorithms._o2nc import SINGLE_PASS_LETTERS, Shape, SinglePass
from dprepro.algorithms.base import Letter, Setting


class O2NCFirstOrder(SinglePass):
    """Online-to-non-convex conversion with gradients on fresh samples and a tree of noise."""

    name = "o2nc_first_order"
    title = "Single-pass first-order O2NC"
    theorem = "KLT25, Theorem 6.1"
    estimators = FIRST_ORDER
    printed_estimator, usual_estimator = "independent", "difference_set"
    letters: ClassVar[Mapping[str, Letter]] = {
        **SINGLE_PASS_LETTERS,
        "estimator": Letter(str, "where gradients are taken", choices=tuple(FIRST_ORDER)),
    }

    def printed_m(self, setting: Setting, alpha: float, shape: Shape) -> float:
        """Return ln(d B2/delta) B2^2 alpha^2/(D^2 d) of Lemma 6.4, with its constant as 1."""
        d, ratio = setting.problem.d, alpha * shape.B2 / shape.D
        return math.log(d * shape.B2 / setting.delta) * ratio**2 / d


ALGORITHM = O2NCFirstOrder()
