"""The single-pass zero-order algorithm before KLT25 (Zhang, Tran and Cutkosky, ICLR 2024), as KLT25 describes it.

The structure is that of KLT25's single-pass algorithm; the estimate is a mean over d directions, and its sensitivity is
the largest there can be, d L for each sample (KLT25, equation (5)). Letters are those that balance the error with this
sensitivity and, with directions of every sample's own, reach the rate of KLT25's equation (1) in n and d, up to
logarithms, where one of its two terms decides; the paper's own constants are not known here. Groups of samples share
directions, at least 32 of them in a batch: see `CommonValues` for the error that this leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from dprepro.algorithms._estimators import CommonValues
from dprepro.algorithms._o2nc import SINGLE_PASS_LETTERS, Shape, SinglePass, tree_case
from dprepro.algorithms.base import Setting

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case


class Zhang24(SinglePass):
    """Online-to-non-convex conversion with values of the loss, noised for their largest sensitivity."""

    name = "zhang24"
    title = "Single-pass O2NC of Zhang et al. 2024"
    theorem = "KLT25, equation (1)"
    estimators: ClassVar[Mapping[str, type[CommonValues]]] = {"common": CommonValues}
    printed_estimator = usual_estimator = "common"
    powers, period_power = (1.0, 1.5), 0.5
    letters = SINGLE_PASS_LETTERS

    def audit_case(self) -> Case:
        """Return the linear loss on a line: with one coordinate it has the largest sensitivity there is."""
        return tree_case(20, 1, {"B1": 4, "B2": 4})

    def printed_m(self, setting: Setting, alpha: float, shape: Shape) -> float:
        """Return d."""
        return float(setting.problem.d)


ALGORITHM = Zhang24()
