"""Sweep experiments: the points of a job, the letters it chooses from, and what its stages write."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from test_experiments import GOOD_SWEEPS

from dprepro import arrays, jobs
from dprepro.collected import read_collected
from dprepro.files import read_arrays, read_json
from dprepro.stages import optima, sweep
from dprepro.stages.collect import collect_sweeps
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


def test_a_method_without_privacy_runs_without_noise(tmp_path: Any) -> None:
    (job,) = experiment(base={"epsilon": "inf"}, sweeps={"n": [300, 600]}).jobs()
    record, _ = run(job, tmp_path)
    assert all(point["plan"]["sigma"] == 0.0 for point in record["points"][:2])
    collect_sweeps([tmp_path / f"{job.id}.npz"], experiment().claims(), tmp_path / "t.parquet")
    frame, _ = read_collected(tmp_path / "t.parquet")
    assert set(frame["epsilon"]) == set(frame[frame["axis"] == "n"]["epsilon_accounted"]) == {np.inf}
    assert frame["runs_from_n"].isna().all(), "no claim, no threshold"


def test_a_parameter_of_the_dataset_can_be_an_axis() -> None:
    (job,) = SweepExperiment(
        "trial", {**GOOD_SWEEPS, "methods": {"m": _plain() | {"problems": ["logit"]}}}, 1, "cpu"
    ).jobs()
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
    assert "the published noise of DP-GD with c = 1, set here, claims epsilon = " in text
    import pandas as pd

    rows = pd.read_csv(tmp_path / "t.csv").set_index("quantity")
    counts = rows.loc["gradient evaluations: exponent in n"]
    assert counts["measured"] == pytest.approx(1.0)
    assert counts["verdict"] == "agrees"
    refused = rows.loc["takes a non-smooth regularizer"]
    assert (refused["theory"], refused["measured"]) == (0.0, 0.0)
    assert refused["verdict"].startswith("agrees: refused: dp_gd needs a smooth regularizer"), "the paper says no"
    slope = rows.loc["optimality gap: exponent in n"]
    assert slope["ci_low"] <= slope["measured"] <= slope["ci_high"]
    assert slope["verdict"].endswith("; not certified"), "a logistic loss is not known to spend what is accounted"
    assert slope["epsilon_accounted"] > slope["epsilon_claimed"] == 2.0
    figures.draw("trial", tmp_path / "t.parquet", tmp_path / "t.png")
    assert "slope of the paper's bound" in (tmp_path / "t.md").read_text()


def test_an_unknown_metric_of_an_algorithm_is_refused(tmp_path: Any) -> None:
    from dprepro.errors import UserError

    job = experiment(algorithm="dp_svrg", parameters={"T": 2, "m": 5}).jobs()[0]
    other = dataclasses.replace(job, spec={**job.spec, "metric": "squared gradient norm"})
    with pytest.raises(UserError, match="does not observe"):
        run(other, tmp_path)


SIGNALS = [0.3, 0.1, 0.01]


def family(**changes: Any) -> SweepExperiment:
    """A family of populations of which no member is the worst at every n."""
    problem = {
        "title": "a linear risk with a weak signal",
        "metric": "excess risk",
        "loss": "huber:1.0",
        "regularizer": {},
        "constraint": "l1_ball:1.0",
        "dataset": {"name": "population_linear"},
        "delta_power": 1.5,
        "family": {"signal": SIGNALS},
        "base": {"n": 1000, "d": 4, "epsilon": 1},
        "sweeps": {"n": [1000, 10**4, 10**9]},
    }
    method = {"algorithm": "noisy_frank_wolfe", "parameters": {"T": 4}, "claims": {"exponents": {"n": -0.5}}}
    changed = experiment(**method).spec
    return SweepExperiment("trial", {**changed, "problems": {"linear": problem | changes}}, 1, "cpu")


def test_every_member_of_a_family_is_run_at_every_point_with_a_seed_of_its_own() -> None:
    (job,) = family().jobs()
    points = job.spec["points"]
    assert [(p["value"], p["member"]["signal"]) for p in points] == [
        (n, signal) for n in (1000, 10**4, 10**9) for signal in SIGNALS
    ]
    assert all(p["dataset"]["parameters"] == {"features": 4, "signal": p["member"]["signal"]} for p in points)
    assert len({p["seed"] for p in points} | {p["tuning_seed"] for p in points}) == 18
    assert [p["delta"] for p in points[::3]] == pytest.approx([1000**-1.5, 1e4**-1.5, 1e9**-1.5])
    (plain,) = experiment().jobs()
    assert not any({"member", "delta"} & set(point) for point in plain.spec["points"])


def test_without_a_delta_of_the_experiment_every_point_is_run_at_its_own(tmp_path: Any) -> None:
    trial = family(family={"signal": [0.1]}, sweeps={"n": [1000, 10**4]})
    spec = {key: value for key, value in trial.spec.items() if key != "delta"}
    trial = SweepExperiment("trial", spec, 1, "cpu")
    (job,) = trial.jobs()
    assert job.spec["delta"] is None
    record, _ = run(job, tmp_path)
    assert [point["plan"]["delta"] for point in record["points"]] == pytest.approx([1000**-1.5, 1e4**-1.5])
    collect_sweeps([tmp_path / f"{job.id}.npz"], trial.claims(), tmp_path / "t.parquet")
    frame, _ = read_collected(tmp_path / "t.parquet")
    assert sorted(set(frame["delta"])) == pytest.approx([1e4**-1.5, 1000**-1.5])


def test_a_family_is_reported_by_its_worst_member(tmp_path: Any) -> None:
    from dprepro import figures, tables

    trial = family()
    (job,) = trial.jobs()
    record, values = run(job, tmp_path)
    assert [point["samples"] for point in record["points"][::3]] == [1000, 10**4, 10**9]
    assert [point["plan"]["delta"] for point in record["points"]] == [p["delta"] for p in job.spec["points"]]
    optima = [point["optimum"]["objective"] for point in record["points"][:3]]
    assert optima == pytest.approx([1.5 - signal for signal in SIGNALS], abs=1e-9), "Huber is |t - 2| - 1/2 there"
    means = values["value"].mean(axis=1).reshape(3, 3)
    assert len(set(means.argmax(axis=1))) > 1, f"no member is always the worst: {means}"
    collect_sweeps([tmp_path / f"{job.id}.npz"], trial.claims(), tmp_path / "t.parquet")
    tables.write("trial", tmp_path / "t.parquet", tmp_path / "t.csv")
    import pandas as pd

    row = pd.read_csv(tmp_path / "t.csv").set_index("quantity").loc["excess risk: exponent in n"]
    slope = np.polyfit(np.log([1000, 1e4, 1e9]), np.log(means.max(axis=1)), 1)[0]
    assert row["measured"] == pytest.approx(slope, rel=1e-9)
    assert row["ci_low"] < row["measured"] < row["ci_high"]
    assert row["points"] == 3
    assert row["replicates"] == 6
    figures.draw("trial", tmp_path / "t.parquet", tmp_path / "t.png")
    assert "the member with the largest mean error" in (tmp_path / "t.md").read_text()


def test_a_problem_without_an_axis_n_is_drawn_beside_one_that_has_it(tmp_path: Any) -> None:
    from dprepro import figures

    both = experiment(sweeps={"n": [300, 600]}), experiment(sweeps={"epsilon": [2, 4]})
    files = []
    for number, trial in enumerate(both):
        spec = {**trial.spec, "problems": {f"p{number}": trial.spec["problems"]["logit"]}}
        (job,) = SweepExperiment("trial", spec, 1, "cpu").jobs()
        run(job, tmp_path)
        files.append(tmp_path / f"{job.id}.npz")
    claims = both[0].claims()
    collect_sweeps(files, claims, tmp_path / "t.parquet")
    figures.draw("trial", tmp_path / "t.parquet", tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 10_000


def test_the_stationarity_gap_of_an_output_is_measured_where_no_candidates_are_marked(tmp_path: Any) -> None:
    from dprepro import datasets

    (job,) = family(metric="stationarity gap", loss="squared", family={"signal": [0.5]}).jobs()
    record, values = run(job, tmp_path)
    collect_sweeps([tmp_path / f"{job.id}.npz"], family().claims(), tmp_path / "t.parquet")
    frame, _ = read_collected(tmp_path / "t.parquet")
    data = datasets.load("population_linear", features=4, signal=0.5)
    at_zero = np.max(np.abs(2.0 * data.population.probabilities @ data.X))  # type: ignore[union-attr]
    assert frame["value_at_zero"].to_numpy() == pytest.approx(at_zero, rel=1e-12)
    assert record["points"][0]["optimum"]["stationarity_gap_at_zero"] == pytest.approx(1.0)
    assert np.all(values["value"] > 0.0)
    assert np.mean(values["value"][-1]) < 0.5 * np.mean(values["value"][0])


def not_converged(*_: Any, **__: Any) -> Any:
    from dprepro.errors import NotConverged

    raise NotConverged("Proximal points were found to 0.1 only.")


def shown(trial: SweepExperiment, tmp_path: Any) -> tuple[Any, str]:
    """Return the rows of the table of the one job of a trial, and the caption of its figure."""
    import pandas as pd

    from dprepro import figures, tables

    (job,) = trial.jobs()
    collect_sweeps([tmp_path / f"{job.id}.npz"], trial.claims(), tmp_path / "t.parquet")
    tables.write("trial", tmp_path / "t.parquet", tmp_path / "t.csv")
    figures.draw("trial", tmp_path / "t.parquet", tmp_path / "t.png")
    return pd.read_csv(tmp_path / "t.csv"), (tmp_path / "t.md").read_text()


@pytest.mark.parametrize(
    ("module", "solver"),
    [("dprepro.stages.starts", "at_start"), ("dprepro.stages.optima", "find_optimum")],
)
def test_points_whose_minimum_or_start_is_not_found_are_refused_and_reported(
    module: str, solver: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{module}.{solver}", not_converged)
    trial = experiment(parameters={"T": 10})
    (job,) = trial.jobs()
    record, values = run(job, tmp_path)
    # The minimum at the point with a non-smooth regularizer is never asked for.
    refused = [point["refused"] for point in record["points"] if point["point"]["axis"] != NONSMOOTH]
    assert set(refused) == {"Proximal points were found to 0.1 only."}
    assert np.isnan(values["value"]).all()
    rows, caption = shown(trial, tmp_path)
    assert rows["measured"].isna().sum() >= 2
    assert "No run has a result" in (tmp_path / "t.svg").read_text()
    assert caption.count("logit, DP-GD (published): Proximal points were found to 0.1 only.") == 1
    assert "dp_gd needs a smooth regularizer" in caption or solver == "at_start"


def test_a_start_that_is_not_found_refuses_its_points(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dprepro.stages.starts.near_stationarity", not_converged)
    trial = weakly_convex()
    (job,) = trial.jobs()
    record, _ = run(job, tmp_path)
    assert {point["refused"] for point in record["points"]} == {"Proximal points were found to 0.1 only."}
    _, caption = shown(trial, tmp_path)
    assert "Proximal points were found" in caption


@pytest.mark.parametrize("changes", [{}, {"tune": {"eta": [0.01, 0.02]}}], ids=["reported run", "candidates"])
def test_a_metric_that_is_not_found_refuses_its_point_alone(
    changes: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some metrics of an output are found by a solver."""
    found = sweep._metric
    monkeypatch.setattr(
        sweep,
        "_metric",
        lambda spec, result, optimum, problem: (
            not_converged() if problem.spec.n == 300 else found(spec, result, optimum, problem)
        ),
    )
    trial = experiment(**changes, sweeps={"n": [300, 600]})
    (job,) = trial.jobs()
    record, values = run(job, tmp_path)
    first, second = record["points"][:2]
    assert first["refused"] == "Proximal points were found to 0.1 only."
    assert "plan" not in first
    assert second["refused"] == ""
    assert np.isnan(values["value"][0]).all()
    assert np.isfinite(values["value"][1]).all()
    rows, _ = shown(trial, tmp_path)
    assert len(rows) > 0


def weakly_convex() -> SweepExperiment:
    """A sweep whose metric is the near stationarity, for which no minimum is searched."""
    problem = {
        "title": "a weakly convex risk",
        "metric": "near stationarity",
        "loss": "mcp:1",
        "regularizer": {},
        "constraint": "l2_ball:1",
        "minimum": 0,
        "delta_power": 1.5,
        "dataset": {"name": "population_circle", "seed": 0},
        "base": {"n": 2048, "epsilon": 1},
        "sweeps": {"n": [2048, 4096]},
    }
    spec = experiment(algorithm="prox_guided_md", parameters={}, claims={"exponents": {"n": -0.25}}).spec
    return SweepExperiment("trial", {**spec, "problems": {"circle": problem}}, 1, "cpu")
