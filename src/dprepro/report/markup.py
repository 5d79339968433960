"""Pieces of HTML; what is not HTML already is escaped."""

from __future__ import annotations

import base64
from html import escape

_VOID = frozenset({"img", "meta"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element; children that are no `Html` are escaped.

    A trailing underscore of an attribute's name is dropped, other underscores become dashes; None leaves it out.

    >>> tag("a", "x < y", href="#top", class_="link", data_value=None)
    '<a href="#top" class="link">x &lt; y</a>'
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(children: object, separator: str = "") -> Html:
    """Return pieces in a row, escaped where they are no `Html`."""
    assert isinstance(children, (list, tuple))
    return Html(separator.join(child if isinstance(child, Html) else escape(str(child)) for child in children))


def details(summary: object, *children: object, **attributes: object) -> Html:
    """Return what opens on demand."""
    return tag("details", tag("summary", summary), *children, **attributes)


def image(svg: bytes, alt: str) -> Html:
    """Return an SVG as an image inside the page; identifiers of several images do not meet there."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return tag("img", src=source, alt=alt)


def _attribute(key: str, value: object) -> str:
    return f' {key.removesuffix("_").replace("_", "-")}="{escape(str(value))}"'
