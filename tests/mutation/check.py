"""Plant small bugs in the privacy package, one at a time, and see whether the tests catch them: `make mutants`.

A mutant that no test catches must be explained in survivors/MODULE.yaml; the check fails for one that is not, and for
an explanation that is no longer needed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from hunt import Hunt  # noqa: E402
from mutants import Mutant, mutants  # noqa: E402

SURVIVORS = HERE / "survivors"
SOURCES = ROOT / "src" / "dprepro" / "privacy"
# What has a part in the privacy package and runs in one process.
TESTS = (
    "tests/privacy",
    "tests/algorithms",
    "tests/stages",
    "tests/problems",
    "tests/test_cli.py",
    "tests/test_extensions.py",
    "tests/test_selftest.py",
    "tests/test_api.py",
    "tests/kernels/test_engine.py",
)
NOT_HERE = "not workflow and not machines and not slurm and not gpu and not chromium"


def modules() -> list[str]:
    """Return the names of the modules that are mutated."""
    return sorted(path.stem for path in SOURCES.glob("*.py") if path.stem != "__init__")


def explained() -> dict[str, str]:
    """Return the reasons of all explained survivors, by `module name`."""
    return {
        f"{path.stem} {name}": entry["reason"]
        for path in sorted(SURVIVORS.glob("*.yaml"))
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
        for name in entry["mutants"]
    }


def known_mutants() -> set[str]:
    """Return the names of all mutants, as `module name`."""
    return {
        f"{module} {mutant.name}"
        for module in modules()
        for mutant in mutants((SOURCES / f"{module}.py").read_text(encoding="utf-8"))
    }


def main() -> int:
    """Run the check and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="modules of the privacy package; all unless given")
    parser.add_argument("--only", default="", help="a regular expression for the names of mutants")
    parser.add_argument("--fates", type=Path, help="a file of an earlier call: try again what survived in it")
    parser.add_argument("--sample", type=float, default=1.0, help="the share of the mutants that is tried")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants are tried at one time")
    parser.add_argument("--seconds", type=float, default=10.0, help="for how long a mutant meets tests")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "mutants.jsonl", help="the fate of each mutant")
    parser.add_argument(
        "--reach", type=Path, help="a file that keeps which lines each test runs, for a next call on the same sources"
    )
    parser.add_argument("--tests", nargs="*", default=TESTS, help="test files")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    hunt = Hunt(
        ROOT,
        given.modules or modules(),
        _choice(given),
        given.jobs,
        given.seconds,
        given.out,
        given.reach,
    )
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", NOT_HERE]
    code = pytest.main([*options, "--rootdir", str(ROOT), *given.tests], plugins=[hunt])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return 1
    return _report(hunt)


def _choice(given: argparse.Namespace) -> Callable[[str, Mutant], bool]:
    chance, pattern = random.Random(given.seed), re.compile(given.only)
    again = None
    if given.fates:
        fates = [json.loads(line) for line in given.fates.read_text(encoding="utf-8").splitlines()]
        again = {(fate["module"], fate["name"]) for fate in fates if not fate["killer"]}

    def chosen(module: str, mutant: Mutant) -> bool:
        if again is not None and (module, mutant.name) not in again:
            return False
        return bool(pattern.search(mutant.name)) and chance.random() < given.sample

    return chosen


def _report(hunt: Hunt) -> int:
    reasons = explained()
    survivors = {f"{fate.module} {fate.name}": fate for fate in hunt.fates if not fate.killer}
    caught = {f"{fate.module} {fate.name}": fate for fate in hunt.fates if fate.killer}
    new = [fate for name, fate in survivors.items() if name not in reasons]
    stale = [fate for name, fate in caught.items() if name in reasons]
    print(f"\n{len(hunt.fates)} mutants: {len(caught)} caught, {len(survivors) - len(new)} explained, {len(new)} not.")
    for fate in new:
        print(f"NOT CAUGHT {fate.module}.py:{fate.line} {fate.name} ({fate.tests} tests, {fate.seconds:.0f} s)")
    for fate in stale:
        print(f"CAUGHT, but explained: {fate.module}.py:{fate.line} {fate.name} (by {fate.killer})")
    return 1 if new or stale else 0


if __name__ == "__main__":
    sys.exit(main())
