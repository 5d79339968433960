"""The registry: an algorithm is a module in this package that bears its name and defines `ALGORITHM`.

So is a file in the folder `algorithms` of an extension folder. `jl_<name>` is the JL method around the algorithm of
that name. Optional libraries, with an adapter in `dprepro.peers`, are found by name too, but stand in no list of all
algorithms.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

from dprepro import extensions, peers
from dprepro.errors import UserError

if TYPE_CHECKING:
    from dprepro.algorithms.base import Algorithm

_NOT_ALGORITHMS = {"base"}
_REDUCTION, _REDUCED = "jl_method", "jl_"
# What the JL method wraps when it is audited.
AUDITED_BASE = "dp_gd"


def names() -> list[str]:
    """Return the names of all algorithms, own ones included, without importing them."""
    return sorted([*built_in(), *own()])


def built_in() -> list[str]:
    """Return the names of the algorithms in this package."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name not in _NOT_ALGORITHMS and not name.startswith("_"))


def own() -> dict[str, Path]:
    """Return the files of the user's own algorithms by name."""
    return extensions.found(extensions.ALGORITHMS, reserved_names())


def reserved_names() -> set[str]:
    """Return what no own algorithm may be called."""
    return {*built_in(), *_NOT_ALGORITHMS, *peers.names()}


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
        rest = f"{', '.join(known)}, or jl_<name>; --extensions or {extensions.VARIABLE} names folders of own ones"
        hint = f"did you mean {prefix}{close[0]}?" if close else f"use one of {rest}."
        raise UserError(f"Unknown algorithm {name!r}: {hint}")
    if path := own().get(name):
        return _loaded(path)
    algorithm: Algorithm = importlib.import_module(f"{__name__}.{name}").ALGORITHM
    return algorithm


def _loaded(path: Path) -> Algorithm:
    """Return the algorithm of an own file, or refuse a file that does not define a whole one of its name."""
    from dprepro.algorithms.base import complaint

    algorithm = getattr(extensions.load(path), "ALGORITHM", None)
    if problem := complaint(algorithm, path.stem):
        raise UserError(f"The file {extensions.shown(path)} {problem}.")
    checked: Algorithm = algorithm  # type: ignore[assignment]  # or there was a complaint
    return checked


def modules_of(name: str) -> list[str]:
    """Return the modules that an algorithm is made of; of the JL method by itself those of its audit."""
    if name in peers.names():
        return [f"{peers.__name__}.{name}"]
    base = AUDITED_BASE if name == _REDUCTION else _wrapped(name)
    files = [name] if base is None else [_REDUCTION, base]
    mine = own()
    return [extensions.module_of(mine[file]) if file in mine else f"{__name__}.{file}" for file in files]
