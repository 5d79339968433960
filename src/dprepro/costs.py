"""What jobs took: from the benchmarks that Snakemake writes, and in words."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
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
