"""Algorithms whose authors were mistaken: each spends more than it declares, and is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from support import make_problem

from dprepro.algorithms.base import Algorithm, Letter, Plan, Setting
from dprepro.errors import LedgerMismatch, RunFailed, UserError
from dprepro.privacy.events import (
    Event,
    GaussianEvent,
    ParallelEvent,
    QueryPart,
    SelectionEvent,
    TreeEvent,
    UnprotectedEvent,
)
from dprepro.run import execute

N, D, STEPS = 60, 3, 4
ALL = QueryPart(1.0 / N, N, N)
ONE = QueryPart(1.0, 1, N)
HALF = QueryPart(2.0 / N, N // 2, N // 2)
Run = Callable[[Any, Any], None]


@dataclass(frozen=True, kw_only=True)
class MistakenPlan(Plan):
    pass


@dataclass
class Mistaken(Algorithm):
    """Has the events that it is given, and does what it is given with the execution and its start."""

    events: tuple[Event, ...]
    does: Run
    evaluations: int

    name: ClassVar[str] = "mistaken"
    title: ClassVar[str] = "Mistaken"
    needs: ClassVar[frozenset[str]] = frozenset({"lipschitz"})
    plan_type: ClassVar[type[Plan]] = MistakenPlan
    letters: ClassVar[dict[str, Letter]] = {}

    def compute_plan(self, setting, given):
        return MistakenPlan(
            **self.plan_head(setting),
            theorem="none",
            sigma=1.0,
            rounds=1,
            gradient_evaluations=self.evaluations,
            events=self.events,
        )

    def run(self, plan, ex):
        x = ex.start()
        self.does(ex, x)
        ex.checkpoint(x)
        return x


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(events: Sequence[Event], does: Run, evaluations: int) -> None:
        mistaken = Mistaken(tuple(events), does, evaluations)
        problem = make_problem(n=N, d=D)
        plan = mistaken.plan(Setting(problem.spec, 1.0, 1e-3, "published"))
        monkeypatch.setattr("dprepro.run.get_algorithm", lambda name: mistaken)
        execute(plan, problem, seed=0, replicates=[0, 1])

    return run


def test_what_is_done_as_it_is_declared_runs(run) -> None:
    """The mistakes below are one step away from these."""

    def steps(ex, x):
        for index, _ in ex.sampled("a", STEPS):
            ex.sample_gradient(x, index)

    def halves(ex, x):
        for label in ("a", "b"):
            batch = ex.fresh(N // 2)
            for _ in ex.gaussian(label).noise(1):
                ex.batch_gradient(x, batch)

    def leaves(ex, x):
        tree = ex.tree("a")
        tree.start()
        for _ in range(STEPS):
            tree.add(ex.batch_gradient(x, ex.fresh(5)))

    run([GaussianEvent("a", 1.0, (ONE,), STEPS)], steps, STEPS)
    run([ParallelEvent("p", tuple((GaussianEvent(label, 1.0, (HALF,), 1),) for label in "ab"))], halves, N)
    run([TreeEvent("a", 1.0, 0.2, STEPS, 1)], leaves, 5 * STEPS)


def test_two_parts_on_random_batches_are_refused_for_one_record_is_in_both() -> None:
    """Accounted as two batches they would cost less than the one batch that is drawn."""
    with pytest.raises(UserError, match="make them one part with the sum of their sensitivities"):
        GaussianEvent("a", 1.0, (ONE, ONE), STEPS)
    assert len(GaussianEvent("a", 1.0, (ONE, ALL), STEPS).parts) == 2


def test_a_parallel_event_in_a_branch_is_refused_for_no_one_would_watch_it() -> None:
    inner = ParallelEvent("inner", ((GaussianEvent("a", 1.0, (HALF,), 1),),))
    with pytest.raises(UserError, match="list the inner branches with the others"):
        ParallelEvent("outer", ((inner,), (GaussianEvent("b", 1.0, (HALF,), 1),)))


@pytest.mark.parametrize("part", [QueryPart(0.1 / N, 10 * N, 10 * N), QueryPart(1.0, 1, 10 * N)], ids=["all", "one"])
def test_more_records_than_there_are_give_no_smaller_sensitivity(part: QueryPart, run) -> None:
    with pytest.raises(UserError, match=f"from {10 * N}, but there are {N}: give the query part the population {N}"):
        run([GaussianEvent("a", 1.0, (part,), 1)], lambda ex, x: None, 0)


def one_batch_in_every_leaf(ex, x):
    tree, batch = ex.tree("a"), ex.fresh(N)
    tree.start()
    for _ in range(STEPS):
        tree.add(ex.batch_gradient(x, batch))


def noise_of_a_negative_number(ex, x):
    for _ in range(STEPS):
        next(ex.gaussian("a").noise(1))
        list(ex.gaussian("a").noise(-1))
        ex.full_gradient(x)


def two_events_on_one_record(ex, x):
    for _ in range(STEPS):
        index, _ = next(ex.sampled("a", 1))
        next(ex.sampled("b", 1))
        ex.sample_gradient(x, index)
        ex.sample_gradient(x, index)


def two_events_on_the_last_record(ex, x):
    index, _ = next(ex.sampled("a", 1))
    next(ex.sampled("b", 1))
    ex.sample_gradient(x, index)


def selections_of_different_sizes(ex, x):
    for candidates in (8, 4):
        ex.selection("a").largest(ex.xp.zeros((x.shape[0], candidates)))


def noise_before_its_batch(ex, x):
    next(ex.gaussian("a").noise(1))
    batch = ex.fresh(N // 2)
    for _ in ex.gaussian("b").noise(1):
        ex.batch_gradient(x, batch)
        ex.batch_gradient(x, batch)


def noise_for_a_batch_that_is_not_looked_at(ex, x):
    ex.fresh(N // 2)
    next(ex.gaussian("a").noise(1))
    batch = ex.fresh(N // 2)
    next(ex.gaussian("b").noise(1))
    ex.batch_gradient(x, batch)
    ex.batch_gradient(x, batch)


def a_last_batch_that_is_not_looked_at(ex, x):
    ex.batch_gradient(x, ex.fresh(N // 2))
    next(ex.gaussian("a").noise(1))
    ex.fresh(N // 2)
    next(ex.gaussian("b").noise(1))


def an_embedding_after_the_fact(ex, x):
    ex.unprotected("b")
    next(ex.gaussian("a").noise(1))
    ex.embed(2, None)


def random_batches_of_all_records(ex, x):
    next(ex.sampled("a", 1))


def another_record_in_place_of_the_drawn_one(ex, x):
    for index, _ in ex.sampled("a", 1):
        getattr(index, "rows", index)[...] = 0


def another_fresh_sample(ex, x):
    next(ex.fresh_samples(1))[...] = 0


BRANCHES = [ParallelEvent("p", tuple((GaussianEvent(label, 1.0, (HALF,), 1),) for label in "ab"))]
PAIR = [GaussianEvent(label, 1.0, (ONE,), STEPS) for label in "ab"]


@pytest.mark.parametrize(
    ("events", "does", "said"),
    [
        ([TreeEvent("a", 1.0, 2.0 / N, STEPS, 1)], one_batch_in_every_leaf, "would release twice on one batch"),
        ([GaussianEvent("a", 1.0, (ALL,), STEPS)], noise_of_a_negative_number, "-1 releases of the mechanism 'a'"),
        (PAIR, two_events_on_one_record, "'b' was not looked at before its release was over"),
        ([GaussianEvent(label, 1.0, (ONE,), 1) for label in "ab"], two_events_on_the_last_record, "'b' was not looked"),
        ([SelectionEvent("a", "gumbel", 1.0, 1.0, 2)], selections_of_different_sizes, "among 4 candidates after 8"),
        (BRANCHES, noise_before_its_batch, "'a' would release before any batch was handed out for it"),
        (BRANCHES, noise_for_a_batch_that_is_not_looked_at, "not looked at before their turn was over"),
        (BRANCHES, a_last_batch_that_is_not_looked_at, "not looked at before their turn was over"),
        (
            [GaussianEvent("a", 1.0, (ALL,), 1), UnprotectedEvent("b", 1)],
            an_embedding_after_the_fact,
            "Rows are embedded once, at the start of a run",
        ),
        ([GaussianEvent("a", 1.0, (ALL,), 1)], random_batches_of_all_records, "'a' is accounted as one on all records"),
    ],
)
def test_it_is_noticed(events: list[Event], does: Run, said: str, run) -> None:
    with pytest.raises((LedgerMismatch, RunFailed), match=re.escape(said)):
        run(events, does, N)


@pytest.mark.parametrize(
    ("part", "does"),
    [
        (ONE, another_record_in_place_of_the_drawn_one),
        (QueryPart(1.0, 2, N), another_record_in_place_of_the_drawn_one),
        (QueryPart(1.0, 2, N, poisson=True), another_record_in_place_of_the_drawn_one),
        (ALL, another_fresh_sample),
    ],
    ids=["one", "batch", "Poisson batch", "fresh sample"],
)
def test_what_was_drawn_cannot_be_chosen(part: QueryPart, does: Run, run) -> None:
    with pytest.raises(ValueError, match="read-only"):
        run([GaussianEvent("a", 1.0, (part,), 1)], does, 1)


def test_a_run_that_draws_less_than_planned_is_told_by_label_and_number(run) -> None:
    with pytest.raises(
        LedgerMismatch, match=r"The run drew 1 x 'a', 0 x 'b'; its plan accounts for 1 x 'a', 2 x 'b'\."
    ):
        run(
            [GaussianEvent("a", 1.0, (ALL,), 1), GaussianEvent("b", 1.0, (ALL,), 2)],
            lambda ex, x: list(ex.gaussian("a").noise(1)),
            0,
        )


def test_a_list_that_an_algorithm_fills_is_empty_in_its_next_run() -> None:
    mistaken = Mistaken((), lambda ex, x: None, 0)
    mistaken.seen = []  # type: ignore[attr-defined]
    mistaken.anew().seen.append("a point")  # type: ignore[attr-defined]
    assert mistaken.anew().seen == []  # type: ignore[attr-defined]
