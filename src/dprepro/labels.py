"""Labels of methods: texts that name parameters of the plan in braces, such as `DP-GD, T = {T}`."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

# What a figure has room for; a format such as {T:999} must not ask for more.
MOST_CHARACTERS = 120
# Sample value per type of a plan's field, to try formats with; others are shown as plain text.
_SAMPLES: dict[str, Any] = {"int": 1, "float": 0.5, "bool": True, "str": "text"}


def formatted(label: str, parameters: Mapping[str, Any]) -> str:
    """Return a label with the values of its parameters; one that no plan has fixed stays as it is written."""
    return "".join(_parts(label, parameters))


def _parts(label: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    for text, name, spec, conversion in string.Formatter().parse(label):
        yield text
        if name is None:
            continue
        if name not in parameters:
            yield "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
            continue
        value = string.Formatter().convert_field(parameters[name], conversion)
        try:
            yield format(value, spec or "")
        except (TypeError, ValueError):
            # JSON has the word "inf" for an infinite number.
            yield str(value)


def names(label: str) -> list[str]:
    """Return the names in the braces of a label; braces without a partner are a `ValueError`."""
    return [name for _, name, _, _ in string.Formatter().parse(label) if name is not None]


def format_problem(label: str, types: Mapping[str, str]) -> str:
    """Return what is wrong with the formats of a label for a plan whose fields have these types; nothing if none is."""
    for _, name, spec, conversion in string.Formatter().parse(label):
        if name is None:
            continue
        if "{" in (spec or "") or any(int(number) > MOST_CHARACTERS for number in re.findall("[0-9]+", spec or "")):
            return f"has the format {spec!r}, whose width or precision exceeds {MOST_CHARACTERS}"
        if (spec or "").endswith("c"):
            return f"has the format {spec!r}, which makes characters of numbers"
        if (value := _SAMPLES.get(types[name])) is not None:
            try:
                format(string.Formatter().convert_field(value, conversion), spec or "")
            except ValueError as error:
                return f"cannot be formatted ({str(error).rstrip('.')})"
    return "" if len(sample(label, types)) <= MOST_CHARACTERS else f"comes out longer than {MOST_CHARACTERS} characters"


def sample(label: str, types: Mapping[str, str]) -> str:
    """Return a label as it may look for a plan whose fields have these types."""
    return formatted(label, {name: _SAMPLES.get(kind, kind) for name, kind in types.items()})


def mathematics_problem(text: str) -> str:
    """Return what is wrong with the mathematics between dollar signs in a text for figures; nothing if it will do."""
    if text.count("$") < 2:
        return ""
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser

    if is_math_text(text):
        try:
            MathTextParser("path").parse(text)
        except ValueError:
            return "has text between dollar signs that figures cannot draw as mathematics"
    return ""
