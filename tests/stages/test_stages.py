"""The stages on small files, without Snakemake: dataset, certify, run, optimum, collect, figure, table."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from dprepro import figures, tables
from dprepro.algorithms import get_algorithm
from dprepro.arrays import get_backend
from dprepro.collected import read_collected
from dprepro.datasets import checksum
from dprepro.errors import BrokenAlgorithm, UserError
from dprepro.files import read_arrays, read_json, write_arrays, write_record
from dprepro.stages.audit import audit_algorithm
from dprepro.stages.certify import certify_job
from dprepro.stages.collect import TIMING_COLUMNS, collect, run_rows
from dprepro.stages.dataset import prepare
from dprepro.stages.optimum import solve_exactly
from dprepro.stages.privacy import audit_rows, certificate_rows, read_audit, read_certified
from dprepro.stages.problem import load_problem
from dprepro.stages.run import run_job

DATASET = {"name": "synthetic_logistic", "rows": 400, "seed": 3, "parameters": {"features": 5}}


def job(entry, epsilon, parameters, algorithm="dp_gd"):
    return {
        "experiment": "wyx17_fig1", "job": f"{entry}-{epsilon}", "entry": entry, "label": "Method, T = {T}",
        "paper": "WYX17", "title": "A test", "algorithm": algorithm, "parameters": parameters, "variant": "published",
        "epsilon": epsilon, "delta": 0.001, "replicates": 3, "tile": 64, "dtype": "float64", "device": "cpu", "seed": 5,
        "loss": "logistic", "regularizer": {"l2": 0.1}, "constraint": None, "dataset": "small",
    }  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished experiment of four runs."""
    folder = tmp_path_factory.mktemp("stages")
    data = folder / "small.npz"
    prepare(DATASET, data)
    optimum = folder / "optima" / "small.npz"
    solve_exactly(job("a", 1, {}), data, optimum)
    runs = []
    for entry, letters in (("a", {"T": 20}), ("b", {"T": 5})):
        for epsilon in (0.5, 1.0):
            plan, run = folder / f"{entry}{epsilon}.plan.json", folder / "runs" / f"{entry}{epsilon}.npz"
            certify_job(job(entry, epsilon, letters), data.with_suffix(".json"), plan)
            run_job(plan, data, run)
            runs.append(run)
    table = folder / "wyx17_fig1.parquet"
    collect(runs, {"small": optimum}, table)
    return folder, data, optimum, runs, table


def test_every_result_carries_its_provenance(finished):
    record = read_json(finished[3][0].with_suffix(".json"))
    assert {"job", "plan", "certificate", "provenance", "dataset", "seconds"} <= set(record)
    wanted = {"commit", "modified", "python", "numpy", "dprepro", "blas", "processor", "sources", "seed", "backend"}
    assert wanted | {"device", "why", "dtype", "threads", "data"} <= set(record["provenance"])
    assert record["provenance"]["data"]["checksum"] == record["dataset"]["checksum"]
    assert record["provenance"]["threads"] == 1


def test_a_run_job_holds_blas_to_one_thread_and_loads_nothing_that_it_does_not_need(finished, tmp_path):
    """A job lasts seconds: pandas, SciPy or matplotlib would cost more than Snakemake does."""
    folder, data, _, runs, _ = finished
    out = tmp_path / "run.npz"
    job = ["run", "--plan", str(folder / "a0.5.plan.json"), "--data", str(data), "--out", str(out)]
    program = (
        f"import sys\nfrom dprepro.cli import main\nassert main({job!r}) == 0\nloaded = set(sys.modules)\n"
        "from threadpoolctl import threadpool_info\n"
        "print(max(pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == 'blas'))\nprint(*loaded)"
    )
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", program], env=free, capture_output=True, text=True, check=True)
    threads, loaded = done.stdout.splitlines()
    assert threads == "1"
    assert read_json(out.with_suffix(".json"))["provenance"]["threads"] == 1
    assert "numpy" in loaded.split()
    heavy = {"pandas", "scipy", "matplotlib", "seaborn", "sklearn", "pyarrow", "snakemake", "dp_accounting", "yaml"}
    assert heavy & set(loaded.split()) == set()
    assert out.read_bytes() == runs[0].read_bytes()


