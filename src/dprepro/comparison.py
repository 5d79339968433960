"""`dprepro compare`: two folders of results, for example of two machines, number by number."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dprepro import digests, escape
from dprepro.analysis.compare import (
    ALPHA,
    BEYOND,
    ONLY_A,
    ONLY_B,
    OUTCOMES,
    UNJUDGED,
    Judged,
    Judgement,
    Value,
    compare,
    exact,
)
from dprepro.errors import RunFailed, UserError
from dprepro.files import check_job, jsonable, read_publication, read_record
from dprepro.sweeps import SECONDS, sweep_spec

if TYPE_CHECKING:
    import pandas as pd

# The columns that say what a row of a table is about.
_ABOUT = ("part", "experiment", "problem", "dataset", "algorithm", "method", "case", "variant", "quantity", "finding")
_AT = ("epsilon_claimed", "epsilon", "delta", "n", "d")
# Numbers that are computed, not estimated: they may differ by rounding only.
_COMPUTED = (
    "theory",
    "theory_with_logarithms",
    "epsilon_accounted",
    "epsilon_lower",
    "epsilon_advanced_composition",
    "delta_at_claimed_epsilon",
    "sigma",
    "noise_ratio",
    "probability_record_sampled",
    "gap_at_zero",
    "gradient_evaluations",
    "samples_over_n",
    "evaluations_over_n",
    "runs_from_n",
    "useful_from_n",
)
# Numbers that come from runs and have no interval.
_BARE = ("epsilon_audited", "epsilon_clopper_pearson", "epsilon_tradeoff", "failed", "last_error_over_start")
_VERDICTS = ("verdict", "privacy")
# What may differ between two runs of one configuration: chance, the number of draws, where it ran, and names.
_FREE = frozenset({"seed", "tuning_seed", "replicates", "tile", "device", "dtype", "label", "title"})
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
# The origin under which tables stand that lack something.
INCOMPLETE = "incomplete"
# What is shown of the list of changes that are only told, not counted.
_SHOWN = 10


class Place(NamedTuple):
    """Where a number stands: the file, what its row or point is about, which of the rows alike, and the column."""

    file: str
    about: str
    rank: int
    column: str

    def __str__(self) -> str:
        again = f" (number {self.rank + 1} of its kind)" if self.rank else ""
        return f"{self.file}: {self.about}{again}: {self.column}"


@dataclass(frozen=True)
class Results:
    """What a folder of results holds: numbers, times and verdicts by their place, and where they come from."""

    folder: str
    files: frozenset[str]
    numbers: Mapping[Place, Value]
    times: Mapping[Place, float]
    verdicts: Mapping[Place, str]
    origins: Mapping[str, frozenset[str]]
    jobs: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Change:
    """A verdict that is not the same."""

    place: Place
    a: str
    b: str


@dataclass(frozen=True)
class Comparison:
    """All that `dprepro compare` says."""

    a: Results
    b: Results
    judgement: Judgement[Place]
    verdicts: tuple[Change, ...]
    contradictions: tuple[str, ...]

    @property
    def differences(self) -> int:
        """The number of findings by which the results are not the same."""
        return len(self.judgement.having(BEYOND)) + len(self.contradictions)


@dataclass
class _Reading:
    """What has been read so far of a folder."""

    numbers: dict[Place, Value] = field(default_factory=dict)
    times: dict[Place, float] = field(default_factory=dict)
    verdicts: dict[Place, str] = field(default_factory=dict)
    origins: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    files: set[str] = field(default_factory=set)


def read_results(folder: Path) -> Results:
    """Read all tables, certificates, audits and collected data of a folder.

    Raises `UserError` for a folder without results, and for files that are not as they were written.
    """
    if not os.path.isdir(folder):
        raise UserError(f"There is no folder {folder}: give a folder of results, such as results/smoke.")
    tables = [*sorted(folder.glob("tables/*.csv")), *sorted(folder.glob("privacy/*.csv"))]
    data = sorted(folder.glob("data/*.parquet"))
    if not tables and not data:
        raise UserError(f"The folder {folder} holds no tables and no data: give a folder that snakemake wrote.")
    reading = _Reading()
    names = {path.stem for path in tables}
    for path in tables:
        _read_table(path, names, reading)
    for path in data:
        _read_data(path, reading)
    jobs = dict(_read_jobs(folder, reading))
    origins = {key: frozenset(values) for key, values in reading.origins.items()}
    files = frozenset(reading.files)
    return Results(str(folder), files, reading.numbers, reading.times, reading.verdicts, origins, jobs)


def _read_table(path: Path, tables: set[str], reading: _Reading) -> None:
    file = f"{path.parent.name}/{path.name}"
    reading.files.add(file)
    record = read_publication(path.with_suffix(""))
    digests.check_made_from(path, record["made_from"], path.parents[1])
    if record["incomplete"]:
        reading.origins[INCOMPLETE].add(file)
    rows = _csv_rows(path)
    ranks: Counter[str] = Counter()
    # Rows alike are told apart by their content, in whatever order they stand.
    for row in sorted(rows, key=lambda row: [_sortable(cell) for cell in row.values()]):
        if row.get("part") in tables:
            continue  # A copy of a row of that table.
        about = _about(row)
        rank = ranks[about]
        ranks[about] += 1
        _read_row(row, lambda column, about=about, rank=rank: Place(file, about, rank, column), reading)


def _read_row(row: Mapping[str, str], place: Any, reading: _Reading) -> None:
    if "measured" in row:
        numbers = [_number(row.get(column, "")) for column in ("measured", "ci_low", "ci_high", "replicates")]
        if row.get("quantity", "").startswith(SECONDS):
            reading.times[place("measured")] = numbers[0]
        else:
            reading.numbers[place("measured")] = Value(*numbers)
    for column in _COMPUTED:
        if column in row:
            reading.numbers[place(column)] = exact(_number(row[column]))
    for column in _BARE:
        if column in row:
            reading.numbers[place(column)] = Value(_number(row[column]))
    # The time of a run decides what is said of it.
    if not row.get("quantity", "").startswith(SECONDS):
        reading.verdicts.update({place(column): row[column] for column in _VERDICTS if column in row})


def _csv_rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            csv.field_size_limit(2**30)
            rows = list(csv.DictReader(lines, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"The table {path} cannot be read ({error}): make it again.") from None
    if any(None in row or None in row.values() for row in rows) or (rows and "verdict" not in rows[0]):
        raise UserError(f"The table {path} is damaged or none of dprepro: make it again.")
    return [{column: escape.uncell(text) for column, text in row.items()} for row in rows]


def _about(row: Mapping[str, str]) -> str:
    names = [row[column] for column in _ABOUT if row.get(column)]
    settings = [f"{column.removesuffix('_claimed')} = {_rounded(row[column])}" for column in _AT if row.get(column)]
    return ", ".join([*names, *dict.fromkeys(settings)])


def _rounded(cell: str) -> str:
    """Return a setting as text; of a computed one, such as delta = n^-2, the last digits are those of the machine."""
    number = _number(cell)
    return cell if math.isnan(number) else f"{number:.6g}"


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _sortable(cell: str) -> tuple[int, float, str]:
    number = _number(cell)
    return (1, 0.0, cell) if math.isnan(number) else (0, number, "")


def _read_data(path: Path, reading: _Reading) -> None:
    """Add the mean of every point of a sweep or curve over its replicates, with Student's interval."""
    from dprepro.collected import read_current

    try:
        frame, metadata = read_current(path)
    except KeyError:
        raise UserError(f"The table {path} is none of dprepro: remove it.") from None
    file = f"data/{path.name}"
    for origin in metadata["origins"]:
        for key, value in origin.items():
            reading.origins[key].add(str(value))
    by, value = _points(str(metadata.get("kind", "")))
    # Parts are copies of other tables; what findings draw has no replicates.
    if not by or not {*by, value, "seconds"} <= set(frame.columns):
        return
    reading.files.add(file)
    for at, rows in frame.groupby(by, sort=False):
        about = ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in at if part != "")
        reading.numbers[Place(file, about, 0, f"mean {value}")] = _mean(rows[value])
        reading.times[Place(file, about, 0, "seconds")] = float(rows["seconds"].mean())


