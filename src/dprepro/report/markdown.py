"""The Markdown that results and docs/fidelity.md are written in: headings, paragraphs, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape

from dprepro.report.markup import Html, join, tag
from dprepro.report.tables import plain_table

_INLINE = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>.+?)\*\*|\[(?P<link>[^\]\[]+)\]\([^)\s]+\)")
_PIPE = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Heading:
    """A heading with its level, 1 for the title."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table: the names of its columns and its rows, all as text."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Paragraph | Bullets | Table


def blocks(text: str) -> list[Block]:
    """Return the blocks of a text."""
    return [block for lines in _chunks(text) for block in _blocks_of(lines)]


def _chunks(text: str) -> Iterator[list[str]]:
    """Yield groups of lines that no empty line divides; a heading is a group of its own."""
    chunk: list[str] = []
    for line in text.splitlines():
        if chunk and (not line.strip() or line.startswith("#")):
            yield chunk
            chunk = []
        if line.startswith("#"):
            yield [line]
        elif line.strip():
            chunk.append(line)
    if chunk:
        yield chunk


def _blocks_of(lines: list[str]) -> Iterator[Block]:
    first = lines[0]
    if first.startswith("#"):
        marks, _, text = first.partition(" ")
        yield Heading(len(marks), text.strip())
    elif first.startswith("|"):
        yield _table(lines)
    elif first.startswith("- "):
        yield Bullets(tuple(_items(lines)))
    else:
        yield Paragraph(" ".join(line.strip() for line in lines))


def _items(lines: Sequence[str]) -> Iterator[str]:
    item: list[str] = []
    for line in lines:
        if line.startswith("- ") and item:
            yield " ".join(item)
            item = []
        item.append(line.removeprefix("- ").strip())
    yield " ".join(item)


def _table(lines: Sequence[str]) -> Table:
    """Return a table; every line must have as many cells as the first."""
    head, *rows = (_cells(line) for line in lines)
    if len(rows) < 1 or any(set(cell) - set(":-") for cell in rows[0]):
        raise ValueError(f"no line of dashes follows the head {lines[0]!r}")
    for line, row in zip(lines[1:], rows, strict=True):
        if len(row) != len(head):
            raise ValueError(f"{len(row)} cells where the head has {len(head)}: {line[:80]!r}")
    return Table(head, tuple(rows[1:]))


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip().replace("\\|", "|") for cell in _PIPE.split(inner))


def inline(text: str) -> Html:
    """Return running text as HTML: code, strong words, links as their text (there is nothing to go to offline)."""
    pieces, end = [], 0
    for match in _INLINE.finditer(text):
        pieces.append(escape(unescape(text[end : match.start()])))
        kind = str(match.lastgroup)
        pieces.append(inline(match[kind]) if kind == "link" else tag(kind, unescape(match[kind])))
        end = match.end()
    return Html("".join([*pieces, escape(unescape(text[end:]))]))


def plain(text: str) -> str:
    """Return running text without its marks, as for the description of an image."""
    return unescape(_INLINE.sub(lambda match: str(match[str(match.lastgroup)]), text))


def render(parts: Sequence[Block], level: int) -> Html:
    """Return blocks as HTML; a heading of level 1 becomes one of `level`."""
    return join([_rendered(block, level) for block in parts])


def _rendered(block: Block, level: int) -> Html:
    if isinstance(block, Heading):
        return tag(f"h{min(level + block.level - 1, 6)}", inline(block.text))
    if isinstance(block, Paragraph):
        return tag("p", inline(block.text))
    if isinstance(block, Bullets):
        return tag("ul", *(tag("li", inline(item)) for item in block.items))
    return plain_table(block.head, [[inline(cell) for cell in row] for row in block.rows])
