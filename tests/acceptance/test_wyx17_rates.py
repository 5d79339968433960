"""Facts of WYX17's tables, measured on the default configuration's own sweeps, as the pipeline runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dprepro.analysis.rates import exponent


def measured(run: Callable[..., Any], job: str, axis: str) -> float:
    """Return the exponent of one method along one axis."""
    records, values = run(job, lambda point: point["axis"] == axis)
    return exponent([record["point"]["value"] for record in records], values).mean


@pytest.mark.parametrize(
    ("job", "axis", "low", "high"),
    [
        ("wyx17_table1/dp-gd.logistic.published", "n", -2.15, -1.7),
        ("wyx17_table1/output-perturbation.logistic.published", "n", -2.15, -1.7),
        ("wyx17_table1/dp-svrg.logistic.published", "n", -2.15, -1.7),
        ("wyx17_table1/dp-svrg-certified.logistic.certified", "n", -1.0, 0.0),
        ("wyx17_table2/dp-svrg-pp.scales.published", "n", -1.15, -0.85),
        ("wyx17_table2/dp-svrg-pp.scales.published", "d", 0.35, 0.65),
        ("wyx17_table2/output-perturbation.scales.published", "n", -0.8, -0.55),
        ("wyx17_table3/dp-acc-md-both.sparse.published", "epsilon", -1.1, -0.85),
        ("wyx17_section6/dp-gd-pl.pl.published", "n", -2.15, -1.7),
        ("wyx17_section6/dp-gd-pl-not-convex.pl-not-convex.published", "n", -2.15, -1.7),
    ],
)
def test_the_published_rate_is_measured(job: str, axis: str, low: float, high: float, run: Callable[..., Any]) -> None:
    assert low <= measured(run, job, axis) <= high


def test_clipping_gives_the_rate_back_to_honestly_calibrated_svrg(run: Callable[..., Any]) -> None:
    assert measured(run, "wyx17_table1/dp-svrg-clipped.logistic.practical", "n") <= -1.8
