"""Pieces of HTML: nothing reaches the page unescaped, and tables tell the script what it needs."""

from __future__ import annotations

import doctest
from html.parser import HTMLParser

import pytest

from dprepro.report import markdown, markup, tables
from dprepro.report.markup import Html, tag
from dprepro.report.tables import Cell, Column, plain_table, results_table, table

HOSTILE = '<script>alert("1 & 2")</script>'


class Elements(HTMLParser):
    """The names of the elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("module", [markup, tables])
def test_the_examples_of_the_docstrings_hold(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize(
    "page",
    [
        tag("p", HOSTILE, title=HOSTILE),
        table(HOSTILE, [Column(HOSTILE)], [[Cell(HOSTILE, group=HOSTILE)]], "t"),
        plain_table([HOSTILE], [[tag("b", HOSTILE)]], HOSTILE),
        results_table(HOSTILE, [{"method": HOSTILE, "verdict": HOSTILE}], "t"),
        markdown.render(markdown.blocks(f"# {HOSTILE}\n\n{HOSTILE} `{HOSTILE}` **{HOSTILE}**\n\n- {HOSTILE}\n"), 2),
        markdown.render(markdown.blocks(f"| {HOSTILE} |\n| --- |\n| {HOSTILE} |\n"), 2),
    ],
    ids=["element", "table", "plain table", "results", "text", "table in text"],
)
def test_text_of_results_cannot_become_markup(page):
    found = Elements(page)
    assert "script" not in found.names
    assert HOSTILE in found.text
    assert not any(name.startswith("on") for each in found.attributes for name in each)


def test_only_what_is_html_already_passes_as_it_is():
    assert tag("p", Html("<b>x</b>"), "<b>") == "<p><b>x</b>&lt;b&gt;</p>"


def test_a_result_shows_its_interval_and_sorts_by_its_number():
    row = {"method": "m", "measured": "-0.42643", "ci_low": "-0.4423", "ci_high": "-0.41", "verdict": "agrees; 1 of 8"}
    page = results_table("caption", [row], "name")
    found = Elements(page)
    assert "-0.4264 [-0.4423, -0.41]" in found.text
    assert "ci low" not in found.text
    assert {"-0.42643", "agrees"} <= {each.get("data-number") or each.get("data-group") for each in found.attributes}
    assert "<caption>caption</caption>" in page


def test_columns_of_the_second_rank_are_there_on_demand_only():
    page = results_table("caption", [{"method": "m", "algorithm": "a", "sigma": "1", "verdict": "agrees"}], "name")
    heads = [each for name, each in zip(Elements(page).names, Elements(page).attributes, strict=True) if name == "th"]
    assert [each.get("class") for each in heads] == [None, "extra", None, "extra"]
    assert ["data-chosen" in each for each in heads] == [True, False, True, False]


def test_markdown_is_read_as_it_is_written_by_the_tables():
    text = (
        "# Title\n\nText over\ntwo lines, see [the page](other.md).\n\n- one\n  goes on\n- two\n\n"
        "| a | b |\n| --- | --- |\n| `x \\| y` | |\n"
    )
    title, paragraph, bullets, found = markdown.blocks(text)
    assert title == markdown.Heading(1, "Title")
    assert paragraph == markdown.Paragraph("Text over two lines, see [the page](other.md).")
    assert markdown.inline(paragraph.text) == "Text over two lines, see the page."
    assert bullets == markdown.Bullets(("one goes on", "two"))
    assert found == markdown.Table(("a", "b"), (("`x | y`", ""),))
    assert markdown.inline(found.rows[0][0]) == "<code>x | y</code>"


def test_stars_and_underscores_of_formulas_stay():
    assert markdown.inline("x* <= 5*10^4, B_w(x*, x_0)") == "x* &lt;= 5*10^4, B_w(x*, x_0)"


@pytest.mark.parametrize("text", ["| a | b |\n| --- | --- |\n| 1 |\n", "| a |\n| 1 |\n", "| a |\n"])
def test_a_table_that_is_not_whole_is_an_error(text):
    with pytest.raises(ValueError, match="head"):
        markdown.blocks(text)
