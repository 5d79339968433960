"""Calibration: what is refused, where answers are kept, and which question an answer belongs to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution

from dprepro.errors import UserError
from dprepro.privacy import calibrate
from dprepro.privacy.accounting import FINE, FIRST_SHARE, ROUGH, account
from dprepro.privacy.calibrate import smallest_scale
from dprepro.privacy.events import GaussianEvent, QueryPart, scale_events

EVENTS = (GaussianEvent("step", 2.0, (QueryPart(0.3, 10, 10),), 4),)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path / "own"))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_a_claim_that_is_none_is_refused_before_the_memory_is_asked(epsilon: float, delta: float) -> None:
    calibrate._remember(calibrate._key(EVENTS, epsilon, delta), 3.5)
    with pytest.raises(UserError, match="give a number"):
        smallest_scale(EVENTS, epsilon, delta)


def test_a_thousandth_less_noise_is_not_enough() -> None:
    for epsilon in (0.05, 1.0, 30.0):
        factor = smallest_scale(EVENTS, epsilon, 1e-5)
        assert account(scale_events(EVENTS, factor), 1e-5).epsilon <= epsilon
        assert account(scale_events(EVENTS, factor / 1.001), 1e-5).epsilon > epsilon


def test_the_accountant_has_the_last_word_on_what_the_search_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that believes in too little noise is led upwards, by as little as it takes."""
    monkeypatch.setattr(calibrate, "within", lambda events, *_: events[0].sigma >= 1.3)
    factor = smallest_scale(EVENTS, 1.5, 1e-5)
    assert account(scale_events(EVENTS, factor), 1e-5).epsilon <= 1.5
    assert account(scale_events(EVENTS, factor / 1.001), 1e-5).epsilon > 1.5


