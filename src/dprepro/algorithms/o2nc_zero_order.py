"""Single-pass zero-order algorithm for nonsmooth nonconvex losses (KLT25, Algorithms 2 and 3, Theorem 3.1).

Only values of the loss are asked for. As published every sample has m independent directions, so many that the mean
over them is close to a smoothed gradient with probability 1 - delta/2. The other variants take one orthonormal frame
of d directions, whose sensitivity is of the same order with certainty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from dprepro.algorithms._estimators import ZERO_ORDER
from dprepro.algorithms._o2nc import SINGLE_PASS_LETTERS, Shape, SinglePass
from dprepro.algorithms.base import Letter, Setting


class O2NCZeroOrder(SinglePass):
    """Online-to-non-convex conversion with values of the loss on fresh samples and a tree of noise."""

    name = "o2nc_zero_order"
    title = "Single-pass zero-order O2NC"
    theorem = "KLT25, Theorem 3.1"
    estimators = ZERO_ORDER
    printed_estimator, usual_estimator = "independent", "frame"
    letters: ClassVar[Mapping[str, Letter]] = {
        **SINGLE_PASS_LETTERS,
        "estimator": Letter(str, "how directions are chosen", choices=tuple(ZERO_ORDER)),
    }

    def printed_m(self, setting: Setting, alpha: float, shape: Shape) -> float:
        """Return ln(d B2/delta) (d^2 B1^2 + d alpha^2 B2^2/D^2) of Lemma 3.5, with its constant as 1."""
        d, ratio = setting.problem.d, alpha * shape.B2 / shape.D
        return math.log(d * shape.B2 / setting.delta) * (d**2 * shape.B1**2 + d * ratio**2)


ALGORITHM = O2NCZeroOrder()
