"""Audits: attack an algorithm and prove a lower bound on the epsilon it really spends.

An audit runs the algorithm tens of thousands of times on each of two neighbouring datasets that make it leak as much
as its accounting allows, gives every run a score, and turns the scores into a bound that holds with a stated
confidence. The plan, the mechanisms and the ledger are those of an ordinary run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.arrays import TILE, Backend, get_backend, single_blas_thread
from dprepro.errors import RunFailed, UserError, VacuousSetting
from dprepro.privacy.accounting import account, check_epsilon, delta_profile, is_gaussian
from dprepro.privacy.bounds import BETA, MIN_REPLICATES, audit_bounds, largest_refuted_scale, violates
from dprepro.privacy.cases import Case, Rows, Transcript
from dprepro.privacy.certificate import certify, set_here
from dprepro.privacy.events import Event, UnprotectedEvent, leaves, scale_events
from dprepro.problems import make_risk
from dprepro.run import Execution

if TYPE_CHECKING:
    from dprepro.algorithms.base import Algorithm, Plan

REPLICATES = 20_000


class Watched(Execution):
    """An execution that keeps what an attacker would see."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.before: list[np.ndarray] = []
        self.after: list[np.ndarray] = []
        self.points: list[np.ndarray] = []

    def prox(self, V: Any, eta: Any) -> Any:
        """Return the prox and keep both sides of it."""
        moved = super().prox(V, eta)
        self.before.append(self._backend.to_host(V))
        self.after.append(self._backend.to_host(moved))
        return moved

    def checkpoint(self, W: Any, rounds: int = 1) -> None:
        """Keep the point."""
        super().checkpoint(W, rounds)
        self.points.append(self._backend.to_host(W))

    def steps_in_kernel(self, label: str, obstacle: str = "") -> bool:
        """Return False: a kernel shows the ends of its steps only."""
        return super().steps_in_kernel(label, obstacle or "an audit sees every step")


def audit(
    algorithm: Algorithm,
    *,
    variant: str,
    epsilon: float,
    delta: float,
    replicates: int = REPLICATES,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, Any]:
    """Audit one algorithm and return a row: claimed, accounted and proven epsilon with a verdict.

    Raises `RunFailed` if more is proven than the accountant allows: then the accountant, the mechanism or the stated
    sensitivity is wrong.
    """
    from dprepro.algorithms.base import Setting

    if replicates < MIN_REPLICATES:
        raise UserError(f"replicates is {replicates}: an audit needs at least {MIN_REPLICATES} on each side.")
    if not np.isfinite(check_epsilon(epsilon)):
        raise UserError("epsilon is inf: an audit needs a claim to refute; give a finite number > 0.")
    if seed < 0:
        raise UserError(f"seed is {seed}: give a whole number >= 0.")
    case = algorithm.audit_case()
    try:
        plan = algorithm.plan(Setting(case.spec, epsilon, delta, variant), **case.letters_of(variant))
    except VacuousSetting as error:
        if not case.generic:
            raise
        raise UserError(f"{error} It is the generic audit that has these data: write an audit_case.") from None
    certificate = certify(plan)
    backend = get_backend(device, "float64")
    with single_blas_thread():
        scores = [
            side_scores(algorithm, plan, case, rows, seed=2 * seed + side, replicates=replicates, backend=backend)
            for side, rows in enumerate((case.neighbour, case.rows))
        ]
    if lost := sum(int(np.isnan(side).sum()) for side in scores):
        raise RunFailed(
            f"{lost} of {2 * replicates} runs in the audit of {plan.algorithm} ({plan.variant}, claimed epsilon = "
            f"{epsilon:g}) have no score, as they did not end in numbers: nothing is proven without them."
        )
    bounds = audit_bounds(scores[0], scores[1], delta, BETA)
    accounted = float(certificate["epsilon_accounted"])
    gaussian = is_gaussian(plan.events)
    tradeoff = bounds.epsilon_tradeoff if gaussian else _refuted_epsilon(scores, plan.events, delta)
    # For a curve that is not Gaussian the trade-off figure assumes the curve's shape: shown, but not called proven.
    proven = max(bounds.epsilon_clopper_pearson, tradeoff if gaussian else 0.0)
    refuted = proven > accounted
    if not gaussian and np.isfinite(accounted):
        # The whole curve that is accounted, not only its epsilon at delta.
        refuted |= violates(scores[0], scores[1], delta_profile(plan.events, delta), BETA, _EPSILONS)
    if refuted:
        raise RunFailed(
            f"The audit of {plan.algorithm} ({plan.variant}, claimed epsilon = {epsilon:g}) proves epsilon >= "
            f"{proven:.4g}, but {accounted:.4g} is accounted: a mechanism, a sensitivity or the accountant is wrong."
        )
    return {
        "algorithm": plan.algorithm,
        "variant": plan.variant,
        "case": case.name,
        "dtype": backend.dtype_name,
        "epsilon_claimed": epsilon,
        "delta": delta,
        "epsilon_accounted": accounted,
        "epsilon_audited": proven,
        "epsilon_clopper_pearson": bounds.epsilon_clopper_pearson,
        "epsilon_tradeoff": tradeoff,
        "replicates_per_side": replicates,
        "confidence": 1.0 - 2.0 * BETA,
        "verdict": f"proves more than claimed{_why(plan)}" if proven > epsilon else "below the accounted epsilon",
    }


def _why(plan: Plan) -> str:
    """Return what a verdict adds: where data are used without noise that is the reason, and no constant changes it."""
    if not any(isinstance(event, UnprotectedEvent) for event in leaves(plan.events)):
        return set_here(plan)
    missed = [condition.detail for condition in plan.conditions if condition.privacy and not condition.holds]
    return f": {'; '.join(missed) or 'data are used without noise'}, which no constant repairs"


def _refuted_epsilon(scores: list[np.ndarray], events: tuple[Event, ...], delta: float) -> float:
    """Return the epsilon of the strongest claim that the scores refute, among claims of more or less noise.

    This is the trade-off bound for mechanisms whose curve is not Gaussian: the curve is the accountant's for the
    events with their noise divided by a scale below 1, and the largest refuted scale is turned into an epsilon.
    """

    def profile(scale: float) -> Callable[[float], float]:
        return delta_profile(scale_events(events, 1.0 / scale), delta)

    scale = largest_refuted_scale(scores[0], scores[1], profile, _SCALES, BETA, _EPSILONS)
    return 0.0 if scale is None else account(scale_events(events, 1.0 / scale), delta).epsilon


_SCALES = (0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9)
_EPSILONS = tuple(np.concatenate([np.linspace(0.0, 1.0, 11), np.geomspace(1.25, 12.0, 14)]))


def side_scores(
    algorithm: Algorithm, plan: Plan, case: Case, rows: Rows, *, seed: int, replicates: int, backend: Backend
) -> np.ndarray:
    """Run the algorithm on one dataset and return the score of every run."""
    problem = make_risk(case.spec, *rows, backend)
    scores = []
    for tile in range(-(-replicates // TILE)):
        ex = Watched(plan, problem, seed, list(range(tile * TILE, (tile + 1) * TILE)))
        output = backend.to_host(ex.checked_output(plan, algorithm.anew().run(plan, ex)))
        ex.check(plan)
        steps = np.array(ex.before), np.array(ex.after), np.array(ex.points)
        scores.append(case.score(Transcript(output, *steps, eta=getattr(plan, "eta", 1.0)), case, plan))
    return np.concatenate(scores)[:replicates]
