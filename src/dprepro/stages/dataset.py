"""Stage `dataset`: a prepared dataset as `.npz` with its facts as `.json` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro import datasets
from dprepro.files import write_arrays, write_record
from dprepro.workflow import made_by


def prepare(spec: Mapping[str, Any], out: Path) -> None:
    """Load the dataset that `spec` names and write it to `out`."""
    data = datasets.load(spec["name"], rows=spec.get("rows"), seed=spec.get("seed", 0), **spec.get("parameters", {}))
    digest = write_arrays(out, arrays_of(data))
    write_record(
        out.with_suffix(".json"),
        facts_of(data) | {"arrays": digest, "made_by": made_by("dataset", dataset=spec["name"])},
    )


def arrays_of(data: datasets.Dataset) -> dict[str, Any]:
    """Return the arrays of a dataset by name: `probabilities` are there if its rows are atoms of a population."""
    arrays = {"X": data.X, "y": data.y}
    return arrays if data.population is None else {**arrays, "probabilities": data.population.probabilities}


def facts_of(data: datasets.Dataset) -> dict[str, Any]:
    """Return what is recorded of a dataset: sizes and bounds that a plan may know, and where it comes from."""
    facts = {
        "name": data.name,
        "title": data.info.title,
        "n": data.X.shape[0],
        "d": data.X.shape[1],
        "row_norm": data.row_norm,
        "label_bound": 1.0,
        "task": data.info.task,
        "origin": data.origin,
        "checksum": data.checksum,
        "preprocessing": data.info.preprocessing,
        "licence": data.info.licence,
        "citation": data.info.citation,
        "raw_sha256": data.info.sha256,
    }
    population = data.population
    if population is None:
        return facts
    bounds = {"row_sup": population.row_sup, "label_bound": population.label_bound}
    # Keys that few populations have are absent elsewhere.
    special: dict[str, Any] = {"repeated": True} if population.repeated else {}
    special |= {} if population.sphere is None else {"sphere": population.sphere}
    special |= {} if population.rank is None else {"rank": population.rank}
    special |= {} if population.law is None else {"law": dict(population.law)}
    special |= {} if population.weights is None else {"d": population.weights, "columns": data.X.shape[1]}
    return {**facts, "n": population.samples, "atoms": data.X.shape[0], **bounds, **special}
