"""`dprepro verify` looks at every kind of result, sweeps, audits, tables of privacy and the report among them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import Run
from tiny import TEXT, Tiny, edit
from workflow.conftest import Checkout

from dprepro import digests, workflow
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.files import jsonable, read_json, write_record
from dprepro.privacy.certificate import certify, plan_digest
from dprepro.stages.problem import problem_spec
from dprepro.verification import verify

pytestmark = pytest.mark.workflow

SWEEP = {
    "kind": "sweeps", "paper": "own", "title": "A sweep", "delta": 0.001, "replicates": 3, "tile": 8,
    "dtype": "float64",
    "problems": {
        "one": {
            "title": "a problem", "metric": "optimality gap", "loss": "logistic", "regularizer": {"l2": 0.1},
            "constraint": None, "dataset": {"name": "synthetic_logistic"}, "base": {"n": 100, "d": 3, "epsilon": 1},
            "sweeps": {"epsilon": [1, 2]},
        }
    },
    "methods": {"dp-gd": {"label": "DP-GD", "algorithm": "dp_gd", "parameters": {"T": 5}, "variants": ["certified"]}},
}  # fmt: skip
AUDIT = {"algorithms": ["dp_gd"], "replicates": 200, "settings": [{"variant": "certified", "epsilon": [1]}]}
RECORD = {"sweep": "sweeps/own_sweep/*.json", "audit": "privacy/audits/*.json", "plan": "plans/*/dp-gd-short*1.json"}
# Made from sweeps and audits.
LATER = ("data", "tables", "figures", "privacy/certificates.json", "privacy/audit.json", "report.html")


@pytest.fixture(scope="session")
def reported(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a workflow with all kinds of jobs. Not to be changed: take `results`."""
    tiny = Tiny(pristine.copy(tmp_path_factory.mktemp("reported") / "checkout").folder)
    own = tiny.folder / "mine/experiments"
    own.mkdir(parents=True)
    (own / "own_sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    config = yaml.safe_load(TEXT) | {"extensions": ["mine"], "experiments": ["wyx17_fig1", "own_sweep"], "audit": AUDIT}
    (tiny.folder / "all.yaml").write_text(yaml.safe_dump(config))
    outcome = tiny.snakemake("report", config="all.yaml")
    assert outcome.code == 0, outcome.text
    return tiny.results


@pytest.fixture
def results(reported: Path, tmp_path: Path) -> Path:
    """A folder of results of one's own."""
    return Path(shutil.copytree(reported, tmp_path / "results"))


def one(results: Path, kind: str) -> Path:
    (path,) = (path for path in results.glob(RECORD[kind]) if "certificate" not in path.name)
    return path


def drop(results: Path, places: tuple[str, ...] = LATER) -> None:
    """Remove what was made from a result, which would not fit it anyhow."""
    for place in (results / place for place in places):
        if place.is_dir():
            shutil.rmtree(place)
        else:
            for beside in place.parent.glob(f"{place.stem}.*"):
                beside.unlink()


def test_untouched_results_are_verified_and_repeated(results: Path, run: Run) -> None:
    outcome = run("verify", results, "--rerun", 4)
    assert outcome.code == 0, outcome.out + outcome.err
    counted = dict(line.rsplit(maxsplit=1) for line in outcome.out.splitlines() if re.search(r" \d+$", line))
    assert {key: counted[key] for key in ("sweeps", "audits", "privacy tables", "reports")} == {
        "sweeps": "1", "audits": "1", "privacy tables": "2", "reports": "1",
    }  # fmt: skip
    assert "4 of 4 jobs repeated" in outcome.out
    assert "not followed" not in outcome.out


def other_point(record: dict[str, Any]) -> None:
    """Take the plan and the certificate of the larger epsilon for the smaller one."""
    small, large = record["points"]
    small.update(plan=large["plan"], certificate=large["certificate"])


def other_minimum(record: dict[str, Any]) -> None:
    record["points"][0]["optimum"]["objective"] = -1.0


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("sweep", other_point, "is not that of its job: expected epsilon = 1.0, found 2.0"),
        ("sweep", other_minimum, "does not state the minima of"),
        ("sweep", lambda record: record.update(made_from={}), "does not state what its minima were made from"),
        ("sweep", lambda record: record["job"].update(seed=99), "is of another configuration than"),
        ("sweep", lambda record: record["points"][0]["certificate"].update(epsilon_accounted=0.1), "do not spend"),
        ("audit", lambda record: record["job"].update(seed=99), "is of another configuration than"),
    ],
)
def test_what_does_not_fit_the_rest_is_neither_published_nor_verified(
    kind: str, change: Callable[[Any], None], said: str, results: Path, run: Run
) -> None:
    place = one(results, kind)
    edit(place, change)
    drop(results)
    words = ["collect-sweeps", "--runs", place.with_suffix(".npz"), "--claims", "{}", "--out", results / "new.parquet"]
    if kind == "audit":
        words = ["privacy", "--plans", one(results, "plan"), "--audits", place]
        words += ["--out", results / "new/certificates.csv"]
    outcome = run(*words)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    assert said in outcome.err
    assert not list(results.glob("new*"))
    found = run("verify", results)
    assert found.code == 2
    assert said in found.out


