"""The examples in the documentation, run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def examples(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def output_of(page: str, code: str) -> str:
    """The block that follows an example on its page."""
    _, _, rest = (ROOT / page).read_text(encoding="utf-8").partition(code + "```")
    return rest.partition("```\n")[2].partition("```")[0]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d{4,}", text)]


def run(code: str, sources: Path, cache: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(sources), "DPREPRO_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_algorithm_of_the_extending_page_runs_and_prints_what_the_page_says(tmp_path):
    sources = tmp_path / "src"
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    algorithm, trial, *_ = examples("docs/extending.md")
    (sources / "dprepro/algorithms/averaged_gd.py").write_text(algorithm, encoding="utf-8")
    printed = run(trial, sources, tmp_path)
    promised = output_of("docs/extending.md", trial)
    assert numbers(printed) == pytest.approx(numbers(promised), rel=1e-6)
    assert printed.split()[-1] == promised.split()[-1] == "certified"


def test_the_python_example_of_the_readme_prints_what_the_readme_says(tmp_path):
    (code,) = examples("README.md")
    promised = output_of("README.md", code)
    printed = run(code, ROOT / "src", tmp_path)
    for one, other in zip(printed.splitlines()[:4], promised.splitlines()[:4], strict=True):
        assert numbers(one) == pytest.approx(numbers(other), rel=1e-6)
        assert re.sub(r"[\d.]+", "", one) == re.sub(r"[\d.]+", "", other)
