"""`dprepro status` says what is there, from files alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dprepro import owner
from dprepro.cli import main
from dprepro.experiments import load_config, load_experiments
from dprepro.files import write_json
from dprepro.progress import PROGRESS_FILE, Running, Task, Tracker
from dprepro.status import Expected, expected_jobs

ROOT = Path(__file__).parents[1]
BENCHMARK = "s\th:m:s\tcpu_time\n2.5\t0:00:02\t2.0\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of one experiment with results of its own; commands run at the top of the checkout."""
    monkeypatch.chdir(ROOT)
    path = tmp_path / "mine.yaml"
    path.write_text(f"results: {tmp_path / 'results'}\nexperiments: [wyx17_fig1]\n")
    return path


@pytest.fixture
def results(config: Path) -> Path:
    return config.parent / "results"


def jobs_of(config: Path) -> list[Expected]:
    loaded = load_config([config])
    return expected_jobs(load_experiments(loaded), loaded)


def make(results: Path, job: Expected, *, output: bool = True, log: str = "") -> None:
    """Write what a job leaves: a log, and if it went well a benchmark and its output."""
    files = {results / "logs" / f"{job.trace}.log": log}
    if output:
        files |= {results / job.output: "x", results / "benchmarks" / f"{job.trace}.tsv": BENCHMARK}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def status(config: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["status", "--configfile", str(config), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def totals(found: dict[str, Any]) -> dict[str, int]:
    states = ("done", "running", "failed", "stopped", "left")
    return {state: number for state in states if (number := sum(group[state] for group in found["groups"]))}


def text(config: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["status", "--configfile", str(config)]) == 0
    return capsys.readouterr().out


def test_without_results_all_is_left(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert totals(status(config, capsys)) == {"left": len(jobs_of(config))}
    assert "no run has left its progress here" in text(config, capsys)
    assert not (config.parent / "results").exists(), "looking changes nothing"


def test_jobs_are_done_failed_stopped_or_left_by_what_they_left(
    config: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = jobs_of(config)
    for job in jobs[:5]:
        make(results, job)
    make(results, jobs[5], output=False, log="warning\ndprepro: No space left on the disk.\n")
    make(results, jobs[6], output=False)
    found = status(config, capsys)
    assert totals(found) == {"done": 5, "failed": 1, "stopped": 1, "left": len(jobs) - 7}
    assert [failure["sentence"] for failure in found["failures"]] == ["dprepro: No space left on the disk."]
    assert sum(group["seconds_wall"] for group in found["groups"]) == 5 * 2.5
    words = text(config, capsys)
    assert f"5 of {len(jobs)} jobs done, 1 failed, 1 stopped, {len(jobs) - 7} left" in words
    assert "dprepro: No space left on the disk." in words


def run_of(results: Path, job: Expected, now: float, **facts: Any) -> None:
    """Write the progress of a run in which a job has been running for 30 seconds."""
    tracker = Tracker(now - 60.0, cores=2)
    tracker.plan({1: Task("run", 100.0), 2: Task("table", 5.0)})
    log = str(results / "logs" / f"{job.trace}.log")
    tracker.start(1, Running("Running wyx17_fig1: dp-gd", "run", log, now - 30.0), 1)
    write_json(results / PROGRESS_FILE, tracker.progress(now).to_json() | facts)


def test_a_run_that_goes_on_is_seen_from_outside(
    config: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = jobs_of(config)[3]
    make(results, job, output=False, log="so far so good\n")
    run_of(results, job, time.time())
    found = status(config, capsys)
    assert found["alive"]
    assert totals(found)["running"] == 1
    assert found["failures"] == [], "a job that runs has not failed"
    words = text(config, capsys)
    assert f"(process {os.getpid()}): 0 of its 2 jobs done, about 70 s left" in words
    assert re.search(r"Running wyx17_fig1: dp-gd \(for [34]\d s\)", words)


def test_a_job_on_a_cluster_is_said_to_be_submitted(
    config: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(results, jobs_of(config)[3], time.time(), cluster=True)
    assert re.search(r"Running wyx17_fig1: dp-gd \(submitted [34]\d s ago\)", text(config, capsys))


def test_a_run_whose_process_is_gone_is_not_said_to_go_on(
    config: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = jobs_of(config)[3]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    make(results, job, output=False)
    run_of(results, job, time.time(), stamp=f"{owner.host()} {ended.pid} 1")
    found = status(config, capsys)
    assert not found["alive"]
    assert totals(found)["stopped"] == 1
    assert "broke off without a word" in text(config, capsys)


def test_an_ended_run_is_told_as_such(config: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(results, jobs_of(config)[3], time.time() - 300.0, state="ended")
    assert "nothing runs; the last run ended 5 min ago: 0 of its 2 jobs done, 0 failed" in text(config, capsys)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"state": "running"}', "\x00\x01"])
def test_a_damaged_progress_file_is_as_good_as_none(
    content: str, config: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (results / PROGRESS_FILE).parent.mkdir(parents=True)
    (results / PROGRESS_FILE).write_text(content)
    assert status(config, capsys)["run"] is None


@pytest.mark.parametrize("content", ["experiments: [wyx17_fig3]", "seed: many", "[", "sceed: 1"])
def test_a_mistake_in_the_configuration_is_one_sentence(
    content: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(content)
    assert main(["status", "--configfile", str(config)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dprepro: ")
    assert captured.err.count("\n") == 1


def test_looking_needs_neither_pandas_nor_scipy() -> None:
    program = (
        "import sys; from dprepro.cli import main; main(['status', '--json']); "
        "print(sorted({'pandas', 'scipy', 'matplotlib', 'sklearn', 'pyarrow'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
