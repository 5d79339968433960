"""A table of a paper whose rows are sweep experiments of their own, each with its own figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dprepro.jobs import Job


@dataclass(frozen=True)
class PartsExperiment:
    """A validated experiment that runs nothing itself: it gathers what its parts measured into one table."""

    name: str
    spec: Mapping[str, Any]
    seed: int
    device: str
    kind = "parts"

    @property
    def parts(self) -> list[str]:
        """The names of the sweep experiments it is made of, in the order of the paper's rows."""
        return list(self.spec["parts"])

    @property
    def beside(self) -> list[str]:
        """The names of the sweep experiments that are made with it, each with its own table and figure."""
        return list(self.spec.get("beside", ()))

    def jobs(self) -> list[Job]:
        """Return no jobs: all runs are those of the parts."""
        return []
