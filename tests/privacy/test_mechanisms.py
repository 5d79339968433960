from __future__ import annotations

import dataclasses
import itertools
from typing import get_args

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, laplace

from dprepro.arrays import get_backend
from dprepro.errors import LedgerMismatch
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
from dprepro.privacy.mechanisms import (
    BLOCK_STEPS,
    BatchAtHand,
    GaussianMechanism,
    Ledger,
    Slots,
    _counted,
    _laplace,
    _looks_at,
)

EVENT = GaussianEvent("inner", 0.37, (QueryPart(1.0, 500, 500),), 1000)
SAMPLED = dataclasses.replace(EVENT, parts=(QueryPart(1.0, 1, 500),))


def mechanism(backend, event=EVENT, replicates=range(64), d=30):
    return GaussianMechanism(event, d, Slots(5, tuple(replicates), backend))


def test_drawn_noise_has_the_stated_variance_within_one_percent(backend):
    """1.9 million draws: the standard error of the variance is 0.1 %, so 1 % is a 10 sigma event."""
    draws = np.stack([backend.to_host(u) for u in mechanism(backend).noise(1000)])
    assert draws.shape == (1000, 64, 30)
    assert np.var(draws) == pytest.approx(EVENT.sigma**2, rel=0.01)
    assert abs(np.mean(draws)) < 5.4 * EVENT.sigma / np.sqrt(draws.size)


def test_noise_does_not_depend_on_how_the_releases_are_asked_for(backend):
    one, many = mechanism(backend), mechanism(backend)
    together = [backend.to_host(u) for u in one.noise(2 * BLOCK_STEPS + 3)]
    apart = [backend.to_host(u) for piece in (5, BLOCK_STEPS, BLOCK_STEPS - 2) for u in many.noise(piece)]
    np.testing.assert_array_equal(together, apart)


def test_sampled_indices_cover_the_population_and_are_independent_of_the_noise(backend):
    pairs = [(backend.to_host(i), backend.to_host(u)) for i, u in mechanism(backend, SAMPLED).sampled(1000)]
    index = np.stack([pair[0] for pair in pairs])
    assert set(np.unique(index)) == set(range(500))
    noise = np.stack([pair[1] for pair in pairs])[..., 0]
    assert abs(np.corrcoef(index.ravel(), noise.ravel())[0, 1]) < 5.4 / np.sqrt(index.size)


def test_single_and_double_precision_see_the_same_stream():
    single = next(mechanism(get_backend("cpu", "float32")).noise(1))
    double = next(mechanism(get_backend("cpu", "float64")).noise(1))
    np.testing.assert_array_equal(single.astype(np.float64), double)


def test_more_releases_than_planned_are_refused(backend):
    drawing = mechanism(backend)
    list(drawing.noise(999))
    with pytest.raises(LedgerMismatch, match=r"planned for 1000 releases, but 1001"):
        list(drawing.noise(2))


LAPLACE = LaplaceEvent("inner", 0.7, 1.0, 20)
COPIES = np.full(10, 50)
DRAWN_AT_ONCE = {
    "noise": (EVENT, lambda book, k: book.gaussian("inner").noise(k)),
    "sampled": (SAMPLED, lambda book, k: (z for _, z in book.gaussian("inner").sampled(k))),
    "counted": (SAMPLED, lambda book, k: (z for _, z in book.gaussian("inner").counted(k, COPIES))),
    "laplace": (LAPLACE, lambda book, k: book.laplace("inner").noise(k)),
}


@pytest.mark.parametrize("kind", DRAWN_AT_ONCE)
def test_two_queries_in_one_step_never_share_their_noise(backend, kind):
    """Equal noise under two answers would cancel in their difference: no epsilon would cover it."""
    event, draw = DRAWN_AT_ONCE[kind]
    event = dataclasses.replace(event, count=20)
    side_by_side, nested = ledger(backend, event), ledger(backend, event)
    drawn = [z for pair in zip(draw(side_by_side, 10), draw(side_by_side, 10), strict=True) for z in pair]
    within = []
    for z in draw(nested, 10):
        within += [z, *draw(nested, 1)]
    for book, noise in ((side_by_side, drawn), (nested, within)):
        book.check()
        assert len({backend.to_host(z).tobytes() for z in noise}) == 20


