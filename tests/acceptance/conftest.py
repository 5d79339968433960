"""What the acceptance tests share: points of the default configuration's own sweeps, run as the pipeline runs them.

Every run has the seeds of the configuration, so that nothing here depends on chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dprepro.experiments import load_config, load_experiments
from dprepro.files import read_arrays, read_json
from dprepro.stages import sweep
from dprepro.stages.optima import solve_points
from dprepro.sweeps import needs_minimum

CONFIG = Path(__file__).parents[2] / "config"
Point = Mapping[str, Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[Any], list[np.ndarray]]]:
    """Run the wanted points of a job EXPERIMENT/JOB; return their records and the replicates' values.

    Certificates and thresholds are left out: they take longer than the runs and have tests of their own. Fewer
    replicates than configured are the first of them.
    """
    monkeypatch.setattr(sweep, "certify", lambda plan: {})
    monkeypatch.setattr(sweep, "_thresholds", lambda *_: {})

    def run(
        place: str, wanted: Callable[[Point], bool], replicates: int | None = None
    ) -> tuple[list[Any], list[np.ndarray]]:
        experiment, name = place.split("/")
        (found,) = load_experiments({**load_config([], CONFIG), "experiments": [experiment]}, CONFIG)
        (spec,) = (job.spec for job in found.jobs() if job.id == name)
        chosen = {**spec, "points": [point for point in spec["points"] if wanted(point)]}
        chosen["replicates"] = replicates or spec["replicates"]
        optima = tmp_path / "optima.json" if needs_minimum(spec) else None
        if optima:
            solve_points(chosen, optima)
        sweep.run_sweep(chosen, optima, tmp_path / "sweep.npz", "acceptance")
        return read_json(tmp_path / "sweep.json")["points"], list(read_arrays(tmp_path / "sweep.npz")["value"])

    return run
