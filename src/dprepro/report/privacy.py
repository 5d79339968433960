"""Privacy in the report: what is not private, claimed against accounted epsilon, audits against both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dprepro.report.contents import Privacy
from dprepro.report.figures import figure
from dprepro.report.markdown import render
from dprepro.report.markup import Html, details, join, tag
from dprepro.report.tables import Cell, Column, Row, plain_table, results_table, shown, table, verdict_counts
from dprepro.report.verdicts import kind

NOT_PRIVATE = "not private"


def not_private(certificates: Sequence[Row]) -> list[Row]:
    """Return the certificates that show more to be spent than claimed."""
    return [row for row in certificates if kind(row["verdict"]) == NOT_PRIVATE]


def asked(certificates: Sequence[Row]) -> list[Row]:
    """Return the certificates of runs that claim a finite epsilon."""
    return [row for row in certificates if math.isfinite(float(row["epsilon_claimed"]))]


def overview(privacy: Privacy, papers: Callable[[str], str]) -> Html:
    """Return the section on privacy; `papers` tells the paper of an experiment."""
    drawn = {figure.name: figure for figure in privacy.figures}
    return join(
        [
            _lost(privacy, papers),
            tag("h3", "Claimed and accounted epsilon"),
            _variants(privacy.certificates),
            details("By algorithm", _accounted(privacy.certificates, "accounted"), figure(drawn["certificates"])),
            tag("h3", "Audits"),
            _audit_sentence(privacy.audits),
            details("By algorithm", _audits(privacy.audits), figure(drawn["audit"])),
            details(
                f"All {len(privacy.audits)} audits",
                results_table("Audits: claimed, accounted and proven epsilon", privacy.audits, "audits"),
            ),
            render(privacy.note, 4),
        ]
    )


def certificates(rows: Sequence[Row], audits: Sequence[Row], name: str) -> Html:
    """Return the certificates of one paper, by method and one by one, with the audits of its algorithms."""
    used = {row["algorithm"] for row in rows}
    here = [row for row in audits if row["algorithm"] in used]
    listed = results_table("Every certificate", rows, f"{name}-certificates")
    return join(
        [
            _accounted(rows, f"{name}-accounted"),
            details(f"All {len(rows):,} certificates", listed, class_="long"),
            details(
                f"The {len(here)} audits of the algorithms that run here",
                results_table("Audits of the algorithms that run here", here, f"{name}-audits"),
            ),
        ]
    )


def _lost(privacy: Privacy, papers: Callable[[str], str]) -> Html:
    """Say which methods are shown to spend more than they claim."""
    claims, lost = asked(privacy.certificates), not_private(privacy.certificates)
    published = [row for row in claims if row["variant"] == "published"]
    heading = tag("h3", "Published settings known to spend more than they claim")
    if not lost:
        none = f"None of {len(published):,} published settings is shown to spend too much under its own loss."
        return join([heading, tag("p", f"{none} The audits below attack losses of their own.")])
    named = sum(bool(row["constant_set_here"]) for row in lost)
    sentence = (
        f"Of {len(published):,} published settings {len(lost):,} spend more than they claim: two data sets are known "
        f"on which they do (one record replaced). {named:,} of them have a constant of the noise that is not the "
        "paper's: of another one this says nothing. What each spends, at least:"
    )
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in lost:
        groups.setdefault((papers(row["experiment"]), row["method"]), []).append(row)
    columns = [
        *(Column("paper", chosen=True), Column("method"), Column("algorithm"), Column("variant")),
        *(Column("constant set here"), Column("settings")),
        *(
            Column("epsilon claimed"),
            Column("epsilon spent, at least"),
            Column("times the claim, up to"),
            Column("experiments"),
        ),
    ]
    rows = [_lost_row(paper, method, group) for (paper, method), group in groups.items()]
    return join([heading, tag("p", sentence), table("Methods that spend more than they claim", columns, rows, "lost")])


def _lost_row(paper: str, method: str, group: Sequence[Row]) -> list[Cell]:
    worst = max(_ratio(row, "epsilon_lower") for row in group)
    return [
        Cell(paper),
        Cell(method),
        *(Cell(_several(group, key)) for key in ("algorithm", "variant", "constant_set_here")),
        Cell(len(group), len(group)),
        *(_range(group, key) for key in ("epsilon_claimed", "epsilon_lower")),
        Cell(_times(worst), worst),
        Cell(_several(group, "experiment")),
    ]


def _variants(rows: Sequence[Row]) -> Html:
    """Return a line per variant: how much of the claim is accounted, and the verdicts."""
    lines = []
    for variant in dict.fromkeys(row["variant"] for row in asked(rows)):
        group = [row for row in asked(rows) if row["variant"] == variant]
        ratios = [_ratio(row) for row in group]
        span = f"{_times(min(ratios))} to {_times(max(ratios))}"
        counts = verdict_counts(row["verdict"] for row in group)
        lines.append([join([variant]), join([f"{len(group):,}"]), join([span]), counts])
    head = ["variant", "settings", "accounted / claimed", "verdicts"]
    return plain_table(head, lines, "Accounted against claimed epsilon by variant")


def _accounted(rows: Sequence[Row], name: str) -> Html:
    """Return claimed and accounted epsilon of every algorithm and variant."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in asked(rows):
        groups.setdefault((row["algorithm"], row["variant"]), []).append(row)
    columns = [
        *(Column("algorithm", chosen=True), Column("variant", chosen=True), Column("certificates")),
        *(Column("epsilon claimed"), Column("epsilon accounted"), Column("accounted / claimed"), Column("verdict")),
    ]
    cells = [_accounted_row(*key, group) for key, group in sorted(groups.items())]
    silent = len(rows) - len(asked(rows))
    caption = "Accounted against claimed epsilon" + (f"; {silent} runs without noise are left out" if silent else "")
    return table(caption, columns, cells, name)


