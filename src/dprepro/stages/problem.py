"""What the stages share: the problem of a job, from its specification and a prepared dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.arrays import Backend
from dprepro.errors import UserError
from dprepro.files import read_arrays, read_json
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.problems import make_risk
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.regularizers import get_regularizer


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
    facts = read_json(data.with_suffix(".json"), "n", "d", "row_norm", "label_bound", "task")
    return make_problem(spec, facts, read_arrays(data, "X", "y"), backend), facts
