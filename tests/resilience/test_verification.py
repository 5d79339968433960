"""`dprepro verify`, and what the stages say of results that do not belong together."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Run
from tiny import CONFIG, RUNS, Tiny, edit

from dprepro import digests
from dprepro.algorithms import get_algorithm, names
from dprepro.datasets import checksum
from dprepro.files import read_arrays, read_json, write_arrays
from dprepro.privacy.accounting import account
from dprepro.verification import verify

pytestmark = pytest.mark.workflow
TARGET = "wyx17_fig1"


@pytest.fixture(scope="session")
def shown(made: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny checkout with a figure, too. Not to be changed: take `results`."""
    tiny = Tiny(made.copy(tmp_path_factory.mktemp("shown") / "checkout").folder)
    outcome = tiny.snakemake(TARGET, config=CONFIG)
    assert outcome.code == 0, outcome.text
    return tiny


@pytest.fixture
def results(shown: Tiny, tmp_path: Path) -> Path:
    """A folder of results of one's own."""
    folder = tmp_path / "results"
    shutil.copytree(shown.results, folder)
    return folder


def one(folder: Path, pattern: str) -> Path:
    """Return the file of the short run that matches."""
    return next(path for path in sorted(folder.glob(pattern)) if "dp-gd-short" in path.name or "runs" not in pattern)


def plan_of(results: Path) -> Path:
    return next(path for path in results.glob("plans/*/dp-gd-short*.json") if "certificate" not in path.name)


def less_noise(record: dict[str, Any], share: float = 0.1) -> None:
    """Leave a share of the noise of a plan, wherever it is stated, but not in its certificate."""
    record["plan"]["sigma"] *= share
    for event in record["plan"]["events"]:
        event["sigma"] *= share


def test_untouched_results_are_verified(results: Path, run: Run) -> None:
    outcome = run("verify", results)
    assert outcome.code == 0, outcome.err
    counted = dict(line.rsplit(maxsplit=1) for line in outcome.out.splitlines()[:8])
    assert counted == {
        "job files": str(4 + len(names())), "datasets": "1", "optima": "1", "plans": "3", "runs": "3",
        "collected tables": "1", "tables": "1", "figures": "1",
    }  # fmt: skip
    assert f"{RUNS} certificates recomputed from their plans; 0 of 3 jobs repeated" in outcome.out
    assert "not covered        forgery" in outcome.out


def test_repeated_jobs_are_identical(results: Path, run: Run) -> None:
    outcome = run("verify", results, "--rerun", 2, "--seed", 1)
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("repeated           runs/") == outcome.out.count(": identical") == 2
    assert "2 of 3 jobs repeated" in outcome.out


def test_a_run_that_does_not_repeat_is_a_failure(results: Path, run: Run) -> None:
    """Arrays and all that was made from them may be sealed consistently: only repeating the run shows it."""
    for path in results.glob("runs/*/*.npz"):
        arrays = read_arrays(path)
        digest = write_arrays(path, arrays | {"w": arrays["w"] + 0.5})
        edit(path.with_suffix(".json"), lambda record, digest=digest: record.update(arrays=digest))
    for folder in ("data", "tables", "figures"):
        shutil.rmtree(results / folder)
    assert run("verify", results).code == 0
    outcome = run("verify", results, "--rerun", 1)
    assert outcome.code == 1
    assert "gave other numbers" in outcome.err


def test_a_tenth_of_the_noise_is_neither_run_nor_verified(results: Path, run: Run) -> None:
    plan = plan_of(results)
    edit(plan, less_noise)
    spent = account(get_algorithm("dp_gd").plan_type.from_json(read_json(plan)["plan"]).events, 1e-3).epsilon
    assert spent > 10.0, "what would have been published as less than 1"
    out = results / "again.npz"
    data = next(results.glob("datasets/*.npz"))
    outcome = run("run", "--plan", plan, "--data", data, "--out", out)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"The certificate in {plan} is not that of its plan" in outcome.err
    assert not out.exists()
    assert run("verify", results).code == 2


@pytest.mark.parametrize(("kernels", "code"), [("of another CPU", 0), (None, 1)])
def test_other_kernels_explain_other_last_digits(kernels: str | None, code: int, results: Path, run: Run) -> None:
    for path in results.glob("runs/*/*.npz"):
        arrays = read_arrays(path)
        digest = write_arrays(path, arrays | {"w": arrays["w"] * (1.0 + 1e-9)})
        facts = {} if kernels is None else {"cpu_kernels": kernels}
        edit(
            path.with_suffix(".json"),
            lambda record, digest=digest, facts=facts: record.update(
                arrays=digest, provenance=record["provenance"] | facts
            ),
        )
    for folder in ("data", "tables", "figures"):
        shutil.rmtree(results / folder)
    outcome = run("verify", results, "--rerun", 1)
    assert outcome.code == code, outcome.err
    assert ("(made on another machine or with other kernels)" in outcome.out) == (code == 0)


