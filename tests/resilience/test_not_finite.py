"""A replicate that ends in no number is counted as failed, and no mean is taken over the others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_damage import JOB, SWEEP

from dprepro import figures, tables
from dprepro.algorithms import get_algorithm
from dprepro.collected import read_collected
from dprepro.errors import RunFailed
from dprepro.files import read_arrays, read_json, write_arrays, write_record
from dprepro.privacy import audit as audits
from dprepro.stages.certify import certify_job
from dprepro.stages.collect import collect, collect_sweeps
from dprepro.stages.dataset import prepare
from dprepro.stages.optima import solve_points
from dprepro.stages.optimum import solve_exactly
from dprepro.stages.run import run_job
from dprepro.stages.sweep import run_sweep

REPLICATES = 4
CLAIMS = {
    "problems": {"p": "A problem"},
    "settings": {"p": {"dataset": {"name": "synthetic_logistic"}, "loss": "logistic", "regularizer": {"l2": 0.1},
                       "constraint": None, "base": {"n": 50}}},
    "methods": {entry: {"exponents": {"n": -1.0}} for entry in ("a", "wild")},
}  # fmt: skip


def _replace(run: Path, arrays: dict[str, np.ndarray]) -> None:
    """Let a run have ended with other arrays."""
    record = run.with_suffix(".json")
    write_record(record, read_json(record) | {"arrays": write_arrays(run, arrays)})


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collected table: one method with a step size beyond all reason, one with a single lost replicate."""
    folder = tmp_path_factory.mktemp("curves")
    data, optimum = folder / "small.npz", folder / "optima" / "small.npz"
    prepare({"name": "synthetic_logistic", "rows": 60, "seed": 3, "parameters": {"features": 4}}, data)
    solve_exactly(JOB, data, optimum)
    runs = []
    for entry, letters in (("calm", {"T": 20}), ("wild", {"T": 20, "eta": 1e60}), ("one", {"T": 20})):
        job = {
            **JOB,
            "entry": entry,
            "job": entry,
            "label": entry,
            "parameters": letters,
            "replicates": REPLICATES,
            "epsilon": 100.0,
        }
        certify_job(job, data.with_suffix(".json"), folder / f"{entry}.plan.json")
        runs.append(folder / "runs" / f"{entry}.npz")
        run_job(folder / f"{entry}.plan.json", data, runs[-1])
    arrays = read_arrays(runs[-1])
    arrays["objective"][2, -3:] = arrays["final_objective"][2] = np.nan
    _replace(runs[-1], arrays)
    collect(runs, {"small": optimum}, folder / "wyx17_fig1.parquet")
    return folder / "wyx17_fig1.parquet"


def test_a_run_that_overflows_ends_without_a_warning_and_is_failed(curves: Path) -> None:
    wild = read_arrays(curves.parent / "runs" / "wild.npz")
    assert not np.isfinite(wild["final_objective"]).any(), "the step size is beyond all reason"
    frame, _ = read_collected(curves)
    failed = frame[frame["failure"] != ""].groupby(["entry", "failure"])["replicate"].nunique()
    assert dict(failed) == {("wild", "not finite"): REPLICATES, ("one", "not finite"): 1}


def test_the_table_counts_it_and_takes_no_mean_over_the_others(curves: Path, tmp_path: Path) -> None:
    tables.write("wyx17_fig1", curves, tmp_path / "t.csv")
    rows = pd.read_csv(tmp_path / "t.csv")
    gaps = rows[rows["quantity"] == "optimality gap"].set_index("method")
    assert list(gaps["failed"]) == [0, REPLICATES, 1]
    assert np.isfinite(gaps.loc["calm", "measured"])
    for method, count in (("wild", REPLICATES), ("one", 1)):
        assert gaps.loc[method, "measured"] == np.inf
        assert np.isnan(gaps.loc[method, "ci_low"])
        assert gaps.loc[method, "verdict"] == f"{count} of {REPLICATES} replicates failed"


def test_the_figure_ends_a_curve_where_a_replicate_is_lost_and_says_so(curves: Path, tmp_path: Path) -> None:
    from dprepro.analysis.intervals import curves as means

    figures.draw("wyx17_fig1", curves, tmp_path / "f.png")
    caption = (tmp_path / "f.md").read_text()
    assert f"wild, epsilon = 100: {REPLICATES} (not finite)" in caption
    assert "one, epsilon = 100: 1 (not finite)" in caption
    frame, _ = read_collected(curves)
    drawn = means(frame[frame["entry"] == "one"], ["checkpoint"], "gap")
    assert len(drawn) == frame["checkpoint"].nunique() - 3


