"""Where the papers are silent or wrong: docs/fidelity.md, read so that nothing in it is lost.

Every paper has a section `## NAME — authors: title`, its parts are `### ...`, and a table in it has one of two heads.
Another head, or a paper of which nothing is found, is an error: the page is the only place where errata are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dprepro.errors import UserError
from dprepro.report.markdown import Block, Heading, Table, blocks

ERRATA = ("the paper", "what we run", "why", "shown by")
DECISIONS = ("decision", "why", "shown by")


@dataclass(frozen=True)
class Errata:
    """What one paper's section holds: errata and decisions with the part they stand in, and all other text."""

    title: str
    errata: list[tuple[str, ...]] = field(default_factory=list)
    decisions: list[tuple[str, ...]] = field(default_factory=list)
    remarks: list[Block] = field(default_factory=list)


def read_errata(path: Path) -> dict[str, Errata]:
    """Return the errata of every paper by its name."""
    try:
        found = _sections(blocks(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"The file {path} does not exist: the report takes the errata from it; restore it.") from None
    except ValueError as error:
        raise UserError(f"The errata in {path} cannot be read ({error}): mend the table.") from None
    for name, paper in found.items():
        if not paper.errata:
            heads = " | ".join(ERRATA)
            raise UserError(f"{path} has no errata of {name}: its section needs a table | {heads} |.")
    if not found:
        raise UserError(f"{path} has no section `## PAPER — title`: the report takes the errata from such sections.")
    return found


def _sections(parts: Sequence[Block]) -> dict[str, Errata]:
    found: dict[str, Errata] = {}
    paper: Errata | None = None
    part = ""
    for block in parts:
        if isinstance(block, Heading) and block.level == 2:
            name, _, title = (piece.strip() for piece in block.text.partition("—"))
            paper, part = Errata(title), ""
            found[name] = paper
        elif paper is not None:
            part = block.text if isinstance(block, Heading) else part
            _keep(block, part, paper)
    return {name: replace(paper, remarks=_with_text(paper.remarks)) for name, paper in found.items()}


def _with_text(remarks: Sequence[Block]) -> list[Block]:
    """Return remarks without headings under which nothing but tables stands."""
    following = [*remarks[1:], Heading(3, "")]
    pairs = zip(remarks, following, strict=True)
    return [one for one, after in pairs if not (isinstance(one, Heading) and isinstance(after, Heading))]


def _keep(block: Block, part: str, paper: Errata) -> None:
    if not isinstance(block, Table):
        paper.remarks.append(block)
    elif block.head == ERRATA:
        paper.errata.extend((part, *row) for row in block.rows)
    elif block.head == DECISIONS:
        paper.decisions.extend((part, *row) for row in block.rows)
    else:
        raise ValueError(f"a table with the head {' | '.join(block.head)}")
