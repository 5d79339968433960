"""What jobs took: from the benchmarks that Snakemake writes, what they usually take, and in words."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from importlib import resources
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, CPU seconds and megabytes at most; None where they were not recorded."""

    seconds: float | None = None
    cpu_seconds: float | None = None
    megabytes: float | None = None


def own_cost() -> dict[str, float]:
    """Return the CPU seconds and most megabytes of this process so far, to be kept with its result as `cost`.

    Snakemake looks at a long job every half minute only, and misses what comes after its last look.
    """
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"cpu_seconds": time.process_time(), "megabytes": peak / 2**20}


def read_cost(path: str | os.PathLike[str]) -> Cost:
    """Return the last record of a benchmark; nothing is known of a job without one, or with one that is damaged."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        record = dict(zip(lines[0].split("\t"), lines[1:][-1].split("\t"), strict=True))
    except (OSError, ValueError, IndexError):
        return Cost()
    return Cost(*(_number(record.get(key)) for key in ("s", "cpu_time", "max_rss")))


def usual_seconds(benchmark: str | os.PathLike[str]) -> float | None:
    """Return what jobs of the same kind and experiment usually take; None of an unknown kind or experiment."""
    kind, name = kind_of(benchmark)
    return _usual().get(kind, {}).get(name)


def guessed_seconds(benchmark: str | os.PathLike[str]) -> float | None:
    """Return what jobs of the same kind take, on the mean over the experiments; None of an unknown kind."""
    known = _usual().get(kind_of(benchmark)[0], {})
    return sum(known.values()) / len(known) if known else None


def kind_of(benchmark: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the kind of a job, such as `runs`, and its experiment, from .../benchmarks/KIND/EXPERIMENT[/JOB].tsv."""
    parts = Path(os.fspath(benchmark).removesuffix(".tsv")).parts
    kind, name, *_ = (*parts[len(parts) - parts[::-1].index("benchmarks") :], "") if "benchmarks" in parts else ("", "")
    return kind, name


@functools.cache
def _usual() -> dict[str, dict[str, float]]:
    """Return the mean seconds of jobs by kind and experiment, in a run of the default configuration."""
    table = resources.files("dprepro").joinpath("costs.json").read_text(encoding="utf-8")
    return dict(json.loads(table)["seconds"])


def measured(results: Path) -> dict[str, dict[str, float]]:
    """Return the mean seconds of the jobs of finished results, by kind and experiment, to two digits."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for path in sorted((results / "benchmarks").glob("**/*.tsv")):
        if (seconds := read_cost(path).seconds) is not None:
            times[kind_of(path)].append(seconds)
    means: dict[str, dict[str, float]] = defaultdict(dict)
    for (kind, name), values in sorted(times.items()):
        means[kind][name] = float(f"{sum(values) / len(values):.2g}")
    return dict(means)


def _number(text: str | None) -> float | None:
    """Return a number; Snakemake writes NA for a job that ended before it looked."""
    try:
        return float(text or "")
    except ValueError:
        return None


def duration(seconds: float) -> str:
    """Return a duration in the units that one would say: 0.3 s, 40 s, 6 min, 2 h 05 min."""
    if round(seconds) < 100:
        return f"{seconds:.1f} s" if seconds < 9.95 and seconds != round(seconds) else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
