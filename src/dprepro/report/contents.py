"""What a report is made of, read from files already: experiments, findings, privacy, jobs, errata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dprepro.costs import Cost
from dprepro.report.errata import Errata
from dprepro.report.markdown import Block, Bullets, Heading, Paragraph, plain
from dprepro.report.tables import Row

# The four papers, in the order in which they appeared; others come behind them.
PAPERS = ("WYX17", "BGM21", "ABG23", "KLT25")
# Headings of a table's text under which it says in words what follows from its numbers.
_SAYING = ("What the numbers say", "Conclusion")


@dataclass(frozen=True)
class Figure:
    """A figure with its caption."""

    name: str
    svg: bytes
    caption: Sequence[Block]

    @property
    def alt(self) -> str:
        """What the figure shows, in words: the first paragraph of its caption."""
        return next((plain(block.text) for block in self.caption if isinstance(block, Paragraph)), self.name)


@dataclass(frozen=True)
class Job:
    """One job of the workflow: what it cost, and for runs and sweeps what made it."""

    stage: str
    experiment: str
    name: str
    cost: Cost
    origin: Mapping[str, Any] = field(default_factory=dict)
    datasets: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Experiment:
    """A table with its figures: the rows, and the text above and below them."""

    name: str
    paper: str
    title: str
    parts: Sequence[str]
    rows: Sequence[Row]
    above: Sequence[Block]
    below: Sequence[Block]
    figures: Sequence[Figure]
    jobs: Sequence[Job]

    @property
    def sentences(self) -> list[str]:
        """What the table says in words."""
        found: list[str] = []
        heading = ""
        for block in self.above:
            if isinstance(block, Heading):
                heading = block.text
            elif isinstance(block, Bullets) and heading in _SAYING:
                found += block.items
        return found


@dataclass(frozen=True)
class Findings:
    """Claims of a paper held against computations, with the figures that show something of it."""

    rows: Sequence[Row]
    intro: Sequence[Block]
    figures: Sequence[Figure]
    jobs: Sequence[Job]


@dataclass(frozen=True)
class Privacy:
    """All certificates and audits, with their figures and the sentence on how to read them."""

    certificates: Sequence[Row]
    audits: Sequence[Row]
    figures: Sequence[Figure]
    note: Sequence[Block]
    jobs: Sequence[Job]


@dataclass(frozen=True)
class Setting:
    """How the configuration differs from the whole reproduction: what is left out, what was changed."""

    seed: int
    absent: Sequence[str]
    changed: Sequence[str]


@dataclass(frozen=True)
class Contents:
    """All of it."""

    setting: Setting
    gaps: Sequence[str]
    made_from: Mapping[str, str]
    experiments: Sequence[Experiment]
    findings: Mapping[str, Findings]
    privacy: Privacy | None
    errata: Mapping[str, Errata]

    @property
    def certificates(self) -> Sequence[Row]:
        """All certificates; none if their table is missing."""
        return self.privacy.certificates if self.privacy else ()

    @property
    def audits(self) -> Sequence[Row]:
        """All audits; none if their table is missing."""
        return self.privacy.audits if self.privacy else ()

    @property
    def papers(self) -> list[str]:
        """The papers with at least one experiment here, the four of the reproduction first."""
        found = list(dict.fromkeys(experiment.paper for experiment in self.experiments))
        return sorted(found, key=lambda paper: PAPERS.index(paper) if paper in PAPERS else len(PAPERS))

    def of(self, paper: str) -> list[Experiment]:
        """Return the experiments of a paper, the parts of each behind it."""
        found = {experiment.name: experiment for experiment in self.experiments if experiment.paper == paper}
        parts = {part for experiment in found.values() for part in experiment.parts}
        order = [name for top in found if top not in parts for name in (top, *found[top].parts)]
        return [found[name] for name in dict.fromkeys(order)]

    def whole(self, paper: str) -> list[Experiment]:
        """Return the experiments of a paper that are no part of another one: each of their rows stands once."""
        found = self.of(paper)
        parts = {part for experiment in found for part in experiment.parts}
        return [experiment for experiment in found if experiment.name not in parts]