def test_certificates_and_audits_state_the_floating_point_type_and_the_threads(finished, tmp_path):
    folder, *_ = finished
    setting = {"variant": "certified", "epsilon": [1]}
    spec = {"algorithm": "dp_gd", "settings": [setting], "delta": 1e-3, "replicates": 1000, "seed": 1, "device": "cpu"}
    audit_algorithm(spec, tmp_path / "audit.json")
    assert read_json(tmp_path / "audit.json")["provenance"]["threads"] == 1
    audits = audit_rows([read_audit(tmp_path / "audit.json")])
    plan = folder / "single.plan.json"
    certify_job(job("a", 1.0, {"T": 5}) | {"dtype": "float32"}, folder / "small.json", plan)
    assert list(audits["dtype"]) == ["float64"]
    assert list(certificate_rows([read_certified(plan)], audits)["dtype"]) == ["float32"]


def test_rerunning_a_job_writes_the_same_bytes(finished, tmp_path):
    folder, data, _, runs, _ = finished
    again = tmp_path / "again.npz"
    run_job(folder / "a0.5.plan.json", data, again)
    assert again.read_bytes() == runs[0].read_bytes()


def test_collected_table_has_a_row_per_replicate_and_checkpoint(finished):
    frame, metadata = read_collected(finished[4])
    assert len(frame) == 2 * 3 * (21 + 6)
    assert not frame.duplicated(["job", "replicate", "checkpoint"]).any()
    assert set(frame["method"]) == {"Method, T = 20", "Method, T = 5"}
    assert (frame["failure"] == "").all()
    assert set(TIMING_COLUMNS) <= set(frame.columns)
    assert metadata["origins"][0]["backend"] == "numpy"


def test_evaluations_of_the_loss_are_written_and_collected(finished, tmp_path):
    """Three estimates of 400 samples at both ends of five diameters: one for a gradient, two for a difference."""
    _, data, optimum, runs, _ = finished
    letters = {"alpha": 0.5, "D": 0.1, "M": 2, "T": 2, "Sigma": 2}
    wanted = {**job("c", 1.0, letters, "o2nc_multi_pass"), "regularizer": None, "variant": "certified"}
    certify_job(wanted, data.with_suffix(".json"), tmp_path / "plan.json")
    run_job(tmp_path / "plan.json", data, tmp_path / "run.npz")
    assert read_arrays(tmp_path / "run.npz")["function_evaluations"].tolist() == [0, 4000, 12000]
    record = read_json(tmp_path / "run.json")
    rows = run_rows(record, read_arrays(tmp_path / "run.npz"), read_arrays(optimum))
    assert rows["function_evaluations"].tolist() == [0, 4000, 12000] * 3
    assert (rows["planned_function_evaluations"] == 12000).all()
    assert "function_evaluations" not in read_arrays(runs[0])
    frame, _ = read_collected(finished[4])
    assert (frame["function_evaluations"] == 0).all()


def test_gap_is_objective_minus_optimum_and_never_negative_beyond_accuracy(finished):
    frame, _ = read_collected(finished[4])
    optimum = read_arrays(finished[2])
    np.testing.assert_allclose(frame["gap"], frame["objective"] - optimum["objective"])
    assert frame["gap"].min() >= -1e-10
    start = frame[frame["checkpoint"] == 0]
    np.testing.assert_allclose(start["gap"], start["gap_at_zero"])


def test_failed_replicates_are_marked_with_their_reason(finished):
    record = read_json(finished[3][0].with_suffix(".json"))
    arrays = read_arrays(finished[3][0])
    arrays["final_objective"] = np.array([0.5, np.nan, 99.0])
    rows = run_rows(record, arrays, read_arrays(finished[2])).groupby("replicate")["failure"].first()
    assert list(rows) == ["", "not finite", "F(w) > F(0)"]


