"""What the Snakefile needs: the interpreter its rules call, and which sources decide what a stage writes."""

from __future__ import annotations

import os
import sys

_STAGES = ("dataset", "certify", "run", "optimum", "collect")


def use_this_interpreter() -> None:
    """Make `python` in a rule the interpreter that runs Snakemake, also when its environment is not activated."""
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")


def source_modules(stage: str, *, algorithm: str = "", dataset: str = "", target: str = "") -> list[str]:
    """Return the modules a stage starts from; what they import is found from there.

    The workflow reruns a job when the digest of these sources changes.

    Registries import by name, which no reader of imports can see: the algorithm, the dataset's module and the
    module of a figure or table are therefore named here.
    """
    if stage == "figure":
        return [f"dprepro.figures.{target}"]
    if stage == "table":
        return [f"dprepro.tables.{target}"]
    if stage not in _STAGES:
        raise ValueError(f"no stage {stage!r}")
    modules = [f"dprepro.stages.{stage}"]
    if algorithm:
        modules.append(f"dprepro.algorithms.{algorithm}")
    if dataset:
        from dprepro import datasets

        modules.append(datasets.module_of(dataset))
    return modules
