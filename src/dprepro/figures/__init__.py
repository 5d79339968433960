"""Figures: one module per figure of a paper, each with `figure(frame, metadata)`."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from dprepro.errors import UserError


def draw(target: str, data: Path, out: Path) -> None:
    """Draw the figure `target` from a collected table; write .png, .pdf, .svg and the caption as .md."""
    from dprepro.figures import style
    from dprepro.files import write_text
    from dprepro.stages.collect import read_collected

    if importlib.util.find_spec(f"{__name__}.{target}") is None:
        raise UserError(f"There is no figure {target!r}: see dprepro list targets.")
    module = importlib.import_module(f"{__name__}.{target}")
    frame, metadata = read_collected(data)
    with style.applied():
        drawn, caption = module.figure(frame, metadata)
        style.save(drawn, out)
    write_text(out.with_suffix(".md"), caption + "\n")
