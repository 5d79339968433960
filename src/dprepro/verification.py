"""`dprepro verify`: whether the files of a results folder are as they were written and belong together.

Every seal is recomputed, every link of the chain (see `digests`) is followed, and every certificate is computed again
from its plan. Jobs can be repeated and compared.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprepro import digests
from dprepro.algorithms import get_algorithm
from dprepro.errors import RunFailed, UserError
from dprepro.files import (
    check_job,
    job_file,
    jsonable,
    read_arrays,
    read_publication,
    read_record,
    read_result,
    unsealed,
)
from dprepro.privacy.certificate import certify, check_certified
from dprepro.sweeps import needs_minimum, optima_place, sweep_spec

# What a certificate says that follows from its plan; numbers may differ by this much on another machine.
_STATED = (
    *("algorithm", "variant", "adjacency", "epsilon_claimed", "delta", "epsilon_accounted", "epsilon_lower"),
    *("delta_at_claimed_epsilon", "accountant", "tight", "probability_record_sampled", "theorem", "conditions"),
    *("epsilon_advanced_composition", "constant_set_here", "events"),
)
ROUNDING = 1e-6
# On another processor a repeated job may differ by this share of its largest value.
OTHER_MACHINE = 1e-3
_NOT_COVERED = (
    "forgery: someone who edits a file can recompute its digest and those of everything derived from it",
    "optima, audits, findings and noise ratios are not recomputed, plans are not derived again from their jobs, "
    "refused settings are not tried again, figures and tables are not drawn again",
    "times, and the conclusions that the text of a table or caption draws from its numbers",
)


@dataclass
class Verified:
    """What was looked at: files by kind, problems as sentences, links that could not be followed, repeated jobs."""

    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    certificates: int = 0
    repeated: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    # Digests by the place of a file in the folder, without its suffix for sealed records.
    known: dict[str, str] = field(default_factory=dict)

    def place(self, path: Path) -> str:
        """Return the place of a file in the folder."""
        return path.relative_to(self.folder).as_posix()

    def check(self, kind: str, path: Path, look: Callable[[Path], None]) -> None:
        """Look at one file: `look` raises `UserError` for what is wrong with it besides its seal."""
        try:
            self.known[self.place(path)] = digests.check(path)
            look(path)
        except UserError as error:
            self.tell(str(error))
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            self.tell(f"The file {path} is damaged or foreign ({type(error).__name__}: {error}); {digests.AGAIN}.")
        if kind:
            self.counts[kind] += 1

    def tell(self, problem: str) -> None:
        """Note a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def follow(self, path: Path, made_from: str, digest: str) -> None:
        """Hold the digest that a file states of what it was made from against that file, if it is there."""
        found = self.known.get(made_from)
        if found is None:
            if (self.folder / made_from).exists():
                return  # a problem already
            self.loose.append(f"{self.place(path)} was made from {made_from}, which is not there")
        elif found != digest:
            raise digests.not_made_from(path, self.folder / made_from, digest, found)


def verify(folder: Path, *, rerun: int = 0, seed: int | None = None) -> Verified:
    """Look at every file of a results folder; repeat `rerun` of its jobs, chosen at random, and compare."""
    found = Verified(folder)
    for kind, pattern, look in _KINDS:
        for path in sorted(folder.glob(pattern)):
            if kind != "plans" or not path.name.endswith(".certificate.json"):
                found.check(kind, path, lambda path, look=look: look(found, path))  # type: ignore[misc]
    if not any(found.counts[kind] for kind in found.counts if kind != "job files"):
        raise UserError(f"The folder {folder} holds no results: give a folder that snakemake wrote, such as results.")
    made = [path for pattern in ("plans/*/*.json", "runs/*/*.json", "sweeps/*/*.json") for path in folder.glob(pattern)]
    unasked = [path for path in made if not job_file(path).exists() and not path.name.endswith(".certificate.json")]
    if unasked:
        found.loose.append(
            f"{len(unasked)} plans, runs and sweeps have no specification in {folder / 'jobs'}: whether they are of "
            "this configuration is not known"
        )
    for path in sorted(path for pattern in _BESIDE_A_RECORD for path in folder.glob(pattern)):
        if not path.with_suffix(".json").exists():
            found.tell(f"The file {path} has no record beside it that says what it was made from; {digests.AGAIN}.")
    _repeat_some(found, rerun, seed)
    return found


