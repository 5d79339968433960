"""The registry: an algorithm is a module in this package that bears its name and defines `ALGORITHM`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import TYPE_CHECKING

from dprepro.errors import UserError

if TYPE_CHECKING:
    from dprepro.algorithms.base import Algorithm

_NOT_ALGORITHMS = {"base"}


def names() -> list[str]:
    """Return the names of all algorithms, without importing them."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name not in _NOT_ALGORITHMS and not name.startswith("_"))


def get_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name; only its own module is imported."""
    known = names()
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}."
        raise UserError(f"Unknown algorithm {name!r}: {hint}")
    algorithm: Algorithm = importlib.import_module(f"{__name__}.{name}").ALGORITHM
    return algorithm
