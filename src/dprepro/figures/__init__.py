"""Figures: one module per kind of experiment, each with `figure(frame, metadata)`.

An experiment that needs a figure of its own has a module of its own name here, which goes before that of its kind.
"""

from __future__ import annotations

from pathlib import Path

from dprepro.origin import module_for


def draw(target: str, data: Path, out: Path) -> None:
    """Draw the figure `target` from a collected table; write .png, .pdf, .svg and the caption as .md."""
    from dprepro.figures import style
    from dprepro.files import write_text
    from dprepro.stages.collect import read_collected

    frame, metadata = read_collected(data)
    module = module_for(__name__, target, metadata["kind"])
    with style.applied():
        drawn, caption = module.figure(frame, metadata)
        style.save(drawn, out)
    write_text(out.with_suffix(".md"), caption + "\n")
