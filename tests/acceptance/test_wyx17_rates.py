"""Facts of WYX17's tables, measured on the default configuration's own sweeps, as the pipeline runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dprepro.analysis.rates import exponent
from dprepro.experiments import load_config, load_experiments
from dprepro.files import read_arrays
from dprepro.stages.optima import solve_points
from dprepro.stages.sweep import run_sweep

CONFIG = Path(__file__).parents[2] / "config"


def measured(experiment: str, job: str, axis: str, folder: Path) -> float:
    """Run one method of a shipped experiment along one axis and return the exponent."""
    config = {**load_config([], CONFIG), "experiments": [experiment]}
    (found,) = load_experiments(config, CONFIG)
    (spec,) = (candidate.spec for candidate in found.jobs() if candidate.id == job)
    chosen: dict[str, Any] = {**spec, "points": [point for point in spec["points"] if point["axis"] == axis]}
    solve_points(chosen, folder / "optima.json")
    run_sweep(chosen, folder / "optima.json", folder / "sweep.npz", "acceptance")
    values = read_arrays(folder / "sweep.npz")["value"]
    return exponent([point["value"] for point in chosen["points"]], list(values)).mean


@pytest.mark.parametrize(
    ("experiment", "job", "axis", "low", "high"),
    [
        ("wyx17_table1", "dp-gd.logistic.published", "n", -2.15, -1.7),
        ("wyx17_table1", "output-perturbation.logistic.published", "n", -2.15, -1.7),
        ("wyx17_table1", "dp-svrg.logistic.published", "n", -2.15, -1.7),
        ("wyx17_table1", "dp-svrg-certified.logistic.certified", "n", -1.0, 0.0),
        ("wyx17_table2", "dp-svrg-pp.scales.published", "n", -1.15, -0.85),
        ("wyx17_table2", "dp-svrg-pp.scales.published", "d", 0.35, 0.65),
        ("wyx17_table2", "output-perturbation.scales.published", "n", -0.8, -0.55),
        ("wyx17_table3", "dp-acc-md-both.sparse.published", "epsilon", -1.1, -0.85),
        ("wyx17_section6", "dp-gd-pl.pl.published", "n", -2.15, -1.7),
        ("wyx17_section6", "dp-gd-pl-not-convex.pl-not-convex.published", "n", -2.15, -1.7),
    ],
)
def test_the_published_rate_is_measured(
    experiment: str, job: str, axis: str, low: float, high: float, tmp_path: Path
) -> None:
    assert low <= measured(experiment, job, axis, tmp_path) <= high


def test_clipping_gives_the_rate_back_to_honestly_calibrated_svrg(tmp_path: Path) -> None:
    assert measured("wyx17_table1", "dp-svrg-clipped.logistic.practical", "n", tmp_path) <= -1.8