# Files that stand beside a record.
_BESIDE_A_RECORD = (
    *(f"tables/*.{suffix}" for suffix in ("csv", "md", "tex")),
    *(f"figures/*.{suffix}" for suffix in ("png", "pdf", "svg", "md")),
    *(f"privacy/*.{suffix}" for suffix in ("csv", "md", "png", "pdf", "svg")),
    *("datasets/*.npz", "runs/*/*.npz", "sweeps/*/*.npz"),
)


def _dataset(found: Verified, path: Path) -> None:
    from dprepro.stages.problem import FACTS, check_data

    facts = read_record(path, *FACTS, "made_by")
    _check_made_by(path, facts["made_by"])
    arrays = path.with_suffix(".npz")
    check_data(facts, read_result(arrays, "X", "y", record=facts), arrays)


def _optimum(found: Verified, path: Path) -> None:
    stated = read_arrays(path, "dataset", "problem", "made_by")
    _check_made_by(path, json.loads(str(stated["made_by"])))
    found.follow(path, f"datasets/{path.stem}.json", str(stated["dataset"]))
    for job in sorted((found.folder / "jobs" / path.parent.name).glob("*.json")):
        record = read_record(job)
        if record.get("dataset") == path.stem and digests.of_problem(record) != str(stated["problem"]):
            raise UserError(f"The optimum {path} is of another problem than {job}; {digests.AGAIN}.")


def _sealed(found: Verified, path: Path) -> None:
    """Nothing to look at but the seal."""


def _recorded(found: Verified, path: Path) -> None:
    _check_made_by(path, read_record(path, "made_by")["made_by"])


def _audit(found: Verified, path: Path) -> None:
    record = read_record(path, "job", "made_by")
    _check_made_by(path, record["made_by"])
    check_job(path, record["job"])


def _plan(found: Verified, path: Path) -> None:
    record = read_record(path, "job", "plan", "certificate", "refused", "made_from", "made_by")
    _check_made_by(path, record["made_by"])
    found.follow(path, f"datasets/{record['job']['dataset']}.json", record["made_from"]["dataset"])
    check_job(path, record["job"])
    beside = path.with_suffix(".certificate.json")
    certificate = read_record(beside, "made_from")
    stated = {key: value for key, value in unsealed(certificate).items() if key != "made_from"}
    wanted = record["certificate"] or {"refused": record["refused"]}
    if certificate["made_from"]["plan"] != record["digest"] or stated != wanted:
        raise UserError(f"The certificate {beside} is not that of the plan {path}: {digests.AGAIN}.")
    if not record["refused"]:
        _check_certificate(found, path, record, record["job"])


def _run(found: Verified, path: Path) -> None:
    record = read_record(path, "job", "plan", "certificate", "refused", "made_from", "provenance")
    plan = f"plans/{found.place(path).removeprefix('runs/')}"
    dataset = f"datasets/{record['job']['dataset']}.json"
    found.follow(path, plan, record["made_from"]["plan"])
    found.follow(path, dataset, record["made_from"]["dataset"])
    if plan in found.known:
        _check_copied(path, record, found.folder / plan, ("job", "plan", "certificate"))
    if dataset in found.known and record["dataset"] != read_record(found.folder / dataset):
        raise UserError(f"The run {path} does not state the facts of {found.folder / dataset}; {digests.AGAIN}.")
    read_result(path.with_suffix(".npz"), record=record)
    check_job(path, record["job"])
    if not record["refused"] and plan in found.known:
        # The certificate was recomputed for the plan, which does not know the size of the data.
        check_certified(record, record["job"], str(path))
    elif not record["refused"]:
        _check_certificate(found, path, record, record["job"])
    job = record["job"]
    _check_sources(path, record, "run", algorithm=job["algorithm"], loss=job["loss"])


def _sweep(found: Verified, path: Path) -> None:
    from dprepro.stages.collect import check_minima

    record = read_record(path, "job", "points", "made_from", "provenance")
    read_result(path.with_suffix(".npz"), record=record)
    spec = sweep_spec(record)
    check_job(path, spec)
    check_minima(path, record)
    if needs_minimum(spec):
        found.follow(path, optima_place(spec), record["made_from"]["optima"])
    for point in record["points"]:
        if not point["refused"]:
            _check_certificate(found, path, point, {**record["job"], **point["point"]})
    point = spec["points"][0]
    names = {"algorithm": spec["algorithm"], "dataset": point["dataset"]["name"], "loss": point["loss"]}
    _check_sources(path, record, "sweep", **names)


def _collected(found: Verified, path: Path) -> None:
    from dprepro.collected import read_collected

    _, metadata = read_collected(path)
    _check_gathered(found, path, metadata)


