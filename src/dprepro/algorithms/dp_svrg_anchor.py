"""DP-SVRG, anchored: the full gradient is released once per epoch instead of in every inner step.

This variant of WYX17's Algorithm 1 is ours and not in the paper. There every inner step releases the snapshot's full
gradient anew, and the noise must cover all these releases. Here the gradient at the snapshot, the anchor, is released
once per epoch with noise of its own; the inner steps add mini-batches of clipped gradient differences, whose noise is
in proportion to the clip radius and so much smaller. No theorem covers it; `published` takes over the form of WYX17's
equation (3) with the two sensitivities, `certified` and `practical` are calibrated as always.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dprepro.algorithms._svrg import INNER, SAMPLING, sampled_part
from dprepro.algorithms.base import LARGEST_WORK, Algorithm, Condition, Letter, Plan, Setting, refuse_vacuous
from dprepro.errors import UserError
from dprepro.privacy.events import GaussianEvent
from dprepro.regularizers import Regularizer

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any

ANCHOR = "anchor"
EPOCHS = 3
# Without noise: the gap is divided by e^40 in as many epochs, which exhausts double precision.
EPOCHS_WITHOUT_NOISE = 40
# What the noise of the inner steps may add to the error beside that of the anchors.
INNER_ERROR = 0.1
LARGEST_SHARE = 0.99


@dataclass(frozen=True, kw_only=True)
class DPSVRGAnchorPlan(Plan):
    """T epochs of m inner steps of size eta on b records, their gradient differences clipped at r.

    `sigma` is the noise of an inner step and `sigma_anchor` that of an anchor, which takes about `share` of the
    privacy; the next anchor is the `last` iterate of an epoch or their `mean`.
    """

    sigma_anchor: float
    T: int
    m: int
    b: int
    eta: float
    r: float
    c: float
    share: float
    sampling: str
    anchor: str

    def with_noise(self, factor: float) -> Self:
        """Return the same plan with `factor` times the noise."""
        return dataclasses.replace(super().with_noise(factor), sigma_anchor=self.sigma_anchor * factor)


class DPSVRGAnchor(Algorithm):
    """Variance-reduced gradient descent around anchors whose full gradient is released once."""

    name = "dp_svrg_anchor"
    title = "DP-SVRG, anchored"
    paper = "own"
    needs = frozenset({"smooth", "convex", "strongly_convex", "lipschitz"})
    plan_type = DPSVRGAnchorPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "epochs, each with one anchor"),
        "m": Letter(int, "inner steps per epoch"),
        "b": Letter(int, "records per inner step, the expected number if sampling=poisson"),
        "eta": Letter(float, "step size"),
        "r": Letter(float, "clip radius of one sampled gradient difference"),
        "c": Letter(float, "the open constant of the noise variance, as in WYX17's equation (3)", constant="set here"),
        "share": Letter(float, "share of the squared privacy parameter that goes to the anchors, below 1"),
        "sampling": SAMPLING,
        "anchor": Letter(str, "which point of an epoch is the next anchor", choices=("last", "mean")),
    }

    def audit_case(self) -> Case:
        """Return a case in which the anchors leak all they can and the inner noise hides little of it."""
        from dprepro.privacy.cases import linear_case

        case = linear_case(50, {"T": 4, "m": 1, "b": 5, "eta": 0.1, "r": 0.01, "share": 0.9})
        # Strong convexity, which a plan needs, so weak that a run does not feel it.
        return dataclasses.replace(case, spec=dataclasses.replace(case.spec, regularizer=Regularizer(l2=1e-6)))

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> DPSVRGAnchorPlan:
        """Fill in what is not given.

        eta = 1/(L + l2), three epochs, m for the contraction that the noise allows, b for two passes over the data per
        epoch. In the end the anchors contribute 1/share to the error and the inner steps B/(1 - share), where
        B = eta m (L + l2)/2 (r/G)^2 at most: r makes B a tenth and `share` minimises the sum.
        """
        problem = setting.problem
        n, smoothness = problem.n, problem.L + problem.regularizer.l2
        eta = given.get("eta", 1.0 / smoothness)
        T = given.get("T") or (EPOCHS if setting.noisy else EPOCHS_WITHOUT_NOISE)
        m = given.get("m") or max(1, math.ceil(_steps(setting, eta) / T))
        b = given.get("b") or max(1, round(n / (2 * m)))
        weight = math.sqrt(0.5 * eta * m * smoothness) / problem.G  # sqrt(B) = r weight
        r = given.get("r") or _radius(setting, weight)
        share = given.get("share", min(LARGEST_SHARE, 1.0 / (1.0 + r * weight)))
        if share >= 1.0:
            raise UserError(f"share of {self.name} is {share:g}: give a number between 0 and 1, both not included.")
        sampling = given.get("sampling", "poisson")
        c = given.get("c", 1.0)
        sigma = sigma_anchor = 0.0
        if setting.noisy:
            scale = math.sqrt(c * T * math.log(1.0 / setting.delta)) / (n * setting.epsilon)
            sigma, sigma_anchor = scale * r * math.sqrt(m / (1.0 - share)), scale * problem.G / math.sqrt(share)
        return DPSVRGAnchorPlan(
            **self.plan_head(setting),
            theorem="none: noise in the form of WYX17, equation (3)",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * (n + 2 * b * m),
            utility=None,
            events=(
                GaussianEvent(ANCHOR, sigma_anchor, (setting.full_part,), T, attained=setting.spread_attained),
                # An epoch begins with differences of zero.
                GaussianEvent(INNER, sigma, (sampled_part(setting, b, r, sampling),), T * m, attained=False),
            ),
            conditions=(
                Condition("a theorem covers the noise", False, "the algorithm is not in the paper", privacy=True),
                Condition("eta <= 1/L", eta * smoothness <= 1.0 + 1e-12, f"eta L = {eta * smoothness:.3g}"),
            ),
            sigma_anchor=sigma_anchor,
            T=T,
            m=m,
            b=b,
            eta=eta,
            r=r,
            c=c,
            share=share,
            sampling=sampling,
            anchor=given.get("anchor", "last"),
        )

    def run(self, plan: DPSVRGAnchorPlan, ex: Execution) -> Array:
        """Run T epochs around T anchors."""
        x_tilde = ex.start()
        for a in ex.gaussian(ANCHOR).noise(plan.T):
            v_tilde = ex.full_gradient(x_tilde) + a
            x, total = x_tilde, ex.zeros()
            for i, u in ex.sampled(INNER, plan.m):
                v = ex.gradient_difference(x, x_tilde, i, plan.r) + u + v_tilde
                x = ex.prox(x - plan.eta * v, plan.eta)
                total = total + x
            x_tilde = x if plan.anchor == "last" else total / plan.m
            ex.checkpoint(x_tilde)
        return x_tilde


def _radius(setting: Setting, weight: float) -> float:
    """Return the clip radius with which the inner steps add INNER_ERROR; without noise nothing is clipped."""
    longest, error = setting.problem.gradient_spread, math.sqrt(INNER_ERROR)
    return error / weight if setting.noisy and weight * longest > error else longest


def _steps(setting: Setting, eta: float) -> float:
    """Return how many steps of size eta divide the gap by n^2 eps^2 mu / (p G^2 ln(1/delta)), as WYX17's T does."""
    mu = setting.problem.mu
    rate = max(2.0 * eta * mu, 1.0 / LARGEST_WORK)
    if not setting.noisy:
        return EPOCHS_WITHOUT_NOISE / rate

    def gain(n: float) -> float:
        return setting.signal(n) ** 2 * mu

    refuse_vacuous(
        setting, lambda n: gain(n) > 1.0, "dp_svrg_anchor has no step", "the noise exceeds what there is to gain", "m"
    )
    return math.log(gain(setting.problem.n)) / rate


ALGORITHM = DPSVRGAnchor()
