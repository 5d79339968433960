"""Docstrings are plain text with mathematics: what Markdown would take for markup is escaped, code is left alone."""

from __future__ import annotations

import re
from typing import Any

import griffe

_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"([\\*_\[\]|])")


def as_markdown(text: str) -> str:
    """Return Markdown that shows the text as it stands: `<w, x>` is no tag, `a*b*c` has no emphasis."""
    pieces = _CODE.split(text)
    return "".join(
        piece if k % 2 else _MARKUP.sub(r"\\\1", piece).replace("<", "&lt;") for k, piece in enumerate(pieces)
    )


class PlainDocstrings(griffe.Extension):
    """Escapes every docstring when it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Escape the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
