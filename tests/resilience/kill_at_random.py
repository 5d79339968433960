"""Kill the workflow at random, again and again, and see that it always completes with the same results.

    python tests/resilience/kill_at_random.py --kills 20 --seed 0

A reference is made undisturbed in a copy of the checkout. Then, in a copy of that: some results are removed, Snakemake
is started and at a random time killed with SIGKILL (it alone, its whole process group, or one of its workers), and
called again without any flag. It must complete, no file that was whole before may have been touched, and all that does
not depend on the clock must equal the reference byte by byte.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from workflow.conftest import PATIENCE_SECONDS, SMOKE, Checkout, copy_of_this_checkout  # noqa: E402

KINDS = ("Snakemake", "the whole group", "a worker")
# What no removal of others' results changes: these must not be touched.
KEPT = ("datasets/*", "plans/*/*", "optima/*/*", "runs/*/*", "sweeps/*/*", "privacy/audits/*")
# Snakemake takes about so long to read the workflow.
STARTUP_SECONDS = 4.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trial and return an exit code: 0 if every rerun completed with the same results."""
    options = _options(arguments)
    chance = random.Random(options.seed)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="kill-at-random-"))
    reference, own = copy_of_this_checkout(folder / "reference"), folder / "killed"
    started = time.monotonic()
    _finish(reference, options)
    _say(f"the reference took {time.monotonic() - started:.0f} s in {folder}")
    shutil.rmtree(own, ignore_errors=True)
    checkout = reference.copy(own)
    for number in range(1, options.kills + 1):
        kind = KINDS[number % len(KINDS)] if options.in_turn else chance.choice(KINDS)
        while not (told := _round(checkout, kind, options, chance)):
            pass
        differences = compare(checkout, reference)
        _say(f"kill {number} of {options.kills}: {told}; {len(differences)} files differ")
        if differences:
            _say(f"different: {', '.join(differences)}")
            return 1
    _say(f"{options.kills} kills, every rerun completed, results identical, nothing lost")
    if not options.folder:
        shutil.rmtree(folder)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--share", type=float, default=0.1, help="of the experiments that lose results before each kill"
    )
    parser.add_argument("--config", default=SMOKE, help="laid over the default (default: the smoke scale)")
    parser.add_argument("--in-turn", action="store_true", help="kill each kind of process in turn, not at random")
    parser.add_argument("--folder", help="work here and keep it; a reference that is here is brought up to date")
    parser.add_argument("targets", nargs="*", help="what to make (default: everything)")
    return parser.parse_args(arguments)


def _round(checkout: Checkout, kind: str, options: argparse.Namespace, chance: random.Random) -> str:
    """Remove, start, kill, rerun and check; return what was done, or nothing if the run ended before it was killed."""
    removed = _remove_some(checkout, options.share, chance)
    whole = _identities(checkout)
    when = _start_and_kill(checkout, kind, options, chance)
    if not when:
        return ""
    started = time.monotonic()
    _finish(checkout, options)
    touched = [name for name, identity in _identities(checkout).items() if whole.get(name, identity) != identity]
    lost = sorted({*touched, *(name for name in whole if not (checkout.results / name).exists())})
    if lost:
        raise SystemExit(f"kill_at_random: these were whole before the kill and are not the same now: {lost}")
    if left := [path.name for path in checkout.results.rglob("*.partial")]:
        raise SystemExit(f"kill_at_random: unfinished files are left: {left}")
    seconds = time.monotonic() - started
    return f"{kind} killed {when}, {removed} results removed before; the rerun took {seconds:.0f} s"


