"""Figures: one module per figure of a paper, each with `figure(frame, metadata)`."""

from __future__ import annotations

import importlib
from pathlib import Path

from dprepro.errors import UserError


def draw(target: str, data: Path, out: Path) -> None:
    """Draw the figure `target` from a collected table; write .png, .pdf, .svg and the caption as .md."""
    from dprepro.figures import style
    from dprepro.files import write_text
    from dprepro.stages.collect import read_collected

    try:
        module = importlib.import_module(f"{__name__}.{target}")
    except ModuleNotFoundError:
        raise UserError(f"There is no figure {target!r}: see dprepro list targets.") from None
    frame, metadata = read_collected(data)
    with style.applied():
        drawn, caption = module.figure(frame, metadata)
        style.save(drawn, out)
    write_text(out.with_suffix(".md"), caption + "\n")
