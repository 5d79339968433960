"""Who started this process: a job ends with the Snakemake that started it, and writes nothing after its end.

A job that outlived its Snakemake could, minutes later, put the result of an older configuration over a newer one.
"""

from __future__ import annotations

import os
import platform
import threading
from pathlib import Path

from dprepro.errors import RunFailed

# Host, process and its start, as `stamp` gives them.
VARIABLE = "DPREPRO_OWNER"
_SECONDS_BETWEEN_LOOKS = 1.0


def stamp(pid: int | None = None) -> str:
    """Return what names a process for good: its host, its number and when it started, in the system's own count."""
    pid = os.getpid() if pid is None else pid
    return f"{host()} {pid} {_started(pid)}"


def host() -> str:
    """Return where a number names one process: the name of the machine and of its space of processes."""
    try:
        return f"{platform.node()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def alive(owner: str) -> bool:
    """Whether the process of a stamp runs; on other hosts, and where a stamp makes no sense, it is taken to do so."""
    place, _, rest = owner.partition(" ")
    pid, _, started = rest.partition(" ")
    if place != host() or not pid.isdigit():
        return True
    return runs(int(pid)) and _started(int(pid)) == started


def runs(pid: int) -> bool:
    """Whether there is a process with this number on this host; one that has ended and waits to be read is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return _facts(pid)[:1] not in (["Z"], ["X"])


def check_owner() -> None:
    """Raise `RunFailed` if the Snakemake that started this job has ended."""
    if _orphaned():
        raise RunFailed("The Snakemake that started this job has ended: nothing is written; run it again.")


def end_with_owner() -> None:
    """End this process soon after the Snakemake that started it has ended; without one, do nothing.

    There is no word of it in the log, which may be that of the next run by then.
    """

    def watch() -> None:
        while not pause.wait(_SECONDS_BETWEEN_LOOKS):
            if _orphaned():
                os._exit(RunFailed.exit_code)

    pause = threading.Event()
    if VARIABLE in os.environ:
        threading.Thread(target=watch, name="owner", daemon=True).start()


def _orphaned() -> bool:
    owner = os.environ.get(VARIABLE)
    return owner is not None and not alive(owner)


def _started(pid: int) -> str:
    """Return when a process started, in clock ticks since the system did; nothing where the system does not tell."""
    facts = _facts(pid)
    return facts[19] if len(facts) > 19 else ""


def _facts(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none where there is no such file."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # The name of the program comes before, in brackets, and may hold anything.
    return text.rpartition(")")[2].split()
