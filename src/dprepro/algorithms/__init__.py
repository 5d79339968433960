"""The registry: an algorithm is a module in this package that bears its name and defines `ALGORITHM`.

`jl_<name>` is the JL method around the algorithm of that name. Optional libraries, with an adapter in `dprepro.peers`,
are found by name too, but stand in no list of all algorithms.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import TYPE_CHECKING

from dprepro import peers
from dprepro.errors import UserError

if TYPE_CHECKING:
    from dprepro.algorithms.base import Algorithm

_NOT_ALGORITHMS = {"base"}
_REDUCTION, _REDUCED = "jl_method", "jl_"
# What the JL method wraps when it is audited.
AUDITED_BASE = "dp_gd"


def names() -> list[str]:
    """Return the names of all algorithms, without importing them."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name not in _NOT_ALGORITHMS and not name.startswith("_"))


def is_known(name: str) -> bool:
    """Whether there is an algorithm of that name, the JL method around another one and the peers included."""
    return name in names() or name in peers.names() or _wrapped(name) is not None


def _wrapped(name: str) -> str | None:
    """Return the algorithm that `jl_<name>` wraps."""
    base = name.removeprefix(_REDUCED)
    return base if name not in names() and base != name and base in names() else None


def get_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name; only its own module is imported, and that of what it wraps."""
    known = names()
    if name in peers.names():
        return peers.installed_adapter(name)
    if (base := _wrapped(str(name))) is not None:
        # By name, as all algorithms: an import would make every algorithm depend on this one.
        wrapped: Algorithm = importlib.import_module(f"{__name__}.{_REDUCTION}").wrapping(base)
        return wrapped
    if name not in known:
        prefix = _REDUCED if str(name).startswith(_REDUCED) else ""
        close = difflib.get_close_matches(str(name).removeprefix(prefix), [*known, *peers.names()], n=1)
        hint = f"did you mean {prefix}{close[0]}?" if close else f"use one of {', '.join(known)}, or jl_<name>."
        raise UserError(f"Unknown algorithm {name!r}: {hint}")
    algorithm: Algorithm = importlib.import_module(f"{__name__}.{name}").ALGORITHM
    return algorithm


def modules_of(name: str) -> list[str]:
    """Return the modules that an algorithm is made of; of the JL method by itself those of its audit."""
    if name in peers.names():
        return [f"{peers.__name__}.{name}"]
    base = AUDITED_BASE if name == _REDUCTION else _wrapped(name)
    files = [name] if base is None else [_REDUCTION, base]
    return [f"{__name__}.{file}" for file in files]