def test_table_has_the_promised_columns_and_says_what_it_found(finished, tmp_path):
    tables.write("wyx17_fig1", finished[4], tmp_path / "t.csv")
    rows = pd.read_csv(tmp_path / "t.csv")
    promised = ["method", "quantity", "theory", "measured", "ci_low", "ci_high", "epsilon_claimed", "epsilon_accounted"]
    assert set(promised) | {"verdict", "n", "d", "delta", "variant", "replicates"} <= set(rows.columns)
    assert len(rows) == 8
    counts = rows[rows["quantity"] == "gradient evaluations"]
    assert (counts["measured"] == counts["theory"]).all()
    assert set(counts["measured"]) == {20 * 400, 5 * 400}
    gaps = rows[rows["quantity"] == "optimality gap"]
    assert (gaps["ci_low"] <= gaps["measured"]).all()
    assert (gaps["measured"] <= gaps["ci_high"]).all()
    np.testing.assert_allclose(
        gaps.groupby("epsilon_claimed")["epsilon_accounted"].first(), [0.9757, 2.2449], rtol=1e-3
    )
    text = (tmp_path / "t.md").read_text()
    assert "| method |" in text
    assert "commit" in text
    assert (tmp_path / "t.tex").read_text().count("\\\\") == 9


def test_table_counts_failures_instead_of_averaging_them_away(finished):
    from dprepro.tables.curves import table

    frame, metadata = read_collected(finished[4])
    broken = (frame["job"] == "a-0.5") & (frame["replicate"] == 1)
    frame.loc[broken, ["gap", "final_gap"]] = np.nan
    frame.loc[broken, "failure"] = "not finite"
    row = table(frame, metadata).iloc[0]
    assert row["failed"] == 1
    assert row["verdict"] == "1 of 3 replicates failed"


def test_an_untuned_curve_that_is_not_the_published_one_ends_above_zero_at_its_step_and_does_not_fail(finished):
    from dprepro.tables.curves import table

    frame, metadata = read_collected(finished[4])
    broken = (frame["job"] == "a-0.5") & (frame["replicate"] < 2)
    frame.loc[broken, "failure"] = "F(w) > F(0)"
    assert table(frame, metadata)["verdict"].iloc[0] == "2 of 3 replicates failed"
    certified = frame.assign(variant="certified")
    assert table(certified, metadata)["verdict"].iloc[0] == "2 of 3 replicates end above w = 0 at this step"
    certified.loc[broken & (frame["replicate"] == 1), ["gap", "final_gap"]] = np.nan
    assert table(certified, metadata)["verdict"].iloc[0] == "2 of 3 replicates failed", "one is no number"


@pytest.mark.parametrize(
    ("theory", "verdict"),
    [
        (0.4, "above the bound with constant 1"),
        (0.5, "indistinguishable from the bound with constant 1"),
        (0.6, "within the bound"),
    ],
)
def test_a_gap_is_above_a_bound_only_if_its_interval_is(finished, theory, verdict):
    from dprepro.tables.curves import table

    frame, metadata = read_collected(finished[4])
    frame["theory"], frame["theory_quantity"] = theory, "optimality gap"
    frame["final_gap"] = frame["replicate"].map({0: 0.49, 1: 0.5, 2: 0.51})
    assert table(frame, metadata)["verdict"].iloc[0] == verdict


def test_figure_files_are_byte_identical_when_drawn_again(finished, tmp_path):
    for name in ("one", "two"):
        figures.draw("wyx17_fig1", finished[4], tmp_path / name / "f.png")
    for suffix in ("png", "pdf", "svg", "md"):
        one, two = ((tmp_path / name / f"f.{suffix}").read_bytes() for name in ("one", "two"))
        assert one == two, suffix
        assert len(one) > 500


