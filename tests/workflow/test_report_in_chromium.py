"""The report as a reader sees it: in a real browser, from the disk, without a network."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from chromium import Chromium, executable
from support import require

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = [pytest.mark.workflow, pytest.mark.chromium]

PHONE, DESK = 360, 1280
TABLE = "table-wyx17_table1"
OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true; 0"


def box(inner: str) -> str:
    """Return the script's name of something in the box of the table."""
    return f"document.getElementById('{TABLE}').closest('.table').querySelector('{inner}')"


SHOWN = f"[...document.getElementById('{TABLE}').tBodies[0].rows].filter(row => row.checkVisibility()).length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    program = executable()
    require("chromium", program is not None, "there is no Chromium here: install the package chromium")
    assert program is not None
    with Chromium(program) as started:
        yield started


@pytest.fixture
def page(browser: Chromium, finished: Checkout) -> Chromium:
    """The report, freshly opened on a desk."""
    browser.open(finished.results / "report.html", DESK)
    return browser


@pytest.fixture
def opened(page: Chromium) -> Chromium:
    """The report with everything unfolded."""
    page.run(OPEN_ALL)
    return page


def test_it_opens_without_a_word_on_the_console_and_asks_for_nothing(page: Chromium, finished: Checkout) -> None:
    page.events.clear()
    page.open(finished.results / "report.html")
    page.run(OPEN_ALL)
    assert page.complaints == []
    assert page.requests == [(finished.results / "report.html").as_uri()]
    assert page.run("document.title").startswith("dprepro")


def test_every_table_has_its_rows_and_every_figure_its_picture(opened: Chromium, finished: Checkout) -> None:
    for name, path in finished.files("tables/*.csv").items():
        with path.open(encoding="utf-8", newline="") as file:
            rows = len(list(csv.DictReader(file)))
        table = path.stem.replace("_findings", "-findings") if "findings" in name else f"table-{path.stem}"
        assert opened.run(f"document.getElementById('{table}').tBodies[0].rows.length") == rows > 0, name
    pictures = opened.run("[...document.images].map(one => [one.complete, one.naturalWidth, one.checkVisibility()])")
    assert len(pictures) == 30
    assert all(complete and width > 100 and visible for complete, width, visible in pictures)


def test_what_is_folded_is_out_of_sight_and_the_summary_is_in_sight(page: Chromium) -> None:
    assert page.run("document.getElementById('summary').checkVisibility()")
    assert not page.run(f"document.getElementById('{TABLE}').checkVisibility()")
    assert page.run("document.querySelectorAll('details[open]').length") == 0


def test_words_typed_into_the_search_leave_the_rows_that_hold_them(opened: Chromium, finished: Checkout) -> None:
    with (finished.results / "tables/wyx17_table1.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = sum("svrg" in str(row.values()).lower() and "published" in row["variant"] for row in rows)
    assert 0 < expected < len(rows)
    assert opened.run(SHOWN) == len(rows)
    opened.run(f"{box('input[type=search]')}.focus()")
    opened.type("SVRG published")
    assert opened.run(SHOWN) == expected
    assert opened.run(f"{box('output')}.textContent") == f"{expected} of {len(rows)} rows"
    assert opened.run(f"{box('output')}.getAttribute('aria-live')") == "polite"
    opened.type(" no such word")
    assert opened.run(SHOWN) == 0


def test_a_kind_of_verdict_can_be_chosen_by_the_keyboard(opened: Chromium) -> None:
    choose = f"[...{box('.controls')}.querySelectorAll('label')].find(one => one.textContent.startsWith('verdict'))"
    opened.run(f"{choose}.querySelector('select').focus()")
    opened.press("ArrowDown", 40)
    chosen = opened.run(f"{choose}.querySelector('select').value")
    assert chosen
    kinds = opened.run(
        f"[...document.getElementById('{TABLE}').tBodies[0].rows].filter(row => row.checkVisibility())"
        ".map(row => row.querySelector('[data-group]').dataset.group)"
    )
    assert set(kinds) == {chosen}
    assert opened.run(f"{box('output')}.textContent").startswith(f"{len(kinds)} of ")


def test_a_column_is_sorted_by_its_numbers_both_ways(opened: Chromium) -> None:
    header = f"[...document.getElementById('{TABLE}').tHead.rows[0].cells].find(one => one.textContent === 'measured')"
    values = (
        f"(() => {{ const at = {header}.cellIndex; return [...document.getElementById('{TABLE}').tBodies[0].rows]"
        ".map(row => row.cells[at].dataset.number).filter(Boolean).map(Number) })()"
    )
    before = opened.run(values)
    opened.run(f"{header}.querySelector('button').focus()")
    for order, reverse in (("ascending", False), ("descending", True)):
        opened.press("Enter", 13)
        assert opened.run(f"{header}.getAttribute('aria-sort')") == order
        assert opened.run(values) == sorted(before, reverse=reverse)
    assert before not in (sorted(before), sorted(before, reverse=True))


def test_further_columns_appear_on_demand(opened: Chromium) -> None:
    count = f"[...document.getElementById('{TABLE}').tHead.rows[0].cells].filter(one => one.checkVisibility()).length"
    few = opened.run(count)
    opened.run(f"{box('.check input')}.click()")
    assert opened.run(count) > few + 5


def test_a_link_to_something_folded_opens_it(page: Chromium) -> None:
    page.run(f"location.hash = '{TABLE}'; new Promise(done => setTimeout(done, 100))")
    assert page.run(f"document.getElementById('{TABLE}').checkVisibility()")


def test_a_phone_has_no_reason_to_scroll_sideways(browser: Chromium, finished: Checkout) -> None:
    browser.open(finished.results / "report.html", PHONE, 740)
    assert browser.run("document.documentElement.scrollWidth") <= PHONE
    browser.run(OPEN_ALL)
    assert browser.run("innerWidth") == PHONE
    assert browser.run("document.documentElement.scrollWidth") <= PHONE
    wide = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert browser.run(wide) > 10, "wide tables scroll in their boxes"


def test_on_paper_everything_is_open_and_the_controls_are_gone(page: Chromium) -> None:
    count = "document.querySelectorAll('details:not([open])').length"
    page.run(f"addEventListener('beforeprint', () => {{ window.folded = {count} }}); 0")
    printed = page.pdf()
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 20
    assert page.run("window.folded") == 0
    assert page.run("document.querySelectorAll('details[open]').length") == 0, "and folded again afterwards"
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run("[...document.querySelectorAll('.controls, nav')].filter(one => one.checkVisibility())") == []
    page.call("Emulation.setEmulatedMedia", media="")


def test_headings_captions_and_labels_tell_what_things_are(page: Chromium) -> None:
    assert page.run("document.documentElement.lang") == "en"
    assert page.run("[document.querySelectorAll('h1').length, document.querySelectorAll('main').length]") == [1, 1]
    levels = page.run("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(one => Number(one.tagName[1]))")
    assert max(later - earlier for earlier, later in itertools.pairwise(levels)) <= 1
    assert page.run("[...document.querySelectorAll('.table table')].every(one => one.caption.textContent)")
    assert page.run(
        "[...document.querySelectorAll('.controls input, .controls select')].every(one => one.labels.length)"
    )
    assert page.run("[...document.images].every(one => one.alt.length > 20)")
