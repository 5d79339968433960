"""Facts of rows 4 to 6 of ABG23's Table 1, measured on points of the default configuration's own sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dprepro.analysis.rates import exponent

Point = Mapping[str, Any]


def along(axis: str, *values: float) -> Callable[[Point], bool]:
    """Whether a point lies on the axis at one of the values."""
    return lambda point: point["axis"] == axis and point["value"] in values


@pytest.mark.parametrize(
    ("job", "axis", "values", "low", "high"),
    [
        ("abg23_row4/jl-spider-boost.valley.practical", "d", (64, 4096), -0.06, 0.06),
        ("abg23_row4/jl-spider-boost.valley.practical", "n", (4096, 16384, 65536), -0.75, -0.55),
        ("abg23_row4/jl-spider-boost.valley.practical", "rank", (4, 16, 64), 0.21, 0.41),
        ("abg23_row4/spider-boost.valley.practical", "d", (64, 1024, 4096), 0.28, 0.38),
        ("abg23_row4/dp-gd.valley.practical", "d", (64, 256), -0.06, 0.06),
        ("abg23_row5/jl-spider-boost.valley.practical", "n", (4096, 16384, 65536), -0.72, -0.55),
        ("abg23_row6/jl-recursive.regression.practical", "d", (64, 256, 1024, 4096), -0.06, 0.06),
        ("abg23_row6/jl-recursive.regression.practical", "n", (4096, 16384, 65536), -1.0, -0.8),
    ],
)
def test_the_rate_of_the_row_is_measured(
    job: str, axis: str, values: tuple[float, ...], low: float, high: float, run: Callable[..., Any]
) -> None:
    records, found = run(job, along(axis, *values))
    assert not any(record["refused"] for record in records)
    assert low <= exponent(list(values), [[value] for value in found]).mean <= high


def test_an_embedding_pays_where_the_dimension_is_large_and_not_where_it_is_small(run: Callable[..., Any]) -> None:
    """SpiderBoost in full dimension is ahead at d = 64, twice the k of the embedding, and behind at d = 1024."""
    _, full = run("abg23_row5/spider-boost.valley.practical", along("d", 64, 1024))
    _, (embedded,) = run("abg23_row5/jl-spider-boost.valley.practical", along("d", 1024))
    assert full[0].mean() < 0.8 * embedded.mean() < 0.64 * full[1].mean()


def test_gradient_descent_in_full_dimension_is_ahead_of_the_embedding_at_these_n(run: Callable[..., Any]) -> None:
    """Its noise outside the span of the data moves no gradient: the embedding's better exponent needs more data."""
    _, descent = run("abg23_row5/dp-gd.valley.practical", along("n", 4096, 16384))
    _, embedded = run("abg23_row5/jl-spider-boost.valley.practical", along("n", 4096, 16384))
    assert all(here.mean() < 0.6 * there.mean() for here, there in zip(descent, embedded, strict=True))
