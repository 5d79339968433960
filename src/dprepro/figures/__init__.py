"""Figures: one module per kind of experiment, each with `figure(frame, metadata)`.

An experiment that needs a figure of its own has a module of its own name here, which goes before that of its kind.
If no run has a result, `nothing` states so in words.
"""

from __future__ import annotations

from pathlib import Path

from dprepro import escape
from dprepro.origin import module_for


def draw(target: str, data: Path, out: Path) -> None:
    """Draw the figure `target` from a collected table; write .png, .pdf, .svg and the caption as .md."""
    from dprepro.collected import read_current
    from dprepro.figures import nothing, style
    from dprepro.files import write_publication, write_text
    from dprepro.origin import incomplete_lines
    from dprepro.workflow import made_by

    frame, metadata = read_current(data)
    module = module_for(__name__, target, metadata["kind"]) if nothing.has_results(frame) else nothing
    with style.applied():
        drawn, caption = module.figure(frame, metadata)
        style.save(drawn, out)
    gaps = incomplete_lines(metadata)
    write_text(out.with_suffix(".md"), escape.markdown(f"{caption}\n\n{gaps}\n" if gaps else f"{caption}\n"))
    made_from, incomplete = {f"data/{data.name}": metadata["digest"]}, metadata["incomplete"]
    sources = made_by("figure", target=target, kind=metadata["kind"])
    write_publication(out, ("png", "pdf", "svg", "md"), made_from=made_from, made_by=sources, incomplete=incomplete)
