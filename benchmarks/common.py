"""What the benchmarks share: data, one thread, times taken in turns, rows of a table.

All files have the columns COLUMNS, one row per measured value. Ratios stand in rows of their own, beside the aim that
they were built for. An aim may be missed on another machine: rows say so, and no benchmark fails for it.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Plan, Setting
from dprepro.arrays import TILE, get_backend, single_blas_thread
from dprepro.files import write_text
from dprepro.geometry import RealSpace
from dprepro.losses import Logistic
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.regularizers import Regularizer
from dprepro.run import Execution

ROWS, FEATURES = 200_000, 54
DTYPES = ("float32", "float64")
EPSILON, DELTA, L2 = 1.0, 1e-3, 0.01


@dataclass(frozen=True)
class Row:
    """One measured value. `aim` is what a ratio should be, such as `>= 8`."""

    case: str
    variant: str
    measure: str
    unit: str
    value: float
    dtype: str = ""
    n: int | str = ""
    d: int | str = ""
    K: int | str = ""
    aim: str = ""

    @property
    def reached(self) -> str:
        """`yes` or `no`, nothing where there is no aim."""
        if not self.aim:
            return ""
        relation, number = self.aim.split()
        return "yes" if (self.value >= float(number) if relation == ">=" else self.value <= float(number)) else "no"


COLUMNS = (*(field.name for field in fields(Row)), "reached")


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as CSV and print them."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in rows:
        values = {name: getattr(row, name) for name in COLUMNS} | {"value": f"{row.value:.6g}"}
        table.writerow(values.values())
        aim = f"   (aim {row.aim}: {row.reached})" if row.aim else ""
        size = " ".join(f"{name}={getattr(row, name)}" for name in ("n", "d", "K") if getattr(row, name))
        print(
            f"{row.case:<24} {row.variant:<37} {row.dtype:<8} {size:<21} {row.measure:<27}"
            f"{row.value:>10.4g} {row.unit}{aim}"
        )
    write_text(path, text.getvalue())
    print(f"written: {path}\n")


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that every benchmark has."""
    found = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    found.add_argument("--out", type=Path, default=Path("results/benchmarks"), help="folder of the files")
    found.add_argument("--rows", type=int, default=ROWS, help="records of the data")
    found.add_argument("--rounds", type=int, default=9, help="how often each variant is measured")
    found.add_argument("--steps", type=int, default=2000, help="steps of a one-sample loop")
    return found


def in_turns(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each variant, measured in turns after a round that is not counted.

    A busy machine then disturbs all alike. Each variant returns the seconds that it took.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for _ in range(rounds + 1):
            for name, variant in variants.items():
                times[name].append(variant())
    return {name: float(np.median(values[1:])) for name, values in times.items()}


def cpu(action: Callable[[], Any]) -> Callable[[], float]:
    """Return a function that runs `action` and returns the CPU seconds of this process for it."""

    def seconds() -> float:
        started = time.process_time()
        action()
        return time.process_time() - started

    return seconds


def records(n: int, d: int = FEATURES) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm just below one, and labels that depend on them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-6)
    return X, np.where(X @ np.linspace(9.0, -3.0, d) + rng.normal(size=n) > 0, 1.0, -1.0)


def risk(X: np.ndarray, y: np.ndarray, dtype: str) -> EmpiricalRisk:
    """Return l2-regularised logistic regression on these records."""
    spec = ProblemSpec(*X.shape, Logistic(), Regularizer(l2=L2), RealSpace())
    return EmpiricalRisk(spec, X, y, get_backend("cpu", dtype))


def planned(name: str, problem: EmpiricalRisk, **letters: Any) -> Plan:
    """Return the plan of the algorithm `name` with these letters."""
    return get_algorithm(name).plan(Setting(problem.spec, EPSILON, DELTA), **letters)


@dataclass(frozen=True)
class Job:
    """An algorithm of the library with its plan on a problem, ready to run for a number of replicates."""

    plan: Plan
    problem: EmpiricalRisk
    judge: EmpiricalRisk

    @classmethod
    def of(cls, name: str, problem: EmpiricalRisk, **letters: Any) -> Job:
        """Return the job of the algorithm `name` with these letters."""
        # The double-precision twin that results are judged by is made once: it is no part of the algorithm's time.
        return cls(planned(name, problem, **letters), problem, problem.with_dtype("float64"))

    def __call__(self, replicates: int = TILE) -> None:
        """Run it: in full tiles, as the library does."""
        for first in range(0, replicates, TILE):
            slots = [r if r < replicates else None for r in range(first, first + TILE)]
            execution = Execution(self.plan, self.problem, 0, slots, self.judge)
            get_algorithm(self.plan.algorithm).run(self.plan, execution)


def descent(problem: EmpiricalRisk, steps: int) -> Job:
    """Return full-batch noisy gradient descent: every step takes the full gradient of every replicate."""
    return Job.of("dp_gd", problem, T=steps)


def one_sample_loop(problem: EmpiricalRisk, steps: int) -> Job:
    """Return DP-SGD on one record per step: noise, a random record and a step for every replicate."""
    return Job.of("dp_sgd", problem, T=steps, b=1, eta=0.1)
