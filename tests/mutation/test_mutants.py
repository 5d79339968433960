"""The check that plants bugs: it makes those it says, sees what tests catch, and its explanations are of real ones."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from check import ROOT, SOURCES, explained, known_mutants, modules
from hunt import put_in_place
from mutants import mutants

SMALL = """
def shortest(paths, limit=3):
    \"\"\"Return 1 + 1.\"\"\"
    if limit < 0 and not paths:
        raise ValueError(f"{limit + 1}")
    return min(paths) * 2.5 if paths else -1
"""


def test_each_mutant_differs_in_one_place_and_texts_are_left_alone() -> None:
    found = [(mutant.before, mutant.after) for mutant in mutants(SMALL)]
    assert found == [
        ("3", "4"),
        ("limit < 0 and not paths", "limit < 0 or not paths"),
        ("limit < 0", "limit <= 0"),
        ("0", "1"),
        ("not paths", "paths"),
        ('raise ValueError(f"{limit + 1}")', "pass"),
        ("min(paths) * 2.5 if paths else -1", "min(paths) * 2.5"),
        ("min(paths) * 2.5 if paths else -1", "-1"),
        ("min(paths) * 2.5", "min(paths) / 2.5"),
        ("min", "max"),
        ("2.5", "5.0"),
        ("-1", "1"),
        ("1", "2"),
    ]


@pytest.mark.parametrize("module", modules())
def test_the_mutants_of_a_module_are_programs_with_names_of_their_own(module: str) -> None:
    source = (SOURCES / f"{module}.py").read_text(encoding="utf-8")
    found = list(mutants(source))
    assert len({mutant.name for mutant in found}) == len(found) > 0
    unchanged = ast.dump(ast.parse(source))
    for mutant in found[::29]:
        assert ast.dump(ast.parse(mutant.text)) != unchanged


def test_what_is_carried_out_at_import_is_noticed_where_it_has_an_effect() -> None:
    source = "LIMIT = 3\n\n\nclass Path:\n    steps: int = 2\n\n    def far(self):\n        return self.steps > LIMIT\n"
    lines = {mutant.before: sorted(mutant.lines) for mutant in mutants(source)}
    assert lines == {"3": [1, 8], "2": [4, 5, 6, 7, 8], "self.steps > LIMIT": [8]}
    source = "NEAR, FAR = 3, 7\n\n\ndef far(steps):\n    return steps > FAR\n"
    assert sorted(next(mutant.lines for mutant in mutants(source))) == [1, 5]
    source = "class Path:\n    steps: int = 2\n\n\ndef home():\n    return Path()\n"
    assert {mutant.before: sorted(mutant.lines) for mutant in mutants(source)} == {"2": [1, 2, 6]}
    source = "def far(\n    steps=2, *, by=5\n):\n    return steps\n"
    assert {mutant.before: sorted(mutant.lines) for mutant in mutants(source)} == {"2": [1, 2, 3, 4], "5": [1, 2, 3, 4]}


def test_every_explanation_is_of_a_mutant_that_exists() -> None:
    assert set(explained()) <= known_mutants()
    assert all(len(reason.split()) > 4 for reason in explained().values())


@pytest.mark.workflow
def test_a_mutant_that_tests_see_is_caught_and_one_that_they_do_not_see_is_told(tmp_path: Path) -> None:
    """The test knows a batch of two of two records: it cannot tell whether one of one would be refused."""
    test = tmp_path / "test_part.py"
    lines = ("from dprepro.privacy.events import QueryPart", "def test_it():", "    assert QueryPart(1.0, 2, 2).full")
    test.write_text("\n".join(lines), encoding="utf-8")
    check = [sys.executable, ROOT / "tests/mutation/check.py", "events", "--jobs", "1", "--out", tmp_path / "fates"]

    def only(pattern: str) -> subprocess.CompletedProcess[str]:
        command = [*check, "--only", pattern, "--tests", test]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    caught = only(r"^QueryPart\.full: self\.batch == self\.population")
    assert "1 mutants: 1 caught, 0 explained, 0 not." in caught.stdout
    assert caught.returncode == 0
    missed = only(r"^QueryPart\.__post_init__: 1 -> 2")
    assert "1 mutants: 0 caught, 0 explained, 1 not." in missed.stdout
    assert re.search(r"NOT CAUGHT events\.py:\d+ QueryPart\.__post_init__: 1 -> 2 \(1 tests, ", missed.stdout)
    assert missed.returncode == 1


def test_a_default_is_put_in_place_beside_one_that_is_no_plain_value() -> None:
    fields = "steps: list = field(default_factory=list)\n    long: bool = False"
    source = f"from dataclasses import dataclass, field\n@dataclass\nclass Path:\n    {fields}\n"
    module = types.ModuleType("path")
    module.__file__ = "path.py"
    sys.modules["path"] = module
    try:
        exec(compile(source, "path.py", "exec"), module.__dict__)
        put_in_place(module, source.replace("False", "True"))
        assert module.Path().long is True
        assert module.Path().steps == []
    finally:
        del sys.modules["path"]
