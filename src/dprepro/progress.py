"""How far a run of the workflow is and how long it will still take: plain values, without Snakemake.

The logger plugin feeds a `Tracker` with what Snakemake reports; `dprepro status` reads the file it writes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dprepro import owner
from dprepro.costs import duration

# Earlier times are trusted as they stand until about this many seconds of them were measured again.
TRUSTED_SECONDS = 10.0
# So many finished jobs of a rule make a mean.
MEAN_FROM = 3
# A run writes its progress at least this often; one that has not for longer than the second is not heard of.
HEARTBEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0
# The progress of the last run in a folder of results; logs are never compared or kept for their bytes.
PROGRESS_FILE = Path("logs") / "progress.json"
# What the list of all jobs is called among the events that loggers are told.
PLAN_EVENT = "dprepro_plan"
# What the name of the folder of results is called there.
RESULTS_EVENT = "dprepro_results"
# What is said to the user whatever else is quiet.
SAY_EVENT = "dprepro_say"


@dataclass(frozen=True)
class Task:
    """A job that has to be done: its rule, its experiment and its cores, and what is known of the seconds it takes.

    `earlier` is what it took in an earlier run, or what jobs of its experiment usually take; `guess`, what jobs of its
    kind take in other experiments. `needs` has the numbers of the tasks that must be done before.
    """

    rule: str
    earlier: float | None = None
    cores: int = 1
    experiment: str = ""
    guess: float | None = None
    needs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spent:
    """The seconds that a task has taken: so far if it runs, altogether if it is finished."""

    task: Task
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """The seconds left, None if nothing is known, and of how many jobs it is not known how long they take.

    On a cluster nobody knows when jobs get a place: there it is `computing` that is left, all cores added up.
    """

    seconds: float | None
    unknown: int = 0
    computing: bool = False


def computing_left(unfinished: Sequence[Task], finished: Sequence[Spent]) -> Estimate:
    """Estimate what jobs that wait or run on a cluster will take on one core, by the rules of `time_left`."""
    left = time_left(unfinished, [], finished, cores=1.0)
    return replace(left, computing=True)


def time_left(waiting: Sequence[Task], running: Sequence[Spent], finished: Sequence[Spent], cores: float) -> Estimate:
    """Estimate the seconds until all tasks are done on so many cores.

    A task that ran before is expected to take as long, times what finished tasks took in proportion to before: another
    machine, or a busy one, is thus seen. For other tasks the mean of their rule and experiment in this run stands, with
    the time that unfinished ones have taken already counted in, for short ones finish first; before there is one, the
    guess; without one, the mean of the rule. Such a mean says nothing of how long a running task has left, which is
    then expected to be the mean again. Dependencies between tasks are not looked at.
    """
    pace, means = _pace(finished), _means(running, finished)

    def mean(task: Task) -> float | None:
        if (known := means.get((task.rule, task.experiment))) is not None:
            return known
        return means.get((task.rule, None)) if task.guess is None else task.guess * pace

    left: list[tuple[float, int]] = []
    unknown = 0
    for task in waiting:
        seconds = mean(task) if task.earlier is None else task.earlier * pace
        unknown += seconds is None
        left.append((seconds or 0.0, task.cores))
    for spent in running:
        task = spent.task
        seconds = mean(task) if task.earlier is None else task.earlier * pace - spent.seconds
        # A task that takes longer than expected is one of which nothing more is known.
        unknown += seconds is None or seconds < 0.0
        left.append((max(seconds or 0.0, 0.0), task.cores))
    if not left:
        return Estimate(0.0)
    total = max(sum(seconds * used for seconds, used in left) / cores, max(seconds for seconds, _ in left))
    return Estimate(None if unknown and total == 0.0 else total, unknown)


def _pace(finished: Iterable[Spent]) -> float:
    """Return how long tasks take in proportion to earlier."""
    known = [(spent.seconds, spent.task.earlier) for spent in finished if spent.task.earlier is not None]
    now, before = sum(seconds for seconds, _ in known), sum(earlier for _, earlier in known)
    return (TRUSTED_SECONDS + now) / (TRUSTED_SECONDS + before)


def _means(running: Iterable[Spent], finished: Iterable[Spent]) -> dict[tuple[str, str | None], float]:
    """Return the mean seconds of each rule, alone and by experiment, of which enough is finished.

    It is that of an exponential law of which some have not ended yet.
    """
    count: dict[tuple[str, str | None], int] = defaultdict(int)
    total: dict[tuple[str, str | None], float] = defaultdict(float)
    for spents, ended in ((finished, 1), (running, 0)):
        for spent in spents:
            for kind in ((spent.task.rule, spent.task.experiment), (spent.task.rule, None)):
                count[kind] += ended
                total[kind] += spent.seconds
    return {kind: total[kind] / number for kind, number in count.items() if number >= MEAN_FROM}


@dataclass(frozen=True)
class Running:
    """A job that runs now: its name for the user, its rule, its log, and since when (seconds since the epoch).

    On a cluster it is submitted since then, and may still wait for its place.
    """

    name: str
    rule: str
    log: str
    since: float


@dataclass(frozen=True)
class Progress:
    """The state of a run at one time, with the stamp of its process; what `dprepro status` reads from another one."""

    state: str
    stamp: str
    started: float
    updated: float
    total: int
    done: int
    failed: tuple[str, ...]
    running: tuple[Running, ...]
    left: Estimate
    cores: float | None
    cluster: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Progress:
        """Return the progress that `to_json` described; `KeyError` or `TypeError` if it is something else."""
        return cls(
            **{
                **content,
                "failed": tuple(content["failed"]),
                "running": tuple(Running(**job) for job in content["running"]),
                "left": Estimate(**content["left"]),
            }
        )

    def alive(self, now: float) -> bool:
        """Whether the run goes on: it says so, it was heard of, and its process is there if this is its machine."""
        return self.state == "running" and now - self.updated <= SILENT_SECONDS and owner.alive(self.stamp)

    @property
    def pid(self) -> str:
        """The number of its process."""
        return self.stamp.split()[1]


def progress_line(progress: Progress, told: str | None = None, width: int | None = None) -> str:
    """Return the progress on one line, cut to `width`; what it is about, by default what runs, comes last."""
    total = str(progress.total)
    share = math.floor(100 * progress.done / progress.total) if progress.total else 100
    parts = [f"[{progress.done:>{len(total)}}/{total}] {share:>3}%", left_in_words(progress.left)]
    if progress.failed:
        parts.insert(1, f"{len(progress.failed)} failed")
    if told is None and progress.running:
        told = "; ".join(job.name for job in progress.running)
    text = " | ".join([*parts, *([told] if told else [])])
    return text if width is None or len(text) <= width else f"{text[: max(width - 3, 0)]}..."[:width]


def left_in_words(left: Estimate) -> str:
    """Return an estimate for the user."""
    if left.seconds is None:
        return "time left unknown yet"
    if not (left.seconds or left.unknown):
        return "nothing left"
    seconds = max(round(left.seconds), 1)
    rest = f" and {left.unknown} unknown {'job' if left.unknown == 1 else 'jobs'}" if left.unknown else ""
    return f"about {duration(seconds)}{' of computing' if left.computing else ''}{rest} left"


@dataclass
class Tracker:
    """What is known of a run while it goes on. Times are seconds since the epoch, given by the caller."""

    started: float
    total: int = 0
    cores: float | None = None
    cluster: bool = False
    ended: bool = False
    tasks: dict[int, Task] = field(default_factory=dict)
    running: dict[int, Running] = field(default_factory=dict)
    finished: dict[int, Spent] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    # Of rules whose jobs were not announced one by one.
    counts: dict[str, int] = field(default_factory=dict)

    def plan(self, tasks: Mapping[int, Task]) -> None:
        """Note all jobs that will be run, by their number."""
        self.tasks, self.total = dict(tasks), len(tasks)

    def expect(self, counts: Mapping[str, int]) -> None:
        """Note how many jobs of each rule will be run."""
        self.counts, self.total = dict(counts), sum(counts.values())

    def start(self, number: int, job: Running, cores: int) -> None:
        """Note that a job starts, for the first time or once more."""
        self.tasks.setdefault(number, Task(job.rule, cores=cores))
        self.failed.pop(number, None)
        self.running[number] = job

    def finish(self, number: int, now: float, measured: float | None = None) -> tuple[Running, Spent] | None:
        """Note that a job is done; return it with what it took: as measured beside it, if it was, else by our clock."""
        job = self.running.pop(number, None)
        if job is None:
            return None
        seconds = max(now - job.since, 0.0) if measured is None else measured
        self.finished[number] = Spent(self.tasks[number], seconds)
        return job, self.finished[number]

    def fail(self, number: int, name: str) -> None:
        """Note that a job failed."""
        job = self.running.pop(number, None)
        self.failed[number] = job.name if job else name

    def progress(self, now: float) -> Progress:
        """Return the state at a time."""
        return Progress(
            state="ended" if self.ended else "running",
            stamp=owner.stamp(),
            started=self.started,
            updated=now,
            total=self.total,
            done=len(self.finished),
            failed=tuple(self.failed.values()),
            running=tuple(self.running.values()),
            left=self._left(now),
            cores=self.cores,
            cluster=self.cluster,
        )

    def _left(self, now: float) -> Estimate:
        waiting, finished = self._waiting(), [*self.finished.values()]
        if self.cluster:
            return computing_left([*waiting, *(self.tasks[number] for number in self.running)], finished)
        running = [Spent(self.tasks[number], max(now - job.since, 0.0)) for number, job in self.running.items()]
        return time_left(waiting, running, finished, self.cores or 1.0)

    def _waiting(self) -> list[Task]:
        """Return the tasks that will still start: not those behind a failed one."""
        seen = {*self.running, *self.finished, *self._lost()}
        waiting = [task for number, task in self.tasks.items() if number not in seen]
        started: dict[str, int] = defaultdict(int)
        for task in self.tasks.values():
            started[task.rule] += 1
        unseen = [Task(rule) for rule, count in self.counts.items() for _ in range(count - started[rule])]
        return waiting + unseen

    def _lost(self) -> set[int]:
        """Return the tasks that failed, and those that depend on them."""
        behind: dict[int, list[int]] = defaultdict(list)
        for number, task in self.tasks.items():
            for needed in task.needs:
                behind[needed].append(number)
        found, left = set(self.failed), list(self.failed)
        while left:
            new = [number for number in behind[left.pop()] if number not in found]
            found.update(new)
            left += new
        return found
