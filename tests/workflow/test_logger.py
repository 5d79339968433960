"""What a run shows: one live line on a terminal, a line per job in a log, and always why something failed.

The workflows here are small, the Snakemake is real.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from dprepro.experiments import load_config, load_experiments
from dprepro.progress import PROGRESS_FILE, Progress
from dprepro.status import expected_jobs, read_progress

pytestmark = pytest.mark.workflow

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120
JOBS = 4
WIDTH = 60

SNAKEFILE = """
from dprepro.hooks import name_results, run_started

if workflow.is_main_process and not workflow.output_settings.dryrun:
    name_results("results")

onstart:
    run_started(workflow)

rule all:
    input: expand("results/runs/{number}.txt", number=range(4))

rule run:
    output: "results/runs/{number}.txt"
    log: "results/logs/runs/{number}.log"
    benchmark: "results/benchmarks/trials/{number}.tsv"
    message: "Running the job with the number {wildcards.number}, which has a rather long name"
    shell: "(%s) > {log} 2>&1 && touch {output}"
"""
FAILING = "test {wildcards.number} != 2 || (echo dprepro: no luck; exit 3)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a workflow of four jobs and a target."""
    return with_shell(tmp_path, "sleep 0.2")


def with_shell(folder: Path, command: str) -> Path:
    (folder / "Snakefile").write_text(SNAKEFILE % command)
    return folder


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--cores", "1", "--logger", "dprepro", "--keep-going", *arguments]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE_")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the workflow without a terminal; return exit code and all that it said."""
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def run_on_terminal(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the workflow on a terminal of 60 columns; return exit code and all that reached it."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    process = subprocess.Popen(
        command(*arguments), cwd=folder, env=environment(), stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:  # The other end is closed.
        pass
    finally:
        os.close(ours)
    return process.wait(PATIENCE_SECONDS), seen.decode()


def start(folder: Path, output: int) -> subprocess.Popen[bytes]:
    """Start the workflow in a process group of its own, which Ctrl-C reaches."""
    return subprocess.Popen(
        command(),
        cwd=folder,
        env=environment(),
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows in the end: a carriage return goes back to the start of its line."""
    return [line.rpartition("\r\x1b[K")[2].rstrip("\r") for line in text.split("\n")]


def full_log(folder: Path) -> str:
    (log,) = (folder / ".snakemake/log").glob("*.log")
    return log.read_text()


def test_a_log_gets_one_line_per_job_and_one_at_the_end(folder: Path) -> None:
    code, text = run(folder)
    assert code == 0, text
    lines = text.splitlines()
    told = [line for line in lines if line.startswith("[")]
    assert [line.split()[0] for line in told] == [f"[{number}/{JOBS + 1}]" for number in range(1, JOBS + 1)]
    assert all(re.search(r"\| .*left.* \| Running the job with .* name \([0-9.]+ s\)$", line) for line in told)
    assert "\r" not in text
    assert "\x1b" not in text
    assert re.match(r"Done: 5 jobs in [0-9.]+ s; results in results; full log in \.snakemake/log/.*\.log$", lines[-1])
    assert lines[lines.index(told[0]) - 1] == "5 jobs to do on 1 core"
    assert len(lines) <= JOBS + 4, text


def test_the_full_account_is_kept_in_the_log_of_snakemake(folder: Path) -> None:
    run(folder)
    kept = full_log(folder)
    assert len(re.findall(r"^Job \d+: Running the job", kept, re.MULTILINE)) == JOBS
    assert "Reason: Missing output files" in kept
    assert "5 of 5 steps (100%) done" in kept


def test_a_terminal_shows_one_line_that_is_drawn_over_and_over(folder: Path) -> None:
    code, text = run_on_terminal(folder)
    assert code == 0, text
    drawn = re.findall(r"\r\x1b\[K(\[[^\r\n]*)", text)
    counts = [int(line[1:].partition("/")[0]) for line in drawn]
    assert counts == sorted(counts)
    assert {0, 1, 2, 3} <= set(counts)
    assert max(map(len, drawn)) == WIDTH - 1, "the names are long, and cut to the width"
    shown = screen(text)
    assert [line for line in shown if line.startswith("[")] == [], "nothing of it is left at the end"
    assert any(line.startswith("Done: 5 jobs in ") for line in shown)
    assert len(shown) <= 6, text


