"""Every job that calls a solver ends well at full scale, whatever CPU linear algebra and NumPy are made for.

OpenBLAS has kernels for many CPUs, and runs on any CPU those of older ones: OPENBLAS_CORETYPE chooses one. NumPy has
loops for several sets of instructions, of which NPY_DISABLE_CPU_FEATURES forbids all beyond the baseline. In each
setting the jobs run in a process of their own, by the stages of the workflow and the default configuration.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = ("Prescott", "Nehalem", "Haswell", "SkylakeX")  # the slowest first
# On 64 bits OpenBLAS has one kernel for the oldest CPUs, and calls it by the first of their names.
ALSO_CALLED = {"Prescott": {"Katmai", "Coppermine", "Northwood"}}
PLAIN = "NumPy without SIMD"
LEAST_KERNELS = 3

pytestmark = pytest.mark.machines


@dataclass(frozen=True)
class Outcome:
    """What the jobs came to in a setting; `not_run` says why they did not run."""

    setting: str
    not_run: str = ""
    report: dict | None = None

    @property
    def seconds(self) -> float:
        return sum(job["seconds"] for job in self.report["jobs"]) if self.report else 0.0

    def __str__(self) -> str:
        if self.not_run:
            return f"{self.setting}: not run, {self.not_run}"
        return f"{self.setting}: {len(self.report['jobs'])} jobs, {self.seconds:.0f} CPU seconds"


def started(argument: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "DPREPRO_OFFLINE": "1", "DPREPRO_DEVICE": "cpu"}
    command = [sys.executable, str(HERE / "on_this_kernel.py"), argument]
    return subprocess.run(
        command, env={**os.environ, **one_thread, **variables}, capture_output=True, text=True, check=False
    )


def obstacle(setting: str, probe: subprocess.CompletedProcess[str]) -> str:
    """Why the CPU has no such setting, seen from a process that only multiplied matrices; empty if it has."""
    if probe.returncode == -signal.SIGILL:
        return "the CPU cannot execute it"
    assert probe.returncode == 0, probe.stderr
    report = json.loads(probe.stdout)
    assert set(report["kernels"]) == {"numpy", "scipy"}, f"no OpenBLAS of both: {report['kernels']}"
    if setting == PLAIN:
        assert not report["simd"], f"NumPy still has {report['simd']}"
        return ""
    other = {kernel for kernel in report["kernels"].values() if kernel not in {setting, *ALSO_CALLED.get(setting, ())}}
    return f"OpenBLAS takes {', '.join(sorted(other))} here" if other else ""


def outcome(setting: str, variables: dict[str, str]) -> Outcome:
    probe = started("probe", variables)
    if reason := obstacle(setting, probe):
        return Outcome(setting, not_run=reason)
    with tempfile.TemporaryDirectory() as folder:
        # Noise is calibrated anew in each setting.
        done = started(folder, variables | {"DPREPRO_CACHE_DIR": f"{folder}/cache"})
    assert done.returncode == 0, f"{setting}: {done.stderr}"
    report = json.loads(done.stdout)
    assert {key: report[key] for key in ("kernels", "simd")} == {
        key: json.loads(probe.stdout)[key] for key in ("kernels", "simd")
    }
    return Outcome(setting, report=report)


def settings() -> dict[str, dict[str, str]]:
    """The environment variables of each setting."""
    features = json.loads(started("probe", {}).stdout)["simd"]
    return {
        PLAIN: {"NPY_DISABLE_CPU_FEATURES": " ".join(features)},
        **{kernel: {"OPENBLAS_CORETYPE": kernel} for kernel in KERNELS},
    }


@pytest.fixture(scope="session")
def outcomes() -> Iterator[dict[str, Future[Outcome]]]:
    """All settings, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {setting: pool.submit(outcome, setting, variables) for setting, variables in settings().items()}


@pytest.mark.parametrize("setting", [PLAIN, *KERNELS])
def test_every_job_that_calls_a_solver_ends_at_full_scale(setting, outcomes, capsys):
    found = outcomes[setting].result()
    with capsys.disabled():
        print(f"\n{found}")
    if found.not_run:
        pytest.skip(found.not_run)
    assert found.report["failed_checks"] == []
    jobs = found.report["jobs"]
    assert {module for job in jobs for module in job["solvers"]}, "no job calls a solver"
    assert {job["name"]: job["unsolved"] for job in jobs if job["unsolved"]} == {}


def test_the_same_points_are_refused_in_all_settings(outcomes):
    refused = {
        setting: {job["name"]: job["refused"] for job in found.report["jobs"] if job["refused"]}
        for setting, future in outcomes.items()
        if (found := future.result()).report
    }
    assert all(points == next(iter(refused.values())) for points in refused.values()), refused


def test_enough_kernels_were_run(outcomes, capsys):
    found = [future.result() for future in outcomes.values()]
    with capsys.disabled():
        print(f"\ntogether {sum(one.seconds for one in found):.0f} CPU seconds")
    run = [one for one in found if one.report and one.setting in KERNELS]
    assert len(run) >= LEAST_KERNELS, "; ".join(map(str, found))


def test_a_kernel_that_this_cpu_has_not_is_seen():
    def ended(code: int, **kernels: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], code, json.dumps({"kernels": kernels, "simd": []}), "")

    assert obstacle("SkylakeX", ended(-signal.SIGILL)) == "the CPU cannot execute it"
    assert obstacle("SkylakeX", ended(0, numpy="SkylakeX", scipy="Haswell")) == "OpenBLAS takes Haswell here"
    assert obstacle("SkylakeX", ended(0, numpy="SkylakeX", scipy="SkylakeX")) == ""
    assert obstacle("Prescott", ended(0, numpy="Katmai", scipy="Prescott")) == ""
