"""What DP-SVRG and DP-SVRG++ share: the privacy event of an inner step and the condition on epsilon."""

from __future__ import annotations

from dprepro.algorithms.base import Condition, Setting
from dprepro.errors import UserError
from dprepro.privacy.events import GaussianEvent, QueryPart

INNER = "inner step"


def inner_event(setting: Setting, sigma: float, count: int, b: int) -> GaussianEvent:
    """Return the event of SVRG's inner steps: a mean of b sampled gradient differences plus the full gradient.

    Replacing a record moves the mean by at most two spreads over b when the record is drawn, and the full
    gradient, which is reused in every inner step, by 2G/n always.
    """
    problem = setting.problem
    if b >= problem.n:
        raise UserError(f"b is {b}, but there are only {problem.n} records: give a smaller inner batch.")
    parts = (
        QueryPart(2.0 * problem.gradient_spread / b, b, problem.n),
        QueryPart(2.0 * problem.G / problem.n, problem.n, problem.n),
    )
    return GaussianEvent(INNER, sigma, parts, count)


def batch_condition(b: int) -> Condition:
    """Return the condition that the theorems are stated for one record per inner step."""
    return Condition("one record per inner step (b = 1)", b == 1, f"b = {b}")


def sampling_condition(setting: Setting, name: str, steps: int) -> Condition:
    """Return the condition epsilon <= c1 steps / n^2 of Theorems 4.1 and 4.3 (c1, unstated, taken as 1)."""
    bound = steps / setting.problem.n**2
    return Condition(
        f"epsilon <= c1 {name} / n^2 (c1 unstated, taken as 1)",
        setting.epsilon <= bound,
        f"epsilon = {setting.epsilon:g} against {bound:.3g}, a ratio of {setting.epsilon / bound:.3g}",
    )
