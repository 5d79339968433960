"""Facts of rows 1 and 2 of ABG23's Table 1, measured on points of the default configuration's own sweeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from dprepro.analysis.rates import exact_exponent, exponent

Point = Mapping[str, Any]


def along_n(largest: int) -> Callable[[Point], bool]:
    """Whether a point lies on the axis n up to a value."""
    return lambda point: point["axis"] == "n" and point["value"] <= largest


@pytest.mark.parametrize(
    ("job", "largest", "low", "high"),
    [
        ("abg23_row1/dp-gd.valley.practical", 65536, -0.53, -0.45),
        ("abg23_row1/spider-boost-full.valley.practical", 65536, -0.74, -0.62),
        ("abg23_row1/spider-boost.valley.practical", 65536, -0.74, -0.62),
        ("abg23_row2/tree-spider.sampling.practical", 262144, -0.42, -0.25),
    ],
)
def test_the_rate_of_the_row_is_measured(
    job: str, largest: int, low: float, high: float, run: Callable[..., Any]
) -> None:
    """The exponent of sub-sampled SpiderBoost is lower in size at small n: -0.53 to 4096, -0.72 from 16384 to 65536."""
    records, values = run(job, along_n(largest))
    assert low <= exponent([record["point"]["value"] for record in records], [[v] for v in values]).mean <= high


@pytest.mark.parametrize(
    ("job", "low", "high"),
    [
        ("abg23_row1/dp-gd.valley.practical", 0.2, 0.3),
        ("abg23_row1/spider-boost-full.valley.practical", 0.3, 0.4),
    ],
)
def test_the_rates_in_the_dimension_differ(job: str, low: float, high: float, run: Callable[..., Any]) -> None:
    records, values = run(job, lambda point: point["axis"] == "d" and point["value"] >= 20)
    assert low <= exponent([record["point"]["value"] for record in records], [[v] for v in values]).mean <= high


def test_spiderboost_is_ahead_of_dp_gd_and_further_with_more_records(run: Callable[..., Any]) -> None:
    _, slow = run("abg23_row1/dp-gd.valley.practical", along_n(65536))
    _, fast = run("abg23_row1/spider-boost-full.valley.practical", along_n(65536))
    lead = [a.mean() / b.mean() for a, b in zip(slow, fast, strict=True)]
    assert lead[0] > 1.0
    assert lead == sorted(lead)
    assert lead[-1] > 1.7


def test_with_the_only_constant_of_the_text_spiderboost_ends_worse_than_it_starts(run: Callable[..., Any]) -> None:
    records, values = run("abg23_row1/spider-boost-c-8.valley.published", along_n(2048))
    for record, value in zip(records, values, strict=True):
        assert value.mean() > 1.5 * record["optimum"]["gradient_norm_at_zero"]


def test_tuned_spiderboost_overtakes_tuned_dp_gd_on_the_natural_problem_as_records_grow(
    run: Callable[..., Any],
) -> None:
    """Welsch's loss on rows of rank 20, the letters of both tuned at every n."""

    def at(point: Point) -> bool:
        return point["axis"] == "n" and point["value"] in (4096, 262144)

    _, (few, many) = run("abg23_row1/dp-gd-tuned.natural.practical", at)
    _, (boosted_few, boosted_many) = run("abg23_row1/spider-boost-tuned.natural.practical", at)
    assert few.mean() <= boosted_few.mean()
    assert boosted_many.mean() < 0.9 * many.mean()


def test_the_published_tree_returns_the_initial_point(run: Callable[..., Any]) -> None:
    """Or would: the plan refuses such an n, and names that from which the theorem asks for more."""
    ((record,), (value,)) = run("abg23_row2/tree-spider-published.sampling.published", along_n(16384))
    assert re.search(r"return its initial point at n = 16384: .* it makes sense from n = [1-9]", record["refused"])
    assert np.all(np.isnan(value))


def test_the_tree_makes_one_pass_and_less_than_two_gradients_for_a_sample(run: Callable[..., Any]) -> None:
    records, _ = run("abg23_row2/tree-spider.sampling.practical", along_n(65536))
    assert all(record["samples"] <= record["point"]["value"] for record in records)
    assert all(record["gradient_evaluations"] < 2 * record["point"]["value"] for record in records)
    counts = [record["gradient_evaluations"] for record in records]
    assert 0.9 < exact_exponent([record["point"]["value"] for record in records], counts) < 1.1
