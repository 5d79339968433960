"""Labels show the parameters of a plan, and no label that was taken can stop a table."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprepro.labels import format_problem, formatted, names

TYPES = {"T": "int", "eta": "float", "step": "str", "radius": "float | None"}
PLAN = {"T": 5, "eta": 0.25, "step": "bb", "radius": None}


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("DP-GD", "DP-GD"),
        ("T = {T}, eta = {eta:g}, {step!r}", "T = 5, eta = 0.25, 'bb'"),
        ("a set {{{T}}}", "a set {5}"),
        ("{radius}", "None"),
    ],
)
def test_a_label_shows_the_values_of_the_plan(label: str, shown: str) -> None:
    assert formatted(label, PLAN) == shown
    assert formatted(label, PLAN) == label.format_map(PLAN)
    assert format_problem(label, TYPES) == ""


@pytest.mark.parametrize("label", ["{T}", "{eta:g}", "{step!r:>4}"])
def test_a_parameter_that_no_plan_has_fixed_stays_as_it_is_written(label: str) -> None:
    assert formatted(label, {}) == label


@pytest.mark.parametrize("value", ["inf", None, (1, 2)])
def test_a_value_that_the_format_is_not_for_is_shown_plainly(value: object) -> None:
    assert formatted("{eta:.3g}", {"eta": value}) == str(value)
    assert formatted("{eta:.3g}", {"eta": math.inf}) == "inf"


@pytest.mark.parametrize("label", ["{T:c}", "{T:x>100}{T:x>100}", "{step:>121}"])
def test_a_label_that_may_come_out_broken_or_too_long_is_refused(label: str) -> None:
    assert format_problem(label, TYPES)


@given(st.text(st.sampled_from("{}T:!rgd0.9eta ,"), max_size=12))
def test_what_is_taken_can_be_formatted_whatever_the_plan(label: str) -> None:
    try:
        used = names(label)
    except ValueError:
        return
    if set(used) <= set(TYPES) and not format_problem(label, TYPES):
        for plan in (PLAN, {}, dict.fromkeys(TYPES, "inf"), dict.fromkeys(TYPES)):
            assert len(formatted(label, plan)) < 400
