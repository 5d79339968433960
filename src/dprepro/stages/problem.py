"""What the stages share: the problem of a job, from its specification and a prepared dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.arrays import Backend
from dprepro.datasets import checksum
from dprepro.datasets.promises import broken_bound
from dprepro.digests import AGAIN
from dprepro.errors import UserError
from dprepro.files import read_record, read_result
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.problems import make_risk
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.regularizers import get_regularizer

# What a stage needs to know of a dataset.
FACTS = ("n", "d", "row_norm", "label_bound", "task", "checksum")


def problem_spec(spec: Mapping[str, Any], facts: Mapping[str, Any]) -> ProblemSpec:
    """Return the public description of a job's problem from the dataset's facts."""
    loss = get_loss(spec["loss"])
    if loss.margin and facts["task"] != "classification":
        raise UserError(f"The loss {loss.name!r} needs labels -1 and +1, but {facts['name']!r} is for regression.")
    return ProblemSpec(
        n=facts["n"],
        d=facts["d"],
        loss=loss,
        regularizer=get_regularizer(spec["regularizer"]),
        constraint=get_set(spec["constraint"]),
        row_norm=facts["row_norm"],
        label_bound=facts["label_bound"],
        row_sup=facts.get("row_sup"),
        rank=facts.get("rank"),
    )


def make_problem(
    spec: Mapping[str, Any], facts: Mapping[str, Any], arrays: Mapping[str, Any], backend: Backend
) -> EmpiricalRisk:
    """Return the problem on the device: over the rows of a dataset, or over atoms if they have probabilities."""
    return make_risk(
        problem_spec(spec, facts),
        arrays["X"],
        arrays["y"],
        backend,
        probabilities=arrays.get("probabilities"),
        repeated=facts.get("repeated", False),
        sphere=facts.get("sphere"),
        law=facts.get("law"),
    )


def load_problem(spec: Mapping[str, Any], data: Path, backend: Backend) -> tuple[EmpiricalRisk, dict[str, Any]]:
    """Return the problem on the device, and the facts of its dataset."""
    facts = read_record(data.with_suffix(".json"), *FACTS)
    arrays = read_result(data, "X", "y", record=facts)
    check_data(facts, arrays, data)
    return make_problem(spec, facts, arrays, backend), facts


def check_data(facts: Mapping[str, Any], arrays: Mapping[str, Any], data: Path) -> None:
    """Raise `UserError` if a dataset is not the one of its facts, or not within the bounds that privacy rests on."""
    found = checksum(arrays["X"], arrays["y"], arrays.get("probabilities"), facts.get("law"))
    if found != facts["checksum"]:
        raise UserError(
            f"The dataset {data} is not as its facts say: expected checksum {facts['checksum'][:12]}, found "
            f"{found[:12]}; {AGAIN}."
        )
    rows = facts.get("atoms", facts["n"])
    for name, expected in (("X", (rows, facts.get("columns", facts["d"]))), ("y", (rows,))):
        if (shape := arrays[name].shape) != expected:
            raise UserError(
                f"The dataset {data} is not as its facts say: expected {name} of shape {expected}, found {shape}; "
                f"{AGAIN}."
            )
    label_bound = facts["label_bound"] if facts["task"] == "regression" else None
    if broken := broken_bound(arrays["X"], arrays["y"], facts["row_norm"], label_bound):
        raise UserError(f"The dataset {data} is not as its facts say: {broken}; {AGAIN}.")