def test_times_of_an_earlier_run_tell_the_time_left(folder: Path) -> None:
    with_shell(folder, "sleep 1")
    first = run(folder)[1]
    told = re.findall(r"^\[.*?\| (.*?) \|", first, re.MULTILINE)
    assert told[:2] == ["time left unknown yet"] * 2
    assert re.fullmatch(r"about \d+ s left", told[2]), "three jobs make a mean"
    code, text = run(folder, "--forceall")
    assert code == 0
    left = [int(found) for found in re.findall(r"\| about (\d+) s left \|", text)]
    assert len(left) == JOBS - 1
    assert "| nothing left |" in text, "the target takes no time"
    assert left[-1] <= left[0]
    assert 3 <= left[0] <= 60, "three jobs of a second, on a machine that may be busy"


def test_a_failed_job_shows_its_log_and_the_end_says_so(folder: Path) -> None:
    with_shell(folder, FAILING)
    code, text = run(folder, "--show-failed-logs")
    assert code == 1
    assert "Error in rule run, job " in text
    assert "results/runs/2.txt" in text
    assert "\ndprepro: no luck\n" in text
    assert "Traceback" not in text
    closing = [line for line in text.splitlines() if line.startswith("Failed: ")]
    assert len(closing) == 1
    assert "Failed: 1 of 5 jobs failed, 3 are done and 1 were not run, in " in closing[0]


def test_the_command_of_a_failed_job_does_not_fill_the_screen(folder: Path) -> None:
    with_shell(folder, f"true {'x' * 5000}; {FAILING}")
    code, text = run(folder)
    assert code == 1
    assert "Error in rule run, job " in text
    assert len(text) < 4000
    assert "x" * 5000 in full_log(folder)


def test_a_failed_job_stays_on_the_terminal(folder: Path) -> None:
    with_shell(folder, FAILING)
    code, text = run_on_terminal(folder, "--show-failed-logs")
    assert code == 1
    shown = screen(text)
    assert "dprepro: no luck" in shown
    assert any(line.startswith("Error in rule run, job ") for line in shown)


def test_what_is_said_after_a_failure_stands_on_lines_of_its_own(folder: Path) -> None:
    with_shell(folder, FAILING)
    path = folder / "Snakefile"
    path.write_text(
        path.read_text()
        .replace("onstart:", "onerror:\n    say(['Missing: one.', 'Missing: two.'])\n\nonstart:")
        .replace("import name_results,", "import say, name_results,")
    )
    code, text = run_on_terminal(folder)
    assert code == 1
    told = ["dprepro: Missing: one.", "dprepro: Missing: two."]
    assert [line for line in screen(text) if "Missing" in line] == told
    assert run(folder, "--quiet", "all") == (1, "".join(f"{line}\n" for line in told))


def test_jobs_behind_a_failed_one_are_not_counted_as_time_left(folder: Path) -> None:
    with_shell(folder, "sleep 1")
    run(folder)
    with_shell(folder, FAILING)
    path = folder / "Snakefile"
    path.write_text(
        path.read_text()
        + "\nrule after:\n    input: 'results/runs/2.txt'\n    output: 'results/after.txt'\n"
        + "    benchmark: 'results/benchmarks/trials/after.tsv'\n    shell: 'touch {output}'\n"
    )
    (folder / "results/benchmarks/trials/after.tsv").write_text("s\n3600\n")
    code, _ = run(folder, "--forceall", "results/after.txt", "results/runs/1.txt")
    assert code == 1
    progress = read_progress(folder / "results")
    assert progress is not None
    assert progress.left.seconds == 0.0, "what waits for the failed job will not run"


