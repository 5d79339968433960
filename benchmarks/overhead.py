"""What starting and orchestrating costs: `make bench`. Written to results/benchmarks/overhead.csv."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dprepro.files import write_text

OUT = Path("results/benchmarks/overhead.csv")
REPEATS = 5


def cost(command: list[str], folder: str | None = None) -> tuple[float, float]:
    """Return the best wall and CPU seconds of a command over some repeats."""
    walls, cpus = [], []
    for _ in range(REPEATS):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(walls), min(cpus)


def job_overhead() -> tuple[float, float]:
    """Return wall and CPU seconds of a `run` job whose computation is next to nothing."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        python = [sys.executable, "-m", "dprepro"]
        dataset = {"name": "synthetic_logistic", "rows": 64}
        job = {
            "algorithm": "dp_gd", "parameters": {"T": 1}, "variant": "published", "epsilon": 1, "delta": 0.001,
            "replicates": 2, "dtype": "float32", "device": "cpu", "seed": 1, "loss": "logistic",
            "regularizer": {"l2": 0.1}, "constraint": None, "dataset": "d",
        }  # fmt: skip
        data, plan = here / "d.npz", here / "plan.json"
        subprocess.run([*python, "dataset", "--spec", json.dumps(dataset), "--out", data], check=True)
        certify = ["certify", "--spec", json.dumps(job), "--facts", data.with_suffix(".json"), "--out", plan]
        subprocess.run([*python, *certify], check=True)
        return cost(
            [*python, "run", "--plan", str(plan), "--data", str(data), "--out", str(here / "run.npz"), "--sources", "0"]
        )


def main() -> None:
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    rows = {
        "python -m dprepro solve --help": cost([sys.executable, "-m", "dprepro", "solve", "--help"]),
        "a run job without work": job_overhead(),
        "snakemake -n": cost([snakemake, "-n", "--quiet", "rules"]),
    }
    lines = ["what,wall_seconds,cpu_seconds", *(f"{what},{wall:.4f},{cpu:.4f}" for what, (wall, cpu) in rows.items())]
    write_text(OUT, "\n".join(lines) + "\n")
    for what, (wall, cpu) in rows.items():
        print(f"{what:<34} wall {wall:6.3f} s   CPU {cpu:6.3f} s   (load {os.getloadavg()[0]:.1f})")


if __name__ == "__main__":
    main()
