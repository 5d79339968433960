"""A Slurm of one node for the whole session, and Snakemake with the workflow's own profiles on it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import one_node
import pytest
from support import require
from workflow.conftest import SMOKE, Checkout, Outcome, checkout, finished, pristine

__all__ = ["checkout", "finished", "pristine"]

PLUGINS = ("snakemake_executor_plugin_slurm", "snakemake_executor_plugin_cluster_generic")
# The profiles ask every ten seconds, which is polite to a large cluster.
QUICK = ("--seconds-between-status-checks", "2")
# A machine with other work to do takes its time.
PATIENCE_SECONDS = 3600


@dataclass(frozen=True)
class Submission:
    """A job as Slurm knows it: number, name, comment, state, cores and memory in MB."""

    number: int
    name: str
    comment: str
    state: str
    cores: int
    memory: int


@dataclass(frozen=True)
class Cluster:
    """A Slurm that runs: the variables with which commands find it."""

    variables: dict[str, str]

    def environment(self, checkout: Checkout, **more: str) -> dict[str, str]:
        """Return the variables of commands in a checkout that submit jobs."""
        path = os.pathsep.join([os.path.dirname(sys.executable), self.variables["PATH"]])
        return {**checkout.environment, **self.variables, "PATH": path, **more}

    def command(self, profile: str, *arguments: str) -> list[str]:
        """Return the documented command with one of the workflow's profiles at the smoke scale."""
        snakemake = [sys.executable, "-m", "snakemake", *arguments]
        return [*snakemake, "--profile", f"workflow/profiles/{profile}", *QUICK, "--configfile", SMOKE]

    def snakemake(
        self,
        checkout: Checkout,
        profile: str,
        *arguments: str,
        meanwhile: Callable[[subprocess.Popen[str]], None] = lambda process: None,
        **variables: str,
    ) -> Outcome:
        """Run Snakemake to its end, and something else beside it."""
        log = checkout.folder / "snakemake.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                self.command(profile, *arguments),
                cwd=checkout.folder,
                env=self.environment(checkout, **variables),
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                meanwhile(process)
                code = process.wait(PATIENCE_SECONDS)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return Outcome(code, log.read_text())

    def ask(self, *command: str) -> str:
        """Return what a command of Slurm says."""
        environment = {**os.environ, **self.variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    def submissions(self) -> list[Submission]:
        """Return all jobs that Slurm remembers, oldest first."""
        said = self.ask("squeue", "--noheader", "--states=all", "--sort=i", "--format=%i|%j|%k|%T|%C|%m")
        found = [line.split("|") for line in said.splitlines()]
        return [
            Submission(int(number), name, comment, state, int(cores), megabytes(memory))
            for number, name, comment, state, cores, memory in found
        ]

    def cancel_one(
        self, process: subprocess.Popen[str], wanted: Callable[[Submission], bool], seconds: float = 0
    ) -> Submission:
        """Wait until a wanted job runs, give it some seconds, cancel it and return it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (running := [job for job in self.submissions() if job.state == "RUNNING" and wanted(job)]):
            assert process.poll() is None, "Snakemake ended before there was a job to cancel"
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(seconds)
        self.ask("scancel", str(running[0].number))
        return running[0]


def megabytes(text: str) -> int:
    """Return a memory as squeue prints it in MB."""
    number, unit = re.fullmatch(r"([\d.]+)([MG]?)", text).groups()
    return round(float(number) * (1024 if unit == "G" else 1))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Slurm of one small node, stopped at the end."""
    lacking = [*one_node.missing(), *(name for name in PLUGINS if not importlib.util.find_spec(name))]
    require("slurm", not lacking, f"no Slurm here: {', '.join(lacking)} not found")
    # A folder that is known outside can be stopped from there if the tests are killed.
    named = os.environ.get("DPREPRO_SLURM_DIR")
    folder = Path(named) if named else tmp_path_factory.mktemp("slurm")
    try:
        yield Cluster(one_node.start(folder))
    finally:
        one_node.stop(folder)


@pytest.fixture(scope="session")
def local_results(cluster: Cluster, request: pytest.FixtureRequest) -> Path:
    """The results of the smoke scale run on this machine without a cluster: those that DPREPRO_SMOKE_RESULTS names.

    They take minutes to make, and are not made where there is no cluster to compare them with.
    """
    named = os.environ.get("DPREPRO_SMOKE_RESULTS")
    return Path(named).resolve() if named else request.getfixturevalue("finished").results
