"""The whole page: a summary, privacy, a section for each paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dprepro.analysis.rates import COUNT_TOLERANCE, LOWER_TOLERANCE, SHARE, TOLERANCE, WIDEST
from dprepro.report.contents import Contents, Experiment
from dprepro.report.costs import provenance, run_times
from dprepro.report.errata import Errata
from dprepro.report.figures import figure
from dprepro.report.markdown import inline, render
from dprepro.report.markup import Html, details, join, tag
from dprepro.report.privacy import certificates, overview
from dprepro.report.summary import glance, incomplete, paper_certificates, paper_jobs, scope, words
from dprepro.report.tables import Cell, Column, Row, cell_of, results_table, table, verdict_counts

# What stands in the page as it is; the workflow makes the report again when one of them changes.
ASSETS = tuple(Path(__file__).with_name(name) for name in ("report.css", "report.js"))
_TITLE = "dprepro: differentially private optimization, rerun"
_LEAD = (
    "Published algorithms on differentially private optimization, rerun from their papers, with what is accounted of "
    "the privacy of each run beside what was claimed. All of this page is made from result files; nothing is typed in."
)
_HOW_TO_READ = (
    "A verdict compares a measured value, with its 95 % interval, to what the paper states. Agrees: the interval of an "
    f"exponent of the error comes within {TOLERANCE:g}, or {SHARE:.0%} of the stated exponent if that is less, of the "
    "range between the exponent of the bound in the limit and that of the bound as printed over the measured points, "
    f"and is no wider than {2.0 * WIDEST:g}; the exponent of a cost, which has no interval, comes within "
    f"{COUNT_TOLERANCE:g} of the stated one, in the limit or with its logarithms; a count is the stated one; a method "
    "takes a regularizer or refuses it as the paper says; an error is above a proven lower bound with its whole "
    f"interval, or the interval of its exponent comes within {LOWER_TOLERANCE:g} of the exponent of that lower bound. "
    f"For the samples that a target needs, a difference of two exponents is compared to within {TOLERANCE:g}. "
    "Agrees, with failures: so it does, but runs failed, returned nothing or are no better than the initial point. "
    "Better than the bound: the exponent is below by more; natural problems are often easier than the worst case. Not "
    "reached: it is above by more. Compared: set against another method, or against a bound whose constant is not "
    "stated. Nothing to compare: no exponent is stated, or the values are too few or their interval is too wide. "
    "A finding holds a claim against a computation. Accounted epsilons are upper bounds, audited ones lower bounds: a "
    "setting that is not certified may well be private."
)
# Columns of the table of all verdicts of a paper.
_VERDICTS = ("problem", "dataset", "method", "variant", "quantity", "theory", "measured", "verdict")


def page(contents: Contents) -> str:
    """Return the report as one HTML document."""
    style, script = (asset.read_text(encoding="utf-8") for asset in ASSETS)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", _TITLE),
        tag("style", Html(style)),
    )
    body = tag("body", _header(contents), _main(contents), tag("script", Html(script)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


# The page may load nothing: its images are data inside it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def _header(contents: Contents) -> Html:
    places = [("summary", "Summary"), ("privacy", "Privacy"), *((paper.lower(), paper) for paper in contents.papers)]
    links = [tag("a", text, href=f"#{place}") for place, text in places]
    return tag("header", tag("h1", _TITLE), tag("p", _LEAD), tag("nav", *links, aria_label="Sections"))


def _main(contents: Contents) -> Html:
    papers = {experiment.name: experiment.paper for experiment in contents.experiments}
    summary = [
        tag("h2", "Summary"),
        incomplete(contents),
        scope(contents),
        glance(contents),
        details("How to read the verdicts", tag("p", _HOW_TO_READ)),
        *(_in_words(contents, paper) for paper in contents.papers),
    ]
    missing = tag("p", "The certificates and audits are missing: see above.")
    private = overview(contents.privacy, lambda experiment: papers.get(experiment, "")) if contents.privacy else missing
    return tag(
        "main",
        tag("section", *summary, id="summary"),
        tag("section", tag("h2", "Privacy"), private, id="privacy"),
        *(_paper(contents, paper) for paper in contents.papers),
    )


def _in_words(contents: Contents, paper: str) -> Html:
    return join([tag("h3", f"{paper} in words"), words(contents.whole(paper))])


def _paper(contents: Contents, paper: str) -> Html:
    name = paper.lower()
    errata = contents.errata.get(paper)
    title = f"{paper} — {errata.title}" if errata else paper
    jobs = paper_jobs(contents, paper)
    parts = {part: whole.name for whole in contents.of(paper) for part in whole.parts}
    return tag(
        "section",
        tag("h2", title),
        tag("h3", "Verdicts"),
        _verdicts(contents.whole(paper), name),
        tag("h3", "Tables and figures"),
        *(_experiment(experiment, parts.get(experiment.name, "")) for experiment in contents.of(paper)),
        *_findings(contents, paper),
        tag("h3", "Certificates"),
        certificates(paper_certificates(contents, paper), contents.audits, name),
        tag("h3", "Errata and decisions"),
        *_errata(errata, paper),
        tag("h3", "Provenance"),
        details("Commits, versions, machines and data", provenance(jobs, name)),
        tag("h3", "Run times"),
        details("By experiment and by job", run_times(jobs, name)),
        id=name,
    )


def _verdicts(experiments: Sequence[Experiment], name: str) -> Html:
    """Return every verdict of a paper in one table."""
    rows = [(row.get("part") or experiment.name, row) for experiment in experiments for row in experiment.rows]
    present = [key for key in _VERDICTS if any(key in row for _, row in rows)]
    columns = [
        Column("table", chosen=True),
        *(Column(key, chosen=key not in ("theory", "measured")) for key in present),
    ]
    cells = [[Cell(place), *(_verdict_cell(row, key) for key in present)] for place, row in rows]
    counts = tag("p", verdict_counts(row["verdict"] for _, row in rows))
    listed = table("Every verdict", columns, cells, f"{name}-verdicts")
    return join([counts, details(f"All {len(rows)} verdicts", listed, class_="long")])


def _verdict_cell(row: Row, key: str) -> Cell:
    return cell_of(row, key) if key in row else Cell("")


def _experiment(experiment: Experiment, whole: str) -> Html:
    belongs = f", part of {whole}" if whole else ""
    summary = tag("span", experiment.title, " ", tag("code", experiment.name), belongs)
    return details(
        summary,
        *map(figure, experiment.figures),
        render(experiment.above, 3),
        _all_rows(experiment),
        details("Data, problems and origin", render(experiment.below, 5)),
        id=experiment.name,
    )


def _all_rows(experiment: Experiment) -> Html:
    """Return the rows of an experiment; those of one with parts stand with its parts too."""
    name = f"table-{experiment.name}"
    listed = results_table(f"{experiment.title}: all rows", experiment.rows, name)
    return details(f"All {len(experiment.rows)} rows", listed, class_="long") if experiment.parts else listed


def _findings(contents: Contents, paper: str) -> list[Html]:
    found = contents.findings.get(paper)
    if not found:
        return []
    columns = [Column("finding"), Column("claim"), Column("place"), Column("verdict", chosen=True)]
    columns += [Column("computed", extra=True), Column("rule", extra=True)]
    rows = [[cell_of(row, column.name) for column in columns] for row in found.rows]
    listed = table("Findings: claims held against computations", columns, rows, f"{paper.lower()}-findings")
    counts = tag("p", verdict_counts(row["verdict"] for row in found.rows))
    figures = [figure(drawn) for drawn in found.figures]
    inner = [render(found.intro, 4), listed, *figures]
    return [tag("h3", "Findings"), counts, details(f"All {len(found.rows)} findings", *inner)]


def _errata(errata: Errata | None, paper: str) -> list[Html]:
    if errata is None:
        return [tag("p", f"docs/fidelity.md has no section on {paper}.")]
    columns = [Column(c) for c in ("the paper", "what we run", "why", "shown by")]
    columns.insert(0, Column("section", chosen=True))
    name = paper.lower()
    listed = table("Where the paper is silent or wrong", columns, _text_cells(errata.errata), f"{name}-errata")
    found = [details(f"{len(errata.errata)} places where the paper is silent or wrong", listed)]
    if errata.decisions:
        columns = [Column("section", chosen=True), *(Column(c) for c in ("decision", "why", "shown by"))]
        own = table("Decisions of this reproduction", columns, _text_cells(errata.decisions), f"{name}-decisions")
        found.append(details(f"{len(errata.decisions)} decisions of this reproduction", own))
    if errata.remarks:
        found.append(details("Remarks: what was tried, what was chosen after looking", render(errata.remarks, 2)))
    return found


def _text_cells(rows: Sequence[Sequence[str]]) -> list[list[Cell]]:
    return [[Cell(inline(text)) for text in row] for row in rows]