def test_a_dry_run_tells_the_plan_as_snakemake_does(folder: Path) -> None:
    ours = run(folder, "--dry-run")
    theirs = subprocess.run(
        [word for word in command("--dry-run") if word not in ("--logger", "dprepro")],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    jobs = r"^Job \d+: Running.*$|^Reason: .*$|^total .*$"
    assert ours[0] == 0
    assert sorted(re.findall(jobs, ours[1], re.MULTILINE)) == sorted(re.findall(jobs, theirs.stdout, re.MULTILINE))
    assert len(re.findall(jobs, ours[1], re.MULTILINE)) == 2 * JOBS + 2
    assert not (folder / "results").exists()


def test_nothing_to_do_is_said(folder: Path) -> None:
    run(folder)
    code, text = run(folder)
    assert code == 0
    assert "Done:" not in text
    assert text.splitlines()[-1] == "Nothing to be done: all is there and up to date; results in results"
    (folder / "results/report.html").write_text("")
    assert run(folder)[1].splitlines()[-1].endswith("; results in results, the last report: results/report.html")


def test_quiet_is_quiet_but_the_progress_is_known(folder: Path) -> None:
    code, text = run(folder, "--quiet", "all")
    assert (code, text) == (0, "")
    progress = read_progress(folder / "results")
    assert progress is not None
    assert (progress.state, progress.done, progress.total) == ("ended", 5, 5)


def test_a_mistake_in_the_workflow_is_shown(folder: Path) -> None:
    code, text = run(folder, "no_such_target")
    assert code == 1
    assert "no_such_target" in text
    assert "Done:" not in text


def test_progress_that_cannot_be_written_does_not_end_the_run(folder: Path) -> None:
    (folder / "results/logs/progress.json").mkdir(parents=True)
    code, text = run(folder)
    assert code == 0
    assert text.count("dprepro status will not see this run") == 1
    assert "Done: 5 jobs" in text


def await_progress(process: subprocess.Popen[bytes], folder: Path, done: int) -> Progress:
    """Return the progress of a run as soon as so many jobs are done and one runs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "it ended too early"
        progress = read_progress(folder / "results")
        if progress is not None and progress.done >= done and progress.running:
            return progress
        time.sleep(0.05)
    raise AssertionError("no progress was written")


def test_a_run_is_followed_from_outside_and_its_sudden_death_is_seen(folder: Path) -> None:
    with_shell(folder, "sleep 2")
    process = start(folder, subprocess.DEVNULL)
    try:
        progress = await_progress(process, folder, done=1)
        assert progress.pid == str(process.pid)
        assert progress.total == JOBS + 1
        assert [job.rule for job in progress.running] == ["run"]
        assert progress.running[0].log.startswith("results/logs/runs/")
        assert progress.alive(time.time())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    last = read_progress(folder / "results")
    assert last is not None
    assert last.state == "running"
    assert not last.alive(time.time())


def test_ctrl_c_is_told_as_stopped(folder: Path) -> None:
    with_shell(folder, "sleep 2")
    process = start(folder, subprocess.PIPE)
    try:
        await_progress(process, folder, done=1)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert re.search(
        r"^Stopped: 1 of 5 jobs are done after .*; the same command goes on", output.decode(), re.MULTILINE
    )
    assert json.loads((folder / "results" / PROGRESS_FILE).read_text())["state"] == "ended"


def test_hundreds_of_looks_for_jobs_leave_no_timers_behind(folder: Path) -> None:
    """Every finished job would leave a timer that wakes the scheduler each second; the limit behind it is lifted."""
    timers = "sum(isinstance(thread, threading.Timer) for thread in threading.enumerate())"
    counted = f"import threading\nonsuccess:\n    print('TIMERS', {timers})\n"
    path = folder / "Snakefile"
    path.write_text(counted + path.read_text())
    assert "TIMERS 0\n" in run(folder)[1]
    path.write_text(path.read_text().replace("    run_started(workflow)", "    pass"))
    found = re.search(r"TIMERS (\d+)", run(folder, "--forceall")[1])
    assert found is not None
    assert int(found[1]) > 0, "if Snakemake has mended this, dprepro.hooks need not"


def test_status_expects_the_jobs_that_snakemake_plans(pristine: object) -> None:
    config = load_config([ROOT / "config/scales/smoke.yaml"], ROOT / "config")
    jobs = expected_jobs(load_experiments(config, ROOT / "config"), config)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "1", "--configfile", "config/scales/smoke.yaml"],
        cwd=pristine.folder,  # type: ignore[attr-defined]
        env=pristine.environment,  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
        check=True,
    )
    total = re.search(r"^total +(\d+)$", done.stdout, re.MULTILINE)
    assert total is not None
    assert len(jobs) == len(set(jobs)) == int(total[1]) - 1, "all but the target itself"
