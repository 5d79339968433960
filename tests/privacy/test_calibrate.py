"""Calibration: what is refused, where answers are kept, and which question an answer belongs to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.privacy import calibrate
from dprepro.privacy.accounting import FIRST_SHARE, account
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
    asked = []

    def within(events: tuple[GaussianEvent, ...], epsilon: float, delta: float, share: float, accuracy: float) -> bool:
        asked.append((share, accuracy))
        return events[0].sigma >= 3.0

    monkeypatch.setattr(calibrate, "within", within)
    monkeypatch.setattr(calibrate, "best_share", lambda *_: 0.25)
    assert 1.5 <= smallest_scale(EVENTS, 10.0, 1e-5) <= 1.5 * (1 + calibrate.TOLERANCE)
    assert list(dict.fromkeys(asked)) == [(FIRST_SHARE, 1e-3), (0.25, 2.5e-4)]


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
    known = [json.loads(file.read_text())["factor"] for file in calibrate.cache_folder().glob("*.json")]
    assert sorted(known) == sorted([factor, 1.0]), "and that of the calibrated events"
    monkeypatch.setattr(calibrate, "_search", lambda *_: pytest.fail("it was known"))
    assert smallest_scale(EVENTS, 1.0, 1e-5) == factor
    assert smallest_scale(scale_events(EVENTS, factor), 1.0, 1e-5) == 1.0


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