def test_a_plan_for_another_epsilon_is_neither_run_nor_verified(results: Path, run: Run) -> None:
    """Plan and certificate are honest, but not those of the job."""
    path = one(results, "plan")
    record = read_json(path)
    facts = read_json(results / f"datasets/{record['job']['dataset']}.json")
    setting = Setting(problem_spec(record["job"], facts), 50.0, 0.001, "published")
    plan = get_algorithm("dp_gd").plan(setting, T=5)
    swapped = {"plan": jsonable(plan.to_json()), "certificate": jsonable(certify(plan))}
    assert swapped["certificate"]["plan_digest"] == plan_digest(plan)
    edit(path, lambda record: record.update(swapped))
    beside = swapped["certificate"] | {"made_from": {"plan": digests.check(path), **record["made_from"]}}
    write_record(path.with_suffix(".certificate.json"), beside)
    data, out = results / f"datasets/{record['job']['dataset']}.npz", results / "again.npz"
    outcome = run("run", "--plan", path, "--data", data, "--out", out)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "is not that of its job: expected epsilon = 1.0, found 50.0" in outcome.err
    assert not out.exists()
    drop(results, ("runs", *LATER))
    assert any("is not that of its job" in problem for problem in verify(results).problems)


def test_what_a_record_says_of_a_job_is_repeated_too(results: Path, run: Run) -> None:
    edit(one(results, "sweep"), lambda record: record["points"][0].update(gradient_evaluations=1))
    drop(results)
    shutil.rmtree(results / "runs")
    assert run("verify", results).code == 0
    outcome = run("verify", results, "--rerun", 1)
    assert outcome.code == 1
    assert "gave other numbers" in outcome.err


def test_a_job_that_cannot_be_repeated_does_not_hide_the_others(results: Path, run: Run) -> None:
    shutil.rmtree(results / "plans")
    outcome = run("verify", results, "--rerun", 4)
    assert outcome.code == 2
    assert "cannot be repeated" in outcome.out
    assert "repeated           sweeps/own_sweep" in outcome.out


def test_results_without_specifications_are_told(results: Path, run: Run) -> None:
    shutil.rmtree(results / "jobs")
    outcome = run("verify", results)
    assert outcome.code == 0
    assert "7 plans, runs and sweeps have no specification" in outcome.out


@pytest.mark.parametrize("place", ["privacy/audit.json", "tables/own_sweep.json", "report.html"])
def test_what_was_made_from_other_files_is_told(place: str, results: Path) -> None:
    """Another digest is stated for one file that it was made from."""
    path = results / place
    if path.suffix == ".json":
        edit(path, lambda record: record["made_from"].update(dict.fromkeys(record["made_from"], "0" * 64)))
    else:
        text = path.read_text(encoding="utf-8")
        text = re.sub(r'("tables/own_sweep.json": ")[0-9a-f]{64}', rf"\g<1>{'0' * 64}", text)
        seal = digests.stated(path)
        path.write_text(text.replace(seal, "0" * 64), encoding="utf-8")
        digests.seal(path)
    assert any(f"The file {path} was not made from" in problem for problem in verify(results).problems)


MADE_BY = {
    "dataset": "datasets/*.json",
    "optimum": "optima/wyx17_fig1/*.npz",
    "optima": "optima/own_sweep/*.json",
    "certify": "plans/*/dp-gd-short*1.json",
    "run": "runs/*/dp-gd-short*.json",
    "sweep": "sweeps/*/*.json",
    "audit": "privacy/audits/*.json",
    "collect": "data/own_sweep.parquet",
    "table": "tables/own_sweep.json",
    "figure": "figures/own_sweep.json",
    "privacy": "privacy/audit.json",
    "report": "report.html",
}


@pytest.mark.parametrize("edited", MADE_BY)
def test_every_kind_of_result_is_compared_with_the_sources_at_hand(
    edited: str, reported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = workflow.code
    monkeypatch.setattr(workflow, "code", lambda stage, **names: "edited" if stage == edited else code(stage, **names))
    found = verify(reported).problems
    paths = [path for path in reported.glob(MADE_BY[edited]) if "certificate" not in path.name]
    assert paths
    for path in paths:
        assert any(f"The result {path} was made by another version of the sources" in problem for problem in found)


def test_a_collected_table_that_is_missing_is_told_and_nothing_is_accused(results: Path) -> None:
    drop(results, ("data/own_sweep.parquet",))
    found = verify(results)
    assert found.problems == []
    assert any("data/own_sweep.parquet, which is not there" in loose for loose in found.loose)
