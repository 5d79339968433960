"""A warp as 32 threads under ThreadSanitizer: no race, and each barrier of the source is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from host import HERE, compiled, source
from support import require

BARRIER = re.compile(r"__syncwarp\(\);")
NO_ROOM = "unexpected memory mapping"
RACE = "WARNING: ThreadSanitizer: data race"


def sanitized(folder: Path, text: str, real: str) -> tuple[int, str]:
    """Run all kernels of a warp under ThreadSanitizer; return the exit code and what was said."""
    program = compiled(folder, real=real, lanes=32, text=text, main=HERE / "races.cpp", flags=("-fsanitize=thread",))
    done = run([str(program)])
    if NO_ROOM in done.stderr and shutil.which("setarch"):
        # It wants its shadow memory where a randomised address space has put something else.
        done = run(["setarch", "--addr-no-randomize", str(program)])
    require("gxx", NO_ROOM not in done.stderr, "ThreadSanitizer does not run on this system")
    return done.returncode, done.stdout + done.stderr


def run(command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("real", ["float", "double"])
def test_a_warp_has_no_race(tmp_path, real):
    code, said = sanitized(tmp_path, source(), real)
    assert code == 0, said
    assert RACE not in said
    assert "total" in said, "it ran to its end"


@pytest.mark.parametrize("number", range(len(BARRIER.findall(source()))))
def test_without_any_one_of_its_barriers_a_race_is_found(tmp_path, number):
    """The negative control: the sanitizer sees what a missing barrier does, and no barrier is there for nothing."""
    place = list(BARRIER.finditer(source()))[number]
    mutilated = source()[: place.start()] + source()[place.end() :]
    code, said = sanitized(tmp_path, mutilated, "float")
    assert RACE in said
    assert code != 0
