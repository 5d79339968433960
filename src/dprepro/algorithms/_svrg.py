"""What DP-SVRG and DP-SVRG++ share: the privacy event of an inner step and the condition on epsilon."""

from __future__ import annotations

from dprepro.algorithms.base import Condition, Setting
from dprepro.privacy.events import GaussianEvent, QueryPart

INNER = "inner step"


def inner_event(setting: Setting, sigma: float, count: int) -> GaussianEvent:
    """Return the event of SVRG's inner steps: one sampled gradient difference plus the full gradient.

    Replacing a record moves the difference by at most two spreads when the record is drawn, and the full
    gradient, which is reused in every inner step, by 2G/n always.
    """
    problem = setting.problem
    parts = (
        QueryPart(2.0 * problem.gradient_spread, 1, problem.n),
        QueryPart(2.0 * problem.G / problem.n, problem.n, problem.n),
    )
    return GaussianEvent(INNER, sigma, parts, count)


def sampling_condition(setting: Setting, name: str, steps: int) -> Condition:
    """Return the condition epsilon <= c1 steps / n^2 of Theorems 4.1 and 4.3 (c1, unstated, taken as 1)."""
    bound = steps / setting.problem.n**2
    return Condition(
        f"epsilon <= c1 {name} / n^2 (c1 unstated, taken as 1)",
        setting.epsilon <= bound,
        f"epsilon = {setting.epsilon:g} against {bound:.3g}, a ratio of {setting.epsilon / bound:.3g}",
    )