def _remove_some(checkout: Checkout, share: float, chance: random.Random) -> int:
    """Remove half of the results of some experiments, with the tables and figures made of them; return their number.

    Audits count as an experiment. Snakemake makes nothing that only something finished was made of.
    """
    made: dict[str, list[Path]] = {}
    for pattern in ("runs/*/*.npz", "sweeps/*/*.npz", "privacy/audits/*.json"):
        for path in checkout.files(pattern).values():
            made.setdefault(path.parent.name, []).append(path)
    removed = 0
    for experiment in chance.sample(sorted(made), max(1, round(share * len(made)))):
        chosen = chance.sample(made[experiment], -(-len(made[experiment]) // 2))
        removed += len(chosen)
        products = [f"data/{experiment}.parquet", f"tables/{experiment}.*", f"figures/{experiment}.*"]
        if experiment == "audits":
            products = ["privacy/certificates.csv"]
        for path in (*chosen, *(product for pattern in products for product in checkout.files(pattern).values())):
            path.unlink()
            if path in chosen:
                path.with_suffix(".json").unlink(missing_ok=True)
    return removed


def _identities(checkout: Checkout) -> dict[str, tuple[int, int]]:
    """Return inode and time of all files that are made of no others than what is kept."""
    found = {name: path.stat() for kind in KEPT for name, path in checkout.files(kind).items()}
    return {name: (facts.st_ino, facts.st_mtime_ns) for name, facts in found.items()}


def _start_and_kill(checkout: Checkout, kind: str, options: argparse.Namespace, chance: random.Random) -> str:
    """Start Snakemake and kill what `kind` says at a random time; return when, or nothing if it was over before."""
    process = subprocess.Popen(
        checkout.command(*options.targets, config=options.config, cores=options.cores),
        cwd=checkout.folder,
        env=checkout.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        when = _wait(process, kind, chance)
        victim = _victim(process, kind, chance) if when else None
        if victim is None:
            if code := process.wait(PATIENCE_SECONDS):
                raise SystemExit(f"kill_at_random: it ended by itself with exit code {code}")
            return ""
        (os.killpg if kind == "the whole group" else os.kill)(victim, signal.SIGKILL)
        # After the death of a worker Snakemake goes on with the rest, and ends with an error.
        return when if process.wait(PATIENCE_SECONDS) != 0 else ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[str], kind: str, chance: random.Random) -> str:
    """Wait until a random time of the run: while it starts, or some seconds after a random number of jobs."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    if kind != "a worker" and chance.random() < 0.1:
        seconds = chance.uniform(0.0, STARTUP_SECONDS)
        time.sleep(seconds)
        return f"{seconds:.1f} s after its start"
    place, pause = chance.random(), chance.uniform(0.0, 1.5)
    total = done = None
    for line in iter(lambda: lines.get(timeout=PATIENCE_SECONDS), None):
        if found := re.match(r"total +(\d+)|(\d+) jobs to do", line):
            total, done = int(found[1] or found[2]), 0
        # Of Snakemake itself, and of the progress line.
        if found := re.match(r"(\d+) of (\d+) steps|\[ *(\d+)/(\d+)\]", line):
            done, total = (int(number) for number in found.groups() if number)
        if total is not None and done is not None and done >= int(place * total):
            time.sleep(pause)
            return f"{pause:.1f} s after {done} of {total} jobs"
    return ""


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _victim(process: subprocess.Popen[str], kind: str, chance: random.Random) -> int | None:
    """Return which process is killed; nothing if there is none any more."""
    if process.poll() is not None:
        return None
    if kind != "a worker":
        return process.pid
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline and process.poll() is None:
        if workers := list(_workers(process.pid)):
            return chance.choice(workers)
        time.sleep(0.02)
    return None


def _workers(session: int) -> Iterator[int]:
    """Yield the jobs of a Snakemake that leads a session: interpreters that run dprepro."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[1:3] == [b"-m", b"dprepro"] and os.getsid(int(folder.name)) == session:
                yield int(folder.name)
        except OSError:
            continue


def _finish(checkout: Checkout, options: argparse.Namespace) -> None:
    """Call Snakemake without any flag, as a user would; it must complete, however long that takes."""
    done = checkout.snakemake(*options.targets, config=options.config, cores=options.cores, patience=None)
    if done.code:
        last = "\n".join(done.text.splitlines()[-80:])
        raise SystemExit(f"{last}\nkill_at_random: the call ended with exit code {done.code}")


def compare(found: Checkout, expected: Checkout) -> list[str]:
    """Return the files that differ in what does not depend on the clock."""
    names = {
        name
        for kind in (*KEPT, "data/*", "tables/*", "figures/*", "privacy/*.*")
        for checkout in (found, expected)
        for name in checkout.files(kind)
    }
    timed = _timed(expected)
    return [name for name in sorted(names) if _settled(found, name, timed) != _settled(expected, name, timed)]


def _settled(checkout: Checkout, name: str, timed: set[str]) -> object:
    """Return what of a file does not depend on the clock; None if it is not there."""
    from dprepro.collected import read_collected
    from dprepro.files import read_json
    from dprepro.stages.collect import TIMING_COLUMNS
    from dprepro.sweeps import SECONDS

    path = checkout.results / name
    if not path.exists():
        return None
    kind, stem = name.split("/")[0], path.name.split(".")[0]
    if path.suffix == ".parquet":
        frame, metadata = read_collected(path)
        return frame.drop(columns=[*TIMING_COLUMNS], errors="ignore").to_json(), _without_times(metadata)
    if kind in ("runs", "sweeps") and path.suffix == ".json":
        return _without_times(read_json(path))
    if name.startswith("privacy/audits/"):
        return read_json(path, "rows")["rows"]
    if stem in timed and kind in ("tables", "figures"):
        if path.suffix != ".csv":
            return "whole"
        return [line for line in path.read_text(encoding="utf-8").splitlines() if SECONDS not in line]
    if path.suffix == ".json":
        return _without_times(read_json(path))
    return path.read_bytes()


def _timed(checkout: Checkout) -> set[str]:
    """Return the experiments whose figures or tables show times: curves, and sweeps that are there for the time."""
    from dprepro.collected import read_collected

    found = set()
    for path in checkout.files("data/*.parquet").values():
        metadata = read_collected(path)[1]
        settings = metadata.get("settings", {}).values()
        if metadata["kind"] == "curves" or any(setting.get("timed") for setting in settings):
            found.add(path.stem)
    return found


def _without_times(content: object) -> object:
    if isinstance(content, dict):
        return {key: _without_times(value) for key, value in content.items() if key not in _TIMES}
    return [_without_times(item) for item in content] if isinstance(content, list) else content


# Digests are those of files with times in them.
_TIMES = ("seconds", "seconds_cpu", "cost", "started", "digest", "made_from")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
