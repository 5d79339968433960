#!/usr/bin/env python3
"""Hand a job script of Snakemake to sbatch with the resources of its rules, and print the number Slurm gives it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

LOGS = Path(".snakemake/sbatch")


def properties(script: Path) -> dict[str, Any]:
    """Return what Snakemake notes of a job at the top of its script."""
    for line in script.read_text(encoding="utf-8").splitlines():
        if line.startswith("# properties = "):
            return dict(json.loads(line.removeprefix("# properties = ")))
    sys.exit(f"submit.py: {script} does not state the properties of a job: is it a job script of Snakemake?")


def command(job: dict[str, Any], script: Path) -> list[str]:
    """Return the call of sbatch for a job or a group of jobs."""
    wish = job["resources"]
    # Snakemake writes the numbers of a group into its properties, threads included.
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", str(job.get("rule") or job["groupid"]))
    call = [
        "sbatch",
        "--parsable",
        f"--job-name=dprepro-{name}",
        f"--output={LOGS / name}-%j.log",
        "--ntasks=1",
        f"--cpus-per-task={job['threads']}",
        f"--mem={wish['mem_mb']}",
        f"--time={wish['runtime']}",
    ]
    if wish.get("gpu"):
        call.append(f"--gpus={wish['gpu']}")
    # The same names as those of the plugin for Slurm.
    for key, option in (("slurm_partition", "partition"), ("slurm_account", "account"), ("qos", "qos")):
        if wish.get(key):
            call.append(f"--{option}={wish[key]}")
    return [*call, *shlex.split(str(wish.get("slurm_extra", ""))), str(script)]


def main() -> None:
    """Submit the script named last on the command line."""
    script = Path(sys.argv[-1])
    LOGS.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command(properties(script), script), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    # Where there are several clusters, their name follows.
    print(done.stdout.strip().partition(";")[0])


if __name__ == "__main__":
    main()
