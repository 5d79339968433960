"""One run at a time, no job without its Snakemake, and nothing left of the dead: without starting Snakemake."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dprepro import files, owner, recovery
from dprepro.errors import RunFailed, UserError

HOLD = """
import sys, time
from pathlib import Path
from dprepro.recovery import begin
begin(Path(sys.argv[1]), Path(sys.argv[1]) / "results")
print("held", flush=True)
time.sleep(600)
"""
WRITE = """
import sys, time
from dprepro.cli import main
from dprepro.files import write_text
from dprepro.owner import end_with_owner
end_with_owner()
print("started", flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder to work in; what this process holds of it is given up at the end."""
    yield tmp_path
    while recovery._held:
        recovery._held.pop().close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def ended() -> int:
    """Return the number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_run_is_told_who_works_here_and_a_killed_one_holds_nothing(folder: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"Another run .process {holder.pid} on .*since 2.* works in") as caught:
            recovery.begin(folder, folder / "results")
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        holder.kill()
        holder.wait()
    locks = folder / ".snakemake" / "locks"
    locks.mkdir()
    for name in ("0.input.lock", "0.output.lock"):
        (locks / name).write_text("results/a\n")
    (note,) = recovery.begin(folder, folder / "results")
    assert "was killed: its lock is removed" in note
    assert os.listdir(locks) == []


def test_a_folder_in_which_nothing_happened_is_taken_without_a_word(folder: Path) -> None:
    assert recovery.begin(folder, folder / "results") == []
    assert [path.name for path in (folder / "results").rglob("*") if path.is_file()] == [recovery.LOCK.name]


@pytest.mark.parametrize("last", ["elsewhere/pid:[1] 12 34\nnow\n", f"{owner.stamp(1)}\nnow\n{recovery.SUBMITS}\n"])
def test_locks_of_a_run_elsewhere_or_with_submitted_jobs_are_left_to_the_user(last: str, folder: Path) -> None:
    lock = folder / ".snakemake" / "locks" / "0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("results/a\n")
    (folder / recovery.LOCK).write_text(last)
    half = folder / "results" / f".a.npz.{files.host_tag()}-{ended()}.partial"
    half.parent.mkdir()
    half.write_bytes(b"half")
    for _ in range(2):
        with pytest.raises(UserError, match=r"may still be at work: cancel them, call `snakemake --unlock`"):
            recovery.begin(folder, folder / "results")
        assert lock.exists()
        assert half.exists()
        assert (folder / recovery.LOCK).read_text() == last, "the next call must know it as well"
    lock.unlink()  # as --unlock does
    assert recovery.begin(folder, folder / "results") == []
    assert half.exists(), "it may be the file of a job that runs"


def test_two_checkouts_do_not_work_on_the_same_results(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"Another run .process {holder.pid} on .* works in {folder / 'results'}: "):
            recovery.begin(other, folder / "results")
    finally:
        holder.kill()
        holder.wait()
    assert recovery.begin(other, folder / "results") == []


def test_a_run_that_submits_jobs_says_so_in_its_lock(folder: Path) -> None:
    recovery.begin(folder, folder / "results")
    recovery.note_submissions()
    for lock in (folder / recovery.LOCK, folder / "results" / recovery.RESULTS_LOCK):
        assert lock.read_text().splitlines()[2:] == [recovery.SUBMITS]


def test_unfinished_files_of_dead_processes_go_and_those_of_living_ones_stay(
    folder: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    place = folder / "results" / "runs"
    place.mkdir(parents=True)
    here, pid = files.host_tag(), ended()
    dead, alive = place / f".a.npz.{here}-{pid}.partial", place / f".b.npz.{here}-{sleeper.pid}.partial"
    elsewhere = place / f".c.npz.{'0' * 8}-{pid}.partial"
    others = [elsewhere, place / "a.npz", place / "x.partial", place / ".12.partial"]
    for path in (dead, alive, *others):
        path.write_bytes(b"half")
    assert recovery.begin(folder, folder / "results") == ["1 unfinished file of killed jobs removed."]
    assert sorted(place.iterdir()) == sorted([alive, *others])


def test_the_name_of_an_unfinished_file_tells_who_writes_it(tmp_path: Path) -> None:
    with files.atomic_path(tmp_path / "a.b.npz") as temporary:
        found = files.PARTIAL.fullmatch(temporary.name)
        assert found is not None
        assert int(found["pid"]) == os.getpid()
        temporary.write_bytes(b"")


def test_files_from_the_future_get_the_present_time_and_others_keep_theirs(folder: Path) -> None:
    place = folder / "results" / "data"
    place.mkdir(parents=True)
    times = {"old": time.time() - 1e6, "new": time.time() - 10.0, "future": time.time() + 1e5}
    for name, at in times.items():
        (place / name).write_text(name)
        os.utime(place / name, (at, at))
    (note,) = recovery.begin(folder, folder / "results")
    assert note.startswith("1 result came from the future")
    assert (place / "old").stat().st_mtime == pytest.approx(times["old"], abs=1e-3)
    assert (place / "new").stat().st_mtime == pytest.approx(times["new"], abs=1e-3)
    assert times["new"] < (place / "future").stat().st_mtime <= time.time()


@pytest.mark.parametrize(
    ("words", "looks"),
    [
        ("--cores 2", False),
        ("-c2 wyx17_fig1 -p -k", False),
        ("--cores all --configfile config/scales/smoke.yaml", False),
        ("--rerun-incomplete --notemp -F", False),
        ("-n", True),
        ("-np wyx17_fig1", True),
        ("-Fn", True),
        ("--dry-run", True),
        ("--dryrun=yes", True),
        ("--report report.html", True),
        ("--report report.html --report-after-run", False),
        ("--unlock", True),
        ("--lint", True),
    ],
)
def test_calls_that_only_look_are_told_by_their_words(words: str, looks: bool) -> None:
    assert recovery.only_looks(words.split()) is looks


def test_a_process_is_known_by_more_than_its_number(sleeper: subprocess.Popen[bytes]) -> None:
    stamp = owner.stamp(sleeper.pid)
    assert owner.alive(stamp)
    host, pid, started = stamp.split()
    assert not owner.alive(f"{host} {pid} {int(started) - 1}"), "another process had this number before"
    assert owner.alive(f"elsewhere {ended()} {started}"), "nobody can tell from here"
    sleeper.kill()
    # It has ended although nobody has read its exit code yet.
    deadline = time.monotonic() + 10.0
    while owner.alive(stamp) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not owner.alive(stamp)


def test_a_job_writes_nothing_after_the_end_of_its_snakemake(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(owner.VARIABLE, owner.stamp(sleeper.pid))
    files.write_text(tmp_path / "result", "of the old run")
    (tmp_path / "result").write_text("of the new run")
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(RunFailed, match="nothing is written"):
        files.write_text(tmp_path / "result", "of the old run")
    assert os.listdir(tmp_path) == ["result"]
    assert (tmp_path / "result").read_text() == "of the new run"


def test_a_job_ends_with_its_snakemake(sleeper: subprocess.Popen[bytes]) -> None:
    environment = {**os.environ, owner.VARIABLE: owner.stamp(sleeper.pid)}
    job = subprocess.Popen([sys.executable, "-c", WRITE], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "started\n"
        time.sleep(1.5)
        assert job.poll() is None
        sleeper.kill()
        sleeper.wait()
        assert job.wait(10.0) == RunFailed.exit_code
    finally:
        job.kill()
        job.wait()


def test_a_failed_run_says_that_the_disk_is_full_and_that_a_job_was_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Command 'python -m dprepro run' returned non-zero exit status 1.\n")
    assert recovery.explain(tmp_path / "not" / "there", str(log)) == []
    log.write_text("Command 'python -m dprepro run' returned non-zero exit status 137.\n")
    for logs in (str(log), [str(tmp_path / "no log"), str(log)]):
        (note,) = recovery.explain(tmp_path, logs)
        assert "was killed (exit status 137)" in note
        assert "memory" in note
    assert recovery.explain(tmp_path, []) == []
