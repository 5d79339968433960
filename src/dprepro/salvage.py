"""What is still made after a job has failed: tables, figures and the report, from the results that are there.

The workflow's `onerror` writes down the commands that were never started because they wait for a failed job. Each of
them is run here with those of its inputs that exist, and marks what it writes as incomplete, with the reasons. What is
written is dated 1970, older than any input, so that the next call of Snakemake makes it again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from dprepro.errors import RunFailed, UserError
from dprepro.files import read_record

# Options that name inputs of which some may be missing.
_INPUTS = ("runs", "optima", "plans", "audits", "data")


def salvage(
    steps: Sequence[Mapping[str, Any]], lost: Sequence[str], outdated: Collection[Path]
) -> tuple[list[Path], list[str]]:
    """Run each step; return the files that were written and a sentence for everything that is missing.

    A step has the words of its `command`, its `outputs`, the `gaps` in its inputs and its `name`. `lost` are sentences
    on the jobs that failed and cannot be made up for. What these and the steps had made before is `outdated`: it does
    not count as being there, unless a step makes it again.
    """
    written: list[Path] = []
    gaps = list(lost)
    for step in steps:
        outputs = [Path(file) for file in step["outputs"]]
        # Of an earlier run: it must not pass for a result of this one.
        _remove(outputs)
        try:
            _run(step, gaps, {*outdated} - {*written})
        except Exception as error:
            # Whatever is wrong with one table, the others are made.
            gaps.append(f"{step['name']}: {_sentence(error)}")
            _remove(outputs)
            continue
        for file in outputs:
            os.utime(file, (1.0, 1.0))
        written += outputs
    return written, gaps


def _run(step: Mapping[str, Any], gaps: Sequence[str], outdated: Collection[Path]) -> None:
    from dprepro.cli import build_parser

    options = build_parser().parse_args(step["command"])
    for name in _INPUTS:
        _keep_existing(options, name, outdated)
    options.gaps = step["gaps"]
    if step["command"][0] == "report":
        options.spec = present(options.spec, options.results, outdated)
        options.gaps = gaps
    options.command(options)


def _keep_existing(options: argparse.Namespace, name: str, outdated: Collection[Path]) -> None:
    files = getattr(options, name, None)
    if not isinstance(files, list):
        if isinstance(files, Path) and files in outdated:
            raise UserError("nothing that it is made from is there.")
        return
    found = [file for file in files if file not in outdated and file.exists() and _twin(file).exists()]
    if files and not found:
        raise UserError("nothing that it is made from is there.")
    setattr(options, name, found)


def _twin(file: Path) -> Path:
    """Return the file without which an input is not whole: the record beside the arrays of a run."""
    record = file.with_suffix(".json")
    return record if file.suffix == ".npz" and file.parent.parent.name in ("runs", "sweeps") else file


def present(spec: Mapping[str, Any], results: Path, outdated: Collection[Path]) -> dict[str, Any]:
    """Return the specification of a report without the experiments, findings, jobs and audits that are not there."""

    def there(*places: str) -> bool:
        files = [results / f"{place}.json" for place in places]
        return all(file.exists() and file not in outdated for file in files)

    folders = {"curves": "runs", "sweeps": "sweeps"}
    experiments = [
        {**entry, "jobs": [job for job in entry["jobs"] if there(f"{folders[entry['kind']]}/{entry['name']}/{job}")]}
        for entry in spec["experiments"]
        if there(f"tables/{entry['name']}", f"figures/{entry['name']}")
    ]
    kept = {entry["name"] for entry in experiments}
    findings = {
        paper: figures
        for paper, figures in spec["findings"].items()
        if there(f"tables/{paper.lower()}_findings", *(f"figures/{name}" for name in figures))
    }
    return {
        **spec,
        "experiments": [{**entry, "parts": [part for part in entry["parts"] if part in kept]} for entry in experiments],
        "findings": findings,
        "audits": [name for name in spec["audits"] if there(f"privacy/audits/{name}")],
    }


def _remove(files: Sequence[Path]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


def _sentence(error: Exception) -> str:
    text = str(error) if isinstance(error, UserError | RunFailed) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0] if text else type(error).__name__


def salvage_file(spec: Path) -> None:
    """Run the steps of a file and say what was made and what is missing."""
    content = read_record(spec, "steps", "lost", "outdated")
    written, gaps = salvage(content["steps"], content["lost"], {Path(file) for file in content["outdated"]})
    for gap in gaps:
        print(f"dprepro: Missing: {gap}")
    reports = [str(file) for file in written if file.suffix == ".html"]
    if written:
        where = f", among them {reports[0]}" if reports else ""
        print(
            f"dprepro: Made from what is there, and marked incomplete: {len(written)} files{where}. "
            "The same command tries the failed jobs again and makes these files anew."
        )
