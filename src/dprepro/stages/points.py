"""What the stages of sweeps share: the problem at one point, its data made or read in the same process."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from dprepro import datasets
from dprepro.arrays import Backend
from dprepro.problems.erm import EmpiricalRisk
from dprepro.stages.dataset import arrays_of, facts_of
from dprepro.stages.problem import make_problem


def load_point(point: Mapping[str, Any], backend: Backend) -> tuple[EmpiricalRisk, dict[str, Any]]:
    """Return the problem at one point of a sweep, and the facts of its dataset."""
    data = _load(**{key: _frozen(value) for key, value in point["dataset"].items()})
    facts = facts_of(data)
    return make_problem(point, facts, arrays_of(data), backend), facts


def _frozen(value: Any) -> Any:
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else value


@functools.lru_cache(maxsize=1)
def _load(
    name: str, rows: int | None, seed: int, parameters: tuple[tuple[str, Any], ...], repeated: bool = False
) -> datasets.Dataset:
    """Load a dataset; the points of a sweep over epsilon share it."""
    return datasets.load(name, rows=rows, seed=seed, repeated=repeated, **dict(parameters))
