"""Errors that are meant for the user: one sentence that says what, where and what to do."""

from __future__ import annotations

import numbers


class UserError(Exception):
    """Bad input. The command line prints the sentence and ends with exit code 2; no traceback is shown."""

    exit_code = 2


class VacuousSetting(UserError):
    """The theorem's numbers make no sense at this setting (no rounds, batch larger than the data, ...).

    The message names the smallest n from which the setting would make sense, where one exists.
    """


class RunFailed(Exception):
    """A run started from good input but did not come to a trustworthy end (exit code 1)."""

    exit_code = 1


# Warning shown wherever an extension folder can be given: its files are imported as soon as it is in use.
TRUST = "files in extension folders are Python code and run with your rights: use only folders you trust"
# What to do about a lack of memory.
SHORT_OF_MEMORY = "give the job more memory, fewer rows or features, or a narrower tile"


class BrokenAlgorithm(UserError):
    """The plan of an algorithm contradicts the algorithm itself: a mistake in its file, never a result."""


class NotConverged(RunFailed):
    """A solver did not reach its tolerance: an outcome that a table reports with its reason, not a crash."""


class LedgerMismatch(RunFailed):
    """The noise that was drawn is not the noise that the plan accounts for; the result is discarded."""


def is_number(value: object) -> bool:
    """Whether the value is a real number, NumPy's scalars included."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def positive(name: str, value: object) -> float:
    """Return a positive number of sane size or raise `UserError`."""
    if not is_number(value) or not 1e-100 < float(value) < 1e100:  # type: ignore[arg-type]
        raise UserError(f"{name} is {value!r}: give a positive number.")
    return float(value)  # type: ignore[arg-type]