def _published(found: Verified, path: Path) -> None:
    record = read_publication(path)
    if path.parent.name != "privacy":
        # Figures of findings are drawn from the findings of their paper.
        places = [f"data/{name}.parquet" for name in (path.stem, f"{path.stem.split('_')[0]}_findings")]
        if other := sorted({*record["made_from"]} - {*places}):
            raise UserError(f"The files of {path} were made from {other[0]}, not from {places[0]}; {digests.AGAIN}.")
    _check_gathered(found, path, record)


def _check_gathered(found: Verified, path: Path, facts: Mapping[str, Any]) -> None:
    """Check what a table, a figure or the report says of its origin, and note what is missing in it."""
    found.incomplete += facts["incomplete"]
    _check_made_by(path, facts["made_by"])
    for place, digest in facts["made_from"].items():
        found.follow(path, place, digest)


def _report(found: Verified, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    stated = re.findall(r'<script type="application/json" id="made-from">(.*?)</script>', text)
    if len(stated) != 1:
        raise UserError(f"The report {path} does not say what it was made from; {digests.AGAIN}.")
    _check_gathered(found, path, json.loads(stated[0]))


_KINDS: tuple[tuple[str, str, Callable[[Verified, Path], None]], ...] = (
    ("job files", "jobs/**/*.json", _sealed),
    *(("", pattern, _sealed) for pattern in ("*s/**/*.npz", "plans/*/*.certificate.json")),
    ("datasets", "datasets/*.json", _dataset),
    ("optima", "optima/*/*.npz", _optimum),
    ("optima", "optima/*/*.json", _recorded),
    ("plans", "plans/*/*.json", _plan),
    ("runs", "runs/*/*.json", _run),
    ("sweeps", "sweeps/*/*.json", _sweep),
    ("audits", "privacy/audits/*.json", _audit),
    # Twice: the table of a paper is collected from those of its rows, which must be known before.
    ("", "data/*.parquet", _sealed),
    ("collected tables", "data/*.parquet", _collected),
    ("tables", "tables/*.json", _published),
    ("figures", "figures/*.json", _published),
    ("privacy tables", "privacy/*.json", _published),
    ("reports", "report.html", _report),
)


def _check_sources(path: Path, record: Mapping[str, Any], stage: str, **names: str) -> None:
    """Raise `UserError` if a run or sweep was made by other sources than those at hand."""
    _check_made_by(path, {"stage": stage, **names, "digest": record["provenance"]["sources"]})


def _check_made_by(path: Path, made_by: Mapping[str, str]) -> None:
    """Raise `UserError` if a result was made by other sources than those at hand."""
    from dprepro.workflow import code

    names = {key: value for key, value in made_by.items() if key != "digest"}
    if code(**names) != made_by["digest"]:
        raise UserError(
            f"The result {path} was made by another version of the sources: run snakemake again, or "
            "remove it if no job of the configuration makes it."
        )


def _check_certificate(found: Verified, path: Path, record: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """Raise `UserError` unless the certificate of a plan is the one that is computed from it now."""
    stated = record["certificate"]
    check_certified(record, job, str(path))
    plan = get_algorithm(record["plan"]["algorithm"]).plan_type.from_json(record["plan"])
    again = jsonable(certify(plan, compare=False))
    for key in _STATED:
        if not _same(stated[key], again[key]):
            raise UserError(
                f"The certificate in {path} states {key} = {stated[key]}, but its plan gives {again[key]}; "
                f"{digests.AGAIN}."
            )
    # To find how loose it is takes too long: the rest of the verdict is compared, its numbers are those above.
    if _kind_of(stated["verdict"]) != _kind_of(again["verdict"]):
        raise UserError(
            f"The certificate in {path} has the verdict {stated['verdict']!r}, but its plan gives "
            f"{again['verdict']!r}; {digests.AGAIN}."
        )
    found.certificates += 1


def _kind_of(verdict: str) -> str:
    return verdict.partition(" (")[0].removesuffix(", loose")


def _check_copied(path: Path, record: Mapping[str, Any], source: Path, keys: Sequence[str]) -> None:
    """Raise `UserError` unless a record has these keys as the record that it has them from."""
    wanted = read_record(source, *keys)
    for key in keys:
        if record[key] != wanted[key]:
            raise UserError(
                f"The file {path} has another {key} than {source}, from which it was made; {digests.AGAIN}."
            )


def _same(a: Any, b: Any, within: float = ROUNDING) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key], within) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(one, other, within) for one, other in zip(a, b, strict=True))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= within * max(abs(a), abs(b))
    return bool(a == b)