def test_records_of_two_iterators_of_one_event_are_drawn_apart(backend):
    event = dataclasses.replace(SAMPLED, count=20)
    one, other = ledger(backend, event).gaussian("inner"), ledger(backend, event).gaussian("inner")
    pairs = [index for pair in zip(one.sampled(10), one.sampled(10), strict=True) for index, _ in pair]
    in_turn = [index for index, _ in other.sampled(20)]
    assert sorted(tuple(backend.to_host(i)) for i in pairs) == sorted(tuple(backend.to_host(i)) for i in in_turn)


def test_noise_of_an_event_on_random_batches_comes_with_its_batch_only(backend):
    """Otherwise full gradients could pass under the little noise that random batches need."""
    with pytest.raises(LedgerMismatch, match="take the noise from `sampled`"):
        next(mechanism(backend, SAMPLED).noise(1))


def test_records_are_drawn_and_cannot_be_chosen_afterwards():
    index, _ = next(mechanism(get_backend("cpu"), SAMPLED).sampled(1))
    with pytest.raises(ValueError, match="read-only"):
        index[...] = 7


def ledger(backend, *events):
    return Ledger(events, 3, 0, [0, 1], backend)


def test_ledger_accepts_exactly_the_plan(backend):
    book = ledger(backend, GaussianEvent("a", 1.0, EVENT.parts, 4), UnprotectedEvent("b", 2))
    list(book.gaussian("a").noise(4))
    book.unprotected("b")
    book.unprotected("b")
    book.check()


@pytest.mark.parametrize(("draws", "unprotected"), [(3, 2), (4, 1), (4, 3), (0, 2)])
def test_ledger_refuses_less_noise_or_another_count_than_planned(backend, draws, unprotected):
    book = ledger(backend, GaussianEvent("a", 1.0, EVENT.parts, 4), UnprotectedEvent("b", 2))
    list(book.gaussian("a").noise(draws))
    for _ in range(unprotected):
        book.unprotected("b")
    with pytest.raises(LedgerMismatch, match="its plan accounts for"):
        book.check()


def test_ledger_refuses_what_was_never_planned(backend):
    book = ledger(backend, GaussianEvent("a", 1.0, EVENT.parts, 0))
    with pytest.raises(LedgerMismatch, match="no GaussianMechanism"):
        book.gaussian("z")
    book.unprotected("surprise")
    with pytest.raises(LedgerMismatch, match="surprise"):
        book.check()


def test_stopping_in_the_middle_of_a_block_counts_only_what_was_handed_out(backend):
    book = ledger(backend, GaussianEvent("a", 1.0, EVENT.parts, 10))
    for position, _ in enumerate(book.gaussian("a").noise(10)):
        if position == 2:
            break
    assert book.entries()[0].count == 3


def more(backend, *events, d=3, replicates=range(64)):
    return Ledger(events, d, 7, list(replicates), backend)


