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
from documentation import ROOT, WRITTEN, blocks, examples, named_commands, schema_keys
from reference import verbs

from dprepro import datasets
from dprepro.cli import build_parser
from dprepro.experiments import CONFIG, experiment_names

PAGES = WRITTEN


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


def test_the_extending_page_explains_every_key_of_a_sweep():
    schema = json.loads((ROOT / "config/schema/sweeps.schema.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8").partition("### The keys of a sweep")[2]
    assert {"log_exponents", "delta_power", "tune"} <= schema_keys(schema)
    missing = [key for key in schema_keys(schema) if not re.search(rf"`{key}\b", page)]
    assert sorted(missing) == []


def check_command(words: list[str], page: str = "docs/index.md") -> None:
    """Raise if a command names a verb, an option, a target or a file that does not exist; nothing is run.

    A page may name experiments of its own, if it says which file they stand in.
    """
    program, *rest = words
    if program == "dprepro":
        # A verb by itself, or with a call for help, need not be a whole command.
        assert rest[0] in verbs()
        assert rest[1:] in ([], ["--help"]) or build_parser().parse_args(rest)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        installed = re.findall(r"^\$\((\w+)\)/(\.installed\S*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        folders = {"VENV": ".venv", "PEERS": ".venv-peers"}
        targets += [f"{folders[where]}/{file}" for where, file in installed]
        assert {word for word in rest if "=" not in word} <= set(targets), words
    else:
        files = [word for word in rest if "/" in word]
        assert [file for file in files if not (ROOT / file).exists()] == [], words
        own = re.findall(r"config/experiments/(\w+)\.yaml", (ROOT / page).read_text(encoding="utf-8"))
        known = {*experiment_names(ROOT / CONFIG), *own, "figures", "tables", "findings", "privacy", "audit", "report"}
        names = {word for word in rest if re.fullmatch(r"[a-z]+\d*(_\w+)?", word)} - {"none", "dprepro", "progress"}
        assert names <= known, words


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_in_its_text_exists(page):
    for words in named_commands(page):
        check_command(words, page)


def test_commands_that_do_not_exist_are_seen():
    for command in ("make coffee", "snakemake --cores 2 wyx17_fig9", "snakemake --configfile config/none.yaml"):
        with pytest.raises(AssertionError):
            check_command(command.split())
    with pytest.raises(SystemExit):
        check_command(["dprepro", "list", "cakes"])
    assert ["dprepro", "selftest"] in named_commands("docs/index.md")
    assert sum(len(named_commands(page)) for page in PAGES) > 30


def test_every_page_with_blocks_of_the_shell_is_followed_by_a_test():
    """Blocks without a language are looked at by nobody: the tutorial and the how-to pages have none."""
    followed = [page for page in PAGES if page == "docs/tutorial.md" or page.startswith("docs/how-to/")]
    assert len(followed) == 7
    assert {block.language for page in followed for block in blocks(page)} == {"sh", "python", "yaml", "text"}
