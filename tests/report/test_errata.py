"""The errata of the report come from docs/fidelity.md and nowhere else, and none is lost."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.report.contents import PAPERS
from dprepro.report.errata import read_errata
from dprepro.report.markdown import Heading, Table

FIDELITY = Path(__file__).parents[2] / "docs/fidelity.md"
HEAD = "| the paper | what we run | why | shown by |\n| --- | --- | --- | --- |\n"


def test_every_paper_has_errata_with_a_place_and_a_reason():
    found = read_errata(FIDELITY)
    assert list(found) == list(PAPERS)
    for paper in found.values():
        assert len(paper.errata) >= 20
        assert all(section and said and done for section, said, done, _, _ in paper.errata)
        assert paper.title.endswith(")")
        assert not any(isinstance(block, Table) for block in paper.remarks)


def test_every_row_of_every_table_of_the_page_is_found():
    rows = re.findall(r"^\|(?! *---)(?! the paper \|)(?! decision \|).*\|$", FIDELITY.read_text(), re.MULTILINE)
    found = read_errata(FIDELITY).values()
    assert sum(len(paper.errata) + len(paper.decisions) for paper in found) == len(rows) > 200


def test_headings_without_text_are_left_out_of_the_remarks():
    for paper in read_errata(FIDELITY).values():
        kinds = [isinstance(block, Heading) for block in paper.remarks]
        assert kinds[-1:] in ([], [False])
        assert (True, True) not in itertools.pairwise(kinds)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("## A — t\n\ntext\n", "has no errata of A"),
        ("text\n", "has no section"),
        (f"## A — t\n\n{HEAD}| one | two | three |\n", "cannot be read (3 cells where the head has 4"),
        (f"## A — t\n\n{HEAD}| a | b | c | d |\n\n| x |\n| --- |\n| y |\n", "a table with the head x"),
    ],
    ids=["no rows", "no section", "short row", "another head"],
)
def test_a_page_that_is_not_as_agreed_is_refused(text, sentence, tmp_path):
    page = tmp_path / "fidelity.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(sentence)):
        read_errata(page)


def test_a_missing_page_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nothing\.md does not exist"):
        read_errata(tmp_path / "nothing.md")
