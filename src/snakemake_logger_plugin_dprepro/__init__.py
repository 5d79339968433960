"""The logger `dprepro` of Snakemake: one live line on a terminal, a line per finished job elsewhere.

Snakemake finds it by the name of this package; `logger: dprepro` in a profile or `--logger dprepro` chooses it. What it
leaves out stands in Snakemake's own log under .snakemake/log. Dry runs and verbose ones are left to Snakemake's way of
printing, and so is what is neither progress nor a failed job.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from dprepro.costs import duration, guessed_seconds, kind_of, read_cost, usual_seconds
from dprepro.errors import UserError
from dprepro.files import write_json
from dprepro.progress import (
    HEARTBEAT_SECONDS,
    PLAN_EVENT,
    PROGRESS_FILE,
    RESULTS_EVENT,
    SAY_EVENT,
    Running,
    Spent,
    Task,
    Tracker,
    progress_line,
)

# How often the live line is drawn anew, and after how long without a line a log gets one.
REDRAW_SECONDS = 1.0
LOG_SECONDS = 60.0
# Longer lines of errors are cut.
LONGEST = 300
CLEAR = "\r\x1b[K"

_SILENT_EVENTS = {
    LogEvent.WORKFLOW_STARTED,
    LogEvent.RUN_INFO,
    LogEvent.GROUP_INFO,
    LogEvent.JOB_INFO,
    LogEvent.JOB_STARTED,
    LogEvent.JOB_FINISHED,
    LogEvent.PROGRESS,
    LogEvent.RESOURCES_INFO,
    LogEvent.RULEGRAPH,
    PLAN_EVENT,
    RESULTS_EVENT,
}
# Remarks of Snakemake that are the same in every run.
_SILENT_WORDS = (
    "Assuming unrestricted shared filesystem",
    "Building DAG of jobs",
    "Select jobs to execute",
    "Using shell:",
    "Conda environments: ignored",
    "Singularity containers: ignored",
    "Group jobs: inactive",
    "Elapsed time:",
)
_LOGS = "Complete log(s): "
_NOTHING_TO_DO = "Nothing to be done"
# Said when the user, or the system, asks it to end.
_STOPS = ("Terminating processes on user request", "Will exit after finishing currently running jobs")


class LogHandler(LogHandlerBase):
    """Follows a run, shows its progress and keeps it in a file for `dprepro status`."""

    def __post_init__(self) -> None:
        """Prepare the stream; nothing is shown or started before a run starts."""
        from snakemake.logging import ColorizingTextHandler

        # Older versions of the interface do not.
        logging.Handler.__init__(self)
        settings = self.common_settings
        self._stream: TextIO = sys.stdout if settings.stdout else sys.stderr
        self._plain = ColorizingTextHandler(nocolor=settings.nocolor, stream=self._stream)
        quiet = {str(getattr(word, "name", word)).lower() for word in settings.quiet or ()}
        self._as_snakemake = bool(settings.dryrun or settings.verbose or settings.debug_dag)
        self._shows_progress = not self._as_snakemake and not quiet & {"all", "progress"}
        self._live = self._shows_progress and _is_terminal(self._stream)
        self._tracker: Tracker | None = None
        self._cores: float | None = None
        self._cluster = False
        self._benchmarks: dict[int, str] = {}
        self._finished: tuple[Running, Spent] | None = None
        self._results: Path | None = None
        self._log = ""
        self._saves = True
        self._stopped = False
        self._drawn = False
        self._last_line = self._last_written = 0.0
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = False
    needs_rulegraph = False

    def handle(self, record: logging.LogRecord) -> bool:
        """Follow what a record says, then show it if it is to be shown."""
        self.acquire()
        try:
            if not self._as_snakemake:
                self._follow(record)
            if getattr(record, "event", None) == SAY_EVENT:
                # Before Snakemake's filter, which lets nothing pass if it is to be quiet.
                self._write(str(record.msg))
                return True
            return bool(super().handle(record))
        except Exception:  # One that gets out of here would end all logging.
            self.handleError(record)
            return False
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record that Snakemake's filter let pass."""
        event = getattr(record, "event", None)
        if self._as_snakemake:
            self._print(record)
        elif event == LogEvent.JOB_FINISHED:
            self._show_finished(record.created)
        elif event == LogEvent.JOB_ERROR and not getattr(record, "indent", False):
            self._write(_failure(record, self.common_settings.show_failed_logs))
        elif event == LogEvent.ERROR:
            self._print(_shortened(record))
        elif str(record.msg).startswith(_NOTHING_TO_DO):
            self._write(f"Nothing to be done: all is there and up to date{self._where()}")
        elif not self._is_silent(record, event):
            self._print(record)
        if self._live:
            self._draw()

    def close(self) -> None:
        """End the live line, say how the run ended and note it in the file."""
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
            self._ticker = None
        if self._tracker is not None and not self._tracker.ended:
            self._tracker.ended = True
            self._save(time.time())
            if self._shows_progress:
                self._write(self._closing(time.time()))
        super().close()

    def _follow(self, record: logging.LogRecord) -> None:
        event, now = getattr(record, "event", None), record.created
        facts: dict[str, Any] = record.__dict__
        if event == LogEvent.RUN_INFO:
            counts = {rule: count for rule, count in facts["stats"].items() if rule != "total"}
            self._begin(now).expect(counts)
        elif event == PLAN_EVENT:
            self._begin(now).plan({job["number"]: _task(job) for job in facts["plan"]})
            self._say_plan()
        elif event == RESULTS_EVENT:
            self._results = Path(facts["folder"])
        elif event == LogEvent.RESOURCES_INFO:
            self._cores = facts.get("cores") or self._cores
            self._cluster = self._cluster or "nodes" in facts
        elif self._tracker is None:
            return
        elif event == LogEvent.JOB_INFO:
            job = Running(facts["rule_msg"] or facts["rule_name"], facts["rule_name"], _first(facts["log"]), now)
            self._tracker.start(facts["jobid"], job, int(facts["threads"]))
            self._benchmarks[facts["jobid"]] = str(facts.get("benchmark") or "")
            self._save(now)
        elif event == LogEvent.JOB_FINISHED:
            # Our clock would count the time in the queue.
            benchmark = self._benchmarks.pop(facts["job_id"], "") if self._cluster else ""
            self._finished = self._tracker.finish(facts["job_id"], now, read_cost(benchmark).seconds)
            self._save(now)
        elif event == LogEvent.JOB_ERROR:
            self._tracker.fail(facts["jobid"], facts["rule_name"])
            self._save(now)
        elif str(record.msg).startswith(_LOGS):
            self._log = str(record.msg).removeprefix(_LOGS)
        elif str(record.msg).startswith(_STOPS):
            self._stopped = True

    def _begin(self, now: float) -> Tracker:
        """Return the tracker; with the first call the clock of the live line starts."""
        if self._tracker is None:
            self._tracker = Tracker(now, cores=self._cores, cluster=self._cluster)
            self._last_line = now
            self._ticker = threading.Thread(target=self._tick, name="dprepro-progress", daemon=True)
            self._ticker.start()
        return self._tracker

    def _say_plan(self) -> None:
        tracker = self._tracker
        if tracker is not None and self._shows_progress and not self._live:
            known = tracker.cores and tracker.cores < sys.maxsize
            cores = f" on {tracker.cores:g} {'core' if tracker.cores == 1 else 'cores'}" if known else ""
            self._write(f"{tracker.total} jobs to do{cores}")

    def _tick(self) -> None:
        while not self._stop.wait(REDRAW_SECONDS):
            self.acquire()
            try:
                self._beat(time.time())
            except Exception:
                self._stop.set()
            finally:
                self.release()

    def _beat(self, now: float) -> None:
        tracker = self._tracker
        if tracker is None:
            return
        if self._live:
            self._draw()
        elif self._shows_progress and tracker.running and now - self._last_line >= LOG_SECONDS:
            self._write(progress_line(tracker.progress(now)))
        if now - self._last_written >= HEARTBEAT_SECONDS:
            self._save(now)

    def _show_finished(self, now: float) -> None:
        """Write a line on the job that has just finished; a target that only gathers others has no message."""
        if self._tracker is None or self._finished is None or self._live or not self._shows_progress:
            return
        job, spent = self._finished
        if job.name != job.rule:
            told = f"{job.name} ({duration(spent.seconds)})"
            self._write(progress_line(self._tracker.progress(now), told))

    def _is_silent(self, record: logging.LogRecord, event: object) -> bool:
        if record.levelno >= logging.WARNING:
            return False
        return event in _SILENT_EVENTS or str(record.msg).startswith((*_SILENT_WORDS, _LOGS))

    def _save(self, now: float) -> None:
        """Write the progress for other processes; a run goes on without if that is not possible."""
        if self._tracker is None or self._results is None or not self._saves:
            return
        self._last_written = now
        try:
            write_json(self._results / PROGRESS_FILE, self._tracker.progress(now).to_json())
        except (UserError, OSError) as error:
            self._saves = False
            self._write(f"dprepro status will not see this run: {error}")

    def _draw(self) -> None:
        """Draw the live line over the one before."""
        if self._tracker is None or self._tracker.ended or not self._tracker.total:
            return
        line = progress_line(self._tracker.progress(time.time()), width=_width(self._stream) - 1)
        self._put(f"{CLEAR}{line}")
        self._drawn = True

    def _print(self, record: logging.LogRecord) -> None:
        """Print a record as Snakemake would."""
        self._wipe()
        self._plain.setFormatter(self.formatter)
        self._plain.emit(record)
        self._last_line = time.time()

    def _write(self, text: str) -> None:
        self._wipe()
        self._put(f"{text}\n")
        self._last_line = time.time()

    def _wipe(self) -> None:
        if self._drawn:
            self._put(CLEAR)
            self._drawn = False

    def _put(self, text: str) -> None:
        """Write to the stream; a terminal that is gone must not end the run."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def _closing(self, now: float) -> str:
        tracker = self._tracker
        assert tracker is not None
        done, failed = len(tracker.finished), len(tracker.failed)
        took = duration(now - tracker.started)
        rest = tracker.total - done - failed
        log = f"; full log in {os.path.relpath(self._log)}" if self._log else ""
        log = f"{self._where()}{log}"
        if self._stopped:
            # Jobs that were ended in their midst have failed, too, and are made next time like the rest.
            return f"Stopped: {done} of {tracker.total} jobs are done after {took}; the same command goes on{log}"
        if failed:
            return (
                f"Failed: {failed} of {tracker.total} jobs failed, {done} are done and {rest} were not run, in "
                f"{took}; the reasons are above{log}"
            )
        if rest:
            return f"Ended: {done} of {tracker.total} jobs are done after {took}{log}"
        return f"Done: {done} jobs in {took}{log}"

    def _where(self) -> str:
        """Say where the results are, and the report if there is one: of this run or of the last that made it."""
        if self._results is None:
            return ""
        page = self._results / "report.html"
        if not page.exists():
            return f"; results in {self._results}"
        finished = self._tracker.finished.values() if self._tracker else ()
        reported = any(spent.task.rule == "report_page" for spent in finished)
        return f"; results in {self._results}, {'all in one page' if reported else 'the last report'}: {page}"


def _shortened(record: logging.LogRecord) -> logging.LogRecord:
    """Return an error with its long lines cut: the command of a job holds all its settings."""
    shorter = copy.copy(record)
    shorter.msg = "\n".join(
        line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in str(record.msg).split("\n")
    )
    return shorter


def _task(job: dict[str, Any]) -> Task:
    """Return a job of the plan with the time that it took before, else the usual one; without benchmark none."""
    rule, cores, benchmark, needs = job["rule"], job["cores"], job["benchmark"], tuple(job["needs"])
    if not benchmark:
        return Task(rule, 0.0, cores, needs=needs)
    earlier = read_cost(benchmark).seconds
    if earlier is None:
        earlier = usual_seconds(benchmark)
    return Task(rule, earlier, cores, kind_of(benchmark)[1], guessed_seconds(benchmark), needs)


def _failure(record: logging.LogRecord, show_logs: bool) -> str:
    """Return what there is to say of a failed job: which, where its log is, and what stands there."""
    facts = record.__dict__
    files = list(facts["log"])
    lines = [f"Error in rule {facts['rule_name']}, job {facts['jobid']}: {_outputs(facts['output'])} was not made."]
    if facts["rule_msg"]:
        lines.append(str(facts["rule_msg"]))
    lines += [f"{key}: {value}" for key, value in (facts.get("aux") or {}).items()]
    for file in files:
        lines.append(f"Log {file}:")
        lines += _content(file) if show_logs else []
    return "\n".join(lines)


def _content(file: str) -> list[str]:
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return [f"  (cannot be read: {error.strerror})"]
    return lines or ["  (empty: the job was killed, or could not be started)"]


def _outputs(files: Any) -> str:
    found = [str(file) for file in files]
    return found[0] if len(found) == 1 else f"{found[0]} and {len(found) - 1} more" if found else "its result"


def _first(files: Any) -> str:
    return str(files[0]) if files else ""


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM", "") != "dumb"
    except ValueError:
        return False


def _width(stream: TextIO) -> int:
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, 20)
    except OSError:
        return 80
