"""A plugin of pytest that runs tests on mutants: collected once, they run in a fork of this process for each mutant.

First all tests run once, to learn which lines of the package each of them runs and how long it takes. Then each mutant
gets the tests that run its line, the shortest first and those of its module before others, until one fails. A test
that hangs or breaks the process has failed too.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest
from mutants import Mutant, mutants

PACKAGE = "dprepro.privacy"
MEMORY_BYTES = 8 * 2**30
FAILED, PASSED, BROKEN = 1, 0, 3
# Modules that have no part in calibrating noise: calibrations remembered from the unchanged code stay true.
WITHOUT_CALIBRATION = {"audit", "bounds", "cases", "certificate", "mechanisms"}


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: the test that failed, or none."""

    module: str
    name: str
    line: int
    killer: str
    tests: int
    seconds: float


class Hunt:
    """The plugin: it takes the place of pytest's own loop over the tests."""

    def __init__(
        self,
        root: Path,
        wanted: Sequence[str],
        chosen: Any,
        jobs: int,
        most_seconds: float,
        out: Path,
        reach: Path | None,
    ) -> None:
        self._source = root / "src" / PACKAGE.replace(".", "/")
        self._wanted, self._chosen, self._jobs, self._most_seconds = wanted, chosen, jobs, most_seconds
        self._out, self._reach = out, reach
        self._scratch = Path(tempfile.mkdtemp(prefix="dprepro-mutants-"))
        self.fates: list[Fate] = []

    def pytest_configure(self) -> None:
        """Let property tests be the same on every mutant, and not look for the simplest example."""
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", derandomize=True, database=None, phases=phases, deadline=None)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests once, then on every mutant."""
        try:
            kept = self._reach is not None and self._reach.exists()
            reach = json.loads(self._reach.read_text(encoding="utf-8")) if kept else {}
            if unknown := [item for item in session.items if item.nodeid not in reach]:
                reach |= self._learn(unknown)
            if self._reach is not None:
                self._reach.write_text(json.dumps(reach), encoding="utf-8")
            for seen in reach.values():
                seen["lines"] = {module: frozenset(lines) for module, lines in seen["lines"].items()}
            self._hunt(session, reach)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
        return True

    def _learn(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """Return for each test its seconds and the lines of the package that it runs."""
        children = [self._fork(lambda part=items[job :: self._jobs], job=job: self._trace(part, job))
                    for job in range(self._jobs)]  # fmt: skip
        for child in children:
            if os.waitpid(child, 0)[1] != 0:
                raise pytest.UsageError("The tests do not pass on the unchanged code: mend them first.")
        reach: dict[str, Any] = {}
        for job in range(self._jobs):
            reach.update(json.loads((self._scratch / f"reach{job}.json").read_text()))
        return reach

    def _trace(self, items: Sequence[pytest.Item], job: int) -> int:
        measured = coverage.Coverage(data_file=None, include=[f"{self._source}/*"], config_file=False)
        self._calibrations("unchanged")
        reach = {}
        failed = _Failed()
        items[0].config.pluginmanager.register(failed)
        for item in items:
            measured.erase()
            began = time.perf_counter()
            measured.start()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            measured.stop()
            seconds = time.perf_counter() - began
            if failed.test:
                (self._scratch / "failed").write_text(failed.test)
                print(failed.test, failed.text, file=sys.__stderr__, flush=True)
                return FAILED
            data = measured.get_data()
            lines = {Path(file).stem: data.lines(file) for file in data.measured_files()}
            reach[item.nodeid] = {"seconds": seconds, "lines": {name: found for name, found in lines.items() if found}}
        (self._scratch / f"reach{job}.json").write_text(json.dumps(reach))
        return PASSED

    def _hunt(self, session: pytest.Session, reach: dict[str, Any]) -> None:
        waiting, running = self._mutants(), dict[int, tuple[str, Mutant, list[pytest.Item], float]]()
        total = sum(1 for _ in self._mutants())
        items = {item.nodeid: item for item in session.items}
        with self._out.open("w", encoding="utf-8") as out:
            while True:
                while len(running) < self._jobs and (job := next(waiting, None)) is not None:
                    module, mutant = job
                    tests = [items[name] for name in _tests(reach, module, mutant, self._most_seconds) if name in items]
                    child = self._fork(
                        lambda m=module, x=mutant, t=tests: self._judge(m, x, t, reach), Path(module).stem
                    )
                    running[child] = module, mutant, tests, time.perf_counter()
                if not running:
                    return
                child, _ = os.wait()
                module, mutant, tests, began = running.pop(child)
                note = self._scratch / str(child)
                killer = note.read_text() if note.exists() else ""
                fate = Fate(module, mutant.name, mutant.line, killer, len(tests), time.perf_counter() - began)
                self.fates.append(fate)
                out.write(json.dumps(asdict(fate)) + "\n")
                out.flush()
                print(f"\r{len(self.fates)} of {total}", end="", file=sys.__stderr__, flush=True)

    def _mutants(self) -> Iterator[tuple[str, Mutant]]:
        for module in self._wanted:
            for mutant in mutants((self._source / f"{module}.py").read_text(encoding="utf-8")):
                if self._chosen(module, mutant):
                    yield module, mutant

    def _judge(self, module: str, mutant: Mutant, tests: Sequence[pytest.Item], reach: dict[str, Any]) -> int:
        """Run the tests on the mutant and write down the first that fails."""
        note = self._scratch / str(os.getpid())
        note.write_text("the process broke")
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        self._calibrations("unchanged" if module in WITHOUT_CALIBRATION else str(os.getpid()))
        try:
            put_in_place(sys.modules[f"{PACKAGE}.{module}"], mutant.text)
        except Exception as error:
            note.write_text(f"import: {error}")
            return FAILED
        failed = _Failed()
        if tests:
            tests[0].config.pluginmanager.register(failed)
        for item in tests:
            seconds = reach[item.nodeid]["seconds"]
            note.write_text(f"{item.nodeid} hangs or breaks the process")
            signal.setitimer(signal.ITIMER_REAL, 5.0 + 8.0 * seconds)  # its signal ends the process
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if failed.test:
                note.write_text(failed.test)
                return FAILED
        note.unlink()
        return PASSED

    def _calibrations(self, name: str) -> None:
        os.environ["DPREPRO_CACHE_DIR"] = str(self._scratch / "calibrations" / name)

    def _fork(self, work: Any, job: Any = None) -> int:
        """Return the number of a process of its own that does some work and ends with its exit code."""
        sys.stdout.flush()
        if child := os.fork():
            return child
        code = BROKEN
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.setpgid(0, 0)
            code = work()
        except BaseException as error:
            print(f"\n{job}: {error!r}", file=sys.__stderr__, flush=True)
        finally:
            os._exit(code)


class _Failed:
    """Keeps the first test that failed."""

    def __init__(self) -> None:
        self.test, self.text = "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test, self.text = report.nodeid, str(report.longrepr)


def _tests(reach: dict[str, Any], module: str, mutant: Mutant, most_seconds: float) -> list[str]:
    """Return tests that run lines of a mutant in the order in which they are tried, at least one, for some seconds."""
    found = [name for name, seen in reach.items() if mutant.lines & seen["lines"].get(module, frozenset())]

    def far(name: str) -> float:
        """Tests of the module itself come first, then those of the package."""
        file = name.partition("::")[0]
        return 0.1 if module in Path(file).stem else 1.0 if file.startswith("tests/privacy/") else 5.0

    found.sort(key=lambda name: reach[name]["seconds"] * far(name))
    chosen, spent = [], 0.0
    for name in found:
        spent += reach[name]["seconds"]
        if spent > most_seconds and chosen:
            break
        chosen.append(name)
    return chosen


def put_in_place(module: types.ModuleType, text: str) -> None:
    """Give the functions and constants of a loaded module what they are in another text of it.

    Functions keep their identity, so that whoever has imported one runs the new code.
    """
    changed = types.ModuleType(module.__name__)
    changed.__file__ = module.__file__
    kept = sys.modules[module.__name__]
    sys.modules[module.__name__] = changed
    try:
        exec(compile(text, module.__file__ or "", "exec"), changed.__dict__)
    finally:
        sys.modules[module.__name__] = kept
    for name, new in vars(changed).items():
        old = vars(module).get(name)
        if getattr(new, "__module__", None) == module.__name__ and isinstance(new, type):
            for key, value in vars(new).items():
                _replace(old, key, value)
        elif not name.startswith("__"):
            _replace(module, name, new)


def _replace(owner: Any, name: str, new: Any) -> None:
    old = vars(owner).get(name)
    if isinstance(new, types.FunctionType):
        if old is not None and old.__module__ == owner.__dict__.get("__module__", owner.__name__):
            if new.__code__.co_filename != "<string>":
                old.__code__ = new.__code__
            if new.__defaults__ and old.__defaults__:
                pairs = zip(new.__defaults__, old.__defaults__, strict=True)
                old.__defaults__ = tuple(one if _plain(one) else other for one, other in pairs)
            old.__kwdefaults__ = new.__kwdefaults__
    elif isinstance(new, property):
        old.fget.__code__ = new.fget.__code__
    elif isinstance(new, cached_property):
        old.func.__code__ = new.func.__code__
    elif isinstance(new, staticmethod | classmethod):
        old.__func__.__code__ = new.__func__.__code__
    elif hasattr(new, "cache_clear"):
        old.__wrapped__.__code__ = new.__wrapped__.__code__
        old.cache_clear()
    elif _plain(new) and repr(new) != repr(old):
        for module in [module for key, module in sys.modules.items() if _may_have_imported(key)]:
            if vars(module).get(name) is old and old is not None and owner.__name__ != name:
                setattr(module, name, new)
        setattr(owner, name, new)


def _may_have_imported(name: str) -> bool:
    return name.startswith(("dprepro", "test_", "support", "conftest"))


def _plain(value: Any) -> bool:
    """Whether a value is made of numbers, texts and truth values alone."""
    if isinstance(value, tuple):
        return all(_plain(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str)
