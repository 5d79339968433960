"""Libraries that fit private models by themselves, run as methods beside the algorithms of the papers.

They are optional: `dprepro[peers]` installs them. They are no part of the registry's `names`, so that nothing that goes
through all algorithms (audits, lists, tests) needs them; asked for by name they are found, or one sentence says what
to install. The module of the same name here is the adapter; what runs is the library's own code.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING

from dprepro.errors import UserError

if TYPE_CHECKING:
    from dprepro.peers.base import Peer

# The packages that a peer is made of, itself first.
PACKAGES: dict[str, tuple[str, ...]] = {"diffprivlib": ("diffprivlib",), "opacus": ("opacus", "torch")}


def names() -> list[str]:
    """Return the names of all adapters, whether their libraries are installed or not."""
    return sorted(PACKAGES)


def missing(name: str) -> list[str]:
    """Return the packages of a peer that are not installed."""
    return [package for package in PACKAGES[name] if importlib.util.find_spec(package) is None]


def versions(name: str) -> dict[str, str]:
    """Return the installed packages of a peer with their versions; none for an algorithm of this project."""
    return {package: importlib.metadata.version(package) for package in PACKAGES.get(name, ())}


def adapter(name: str) -> Peer:
    """Return the adapter of that name; its library need not be there."""
    found: Peer = importlib.import_module(f"{__name__}.{name}").ALGORITHM
    return found


def installed_adapter(name: str) -> Peer:
    """Return the adapter of that name or raise `UserError` if its library is not installed."""
    if absent := missing(name):
        raise UserError(
            f"The method {name!r} is the library {name}, which is optional, and {' and '.join(absent)} "
            f"{'is' if len(absent) == 1 else 'are'} not installed here: install dprepro[peers]."
        )
    return adapter(name)