def _accounted_row(algorithm: str, variant: str, group: Sequence[Row]) -> list[Cell]:
    ratios = [_ratio(row) for row in group]
    low, high = min(ratios), max(ratios)
    span = _times(high) if _times(low) == _times(high) else f"{_times(low)} to {_times(high)}"
    return [
        *(Cell(algorithm), Cell(variant), Cell(f"{len(group):,}", len(group))),
        *(_range(group, key) for key in ("epsilon_claimed", "epsilon_accounted")),
        Cell(span, high),
        Cell(verdict_counts(row["verdict"] for row in group)),
    ]


def _audit_sentence(audits: Sequence[Row]) -> Html:
    proven = [row for row in audits if kind(row["verdict"]) == "proves more than claimed"]
    # The verdict names a constant that is not the paper's.
    names = ", ".join(
        dict.fromkeys(
            f"{row['algorithm']} ({row['variant']}{row['verdict'].removeprefix('proves more than claimed')})"
            for row in proven
        )
    )
    closest = max(audits, key=_share, default=None)
    near = (
        f"The closest comes to {_share(closest):.0%} of it ({closest['algorithm']}, {closest['variant']}). "
        if closest and _share(closest) > 0.0
        else ""
    )
    return tag(
        "p",
        f"{len(audits)} audits attack every algorithm on small data, the worst case where one is known. None proves "
        "more than is accounted (it would stop the workflow). ",
        near,
        f"{len(proven)} prove more than is claimed: {names}." if proven else "None proves more than is claimed.",
    )


def _audits(audits: Sequence[Row]) -> Html:
    """Return by algorithm and variant how close the audits come to what is accounted."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in audits:
        groups.setdefault((row["algorithm"], row["variant"]), []).append(row)
    columns = [
        *(Column("algorithm", chosen=True), Column("variant", chosen=True), Column("audits")),
        *(Column("epsilon claimed"), Column("epsilon accounted"), Column("epsilon audited")),
        *(Column("audited / accounted, at most"), Column("verdict")),
    ]
    rows = [_audit_row(*key, group) for key, group in sorted(groups.items())]
    return table("Audited against accounted epsilon", columns, rows, "audited")


def _audit_row(algorithm: str, variant: str, group: Sequence[Row]) -> list[Cell]:
    finite = [row for row in group if math.isfinite(float(row["epsilon_accounted"]))]
    share = max((_share(row) for row in finite), default=math.nan)
    return [
        *(Cell(algorithm), Cell(variant), Cell(len(group), len(group))),
        *(_range(group, key) for key in ("epsilon_claimed", "epsilon_accounted", "epsilon_audited")),
        Cell(f"{share:.0%}", share) if finite else Cell("nothing finite is accounted"),
        Cell(verdict_counts(row["verdict"] for row in group)),
    ]


def _share(row: Row) -> float:
    """Return what part of the accounted epsilon an audit proves; none of an infinite one."""
    return float(row["epsilon_audited"]) / float(row["epsilon_accounted"])


def _ratio(row: Row, key: str = "epsilon_accounted") -> float:
    return float(row[key]) / float(row["epsilon_claimed"])


def _times(ratio: float) -> str:
    return shown(f"{ratio:.3g}") if math.isfinite(ratio) else "no finite epsilon"


def _range(rows: Sequence[Row], key: str) -> Cell:
    numbers = [float(row[key]) for row in rows]
    low, high = (shown(f"{number:.10g}").replace("inf", "no finite epsilon") for number in (min(numbers), max(numbers)))
    return Cell(low if low == high else f"{low} to {high}", max(numbers))


def _several(rows: Sequence[Row], key: str) -> str:
    return ", ".join(dict.fromkeys(row[key] for row in rows))
