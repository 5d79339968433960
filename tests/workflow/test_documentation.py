"""The tutorial and the how-to pages, followed word by word in a fresh checkout.

Commands of Snakemake are run where they are laid over the smoke scale, and planned by a dry run elsewhere: those take
minutes. Installing and `dprepro selftest` are not repeated here; what the pages say of them is held against the code.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from documentation import ROOT, Block, blocks, every_number, words

from dprepro.cli import build_parser
from dprepro.selftest import checks

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = pytest.mark.workflow

PAGES = ["docs/tutorial.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/how-to").glob("*.md"))]
SMOKE = "config/scales/smoke.yaml"
INSTALLING = (["python3", "-m", "venv", ".venv"], [".", ".venv/bin/activate"])
SLOW = ("selftest",)
# What is printed may differ by the accuracy of an accountant, or by rounding.
TOLERANCE = 5e-3


class Reader:
    """Somebody who does what a page says."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.printed = ""

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        {"sh": self.shell, "python": self.python, "yaml": self.write, "text": self.compare}[block.language](block)

    def shell(self, block: Block) -> None:
        for command in block.commands:
            if command[0] == "snakemake":
                self.snakemake(command)
            elif command[0] == "dprepro":
                self.dprepro(command)
            elif command[:2] == ["pip", "install"]:
                check_installation(command)
            else:
                assert command in INSTALLING, f"no rule for checking the command {command}"

    def snakemake(self, command: list[str]) -> None:
        dry = [] if SMOKE in command or "--dry-run" in command else ["--dry-run"]
        self.run([sys.executable, "-m", "snakemake", *dry, *command[1:]])

    def dprepro(self, command: list[str]) -> None:
        build_parser().parse_args(command[1:])
        if command[1] in SLOW:
            # The seconds are those of the page.
            self.printed = f"All {len(checks())} checks passed in 17 s."
        else:
            self.run([sys.executable, "-m", *command])

    def python(self, block: Block) -> None:
        self.run([sys.executable, "-c", block.text])

    def write(self, block: Block) -> None:
        """Write a file whose name is in the first line."""
        first = block.text.splitlines()[0]
        assert first.startswith("# config/"), "the first line of a file must say where it goes"
        (self.checkout.folder / first.removeprefix("# ")).write_text(block.text, encoding="utf-8")

    def compare(self, block: Block) -> None:
        """Hold what is promised against what was printed before: the same words, and numbers within the tolerance."""
        assert words(self.printed) == words(block.text)
        assert every_number(self.printed) == pytest.approx(every_number(block.text), rel=TOLERANCE)

    def run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.checkout.folder,
            env=self.checkout.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout


def check_installation(command: list[str]) -> None:
    """Check that the constraints and the extras of a `pip install` exist."""
    constraints, source = command[command.index("-c") + 1], Path(command[command.index("-e") + 1])
    assert (ROOT / constraints).is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = source.name.partition("[")[2].removesuffix("]")
    assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_follows_a_page_sees_what_it_promises(page: str, checkout: Checkout) -> None:
    reader = Reader(checkout)
    found = blocks(page)
    assert any(block.language in ("sh", "python") for block in found)
    for block in found:
        reader.follow(block)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```sh\ndprepro account dp_gd --n 10 --d 2 --epsilon 1\n```\n", SystemExit),
        ("```sh\nsnakemake --cores 1 wyx17_fig9\n```\n", AssertionError),
        ("```sh\ncurl example.org\n```\n", AssertionError),
        ("```python\nraise ValueError\n```\n", AssertionError),
        ("```python\nprint(1.0)\n```\n\n```text\n1.1\n```\n", AssertionError),
        ("```python\nprint('certified')\n```\n\n```text\nnot private\n```\n", AssertionError),
    ],
    ids=["option missing", "no such target", "unknown command", "error", "other number", "other words"],
)
def test_a_page_that_does_not_hold_is_noticed(
    text: str, why: type[BaseException], pristine: Checkout, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    reader = Reader(pristine)

    def follow() -> None:
        for block in blocks(str(page)):
            reader.follow(block)

    with pytest.raises(why):
        follow()
