"""Privacy events: what a mechanism released, as data that any accountant can read.

Two datasets are neighbours when one record is replaced. Every sensitivity here is the largest l2 distance between
the query's answers on neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ADJACENCY = "replace-one"


@dataclass(frozen=True)
class QueryPart:
    """One summand of a query: it looks at `batch` of `population` records, drawn at random unless equal.

    `sensitivity` is the distance when the replaced record is among those looked at.
    """

    sensitivity: float
    batch: int
    population: int

    @property
    def full(self) -> bool:
        """Whether every record is looked at."""
        return self.batch == self.population


@dataclass(frozen=True)
class GaussianEvent:
    """`count` adaptive releases of (sum of the parts) + N(0, sigma^2 I)."""

    label: str
    sigma: float
    parts: tuple[QueryPart, ...]
    count: int


@dataclass(frozen=True)
class UnprotectedEvent:
    """`count` uses of a data-dependent quantity without noise: no finite epsilon covers them."""

    label: str
    count: int


Event = GaussianEvent | UnprotectedEvent
_KINDS: dict[str, type[GaussianEvent] | type[UnprotectedEvent]] = {
    "gaussian": GaussianEvent,
    "unprotected": UnprotectedEvent,
}


def event_to_json(event: Event) -> dict[str, Any]:
    """Return an event as plain values with its kind."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(event, cls))
    return {"kind": kind, **asdict(event)}


def event_from_json(record: Mapping[str, Any]) -> Event:
    """Return the event that `event_to_json` wrote."""
    fields = {key: value for key, value in record.items() if key != "kind"}
    if "parts" in fields:
        fields["parts"] = tuple(QueryPart(**part) for part in fields["parts"])
    return _KINDS[record["kind"]](**fields)
