"""Facts of rows 1 and 2 of BGM21's Table 1, measured on points of the default configuration's own sweeps.

Along n only the worst signal of the family is run; that it is the worst one is checked where a step is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dprepro.analysis.rates import exact_exponent, exponent

Point = Mapping[str, Any]


def slope(run: Callable[..., Any], job: str, axis: str, wanted: Callable[[Point], bool]) -> float:
    """Return the exponent of the worst member's mean along an axis."""
    records, values = run(job, lambda point: point["axis"] == axis and wanted(point))
    grid = sorted({record["point"]["value"] for record in records})
    members = [[v for r, v in zip(records, values, strict=True) if r["point"]["value"] == at] for at in grid]
    return exponent(grid, members).mean


def near(c: float) -> Callable[[Point], bool]:
    """Whether the signal of a point is c/sqrt(n)."""
    return lambda point: math.isclose(point["member"]["signal"] * math.sqrt(point["value"]), c, rel_tol=0.1)


def around(c: float) -> Callable[[Point], bool]:
    """Whether the signal of a point is c/n, or half of that."""
    return lambda point: 0.4 * c <= point["member"]["signal"] * point["value"] <= 1.1 * c


def up_to(largest: float) -> Callable[[Point], bool]:
    """Whether a point lies on its axis up to a value."""
    return lambda point: point["value"] <= largest


@pytest.mark.parametrize(
    ("job", "axis", "wanted", "low", "high"),
    [
        ("bgm21_row1/frank-wolfe.hard.published", "n", near(16.0), -0.56, -0.46),
        ("bgm21_row1/frank-wolfe-certified.hard.certified", "n", near(4.0), -0.58, -0.44),
        ("bgm21_row1/frank-wolfe.hard.published", "d", up_to(512), 0.1, 0.25),
        ("bgm21_row1/noisy-gd.hard.certified", "d", up_to(512), 0.4, 0.6),
        ("bgm21_row2/phased-sgd.hard.published", "n", near(11.3), -0.54, -0.45),
        ("bgm21_row2/phased-sgd-rank.low-rank.published", "d", up_to(256), -0.03, 0.03),
        ("bgm21_row2/phased-sgd-private-certified.private.certified", "d", up_to(64), 0.4, 0.6),
        # Few replicates, and signals by factors of 2: the worst one is at times 2/sqrt(n), at times 4/sqrt(n).
        ("bgm21_row1/frank-wolfe-gumbel.hard.practical", "n", up_to(65536), -0.7, -0.5),
        # At these n the noise's part of the bound, 1/n, still outweighs 1/sqrt(n): over them the bound has -0.87.
        ("bgm21_row2/phased-sgd-balanced.hard.practical", "n", around(256.0), -0.9, -0.78),
    ],
)
def test_the_rate_of_the_row_is_measured(
    job: str, axis: str, wanted: Callable[[Point], bool], low: float, high: float, run: Callable[..., Any]
) -> None:
    assert low <= slope(run, job, axis, wanted) <= high


@pytest.mark.parametrize(
    ("job", "largest", "c"),
    [
        ("bgm21_row1/frank-wolfe.hard.published", 65536, 16.0),
        ("bgm21_row2/phased-sgd.hard.published", 2048, 11.3),
    ],
)
def test_the_worst_signal_falls_as_the_root_of_n(job: str, largest: int, c: float, run: Callable[..., Any]) -> None:
    records, values = run(job, lambda point: point["axis"] == "n" and point["value"] <= largest)
    for n in sorted({record["point"]["value"] for record in records}):
        here = [(v.mean(), r["point"]) for r, v in zip(records, values, strict=True) if r["point"]["value"] == n]
        assert near(c)(max(here, key=lambda pair: pair[0])[1])


@pytest.mark.parametrize(
    ("job", "largest", "low", "high"),
    [
        ("bgm21_row1/frank-wolfe-records.records.published", 4096, 1.8, 2.0),
        ("bgm21_row2/phased-sgd-records.records.published", 4096, 0.99, 1.01),
    ],
)
def test_only_row_2_makes_one_pass_over_stored_rows(
    job: str, largest: int, low: float, high: float, run: Callable[..., Any]
) -> None:
    records, _ = run(job, up_to(largest))
    counts = [record["gradient_evaluations"] for record in records]
    assert low <= exact_exponent([record["point"]["value"] for record in records], counts) <= high
    assert (max(counts) <= largest) == (job.startswith("bgm21_row2"))
