"""KLT25's Table 1: what stands in the line of a method is what its own series and problems measured."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from dprepro.findings import klt25
from dprepro.sweeps import SAMPLES
from dprepro.tables import klt25_table1

SINGLE, MULTI = "Single pass, first-order", "Multi-pass, first-order"
ALGORITHMS = {SINGLE: "o2nc_first_order", MULTI: "o2nc_multi_pass"}


def row(problem, method, quantity, measured, variant="practical", theory=float("nan"), **more):
    return {
        "problem": problem, "method": method, "variant": variant, "quantity": quantity, "theory": theory,
        "theory_with_logarithms": float("nan"), "measured": measured, "ci_low": 0.9 * measured,
        "ci_high": 1.1 * measured, "verdict": "measured", "epsilon_claimed": 1.0, "epsilon_accounted": 0.9,
        "bound": f"bound of {method}", "algorithm": ALGORITHMS[method], "failed": 0, "replicates": 8,
    } | more  # fmt: skip


ROWS = pd.DataFrame([
    row("equal periods", SINGLE, f"{SAMPLES}: exponent in d", 0.97, theory=1.0, verdict="agrees (4 values of d)"),
    row("equal periods", SINGLE, f"{SAMPLES} at d = 16", 25000.0),
    row("equal periods", SINGLE, f"{SAMPLES} at d = 32", 52000.0),
    row("own best periods", SINGLE, f"{SAMPLES} at d = 32", 19000.0),
    row("own best periods", MULTI, f"{SAMPLES} at d = 32", 1160.0),
    row("own best periods", MULTI, f"{SAMPLES} at d = 32 over {SINGLE} (practical)", 0.06, verdict="at most 1/15"),
    row("own best periods", MULTI, f"{SAMPLES}: exponent along d less that of {SINGLE} (practical)", 0.06, theory=-0.25,
        verdict="larger than that of the private terms"),
    row("privacy", MULTI, f"{SAMPLES}: exponent in 1/epsilon", 0.93, theory=1.0, epsilon_claimed=4.0,
        epsilon_accounted=4.0, verdict="agrees (3 values of 1/epsilon)"),
    row("equal periods", SINGLE, f"{SAMPLES} at d = 32", 140000.0, variant="published", epsilon_accounted=0.3),
    row("regression", SINGLE, "Goldstein stationarity: exponent in n", -0.43, theory=-0.5),
    row("network", SINGLE, "Goldstein stationarity: exponent in n", -0.2, theory=-0.5),
])  # fmt: skip
FRAME = pd.DataFrame(
    {"method": method, "variant": variant, "refused": "", "letters": json.dumps(letters)}
    for method, variant, letters in (
        (SINGLE, "practical", {"estimator": "difference_set"}),
        (SINGLE, "published", {"estimator": "difference_set"}),
        (MULTI, "practical", {"estimator": "difference_set", "oracle": "first_order", "noise": "distance"}),
    )
)


@pytest.fixture(scope="module")
def lines():
    found = klt25_table1.guarantees(ROWS, FRAME)
    return {(line["method"], line["variant"]): line for line in found.to_dict("records")}


@pytest.fixture(scope="module")
def samples():
    found = klt25_table1.samples(ROWS)
    return {(line["series"], line["method"], line["variant"]): line for line in found.to_dict("records")}


def test_every_method_and_variant_has_one_line(lines, samples):
    assert set(lines) == {(SINGLE, "practical"), (SINGLE, "published"), (MULTI, "practical")}
    assert len(samples) == 5
    assert samples["privacy", MULTI, "practical"]["bound"] == f"bound of {MULTI}"


def test_exponents_stand_in_the_line_of_their_series_with_theory_and_verdict(samples):
    cell = samples["equal periods", SINGLE, "practical"]["exponent of the samples"]
    assert cell == "in d: 0.97 [0.87, 1.07] (private term 1): agrees (4 values of d)"
    assert samples["own best periods", MULTI, "practical"]["exponent of the samples"] == ""
    assert samples["privacy", MULTI, "practical"]["exponent of the samples"].startswith("in 1/epsilon: 0.93 ")


def test_a_difference_of_exponents_names_the_other_line_and_what_the_bounds_say(samples):
    cell = samples["own best periods", MULTI, "practical"]["less that of"]
    assert (
        cell == f"{SINGLE} (practical): 0.06 [0.05, 0.07] (private term -0.25): larger than that of the private terms"
    )
    assert samples["equal periods", SINGLE, "practical"]["less that of"] == ""


def test_the_end_of_a_series_is_its_last_value_with_the_ratio_and_what_it_is_over(samples):
    assert samples["equal periods", SINGLE, "practical"]["at the end"] == "at d = 32: 52,000 [46,800, 57,200]"
    assert samples["own best periods", SINGLE, "practical"]["at the end"].startswith("at d = 32: 19,000 ")
    ratio = f"; over {SINGLE} (practical): at most 1/15"
    assert samples["own best periods", MULTI, "practical"]["at the end"].endswith(ratio)
    assert samples["equal periods", SINGLE, "published"]["at the end"].startswith("at d = 32: 140,000 ")


def test_the_error_in_n_is_that_of_each_natural_problem(lines):
    assert lines[SINGLE, "practical"]["error in n, regression"].startswith("-0.43 ")
    assert lines[SINGLE, "practical"]["error in n, network"].startswith("-0.20 ")
    assert lines[MULTI, "practical"]["error in n, regression"] == ""


def test_what_is_spent_is_a_share_of_what_is_claimed(lines):
    spent = {key: line["epsilon accounted / claimed"] for key, line in lines.items()}
    assert spent == {(SINGLE, "practical"): 0.9, (SINGLE, "published"): 0.3, (MULTI, "practical"): 1.0}


def test_bounds_say_something_from_a_number_on_that_is_that_of_the_lines_own_letters(lines):
    """Printed noise needs more samples, more dimensions do, and many passes fewer; values need more than gradients.

    Many passes run with noise by distance, as practical runs do; with noise for the largest distance they need more.
    """
    useful = {key: line["below L from n, d = 10"] for key, line in lines.items()}
    assert 2.5e5 < useful[SINGLE, "practical"] < 3.2e5 < 2.0 * useful[SINGLE, "practical"] < useful[SINGLE, "published"]
    assert all(line["below L from n, d = 100"] > line["below L from n, d = 10"] for line in lines.values())

    def many(estimator, oracle, noise):
        letters = json.dumps({"estimator": estimator, "oracle": oracle, "noise": noise})
        (line,) = klt25_table1.guarantees(ROWS[ROWS["method"] == MULTI], FRAME.assign(letters=letters)).to_dict(
            "records"
        )
        return line["below L from n, d = 10"]

    assert useful[MULTI, "practical"] == many("difference_set", "first_order", "distance")
    assert 1.7e3 < useful[MULTI, "practical"] < 1.8e3 < many("frame", "zero_order", "distance") < 2.0e3
    assert 2.3e3 < many("difference_set", "first_order", "bound") < 2.5e3


def test_the_table_says_where_the_gap_between_population_and_sample_is_measured():
    assert klt25_table1.GAP in {question.name for question in klt25.QUESTIONS}
    assert klt25_table1.GAP in klt25_table1._GUARANTEES_HELP


def test_an_algorithm_without_such_a_bound_has_no_number():
    rows = ROWS[ROWS["method"] == SINGLE].assign(algorithm="dp_sgd")
    assert klt25_table1.guarantees(rows, FRAME)["below L from n, d = 10"].isna().all()