@pytest.mark.parametrize("share", [0.9, 0.1, 1e-250, 0.0])
def test_a_certificate_that_is_too_good_is_neither_run_nor_verified(share: float, results: Path, run: Run) -> None:
    """Plan and certificate are edited so that their digests agree: the events are accounted again."""

    def edited(record: dict[str, Any]) -> None:
        less_noise(record, share)
        stated = {"plan_digest": digests.of_value(record["plan"]), "events": record["plan"]["events"]}
        record["certificate"].update(stated)

    plan = plan_of(results)
    edit(plan, edited)
    certificate = read_json(plan)["certificate"] | {"made_from": {"plan": digests.check(plan)}}
    edit(plan.with_suffix(".certificate.json"), lambda beside: beside.update(certificate))
    data = next(results.glob("datasets/*.npz"))
    outcome = run("run", "--plan", plan, "--data", data, "--out", results / "again.npz")
    assert outcome.code == 2
    assert "which its events do not spend at delta = 0.001" in outcome.err
    assert "which its events do not spend at delta = 0.001" in run("verify", results).err


@pytest.mark.parametrize("resealed", [False, True], ids=["edited", "edited and sealed"])
def test_data_times_five_are_neither_run_nor_verified(resealed: bool, results: Path, run: Run) -> None:
    data = next(results.glob("datasets/*.npz"))
    arrays = read_arrays(data)
    X = 5.0 * arrays["X"]
    digest = write_arrays(data, arrays | {"X": X})
    if resealed:
        edit(data.with_suffix(".json"), lambda facts: facts.update(arrays=digest, checksum=checksum(X, arrays["y"])))
    outcome = run("run", "--plan", plan_of(results), "--data", data, "--out", results / "again.npz")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert ("promised is at most 1" if resealed else "is not the one that") in outcome.err
    assert not (results / "again.npz").exists()
    assert run("verify", results).code == 2


def test_data_that_are_not_those_of_their_checksum_are_neither_run_nor_verified(results: Path, run: Run) -> None:
    """Edited within the bounds and sealed again, and its plan made anew, but with the checksum of the true data."""
    data = next(results.glob("datasets/*.npz"))
    arrays = read_arrays(data)
    digest = write_arrays(data, arrays | {"X": 0.5 * arrays["X"]})
    edit(data.with_suffix(".json"), lambda facts: facts.update(arrays=digest))
    made_from = {"dataset": digests.check(data.with_suffix(".json"))}
    edit(plan_of(results), lambda plan: plan.update(made_from=made_from))
    outcome = run("run", "--plan", plan_of(results), "--data", data, "--out", results / "again.npz")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"The dataset {data} is not as its facts say: expected checksum" in outcome.err
    assert "is not as its facts say" in run("verify", results).out


@pytest.mark.parametrize("kind", ["plans", "runs", "data"])
def test_a_result_in_the_place_of_another_is_neither_used_nor_verified(kind: str, results: Path, run: Run) -> None:
    if kind == "data":
        place = results / "data" / "wyx17_fig2.parquet"
        shutil.copy(results / "data" / "wyx17_fig1.parquet", place)
        words = ["table", "wyx17_fig2", "--data", place, "--out", results / "again.csv"]
    else:
        source, place = sorted(path for path in results.glob(f"{kind}/*/dp-gd*.json") if "certificate" not in path.name)
        for suffix in (".json", ".npz", ".certificate.json"):
            if source.with_suffix(suffix).exists():
                shutil.copy(source.with_suffix(suffix), place.with_suffix(suffix))
        data, optima = (next(results.glob(f"{pattern}/*.npz")) for pattern in ("datasets", "optima/*"))
        words = ["run", "--plan", place, "--data", data, "--out", results / "again.npz"]
        if kind == "runs":
            words = ["collect", "--runs", *sorted(results.glob("runs/*/*.npz")), "--optima", optima]
            words += ["--out", results / "again.parquet"]
    outcome = run(*words)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    assert f"The file {place} was written as " in outcome.err
    assert not list(results.glob("again*"))
    assert f"The file {place} was written as " in run("verify", results).out


