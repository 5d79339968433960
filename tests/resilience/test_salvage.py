"""What is still made after a job has failed, in this process and on small files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dprepro import hooks
from dprepro.errors import UserError
from dprepro.salvage import grouped

FULL = "The file jobs/salvage.json cannot be written (No space left on device): free some space."


class Dag:
    """A run in which one run failed, and the collection of the runs waits for it."""

    def __init__(self) -> None:
        self.failed = job("run", "runs/a.npz")
        self.waiting = job("collect", "data/one.parquet")
        self.dependencies = {self.failed: [], self.waiting: [self.failed]}

    def needrun_jobs(self) -> list[Any]:
        return [self.failed, self.waiting]


class Job(SimpleNamespace):
    """What the hooks read of a job of Snakemake."""

    __hash__ = object.__hash__


def job(rule: str, output: str) -> Job:
    command = f"python -m dprepro {rule} --out {output} > {rule}.log 2>&1"
    message = f"Doing {rule}"
    return Job(rule=SimpleNamespace(name=rule), output=[output], log=[], message=message, shellcmd=command)


def test_a_disk_without_space_for_the_list_of_what_is_missing_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise UserError(FULL)

    started: list[object] = []
    monkeypatch.setattr(hooks, "write_record", full)
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **_: started.append(words))
    hooks.make_the_rest(SimpleNamespace(dag=Dag(), touch=False), tmp_path, [])
    assert caplog.messages == [f"dprepro: Neither tables nor the report were made from what is there: {FULL}"]
    assert started == []


def test_jobs_that_failed_for_one_reason_are_told_once() -> None:
    lost = [*((f"Running {name}", "failed (no data)") for name in "abcde"), ("Drawing a", "failed (no space)")]
    told = ["Running a, Running b, Running c, Running d, Running e: failed (no data)", "Drawing a: failed (no space)"]
    assert grouped(lost) == told, "files name every gap"
    assert grouped(lost, 3)[0] == "Running a, Running b, Running c and 2 more: failed (no data)"
