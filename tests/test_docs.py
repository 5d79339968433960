"""The examples in the documentation, run as they stand; docs/extending.md has a test in tests/workflow."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dprepro import datasets

ROOT = Path(__file__).parents[1]
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


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


def test_the_python_example_of_the_readme_prints_what_the_readme_says(tmp_path):
    (code,) = examples("README.md")
    promised = output_of("README.md", code)
    printed = run(code, ROOT / "src", tmp_path)
    for one, other in zip(printed.splitlines()[:4], promised.splitlines()[:4], strict=True):
        assert numbers(one) == pytest.approx(numbers(other), rel=1e-6)
        assert re.sub(r"[\d.]+", "", one) == re.sub(r"[\d.]+", "", other)


def tables(text: str) -> list[list[str]]:
    """The tables of a page, as lists of lines."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", prose, re.MULTILINE)]


def cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


@pytest.mark.parametrize("page", PAGES)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page):
    """A pipe inside a cell must be written with a backslash, also between backticks."""
    for table in tables((ROOT / page).read_text(encoding="utf-8")):
        assert [line for line in table if cells(line) != cells(table[0])] == []


def test_tables_are_found_and_a_bare_pipe_is_seen():
    broken = "| a | b |\n| --- | --- |\n| \\|x\\| | y |\n| |x| | y |\n"
    ((_, _, good, bad),) = tables(f"text\n\n{broken}\n```\n| no table |\n```\n")
    assert (cells(good), cells(bad)) == (2, 4)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_and_test_file_that_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = [name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))]
    # A name may end in * or ... for several.
    named = re.findall(r"`(?:[\w/]+\.py::)?(test_[\w.*]+)`", text)
    assert [name for name in named if not fnmatch.filter(known, name.replace("...", "*"))] == []
    assert [path for path in re.findall(r"(?<!/)tests/[\w/]+\.py", text) if not (ROOT / path).is_file()] == []


def test_the_data_page_lists_every_dataset():
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/data.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(listed) & set(datasets.names())) == datasets.names()


def keys(schema: object) -> set[str]:
    """All keys that a schema and the schemas within it name."""
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", {})).union(*map(keys, schema.values()))


def test_the_extending_page_explains_every_key_of_a_sweep():
    schema = json.loads((ROOT / "config/schema/sweeps.schema.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8").partition("### The keys of a sweep")[2]
    assert {"log_exponents", "delta_power", "tune"} <= keys(schema)
    missing = [key for key in keys(schema) if not re.search(rf"`{key}\b", page)]
    assert sorted(missing) == []
