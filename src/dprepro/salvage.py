"""What is still made after a job has failed: tables, figures and the report, from the results that are there.

The workflow's `onerror` writes down the commands that gather and show results and were not carried out: because they
wait for a failed job, or failed themselves. Each of them is run here with those of its inputs that exist and can be
trusted, and marks what it writes as incomplete, with the reasons. What is written is dated 1970, older than any input,
so that the next call of Snakemake makes it again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dprepro import digests
from dprepro.errors import RunFailed, UserError
from dprepro.files import read_record

# Options that name inputs of which some may be missing.
_INPUTS = ("runs", "optima", "plans", "audits", "data")


# On the terminal jobs with the same reason are named up to this number.
_NAMED = 3


class _NothingThere(UserError):
    """None of the inputs of a step can be used: what is wrong with them says why."""


def grouped(missing: Iterable[tuple[str, str]], most: int | None = None) -> list[str]:
    """Return a sentence for each reason, with the jobs that failed for it, at most so many of them by name.

    `missing` has pairs (job, reason).
    """
    jobs: dict[str, list[str]] = {}
    for job, reason in missing:
        jobs.setdefault(reason, []).append(job)
    sentences = []
    for reason, names in jobs.items():
        more = f" and {len(names) - most} more" if most and len(names) > most else ""
        sentences.append(f"{', '.join(names[:most])}{more}: {reason}")
    return sentences


def salvage(
    steps: Sequence[Mapping[str, Any]], lost: Sequence[Sequence[str]], outdated: Collection[Path]
) -> tuple[list[Path], list[tuple[str, str]]]:
    """Run each step; return the files that were written and everything that is missing, as pairs (job, reason).

    A step has the words of its `command`, its `outputs`, its `name`, the `gaps` in its inputs, and under `failed`
    whether it failed itself. `lost` has all jobs that failed, with the reason of each. Files that these and the steps
    had made before are `outdated`: they are ignored until a step writes them again.
    """
    written: list[Path] = []
    missing = [(job, reason) for job, reason in lost]
    seen: set[str] = set()
    for step in steps:
        outputs = [Path(file) for file in step["outputs"]]
        # Of an earlier run: it must not pass for a result of this one.
        _remove(outputs)
        gaps: list[str] = list(step["gaps"])
        error = ""
        try:
            _run(step, gaps, missing, {*outdated} - {*written})
        except Exception as raised:
            # Whatever is wrong with one table, the others are made.
            error = "" if isinstance(raised, _NothingThere) and step["gaps"] else _sentence(raised)
            _remove(outputs)
            outputs = []
        found = [gap for gap in gaps[len(step["gaps"]) :] if gap not in seen]
        seen |= {*found}
        if step["failed"] and found:
            # What was wrong with its inputs says more than that it failed.
            missing = [(job, reason) for job, reason in missing if job != step["name"]]
        if error and not step["failed"]:
            found.append(error)
        missing += [(step["name"], gap) for gap in found]
        for file in outputs:
            os.utime(file, (1.0, 1.0))
        written += outputs
    return written, missing


def _run(
    step: Mapping[str, Any], gaps: list[str], missing: Sequence[tuple[str, str]], outdated: Collection[Path]
) -> None:
    """Run a step, which adds to its gaps what it leaves out; the report tells of all that is missing."""
    from dprepro.cli import build_parser

    options = build_parser().parse_args(step["command"])
    for name in _INPUTS:
        _keep_existing(options, name, outdated)
    options.gaps = gaps
    if step["command"][0] == "report":
        options.spec, left_out = present(options.spec, options.results, outdated)
        options.gaps = [*grouped(missing), *left_out]
    options.command(options)


def _keep_existing(options: argparse.Namespace, name: str, outdated: Collection[Path]) -> None:
    files = getattr(options, name, None)
    if not isinstance(files, list):
        if isinstance(files, Path) and files in outdated:
            raise _NothingThere("none of its inputs can be used.")
        return
    found = [file for file in files if file not in outdated and file.exists() and _twin(file).exists()]
    if files and not found:
        raise _NothingThere("none of its inputs can be used.")
    setattr(options, name, found)


def _twin(file: Path) -> Path:
    """Return the file without which an input is not whole: the record beside the arrays of a run."""
    record = file.with_suffix(".json")
    return record if file.suffix == ".npz" and file.parent.parent.name in ("runs", "sweeps") else file


def present(spec: Mapping[str, Any], results: Path, outdated: Collection[Path]) -> tuple[dict[str, Any], list[str]]:
    """Return the specification of a report without what is not there, and sentences on what it leaves out for that.

    These are experiments and findings without their table, figures, the tables of privacy, jobs and audits.
    """

    def there(*places: str) -> bool:
        records = [results / f"{place}.json" for place in places]
        return all(record not in outdated and _trusted(record) for record in records)

    lost: list[str] = []

    def drawn(figures: Sequence[str]) -> list[str]:
        found = [name for name in figures if there(f"figures/{name}")]
        lost.extend(f"the figure {name}" for name in figures if name not in found)
        return found

    folders = {"curves": "runs", "sweeps": "sweeps"}
    experiments = [
        {
            **entry,
            "figures": drawn(entry["figures"]),
            "jobs": [job for job in entry["jobs"] if there(f"{folders[entry['kind']]}/{entry['name']}/{job}")],
        }
        for entry in spec["experiments"]
        if there(f"tables/{entry['name']}")
    ]
    kept = {entry["name"] for entry in experiments}
    findings = {
        paper: drawn(figures)
        for paper, figures in spec["findings"].items()
        if there(f"tables/{paper.lower()}_findings")
    }
    privacy = there("privacy/certificates", "privacy/audit")
    attacked: Mapping[str, str] = {}
    if privacy:
        attacked = read_record(results / "privacy/audit.json", "made_from")["made_from"]
    lost += [entry["name"] for entry in spec["experiments"] if entry["name"] not in kept]
    lost += [f"the findings on {paper}" for paper in spec["findings"] if paper not in findings]
    lost += [] if privacy else ["certificates and audits"]
    found = {
        **spec,
        "experiments": [{**entry, "parts": [part for part in entry["parts"] if part in kept]} for entry in experiments],
        "findings": findings,
        "privacy": privacy,
        "audits": [name for name in spec["audits"] if f"privacy/audits/{name}.json" in attacked],
    }
    return found, [f"Not in the report: {', '.join(lost)}."] if lost else []


def _trusted(record: Path) -> bool:
    """Whether a record is there and as it was written, with the files beside it that it lists."""
    try:
        digests.check_files(read_record(record), record)
    except UserError:
        return False
    return True


def _remove(files: Sequence[Path]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


def _sentence(error: Exception) -> str:
    text = str(error) if isinstance(error, UserError | RunFailed) else f"{type(error).__name__}: {error}"
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)


def salvage_file(spec: Path) -> None:
    """Run the steps of a file and say what was made and what is missing."""
    content = read_record(spec, "steps", "lost", "outdated")
    written, gaps = salvage(content["steps"], content["lost"], {Path(file) for file in content["outdated"]})
    for gap in grouped(gaps, _NAMED):
        print(f"dprepro: Missing: {gap}")
    reports = [str(file) for file in written if file.suffix == ".html"]
    if written:
        where = f", among them {reports[0]}" if reports else ""
        print(
            f"dprepro: Made from what is there, and marked incomplete: {len(written)} "
            f"{'file' if len(written) == 1 else 'files'}{where}. Once these problems are solved, the same command "
            "tries the failed jobs again and makes these files anew."
        )
