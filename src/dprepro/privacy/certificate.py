"""Certificates: what a run claims, what its events are accounted at, and which conditions hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dprepro import __version__, digests
from dprepro.errors import UserError
from dprepro.files import jsonable
from dprepro.privacy.accounting import (
    Accounted,
    account,
    advanced_composition_epsilon,
    confirms,
    probability_sampled,
)
from dprepro.privacy.calibrate import HARDLY_MORE, noise_ratio
from dprepro.privacy.events import ADJACENCY, event_from_json, event_to_json, is_noisy

if TYPE_CHECKING:
    from dprepro.algorithms.base import Plan

# Keys of a certificate that are copied from the plan, with the plan's names for them.
_STATED_AS = {
    **{key: key for key in ("algorithm", "variant", "delta", "theorem", "constant_set_here", "events")},
    "epsilon_claimed": "epsilon",
}
CAVEAT = "Noise comes from a seeded generator: good for experiments, not for releasing data."


def certify(plan: Plan, *, compare: bool = True) -> dict[str, Any]:
    """Return the certificate of a plan as plain values.

    `noise_ratio` is the plan's noise over the smallest noise that the accountant certifies for the claimed epsilon:
    above 1 the plan is loose, below 1 it does not keep its claim. It is NaN for a plan without noise or with an
    infinite epsilon. Finding the smallest noise takes longer than the rest; without `compare` the ratio is left out,
    NaN for every variant.
    """
    accounted = account(plan.events, plan.delta)
    ratio = _noise_ratio(plan, accounted.epsilon) if compare else math.nan
    return {
        "algorithm": plan.algorithm,
        "variant": plan.variant,
        "adjacency": ADJACENCY,
        "epsilon_claimed": plan.epsilon,
        "delta": plan.delta,
        "epsilon_accounted": accounted.epsilon,
        "epsilon_lower": accounted.lower,
        "delta_at_claimed_epsilon": accounted.delta(plan.epsilon),
        "accountant": accounted.argument,
        "accountant_version": __version__,
        "tight": accounted.tight,
        "noise_ratio": ratio,
        "probability_record_sampled": probability_sampled(plan.events),
        "epsilon_advanced_composition": advanced_composition_epsilon(plan.events, plan.delta),
        "theorem": plan.theorem,
        "constant_set_here": plan.constant_set_here,
        "conditions": [
            {
                "condition": condition.text,
                "holds": condition.holds,
                "detail": condition.detail,
                "privacy": condition.privacy,
            }
            for condition in plan.conditions
        ],
        "verdict": _verdict(plan, accounted, ratio) + _at_its_word(plan),
        "drawn_by": plan.drawn_by or f"dprepro {__version__}",
        "events": [event_to_json(event) for event in plan.events],
        "plan_digest": plan_digest(plan),
        "caveat": CAVEAT,
    }


def plan_digest(plan: Plan) -> str:
    """Return the digest of a plan: of every number that a run follows, its events and their noise included."""
    return digests.of_value(jsonable(plan.to_json()))


def check_certified(record: Mapping[str, Any], job: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` unless plan and certificate in a record of the file `where` belong together and to the job.

    `record` is that of a run or of a point of a sweep, of plain JSON values; `job` has its algorithm, variant and
    privacy. Algorithm, privacy and size of the plan must be those that the job asks for, and claim and events of the
    certificate those of the plan. Where the accounted epsilon has a closed form, it is confirmed by a second
    computation.
    """
    plan, certificate = record["plan"], record["certificate"]
    # An infinite epsilon is a text in JSON.
    asked = {
        **{key: job[key] for key in ("algorithm", "variant")},
        **{key: float(job[key]) for key in ("epsilon", "delta")},
    }
    # A plan without a run beside it does not state the facts of its dataset.
    asked |= {key: record["dataset"][key] for key in ("n", "d") if "dataset" in record}
    for key, wanted in asked.items():
        found = float(plan[key]) if isinstance(wanted, float) else plan[key]
        if found != wanted:
            raise UserError(
                f"The plan in {where} is not that of its job: expected {key} = {wanted}, found {found}; "
                f"{digests.AGAIN}."
            )
    digests.check_binding(certificate, plan, where)
    for key, of_plan in _STATED_AS.items():
        if certificate.get(key) != plan[of_plan]:
            raise UserError(f"The certificate in {where} does not state the {key} of its plan; {digests.AGAIN}.")
    stated, events = float(certificate["epsilon_accounted"]), tuple(map(event_from_json, plan["events"]))
    if confirms(events, stated, plan["delta"]) is False:
        raise UserError(
            f"The certificate in {where} states an accounted epsilon of {stated:.6g}, which its events do not spend at "
            f"delta = {plan['delta']:g}; {digests.AGAIN}."
        )


def _noise_ratio(plan: Plan, accounted: float) -> float:
    if math.isinf(plan.epsilon) or not is_noisy(plan.events):
        return math.nan
    try:
        return noise_ratio(plan.events, plan.epsilon, plan.delta, accounted)
    except UserError:  # no noise certifies it
        return 0.0


def _at_its_word(plan: Plan) -> str:
    """Return what a verdict adds where a library draws the noise: the ledger saw none of it."""
    noisy = plan.drawn_by and math.isfinite(plan.epsilon)
    return f"; noise declared by {plan.drawn_by}, not drawn here" if noisy else ""


def _verdict(plan: Plan, accounted: Accounted, ratio: float) -> str:
    if math.isinf(plan.epsilon):
        return "no privacy asked for"
    if accounted.epsilon <= plan.epsilon:
        loose = ratio > HARDLY_MORE
        return f"certified, loose ({ratio:.2f} times more noise than needed)" if loose else "certified"
    if accounted.lower > plan.epsilon:
        # What refutes the claim is the lower bound: where the upper one is larger, it proves nothing.
        word = "accounted epsilon =" if accounted.lower == accounted.epsilon else "epsilon at least"
        return f"not private as {plan.variant}{set_here(plan)} ({word} {accounted.lower:.4g})"
    if math.isinf(accounted.epsilon):
        return f"not certified ({accounted.accountant.removeprefix('none: ')})"
    missed = [condition for condition in plan.conditions if condition.privacy and not condition.holds]
    remark = "; conditions of the theorem not met" if missed else ""
    if missed and all(condition.set_here for condition in missed):
        remark += f" with {', '.join(condition.set_here for condition in missed)}, set here"
    return f"not certified{set_here(plan)} (accounted epsilon = {accounted.epsilon:.4g} is an upper bound){remark}"


def set_here(plan: Plan) -> str:
    """Return what a verdict adds where a constant of the noise is not the paper's: with another its claim may hold."""
    return f" with {plan.constant_set_here}, set here" if plan.constant_set_here else ""
