"""Recorded answers of the accountant: they only tell that something moved.

That they are right is shown by the other tests. `python tests/privacy/test_recorded_accounting.py` writes them anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from recorded import assert_same, record, recorded

from dprepro.errors import UserError
from dprepro.privacy import accounting
from dprepro.privacy.accounting import Accounted, account
from dprepro.privacy.events import (
    ConditionEvent,
    DisjointGaussianEvent,
    Event,
    FadingSelectionEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    ParallelEvent,
    QueryPart,
    SelectionEvent,
    TreeEvent,
    UnprotectedEvent,
)

DELTA = 1e-5
FULL = GaussianEvent("full", 2.0, (QueryPart(0.3, 100, 100),), 4)
TWO_FULL = GaussianEvent("two", 3.0, (QueryPart(0.3, 100, 100), QueryPart(0.1, 50, 50)), 3)
LAST = GaussianEvent("last", 2.0, (QueryPart(0.5, 100, 100),), 12, contraction=0.8)
SILENT = GaussianEvent("silent", 0.0, (QueryPart(0.3, 100, 100),), 4)
UNUSED = GaussianEvent("unused", 0.0, (QueryPart(0.3, 100, 100),), 0)
OPEN = GaussianEvent("open", 1.0, (QueryPart(0.3, 100, 100),), 2, attained=False)
SAMPLED = GaussianEvent("sampled", 1.5, (QueryPart(1.0, 10, 100),), 3)
SMALL_SAMPLED = GaussianEvent("small", 4.0, (QueryPart(1.0, 10, 100),), 2)
DIM = GaussianEvent("dim", 0.01, (QueryPart(1.0, 50, 100),), 3)
POISSON = GaussianEvent("poisson", 1.5, (QueryPart(0.5, 20, 100, poisson=True),), 2)
SUM = GaussianEvent("sum", 2.0, (QueryPart(1.0, 10, 100), QueryPart(0.2, 100, 100)), 2)
POISSON_SUM = GaussianEvent("sum", 2.0, (QueryPart(0.2, 100, 100), QueryPart(0.5, 20, 100, poisson=True)), 2)
LAPLACE = LaplaceEvent("laplace", 4.0, 1.5, 3)
MAX = SelectionEvent("max", "laplace", 20.0, 0.5, 30)
OTHER_MAX = SelectionEvent("max", "laplace", 9.0, 0.5, 5)
FEW_MAX = SelectionEvent("max", "laplace", 2.0, 0.5, 2)
GUMBEL = SelectionEvent("choice", "gumbel", 20.0, 0.5, 30)
OTHER_GUMBEL = SelectionEvent("choice", "gumbel", 9.0, 0.5, 50)
FEW_GUMBEL = SelectionEvent("choice", "gumbel", 2.0, 0.5, 1)
TREE = TreeEvent("tree", 3.0, 0.5, 8, 2)
FIRST_TREE = TreeEvent("tree", 3.0, 0.5, 8, 3, first=0.6)
DISJOINT_TREES = TreeEvent("tree", 3.0, 0.5, 8, 2, disjoint=True)
OPEN_TREE = TreeEvent("tree", 3.0, 0.5, 8, 2, attained=False)
SILENT_TREE = TreeEvent("tree", 0.0, 0.5, 8, 2)
BALL = ObjectivePerturbationEvent("b", "gaussian", 8.0, 2.0, 0.25, 1.0, 1)
WIDE_BALL = ObjectivePerturbationEvent("b", "gaussian", 1.0, 2.0, 0.25, 1.0, 1)
GAMMA = ObjectivePerturbationEvent("b", "gamma", 8.0, 2.0, 0.25, 0.5, 1)
SILENT_BALL = ObjectivePerturbationEvent("b", "gaussian", 0.0, 2.0, 0.25, 1.0, 1)
FADING = FadingSelectionEvent("fading", "gumbel", 20.0, (((0.5, 2), (0.25, 4)), ((0.4, 8),)), 9)
FADING_MAX = FadingSelectionEvent("fading", "laplace", 20.0, (((0.5, 2), (0.25, 4)), ((0.4, 8),)), 9)
DISJOINT = DisjointGaussianEvent("disjoint", (2.0, 3.0), (0.4, 0.9), 50)
CONDITION = ConditionEvent("condition", 4e-6)
HALF = ConditionEvent("condition", 0.5)
UNPROTECTED = UnprotectedEvent("step size", 3)
NO_STEP = UnprotectedEvent("step size", 0)
PARALLEL = ParallelEvent("phases", ((FULL,), (LAPLACE, TREE), (DISJOINT,)))
EMPTY = ParallelEvent("nothing", ())

CHEAP: dict[str, tuple[Event, ...]] = {
    "nothing": (),
    "full": (FULL,),
    "two full": (FULL, TWO_FULL),
    "last": (LAST,),
    "last, full": (LAST, FULL),
    "tree": (TREE,),
    "first leaf": (FIRST_TREE, FULL),
    "disjoint trees": (DISJOINT_TREES, LAST),
    "disjoint": (DISJOINT,),
    "condition": (FULL, CONDITION),
    "two conditions": (FULL, CONDITION, CONDITION),
    "all of delta": (FULL, ConditionEvent("condition", DELTA)),
    "more than delta": (FULL, ConditionEvent("condition", 2 * DELTA)),
    "condition on a tree": (TREE, CONDITION, FULL),
    "no noise": (SILENT,),
    "no noise, noise": (SILENT, FULL),
    "not used": (UNUSED, FULL, NO_STEP),
    "tree without noise": (FULL, SILENT_TREE),
    "laplace without noise": (LaplaceEvent("laplace", 0.0, 1.0, 1), FULL),
    "laplace not used": (LaplaceEvent("laplace", 0.0, 1.0, 0), FULL),
    "selection without noise": (SelectionEvent("max", "gumbel", 0.0, 1.0, 1),),
    "unprotected": (UNPROTECTED,),
    "unprotected, full": (UNPROTECTED, FULL),
    "unprotected, no noise": (UNPROTECTED, SILENT),
    "unprotected, no noise, full": (FULL, UNPROTECTED, SILENT),
    "unprotected, laplace without noise": (UNPROTECTED, FULL, LaplaceEvent("laplace", 0.0, 1.0, 1)),
    "unprotected, dim": (UNPROTECTED, DIM),
    "unprotected, conditioned": (UNPROTECTED, FULL, CONDITION),
    "unprotected, objective": (UNPROTECTED, BALL),
    "open": (OPEN,),
    "open, full": (OPEN, FULL),
    "open tree": (OPEN_TREE, FULL),
    "open phase": (ParallelEvent("phases", ((OPEN,), (FULL,))),),
    "dear open phase": (ParallelEvent("phases", ((FULL,), (FULL, OPEN))), FULL),
    "objective": (BALL,),
    "objective, gamma": (GAMMA,),
    "objective, much": (WIDE_BALL,),
    "objective, conditioned": (BALL, CONDITION),
    "objective, two conditions": (CONDITION, GAMMA, CONDITION),
    "objective, silent": (SILENT_BALL,),
    "objective and more": (BALL, FULL),
    "objective and unused": (BALL, UNUSED),
    "silent objective and more": (SILENT_BALL, FULL),
    "max": (MAX,),
    "few max": (FEW_MAX,),
    "gumbel": (GUMBEL,),
    "few gumbel": (FEW_GUMBEL,),
    "two gumbel": (GUMBEL, OTHER_GUMBEL),
    "two small gumbel": (FEW_GUMBEL, SelectionEvent("choice", "gumbel", 3.0, 0.5, 1)),
    "gumbel, conditioned": (GUMBEL, CONDITION),
    "fading": (FADING,),
    "dim": (DIM,),
    "dim twice": (DIM, DIM),
    "dim, conditioned": (DIM, CONDITION),
    "empty": (EMPTY, FULL),
    "parallel full": (ParallelEvent("phases", ((FULL,), (TREE,))), LAST),
    "two phases": (ParallelEvent("a", ((FULL,), (TREE,))), ParallelEvent("b", ((LAST,), ()))),
    "phase without noise": (ParallelEvent("a", ((FULL,), (SILENT,))),),
    "conditioned phase": (ParallelEvent("a", ((FULL,), (FULL, CONDITION))),),
}
LOSSES: dict[str, tuple[Event, ...]] = {
    "sampled": (SAMPLED,),
    "sampled, much noise": (SMALL_SAMPLED,),
    "sampled, conditioned": (SAMPLED, CONDITION),
    "sampled, full": (SAMPLED, FULL),
    "poisson": (POISSON,),
    "laplace": (LAPLACE,),
    "laplace, full": (LAPLACE, FULL),
    "two max": (MAX, OTHER_MAX),
    "max, gumbel": (MAX, OTHER_GUMBEL),
    "gumbel, full": (GUMBEL, FULL),
    "max, laplace": (OTHER_MAX, LAPLACE),
    "fading max": (FADING_MAX,),
    "parallel": (PARALLEL,),
}
SUMS: dict[str, tuple[Event, ...]] = {"sum": (SUM,), "poisson sum, sampled": (POISSON_SUM, SAMPLED)}
# A transform, an optimiser or a bisection is in between.
SEARCHED = (
    *("account", "best", "certainly", "composed", "grids", "losses", "next", "numbers", "profile", "sampled release"),
    *("shown", "the bound", "tolerances", "within"),
)
EPSILONS = (0.0, 0.05, 0.3, 0.8, 3.0)


def told(accounted: Accounted, epsilons: tuple[float, ...] = EPSILONS) -> dict[str, Any]:
    return {
        "epsilon": accounted.epsilon,
        "lower": accounted.lower,
        "accountant": accounted.accountant,
        "argument": accounted.argument,
        "tight": accounted.tight,
        "deltas": [accounted.delta(epsilon) for epsilon in epsilons],
    }


def refusal(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except UserError as error:
        return f"refused: {error}"


def numbers_of(events: tuple[Event, ...], share: float = 0.6, delta: float = DELTA) -> dict[str, Any]:
    """The sorted and divided events, and what is derived from them in closed form."""
    kinds = accounting._Sorted.of(events)
    divided = accounting._divided(kinds, math.sqrt(kinds.squared_mu), share)
    return {
        "spent": kinds.spent_delta,
        "squared_mu": kinds.squared_mu,
        "counts": [len(kinds.sampled), len(kinds.pure), len(kinds.laplace), len(kinds.objective)],
        "pure": kinds.pure,
        "problem": kinds.problem,
        "gdp": accounting._gdp_only(kinds),
        "mu": divided.mu,
        "sampled": [(one.sigma, one.part.sensitivity, one.part.batch, one.count) for one in divided.sampled],
        "kinds": [divided.pure_only, divided.bounded_only],
        "rho": divided.rho,
        "simple": accounting._simple_bound(divided, delta),
        "lower": accounting._lower(kinds, delta),
    }


def composed(events: tuple[Event, ...], interval: float, epsilon: float, share: float = 0.6) -> dict[str, Any]:
    """What the composition on a coarse grid says."""
    kinds = accounting._Sorted.of(events)
    loss = accounting._compose(accounting._divided(kinds, math.sqrt(kinds.squared_mu), share), interval, DELTA, epsilon)
    shapes = [(law.start, law.masses.size, law.infinity, count) for law, count in loss.factors]
    return {"laws": shapes, "epsilon": loss.epsilon(DELTA), "deltas": [loss.delta(at) for at in EPSILONS]}


def losses_epsilon(events: tuple[Event, ...], lower: float, tolerance: float, share: float = 0.6) -> float:
    kinds = accounting._Sorted.of(events)
    divided = accounting._divided(kinds, math.sqrt(kinds.squared_mu), share)
    return accounting._losses_epsilon(divided, DELTA, lower, tolerance)


def shown(events: tuple[Event, ...], share: float = 0.6, tolerance: float = 0.01) -> float:
    """The smallest epsilon that is shown, to one part in a million."""
    low, high = 0.0, 4.0
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if accounting.within(events, middle, DELTA, share, tolerance) else (middle, high)
    return high


def grids_asked(events: tuple[Event, ...]) -> list[Any]:
    """The divisions and grids on which the best share is searched for."""
    with mock.patch.object(accounting, "_compose", wraps=accounting._compose) as compose:
        share = accounting.best_share(events, DELTA)
    return [share, *([call.args[0].mu, *call.args[1:]] for call in compose.call_args_list)]


def tolerances_asked(events: tuple[Event, ...]) -> list[float]:
    """How accurate the epsilons are, one division of the noise after the other."""
    with mock.patch.object(accounting, "_losses_epsilon", wraps=accounting._losses_epsilon) as found:
        account(events, DELTA)
    return [call.args[3] for call in found.call_args_list]


def bound_as_lower(events: tuple[Event, ...]) -> float:
    """What is left to find if the closed bound is known to be spent."""
    kinds = accounting._Sorted.of(events)
    bound = accounting._simple_bound(accounting._divided(kinds, math.sqrt(kinds.squared_mu), 1.0), DELTA)
    return losses_epsilon(events, bound, 0.0)


def release(event: GaussianEvent) -> accounting._SampledRelease:
    return accounting._SampledRelease(event.sigma, event.parts[0], event.count)


def bisected(spent: Callable[[float], float], delta: float, high: float) -> dict[str, Any]:
    """Where a function comes down to delta, and in how many steps that is found."""
    tried: list[float] = []

    def seen(epsilon: float) -> float:
        tried.append(epsilon)
        assert len(tried) < 5000
        return spent(epsilon)

    return {"answer": accounting._smallest_epsilon(seen, delta, high), "steps": len(tried), "tried": tried[:4]}


CASES: dict[str, Callable[[], Any]] = {
    "gaussian delta": lambda: [
        accounting.gaussian_delta(mu, epsilon)
        for mu in (0.0, 1e-3, 0.3, 1.0, 5.0)
        for epsilon in (-0.5, 0.0, 0.1, 1.0, 20.0)
    ],
    "gaussian delta of a small mu": lambda: [
        accounting.gaussian_delta(mu, ratio * mu)
        for mu in (1e-250, 1e-15, 1e-9, 1e-6, 1e-3, 0.009)
        for ratio in (0.0, 0.1, 1.0, 5.0, 25.0, 37.0, 45.0, 1e100)
    ],
    "gaussian delta of a small mu, less than nothing": lambda: [
        accounting.gaussian_delta(mu, epsilon) for mu in (1e-9, 1e-3) for epsilon in (-1.0, -1e-3)
    ],
    "gaussian epsilon": lambda: [
        accounting.gaussian_epsilon(mu, delta) for mu in (0.0, 1e-6, 0.3, 1.0, 7.0, 1e4) for delta in (1e-12, 1e-5, 0.3)
    ],
    "gaussian epsilon, ends": lambda: [accounting.gaussian_epsilon(mu, 1e-5) for mu in (math.inf, 1e-300)],
    "gaussian epsilon, refused": lambda: [
        refusal(lambda mu=mu, delta=delta: accounting.gaussian_epsilon(mu, delta))
        for mu, delta in ((-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (0.0, 1.0), (math.inf, 2.0))
    ],
    "bisection": lambda: bisected(lambda epsilon: math.exp(-epsilon), 0.1, 8.0),
    "bisection, steep": lambda: bisected(lambda epsilon: 1.0 if epsilon < 3.0 else 0.5, 0.5, 4.0),
    "bisection, at zero": lambda: bisected(lambda epsilon: 0.5 - epsilon, 0.5, 4.0),
    "bisection, tiny": lambda: bisected(lambda epsilon: 1.0 if epsilon < 1e-3 else 0.0, 0.5, 4e-3),
    "bisection, tiniest": lambda: bisected(lambda epsilon: 1.0, 0.5, 5e-324),
    "last iterate": lambda: [
        accounting.last_iterate_mu(0.7, count, contraction)
        for count in (0, 1, 2, 30)
        for contraction in (0.05, 0.5, 1.0 - 1e-9, 1.0 - 2.0**-53, 1.0)
    ],
    "epsilons that are taken": lambda: [
        refusal(lambda value=value: accounting.check_epsilon(value))
        for value in (1e-100, 0.99e-100, 1.0, 1e100, 1.5e100, math.inf, 0.0, -1.0, math.nan, True, "1", None)
    ],
    "deltas that are taken": lambda: [
        refusal(lambda value=value: accounting.check_delta(value))
        for value in (1e-300, 0.99e-300, 0.5, 1.0, 1.5, 0.0, -1.0, math.nan, True, "1", None)
    ],
    "tight": lambda: [
        (accounted.tight, accounted.argument)
        for epsilon, lower in (
            (1.0, 1.0),
            (1.01, 1.0),
            (1.02, 1.0),
            (1.5, 1.0),
            (0.5, 0.4),
            (math.inf, math.inf),
            (0, 0),
        )
        for accounted in [Accounted(epsilon, lower, "by hand", lambda at: at)]
    ],
    "refused by account": lambda: [refusal(lambda d=d: account((), d).epsilon) for d in (0.0, 1.0, 0.5)],
    "refused, mixed": lambda: refusal(lambda: account((UNPROTECTED,), 1.0).epsilon),
    "summed parts": lambda: {
        name: accounting.has_summed_parts(events)
        for name, events in (CHEAP | LOSSES | SUMS | {"inner": (FULL, ParallelEvent("p", ((SUM,),)))}).items()
    },
    "gaussian": lambda: {name: accounting.is_gaussian(events) for name, events in (CHEAP | LOSSES | SUMS).items()},
    "advanced": lambda: [
        accounting.advanced_composition_epsilon(events, 1e-5)
        for events in (
            (GaussianEvent("a", 3.0, (QueryPart(0.1, 9, 9), QueryPart(0.2, 9, 9)), 4),),
            (GaussianEvent("a", 9.0, (QueryPart(0.1, 9, 9),), 1),),
            (GaussianEvent("a", 1.0, (QueryPart(0.1, 9, 9),), 1),),
            (GaussianEvent("a", 1.0, (QueryPart(0.25, 9, 9),), 1),),
            (GaussianEvent("a", 9.0, (QueryPart(0.1, 9, 9),), 1), LAPLACE),
            (GaussianEvent("a", 9.0, (QueryPart(0.1, 9, 9),), 1),) * 2,
            (GaussianEvent("a", 90.0, (QueryPart(0.1, 8, 9), QueryPart(0.1, 9, 9)), 1),),
            (GaussianEvent("a", 90.0, (QueryPart(0.1, 8, 9),), 1),),
            (LAPLACE,),
            (),
            (SILENT,),
            (GaussianEvent("a", math.sqrt(2.0 * math.log(1.25 / 5e-6)), (QueryPart(1.0, 9, 9),), 1),),
            (GaussianEvent("a", 9.0, (QueryPart(0.1, 9, 9),), 0),),
        )
    ],
    "probability sampled": lambda: {
        name: accounting.probability_sampled(events)
        for name, events in (
            CHEAP | LOSSES | SUMS | {"both": (SAMPLED, POISSON), "inner": (ParallelEvent("p", ((SUM,),)),)}
        ).items()
    },
    "objective": lambda: [
        accounting.objective_perturbation_delta(ObjectivePerturbationEvent("b", noise, scale, 2.0, 0.25, 0.5, 1), at)
        for noise in ("gaussian", "gamma")
        for scale in (0.3, 2.0, 9.0)
        for at in (0.0, 0.2, 0.41, 0.6, 1.0, 1.4, 2.0, 3.0)
    ],
    "halves": lambda: [
        accounting._halves_add_up(mu, epsilon)
        for mu in (0.1, 0.35, 1.0, 1.5, 2.0, 5.0)
        for epsilon in (0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 20.0)
    ],
    "curvature": lambda: accounting._curvature(GAMMA),
    "unknown event": lambda: [
        type(accounting._Sorted.of((FULL,))).__name__,
        refusal(lambda: accounting._Sorted.of((PARALLEL,)))[:40],
    ],
    "sequences": lambda: {
        name: [[event.label for event in sequence] for sequence in accounting._sequences(events)]
        for name, events in {
            **CHEAP,
            "parallel": (PARALLEL, FULL),
            "twice": (ParallelEvent("p", ((FULL,), (FULL,), (TREE,))),),
            "inner": (ParallelEvent("p", ((FADING, DISJOINT), ())),),
        }.items()
    },
    **{
        f"sampled release {event.label}": lambda event=event: [
            release(event).lower(1e-3),
            release(event).known_batches(1e-3),
            [release(event).losses(0.05, 1e-6, epsilon).epsilon(1e-2) for epsilon in (1.0, math.inf)],
        ]
        for event in (SAMPLED, POISSON)
    },
    **{
        f"numbers of {name}": lambda events=events: numbers_of(events)
        for name, events in (CHEAP | LOSSES | SUMS | {"all": (SUM, MAX, GUMBEL, LAPLACE, FULL)}).items()
        if name not in ("nothing", "not used")
        and not any(isinstance(event, ParallelEvent | FadingSelectionEvent | DisjointGaussianEvent) for event in events)
        and ("noise" not in name or "much noise" in name)
        and not name.startswith(("objective", "silent objective", "unprotected"))
    },
    **{
        f"composed {name}, {epsilon}": lambda events=events, epsilon=epsilon: composed(events, 0.02, epsilon)
        for name, events in {**LOSSES, **SUMS, "max": (MAX,), "all": (SUM, MAX, OTHER_GUMBEL, LAPLACE, FULL)}.items()
        if not any(isinstance(event, ParallelEvent | FadingSelectionEvent) for event in events)
        for epsilon in (1.0, math.inf)
    },
    **{
        f"losses epsilon of {name}, {lower}": lambda events=events, lower=lower: losses_epsilon(events, lower, 0.1)
        for name, events in {
            **SUMS,
            "sampled": (SAMPLED,),
            "max": (MAX,),
            "gumbel": (GUMBEL,),
            "laplace": (LAPLACE,),
        }.items()
        for lower in (0.0, 0.2, 1.1, 1.6, 2.0)
    },
    **{f"account {name}": lambda events=events: told(account(events, DELTA)) for name, events in CHEAP.items()},
    **{
        f"account {name}": lambda events=events: told(account(events, DELTA), (0.0, 0.4))
        for name, events in LOSSES.items()
    },
    **{
        f"account {name}": lambda events=events: told(account(events, DELTA), (0.0, 0.4))
        for name, events in SUMS.items()
    },
    "profile": lambda: [
        accounting.delta_profile((ParallelEvent("p", ((GAMMA,), (FULL,), (GUMBEL,))),), DELTA)(at) for at in EPSILONS
    ],
    **{
        f"within {name}": lambda events=events: [
            accounting.within(events, epsilon, DELTA, 0.6, 0.01) for epsilon in (0.3, 0.8, 1.4, 3.0, 10.0)
        ]
        for name, events in CHEAP.items()
    },
    **{
        f"within {name}": lambda events=events: [
            accounting.within(events, epsilon, DELTA, 0.6, 0.01) for epsilon in (0.3, 0.8, 1.2, 1.6, 2.2, 3.0)
        ]
        for name, events in {**LOSSES, **SUMS}.items()
    },
    **{
        f"shown {name}": lambda events=events: shown(events)
        for name, events in {
            "sampled": (SAMPLED,),
            "poisson": (POISSON,),
            "laplace": (LAPLACE,),
            "two max": (MAX, OTHER_MAX),
            "few max": (FEW_MAX,),
            "max": (MAX,),
            "few gumbel": (FEW_GUMBEL,),
            "two small gumbel": CHEAP["two small gumbel"],
            "gumbel": (GUMBEL,),
            "sum": (SUM,),
            "most of delta": (LAPLACE, ConditionEvent("condition", 9e-6)),
            "sampled, all of delta": (SAMPLED, ConditionEvent("condition", DELTA)),
            "sampled, more than delta": (SAMPLED, ConditionEvent("condition", 2 * DELTA)),
            "gumbel, most of delta": (GUMBEL, ConditionEvent("condition", 9e-6)),
        }.items()
    },
    "shown, just": lambda: {
        name: accounting.within(events, account(events, DELTA).epsilon, DELTA, 0.6, 0.01)
        for name, events in CHEAP.items()
    },
    "shown on too fine a grid": lambda: accounting.within((LAPLACE,), 1e-7, DELTA, 0.6, 1e-3),
    "shown by the sum": lambda: accounting.within((FEW_MAX,), 1.0, DELTA, 0.6, 0.3),
    "tolerances": lambda: tolerances_asked((SUM,)),
    "the bound is spent": lambda: [bound_as_lower(events) for events in ((LAPLACE,), (MAX,), (SAMPLED,))],
    "certainly": lambda: [
        account((*events, HALF), 0.9).delta(0.0)
        for events in (
            (GaussianEvent("loud", 0.1, (QueryPart(0.3, 9, 9),), 4),),
            (ObjectivePerturbationEvent("b", "gamma", 0.1, 2.0, 0.25, 0.5, 1),),
            (LaplaceEvent("laplace", 0.1, 1.5, 1),),
        )
    ],
    "next to nothing": lambda: told(account((LaplaceEvent("laplace", 1e4, 1.0, 1),), DELTA), (0.0, 2e-5, 9e-5)),
    "grids of the best share": lambda: grids_asked((SUM, CONDITION)),
    "best share": lambda: accounting.best_share((SUM,), DELTA),
    "best share, conditioned": lambda: accounting.best_share((SUM, CONDITION, FULL), DELTA),
    "best share, none": lambda: accounting.best_share((SAMPLED, FULL), DELTA),
    "best share, second phase": lambda: accounting.best_share((ParallelEvent("p", ((FULL,), (SUM,))),), DELTA),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return recorded("accounting")


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_the_recorded_one(case: str, answers: dict[str, Any]) -> None:
    assert_same(CASES[case](), answers[case], 1e-9 if case.startswith(SEARCHED) else 1e-12)


def test_every_recorded_answer_has_its_question(answers: dict[str, Any]) -> None:
    assert set(answers) == set(CASES)


if __name__ == "__main__":
    record("accounting", CASES)