def test_a_replicate_that_is_lost_on_its_way_is_failed_although_its_end_is_finite(curves: Path) -> None:
    from dprepro.stages.collect import run_rows

    arrays = read_arrays(curves.parent / "runs" / "calm.npz")
    arrays["objective"][1, 3] = np.inf
    record = read_json(curves.parent / "runs" / "calm.json")
    rows = run_rows(record, arrays, read_arrays(curves.parent / "optima" / "small.npz"))
    assert list(rows.groupby("replicate")["failure"].first()) == ["", "not finite", "", ""]


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collected sweep over three n: one method as it should be, one that loses a replicate at the last n."""
    folder = tmp_path_factory.mktemp("sweeps")
    points = [
        {**SWEEP["points"][0], "value": n, "dataset": {**SWEEP["points"][0]["dataset"], "rows": n}}
        for n in (50, 100, 200)
    ]
    solve_points({"points": points}, folder / "minima.json")
    runs = []
    for entry in ("a", "wild"):
        spec = {
            **SWEEP,
            "entry": entry,
            "job": entry,
            "label": entry,
            "points": points,
            "replicates": REPLICATES,
            "epsilon": 100.0,
        }
        runs.append(folder / f"{entry}.npz")
        run_sweep(spec, folder / "minima.json", runs[-1], "0")
    arrays = read_arrays(runs[-1])
    # The metric alone: the end of the run may be finite.
    arrays["value"][2, 1] = np.nan
    _replace(runs[-1], arrays)
    collect_sweeps(runs, CLAIMS, folder / "sweep.parquet")
    return folder / "sweep.parquet"


def test_a_sweep_measures_nothing_at_a_point_with_a_lost_replicate_and_says_so(sweeps: Path, tmp_path: Path) -> None:
    frame, _ = read_collected(sweeps)
    lost = frame[(frame["failure"] == "not finite")]
    assert [(row.entry, row.n, row.replicate) for row in lost.itertuples()] == [("wild", 200, 1)]
    tables.write("sweep", sweeps, tmp_path / "t.csv")
    rows = pd.read_csv(tmp_path / "t.csv").set_index(["method", "quantity"])
    calm = rows.loc["a", "optimality gap: exponent in n"]
    wild = rows.loc["wild", "optimality gap: exponent in n"]
    assert wild["measured"] != calm["measured"], "it is that of two points"
    assert wild["failed"] - calm["failed"] == 1
    assert "1 of them not finite, so that nothing is measured at 200" in wild["verdict"]
    assert "not finite" not in calm["verdict"]
    assert wild["last_error_over_start"] == np.inf
    assert np.isfinite(calm["last_error_over_start"])


def test_the_figure_of_a_sweep_leaves_out_the_point_and_says_so(sweeps: Path, tmp_path: Path) -> None:
    figures.draw("sweep", sweeps, tmp_path / "f.png")
    assert "p, wild (published): 1 of 12" in " ".join((tmp_path / "f.md").read_text().split())


def test_candidates_that_overflow_are_never_chosen(tmp_path: Path) -> None:
    solve_points({"points": SWEEP["points"]}, tmp_path / "minima.json")
    spec = {**SWEEP, "replicates": REPLICATES, "candidates": [{"T": 20, "eta": 1e60}, {"T": 5}]}
    run_sweep(spec, tmp_path / "minima.json", tmp_path / "a.npz", "0")
    for point in read_json(tmp_path / "a.json")["points"]:
        wild, calm = point["tuned"]
        assert wild["failed"] == REPLICATES
        assert wild["mean"] is None or wild["mean"] == "inf"
        assert calm["failed"] < REPLICATES
        assert point["letters"]["T"] == 5
    json.dumps(read_json(tmp_path / "a.json"), allow_nan=False)


def test_an_audit_with_runs_that_have_no_score_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(*_: object, replicates: int, **__: object) -> np.ndarray:
        found = np.zeros(replicates)
        found[:3] = np.nan
        return found

    monkeypatch.setattr(audits, "side_scores", scores)
    with pytest.raises(RunFailed, match=r"6 of 600 runs in the audit of dp_gd .*nothing is proven without them"):
        audits.audit(get_algorithm("dp_gd"), variant="published", epsilon=1.0, delta=1e-3, replicates=300)
