"""The beginning of the report, which a reader in a hurry reads alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dprepro.costs import duration
from dprepro.report.contents import PAPERS, Contents, Experiment, Job
from dprepro.report.costs import cpu_seconds
from dprepro.report.markdown import inline
from dprepro.report.markup import Html, details, join, tag
from dprepro.report.privacy import asked
from dprepro.report.tables import Row, plain_table, verdict_counts
from dprepro.report.verdicts import grouped

NOT_THE_DEFAULT = "their numbers are not those of the default reproduction"
CONVERTED = (
    "The papers were read from machine-converted text, in which symbols may be lost: a slip that such a loss would "
    "make is marked as one that may be our copy's."
)
# Quantities that say what a method costs, not how well it does.
_COSTS = (
    "gradient evaluations",
    "value evaluations",
    "function evaluations",
    "CPU seconds",
    "CPU time",
    "oracle calls",
)


def all_jobs(contents: Contents) -> list[Job]:
    """Return every job of the report."""
    own = [job for experiment in contents.experiments for job in experiment.jobs]
    return [
        *own,
        *(job for found in contents.findings.values() for job in found.jobs),
        *(contents.privacy.jobs if contents.privacy else ()),
    ]


def paper_jobs(contents: Contents, paper: str) -> list[Job]:
    """Return the jobs of a paper."""
    own = [job for experiment in contents.of(paper) for job in experiment.jobs]
    return [*own, *(contents.findings[paper].jobs if paper in contents.findings else ())]


def paper_certificates(contents: Contents, paper: str) -> list[Row]:
    """Return the certificates of a paper's runs."""
    names = {experiment.name for experiment in contents.of(paper)}
    return [row for row in contents.certificates if row["experiment"] in names]


def incomplete(contents: Contents) -> Html:
    """Say what is missing because a job failed; nothing if the report is complete."""
    if not contents.gaps:
        return Html("")
    return tag(
        "div",
        tag("h3", "Incomplete"),
        tag("p", "Jobs failed. This page shows what the others made. Missing until the next run that succeeds:"),
        tag("ul", *(tag("li", gap) for gap in contents.gaps)),
        class_="incomplete",
    )


def scope(contents: Contents) -> Html:
    """Say what the report holds, what it does not, and what made it."""
    tables, figures = len(contents.experiments), sum(len(experiment.figures) for experiment in contents.experiments)
    lines = [
        f"Tables: {tables}, with {figures} figures, on {', '.join(contents.papers)}; "
        f"root seed {contents.setting.seed}; {duration(cpu_seconds(all_jobs(contents)))} of CPU time, preparing data "
        f"not counted. Made by {_commits(all_jobs(contents))}.",
        CONVERTED,
        *_left_out(contents),
    ]
    return tag("ul", *(tag("li", line) for line in lines))


def _commits(jobs: Sequence[Job]) -> str:
    found: dict[str, int] = {}
    for job in jobs:
        if job.origin:
            changed = " with changes" if job.origin["modified"] else ""
            name = f"commit {str(job.origin['commit'])[:12]}{changed}, dprepro {job.origin['dprepro']}"
            found[name] = found.get(name, 0) + 1
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{name} ({count} runs)" for name, count in found.items()) or "no run"


def _left_out(contents: Contents) -> list[object]:
    """Return what a reader must know who expects the whole reproduction."""
    lines: list[object] = []
    papers = [paper for paper in PAPERS if paper not in contents.papers]
    # Files of experiments are named after their papers.
    absent = [name for name in contents.setting.absent if name.partition("_")[0].upper() not in papers]
    if papers or absent:
        text = "Not in it, because the configuration does not ask for it: "
        lines.append(tag("strong", text, ", ".join([*(f"all of {paper}" for paper in papers), *absent]), "."))
    if contents.setting.changed:
        count = len(contents.setting.changed)
        text = (
            f"The configuration changes the settings of {count} experiment{'s' if count > 1 else ''} "
            f"(scale, replicates or others): {NOT_THE_DEFAULT}. "
        )
        lines.append(tag("span", tag("strong", text), ", ".join(contents.setting.changed), class_="notice"))
    return lines


def glance(contents: Contents) -> Html:
    """Return a line per paper: verdicts on errors and on costs, findings, privacy, time."""
    head = [
        "paper",
        "verdicts on errors and samples",
        "verdicts on costs",
        "findings on claims",
        "certificates",
        "CPU time",
    ]
    return plain_table(head, [_glance_row(contents, paper) for paper in contents.papers], "The papers at a glance")


def _glance_row(contents: Contents, paper: str) -> list[Html]:
    rows = [row for experiment in contents.whole(paper) for row in experiment.rows]
    errors = [row["verdict"] for row in rows if not _is_cost(row)]
    costs = [row["verdict"] for row in rows if _is_cost(row)]
    found = contents.findings.get(paper)
    claims = asked(paper_certificates(contents, paper))
    return [
        tag("a", paper, href=f"#{paper.lower()}"),
        verdict_counts(errors),
        verdict_counts(costs),
        verdict_counts(row["verdict"] for row in found.rows) if found else tag("span", "none"),
        verdict_counts(row["verdict"] for row in claims),
        tag("span", duration(cpu_seconds(paper_jobs(contents, paper)))),
    ]


def _is_cost(row: Row) -> bool:
    return row.get("quantity", "").startswith(_COSTS)


def words(experiments: Sequence[Experiment]) -> Html:
    """Return what the tables say in words, by kind, one sentence of each kind and the rest on demand."""
    places: dict[str, list[str]] = {}
    for experiment in experiments:
        for sentence in experiment.sentences:
            places.setdefault(sentence, []).append(experiment.name)
    if not places:
        return tag("p", "The tables here draw no conclusion in words.")
    groups = grouped(places).items()
    return tag("dl", *(_group(name, {text: places[text] for text in group}) for name, group in groups), class_="words")


def _group(name: str, sentences: Mapping[str, Sequence[str]]) -> Html:
    """Return sentences that say the same kind of thing, each with the tables that it is from."""
    first, *rest = (
        tag("li", inline(sentence), " ", join([tag("a", place, href=f"#{place}") for place in places], " "))
        for sentence, places in sentences.items()
    )
    more = details(f"{len(rest)} more", tag("ul", *rest)) if rest else ""
    return join([tag("dt", f"{name[:1].upper()}{name[1:]} ({len(sentences)})"), tag("dd", tag("ul", first), more)])
