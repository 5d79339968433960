"""The page on extensions, followed word by word in a fresh checkout: its files, commands and scripts, in its order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dprepro import extensions
from dprepro.experiments import read_yaml

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = pytest.mark.workflow

PAGE = Path(__file__).parents[2] / "docs/extending.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+\.\d{3,}")
PATIENCE_SECONDS = 900


class Step(NamedTuple):
    """One thing that a reader does: save a file, or run commands or a script; and what the page says it prints."""

    file: str
    language: str
    text: str
    promised: str


def steps(page: str) -> list[Step]:
    """Return what a page tells a reader to do. A block whose introduction ends in `path`: is a file."""
    found: list[Step] = []
    end = 0
    for block in BLOCK.finditer(page):
        language, text = block.groups()
        named = re.search(r"`([\w/]+\.\w+)`(?:, [\w ]+)?:\s*$", page[end : block.start()])
        end = block.end()
        if language:
            found.append(Step(named[1] if named else "", language, text, ""))
        else:
            found[-1] = found[-1]._replace(promised=text)
    return found


def script(step: Step) -> str:
    """Return a step as lines for a shell."""
    if step.file:
        return f"mkdir -p {Path(step.file).parent}\ncat > {step.file} <<'END'\n{step.text}END\n"
    return step.text if step.language == "bash" else f"python - <<'END'\n{step.text}END\n"


def follow(page: str, checkout: Checkout) -> list[str]:
    """Do all steps in one shell and return what each printed; a step that fails ends the test."""
    lines = [f"echo '=== {number}'\n{script(step)}" for number, step in enumerate(steps(page))]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=checkout.folder,
        env=checkout.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]


def assert_printed(promised: str, printed: str) -> None:
    """Assert that the lines of a promise are printed in its order, numbers with decimals to 0.2 percent."""
    rest = iter(printed.splitlines())
    for line in promised.splitlines():
        shape = NUMBER.sub("#", line).rstrip()
        found = next((other for other in rest if NUMBER.sub("#", other).rstrip() == shape), None)
        assert found is not None, f"{line!r} is not in:\n{printed}"
        wanted, got = ([float(number) for number in NUMBER.findall(text)] for text in (line, found))
        assert got == pytest.approx(wanted, rel=2e-3)


def test_a_reader_who_follows_the_page_word_by_word_sees_what_it_says(checkout: Checkout) -> None:
    page = PAGE.read_text(encoding="utf-8")
    done = steps(page)
    assert {step.language for step in done} == {"bash", "python", "yaml"}
    assert sum(bool(step.promised) for step in done) >= 5
    for step, printed in zip(done, follow(page, checkout), strict=True):
        assert_printed(step.promised, printed)
    results = checkout.folder / "results/mine"
    assert (results / "figures/wyx17_fig1.png").stat().st_size > 0
    assert "averaged GD, T = 60" in (results / "figures/wyx17_fig1.svg").read_text()
    assert (results / "plans/wyx17_fig1/averaged-gd.covertype-20000-seed0.published.eps1.certificate.json").is_file()
    # The bug that the page speaks of.
    path = checkout.folder / "mine/algorithms/averaged_gd.py"
    path.write_text(path.read_text().replace("(x) + z)", "(x) + 0.5 * z)"))
    command = [sys.executable, "-m", "dprepro", "audit", "averaged_gd", "--epsilon", "2"]
    environment = {**checkout.environment, extensions.VARIABLE: "mine"}
    audit = subprocess.run(command, cwd=checkout.folder, env=environment, capture_output=True, text=True, check=False)
    assert audit.returncode == 1
    assert "a mechanism, a sensitivity or the accountant is wrong" in audit.stderr


def test_the_plan_and_the_run_of_the_page_take_less_than_thirty_lines() -> None:
    (algorithm,) = [step.text for step in steps(PAGE.read_text(encoding="utf-8")) if "class AveragedGD(" in step.text]
    body = algorithm[algorithm.index("    def compute_plan") : algorithm.index("ALGORITHM")]
    assert "def run" in body
    assert len([line for line in body.splitlines() if line.strip()]) < 30


def test_the_curve_of_the_page_is_the_only_thing_that_it_adds_to_figure_1(pristine: Checkout) -> None:
    (overlay,) = [step.text for step in steps(PAGE.read_text(encoding="utf-8")) if step.file == "mine/figure1.yaml"]
    path = pristine.folder.parent / "figure1.yaml"
    path.write_text(overlay)
    entries = read_yaml(path)["overrides"]["wyx17_fig1"]["algorithms"]
    shipped = read_yaml(pristine.folder / "config/experiments/wyx17_fig1.yaml")["algorithms"]
    assert set(entries) - set(shipped) == {"averaged-gd"}


@pytest.mark.parametrize(
    ("promised", "printed"),
    [("a 1.2345", "a 1.2445"), ("a", "b"), ("a\nb", "b\na"), ("a 1.2345", "b 1.2345")],
)
def test_a_promise_that_is_not_kept_is_seen(promised: str, printed: str) -> None:
    with pytest.raises(AssertionError):
        assert_printed(promised, printed)
    assert_printed(promised, f"first\n{promised}\nlast")
