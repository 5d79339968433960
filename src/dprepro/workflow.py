"""What the Snakefile needs: the interpreter its rules call, and which sources decide what a stage writes."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dprepro import extensions
from dprepro.provenance import PACKAGE, digest, place, sources

_STAGES = (
    *("dataset", "certify", "run", "optimum", "optima", "sweep", "collect", "audit", "findings", "privacy"),
    "report",
)


def use_this_interpreter() -> None:
    """Make rules run the interpreter and the package that Snakemake runs.

    `python` is then right although the environment may not be activated, and an environment that holds only the
    dependencies (Snakemake's own conda environments) finds the package.
    """
    for variable, folder in (("PATH", os.path.dirname(sys.executable)), ("PYTHONPATH", str(PACKAGE.parent))):
        before = os.environ.get(variable)
        os.environ[variable] = folder + (os.pathsep + before if before else "")


def take_no_gpu() -> None:
    """Keep the jobs of this Snakemake from taking a GPU that was not allotted to them."""
    os.environ["DPREPRO_DEVICE"] = "cpu"


@functools.cache
def code(
    stage: str, *, algorithm: str = "", dataset: str = "", loss: str = "", target: str = "", kind: str = ""
) -> str:
    """Return the digest of a stage's sources as they are when the workflow starts."""
    modules = source_modules(stage, algorithm=algorithm, dataset=dataset, loss=loss, target=target, kind=kind)
    files = PACKAGE.glob("report/report.*") if stage == "report" else _data_files(dataset)
    return _with_files(digest(modules), files)


def made_by(stage: str, **names: str) -> dict[str, str]:
    """Return which sources make a result, to be recorded with it: the stage, the names of `code` and its digest."""
    return {"stage": stage, **names, "digest": code(stage, **names)}


def content(path: str | os.PathLike[str]) -> str:
    """Return the digest of a file outside of the results; nothing of one that cannot be read, as its job will say."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def _with_files(modules: str, files: Iterable[Path]) -> str:
    """Return a digest of modules, with files that stand in a result as they are, if any: every byte counts."""
    parts = [path.name.encode() + path.read_bytes() for path in sorted(files)]
    return hashlib.sha256(b"".join([modules.encode(), *parts])).hexdigest()[:16] if parts else modules


def _registry(name: str) -> Any:
    """Return a registry of dprepro, imported by name: what records its sources does not depend on them for it."""
    return importlib.import_module(f"dprepro.{name}")


def _data_files(dataset: str) -> list[Path]:
    """Return the files that belong to a dataset of the user's own: those beside it that differ in the suffix only."""
    if not dataset or not extensions.folders():
        return []
    path = _registry("datasets").own().get(dataset)
    beside = path.parent.glob(f"{path.stem}.*") if path else ()
    return sorted(file for file in beside if extensions.readable(file) and file != path)


def own_files(stage: str, **names: str) -> dict[str, list[dict[str, str]]]:
    """Return the user's own files that a stage uses with their sha256, under `extensions`, if there are any.

    `names` are those of `source_modules`.
    """
    if not extensions.folders():
        return {}
    own = [path for path in sources(source_modules(stage, **names)) if not path.is_relative_to(PACKAGE)]
    own += _data_files(names.get("dataset", ""))
    found = [{"file": place(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in own]
    return {"extensions": found} if found else {}


def source_modules(
    stage: str, *, algorithm: str = "", dataset: str = "", loss: str = "", target: str = "", kind: str = ""
) -> list[str]:
    """Return the modules a stage starts from; what they import is found from there.

    The workflow reruns a job when the digest of these sources changes.

    Registries import by name, which no reader of imports can see: the algorithm and what it wraps, the modules of a
    dataset and of a loss of the user's own, and the module of a figure or table are therefore named here.
    """
    if stage == "figure":
        return ["dprepro.figures", f"dprepro.figures.{target}", f"dprepro.figures.{kind}"]
    if stage == "table":
        return ["dprepro.tables", f"dprepro.tables.{target}", f"dprepro.tables.{kind}"]
    if stage not in _STAGES:
        raise ValueError(f"no stage {stage!r}")
    modules = [f"dprepro.stages.{stage}"]
    if algorithm:
        modules += _registry("algorithms").modules_of(algorithm)
    if dataset:
        modules.append(_registry("datasets").module_of(dataset))
    if loss:
        modules += _registry("losses").modules_of(loss)
    return modules
