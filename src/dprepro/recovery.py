"""What the workflow does before its first job and after a failure: one run at a time, and nothing left of a dead one.

A run holds a lock of the operating system, which ends with the process however that ends. Whoever gets it knows that
no other run is alive: locks of Snakemake and unfinished files that lie there belong to the dead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from dprepro import owner
from dprepro.errors import UserError
from dprepro.files import PARTIAL, host_tag, write_bytes

# In the working directory, and once more in the folder of results, which two checkouts may share.
LOCK = Path(".snakemake") / "dprepro.lock"
RESULTS_LOCK = Path("logs") / "dprepro.lock"
# Stands in the lock of a run whose jobs are submitted to other machines.
SUBMITS = "submits jobs"
# Calls of Snakemake that make no result; they may look at what another run is doing.
_LOOKS = frozenset(
    (
        *("--dry-run", "--dryrun", "--lint", "--unlock", "--report", "--summary", "-S", "--detailed-summary", "-D"),
        *("--dag", "--rulegraph", "--filegraph", "--d3dag", "--list-rules", "--list", "-l", "--list-target-rules"),
        *("--lt", "--list-changes", "--list-untracked", "--lu"),
    )
)
# Bundles of one-letter flags, one of which is a dry run's.
_DRY_RUN = re.compile(r"-[npqFR]*n[npqFR]*")
# A clock may be ahead of another by this much without harm.
_FUTURE_SECONDS = 1.0
_PROBE_BYTES = 4096
# Less free space than this, and a failure is put down to it.
_LITTLE_SPACE_BYTES = 1 << 20
# What Snakemake writes into its log when it is told to end, by Ctrl-C or by a signal.
_STOPPED = ("Terminating processes on user request", "Will exit after finishing currently running jobs")
_KILLED = re.compile(r"non-zero exit status 137|died with <Signals\.SIGKILL")


def only_looks(arguments: Sequence[str]) -> bool:
    """Whether a call of Snakemake makes no result, judged by its words."""
    if "--report-after-run" in arguments:
        return False
    return any(word.split("=")[0] in _LOOKS or _DRY_RUN.fullmatch(word) for word in arguments)


def begin(folder: Path, results: Path) -> list[str]:
    """Take the folder for this process and clear what a killed run left there; return what to tell the user.

    Raises `UserError` if another run is at work, or nothing can be written to `results`.
    """
    notes = []
    _check_writable(results)
    held = [_hold(place) for place in (folder / LOCK, results / RESULTS_LOCK)]
    locks = list((folder / ".snakemake" / "locks").glob("*.lock"))
    dead = all(_is_dead(file) for file in held)
    if locks and not dead:
        for file in held:
            file.close()
        raise UserError(
            f"The last run in {folder.absolute()} was killed, and jobs that it submitted, or the run itself on another "
            "machine, may still be at work: cancel them, call `snakemake --unlock`, then this again."
        )
    for file in held:
        _sign(file)
    for path in locks:
        path.unlink(missing_ok=True)
    if locks:
        notes.append("The last run here was killed: its lock is removed, and what it did is kept.")
    if dead and (count := _remove_partial(results)):
        notes.append(f"{_things(count, 'unfinished file')} of killed jobs removed.")
    if count := _bring_to_present(results):
        notes.append(
            f"{_things(count, 'result')} came from the future and got the present time: was the clock set back?"
        )
    return notes


def was_stopped(logs: str | Sequence[str]) -> bool:
    """Whether the user or the system ended the run, rather than a job that failed."""
    found = [_text(Path(log)) for log in ([logs] if isinstance(logs, str) else logs)]
    return any(words in text for text in found for words in _STOPPED)


def explain(results: Path, logs: str | Sequence[str]) -> list[str]:
    """Return what a failed run does not say itself: that the disk is full, or that jobs were killed.

    `logs` are Snakemake's accounts of the run; some versions of it give one, others a list.
    """
    notes = []
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_existing(results)).free < _LITTLE_SPACE_BYTES:
            notes.append(f"No space is left on the disk of {results}: free some and run again; what is done stays.")
    if any(_KILLED.search(_text(Path(log))) for log in ([logs] if isinstance(logs, str) else logs)):
        notes.append(
            "A job was killed (exit status 137), by hand or by the system for want of memory: run again, "
            "with fewer --cores if memory is short; what is done stays."
        )
    return notes


def _text(path: Path) -> str:
    """Return the text of a file, none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# Held until the process ends; a closed file would give up its lock.
