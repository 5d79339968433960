"""Privacy events: what a mechanism released, as data that any accountant can read.

Two datasets are neighbours when one record is replaced. Every sensitivity here is the largest distance between the
query's answers on neighbours. A plan holds a tuple of events: their adaptive, sequential composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from dprepro.errors import UserError

ADJACENCY = "replace-one"


@dataclass(frozen=True)
class QueryPart:
    """One summand of a query: it looks at `batch` of `population` records, drawn at random unless equal.

    `sensitivity` is the l2 distance when the replaced record is among those looked at. A random batch is drawn
    uniformly without replacement, afresh for every release. In a `poisson` batch each record is independently, with
    probability batch/population; `batch` is then the expected size and `sensitivity` the largest l2 norm of what one
    record adds to the query, so that replacing a record of the batch moves the query by up to twice as much.
    """

    sensitivity: float
    batch: int
    population: int
    poisson: bool = False

    def __post_init__(self) -> None:
        _check_sensitivity(self.sensitivity, "a query part")
        if not 1 <= self.batch <= self.population:
            raise UserError(f"A query part looks at {self.batch} of {self.population} records: give 1 <= batch <= n.")
        if self.poisson and self.full:
            raise UserError(f"A Poisson batch of all {self.population} records is no sample: give a fixed-size part.")

    @property
    def full(self) -> bool:
        """Whether every record is looked at."""
        return self.batch == self.population


@dataclass(frozen=True)
class _Noisy:
    """What events with one noise scale share."""

    noise_field: ClassVar[str] = "sigma"

    def scaled(self, factor: float) -> Self:
        """Return the event with `factor` times the noise."""
        return replace(self, **{self.noise_field: getattr(self, self.noise_field) * factor})


@dataclass(frozen=True)
class GaussianEvent(_Noisy):
    """`count` adaptive releases of (sum of the parts) + N(0, sigma^2 I).

    At most one part is on a random batch: all that looks at the batch of a release is that part.

    Output perturbation is one such release whose sensitivity is the stability bound of what is released.

    With `contraction` c < 1 only the last iterate of the `count` steps is released: on either neighbour each step is a
    c-Lipschitz map of the iterate, plus noise, plus whatever map without data that does not expand (a projection, a
    prox). Sigma and the sensitivity may be in any one unit, that of the gradient or that of the iterate.

    `attained` is as in `DisjointGaussianEvent`, for one pair of neighbours in all releases.
    """

    label: str
    sigma: float
    parts: tuple[QueryPart, ...]
    count: int
    contraction: float = 1.0
    attained: bool = True

    def __post_init__(self) -> None:
        _check_noise(self.label, self.sigma, self.count)
        if isinstance(self.parts, QueryPart):
            raise UserError(f"The event {self.label!r} has parts that are no tuple: write (part,) for a single one.")
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise UserError(f"The event {self.label!r} declares no sensitivity: give it at least one query part.")
        if not 0.0 < self.contraction <= 1.0:
            raise UserError(f"The contraction of {self.label!r} is {self.contraction}: give a number in (0, 1].")
        if sum(not part.full for part in self.parts) > 1:
            raise UserError(
                f"The event {self.label!r} has several parts on random batches, but one batch is drawn for a release: "
                "make them one part with the sum of their sensitivities."
            )
        if self.contraction < 1.0 and not all(part.full for part in self.parts):
            raise UserError(
                f"The event {self.label!r} has a contraction and random batches: "
                "no argument covers both; give full-batch parts or contraction 1."
            )


@dataclass(frozen=True)
class LaplaceEvent(_Noisy):
    """`count` adaptive releases with independent Laplace(scale) noise in every coordinate; l1 sensitivity."""

    noise_field: ClassVar[str] = "scale"
    label: str
    scale: float
    sensitivity: float
    count: int

    def __post_init__(self) -> None:
        _check_noise(self.label, self.scale, self.count)
        _check_sensitivity(self.sensitivity, self.label)


@dataclass(frozen=True)
class SelectionEvent(_Noisy):
    """`count` adaptive selections of the largest of some scores, each of which moves by at most `sensitivity`.

    Each score gets independent noise of `scale` and the position of the largest sum is released. `noise` is
    `laplace` (report noisy max) or `gumbel` (the exponential mechanism). One selection is epsilon0-DP with
    epsilon0 = 2 sensitivity / scale; with Gumbel noise it has bounded range epsilon0 as well.
    """

    noise_field: ClassVar[str] = "scale"
    label: str
    noise: str
    scale: float
    sensitivity: float
    count: int

    def __post_init__(self) -> None:
        _check_noise(self.label, self.scale, self.count)
        _check_sensitivity(self.sensitivity, self.label)
        if self.noise not in ("laplace", "gumbel"):
            raise UserError(f"The noise of the event {self.label!r} is {self.noise!r}: use laplace or gumbel.")

    @property
    def epsilon0(self) -> float:
        """The pure-DP parameter of one selection."""
        return 2.0 * self.sensitivity / self.scale if self.scale > 0 else float("inf")


@dataclass(frozen=True)
class TreeEvent(_Noisy):
    """`count` trees of prefix sums over at most `leaves` vectors each; every node gets N(0, sigma^2 I).

    `sensitivity` is the l2 distance of one leaf, `first` that of the first leaf of a tree where it has its own. A
    record sits in one leaf of each tree; if they are `disjoint`, in one leaf of one tree only, and no data decide in
    which, so that all trees together cost as much as one. `attained` is as in `DisjointGaussianEvent`.
    """

    label: str
    sigma: float
    sensitivity: float
    leaves: int
    count: int
    first: float | None = None
    disjoint: bool = False
    attained: bool = True

    def __post_init__(self) -> None:
        _check_noise(self.label, self.sigma, self.count)
        _check_sensitivity(self.sensitivity, self.label)
        if self.first is not None:
            _check_sensitivity(self.first, f"{self.label}, first leaf")
        if self.leaves < 1:
            raise UserError(f"The tree {self.label!r} has {self.leaves} leaves: give a whole number >= 1.")


@dataclass(frozen=True)
class ObjectivePerturbationEvent(_Noisy):
    """The minimiser of sum_i f(w, z_i) + n r(w) + (Delta/2)||w||^2 + <b, w> with random b, released once.

    `noise` is `gaussian`, b ~ N(0, scale^2 I), or `gamma`, b with density proportional to exp(-||b||/scale) (Chaudhuri,
    Monteleoni and Sarwate 2011). f is a function of <w, x> for each record (a generalised linear model) with second
    derivative between 0 and `smoothness` along x; the terms without data make the sum `convexity`-strongly convex;
    replacing a record moves the gradient of the sum by at most `sensitivity`, twice the largest gradient of one
    record. The minimiser is exact and over the whole space.
    """

    noise_field: ClassVar[str] = "scale"
    label: str
    noise: str
    scale: float
    sensitivity: float
    smoothness: float
    convexity: float
    count: int

    def __post_init__(self) -> None:
        _check_noise(self.label, self.scale, self.count)
        _check_sensitivity(self.sensitivity, self.label)
        if self.noise not in ("gaussian", "gamma"):
            raise UserError(f"The noise of the event {self.label!r} is {self.noise!r}: use gaussian or gamma.")
        if not (0.0 <= self.smoothness < math.inf and 0.0 < self.convexity < math.inf):
            raise UserError(
                f"The event {self.label!r} has smoothness {self.smoothness} and convexity {self.convexity}: "
                "give finite numbers, the convexity > 0."
            )
        if self.count > 1:
            raise UserError(f"The event {self.label!r} is released {self.count} times: give one event to each release.")


@dataclass(frozen=True)
class UnprotectedEvent:
    """`count` uses of a data-dependent quantity without noise: no finite epsilon covers them."""

    label: str
    count: int

    def scaled(self, factor: float) -> UnprotectedEvent:
        """Return the event itself: there is no noise to scale."""
        return self


@dataclass(frozen=True)
class ConditionEvent:
    """A share of delta spent on an event of data-independent randomness under which the sensitivities hold."""

    label: str
    delta: float

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 1.0:
            raise UserError(f"The condition {self.label!r} spends delta = {self.delta}: give a number in (0, 1).")

    def scaled(self, factor: float) -> ConditionEvent:
        """Return the event itself: its probability does not depend on the noise."""
        return self


@dataclass(frozen=True)
class FadingSelectionEvent(_Noisy):
    """`count` adaptive selections from scores that carry the records of disjoint batches along, each a little less.

    Selection is as in `SelectionEvent`. A record enters at one selection and goes on moving the scores of those after
    it, so that its sensitivities depend on where it entered, which no data decide. A profile ((sensitivity,
    selections), ...) says how many selections a record moves by how much. For every record there is one among the
    `profiles` that is at least its own: largest with largest, second with second and so on. As less sensitivity and
    fewer selections never cost more, and their order does not matter, the whole costs as much as the costliest profile.
    """

    noise_field: ClassVar[str] = "scale"
    label: str
    noise: str
    scale: float
    profiles: tuple[tuple[tuple[float, int], ...], ...]
    count: int

    def __post_init__(self) -> None:
        _check_noise(self.label, self.scale, self.count)
        if not self.profiles or not all(self.profiles):
            raise UserError(f"The event {self.label!r} declares no sensitivity: give it at least one profile.")
        self.alternatives()  # each of its selections is checked

    def alternatives(self) -> tuple[tuple[Event, ...], ...]:
        """Return what the records may meet, one profile after the other; nothing if no selection happened."""
        if not self.count:
            return ((),)
        return tuple(
            tuple(SelectionEvent(self.label, self.noise, self.scale, *level) for level in profile)
            for profile in self.profiles
        )


@dataclass(frozen=True)
class DisjointGaussianEvent:
    """`count` adaptive releases on disjoint batches, of several kinds: kind i adds N(0, sigmas[i]^2 I).

    A query of kind i has the l2 sensitivity `sensitivities[i]`. A record is in one batch only and no data decide in
    which, so that the whole costs as much as one release of the kind with the least noise for its sensitivity, however
    many there are of each. A query whose sensitivity is c times that of its kind, for a number c that earlier releases
    decide, may get c times the noise: it is c times a query of the kind.

    `attained` says whether some neighbours are known to move a query by its whole sensitivity: if not, what is
    accounted is an upper bound only.
    """

    label: str
    sigmas: tuple[float, ...]
    sensitivities: tuple[float, ...]
    count: int
    attained: bool = True

    def __post_init__(self) -> None:
        if len(self.sigmas) != len(self.sensitivities) or not self.sigmas:
            raise UserError(
                f"The event {self.label!r} has {len(self.sigmas)} noise scales and {len(self.sensitivities)} "
                "sensitivities: give one of each for every kind."
            )
        for sigma, sensitivity in zip(self.sigmas, self.sensitivities, strict=True):
            _check_noise(self.label, sigma, self.count)
            _check_sensitivity(sensitivity, self.label)

    @property
    def sigma(self) -> float:
        """The noise of the first kind."""
        return self.sigmas[0]

    def alternatives(self) -> tuple[tuple[Event, ...], ...]:
        """Return the costliest release a record may meet; nothing if there was none."""
        if not self.count:
            return ((),)
        # Gaussian releases are ordered by sigma / sensitivity.
        worst = min(range(len(self.sigmas)), key=lambda i: self.sigmas[i] / self.sensitivities[i])
        part = QueryPart(self.sensitivities[worst], 1, 1)
        return ((GaussianEvent(self.label, self.sigmas[worst], (part,), 1),),)

    def scaled(self, factor: float) -> DisjointGaussianEvent:
        """Return the event with `factor` times the noise."""
        return replace(self, sigmas=tuple(sigma * factor for sigma in self.sigmas))


@dataclass(frozen=True)
class ParallelEvent:
    """Events on disjoint batches whose records are assigned without looking at the data.

    A record is in one batch only, so the whole costs as much as the costliest branch.
    """

    label: str
    branches: tuple[tuple[Event, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "branches", tuple(tuple(branch) for branch in self.branches))
        if any(isinstance(event, ParallelEvent) for branch in self.branches for event in branch):
            raise UserError(
                f"The event {self.label!r} has a parallel event in a branch: list the inner branches with the others."
            )

    def alternatives(self) -> tuple[tuple[Event, ...], ...]:
        """Return what the records may meet: one branch."""
        return self.branches

    def scaled(self, factor: float) -> ParallelEvent:
        """Return the event with `factor` times the noise in every branch."""
        return replace(self, branches=tuple(scale_events(branch, factor) for branch in self.branches))


Event = (
    GaussianEvent
    | LaplaceEvent
    | SelectionEvent
    | TreeEvent
    | ObjectivePerturbationEvent
    | UnprotectedEvent
    | ConditionEvent
    | FadingSelectionEvent
    | DisjointGaussianEvent
    | ParallelEvent
)
_KINDS: dict[str, Any] = {
    "gaussian": GaussianEvent,
    "laplace": LaplaceEvent,
    "selection": SelectionEvent,
    "tree": TreeEvent,
    "objective": ObjectivePerturbationEvent,
    "unprotected": UnprotectedEvent,
    "condition": ConditionEvent,
    "fading": FadingSelectionEvent,
    "disjoint": DisjointGaussianEvent,
    "parallel": ParallelEvent,
}


def _check_noise(label: str, scale: float, count: int) -> None:
    if not (0.0 <= scale < math.inf and 0 <= count < math.inf):
        raise UserError(f"The event {label!r} has noise {scale} and {count} releases: both must be >= 0 and finite.")


def _check_sensitivity(sensitivity: float, label: str) -> None:
    if not (0.0 < sensitivity < math.inf):
        raise UserError(f"The sensitivity of {label!r} is {sensitivity}: declare a finite number > 0.")


def scale_events(events: Sequence[Event], factor: float) -> tuple[Event, ...]:
    """Return the events with `factor` times the noise."""
    return tuple(event.scaled(factor) for event in events)


def leaves(events: Sequence[Event]) -> Iterator[Event]:
    """Yield all events that are not composed of others."""
    for event in events:
        if isinstance(event, ParallelEvent):
            for branch in event.branches:
                yield from leaves(branch)
        else:
            yield event


def is_noisy(events: Sequence[Event]) -> bool:
    """Whether some event adds noise, or should: conditions and unprotected uses have none to scale."""
    noiseless = (ConditionEvent, UnprotectedEvent, ParallelEvent)
    return any(not isinstance(event, noiseless) and event.count > 0 for event in leaves(events))


def replace_leaves(events: Sequence[Event], new: Callable[[Event], Event | None]) -> tuple[Event, ...]:
    """Return the events with each leaf replaced by `new(leaf)`; None drops it."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, ParallelEvent):
            found.append(replace(event, branches=tuple(replace_leaves(branch, new) for branch in event.branches)))
        elif (changed := new(event)) is not None:
            found.append(changed)
    return tuple(found)


def event_to_json(event: Event) -> dict[str, Any]:
    """Return an event as plain values with its kind."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(event, cls))
    if isinstance(event, ParallelEvent):
        branches = [[event_to_json(part) for part in branch] for branch in event.branches]
        return {"kind": kind, "label": event.label, "branches": branches}
    return {"kind": kind, **asdict(event)}


def event_from_json(record: Mapping[str, Any]) -> Event:
    """Return the event that `event_to_json` wrote."""
    fields = {key: value for key, value in record.items() if key != "kind"}
    if "parts" in fields:
        fields["parts"] = tuple(QueryPart(**part) for part in fields["parts"])
    if "branches" in fields:
        fields["branches"] = tuple(tuple(event_from_json(part) for part in branch) for branch in fields["branches"])
    if "profiles" in fields:
        fields["profiles"] = tuple(tuple((s, count) for s, count in profile) for profile in fields["profiles"])
    for several in {"sigmas", "sensitivities"} & set(fields):
        fields[several] = tuple(fields[several])
    event: Event = _KINDS[record["kind"]](**fields)
    return event
