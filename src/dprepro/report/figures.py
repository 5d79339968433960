"""Figures of the report."""

from __future__ import annotations

from dprepro.report.contents import Figure
from dprepro.report.markdown import Paragraph, inline, render
from dprepro.report.markup import Html, details, image, tag


def figure(drawn: Figure) -> Html:
    """Return a figure with the first paragraph of its caption; the rest of it opens on demand."""
    first, *rest = drawn.caption
    head = inline(first.text) if isinstance(first, Paragraph) else render([first], 5)
    more = details("Problems, data and origin", render(rest, 5), class_="long") if rest else ""
    box = tag("div", image(drawn.svg, drawn.alt), class_="scroll", tabindex="0", role="region", aria_label=drawn.name)
    return tag("figure", box, tag("figcaption", tag("p", head), more), id=f"figure-{drawn.name}")
