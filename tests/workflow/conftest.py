"""The real workflow at its smoke scale, in a copy of the checkout that tests may edit, kill and delete."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = (
    *("Snakefile", "workflow", "profiles", "config", "envs", "docs/fidelity.md"),
    *("src/dprepro", "src/snakemake_logger_plugin_dprepro"),
)
SMOKE = "config/scales/smoke.yaml"
PATIENCE_SECONDS = 1200


# Two ways in which every run of one method ends.
KILLED, CRASHED = (
    f"""
import os, signal, sys
if sys.orig_argv[1:4] == ["-m", "dprepro", "run"] and "dp-svrg-bb" in " ".join(sys.orig_argv):
    {end}
"""
    for end in ("os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit('dprepro: planted')")
)


@dataclass(frozen=True)
class Outcome:
    """What Snakemake ended with: exit code and all that it said."""

    code: int
    text: str

    @property
    def jobs(self) -> list[str]:
        """The messages of the jobs it finished or, in a dry run, would run."""
        planned = re.findall(r"^Job \d+: (.+)$", self.text, re.MULTILINE)
        finished = re.findall(r"^\[ *\d+/\d+\] +\d+% \| .* left.* \| (.+) \([0-9.]+ \w+\)$", self.text, re.MULTILINE)
        return sorted({*planned, *finished})

    @property
    def sentences(self) -> list[str]:
        """What dprepro itself had to say."""
        return [line for line in self.text.splitlines() if line.startswith("dprepro: ")]


@dataclass(frozen=True)
class Checkout:
    """A copy of the checkout with its own sources; nothing it does reaches the original."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables commands run with: this copy's sources, no network, none of the user's settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DPREPRO_", "SNAKEMAKE_"))}
        path = os.pathsep.join([os.path.dirname(sys.executable), kept.get("PATH", "")])
        cache = self.folder / ".cache"
        return {
            **kept,
            "PATH": path,
            "PYTHONPATH": str(self.folder / "src"),
            "DPREPRO_OFFLINE": "1",
            "DPREPRO_CACHE_DIR": str(cache),
        }

    def command(self, *arguments: str, config: str = SMOKE, cores: int = 2) -> list[str]:
        """Return the command line; targets come first because `--configfile` takes all names that follow."""
        return [sys.executable, "-m", "snakemake", *arguments, "--cores", str(cores), "--configfile", config]

    def snakemake(
        self,
        *arguments: str,
        config: str = SMOKE,
        cores: int = 2,
        patience: float | None = PATIENCE_SECONDS,
        fault: str = "",
    ) -> Outcome:
        """Run Snakemake to its end, for as many seconds as there is patience; every process executes `fault` first."""
        environment = self.environment
        if fault:
            place = self.folder / ".fault"
            place.mkdir(exist_ok=True)
            (place / "sitecustomize.py").write_text(fault, encoding="utf-8")
            environment["PYTHONPATH"] += f"{os.pathsep}{place}"
        done = subprocess.run(
            self.command(*arguments, config=config, cores=cores),
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience,
            check=False,
        )
        return Outcome(done.returncode, done.stdout)

    def planned(self, *targets: str, config: str = SMOKE) -> list[str]:
        """Return the messages of the jobs that a dry run lists."""
        outcome = self.snakemake(*targets, "--dry-run", config=config)
        assert outcome.code == 0, outcome.text
        assert outcome.jobs or "Nothing to be done" in outcome.text
        return outcome.jobs

    def interrupt(self, target: str, number: signal.Signals, *, group: bool) -> None:
        """Start Snakemake and send a signal, to it alone or to its group, once three runs have written results.

        Only two run at a time, so Snakemake has seen at least one of them end.
        """
        process = subprocess.Popen(
            self.command(target),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # A shell starts background commands with Ctrl-C ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(self.files("runs/*/*.npz")) < 3:
                assert process.poll() is None, "it ended before three runs were done"
                assert time.monotonic() < deadline
                time.sleep(0.02)
            (os.killpg if group else os.kill)(process.pid, number)
            try:
                code = process.wait(60 if number == signal.SIGTERM else PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                # A SIGTERM that comes while Snakemake chooses jobs makes it wait for its own lock: what stops services
                # kills then, and so does this.
                assert number == signal.SIGTERM
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            assert code != 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @property
    def results(self) -> Path:
        """The folder of the smoke scale's results."""
        return self.folder / "results" / "smoke"

    def files(self, pattern: str) -> dict[str, Path]:
        """Return the result files that match, by their path inside the results."""
        return {str(path.relative_to(self.results)): path for path in sorted(self.results.glob(pattern))}

    def everything(self) -> set[str]:
        """Return all files but Snakemake's own notes and Python's caches."""
        files = (path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())
        return {str(path) for path in files if not {".snakemake", "__pycache__"} & set(path.parts)}

    def edit(self, name: str, change: Callable[[str], str]) -> None:
        """Change a source file."""
        path = self.folder / "src" / "dprepro" / name
        before = path.read_text(encoding="utf-8")
        after = change(before)
        assert after != before
        path.write_text(after, encoding="utf-8")

    def write_config(self, text: str) -> str:
        """Write a configuration to lay over the default one and return its name."""
        (self.folder / "mine.yaml").write_text(text, encoding="utf-8")
        return "mine.yaml"

    def copy(self, folder: Path) -> Checkout:
        """Return a copy with the same times of all files, so that what is up to date stays so."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Checkout(folder)


def copy_of_this_checkout(folder: Path) -> Checkout:
    """Return a copy without results; what was made in an earlier one in its place stays there."""
    for part in PARTS:
        source, target = ROOT / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir() and not source.is_symlink():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            target.unlink(missing_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return Checkout(folder)


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, pristine: Checkout, make: Callable[[Checkout], None]
) -> Path:
    """Return the folder of a checkout in which `make` has done its work.

    Of several workers of pytest one makes it, and the others wait for it.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    ready, unfinished = shared / name, shared / f"{name}-unfinished"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            make(pristine.copy(unfinished))
            unfinished.rename(ready)
    return ready


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which nothing has been run. Not to be changed: take `checkout`."""
    return copy_of_this_checkout(tmp_path_factory.mktemp("pristine") / "checkout")


@pytest.fixture(scope="session")
def finished(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the whole smoke scale has run undisturbed. Not to be changed: take `done`.

    The run takes minutes and both cores. Its results are copied to the folder that DPREPRO_KEEP_SMOKE names, for tests
    that are run later.
    """

    def make(checkout: Checkout) -> None:
        outcome = checkout.snakemake()
        assert outcome.code == 0, outcome.text
        if kept := os.environ.get("DPREPRO_KEEP_SMOKE"):
            shutil.copytree(checkout.results, ROOT / kept, dirs_exist_ok=True)

    return Checkout(made_once(tmp_path_factory, "finished", pristine, make))


@pytest.fixture
def checkout(pristine: Checkout, tmp_path: Path) -> Checkout:
    """A checkout of one's own in which nothing has been run."""
    return pristine.copy(tmp_path / "checkout")


@pytest.fixture
def done(finished: Checkout, tmp_path: Path) -> Checkout:
    """A checkout of one's own in which the smoke scale is up to date."""
    return finished.copy(tmp_path / "checkout")
