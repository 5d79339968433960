"""What a run says of itself is true: how much is done, what runs, how long it will take."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprepro.progress import (
    SILENT_SECONDS,
    TRUSTED_SECONDS,
    Estimate,
    Progress,
    Running,
    Spent,
    Task,
    Tracker,
    left_in_words,
    progress_line,
    time_left,
)

seconds = st.floats(0.01, 1e4)
known = st.builds(Task, rule=st.sampled_from("abc"), earlier=seconds)


def test_own_experiments_are_expected_by_their_own_jobs_and_do_not_slow_down_the_others() -> None:
    own = Task("run", None, 1, "mine", guess=8.0)
    sweep = Task("sweep", 9.0, 1, "bgm21_row1", guess=8.0)
    assert time_left([own] * 10, [], [], cores=1) == Estimate(80.0)
    left = time_left([own] * 20 + [sweep] * 100, [], [Spent(own, 60.0)] * 5, cores=1)
    assert left == Estimate(20 * 60.0 + 100 * 9.0)
    slow = time_left([own] * 20, [], [Spent(sweep, 18.0)] * 100, cores=1)
    assert slow.seconds == pytest.approx(20 * 16.0, rel=0.02)


def test_a_job_takes_as_long_as_before() -> None:
    assert time_left([Task("run", 60.0), Task("run", 20.0)], [], [], cores=1) == Estimate(80.0)
    assert time_left([Task("run", 60.0), Task("run", 60.0)], [], [], cores=2) == Estimate(60.0)


def test_one_long_job_is_not_divided_among_cores() -> None:
    assert time_left([Task("run", 100.0), Task("run", 1.0)], [], [], cores=8) == Estimate(100.0)


def test_a_job_that_uses_two_cores_counts_twice() -> None:
    assert time_left([Task("run", 30.0, cores=2)] * 2, [], [], cores=2) == Estimate(60.0)


def test_what_a_running_job_has_behind_it_is_taken_off() -> None:
    assert time_left([], [Spent(Task("run", 60.0), 45.0)], [], cores=2) == Estimate(15.0)


def test_a_slower_machine_is_seen_from_the_jobs_that_it_finished() -> None:
    finished = [Spent(Task("run", 1000.0), 2000.0)]
    left = time_left([Task("run", 60.0)], [], finished, cores=1)
    assert left.seconds == pytest.approx(120.0, rel=0.01)


def test_a_few_short_jobs_do_not_change_what_is_expected_of_long_ones() -> None:
    finished = [Spent(Task("table", 0.1), 0.5)]
    assert time_left([Task("run", 600.0)], [], finished, cores=1).seconds == pytest.approx(600.0, rel=0.05)


def test_jobs_that_never_ran_take_the_mean_of_their_rule() -> None:
    finished = [Spent(Task("run"), 10.0), Spent(Task("run"), 30.0), Spent(Task("run"), 20.0)]
    assert time_left([Task("run")] * 3, [], finished, cores=1) == Estimate(60.0)
    assert time_left([Task("run")] * 3, [], finished[:2], cores=1) == Estimate(None, 3), "two make no mean"


def test_long_jobs_that_still_run_count_in_the_mean_of_their_rule() -> None:
    left = time_left([Task("run")], [Spent(Task("run"), 90.0)], [Spent(Task("run"), 10.0)] * 3, cores=1)
    assert left == Estimate(80.0), "120 seconds for three finished jobs, one waits and one runs"


def test_nothing_is_claimed_where_nothing_is_known() -> None:
    assert time_left([Task("run")], [], [], cores=1) == Estimate(None, 1)
    assert left_in_words(Estimate(None, 1)) == "time left unknown yet"


def test_jobs_of_which_nothing_is_known_are_counted_beside_the_time_of_the_others() -> None:
    left = time_left([Task("run", 60.0), Task("figure")], [], [], cores=1)
    assert left == Estimate(60.0, unknown=1)
    assert left_in_words(left) == "about 60 s and 1 unknown job left"
    assert left_in_words(Estimate(600.0, 40)) == "about 10 min and 40 unknown jobs left"


def test_of_a_job_that_takes_longer_than_before_nothing_more_is_known() -> None:
    assert time_left([Task("run", 60.0)], [Spent(Task("run", 10.0), 50.0)], [], cores=1) == Estimate(60.0, unknown=1)


def test_nothing_left_takes_no_time() -> None:
    assert time_left([], [], [Spent(Task("run"), 3.0)], cores=2) == Estimate(0.0)
    assert left_in_words(Estimate(0.0)) == "nothing left"


@settings(deadline=None)
@given(st.lists(known, max_size=20), st.lists(known, max_size=5), st.integers(1, 8))
def test_more_work_never_takes_less_time_and_more_cores_never_more(
    waiting: list[Task], more: list[Task], cores: int
) -> None:
    left = time_left(waiting, [], [], cores).seconds
    longer = time_left(waiting + more, [], [], cores).seconds
    wider = time_left(waiting, [], [], cores + 1).seconds
    assert left is not None
    assert longer is not None
    assert wider is not None
    assert wider <= left * (1 + 1e-9)
    assert longer >= left * (1 - 1e-9)


@settings(deadline=None)
@given(st.lists(known, max_size=20), st.integers(1, 8))
def test_no_schedule_is_faster_than_the_estimate_nor_twice_as_slow(waiting: list[Task], cores: int) -> None:
    """Whatever order the scheduler takes, jobs without dependencies end between the estimate and twice that."""
    ends = [0.0] * cores
    for task in waiting:
        ends[ends.index(min(ends))] += task.earlier or 0.0
    left = time_left(waiting, [], [], cores).seconds
    assert left is not None
    assert left * (1 - 1e-9) <= max(ends) <= 2 * left * (1 + 1e-9)


def running(name: str, since: float = 0.0) -> Running:
    return Running(name, name.split()[0], f"results/logs/{name}.log", since)


def followed() -> Tracker:
    """A run of four jobs: one is done, two run, one waits."""
    tracker = Tracker(100.0, cores=2)
    tracker.plan({1: Task("run", 10.0), 2: Task("run", 50.0), 3: Task("audit", 20.0), 4: Task("table", 0.5)})
    tracker.start(1, running("run one", 100.0), 1)
    tracker.finish(1, 110.0)
    tracker.start(2, running("run two", 110.0), 1)
    tracker.start(3, running("audit dp_gd", 110.0), 1)
    return tracker


def test_the_line_says_what_is_done_what_runs_and_how_long_it_takes() -> None:
    line = progress_line(followed().progress(120.0))
    assert line == "[1/4]  25% | about 40 s left | run two; audit dp_gd"


@settings(deadline=None)
@given(st.integers(1, 200))
def test_the_line_fits_the_terminal(width: int) -> None:
    whole = progress_line(followed().progress(120.0))
    line = progress_line(followed().progress(120.0), width=width)
    assert len(line) <= width
    assert line == whole or whole.startswith(line.rstrip("."))


def test_a_failed_job_is_counted_until_it_is_tried_again() -> None:
    tracker = followed()
    tracker.fail(2, "run")
    assert "| 1 failed |" in progress_line(tracker.progress(120.0))
    assert tracker.progress(120.0).failed == ("run two",)
    tracker.start(2, running("run two", 121.0), 1)
    assert "failed" not in progress_line(tracker.progress(122.0))


def test_all_done_is_said_only_when_all_is_done() -> None:
    tracker = Tracker(0.0, cores=1)
    tracker.plan({number: Task("run", 1.0) for number in range(1000)})
    for number in range(999):
        tracker.start(number, running("run"), 1)
        tracker.finish(number, 1.0)
    assert "[ 999/1000]  99%" in progress_line(tracker.progress(1.0))


def test_without_a_list_of_jobs_the_counts_of_rules_serve() -> None:
    tracker = Tracker(0.0, cores=1)
    tracker.expect({"run": 5, "table": 1})
    for number in (7, 8, 9):
        tracker.start(number, running("run"), 1)
        tracker.finish(number, 10.0)
    progress = tracker.progress(10.0)
    assert (progress.done, progress.total) == (3, 6)
    assert progress.left == Estimate(20.0, unknown=1), "two runs are left, and a table of which nothing is known"


def on_a_cluster() -> Tracker:
    """Three jobs: one was in the queue for 900 seconds and took 20, where it took 10 before; two are submitted."""
    tracker = Tracker(0.0, cluster=True)
    tracker.plan({1: Task("run", 10.0), 2: Task("run", 40.0), 3: Task("audit", 20.0, cores=2)})
    for number, name in ((1, "run one"), (2, "run two"), (3, "audit dp_gd")):
        tracker.start(number, running(name, 0.0), 1)
    tracker.finish(1, 920.0, measured=20.0)
    return tracker


def test_on_a_cluster_computing_is_told_and_neither_queue_nor_places() -> None:
    left = on_a_cluster().progress(920.0).left
    pace = (TRUSTED_SECONDS + 20.0) / (TRUSTED_SECONDS + 10.0)
    assert left == Estimate(pytest.approx(pace * (40.0 + 2 * 20.0)), computing=True)
    assert left_in_words(left) == "about 2 min of computing left"
    assert left_in_words(Estimate(90.0, 2, computing=True)) == "about 90 s of computing and 2 unknown jobs left"


def test_time_in_the_queue_is_no_time_that_a_job_took() -> None:
    tracker = on_a_cluster()
    assert tracker.finished[1].seconds == 20.0
    assert tracker.progress(920.0).left == tracker.progress(9000.0).left, "jobs may wait that long"
    tracker.finish(2, 1000.0)
    assert tracker.finished[2].seconds == 1000.0, "without a benchmark nothing else is known"


def test_all_done_is_said_on_a_cluster_too() -> None:
    tracker = on_a_cluster()
    for number in (2, 3):
        tracker.finish(number, 1000.0, measured=1.0)
    assert left_in_words(tracker.progress(1000.0).left) == "nothing left"


def test_progress_survives_its_file() -> None:
    progress = followed().progress(120.0)
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


def test_a_run_is_alive_while_its_process_is_and_is_heard_of() -> None:
    progress = followed().progress(1000.0)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    place, pid, started = progress.stamp.split()
    dead = dataclasses.replace(progress, stamp=f"{place} {ended.pid} {started}")
    assert progress.pid == pid == str(os.getpid())
    assert progress.alive(1001.0)
    assert not progress.alive(1001.0 + SILENT_SECONDS)
    assert not dead.alive(1001.0)
    elsewhere = dataclasses.replace(dead, stamp=f"elsewhere {ended.pid} {started}")
    assert elsewhere.alive(1001.0), "of another machine only the time is known"
    later = dataclasses.replace(progress, stamp=f"{place} {pid} {started}0")
    assert not later.alive(1001.0), "another process got its number"
    assert not dataclasses.replace(progress, state="ended").alive(1001.0)
