"""Time per replicate against Opacus, PyTorch and diffprivlib: part of `make bench`.

They live in an environment of their own (`make .venv-peers/.installed-peers`) and run in a process of it, in turns
with the engine and on one thread. Where they cannot be installed this says so and writes a table without rows. Written
to peers.csv.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from common import DTYPES, Job, Row, cpu, descent, in_turns, parser, records, risk, write_rows

from dprepro.arrays import TILE

ROOT = Path(__file__).parents[1]
WORKER = Path(__file__).with_name("peer_worker.py")
# How Opacus is asked for a full-batch step: records per slice, and how it finds gradients of single records.
WAYS = ((20_000, "hooks"), (4_000, "hooks"), (4_000, "ew"))
AIMS = {"float32": ">= 60", "float64": ">= 25"}
# A whole fit takes long.
FITS = 3


@dataclass(frozen=True)
class Worker:
    """A process in the environment of the peers that times what it is asked for."""

    requests: IO[str]
    answers: IO[str]
    versions: dict[str, str]

    def asked(self, **wish: object) -> Callable[[], float]:
        """Return a function that has the worker do this once and returns the CPU seconds it took there."""

        def seconds() -> float:
            print(json.dumps(wish), file=self.requests, flush=True)
            return float(_read(self.answers)["seconds"])

        return seconds


def _read(answers: IO[str]) -> dict[str, Any]:
    line = answers.readline()
    if not line:
        sys.exit("The process of the other libraries ended early: see its message above.")
    answer: dict[str, Any] = json.loads(line)
    return answer


@contextlib.contextmanager
def worker(python: Path, X: np.ndarray, y: np.ndarray) -> Iterator[Worker]:
    """Start the worker on these records; it ends when it is asked for nothing more."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, X=X, y=y)
        command = [python, WORKER, data]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield Worker(process.stdin, process.stdout, _read(process.stdout))


def steps(peers: Worker, X: np.ndarray, y: np.ndarray, dtype: str, rounds: int) -> list[Row]:
    """Compare one full-batch private step of the engine, Opacus and a plain PyTorch loop, per replicate."""
    n, d = X.shape
    names = {f"Opacus, slices of {min(rows, n):,}, {mode}": (min(rows, n), mode) for rows, mode in WAYS}
    at_once = "Opacus, all rows at once"
    found = in_turns(
        {
            "engine": cpu(descent(risk(X.astype(dtype), y.astype(dtype), dtype), 1)),
            "plain PyTorch": peers.asked(peer="torch", dtype=dtype),
            at_once: peers.asked(peer="opacus", dtype=dtype, rows=n, mode="hooks"),
            **{
                name: peers.asked(peer="opacus", dtype=dtype, rows=rows, mode=mode)
                for name, (rows, mode) in names.items()
            },
        },
        rounds,
    )
    found["engine"] /= TILE

    def row(variant: str, measure: str, unit: str, value: float, K: int = TILE, aim: str = "") -> Row:
        return Row("private step", variant, measure, unit, value, dtype, n, d, K, aim)

    def ratio(other: str, seconds: float, aim: str = "") -> Row:
        return row(f"engine / {other}", "speed", "ratio", seconds / found["engine"], aim=aim)

    return [
        *(
            row(name, "time per replicate-step", "ms", 1e3 * seconds, TILE if name == "engine" else 1)
            for name, seconds in found.items()
        ),
        ratio("plain PyTorch", found["plain PyTorch"]),
        ratio(at_once, found[at_once], AIMS[dtype]),
        ratio("Opacus, its fastest way here", min(found[name] for name in (at_once, *names)), AIMS[dtype]),
    ]


def fits(peers: Worker, X: np.ndarray, y: np.ndarray, rounds: int) -> list[Row]:
    """Compare a whole fit by objective perturbation: diffprivlib's and the engine's, both in double precision.

    Both add the same random linear term for the same epsilon. diffprivlib stops L-BFGS once no coordinate of the
    gradient exceeds 1e-4; the engine runs Newton's method until the gradient is 1e-6 of the noise, and fails otherwise.
    """
    n, d = X.shape
    job = Job.of("objective_perturbation", risk(X, y, "float64"), noise="gamma")
    found = in_turns({"engine": cpu(job), "diffprivlib": peers.asked(peer="diffprivlib")}, rounds)
    found["engine"] /= TILE

    def row(variant: str, measure: str, unit: str, value: float, K: int) -> Row:
        return Row("private fit", variant, measure, unit, value, "float64", n, d, K)

    return [
        row("engine, to the minimiser", "time per replicate", "ms", 1e3 * found["engine"], TILE),
        row("diffprivlib, to a gradient of 1e-4", "time per replicate", "ms", 1e3 * found["diffprivlib"], 1),
        row("engine / diffprivlib", "speed", "ratio", found["diffprivlib"] / found["engine"], TILE),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    options = parser(__doc__)
    options.add_argument("--peers", type=Path, default=ROOT / ".venv-peers", help="their environment")
    chosen = options.parse_args(arguments)
    rows: list[Row] = []
    X, y = records(chosen.rows)
    if not (chosen.peers / ".installed-peers").exists():
        print(
            "Opacus, PyTorch and diffprivlib could not be installed (`make .venv-peers/.installed-peers` says why): "
            "left out."
        )
    else:
        with worker(chosen.peers.absolute() / "bin" / "python", X, y) as peers:
            print("Beside " + ", ".join(f"{name} {number}" for name, number in peers.versions.items()))
            for dtype in DTYPES:
                rows += steps(peers, X, y, dtype, chosen.rounds)
            rows += fits(peers, X, y, min(FITS, chosen.rounds))
    write_rows(chosen.out / "peers.csv", rows)


if __name__ == "__main__":
    main()
