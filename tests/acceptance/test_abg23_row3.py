"""Facts of row 3 of ABG23's Table 1, measured on points of the default configuration's own sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from dprepro.analysis.rates import exponent

Point = Mapping[str, Any]


def means(run: Callable[..., Any], job: str, wanted: Callable[[Point], bool] = lambda point: True) -> dict[float, Any]:
    """Return the gradient norms of the replicates at every point of a job in row 3 (by the value on its axis)."""
    records, values = run(f"abg23_row3/{job}", wanted)
    return {record["point"]["value"]: value for record, value in zip(records, values, strict=True)}


@pytest.mark.parametrize(
    ("job", "low", "high"),
    [
        ("folds.sampling.practical", -0.6, -0.45),
        ("all.sampling.practical", -0.6, -0.45),
        ("folds-regression.regression.practical", -0.6, -0.45),
        ("all-regression.regression.practical", -0.6, -0.45),
        # Where noise outweighs sampling 1/n is the bound's; T = 4 ... 16 rounds cost a factor sqrt(T), folds T.
        ("all-private.private.practical", -0.95, -0.75),
        ("folds-private.private.practical", -0.8, -0.6),
        ("all-private.dimensions.practical", 0.4, 0.55),
        ("folds-private.dimensions.practical", 0.35, 0.55),
    ],
)
def test_the_rate_of_the_row_is_measured(job: str, low: float, high: float, run: Callable[..., Any]) -> None:
    found = means(run, job)
    assert low <= exponent(list(found), list(found.values())).mean <= high


@pytest.mark.parametrize("axis_value", [65536, 1048576])
def test_folds_cost_more_than_all_records_and_both_more_than_a_tuned_descent(
    axis_value: int, run: Callable[..., Any]
) -> None:
    def at(job: str) -> float:
        (value,) = means(run, job, lambda point: point["value"] == axis_value).values()
        return float(np.mean(value))

    folds, every, descent = (
        at(f"{job}.private.{variant}")
        for job, variant in (("folds-private", "practical"), ("all-private", "practical"), ("dp-gd", "certified"))
    )
    assert folds > 2.0 * every > 2.0 * 1.3 * descent


def test_phased_sgd_makes_one_pass_and_is_far_from_noisy_descent(run: Callable[..., Any]) -> None:
    records, (values,) = run("abg23_row3/phased-warm.one-pass.practical", lambda point: point["value"] == 8192)
    assert 0.95 * 8192 <= records[0]["gradient_evaluations"] == records[0]["samples"] <= 8192
    (descent,) = means(run, "folds-one-pass.one-pass.practical", lambda point: point["value"] == 8192).values()
    assert np.mean(values) > 3.0 * np.mean(descent)


def test_the_optimal_part_as_published_is_refused_at_every_point(run: Callable[..., Any]) -> None:
    records, _ = run("abg23_row3/folds.sampling.published", lambda point: True)
    assert all("steps one after the other" in record["refused"] for record in records)
