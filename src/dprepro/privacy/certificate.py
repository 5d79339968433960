"""Certificates: what a run claims, what its events are accounted at, and which conditions hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dprepro.privacy.accounting import account
from dprepro.privacy.events import ADJACENCY, event_to_json

if TYPE_CHECKING:
    from dprepro.algorithms.base import Plan

CAVEAT = "Noise comes from a seeded generator: good for experiments, not for releasing data."


def certify(plan: Plan) -> dict[str, Any]:
    """Return the certificate of a plan as plain values."""
    accounted = account(plan.events, plan.delta)
    return {
        "algorithm": plan.algorithm,
        "variant": plan.variant,
        "adjacency": ADJACENCY,
        "epsilon_claimed": plan.epsilon,
        "delta": plan.delta,
        "epsilon_accounted": accounted.epsilon,
        "accountant": accounted.accountant,
        "tight": accounted.tight,
        "theorem": plan.theorem,
        "conditions": [
            {"condition": condition.text, "holds": condition.holds, "detail": condition.detail}
            for condition in plan.conditions
        ],
        "verdict": _verdict(plan, accounted.epsilon, accounted.tight),
        "events": [event_to_json(event) for event in plan.events],
        "caveat": CAVEAT,
    }


def _verdict(plan: Plan, epsilon: float, tight: bool) -> str:
    if math.isinf(plan.epsilon):
        return "no privacy asked for"
    if epsilon <= plan.epsilon:
        return "certified"
    if tight:
        return f"not private as {plan.variant} (accounted epsilon = {epsilon:.4g})"
    if math.isinf(epsilon):
        return "not certified (a data-dependent quantity is used without noise)"
    return "not certified (the accountant gives an upper bound only)"
