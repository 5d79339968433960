"""Texts of labels and titles act as nothing but text: in LaTeX, in spreadsheets, in Markdown and on the page."""

from __future__ import annotations

import csv
import doctest
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprepro import escape, figures, tables
from dprepro.comparison import read_results
from dprepro.files import write_table
from dprepro.report.markdown import Table, blocks, inline, plain
from dprepro.stages.certify import certify_job
from dprepro.stages.collect import collect
from dprepro.stages.dataset import prepare
from dprepro.stages.optimum import solve_exactly
from dprepro.stages.report import _around, _rows
from dprepro.stages.run import run_job

# One label with all that formats take for something else, and one that begins like a formula and like a number.
HOSTILE = r"""=HYPERLINK("a") | <script>alert(1)</script> & 100 % ~^_#$ \LaTeX{{}} [*] &lt; `x"""
FORMULAS = ("=1+1", "+1+1", "-x", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-1")
NUMBERS = ("-0.5", "-1e-3", "+2", "-.5", "1e9", "-inf", "0")
texts = st.text(st.sampled_from("\\{}&%$#_~^<>[]*|`'\"=+-@\t\r\n ab1.;/!?é"), max_size=30) | st.text(max_size=30)

_TOKEN = re.compile(
    r"\\(?P<word>textbackslash|textasciitilde|textasciicircum)\{\}|\\(?P<sign>[{}&%$#_])|\$(?P<math>[<>])\$"
    r"|\{(?P<guarded>[\[*])\}|(?P<plain>[^\\{}&%$#_~^<>\[*\x00-\x1f])"
)
_WORDS = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^"}


def untex(text: str) -> str:
    """Return the text that LaTeX prints; what it would take for a command is an error."""
    shown, end = [], 0
    while end < len(text):
        token = _TOKEN.match(text, end)
        assert token, f"LaTeX takes {text[end:]!r} for something else than text"
        kind = str(token.lastgroup)
        shown.append(_WORDS[token[kind]] if kind == "word" else token[kind])
        end = token.end()
    return "".join(shown)


class Elements(HTMLParser):
    """The names of the elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_examples_of_the_docstrings_hold() -> None:
    failed, tried = doctest.testmod(escape)
    assert (failed, tried > 0) == (0, True)


@given(texts)
def test_latex_prints_the_text_and_takes_nothing_in_it_for_a_command(text: str) -> None:
    assert untex(escape.latex(text)) == escape.one_line(text)


@given(texts)
def test_a_spreadsheet_computes_nothing_and_our_own_reader_gets_the_text_back(text: str) -> None:
    written = escape.cell(text)
    assert escape.uncell(written) == text
    assert written == text or written == f"'{text}"
    try:
        float(written)
    except ValueError:
        assert not written.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_defused(text: str) -> None:
    assert escape.cell(text) == f"'{text}"


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_stay_numbers(text: str) -> None:
    assert escape.cell(text) == text


@given(texts)
def test_no_html_begins_in_markdown_and_our_own_reader_gets_the_text_back(text: str) -> None:
    written = escape.markdown(text)
    assert not re.search(r"<([/!?]|[A-Za-z][A-Za-z0-9.+-]*[\s/>:@])", written)
    without = escape.one_line(text).replace("`", "").replace("*", "").replace("[", "")
    page = Elements(inline(escape.markdown(without)))
    assert page.names == []
    assert page.text == plain(escape.markdown(without)) == without


@pytest.mark.parametrize("text", ["<script>", "<img/src=x>", "</p>", "<!--", "<javascript:alert(1)>", "<a@b.c>"])
def test_elements_and_links_are_defused_in_markdown(text: str) -> None:
    assert escape.markdown(text) == text.replace("<", "&lt;", 1)


def test_a_product_in_a_formula_stays_readable_in_markdown() -> None:
    assert escape.markdown("log(1 + exp(-y<w,x>)), a < b & c") == "log(1 + exp(-y<w,x>)), a < b & c"


@given(st.lists(texts, min_size=1, max_size=3))
def test_a_row_of_a_table_in_markdown_has_its_cells_whatever_is_in_them(row: list[str]) -> None:
    frame = pd.DataFrame([row], columns=[f"c{number}" for number in range(len(row))])
    (table,) = blocks(tables.markdown_rows(frame))
    assert isinstance(table, Table)
    assert table.rows == (tuple(escape.one_line(text).strip() for text in row),)


def test_a_csv_file_holds_numbers_as_numbers_and_texts_on_one_line(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["=1", "a\r\nb"], "mixed": [-0.5, "-x"], "number": [-0.5, -1e-3]})
    write_table(tmp_path / "t.csv", frame, float_format="%.10g")
    with (tmp_path / "t.csv").open(newline="") as lines:
        assert list(csv.reader(lines)) == [
            ["text", "mixed", "number"],
            ["'=1", "-0.5", "-0.5"],
            ["a b", "'-x", "-0.001"],
        ]
    assert pd.read_csv(tmp_path / "t.csv")["number"].dtype == float


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table and the figure of one run whose label and title are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    job = {
        "experiment": "trial", "job": "a", "entry": "a", "label": HOSTILE, "paper": "<b>", "title": "| <script> & %",
        "algorithm": "dp_gd", "parameters": {"T": 3}, "variant": "certified", "epsilon": 1.0, "delta": 0.001,
        "replicates": 3, "tile": 8, "dtype": "float64", "device": "cpu", "seed": 5, "loss": "logistic",
        "regularizer": {"l2": 0.1}, "constraint": None, "dataset": "small",
    }  # fmt: skip
    data, optimum, plan = folder / "small.npz", folder / "optima/small.npz", folder / "plan.json"
    prepare({"name": "synthetic_logistic", "rows": 100, "seed": 3, "parameters": {"features": 3}}, data)
    solve_exactly(job, data, optimum)
    certify_job(job, data.with_suffix(".json"), plan)
    run_job(plan, data, folder / "runs/a.npz")
    collect([folder / "runs/a.npz"], {"small": optimum}, folder / "data/trial.parquet")
    (folder / "tables").mkdir()
    tables.write("trial", folder / "data/trial.parquet", folder / "tables/trial.csv")
    figures.draw("trial", folder / "data/trial.parquet", folder / "figures/trial.png")
    return folder


def test_a_hostile_label_reaches_the_report_and_the_comparison_as_it_was_given(results: Path) -> None:
    label = HOSTILE.format_map({})
    rows = _rows(results / "tables/trial.csv")
    assert {row["method"] for row in rows} == {label}
    _, below = _around(results / "tables/trial.md", rows)
    assert below
    assert any(label in place.about for place in read_results(results).numbers)
    text = (results / "tables/trial.csv").read_text()
    assert "'=HYPERLINK" in text
    assert not re.search(r'(^|,)"?=', text, re.MULTILINE)


def test_a_hostile_label_is_text_in_latex_and_markdown(results: Path) -> None:
    label = HOSTILE.format_map({})
    rows = [line for line in (results / "tables/trial.tex").read_text().splitlines() if "HYPERLINK" in line]
    assert rows
    for row in rows:
        cells = re.split(r" & ", row.removesuffix(" \\\\"))
        assert label in [untex(cell) for cell in cells]
    for file in ("tables/trial.md", "figures/trial.md"):
        assert "<script" not in (results / file).read_text()
    assert json.loads((results / "tables/trial.json").read_text())["incomplete"] == []
