"""How time and memory grow with records, features and replicates: part of `make bench`. Written to growth.csv.

Times are per replicate-step and measured in turns over all sizes; rows for n and d have the exponent of a power law.
Memory is the peak of a whole run in a process of its own.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from common import (
    DTYPES,
    FEATURES,
    Job,
    Row,
    cpu,
    descent,
    in_turns,
    one_sample_loop,
    parser,
    planned,
    records,
    risk,
    write_rows,
)

from dprepro.arrays import TILE
from dprepro.run import execute

REPLICATES = (1, 16, 64, 256)
DIMENSIONS = (32, 64, 128, 256)
SHARES = (8, 4, 2, 1)
MEMORY_REPLICATES = (64, 256)
# Replicates of a tiny problem, in proportion to the steps of a loop: 10,000 by default.
REPLICATES_PER_STEP = 5
CASES: dict[str, Callable[..., Job]] = {"full gradient": descent, "one-sample loop": one_sample_loop}
# Steps of gradient descent: enough that starting a run does not count, and all that its memory needs.
STEPS = 5
# What Linux tells a process of itself.
STATUS = Path("/proc/self/status")
# The first argument of the process whose memory is measured.
PEAK = "--peak"


def sizes(n: int) -> dict[str, list[tuple[int, int, int]]]:
    """Return the sizes (n, d, K) along each axis."""
    small = max(1, n // 4)
    return {
        "n": [(n // share, FEATURES, TILE) for share in SHARES],
        "d": [(small, d, TILE) for d in DIMENSIONS],
        "K": [(small, FEATURES, K) for K in REPLICATES],
    }


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return the slope of the logarithm of the times against that of the sizes."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def times(case: str, dtype: str, n: int, steps: int, rounds: int) -> list[Row]:
    """Return the time of a replicate-step at every size, and the exponents along n and d."""
    along = sizes(n)
    known = sorted({size for group in along.values() for size in group})
    jobs = {(n, d): CASES[case](risk(*_typed(n, d, dtype), dtype), steps) for n, d in {size[:2] for size in known}}
    found = in_turns({str(s): cpu(lambda s=s: jobs[s[:2]](s[2])) for s in known}, rounds)
    each = {size: found[str(size)] / (steps * size[2]) for size in known}
    rows = [
        Row(case, "engine", "time per replicate-step", "us", 1e6 * seconds, dtype, *size)
        for size, seconds in each.items()
    ]
    for axis, place in (("n", 0), ("d", 1)):
        slope = exponent([size[place] for size in along[axis]], [each[size] for size in along[axis]])
        rows.append(Row(case, "engine", f"exponent in {axis}", "", slope, dtype, K=TILE))
    return rows


def _typed(n: int, d: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = records(n, d)
    return X.astype(dtype), y.astype(dtype)


def many_replicates(few: int, rounds: int) -> list[Row]:
    """Return what ten times as many replicates of a tiny problem cost, in proportion."""
    problem = risk(*records(16, 2), "float64")
    plan = planned("dp_gd", problem, T=1)
    found = in_turns(
        {str(K): cpu(lambda K=K: execute(plan, problem, seed=0, replicates=range(K))) for K in (few, 10 * few)}, rounds
    )
    ratio = found[str(10 * few)] / found[str(few)]
    return [
        Row("tiny problem", "engine", "ten times the replicates", "times", ratio, "float64", 16, 2, 10 * few, "<= 12")
    ]


def memory(n: int) -> list[Row]:
    """Return the peak of a run of noisy gradient descent, by records, replicates and floating-point type."""
    rows: list[Row] = []
    if not STATUS.exists():
        print("Memory is measured on Linux only: left out.")
        return rows
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        for share in SHARES:
            # Stored data are in single precision.
            X, y = _typed(n // share, FEATURES, "float32")
            np.savez(data, X=X, y=y)
            for dtype, K in itertools.product(DTYPES, MEMORY_REPLICATES):
                command = [sys.executable, __file__, PEAK, str(data), dtype, str(K)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                before, peak = (float(word) for word in done.stdout.split())
                for measure, value in (("peak memory", peak), ("memory before the data", before)):
                    rows.append(Row("memory", "engine", measure, "MB", value, dtype, *X.shape, K))
    return rows


def print_peak(data: str, dtype: str, K: int) -> None:
    """Print the memory of this process before there are data, and its peak after a run, in MB."""
    before = _megabytes()
    with np.load(data) as stored:
        problem = risk(stored["X"], stored["y"], dtype)
    execute(planned("dp_gd", problem, T=STEPS), problem, seed=0, replicates=range(K))
    print(before, _megabytes())


def _megabytes() -> float:
    """Return the largest memory that this process had; that of its parent does not count, as it does for `resource`."""
    lines = STATUS.read_text(encoding="utf-8").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    chosen = parser(__doc__).parse_args(arguments)
    # There are many sizes.
    rows, rounds = [], -(-chosen.rounds // 2)
    for dtype in DTYPES:
        rows += times("full gradient", dtype, chosen.rows, STEPS, rounds)
        rows += times("one-sample loop", dtype, chosen.rows, chosen.steps // 4, rounds)
    write_rows(
        chosen.out / "growth.csv",
        rows + many_replicates(REPLICATES_PER_STEP * chosen.steps, rounds=1) + memory(chosen.rows),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [PEAK]:
        print_peak(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