def _points(kind: str) -> tuple[list[str], str]:
    """Return by which columns the points of a collected table are told apart, and what is measured there."""
    if kind == "sweeps":
        return ["job", "axis", "axis_value", "member"], "value"
    return (["job", "checkpoint"], "gap") if kind == "curves" else ([], "")


def _mean(values: pd.Series) -> Value:
    """Return the mean with its interval: infinite if a replicate is not finite, NaN if none is (a refused point)."""
    import numpy as np

    from dprepro.analysis.intervals import mean_interval

    found = values.to_numpy(dtype=float)
    if not np.isfinite(found).any():
        return Value(math.nan)
    interval = mean_interval(found)
    return Value(interval.mean, interval.low, interval.high, float(found.size))


def _read_jobs(folder: Path, reading: _Reading) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the settings of every job with its seeds; note what machines ran them."""
    for path in sorted([*folder.glob("runs/*/*.json"), *folder.glob("sweeps/*/*.json")]):
        record = read_record(path)
        try:
            check_job(path, record["job"] if "points" not in record else sweep_spec(record))
            for key in ("dprepro", "python", "numpy", "blas", "system", "processor", "cpu_kernels", "cores", "commit"):
                reading.origins[key].add(str(record["provenance"].get(key, "unknown")))
            points = [point["point"] for point in record.get("points", [])]
            yield str(path.relative_to(folder).with_suffix("")), {**record["job"], "points": points}
        except (KeyError, TypeError):
            raise UserError(f"The file {path} is no record of a run: remove it and make it again.") from None


def compare_results(a: Results, b: Results, tolerance: float, each: bool) -> Comparison:
    """Compare two results; a `UserError` if they are of different versions or configurations."""
    _check_comparable(a, b)
    judgement = compare(a.numbers, b.numbers, tolerance, each)
    if len(judgement.having(ONLY_A)) + len(judgement.having(ONLY_B)) == len(judgement.rows):
        raise UserError(f"{a.folder} and {b.folder} have no number in common: compare results of one configuration.")
    changed = [
        Change(place, a.verdicts[place], b.verdicts[place])
        for place in a.verdicts
        if place in b.verdicts and _words(a.verdicts[place]) != _words(b.verdicts[place])
    ]
    findings = [f"{c.place}: {c.a!r} in a, {c.b!r} in b" for c in changed if c.place.file.endswith("_findings.csv")]
    audits = [*_refuted(a, b, "a", "b"), *_refuted(b, a, "b", "a")]
    return Comparison(a, b, judgement, tuple(changed), (*findings, *audits))


def _check_comparable(a: Results, b: Results) -> None:
    versions = [results.origins.get("dprepro", frozenset()) for results in (a, b)]
    if all(versions) and versions[0] != versions[1]:
        raise UserError(
            f"{a.folder} was made by dprepro {_listed(versions[0])}, {b.folder} by dprepro {_listed(versions[1])}: "
            "compare results of one version."
        )
    for name in a.jobs:
        if name in b.jobs and (other := _other_keys(a.jobs[name], b.jobs[name]) - _FREE):
            raise UserError(
                f"{a.folder} and {b.folder} are of different configurations, for {name} differs in {sorted(other)[0]}: "
                "compare results of one configuration."
            )


def _words(verdict: str) -> str:
    """Return what a verdict says but for its numbers."""
    return _NUMBER.sub("#", verdict)


def _refuted(audited: Results, accounted: Results, one: str, other: str) -> Iterator[str]:
    """Yield the epsilons accounted in one result that an audit in the other proves wrong."""
    for place, proven in audited.numbers.items():
        if place.file == "privacy/audit.csv" and place.column == "epsilon_audited":
            claim = accounted.numbers.get(place._replace(column="epsilon_accounted"))
            if claim is not None and proven.mean > claim.mean:
                yield (
                    f"{place.file}: {place.about}: the audit of {one} proves epsilon {proven.mean:g}, {other} accounts "
                    f"for {claim.mean:g}"
                )


def settings_lines(a: Results, b: Results) -> list[str]:
    """Return what is not the same in commits, versions, machines, seeds and settings."""
    lines = []
    for key in sorted({*a.origins, *b.origins}):
        ours, theirs = a.origins.get(key, frozenset()), b.origins.get(key, frozenset())
        if key == INCOMPLETE:
            lines += [
                f"incomplete in {side}: {', '.join(sorted(files))}"
                for side, files in (("a", ours), ("b", theirs))
                if files
            ]
        elif ours != theirs:
            lines.append(f"{key}: {_listed(ours)} in a, {_listed(theirs)} in b")
    common = [name for name in a.jobs if name in b.jobs]
    keys = Counter(key for name in common for key in _other_keys(a.jobs[name], b.jobs[name]))
    lines += [f"{key}: not the same in {number} of {len(common)} jobs" for key, number in sorted(keys.items())]
    return lines


def _other_keys(a: Mapping[str, Any], b: Mapping[str, Any]) -> set[str]:
    """Return the settings of a job that are not the same; those of its points are called points, but for seeds."""
    keys = {key for key in {*a, *b} - {"points"} if a.get(key) != b.get(key)}
    seeds = [[point.get("seed") for point in job["points"]] for job in (a, b)]
    plain = [[{**point, "seed": 0, "tuning_seed": 0} for point in job["points"]] for job in (a, b)]
    if plain[0] != plain[1]:
        keys.add("points")
    elif seeds[0] != seeds[1]:
        keys.add("seed")
    return keys


def _listed(values: frozenset[str]) -> str:
    return " and ".join(value[:12] if len(value) == 40 else value for value in sorted(values)) or "not known"


def report(found: Comparison) -> str:
    """Return the comparison as text: a summary, then all that differs beyond its interval, then what is only told."""
    counts, judged = found.judgement.counts(), found.judgement
    lines = [
        f"a: {found.a.folder}",
        f"b: {found.b.folder}",
        *_indented("not the same", settings_lines(found.a, found.b)),
    ]
    lines.append(f"{len(judged.rows)} numbers in {len(found.a.files | found.b.files)} files:")
    lines += [f"  {outcome:<28} {counts[outcome]:>6}" for outcome in OUTCOMES]
    lines.append(
        f"{judged.alone} of {judged.estimates} estimates would be called different if looked at alone; "
        f"of independent runs about {ALPHA * judged.estimates:.0f} are so by chance"
    )
    lines += _speed_lines(found.a, found.b)
    lines.append(f"{found.differences or 'no'} differences beyond intervals")
    lines += _indented("contradictions", list(found.contradictions), shown=None)
    lines += _indented("beyond their intervals", [_pair(row) for row in judged.having(BEYOND)], shown=None)
    lines += _indented("verdicts in other words", [f"{c.place}: {c.a!r} in a, {c.b!r} in b" for c in found.verdicts])
    lines += _indented("exponents of times", _time_exponents(found.a, found.b))
    lines += _indented("files only in a", sorted(found.a.files - found.b.files))
    lines += _indented("files only in b", sorted(found.b.files - found.a.files))
    return "\n".join(lines)


def _indented(title: str, lines: Sequence[str], shown: int | None = _SHOWN) -> list[str]:
    if not lines:
        return []
    rest = [f"  ... and {len(lines) - shown} more"] if shown is not None and len(lines) > shown else []
    return [f"{title}:", *(f"  {line}" for line in lines[:shown]), *rest]


def _speed_lines(a: Results, b: Results) -> list[str]:
    """Return how the CPU times of points stand to each other; they are never differences."""
    ratios = sorted(
        b.times[place] / a.times[place]
        for place in a.times
        if place in b.times and place.column == "seconds" and a.times[place] > 0.0 and b.times[place] > 0.0
    )
    if not ratios:
        return []
    middle = ratios[len(ratios) // 2]
    return [f"b takes {middle:.2g} times as long as a (median of {len(ratios)} points; times are never differences)"]


def _time_exponents(a: Results, b: Results) -> list[str]:
    return [
        f"{place}: {a.times[place]:.3g} in a, {b.times[place]:.3g} in b"
        for place in a.times
        if place in b.times and place.column == "measured"
    ]


def _pair(row: Judged[Place]) -> str:
    return f"{row.key}\n    a {_shown(row.a)}\n    b {_shown(row.b)}"


def _shown(value: Value | None) -> str:
    if value is None:
        return "(none)"
    return f"{value.mean:.6g} [{value.low:.6g}, {value.high:.6g}]" if value.random else f"{value.mean:.10g}"


def as_json(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain values."""
    judged = found.judgement
    return {
        "a": found.a.folder,
        "b": found.b.folder,
        "not_the_same": settings_lines(found.a, found.b),
        "counts": judged.counts(),
        "estimates": judged.estimates,
        "different_by_themselves": judged.alone,
        "expected_by_chance": ALPHA * judged.estimates,
        "beyond": [_row_json(row) for row in judged.having(BEYOND)],
        "without_intervals": [_row_json(row) for row in judged.having(UNJUDGED)],
        "only_in_a": [row.key._asdict() for row in judged.having(ONLY_A)],
        "only_in_b": [row.key._asdict() for row in judged.having(ONLY_B)],
        "verdicts": [{**change.place._asdict(), "a": change.a, "b": change.b} for change in found.verdicts],
        "contradictions": list(found.contradictions),
        "times": [
            {**place._asdict(), "a": found.a.times[place], "b": found.b.times[place]}
            for place in found.a.times
            if place in found.b.times
        ],
    }


def _row_json(row: Judged[Place]) -> dict[str, Any]:
    values = {name: asdict(value) if value else None for name, value in (("a", row.a), ("b", row.b))}
    return {**row.key._asdict(), **values}


def print_comparison(a: Path, b: Path, *, tolerance: float, each: bool, in_json: bool) -> None:
    """Print a comparison; `RunFailed` if something differs beyond its interval."""
    if not 0.0 <= tolerance < 1.0:
        raise UserError(f"--tolerance is {tolerance:g}: give a number from 0 to below 1.")
    found = compare_results(read_results(a), read_results(b), tolerance, each)
    print(json.dumps(jsonable(as_json(found)), indent=2) if in_json else report(found), flush=True)
    if found.differences:
        raise RunFailed(f"{found.differences} differences between {a} and {b} are beyond intervals: they are listed.")
