"""Sweep experiments: the points of a job, the letters it chooses from, and what its stages write."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from test_experiments import GOOD_SWEEPS

from dprepro import arrays, jobs
from dprepro.files import read_arrays, read_json
from dprepro.stages import optima, sweep
from dprepro.stages.collect import collect_sweeps, read_collected
from dprepro.sweeps import NONSMOOTH, SweepExperiment, candidates, optimum_name


def experiment(**changes: Any) -> SweepExperiment:
    problem = {
        "title": "logistic regression",
        "metric": "optimality gap",
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
        "nonsmooth": {"l1": 0.01},
        "constraint": None,
        "dataset": {"name": "synthetic_logistic", "seed": 0},
        "base": {"n": 300, "d": 4, "epsilon": 2},
        "sweeps": {"n": [300, 600], "epsilon": [2, 4]},
    }
    method = {
        "label": "DP-GD",
        "algorithm": "dp_gd",
        "variants": ["published"],
        "parameters": {"T": 10},
        "claims": {"exponents": {"n": -2}, "evaluations": 1, "nonsmooth": False, "bound": "1/n^2"},
    }
    spec = {
        "kind": "sweeps",
        "paper": "WYX17",
        "title": "a trial",
        "delta": 0.001,
        "replicates": 6,
        "tile": 8,
        "dtype": "float64",
        "problems": {"logit": problem},
        "methods": {"dp-gd": method | changes},
    }
    return SweepExperiment("trial", spec, 1, "cpu")


def run(job: jobs.Job, tmp_path: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    minima, out = tmp_path / "optima.json", tmp_path / f"{job.id}.npz"
    optima.solve_points({"points": job.spec["points"]}, minima)
    sweep.run_sweep(job.spec, minima, out, "sources")
    return read_json(out.with_suffix(".json")), read_arrays(out)


def test_the_tile_of_jobs_is_that_of_the_arrays() -> None:
    assert jobs.TILE == arrays.TILE


def test_a_job_goes_through_its_axis_and_keeps_the_rest_at_the_base() -> None:
    (job,) = experiment().jobs()
    assert job.id == "dp-gd.logit.published"
    axes = ("n", "epsilon", NONSMOOTH)
    rows, epsilons, nonsmooth = ([p for p in job.spec["points"] if p["axis"] == axis] for axis in axes)
    assert len(rows) + len(epsilons) + len(nonsmooth) == len(job.spec["points"])
    assert [(p["dataset"]["rows"], p["epsilon"]) for p in rows] == [(300, 2.0), (600, 2.0)]
    assert [(p["dataset"]["rows"], p["epsilon"]) for p in epsilons] == [(300, 2.0), (300, 4.0)]
    assert all(p["dataset"]["parameters"] == {"features": 4} for p in rows + epsilons)
    assert [p["regularizer"] for p in nonsmooth] == [{"l2": 0.1, "l1": 0.01}]


def test_a_parameter_of_the_dataset_can_be_an_axis() -> None:
    (job,) = SweepExperiment("trial", {**GOOD_SWEEPS, "methods": {"m": _plain()}}, 1, "cpu").jobs()
    points = [point for point in job.spec["points"] if point["axis"] == "noise"]
    assert [point["dataset"]["parameters"]["noise"] for point in points] == [0.1, 0.2]
    assert all(point["dataset"]["parameters"]["margin"] == 3 for point in points)


def _plain() -> dict[str, Any]:
    return {"label": "DP-GD", "algorithm": "dp_gd", "variants": ["published"]}


def test_candidates_are_all_combinations_over_the_fixed_letters() -> None:
    found = candidates({"parameters": {"T": 5, "eta": 9.0}, "tune": {"eta": [1.0, 2.0], "c": [1.0, 3.0]}})
    assert found == [{"T": 5, "eta": eta, "c": c} for eta in (1.0, 2.0) for c in (1.0, 3.0)]
    assert candidates({}) == [{}]


def test_methods_on_the_same_points_share_their_optima_and_others_do_not() -> None:
    one, other = experiment(), experiment(sweeps={"n": [300, 900]})
    assert len(one.optima()) == 1
    names = [optimum_name(e.jobs()[0].spec) for e in (one, experiment(label="another"), other)]
    assert names[0] == names[1] != names[2]


def test_a_sweep_writes_every_replicate_with_plan_certificate_and_count(tmp_path: Any) -> None:
    record, values = run(experiment(sweeps={"n": [300, 600]}).jobs()[0], tmp_path)
    assert values["value"].shape == values["final_objective"].shape == (3, 6)
    assert np.all(values["value"][:2] > 0.0)
    for point, n in zip(record["points"][:2], (300, 600), strict=True):
        assert point["gradient_evaluations"] == point["plan"]["gradient_evaluations"] == 10 * n
        assert point["certificate"]["epsilon_accounted"] > 2.0
        assert point["letters"]["T"] == 10
        assert point["refused"] == ""
        assert point["optimum"]["accuracy"] <= 1e-10


def test_a_sweep_run_again_writes_the_same_bytes(tmp_path: Any) -> None:
    job = experiment().jobs()[0]
    run(job, tmp_path)
    before = (tmp_path / f"{job.id}.npz").read_bytes()
    run(job, tmp_path)
    assert (tmp_path / f"{job.id}.npz").read_bytes() == before


def test_a_refused_point_keeps_the_sentence_and_no_value(tmp_path: Any) -> None:
    record, values = run(experiment().jobs()[0], tmp_path)
    assert record["points"][-1]["point"]["axis"] == NONSMOOTH
    assert "needs a smooth regularizer" in record["points"][-1]["refused"]
    assert np.all(np.isnan(values["value"][-1]))


def test_the_best_letters_are_chosen_on_other_seeds_than_those_reported(tmp_path: Any) -> None:
    job = experiment(tune={"eta": [1e-4, 2.0]}, variants=["certified"]).jobs()[0]
    record, values = run(job, tmp_path)
    for point, reported in zip(record["points"], values["value"], strict=True):
        means = [trial["mean"] for trial in point["tuned"]]
        assert means[1] < means[0]
        assert point["letters"]["eta"] == 2.0
        assert not np.isclose(np.mean(reported), means[1], rtol=1e-9), "the reported runs are new ones"
        assert np.mean(reported) == pytest.approx(means[1], rel=0.8)


def test_a_candidate_with_failures_is_not_chosen(tmp_path: Any) -> None:
    job = experiment(tune={"eta": [1e-6, 1e4]}, variants=["certified"]).jobs()[0]
    record, _ = run(job, tmp_path)
    assert all(point["letters"]["eta"] == 1e-6 for point in record["points"])
    assert all(point["tuned"][1]["failed"] == 6 for point in record["points"])


def test_collected_sweeps_feed_table_and_figure(tmp_path: Any) -> None:
    from dprepro import figures, tables

    trial = experiment()
    for job in trial.jobs():
        run(job, tmp_path)
    collect_sweeps([tmp_path / f"{job.id}.npz" for job in trial.jobs()], trial.claims(), tmp_path / "t.parquet")
    frame, metadata = read_collected(tmp_path / "t.parquet")
    assert metadata["kind"] == "sweeps"
    assert len(frame) == (2 + 2 + 1) * 6
    tables.write("trial", tmp_path / "t.parquet", tmp_path / "t.csv")
    text = (tmp_path / "t.md").read_text()
    assert "## What the numbers say" in text
    assert "the published noise of DP-GD, open constants taken as 1 and T = 10 set here, claims epsilon = 2" in text
    import pandas as pd

    rows = pd.read_csv(tmp_path / "t.csv").set_index("quantity")
    counts = rows.loc["gradient evaluations: exponent in n"]
    assert counts["measured"] == pytest.approx(1.0)
    assert counts["verdict"] == "agrees"
    refused = rows.loc["takes a non-smooth regularizer"]
    assert (refused["theory"], refused["measured"]) == (0.0, 0.0)
    assert refused["verdict"].startswith("refused: dp_gd needs a smooth regularizer")
    slope = rows.loc["optimality gap: exponent in n"]
    assert slope["ci_low"] <= slope["measured"] <= slope["ci_high"]
    assert "not private as published" in slope["verdict"]
    assert slope["epsilon_accounted"] > slope["epsilon_claimed"] == 2.0
    figures.draw("trial", tmp_path / "t.parquet", tmp_path / "t.png")
    assert "slope of the paper's bound" in (tmp_path / "t.md").read_text()


def test_an_unknown_metric_of_an_algorithm_is_refused(tmp_path: Any) -> None:
    from dprepro.errors import UserError

    job = experiment(algorithm="dp_svrg", parameters={"T": 2, "m": 5}).jobs()[0]
    other = dataclasses.replace(job, spec={**job.spec, "metric": "squared gradient norm"})
    with pytest.raises(UserError, match="does not observe"):
        run(other, tmp_path)