def test_a_plan_for_another_dataset_is_not_run(results: Path, run: Run) -> None:
    data = next(results.glob("datasets/*.npz"))
    arrays = read_arrays(data)
    X = 0.5 * arrays["X"]
    digest = write_arrays(data, arrays | {"X": X})
    edit(data.with_suffix(".json"), lambda facts: facts.update(arrays=digest, checksum=checksum(X, arrays["y"])))
    outcome = run("run", "--plan", plan_of(results), "--data", data, "--out", results / "again.npz")
    assert outcome.code == 2
    assert "was made for another dataset" in outcome.err


def test_no_flipped_bit_is_published(results: Path, run: Run) -> None:
    """In 400 places of JSON, npz and Parquet files, chosen at random."""
    files = sorted(
        path
        for pattern in ("plans/*/*.json", "runs/*/*.*", "datasets/*", "optima/*/*", "data/*", "tables/*.json")
        for path in results.glob(pattern)
    )
    chance = random.Random(7)
    for _ in range(400):
        path = chance.choice(files)
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(Exception, match="remove it and make it again"):
            digests.check(path)
        path.write_bytes(content)
    assert run("verify", results).code == 0
    # And each of them is looked at.
    for path in files:
        path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    outcome = run("verify", results)
    assert outcome.code == 2
    assert [path for path in files if str(path) not in outcome.out] == []


def certified_for_less(record: dict[str, Any]) -> None:
    record["certificate"].update(epsilon_accounted=0.01, verdict="certified")


def false_conditions(record: dict[str, Any]) -> None:
    for condition in record["certificate"]["conditions"]:
        condition["holds"] = not condition["holds"]


@pytest.mark.parametrize(
    ("pattern", "change"),
    [
        ("runs/*/dp-gd-short*.json", certified_for_less),
        ("runs/*/dp-gd-short*.json", lambda record: record["dataset"].update(n=7)),
        ("runs/*/dp-gd-short*.json", lambda record: record["job"].update(seed=7)),
        ("plans/*/dp-gd-short*1.json", certified_for_less),
        ("plans/*/dp-gd-short*1.json", false_conditions),
        ("plans/*/dp-gd-short*1.json", lambda record: record["certificate"].update(verdict="certified")),
        ("plans/*/dp-gd-short*.certificate.json", lambda record: record.update(epsilon_accounted=0.01)),
        ("plans/*/dp-gd-short*1.json", lambda record: record.update(certificate=None)),
        ("runs/*/dp-gd-short*.json", lambda record: record.update(made_from={})),
        ("datasets/*.json", lambda record: record.update(row_norm="x")),
    ],
)
def test_a_record_that_was_edited_and_sealed_again_does_not_fit_the_others(
    pattern: str, change: Callable[[Any], None], results: Path, run: Run
) -> None:
    (path,) = results.glob(pattern)
    edit(path, change)
    # What was made from it is of other files anyhow.
    for folder in ("data", "tables", "figures"):
        shutil.rmtree(results / folder)
    outcome = run("verify", results)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.out
    assert "Traceback" not in outcome.err


def test_an_optimum_of_another_problem_is_neither_collected_nor_verified(results: Path, run: Run) -> None:
    (path,) = results.glob("optima/*/*.npz")
    write_arrays(path, read_arrays(path) | {"problem": np.array("0" * 64)})
    runs = sorted(results.glob("runs/*/*.npz"))
    outcome = run("collect", "--runs", *runs, "--optima", path, "--out", results / "again.parquet")
    assert outcome.code == 2
    assert f"The optimum {path} is of another problem than the run" in outcome.err
    shutil.rmtree(results / "data")
    assert f"The optimum {path} is of another problem than" in run("verify", results).out


def test_a_table_without_a_record_or_of_another_experiment_is_told(results: Path, run: Run) -> None:
    for suffix in ("csv", "md", "tex", "json"):
        shutil.copy(results / f"tables/wyx17_fig1.{suffix}", results / f"tables/wyx17_fig2.{suffix}")
    outcome = run("verify", results)
    assert outcome.code == 2
    assert "was written as tables/wyx17_fig1.json" in outcome.err
    edit(results / "tables/wyx17_fig2.json", lambda record: None)
    assert "were made from data/wyx17_fig1.parquet, not from data/wyx17_fig2.parquet" in run("verify", results).err
    (results / "tables/wyx17_fig2.json").unlink()
    assert "tables/wyx17_fig2.csv has no record beside it" in run("verify", results).out


def test_arrays_without_a_record_are_told(results: Path, run: Run) -> None:
    record = one(results, "runs/*/*.json")
    record.unlink()
    outcome = run("verify", results)
    assert outcome.code == 2
    assert f"The file {record.with_suffix('.npz')} has no record beside it" in outcome.out