def test_the_search_is_rough_at_the_first_division_and_fine_at_the_best_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best division is asked for until the noise hardly moves: at the third one it stays where it was."""
    asked, shares, needed = [], iter([0.25, 0.2, 0.1]), {FIRST_SHARE: 9.0, 0.25: 6.0, 0.2: 3.0, 0.1: 3.0}

    def within(events: tuple[GaussianEvent, ...], epsilon: float, delta: float, share: float, settled: float) -> bool:
        asked.append((share, settled))
        return events[0].sigma >= needed[share]

    monkeypatch.setattr(calibrate, "within", within)
    monkeypatch.setattr(calibrate, "best_share", lambda *_: next(shares))
    summed = (GaussianEvent("sum", 2.0, (QueryPart(0.1, 1, 9), QueryPart(1e-9, 9, 9)), 4),)
    assert 1.5 <= smallest_scale(summed, 10.0, 1e-5) <= 1.5 * (1 + calibrate.TOLERANCE)
    settled = [(FIRST_SHARE, ROUGH), (0.25, ROUGH), (0.2, ROUGH), (0.1, ROUGH), (0.1, FINE)]
    assert list(dict.fromkeys(asked)) == settled


MANY = {
    "n^2 steps of dp_sgd": ((2.0, 1, 2000, False), 4_000_000, 1.0),
    "Poisson batches": ((2.0, 1, 2000, True), 4_000_000, 8.0),
    "a small epsilon": ((2.0, 50, 2000, False), 250_000, 0.1),
    "few large losses": ((2.0, 1, 200_000, False), 100, 8.0),
}


@pytest.mark.parametrize("name", MANY)
def test_no_less_noise_is_certified_however_many_releases_there_are(name: str) -> None:
    """What each release loses by the grid adds up: a grid that does for a thousand is too coarse for millions."""
    part, count, epsilon = MANY[name]
    events = (GaussianEvent("step", 1.0, (QueryPart(*part),), count),)
    factor = smallest_scale(events, epsilon, 1e-5)
    assert account(scale_events(events, factor), 1e-5).epsilon <= epsilon
    for less in (1.002, 1.01, 1.1, 1.3):
        assert account(scale_events(events, factor / less), 1e-5).epsilon > epsilon


def test_no_less_noise_is_certified_for_the_best_division_of_summed_parts() -> None:
    """An inner loop of DP-SVRG, whose noise the sampled differences and the full gradients share."""
    events = (GaussianEvent("inner step", 1.0, (QueryPart(1.0, 1, 2000), QueryPart(5e-4, 2000, 2000)), 5000),)
    factor = smallest_scale(events, 1.0, 1e-3)
    assert account(scale_events(events, factor), 1e-3).epsilon <= 1.0
    for less in (1.002, 1.01, 1.1):
        assert account(scale_events(events, factor / less), 1e-3).epsilon > 1.0


def test_calibrated_noise_spends_what_dp_accounting_says() -> None:
    """A second opinion, on a grid of its own, for the same pair of distributions."""
    replace_one = dp_accounting.NeighboringRelation.REPLACE_ONE
    for batch, count, epsilon in ((50, 10_000, 1.0), (1, 250_000, 1.0)):
        events = (GaussianEvent("step", 1.0, (QueryPart(1.0, batch, 2000, poisson=True),), count),)
        one = privacy_loss_distribution.from_gaussian_mechanism(
            smallest_scale(events, epsilon, 1e-5),
            1.0,
            sampling_prob=batch / 2000,
            neighboring_relation=replace_one,
            value_discretization_interval=2e-5,
        )
        assert one.self_compose(count).get_epsilon_for_delta(1e-5) == pytest.approx(epsilon, rel=2e-3)


def test_what_is_spent_at_the_claim_is_delta_at_most() -> None:
    """The grid of the profile is as fine as the one on which epsilon was found."""
    events = (GaussianEvent("step", 1.0, (QueryPart(2.0, 1, 2000),), 4_000_000),)
    found = account(scale_events(events, smallest_scale(events, 1.0, 1e-5)), 1e-5)
    assert found.delta(1.0) <= 1e-5 < found.delta(0.98) < 1.5e-5


def test_noise_that_just_spends_the_claim_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "within", lambda events, *_: events[0].sigma >= 2.0)
    assert calibrate._search(EVENTS, account(EVENTS, 1e-5).epsilon, 1e-5) == 1.0


def test_answers_are_kept_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert calibrate.cache_folder() == tmp_path / "own" / "calibrations"
    monkeypatch.delenv("DPREPRO_CACHE_DIR")
    assert calibrate.cache_folder() == tmp_path / "xdg" / "dprepro" / "calibrations"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert calibrate.cache_folder() == tmp_path / "home" / ".cache" / "dprepro" / "calibrations"


def test_an_answer_is_written_down_once_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = smallest_scale(EVENTS, 1.0, 1e-5)
    (file,) = calibrate.cache_folder().glob("*.json")
    assert file.stem == calibrate._key(EVENTS, 1.0, 1e-5)
    assert json.loads(file.read_text())["factor"] == factor
    monkeypatch.setattr(calibrate, "_search", lambda *_: pytest.fail("it was known"))
    assert smallest_scale(EVENTS, 1.0, 1e-5) == factor


def test_a_factor_counts_only_with_its_own_seal() -> None:
    key = calibrate._key(EVENTS, 1.0, 1e-5)
    calibrate._remember(key, 3.5)
    assert calibrate._recall(key) == 3.5
    file = calibrate.cache_folder() / f"{key}.json"
    seal = calibrate._seal
    for factor, its_seal in (
        (3.5, seal(key, 3.4)),
        (3.5, seal("other", 3.5)),
        (3, seal(key, 3)),
        ("a", seal(key, "a")),
    ):
        file.write_text(json.dumps({"factor": factor, "seal": its_seal}))
        assert calibrate._recall(key) is None


def test_another_question_has_another_name() -> None:
    names = {
        calibrate._key(events, epsilon, delta)
        for events in (EVENTS, (*EVENTS, *EVENTS), scale_events(EVENTS, 1.5), ())
        for epsilon in (1.0, 2.0, math.inf)
        for delta in (1e-5, 1e-6)
    }
    assert len(names) == 24
    assert {len(name) for name in names} == {32}
