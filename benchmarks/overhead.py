"""What starting and orchestrating costs: part of `make bench`. Written to overhead.csv.

The start of commands and jobs, and one experiment at the smoke scale by Snakemake on one core against the same commands
in one process.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import Row, parser, write_rows

from dprepro.costs import read_cost

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "workflow", "profiles", "config", "envs", "docs")
TARGET, SCALE = "wyx17_fig1", "config/scales/smoke.yaml"
# The first argument of the process that runs the commands of all jobs.
ALL = "--all-of"
BY_SNAKEMAKE, IN_ONE = "Snakemake, one core", "one process"
DPREPRO = (sys.executable, "-m", "dprepro")
Cost = tuple[float, float]


def cost(command: Sequence[str], rounds: int, folder: Path | None = None) -> Cost:
    """Return the median wall and CPU seconds of a command, its children included."""
    walls, cpus = [], []
    for _ in range(rounds):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls), statistics.median(cpus)


def empty_job(folder: Path) -> list[str]:
    """Return the command of a `run` job whose computation is next to nothing, after what it reads has been made."""
    dataset = {"name": "synthetic_logistic", "rows": 64}
    job = {
        "algorithm": "dp_gd", "parameters": {"T": 1}, "variant": "published", "epsilon": 1, "delta": 0.001,
        "replicates": 2, "tile": 8, "dtype": "float32", "device": "cpu", "seed": 1, "loss": "logistic",
        "regularizer": {"l2": 0.1}, "constraint": None, "dataset": "d",
    }  # fmt: skip
    data, plan = folder / "d.npz", folder / "plan.json"
    subprocess.run([*DPREPRO, "dataset", "--spec", json.dumps(dataset), "--out", data], check=True)
    certify = ["certify", "--spec", json.dumps(job), "--facts", data.with_suffix(".json"), "--out", plan]
    subprocess.run([*DPREPRO, *certify], check=True)
    return [*DPREPRO, "run", "--plan", str(plan), "--data", str(data), "--out", str(folder / "r.npz"), "--sources", "0"]


def snakemake(*arguments: str) -> list[str]:
    """Return a command line of Snakemake for the experiment; `--configfile` takes all names that follow it."""
    return [sys.executable, "-m", "snakemake", TARGET, *arguments, "--cores", "1", "--configfile", SCALE]


def checkout(folder: Path) -> Path:
    """Return a folder that looks like the checkout, with results and notes of Snakemake of its own."""
    folder.mkdir()
    for part in PARTS:
        (folder / part).symlink_to(ROOT / part)
    return folder


def commands(folder: Path) -> list[list[str]]:
    """Return the arguments of dprepro in every job, in an order in which they can run."""
    done = subprocess.run(
        snakemake("--dry-run", "--printshellcmds"), check=True, capture_output=True, text=True, cwd=folder
    )
    found = re.findall(r"^Shell command: python -m dprepro (.+) > \S+ 2>&1$", done.stdout + done.stderr, re.MULTILINE)
    return [shlex.split(words) for words in found]


def run_all(file: Path) -> None:
    """Run the commands of all jobs in this process."""
    from dprepro.cli import main as dprepro

    for arguments in json.loads(file.read_text(encoding="utf-8")):
        if dprepro(arguments):
            sys.exit(1)


def seconds_in_jobs(folder: Path) -> float:
    """Return the wall seconds of all jobs as Snakemake's benchmarks have them."""
    return sum(read_cost(file).seconds or 0.0 for file in folder.glob("results/*/benchmarks/**/*.tsv"))


def experiment(folder: Path) -> list[Row]:
    """Compare one experiment by Snakemake with the same work in one process."""
    whole, single = checkout(folder / "whole"), checkout(folder / "single")
    jobs = commands(single)
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    by_snakemake = cost(snakemake("--quiet", "all"), 1, whole)
    for specifications in whole.glob("results/*/jobs"):
        shutil.copytree(specifications, single / specifications.relative_to(whole))
    in_one = cost([sys.executable, __file__, ALL, str(folder / "jobs.json")], 1, single)
    inside = seconds_in_jobs(whole)
    case = f"{TARGET}, smoke scale"

    def row(variant: str, measure: str, unit: str, value: float) -> Row:
        return Row(case, variant, measure, unit, value)

    return [
        row("both", "jobs", "", len(jobs)),
        *_both(case, BY_SNAKEMAKE, by_snakemake),
        *_both(case, IN_ONE, in_one),
        row(f"{BY_SNAKEMAKE} / {IN_ONE}", "wall time", "ratio", by_snakemake[0] / in_one[0]),
        row(f"{BY_SNAKEMAKE} - {IN_ONE}", "CPU time per job", "s", (by_snakemake[1] - in_one[1]) / len(jobs)),
        row("Snakemake without its jobs", "wall time", "s", by_snakemake[0] - inside),
        row("Snakemake without its jobs", "wall time per job", "s", (by_snakemake[0] - inside) / len(jobs)),
    ]


def _both(case: str, variant: str, found: Cost) -> list[Row]:
    wall, cpu = found
    return [Row(case, variant, "wall time", "s", wall), Row(case, variant, "CPU time", "s", cpu)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    chosen = parser(__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        starts = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
            "dprepro solve --help": [*DPREPRO, "solve", "--help"],
            "a run job without work": empty_job(folder),
            "snakemake --dry-run": snakemake("--dry-run", "--quiet", "rules"),
        }
        place = checkout(folder / "starts")
        rows = [
            row for what, words in starts.items() for row in _both("start", what, cost(words, chosen.rounds, place))
        ]
        rows += experiment(folder)
    rows.append(Row("start", "machine", "load afterwards", "processes", os.getloadavg()[0]))
    write_rows(chosen.out / "overhead.csv", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == [ALL]:
        run_all(Path(sys.argv[2]))
    else:
        main()