_held: list[IO[str]] = []


def note_submissions() -> None:
    """Note in the lock that jobs run elsewhere and do not end with this process."""
    for file in _held:
        with contextlib.suppress(OSError):
            print(SUBMITS, file=file, flush=True)


def _hold(path: Path) -> IO[str]:
    """Lock a file for the life of this process and return it, at its start; an error if another process has it.

    Children do not inherit the lock.
    """
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}. Work in a folder you may write to.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(_busy(path)) from None
    except OSError:
        # The file system has no locks. Snakemake's own is then the only one, and nobody can tell whose it is.
        file.close()
        return file
    file.seek(0)
    return file


def _is_dead(file: IO[str]) -> bool:
    """Whether the last run that held a lock is known to be dead, with all its jobs.

    One on another machine may be alive, and submitted jobs outlive theirs: then the user has to unlock.
    """
    if file.closed:
        return False
    last = file.read().splitlines()
    return all(line.startswith(f"{owner.host()} ") for line in last[:1]) and SUBMITS not in last


def _sign(file: IO[str]) -> None:
    """Write into a lock who holds it from now on."""
    if file.closed:
        return
    _held.append(file)
    file.truncate(0)
    with contextlib.suppress(OSError):  # a full disk is found soon after, with a better sentence
        print(owner.stamp(), time.strftime("%Y-%m-%d %H:%M:%S"), sep="\n", file=file, flush=True)


def _busy(path: Path) -> str:
    """Say who has the lock."""
    lines = _text(path).splitlines()
    place, pid = [*lines[0].split(), "?", "?"][:2] if lines else ("?", "?")
    host = place.partition("/")[0]
    since = lines[1] if len(lines) > 1 else "a moment ago"
    return (
        f"Another run (process {pid} on {host}, since {since}) works in {path.absolute().parents[1]}: "
        "wait for its end, or work in another copy of the checkout, with results of its own."
    )


def _check_writable(results: Path) -> None:
    """Raise `UserError` if nothing can be written to the folder of results."""
    probe = results / ".probe"
    write_bytes(probe, bytes(_PROBE_BYTES))
    probe.unlink(missing_ok=True)


def _remove_partial(results: Path) -> int:
    """Remove unfinished files of processes of this machine that have ended and return their number."""
    count = 0
    for path in _files(results):
        found = PARTIAL.fullmatch(path.name)
        if found and found["host"] == host_tag() and not owner.runs(int(found["pid"])):
            with contextlib.suppress(OSError):  # somebody else's; it harms nobody
                path.unlink()
                count += 1
    return count


def _bring_to_present(results: Path) -> int:
    """Give files from the future the present time and return their number.

    Snakemake fails a job whose input is newer than its output, which all that is made before that future would be. Of
    somebody else's files, whose time cannot be changed, it says so itself.
    """
    now, count = time.time(), 0
    for path in _files(results):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime > now + _FUTURE_SECONDS:
                os.utime(path, (now, now))
                count += 1
    return count


def _files(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        yield from (Path(path) / name for name in names)


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that is there."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def _things(count: int, name: str) -> str:
    return f"1 {name}" if count == 1 else f"{count} {name}s"


def tell(notes: Sequence[str]) -> None:
    """Print notes for the user on standard error."""
    for note in notes:
        print(f"dprepro: {note}", file=sys.stderr)