def test_caption_states_what_a_reader_must_know(finished, tmp_path):
    figures.draw("wyx17_fig1", finished[4], tmp_path / "f.png")
    caption = (tmp_path / "f.md").read_text()
    for fact in (
        "n = 400",
        "d = 5",
        "delta = 0.001",
        "variant published",
        "3 replicates",
        "95 %",
        "log(1 + exp(-y<w,x>))",
    ):
        assert fact in caption
    for fact in ("l2 = 0.1", "Preprocessing", "commit", "NumPy", "accounted 2.24", "No replicate failed"):
        assert fact in caption


def test_caption_reports_failed_replicates(finished):
    from dprepro.origin import failures_line

    frame, _ = read_collected(finished[4])
    frame.loc[(frame["job"] == "a-0.5") & (frame["replicate"] == 1), "failure"] = "not finite"
    assert failures_line(frame, {}) == "Failed replicates: Method, T = 20, epsilon = 0.5: 1 (not finite)."


def test_a_margin_loss_refuses_regression_data(tmp_path):
    data = tmp_path / "d.npz"
    prepare({"name": "synthetic_regression", "rows": 50}, data)
    with pytest.raises(UserError, match=r"needs labels -1 and \+1"):
        certify_job(job("a", 1, {"T": 2}), data.with_suffix(".json"), tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_a_refused_setting_and_a_solver_that_does_not_end_are_rows_with_their_reason(finished, tmp_path, monkeypatch):
    """Neither is a crash: certify and run succeed, and table and caption say why there is no number."""
    _, data, optimum, runs, _ = finished
    given = (("few", "tree_spider", {}), ("slow", "objective_perturbation", {"T": 1}))
    for entry, algorithm, letters in given:
        plan = tmp_path / f"{entry}.plan.json"
        certify_job(job(entry, 1.0, letters, algorithm), data.with_suffix(".json"), plan)
        run_job(plan, data, tmp_path / f"{entry}.npz")
    table = tmp_path / "wyx17_fig1.parquet"
    collect([*runs, *(tmp_path / f"{entry}.npz" for entry, _, _ in given)], {"small": optimum}, table)
    tables.write("wyx17_fig1", table, tmp_path / "t.csv")
    rows = pd.read_csv(tmp_path / "t.csv")
    refused = rows[rows["verdict"].str.startswith("refused: ")]
    assert len(refused) == 2
    assert refused["measured"].isna().all()
    assert "it makes sense from n = " in refused["verdict"].iloc[0]
    assert "did not reach the minimi" in refused["verdict"].iloc[1]
    figures.draw("wyx17_fig1", table, tmp_path / "f.svg")
    caption = (tmp_path / "f.md").read_text()
    assert caption.count("did not reach the minimi") == 1
    assert "Without a result: " in caption
    plans = [read_certified(tmp_path / f"{entry}.plan.json") for entry in ("few", "slow")]
    audits = pd.DataFrame(columns=["algorithm", "variant", "epsilon_claimed", "delta", "epsilon_audited"])
    assert len(certificate_rows(plans, audits)) == 1, "the plan that was refused has no certificate"
    with pytest.raises(UserError, match="every setting was refused"):
        certificate_rows(plans[:1], audits)


def test_an_algorithm_that_contradicts_itself_is_no_row(finished, tmp_path, monkeypatch):
    """A mistake in an algorithm's own file must not pass for a refusal."""
    algorithm = get_algorithm("dp_gd")
    planned = algorithm.compute_plan
    monkeypatch.setattr(algorithm, "compute_plan", lambda *given: dataclasses.replace(planned(*given), n=7))
    with pytest.raises(BrokenAlgorithm, match="n = 400"):
        certify_job(job("a", 1.0, {"T": 5}), finished[1].with_suffix(".json"), tmp_path / "plan.json")
    assert not (tmp_path / "plan.json").exists()


def test_damaged_plan_is_refused_with_a_sentence(finished, tmp_path):
    broken = tmp_path / "plan.json"
    broken.write_text('{"job": ')
    with pytest.raises(UserError, match="carries no seal"):
        run_job(broken, finished[1], tmp_path / "run.npz")
    assert json.loads((finished[0] / "a0.5.plan.json").read_text())["job"]["entry"] == "a"


def entries(finished, folder, dataset="small", regularizer=None, **given):
    """Certify and run methods without Snakemake; `given` maps a name to algorithm, letters and epsilon."""
    paths = []
    for entry, (algorithm, letters, epsilon) in given.items():
        wanted = job(entry, epsilon, letters, algorithm) | {"dataset": dataset}
        wanted |= {"regularizer": regularizer} if regularizer else {}
        certify_job(wanted, finished[1].with_suffix(".json"), folder / f"{entry}.plan.json")
        run_job(folder / f"{entry}.plan.json", finished[1], folder / f"{entry}.npz")
        paths.append(folder / f"{entry}.npz")
    return paths


def shown(table, folder):
    """Return the rows of a collected table's publication and the caption of its figure."""
    tables.write("wyx17_fig1", table, folder / "t.csv")
    figures.draw("wyx17_fig1", table, folder / "f.png")
    return pd.read_csv(folder / "t.csv"), (folder / "f.md").read_text()


def test_a_solver_that_does_not_end_at_one_of_two_epsilons_costs_no_other_number(finished, tmp_path):
    weak = {"l2": 1e-4}
    optimum = tmp_path / "small.npz"
    solve_exactly(job("a", 1, {}) | {"regularizer": weak}, finished[1], optimum)
    method, letters = "objective_perturbation", {"T": 4}
    given = {"slow": (method, letters, 1.0), "done": (method, letters, 1e-4), "gd": ("dp_gd", {"T": 5}, 1.0)}
    runs = entries(finished, tmp_path, regularizer=weak, **given)
    collect(runs, {"small": optimum}, tmp_path / "table.parquet")
    rows, caption = shown(tmp_path / "table.parquet", tmp_path)
    refused = rows["verdict"].str.startswith("refused: objective_perturbation did not reach the minimi")
    assert rows[refused]["epsilon_claimed"].tolist() == [1.0]
    assert rows[~refused]["measured"].notna().all()
    assert set(rows[~refused]["epsilon_claimed"]) == {1.0, 1e-4}
    assert "Without a result: Method, T = 4, epsilon = 1: " in caption


@pytest.mark.parametrize("missing", ["runs", "optimum"])
def test_without_a_single_result_there_are_rows_with_reasons_and_a_figure_in_words(missing, finished, tmp_path):
    reason, runs, optimum = "it makes sense from n = ", finished[3], finished[2]
    if missing == "runs":
        runs = entries(finished, tmp_path, few=("tree_spider", {}, 1.0), fewer=("tree_spider", {}, 0.5))
    else:
        reason, optimum = "no minimum", tmp_path / "small.npz"
        write_arrays(optimum, read_arrays(finished[2]) | {"failed": np.array(reason)})
    collect(runs, {"small": optimum}, tmp_path / "table.parquet")
    rows, caption = shown(tmp_path / "table.parquet", tmp_path)
    assert len(rows) == len(runs)
    assert rows["verdict"].str.startswith("refused: ").all()
    assert rows["verdict"].str.contains(reason).all()
    assert "No run has a result" in (tmp_path / "f.svg").read_text()
    assert caption.count("no run has a result") == 1
    assert caption.count(reason) == len(runs)
    assert "commit " in caption, "what refused them"


def test_methods_whose_labels_come_out_alike_are_not_merged_and_refused_ones_do_not_count(finished, tmp_path):
    """A figure would draw the mean of both under one name and one certificate."""
    alike = entries(finished, tmp_path, one=("dp_gd", {"T": 5}, 1.0), two=("dp_gd", {"T": 5, "eta": 0.1}, 1.0))
    with pytest.raises(UserError, match="methods one and two of wyx17_fig1 are both called 'Method, T = 5'"):
        collect(alike, {"small": finished[2]}, tmp_path / "alike.parquet")
    refused = entries(finished, tmp_path, few=("tree_spider", {}, 1.0), fewer=("jl_tree_spider", {}, 1.0))
    collect([*finished[3], *refused], {"small": finished[2]}, tmp_path / "refused.parquet")
    assert len(read_collected(tmp_path / "refused.parquet")[1]["refused"]) == 2


def test_a_run_without_an_optimum_is_a_gap_and_the_others_stay(finished, tmp_path):
    (lost,) = entries(finished, tmp_path, lost=("dp_gd", {"T": 5}, 1.0), dataset="gone")
    out = tmp_path / "table.parquet"
    with pytest.raises(UserError, match="on the dataset gone, which has no optimum"):
        collect([*finished[3], lost], {"small": finished[2]}, out)
    gaps = ["an optimum failed"]
    collect([*finished[3], lost], {"small": finished[2]}, out, gaps)
    assert len(gaps) == 2
    assert "on the dataset gone, which has no optimum" in gaps[1]
    frame, metadata = read_collected(out)
    assert set(frame["dataset"]) == {"small"}
    assert metadata["incomplete"] == gaps
    with pytest.raises(UserError, match="No run has a result and an optimum that can be trusted"):
        collect([lost], {"small": finished[2]}, tmp_path / "none.parquet", gaps)
    assert not (tmp_path / "none.parquet").exists()


@pytest.mark.parametrize("algorithm", ["dp_gd", "dp_sgd", "dp_svrg", "objective_perturbation", "output_perturbation"])
def test_a_job_without_privacy_is_run_collected_and_listed(algorithm, finished, tmp_path):
    _, data, optimum, *_ = finished
    plan, run = tmp_path / "plan.json", tmp_path / "runs" / "free.npz"
    certify_job(job("free", math.inf, {}, algorithm) | {"variant": "certified"}, data.with_suffix(".json"), plan)
    run_job(plan, data, run)
    collect([run], {"small": optimum}, tmp_path / "table.parquet")
    frame, _ = read_collected(tmp_path / "table.parquet")
    assert set(frame["privacy_verdict"]) == {"no privacy asked for"}
    assert [plan["epsilon"] for plan, _ in read_certified(plan).plans] == ["inf"]


@pytest.mark.parametrize("changed", ["X", "y"])
def test_rows_and_labels_beyond_their_bounds_are_refused(changed, tmp_path):
    """Whoever changes data, their checksum and their digest alike still cannot leave the bounds that noise rests on."""
    data = tmp_path / "line.npz"
    prepare({"name": "synthetic_regression", "rows": 50, "seed": 0, "parameters": {"features": 3}}, data)
    arrays = read_arrays(data)
    arrays[changed] = 2.0 * arrays[changed]
    facts = read_json(data.with_suffix(".json"))
    facts |= {"arrays": write_arrays(data, arrays), "checksum": checksum(arrays["X"], arrays["y"])}
    write_record(data.with_suffix(".json"), facts)
    spec = job("a", 1.0, {"T": 5}) | {"loss": "squared"}
    with pytest.raises(UserError, match=r"is not as its facts say: .* promised (is at most 1|are -1 to 1)"):
        load_problem(spec, data, get_backend("cpu", "float64"))


def test_dollar_signs_in_the_title_of_a_dataset_are_text(finished, tmp_path):
    _, _, optimum, runs, _ = finished
    facts = read_json(runs[0].with_suffix(".json"))["dataset"]
    for run in runs:
        copy = tmp_path / "runs" / run.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(run, copy)
        record = read_json(run.with_suffix(".json"))
        record["dataset"] = facts | {"title": "Prices in US$ (100 % of A$)", "origin": "mine$/my__data.py, a$/l.py"}
        write_record(copy.with_suffix(".json"), record)
    table = tmp_path / "wyx17_fig1.parquet"
    collect(sorted((tmp_path / "runs").glob("*.npz")), {"small": optimum}, table)
    figures.draw("wyx17_fig1", table, tmp_path / "figures/wyx17_fig1.png")
    assert (tmp_path / "figures/wyx17_fig1.svg").stat().st_size > 0
