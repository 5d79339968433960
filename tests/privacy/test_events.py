"""Events: what is refused, what is left out when nothing is said, and what becomes of them on the way to an accountant.

An event that is accepted is accounted: noise, a count or a sensitivity that is no sane number must not get that far.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any, get_args

import pytest

from dprepro.errors import UserError
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
    event_from_json,
    event_to_json,
    leaves,
    replace_leaves,
    scale_events,
)

ALL, SOME = QueryPart(0.5, 9, 9), QueryPart(2.0, 3, 9)
GAUSSIAN = GaussianEvent("gaussian", 1.5, (SOME, ALL), 4)
CONTRACTING = GaussianEvent("contracting", 1.5, (ALL,), 4, 0.5, attained=False)
LAPLACE = LaplaceEvent("laplace", 0.75, 0.5, 3)
SELECTION = SelectionEvent("selection", "gumbel", 4.0, 0.5, 6)
TREE = TreeEvent("tree", 1.25, 0.5, 8, 2, first=0.25, disjoint=True, attained=False)
OBJECTIVE = ObjectivePerturbationEvent("objective", "gamma", 3.0, 2.0, 0.25, 0.5, 1)
FADING = FadingSelectionEvent("fading", "laplace", 2.0, (((1.0, 2), (0.5, 3)), ((0.75, 5),)), 7)
DISJOINT = DisjointGaussianEvent("disjoint", (1.0, 3.0), (0.5, 2.0), 5, attained=False)
UNPROTECTED, CONDITION = UnprotectedEvent("unprotected", 2), ConditionEvent("condition", 1e-6)
PARALLEL = ParallelEvent("parallel", ((LAPLACE, DISJOINT), (SELECTION, CONDITION), ()))
SIMPLE = [GAUSSIAN, CONTRACTING, LAPLACE, SELECTION, TREE, OBJECTIVE, FADING, DISJOINT, UNPROTECTED, CONDITION]
EVENTS = [*SIMPLE, PARALLEL]

TINIEST, LARGEST = 5e-324, 1.7976931348623157e308
NO_NOISE = [-TINIEST, -1.0, math.inf, -math.inf, math.nan]
NO_SENSITIVITY = [0.0, *NO_NOISE]
NO_COUNT = [-1, math.inf, math.nan]


def named(value: Any) -> str | None:
    return value.label if hasattr(value, "label") else None


def test_every_kind_of_event_is_looked_at_here() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


# --- what is refused ----------------------------------------------------------------------------------------------


WITH_ONE_NOISE = [
    (GAUSSIAN, "sigma"),
    (CONTRACTING, "sigma"),
    (LAPLACE, "scale"),
    (SELECTION, "scale"),
    (TREE, "sigma"),
    (OBJECTIVE, "scale"),
    (FADING, "scale"),
]


@pytest.mark.parametrize("noise", NO_NOISE)
@pytest.mark.parametrize(("event", "field"), WITH_ONE_NOISE, ids=named)
def test_noise_below_zero_or_not_finite_is_refused(event: Event, field: str, noise: float) -> None:
    """Accounted by its square, noise of scale -9 would seem to protect; infinite noise would seem to cost nothing."""
    with pytest.raises(UserError, match="both must be >= 0 and finite"):
        replace(event, **{field: noise})


@pytest.mark.parametrize(("event", "field"), WITH_ONE_NOISE, ids=named)
def test_noise_of_zero_is_a_noise_that_is_accounted_as_none(event: Event, field: str) -> None:
    for noise in (0.0, TINIEST, LARGEST):
        assert getattr(replace(event, **{field: noise}), field) == noise


@pytest.mark.parametrize("noise", NO_NOISE)
def test_no_kind_of_disjoint_releases_may_have_such_noise(noise: float) -> None:
    for sigmas in ((noise, 1.0), (1.0, noise)):
        with pytest.raises(UserError, match="both must be >= 0 and finite"):
            replace(DISJOINT, sigmas=sigmas)
    assert replace(DISJOINT, sigmas=(0.0, LARGEST)).sigmas == (0.0, LARGEST)


@pytest.mark.parametrize("count", NO_COUNT)
@pytest.mark.parametrize("event", [event for event, _ in WITH_ONE_NOISE] + [DISJOINT], ids=named)
def test_a_number_of_releases_below_zero_or_not_finite_is_refused(event: Event, count: float) -> None:
    """A mechanism that is planned for infinitely many releases would never refuse one."""
    with pytest.raises(UserError, match="both must be >= 0 and finite"):
        replace(event, count=count)


@pytest.mark.parametrize("event", [event for event, _ in WITH_ONE_NOISE] + [DISJOINT], ids=named)
def test_an_event_may_have_no_release(event: Event) -> None:
    assert replace(event, count=0).count == 0


@pytest.mark.parametrize("sensitivity", NO_SENSITIVITY)
@pytest.mark.parametrize(
    ("event", "label"),
    [(ALL, "a query part"), (LAPLACE, "laplace"), (SELECTION, "selection"), (TREE, "tree"), (OBJECTIVE, "objective")],
    ids=named,
)
def test_a_sensitivity_that_is_not_above_zero_and_finite_is_refused(event: Any, label: str, sensitivity: float) -> None:
    with pytest.raises(UserError, match=f"The sensitivity of '{label}' is {sensitivity}: declare a finite number > 0"):
        replace(event, sensitivity=sensitivity)
    for good in (TINIEST, LARGEST):
        assert replace(event, sensitivity=good).sensitivity == good


@pytest.mark.parametrize("sensitivity", NO_SENSITIVITY)
def test_so_is_that_of_a_first_leaf_of_a_kind_and_of_a_profile(sensitivity: float) -> None:
    with pytest.raises(UserError, match="The sensitivity of 'tree, first leaf'"):
        replace(TREE, first=sensitivity)
    for sensitivities in ((sensitivity, 1.0), (1.0, sensitivity)):
        with pytest.raises(UserError, match="The sensitivity of 'disjoint'"):
            replace(DISJOINT, sensitivities=sensitivities)
    for profiles in ((((sensitivity, 1),),), (((1.0, 1),), ((1.0, 1), (sensitivity, 1)))):
        with pytest.raises(UserError, match="The sensitivity of 'fading'"):
            replace(FADING, profiles=profiles)


@pytest.mark.parametrize(("batch", "population"), [(0, 5), (-1, 5), (6, 5), (0, 0), (math.nan, 5), (1, math.nan)])
def test_a_batch_has_at_least_one_record_and_no_more_than_there_are(batch: int, population: int) -> None:
    with pytest.raises(UserError, match="give 1 <= batch <= n"):
        QueryPart(1.0, batch, population)


@pytest.mark.parametrize(("batch", "population", "full"), [(1, 1, True), (1, 2, False), (4, 5, False), (5, 5, True)])
def test_a_part_is_full_if_it_looks_at_every_record(batch: int, population: int, full: bool) -> None:
    assert QueryPart(1.0, batch, population).full is full


def test_a_poisson_batch_of_all_records_is_refused_and_of_fewer_is_not() -> None:
    with pytest.raises(UserError, match="A Poisson batch of all 5 records is no sample"):
        QueryPart(1.0, 5, 5, poisson=True)
    assert QueryPart(1.0, 4, 5, poisson=True).poisson


def test_lists_of_parts_and_branches_make_the_same_events_as_tuples() -> None:
    assert GaussianEvent("gaussian", 1.5, [SOME, ALL], 4) == GAUSSIAN  # type: ignore[arg-type]
    branches = [[LAPLACE, DISJOINT], [SELECTION, CONDITION], []]
    assert ParallelEvent("parallel", branches) == PARALLEL  # type: ignore[arg-type]
    assert len({GAUSSIAN, GaussianEvent("gaussian", 1.5, [SOME, ALL], 4)}) == 1  # type: ignore[arg-type]


def test_a_part_that_is_not_in_a_tuple_is_refused_with_the_tuple_to_write() -> None:
    with pytest.raises(UserError, match=r"write \(part,\) for a single one"):
        GaussianEvent("gaussian", 1.5, ALL, 4)  # type: ignore[arg-type]


def test_an_event_without_a_sensitivity_is_refused() -> None:
    with pytest.raises(UserError, match="give it at least one query part"):
        replace(GAUSSIAN, parts=())
    for profiles in ((), ((),), (((1.0, 1),), ()), ((), ((1.0, 1),))):
        with pytest.raises(UserError, match="give it at least one profile"):
            replace(FADING, profiles=profiles)


@pytest.mark.parametrize("contraction", [0.0, -0.5, 1.0 + 2.3e-16, 2.0, math.nan, math.inf])
def test_a_contraction_is_above_zero_and_at_most_one(contraction: float) -> None:
    with pytest.raises(UserError, match=r"give a number in \(0, 1\]"):
        replace(CONTRACTING, contraction=contraction)


def test_a_contraction_needs_full_batches_in_all_parts() -> None:
    for parts in ((SOME,), (SOME, ALL), (ALL, SOME)):
        for contraction in (0.5, 1.0 - 1.2e-16):
            with pytest.raises(UserError, match="no argument covers both"):
                replace(CONTRACTING, parts=parts, contraction=contraction)
        assert replace(CONTRACTING, parts=parts, contraction=1.0).parts == parts
    for contraction in (TINIEST, 0.5, 1.0):
        assert replace(CONTRACTING, parts=(ALL, ALL), contraction=contraction).contraction == contraction


def test_one_part_at_most_is_on_a_random_batch() -> None:
    for parts in ((SOME, SOME), (SOME, ALL, SOME)):
        with pytest.raises(UserError, match="make them one part with the sum of their sensitivities"):
            replace(GAUSSIAN, parts=parts)
    assert replace(GAUSSIAN, parts=(ALL, SOME, ALL)).parts == (ALL, SOME, ALL)


@pytest.mark.parametrize("event", [SELECTION, FADING], ids=named)
def test_selections_know_two_laws_of_noise(event: Event) -> None:
    for noise in ("laplace", "gumbel"):
        assert replace(event, noise=noise).noise == noise
    for noise in ("gaussian", "gamma", ""):
        with pytest.raises(UserError, match="use laplace or gumbel"):
            replace(event, noise=noise)


def test_objective_perturbation_knows_two_laws_of_noise() -> None:
    for noise in ("gaussian", "gamma"):
        assert replace(OBJECTIVE, noise=noise).noise == noise
    for noise in ("laplace", "gumbel", ""):
        with pytest.raises(UserError, match="use gaussian or gamma"):
            replace(OBJECTIVE, noise=noise)


@pytest.mark.parametrize("number", NO_NOISE)
def test_the_curvature_of_a_perturbed_objective_is_finite(number: float) -> None:
    for field in ("smoothness", "convexity"):
        with pytest.raises(UserError, match="give finite numbers, the convexity > 0"):
            replace(OBJECTIVE, **{field: number})


def test_a_perturbed_objective_may_be_flat_in_its_records_but_not_without_them() -> None:
    assert replace(OBJECTIVE, smoothness=0.0, convexity=TINIEST).smoothness == 0.0
    with pytest.raises(UserError, match="give finite numbers, the convexity > 0"):
        replace(OBJECTIVE, convexity=0.0)


def test_a_perturbed_objective_is_released_once() -> None:
    with pytest.raises(UserError, match="is released 2 times: give one event to each release"):
        replace(OBJECTIVE, count=2)


@pytest.mark.parametrize("number", [0, -1])
def test_a_tree_has_at_least_one_leaf(number: int) -> None:
    with pytest.raises(UserError, match=f"has {number} leaves: give a whole number >= 1"):
        replace(TREE, leaves=number)
    assert replace(TREE, leaves=1).leaves == 1


@pytest.mark.parametrize("delta", [0.0, -0.5, 1.0, 1.5, math.nan, math.inf])
def test_a_condition_spends_a_probability_between_zero_and_one(delta: float) -> None:
    with pytest.raises(UserError, match=r"give a number in \(0, 1\)"):
        ConditionEvent("c", delta)


def test_a_condition_may_spend_next_to_nothing_or_all() -> None:
    for delta in (TINIEST, 1.0 - 1.2e-16):
        assert ConditionEvent("c", delta).delta == delta


@pytest.mark.parametrize(
    ("sigmas", "sensitivities"), [((), ()), ((1.0,), (1.0, 1.0)), ((1.0, 1.0), (1.0,)), ((), (1.0,))]
)
def test_every_kind_of_disjoint_releases_has_its_noise_and_its_sensitivity(
    sigmas: tuple[float, ...], sensitivities: tuple[float, ...]
) -> None:
    with pytest.raises(UserError, match="give one of each for every kind"):
        DisjointGaussianEvent("d", sigmas, sensitivities, 1)


def test_branches_of_a_parallel_event_are_not_parallel_themselves() -> None:
    inner = ParallelEvent("inner", ((LAPLACE,),))
    for branches in (((inner,),), ((SELECTION,), (inner,)), ((SELECTION, inner),)):
        with pytest.raises(UserError, match="list the inner branches with the others"):
            ParallelEvent("outer", branches)


# --- what is left out ---------------------------------------------------------------------------------------------


def test_what_is_not_said_of_an_event_is_the_usual() -> None:
    assert not QueryPart(1.0, 1, 2).poisson
    released = GaussianEvent("a", 1.0, (ALL,), 1)
    assert (released.contraction, released.attained) == (1.0, True)
    tree = TreeEvent("a", 1.0, 1.0, 2, 1)
    assert (tree.first, tree.disjoint, tree.attained) == (None, False, True)
    assert DisjointGaussianEvent("a", (1.0,), (1.0,), 1).attained


# --- what becomes of them -----------------------------------------------------------------------------------------


SCALED = {
    GAUSSIAN: {"sigma": 4.5},
    CONTRACTING: {"sigma": 4.5},
    LAPLACE: {"scale": 2.25},
    SELECTION: {"scale": 12.0},
    TREE: {"sigma": 3.75},
    OBJECTIVE: {"scale": 9.0},
    FADING: {"scale": 6.0},
    DISJOINT: {"sigmas": (3.0, 9.0)},
    UNPROTECTED: {},
    CONDITION: {},
}


@pytest.mark.parametrize("event", SIMPLE, ids=named)
def test_scaling_multiplies_the_noise_and_nothing_else(event: Event) -> None:
    assert asdict(event.scaled(3.0)) == asdict(event) | SCALED[event]


def test_scaling_a_parallel_event_scales_every_branch() -> None:
    expected = ((LAPLACE.scaled(3.0), DISJOINT.scaled(3.0)), (SELECTION.scaled(3.0), CONDITION), ())
    assert PARALLEL.scaled(3.0) == replace(PARALLEL, branches=expected)
    assert scale_events((PARALLEL, TREE), 3.0) == (replace(PARALLEL, branches=expected), TREE.scaled(3.0))


def test_one_selection_costs_twice_the_sensitivity_for_the_scale() -> None:
    """The score of one candidate may go up and that of another down."""
    assert SELECTION.epsilon0 == 0.25
    assert replace(SELECTION, scale=0.5, sensitivity=0.125).epsilon0 == 0.5
    assert replace(SELECTION, scale=0.0).epsilon0 == math.inf


def test_a_record_meets_one_profile_of_fading_selections() -> None:
    one, two, three = (SelectionEvent("fading", "laplace", 2.0, *level) for level in ((1.0, 2), (0.5, 3), (0.75, 5)))
    assert FADING.alternatives() == ((one, two), (three,))


@pytest.mark.parametrize("sigmas", [(1.0, 3.0), (3.0, 1.0), (0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("sensitivities", [(0.5, 2.0), (2.0, 0.5), (1.0, 1.0)])
def test_a_record_meets_the_disjoint_release_with_the_least_noise_for_its_sensitivity(
    sigmas: tuple[float, float], sensitivities: tuple[float, float]
) -> None:
    ((met,),) = DisjointGaussianEvent("d", sigmas, sensitivities, 7).alternatives()
    kinds = [
        GaussianEvent("d", sigma, (QueryPart(sensitivity, 1, 1),), 1)
        for sigma, sensitivity in zip(sigmas, sensitivities, strict=True)
    ]
    assert met in kinds
    assert all(met.sigma * kind.parts[0].sensitivity <= kind.sigma * met.parts[0].sensitivity for kind in kinds)
    assert DISJOINT.sigma == 1.0


def test_a_record_meets_nothing_where_nothing_is_released() -> None:
    assert replace(FADING, count=0).alternatives() == replace(DISJOINT, count=0).alternatives() == ((),)
    for event in (FADING, DISJOINT):
        assert replace(event, count=1).alternatives() == event.alternatives() != ((),)


def test_a_record_meets_one_branch_of_a_parallel_event() -> None:
    assert PARALLEL.alternatives() == PARALLEL.branches


@pytest.mark.parametrize("event", EVENTS, ids=named)
def test_an_event_that_is_written_and_read_is_the_same(event: Event) -> None:
    text = json.dumps(event_to_json(event))
    found = event_from_json(json.loads(text))
    assert found == event
    assert hash(found) == hash(event), "lists became tuples again"


def test_the_kinds_of_events_have_the_names_by_which_they_are_written() -> None:
    assert {event_to_json(event)["kind"]: type(event) for event in EVENTS} == {
        "gaussian": GaussianEvent,
        "laplace": LaplaceEvent,
        "selection": SelectionEvent,
        "tree": TreeEvent,
        "objective": ObjectivePerturbationEvent,
        "unprotected": UnprotectedEvent,
        "condition": ConditionEvent,
        "fading": FadingSelectionEvent,
        "disjoint": DisjointGaussianEvent,
        "parallel": ParallelEvent,
    }


def test_leaves_are_what_is_not_parallel_in_the_order_of_the_plan() -> None:
    plan = (TREE, PARALLEL, GAUSSIAN)
    assert list(leaves(plan)) == [TREE, LAPLACE, DISJOINT, SELECTION, CONDITION, GAUSSIAN]


def test_leaves_are_replaced_where_they_stand_and_dropped_by_none() -> None:
    def new(event: Event) -> Event | None:
        return {"laplace": TREE, "condition": None, "gaussian": None}.get(event.label, event)

    expected = replace(PARALLEL, branches=((TREE, DISJOINT), (SELECTION,), ()))
    assert replace_leaves((LAPLACE, GAUSSIAN, PARALLEL, TREE), new) == (TREE, expected, TREE)