def test_batches_are_distinct_records_drawn_uniformly(backend):
    """Chi-square on how often each of 40 records is drawn: false alarm below 1e-7."""
    for population, batch in ((40, 8), (5000, 12)):
        event = GaussianEvent("inner", 0.0, (QueryPart(1.0, batch, population),), 60)
        index = np.stack([backend.to_host(i) for i, _ in more(backend, event).gaussian("inner").sampled(60)])
        assert index.shape == (60, 64, batch)
        ordered = np.sort(index, axis=-1)
        assert np.all(ordered[..., 1:] > ordered[..., :-1])
        counts = np.bincount(index.ravel() * 40 // population, minlength=40)
        spread = counts.mean() * (1 - batch / population)
        assert chi2.sf(np.sum((counts - counts.mean()) ** 2) / spread, 39) > 1e-7


def test_laplace_noise_has_the_stated_scale(backend):
    event = LaplaceEvent("noise", 0.7, 1.0, 400)
    draws = np.stack([backend.to_host(z) for z in more(backend, event, d=10).laplace("noise").noise(400)])
    # E|z| = scale with standard deviation scale: 256,000 draws, 5.4 standard errors
    assert np.mean(np.abs(draws)) == pytest.approx(0.7, abs=5.4 * 0.7 / np.sqrt(draws.size))
    assert abs(np.mean(draws)) < 5.4 * 0.7 * np.sqrt(2 / draws.size)


SCORES, SCALE = np.array([0.0, 0.5, 1.0, 2.0, 1.2]), 0.8


def probabilities(noise):
    """The exact probability of each score to be the largest: softmax, or an integral over the winner's noise."""
    if noise == "gumbel":
        return np.exp(SCORES / SCALE) / np.sum(np.exp(SCORES / SCALE))

    def wins(j):
        others = np.delete(SCORES, j)
        kinks = np.sort(SCORES)

        def density(x):
            return laplace.pdf(x, SCORES[j], SCALE) * np.prod(laplace.cdf(x, others, SCALE))

        ends = [-30.0, *kinks, 30.0]
        return sum(quad(density, *pair, epsabs=1e-13)[0] for pair in itertools.pairwise(ends))

    return np.array([wins(j) for j in range(len(SCORES))])


def surprise(backend, noise, scale, fading=False):
    """The p-value of 25,600 selections with noise of `scale` against the exact probabilities for SCALE."""
    event = SelectionEvent("max", noise, scale, 0.5, 400)
    if fading:
        event = FadingSelectionEvent("max", noise, scale, (((0.5, 400),),), 400)
    selection = more(backend, event).selection("max")
    tiled = backend.asarray(np.tile(SCORES, (64, 1)))
    chosen = np.concatenate([backend.to_host(selection.largest(tiled)) for _ in range(400)])
    expected = probabilities(noise) * chosen.size
    assert expected.sum() == pytest.approx(chosen.size)
    counts = np.bincount(chosen, minlength=len(SCORES))
    return chi2.sf(np.sum((counts - expected) ** 2 / expected), len(SCORES) - 1)


@pytest.mark.parametrize("fading", [False, True])
@pytest.mark.parametrize("noise", ["laplace", "gumbel"])
def test_selections_have_their_exact_probabilities(backend, noise, fading):
    """The exponential mechanism and report noisy max among five candidates: false alarm below 1e-7."""
    assert surprise(backend, noise, SCALE, fading) > 1e-7


@pytest.mark.parametrize("wrong", [0.9, 1.1, 0.5])
@pytest.mark.parametrize("noise", ["laplace", "gumbel"])
def test_planted_selection_noise_of_a_scale_that_is_wrong_by_a_tenth_is_seen(noise, wrong):
    assert surprise(get_backend("cpu"), noise, wrong * SCALE) < 1e-7


def test_planted_exchange_of_the_two_laws_of_selection_noise_is_seen(monkeypatch):
    monkeypatch.setattr("dprepro.privacy.mechanisms._gumbel", _laplace)
    assert surprise(get_backend("cpu"), "gumbel", SCALE) < 1e-7


def test_laplace_selection_between_two_candidates_has_its_exact_probability(backend):
    """P(second wins) for scores 0 and g: 1 - (2 + g/s) e^(-g/s) / 4 (difference of two Laplace numbers)."""
    scale, gap = 0.8, 1.0
    event = SelectionEvent("max", "laplace", scale, 0.5, 200)
    selection = more(backend, event).selection("max")
    tiled = backend.asarray(np.tile([0.0, gap], (64, 1)))
    wins = np.mean([backend.to_host(selection.largest(tiled)) for _ in range(200)])
    exact = 1 - (2 + gap / scale) * np.exp(-gap / scale) / 4
    assert wins == pytest.approx(exact, abs=5.4 * np.sqrt(exact * (1 - exact) / 12_800))


def prefixes(tree, vectors):
    tree.start()
    return [tree.add(vector) for vector in vectors]


def test_tree_prefixes_are_exact_without_noise_and_have_the_stated_variance(backend):
    leaves, d = 8, 50
    vectors = [backend.asarray(np.full((64, d), float(t))) for t in range(1, leaves + 1)]
    exact = more(backend, TreeEvent("tree", 0.0, 1.0, leaves, 1), d=d).tree("tree")
    for t, prefix in enumerate(prefixes(exact, vectors), start=1):
        np.testing.assert_allclose(backend.to_host(prefix), t * (t + 1) / 2)
    noisy = more(backend, TreeEvent("tree", 0.5, 1.0, leaves, 1), d=d).tree("tree")
    for t, prefix in enumerate(prefixes(noisy, vectors), start=1):
        noise = backend.to_host(prefix) - t * (t + 1) / 2
        # 3200 draws: the standard error of a variance is 2.5 %; 5.4 of them
        assert np.var(noise) == pytest.approx(0.25 * bin(t).count("1"), rel=0.135)


def test_a_tree_refuses_more_leaves_than_planned(backend):
    tree = more(backend, TreeEvent("tree", 0.5, 1.0, 2, 1)).tree("tree")
    with pytest.raises(LedgerMismatch, match="2 leaves"):
        prefixes(tree, [backend.zeros((64, 3))] * 3)


def test_planted_batch_used_twice_is_refused(backend):
    """Planted bug: a disjoint batch is released twice, so the parallel event would count once."""
    one = GaussianEvent("batch 1", 1.0, EVENT.parts, 1)
    two = GaussianEvent("batch 2", 1.0, EVENT.parts, 1)
    book = more(backend, ParallelEvent("phases", ((one,), (two,))))
    list(book.gaussian("batch 1").noise(1))
    with pytest.raises(LedgerMismatch, match="planned for 1 releases, but 2"):
        list(book.gaussian("batch 1").noise(1))
    with pytest.raises(LedgerMismatch, match="its plan accounts for"):
        book.check()


def test_parallel_and_conditioned_plans_are_met_by_doing_them(backend):
    one = GaussianEvent("batch 1", 1.0, EVENT.parts, 1)
    book = more(backend, ParallelEvent("phases", ((one,),)), ConditionEvent("norms", 1e-7))
    list(book.gaussian("batch 1").noise(1))
    with pytest.raises(LedgerMismatch):
        book.check()
    book.condition("norms")
    book.check()


def test_planted_condition_without_a_share_of_delta_is_noticed(backend):
    book = more(backend, GaussianEvent("batch", 1.0, EVENT.parts, 1))
    list(book.gaussian("batch").noise(1))
    book.check()
    book.condition("never planned")
    with pytest.raises(LedgerMismatch, match="never planned"):
        book.check()


LOOKS = ("full", "sampled", "fresh")
ONE = (QueryPart(1.0, 5, 5),)
BATCH = GaussianEvent("batch", 1.0, ONE, 1)


COVERED = [
    (BATCH, {"full", "fresh"}),
    (GaussianEvent("a", 1.0, (QueryPart(1.0, 1, 5),), 1), {"sampled"}),
    (GaussianEvent("a", 1.0, (QueryPart(1.0, 1, 5), QueryPart(1.0, 5, 5)), 1), {"full", "sampled", "fresh"}),
    (LaplaceEvent("a", 1.0, 1.0, 1), {"full", "fresh"}),
    (SelectionEvent("a", "gumbel", 1.0, 1.0, 1), {"full", "fresh"}),
    (ObjectivePerturbationEvent("a", "gaussian", 1.0, 1.0, 1.0, 1.0, 1), {"full", "fresh"}),
    (TreeEvent("a", 1.0, 1.0, 4, 1), {"fresh"}),
    (UnprotectedEvent("a", 1), {"full", "sampled", "fresh"}),
    (ConditionEvent("a", 1e-7), set()),
    (FadingSelectionEvent("a", "gumbel", 1.0, (((1.0, 1),),), 1), {"fresh"}),
    (DisjointGaussianEvent("a", (1.0,), (1.0,), 1), {"fresh"}),
    (ParallelEvent("a", ((BATCH,),)), {"fresh"}),
    (LaplaceEvent("a", 1.0, 1.0, 0), set()),
    (DisjointGaussianEvent("a", (1.0,), (1.0,), 0), set()),
    (ParallelEvent("a", ((dataclasses.replace(BATCH, count=0),),)), set()),
]


@pytest.mark.parametrize(("event", "covered"), COVERED, ids=lambda value: type(value).__name__)
def test_data_looked_at_without_an_event_that_covers_it_are_refused(event, covered, monkeypatch):
    """Disjoint batches count a record once: a plan of them does not cover a look at all records."""
    book = ledger(get_backend("cpu"), event)
    monkeypatch.setattr(book, "entries", lambda: (event,))
    book.check()
    for kind in LOOKS:
        if kind in covered:
            book.check(**{kind: True})
        else:
            with pytest.raises(LedgerMismatch, match=f"looked at {kind} .*, but no event of its plan has such a part"):
                book.check(**{kind: True})


def test_every_kind_of_event_is_in_that_list():
    assert {type(event) for event, _ in COVERED} == set(get_args(Event))


def test_labels_must_differ(backend):
    with pytest.raises(LedgerMismatch, match="two events"):
        more(backend, EVENT, EVENT)


# --- what was asked for -------------------------------------------------------------------------------------------


TWO_PARTS = GaussianEvent("a", 1.0, (QueryPart(1.0, 1, 5), QueryPart(1.0, 5, 5)), 2)


def test_noise_alone_is_refused_if_any_part_of_the_event_is_on_a_random_batch():
    for parts in (TWO_PARTS.parts, TWO_PARTS.parts[::-1]):
        book = ledger(get_backend("cpu"), dataclasses.replace(TWO_PARTS, parts=parts))
        with pytest.raises(LedgerMismatch, match="take the noise from `sampled`"):
            next(book.gaussian("a").noise(1))
        next(book.gaussian("a").sampled(1))


def test_a_negative_number_of_releases_is_refused_and_none_is_not(backend):
    drawing = mechanism(backend)
    with pytest.raises(LedgerMismatch, match="-1 releases of the mechanism 'inner' were asked for"):
        list(drawing.noise(-1))
    assert list(drawing.noise(0)) == []
    assert drawing.drawn == 0


ASKING = {
    "noise": lambda book: next(book.gaussian("a").noise(1)),
    "a tree": lambda book: book.tree("t").start(),
    "an unprotected quantity": lambda book: book.unprotected("u"),
    "a condition": lambda book: book.condition("c"),
}


@pytest.mark.parametrize("asking", ASKING)
def test_a_run_has_begun_with_the_first_thing_that_is_asked_for(asking):
    """Rows may be embedded before, and not after."""
    events = (dataclasses.replace(BATCH, label="a"), TreeEvent("t", 1.0, 1.0, 2, 1))
    book = ledger(get_backend("cpu"), *events, UnprotectedEvent("u", 1), ConditionEvent("c", 1e-7))
    assert not book.begun
    ASKING[asking](book)
    assert book.begun


def test_what_was_never_planned_is_written_down_as_unprotected_as_often_as_it_was_used():
    book = ledger(get_backend("cpu"), UnprotectedEvent("u", 1), ConditionEvent("c", 1e-7))
    assert book.entries() == (UnprotectedEvent("u", 0),)
    for _ in range(2):
        book.unprotected("u")
        book.unprotected("v")
        book.condition("c")
        book.condition("w")
    both = (UnprotectedEvent("u", 2), ConditionEvent("c", 1e-7))
    assert book.entries() == (*both, UnprotectedEvent("v", 2), UnprotectedEvent("w", 1))


def test_releases_that_a_library_declares_are_counted_and_bounded_as_any_others():
    book = ledger(get_backend("cpu"), dataclasses.replace(BATCH, label="a", count=3))
    assert book.declare("a", 2) == {"full gradients", "fresh samples"}
    assert book.entries()[0].count == 2
    with pytest.raises(LedgerMismatch, match="planned for 3 releases, but 4"):
        book.declare("a", 2)
    book.declare("a", 1)
    book.check(full=True)
    with pytest.raises(LedgerMismatch, match="no Mechanism 'b'"):
        book.declare("b", 1)


def test_nothing_is_said_to_have_been_looked_at_unless_it_is_said():
    book = ledger(get_backend("cpu"), ConditionEvent("c", 1e-7))
    book.condition("c")
    book.check()
    for kind in LOOKS:
        with pytest.raises(LedgerMismatch, match="no event of its plan has such a part"):
            book.check(**{kind: True})


def test_a_parallel_event_covers_its_batches_if_any_branch_releases():
    none = dataclasses.replace(BATCH, count=0)
    assert _looks_at(ParallelEvent("p", ((none,), (BATCH,)))) == {"fresh samples"}
    assert _looks_at(ParallelEvent("p", ((none,), (none,)))) == set()


def test_a_plan_is_told_by_its_labels_and_numbers():
    events = (
        ParallelEvent("p", ((BATCH,), (dataclasses.replace(BATCH, label="b", count=7),))),
        ConditionEvent("c", 0.5),
    )
    assert _counted(events) == ["1 x 'batch'", "7 x 'b'", "1 x 'c'"]
    assert _counted(()) == ["nothing"]


# --- batches at hand ----------------------------------------------------------------------------------------------


def watched(turn, *events):
    return Ledger(events, 3, 0, [0, 1], get_backend("cpu"), turn)


def test_a_batch_counts_as_not_looked_at_until_it_is():
    assert not BatchAtHand(None).looked_at
    with pytest.raises(LedgerMismatch, match="'a' was not looked at before its release was over"):
        list(watched(lambda: 0, dataclasses.replace(SAMPLED, label="a")).gaussian("a").sampled(1))


def test_where_nobody_notes_what_is_looked_at_nothing_is_missed():
    slots = Slots(5, (0,), get_backend("cpu"))
    assert not slots.watched
    drawing = GaussianMechanism(SAMPLED, 3, slots)
    for index, _ in drawing.sampled(2):
        assert slots.at_hand["inner"].batch is index
    assert slots.at_hand == {}


def test_a_batch_that_another_release_of_its_event_took_the_place_of_must_have_been_looked_at():
    book = watched(lambda: 0, dataclasses.replace(SAMPLED, label="a", count=3))
    drawing = book.gaussian("a")
    one = drawing.sampled(1)
    next(one)
    with pytest.raises(LedgerMismatch, match="was not looked at"):
        next(drawing.sampled(1))
    book.at_hand["a"].looked_at = True
    other = drawing.sampled(1)
    index, _ = next(other)
    assert list(one) == [], "the batch at hand is not the one that is taken back"
    assert book.at_hand["a"].batch is index
    with pytest.raises(LedgerMismatch, match="was not looked at"):
        book.check()


# --- turns --------------------------------------------------------------------------------------------------------


DISJOINT = DisjointGaussianEvent("d", (1.0,), (1.0,), 9)
FADING = FadingSelectionEvent("f", "gumbel", 1.0, (((1.0, 1),),), 9)
ONCE = {
    "disjoint": (DISJOINT, lambda book: book.disjoint_gaussian("d").noise(0)),
    "fading": (FADING, lambda book: book.selection("f").largest(np.zeros((2, 3)))),
    "tree": (TreeEvent("t", 1.0, 1.0, 9, 4), lambda book: book.tree("t").add(np.zeros((2, 3)))),
}


@pytest.mark.parametrize("kind", ONCE)
@pytest.mark.parametrize("first", [1, 2, 30])
def test_an_event_that_counts_a_record_once_releases_once_in_a_turn(kind, first):
    turn = [0]
    event, release = ONCE[kind]
    book = watched(lambda: turn[0], event)
    if kind == "tree":
        book.tree("t").start()
    with pytest.raises(LedgerMismatch, match="before any batch was handed out for it"):
        release(book)
    for turn[0] in (first, first + 1):
        assert not book.counts_once_in(turn[0])
        release(book)
        assert book.counts_once_in(turn[0])
        with pytest.raises(LedgerMismatch, match="would release twice on one batch"):
            release(book)
    assert not book.counts_once_in(first)


BRANCHES = ParallelEvent(
    "p",
    (
        (GaussianEvent("a", 1.0, ONE, 4), LaplaceEvent("l", 1.0, 1.0, 4)),
        (GaussianEvent("b", 1.0, ONE, 4),),
    ),
)
OTHERS = ParallelEvent("q", ((GaussianEvent("c", 1.0, ONE, 4),),))


@pytest.mark.parametrize("first", [1, 2, 30])
def test_of_the_branches_of_a_parallel_event_one_releases_in_a_turn(first):
    """A record is in the batch of one branch only: that is what makes the others free."""
    turn = [0]
    book = watched(lambda: turn[0], BRANCHES, OTHERS, GaussianEvent("anytime", 1.0, ONE, 1))
    next(book.gaussian("anytime").noise(1))
    with pytest.raises(LedgerMismatch, match="'b' would release before any batch was handed out"):
        next(book.gaussian("b").noise(1))
    turn[0] = first
    assert not book.counts_once_in(first)
    for label in ("a", "a"):
        next(book.gaussian(label).noise(1))
    next(book.laplace("l").noise(1))
    next(book.gaussian("c").noise(1))
    assert book.counts_once_in(first)
    with pytest.raises(LedgerMismatch, match="'b' would release on a batch of another parallel branch"):
        next(book.gaussian("b").noise(1))
    turn[0] += 1
    next(book.gaussian("b").noise(1))
    with pytest.raises(LedgerMismatch, match="'a' would release on a batch of another parallel branch"):
        next(book.gaussian("a").noise(1))


@pytest.mark.parametrize("label", ["a", "l"])
def test_a_branch_that_began_to_release_does_not_go_on_with_the_batch_of_another(label):
    """Planted bug: releases were asked for in the turn of one's own batch and are drawn in that of another branch."""
    turn = [1]
    book = watched(lambda: turn[0], BRANCHES)
    releases = book.gaussian("a").noise(3) if label == "a" else book.laplace("l").noise(3)
    next(releases)
    turn[0] = 2
    next(book.gaussian("b").noise(1))
    with pytest.raises(LedgerMismatch, match=f"'{label}' would release on a batch of another parallel branch"):
        next(releases)


def test_a_kernel_does_not_release_on_the_batch_of_another_branch():
    one, other = (GaussianEvent(label, 1.0, (QueryPart(1.0, 1, 5),), 1) for label in "ab")
    book = watched(lambda: 1, ParallelEvent("p", ((one,), (other,))))
    book.gaussian("a").handed_over(1)
    with pytest.raises(LedgerMismatch, match="'b' would release on a batch of another parallel branch"):
        book.gaussian("b").handed_over(1)
