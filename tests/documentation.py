"""The examples of a page of the documentation: blocks of code in their order, and the commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRITTEN = sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PROGRAMS = ("dprepro", "snakemake", "make", "pip")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language (`sh`, `python`, `yaml`, `text` or none) and what stands in it."""

    language: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The commands of a block of the shell, in words; a backslash at its end continues a line."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.strip()]


def text_of(page: str) -> str:
    """Return the text of a page, named by its path from the top of the checkout."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


def examples(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    return [block.text for block in blocks(page) if block.language == "python"]


def named_commands(page: str) -> list[list[str]]:
    """Return the commands of a page that stand between backticks in its text, without those that have placeholders."""
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    found = [shlex.split(code) for code in re.findall(r"`((?:dprepro|snakemake|make) [^`]+)`", prose)]
    return [words for words in found if not any(re.search(r"\b[A-Z]{1,}\b|[.]{3}|<", word) for word in words[1:])]


def every_number(text: str) -> list[float]:
    """Return all numbers of a text."""
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", text)]


def words(text: str) -> str:
    """Return a text without its numbers, and with single blanks."""
    return " ".join(re.sub(r"-?\d+\.?\d*(?:e[-+]?\d+)?", "#", text).split())


def schema_keys(schema: object) -> set[str]:
    """Return all keys that a schema and the schemas within it name."""
    if isinstance(schema, list):
        return set().union(*map(schema_keys, schema))
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", {})).union(*map(schema_keys, schema.values()))