@pytest.mark.parametrize("name", ["tables/wyx17_fig1.csv", "figures/wyx17_fig1.svg", "figures/wyx17_fig1.md"])
def test_an_edited_table_or_figure_is_told(name: str, results: Path, run: Run) -> None:
    path = results / name
    path.write_text(path.read_text(encoding="utf-8") + " ")
    outcome = run("verify", results)
    assert outcome.code == 2
    assert f"The file {path} was changed after it was written" in outcome.err


def test_a_table_of_other_runs_is_told(results: Path, run: Run) -> None:
    """The run was made again, the table was not."""
    record = one(results, "runs/*/*.json")
    edit(record, lambda content: content.update(started="2001-01-01T00:00:00Z"))
    outcome = run("verify", results)
    assert outcome.code == 2
    assert f"was not made from {record} as it is" in outcome.err


def test_results_of_another_configuration_are_told(results: Path, run: Run) -> None:
    job = next(results.glob("jobs/wyx17_fig1/dp-gd-short*.json"))
    edit(job, lambda content: content.update(seed=content["seed"] + 1))
    outcome = run("verify", results)
    assert outcome.code == 2
    assert f"is of another configuration than {job}: remove it and run snakemake again" in outcome.err


def test_a_run_of_another_configuration_in_the_place_of_its_own_is_not_published(results: Path, run: Run) -> None:
    """As if copied from another folder of results, in which the job has the same name and other numbers."""
    place = one(results, "runs/*/*.json")
    edit(place, lambda record: record["job"].update(seed=99))
    optimum, out = next(results.glob("optima/*/*.npz")), results / "data/new.parquet"
    code, _, said = run(
        "collect", "--runs", str(place.with_suffix(".npz")), "--optima", str(optimum), "--out", str(out)
    )
    assert code == 2
    assert f"The result {place} is of another configuration than {results / 'jobs' / TARGET / place.name}" in said
    assert not out.exists()


def test_a_collected_table_of_other_runs_is_not_shown(results: Path, run: Run) -> None:
    edit(one(results, "runs/*/*.json"), lambda record: record["provenance"].update(commit="other"))
    data = results / "data" / f"{TARGET}.parquet"
    for verb, suffix in (("table", "csv"), ("figure", "png")):
        out = results / f"new.{suffix}"
        code, _, said = run(verb, TARGET, "--data", str(data), "--out", str(out))
        assert code == 2
        assert f"The file {data} was not made from {one(results, 'runs/*/*.json')} as it is" in said
        assert not out.exists()


@pytest.mark.parametrize("change", [{"n": 3000}, {"d": 6}])
def test_a_dataset_of_another_size_is_neither_run_nor_verified(change: dict[str, int], results: Path, run: Run) -> None:
    """More rows in the facts would mean less noise."""
    facts = next(results.glob("datasets/*.json"))
    edit(facts, lambda record: record.update(change))
    plan = plan_of(results)
    edit(plan, lambda record: record["made_from"].update(dataset=read_json(facts)["digest"]))
    out = results / "new.npz"
    code, _, said = run("run", "--plan", str(plan), "--data", str(facts.with_suffix(".npz")), "--out", str(out))
    assert code == 2
    assert "is not as its facts say: expected X of shape" in said
    assert not out.exists()
    assert any("expected X of shape" in problem for problem in verify(results).problems)


def test_results_of_other_sources_are_told(results: Path, run: Run) -> None:
    for record in results.glob("runs/*/dp-gd-short*.json"):
        edit(record, lambda content: content["provenance"].update(sources="0" * 12))
    for folder in ("data", "tables", "figures"):
        shutil.rmtree(results / folder)
    outcome = run("verify", results)
    assert outcome.code == 2
    assert "was made by another version of the sources" in outcome.err


def test_what_is_missing_is_not_followed_and_told(results: Path, run: Run) -> None:
    shutil.rmtree(results / "datasets")
    outcome = run("verify", results)
    assert outcome.code == 0
    assert "which is not there" in outcome.out


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_folder_without_results_is_one_sentence(folder: str, tmp_path: Path, run: Run) -> None:
    outcome = run("verify", tmp_path / folder)
    assert outcome.code == 2
    assert "holds no results" in outcome.err
    assert outcome.err.count("\n") == 1


def test_numbers_within_rounding_are_the_same() -> None:
    from dprepro.verification import ROUNDING, _same

    assert _same(1.0, 1.0 + 0.5 * ROUNDING)
    assert not _same(1.0, 1.0 + 2.0 * ROUNDING)
    assert _same("inf", "inf")
    assert not _same(None, np.pi)
