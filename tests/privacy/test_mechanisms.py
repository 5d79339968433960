from __future__ import annotations

import numpy as np
import pytest

from dprepro.errors import LedgerMismatch
from dprepro.privacy.events import GaussianEvent, QueryPart, UnprotectedEvent
from dprepro.privacy.mechanisms import BLOCK_STEPS, GaussianMechanism, Ledger

EVENT = GaussianEvent("inner", 0.37, (QueryPart(1.0, 1, 500),), 1000)


def mechanism(backend, event=EVENT, replicates=range(64), d=30):
    return GaussianMechanism(event, d, 5, list(replicates), backend)


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
    pairs = [(backend.to_host(i), backend.to_host(u)) for i, u in mechanism(backend).sampled(1000)]
    index = np.stack([pair[0] for pair in pairs])
    assert set(np.unique(index)) == set(range(500))
    noise = np.stack([pair[1] for pair in pairs])[..., 0]
    assert abs(np.corrcoef(index.ravel(), noise.ravel())[0, 1]) < 5.4 / np.sqrt(index.size)


def test_single_and_double_precision_see_the_same_stream():
    from dprepro.arrays import get_backend

    single = next(mechanism(get_backend("cpu", "float32")).noise(1))
    double = next(mechanism(get_backend("cpu", "float64")).noise(1))
    np.testing.assert_array_equal(single.astype(np.float64), double)


def test_more_releases_than_planned_are_refused(backend):
    drawing = mechanism(backend)
    list(drawing.noise(999))
    with pytest.raises(LedgerMismatch, match=r"planned for 1000 releases, but 1001"):
        list(drawing.noise(2))


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
    with pytest.raises(LedgerMismatch, match="no Gaussian mechanism"):
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
