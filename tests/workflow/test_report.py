"""The report: one file that needs nothing else, with all that the configuration makes and nothing that it does not."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = pytest.mark.workflow

REPORT = "Writing the report"
PAPERS = ("WYX17", "BGM21", "ABG23", "KLT25")
MOST_BYTES = 10_000_000


class Page(HTMLParser):
    """What a page refers to, the identifiers it has, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []
        self.pictures: list[tuple[str, str]] = []
        self.policy = ""
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("src", "href", "srcset", "action", "data") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        self.handlers += [name for name in given if name.startswith("on")]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag == "img":
            self.pictures.append((given["src"], given["alt"]))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(finished: Checkout) -> Page:
    return Page(finished.results / "report.html")


def test_it_is_one_file_of_bearable_size_that_loads_nothing(finished: Checkout, page: Page) -> None:
    text = (finished.results / "report.html").read_text(encoding="utf-8")
    assert len(text.encode()) < MOST_BYTES
    assert [link for link in page.links if not link.startswith(("#", "data:image/svg+xml;base64,"))] == []
    assert re.findall(r"url\(|@import|fetch\(|XMLHttpRequest", text) == []
    assert page.policy.startswith("default-src 'none'; ")
    assert page.handlers == []


def test_links_inside_it_lead_somewhere_and_no_place_has_two_names(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_every_table_and_figure_is_in_it(finished: Checkout, page: Page) -> None:
    findings = {"abg23_findings", "klt25_findings"}
    tables = {path.stem for path in finished.files("tables/*.csv").values()} - findings
    assert {f"table-{name}" for name in tables} <= set(page.ids)
    assert {"abg23-findings", "klt25-findings", "audits"} <= set(page.ids)
    figures = {path.stem for path in finished.files("figures/*.svg").values()} | {"certificates", "audit"}
    assert {f"figure-{name}" for name in figures} == {name for name in page.ids if name.startswith("figure-")}
    assert len(page.pictures) == len(figures) == 30
    assert all(len(alt) > 20 for _, alt in page.pictures)


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_has_verdicts_certificates_errata_provenance_and_run_times(paper: str, page: Page) -> None:
    parts = ("verdicts", "accounted", "certificates", "audits", "errata", "origins", "data", "times", "jobs")
    assert {f"{paper.lower()}-{part}" for part in parts} <= set(page.ids)


def test_the_summary_counts_the_verdicts_of_the_findings(finished: Checkout, page: Page) -> None:
    with finished.files("tables/klt25_findings.csv")["tables/klt25_findings.csv"].open() as file:
        verdicts = [row["verdict"] for row in csv.DictReader(file)]
    contradicted = sum(verdict.startswith("contradicted") for verdict in verdicts)
    assert contradicted > 0
    summary = page.text.partition("Summary")[2].partition("in words")[0]
    assert f"{contradicted} contradicted" in summary


def test_it_says_that_the_smoke_scale_is_not_the_reproduction(page: Page) -> None:
    assert "their numbers are not those of the default reproduction" in page.text
    assert "Not in it" not in page.text


def test_made_again_it_has_the_same_bytes(done: Checkout) -> None:
    before = (done.results / "report.html").read_bytes()
    (done.results / "report.html").unlink()
    outcome = done.snakemake("report")
    assert outcome.code == 0, outcome.text
    assert outcome.jobs == [REPORT]
    assert (done.results / "report.html").read_bytes() == before


@pytest.mark.parametrize("asset", ["report.css", "report.js"])
def test_another_look_makes_the_report_again_and_nothing_else(asset: str, done: Checkout) -> None:
    done.edit(f"report/{asset}", lambda text: f"{text}\n")
    assert done.planned() == [REPORT]


def test_another_erratum_makes_the_report_again_and_nothing_else(done: Checkout) -> None:
    path = done.folder / "docs/fidelity.md"
    row = "| the paper | what we run | why | shown by |\n| --- | --- | --- | --- |\n"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(row, f"{row}| A misprint found today. | Without it. | | |\n", 1), encoding="utf-8")
    assert done.planned() == [REPORT]
    assert done.snakemake("report").code == 0
    assert "A misprint found today." in (done.results / "report.html").read_text(encoding="utf-8")


def test_a_part_of_the_experiments_gives_a_report_that_says_what_is_not_in_it(done: Checkout) -> None:
    smoke = (done.folder / "config/scales/smoke.yaml").read_text()
    config = done.write_config(f"experiments: [wyx17_fig1]\n{smoke}")
    outcome = done.snakemake("report", config=config)
    assert outcome.code == 0, outcome.text
    assert outcome.jobs == sorted(["Writing the tables of certificates and audits", REPORT])
    page = Page(done.results / "report.html")
    assert [name for name in page.ids if name.startswith("table-")] == ["table-wyx17_fig1"]
    said = page.text.partition("Not in it, because the configuration does not ask for it: ")[2].partition(".")[0]
    assert said.startswith("all of BGM21, all of ABG23, all of KLT25, wyx17_comparison")
    assert "wyx17_fig1," not in said
    assert not {"bgm21", "abg23", "klt25"} & set(page.ids)


def test_a_lost_result_is_made_before_the_report(done: Checkout) -> None:
    (done.results / "tables/wyx17_fig1.md").unlink()
    outcome = done.snakemake("report")
    assert outcome.code == 0, outcome.text
    assert len(outcome.jobs) == 2
    assert REPORT in outcome.jobs
    assert any("wyx17_fig1" in job for job in outcome.jobs)


def test_a_damaged_result_is_named_by_the_report(done: Checkout) -> None:
    (done.results / "tables/wyx17_fig1.md").write_text("| a | b |\n| --- | --- |\n| 1 |\n", encoding="utf-8")
    outcome = done.snakemake("report")
    assert outcome.code == 1
    assert "tables/wyx17_fig1.md was changed after it was written" in outcome.text
    assert "Traceback" not in outcome.text


def test_the_report_of_snakemake_itself_has_all_papers_with_captions(done: Checkout) -> None:
    outcome = done.snakemake("--report", "own.zip")
    assert outcome.code == 0, outcome.text
    with zipfile.ZipFile(done.folder / "own.zip") as archive:
        names = archive.namelist()
        text = archive.read(next(name for name in names if name.endswith("report.html"))).decode()
    found = re.search(r"var categories = (\{.*?\});", text)
    assert found is not None
    categories = json.loads(found[1])
    assert set(categories) == {*PAPERS, "Privacy"}
    assert set(categories["KLT25"]) == {"Figures", "Tables", "Findings"}
    shown = [file for parts in categories.values() for files in parts.values() for file in files]
    assert len(shown) == len(set(shown)) == 26 + 26 + 2 + 2 + 2
    for caption in (
        "drawn from the collected table",
        "measured values with 95 % intervals",
        "under replacement of one",
    ):
        assert caption in " ".join(text.replace("\\n", " ").split())
