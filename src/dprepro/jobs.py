"""What a configuration is turned into: jobs, each with a seed of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Replicates side by side in one array program unless an experiment says otherwise; equal to that of `arrays`.
TILE = 64


@dataclass(frozen=True)
class Job:
    """One run: everything that the `certify` and `run` stages need to know, as plain values."""

    experiment: str
    id: str
    dataset: str
    spec: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """The registry name of the algorithm."""
        return str(self.spec["algorithm"])


def job_seed(root: int, experiment: str, job: str) -> int:
    """Return the seed of a job: jobs of one configuration draw from independent streams."""
    return int.from_bytes(hashlib.sha256(f"{root}/{experiment}/{job}".encode()).digest()[:8], "big")
