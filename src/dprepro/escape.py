"""Text in the formats of results: nothing in a label or title acts as LaTeX, as a spreadsheet's formula or as HTML."""

from __future__ import annotations

import re

_LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    # After the end of a row LaTeX takes these for the beginning of an option.
    "[": "{[}",
    "*": "{*}",
    **{character: f"\\{character}" for character in "{}&%$#_"},
}
# What spreadsheets take for a formula, behind any apostrophes.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]inf")
# What begins an element of HTML, a link or a character by its name; the product <w,x> does not.
_HTML = re.compile(r"<(?=[A-Za-z][A-Za-z0-9.+-]*(?:[\s/>:@]|$)|[/!?])|&(?=#|[A-Za-z])")


def one_line(text: str) -> str:
    """Return a text with each run of line breaks and other control characters as one space."""
    return re.sub("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]+", " ", text)


def latex(text: str) -> str:
    """Return a text for a cell of a LaTeX table."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def cell(text: str) -> str:
    """Return a text for a cell of a CSV file: with an apostrophe before what spreadsheets would compute.

    >>> [cell(text) for text in ("=1+1", "-0.5", "-x", "'=1", "a")]
    ["'=1+1", '-0.5', "'-x", "''=1", 'a']
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def uncell(text: str) -> str:
    """Return what `cell` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def markdown(text: str) -> str:
    """Return the Markdown of a result in which no HTML begins, wherever its texts come from."""
    return _HTML.sub(lambda found: {"<": "&lt;", "&": "&amp;"}[found[0]], text)


def markdown_cell(text: str) -> str:
    """Return a text for a cell of a table in Markdown."""
    return one_line(text).replace("|", "\\|")
