"""dprepro: differentially private optimization, reproduced with the privacy that is accounted for what ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dprepro.api import Solution, solve
    from dprepro.errors import RunFailed, UserError

__all__ = ["RunFailed", "Solution", "UserError", "__version__", "solve"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The front door is imported on first use: commands that need no numbers start without NumPy.
    if name in ("Solution", "solve"):
        from dprepro import api

        return getattr(api, name)
    if name in ("RunFailed", "UserError"):
        from dprepro import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'dprepro' has no attribute {name!r}")