def _repeat_some(found: Verified, count: int, seed: int | None) -> None:
    """Run jobs again and compare what they write."""
    jobs = sorted([*found.folder.glob("runs/*/*.json"), *found.folder.glob("sweeps/*/*.json")])
    if found.problems and count:
        found.loose.append("no job was repeated, for there are problems")
        return
    for path in random.Random(seed).sample(jobs, min(count, len(jobs))):
        place = found.place(path)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "again.npz"
            try:
                _repeat(found, path, out)
            except UserError as error:
                found.tell(f"The job of {place} cannot be repeated: {error}")
                continue
            same = digests.check(out) == digests.check(path.with_suffix(".npz"))
            told = "identical" if same else _difference(path, out)
            if not _same(_lasting(path), _lasting(out.with_suffix(".json")), ROUNDING if same else OTHER_MACHINE):
                told = ""
        (found.repeated if told else found.differing).append(f"{place}: {told}" if told else place)


# What a record says of the process that wrote it, and of the files beside it.
_PASSING = ("provenance", "cost", "started", "seconds", "seconds_cpu", "file", "digest", "arrays", "made_by")


def _lasting(path: Path) -> dict[str, Any]:
    """Return what the record of a job says of its result, which a second process must say again."""
    record = {key: value for key, value in read_record(path).items() if key not in _PASSING}
    points = [{key: value for key, value in point.items() if key not in _PASSING} for point in record.get("points", ())]
    return {**record, "points": points}


def _repeat(found: Verified, path: Path, out: Path) -> None:
    record = read_record(path, "job")
    if "points" not in record:
        from dprepro.stages.run import run_job

        plan = found.folder / "plans" / path.relative_to(found.folder / "runs")
        run_job(plan, found.folder / "datasets" / f"{record['job']['dataset']}.npz", out)
        return
    from dprepro.stages.sweep import run_sweep

    spec = sweep_spec(record)
    optima = found.folder / optima_place(spec) if needs_minimum(spec) else None
    run_sweep(spec, optima, out, record["provenance"]["sources"])


def _difference(path: Path, out: Path) -> str:
    """Return how a repeated job differs where rounding of another machine explains it; nothing where it does not."""
    import numpy as np

    made, here = (read_record(file, "provenance")["provenance"] for file in (path, out.with_suffix(".json")))
    if all(made[key] == here[key] for key in ("processor", "cpu_kernels", "numpy", "blas", "backend", "device")):
        return ""
    before, after = read_arrays(path.with_suffix(".npz")), read_arrays(out)
    worst = 0.0
    for name, values in before.items():
        if values.shape != after[name].shape or not np.array_equal(np.isfinite(values), np.isfinite(after[name])):
            return ""
        with np.errstate(invalid="ignore"):
            apart = np.nanmax(np.abs(after[name] - values), initial=0.0)
        worst = max(worst, float(apart) / (float(np.nanmax(np.abs(values), initial=0.0)) or 1.0))
    return f"within {worst:.1g} (made on another machine or with other kernels)" if worst <= OTHER_MACHINE else ""


def lines(found: Verified) -> Iterator[str]:
    """Yield what was found, and at the end what is covered and what is not."""
    for kind, count in found.counts.items():
        yield f"{kind:<18} {count}"
    yield from (f"not followed       {loose}" for loose in found.loose)
    yield from (f"incomplete         {gap}" for gap in dict.fromkeys(found.incomplete))
    yield from (f"repeated           {told}" for told in found.repeated)
    jobs = found.counts["runs"] + found.counts["sweeps"]
    done = len(found.repeated) + len(found.differing)
    yield (
        f"covered            digests of all files above and their links; {found.certificates} certificates "
        f"recomputed from their plans; {done} of {jobs} jobs repeated"
    )
    for text in _NOT_COVERED:
        yield f"not covered        {text}"


def print_verified(folder: Path, rerun: int, seed: int | None) -> None:
    """Print what `verify` finds; problems are a `UserError`, jobs that do not repeat a `RunFailed`."""
    found = verify(folder, rerun=rerun, seed=seed)
    for line in lines(found):
        print(line)
    for problem in found.problems:
        print(f"problem            {problem}")
    if found.problems:
        count = len(found.problems)
        raise UserError(
            f"The results in {folder} cannot be trusted ({count} {'problem' if count == 1 else 'problems'}): "
            f"{found.problems[0]}"
        )
    if found.differing:
        raise RunFailed(f"Repeating {found.differing[0]} on this machine gave other numbers than those of {folder}.")
