"""Where results come from: the digest follows what sources say and do, and the commit is never a wrong one."""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import dprepro
from dprepro import provenance
from dprepro.workflow import source_modules

PACKAGE = Path(dprepro.__file__).parent

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Make an imaginary package of a few modules and return the function that writes one of them."""
    package = tmp_path / "dprepro"
    monkeypatch.setattr(provenance, "PACKAGE", package)
    # Files written in quick succession may bear the same time; an editor is never that fast.
    stamps = iter(range(1_000_000_000, 2_000_000_000))

    def write(name: str, text: str) -> None:
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        stamp = next(stamps)
        os.utime(path, (stamp, stamp))

    write("__init__.py", "")
    write("first.py", "from dprepro.second import VALUE\n\nRESULT = VALUE + 1\n")
    write("second.py", "VALUE = 2\n")
    write("unrelated.py", "VALUE = 3\n")
    return write


def found(*modules: str) -> set[str]:
    return {path.relative_to(provenance.PACKAGE).as_posix() for path in provenance.sources(modules)}


@pytest.mark.parametrize(
    "text",
    [
        "VALUE = 2  # two\n",
        "# a remark\n\n\nVALUE = 2\n",
        "VALUE = (2)\n",
        "VALUE   =   2",
        "VALUE = 0x2\n",
        "VALUE = \\\n    2\n",
    ],
)
def test_comments_and_layout_do_not_change_the_digest(text: str, write: Write) -> None:
    before = provenance.digest(["dprepro.first"])
    write("second.py", text)
    assert provenance.digest(["dprepro.first"]) == before


@pytest.mark.parametrize(
    "text",
    ["VALUE = 3\n", "VALUE = 2.0\n", "VALUE = -2\n", "VALUE = 2\nVALUE += 1\n", "OTHER = 2\n", "VALUE: int = 2\n"],
)
def test_what_the_code_says_changes_the_digest(text: str, write: Write) -> None:
    before = provenance.digest(["dprepro.first"])
    write("second.py", text)
    assert provenance.digest(["dprepro.first"]) != before


def test_every_byte_of_a_cuda_source_beside_a_module_changes_the_digest(write: Write) -> None:
    digests = {provenance.digest(["dprepro.first"])}
    for text in ("int f();", "int f(); // a remark"):
        write("second.cuh", text)
        digests.add(provenance.digest(["dprepro.first"]))
    assert len(digests) == 3
    write("alone.cuh", "int g();")
    assert provenance.digest(["dprepro.first"]) in digests


def test_a_change_elsewhere_does_not_change_the_digest(write: Write) -> None:
    before = provenance.digest(["dprepro.first"])
    write("unrelated.py", "VALUE = 4\n")
    write("third.py", "from dprepro.first import RESULT\n")
    assert provenance.digest(["dprepro.first"]) == before


def test_moving_code_to_another_module_changes_the_digest(write: Write) -> None:
    write("second.py", "VALUE = 2\n")
    write("alike.py", "VALUE = 2\n")
    assert provenance.digest(["dprepro.second"]) != provenance.digest(["dprepro.alike"])


def test_the_digest_does_not_depend_on_the_order_of_the_modules(write: Write) -> None:
    both = ["dprepro.first", "dprepro.unrelated"]
    assert provenance.digest(both) == provenance.digest(both[::-1]) != provenance.digest(both[:1])


@pytest.mark.parametrize(
    "line",
    [
        "import dprepro.folder.inner",
        "import dprepro.folder.inner as short",
        "from dprepro.folder import inner",
        "from dprepro.folder.inner import thing",
        "def late():\n    from dprepro.folder.inner import thing",
        "class K:\n    def late(self):\n        import dprepro.folder.inner",
        "try:\n    import dprepro.folder.inner\nexcept ImportError:\n    pass",
        "if True:\n    import dprepro.folder.inner",
    ],
)
def test_every_way_to_import_is_followed(line: str, write: Write) -> None:
    write("folder/__init__.py", "")
    write("folder/inner.py", "from dprepro.second import VALUE as thing\n")
    write("start.py", f"{line}\n")
    assert {"start.py", "folder/inner.py", "second.py"} <= found("dprepro.start")
    assert "unrelated.py" not in found("dprepro.start")


@pytest.mark.parametrize(
    "head",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:",
        "import typing\nif typing.TYPE_CHECKING:",
    ],
)
def test_imports_for_type_checkers_do_not_count_but_their_alternative_does(head: str, write: Write) -> None:
    write("start.py", f"{head}\n    import dprepro.unrelated\nelse:\n    import dprepro.second\n")
    assert "unrelated.py" not in found("dprepro.start")
    assert "second.py" in found("dprepro.start")


def test_circles_and_foreign_modules_are_no_trouble(write: Write) -> None:
    write("second.py", "import dprepro.first\nimport json\nimport no_such_module\nVALUE = 2\n")
    assert {"first.py", "second.py"} <= found("dprepro.first", "numpy", "no_such_module", "dprepro.missing")


def test_a_run_of_one_algorithm_does_not_depend_on_another_nor_on_figures() -> None:
    names = found(*source_modules("run", algorithm="dp_svrg"))
    assert {"algorithms/dp_svrg.py", "algorithms/_svrg.py", "algorithms/base.py", "run.py", "streams.py"} <= names
    assert {"problems/erm.py", "losses.py", "privacy/mechanisms.py", "stages/run.py"} <= names
    assert not {"algorithms/dp_gd.py", "algorithms/dp_svrg_pp.py"} & names
    assert not {name for name in names if name.startswith(("figures/", "tables/", "analysis/"))}


@pytest.mark.parametrize("algorithm", ["dp_gd", "dp_svrg", "dp_svrg_pp"])
def test_certificates_depend_on_the_algorithm_and_the_accountant(algorithm: str) -> None:
    names = found(*source_modules("certify", algorithm=algorithm))
    assert {f"algorithms/{algorithm}.py", "privacy/accounting.py", "privacy/certificate.py"} <= names
    assert "run.py" not in names, "a change of the runner does not change a plan"


def test_a_dataset_depends_on_its_own_module_and_on_no_algorithm() -> None:
    names = found(*source_modules("dataset", dataset="covertype"))
    assert {"datasets/covertype.py", "datasets/preparation.py", "datasets/sources.py"} <= names
    assert "datasets/adult.py" not in names
    assert not {name for name in names if name.startswith(("algorithms/", "problems/", "privacy/"))}


def test_a_figure_does_not_depend_on_algorithms() -> None:
    names = found(*source_modules("figure", target="wyx17_fig1", kind="curves"))
    assert {"figures/curves.py", "figures/style.py", "origin.py"} <= names
    assert "figures/sweeps.py" not in names
    assert not {name for name in names if name.startswith(("algorithms/", "problems/", "privacy/"))}


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="no stage 'fry'"):
        source_modules("fry")


STAGES = ("dataset", "certify", "run", "optimum", "optima", "sweep", "collect", "figure", "table")
POINT: dict[str, Any] = {
    "axis": "n",
    "value": 60,
    "epsilon": 1.0,
    "dataset": {"name": "synthetic_logistic", "rows": 60, "seed": 0, "parameters": {"features": 3}},
    "loss": "logistic",
    "regularizer": {"l2": 0.1},
    "constraint": None,
    "minimum": None,
    "seed": 1,
    "tuning_seed": 2,
}
JOB: dict[str, Any] = {
    "paper": "WYX17",
    "title": "A trial",
    "experiment": "wyx17_fig1",
    "job": "trial",
    "entry": "dp-gd",
    "label": "DP-GD",
    "algorithm": "dp_svrg",
    "parameters": {"T": 2, "m": 3},
    "variant": "published",
    "epsilon": 1,
    "delta": 0.001,
    "replicates": 2,
    "tile": 64,
    "dtype": "float64",
    "device": "cpu",
    "seed": 5,
    "loss": "logistic",
    "regularizer": {"l2": 0.1},
    "constraint": None,
    "dataset": "data",
}


SWEEP = JOB | {
    "candidates": [{"T": 2, "m": 3}],
    "problem": "p",
    "variant": "certified",
    "metric": "optimality gap",
    "points": [POINT],
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Run every stage on a small job in a process of its own; return the modules each one had loaded."""
    folder = tmp_path_factory.mktemp("stages")
    dataset = json.dumps({"name": "synthetic_logistic", "rows": 60, "parameters": {"features": 3}})
    commands = {
        "dataset": ["--spec", dataset, "--out", "data.npz"],
        "certify": ["--spec", json.dumps(JOB), "--facts", "data.json", "--out", "plan.json"],
        "run": ["--plan", "plan.json", "--data", "data.npz", "--out", "run.npz"],
        "optimum": ["--spec", json.dumps(JOB), "--data", "data.npz", "--out", "optimum/data.npz"],
        "optima": ["--spec", json.dumps({"points": [POINT]}), "--out", "optima.json"],
        "sweep": ["--spec", json.dumps(SWEEP), "--optima", "optima.json", "--out", "sweep.npz", "--sources", "x"],
        "collect": ["--runs", "run.npz", "--optima", "optimum/data.npz", "--out", "table.parquet"],
        "figure": ["wyx17_fig1", "--data", "table.parquet", "--out", "figure.png"],
        "table": ["wyx17_fig1", "--data", "table.parquet", "--out", "table.csv"],
    }
    program = (
        "import json, sys; from dprepro.cli import main; code = main(sys.argv[1:]); "
        "print(json.dumps(list(sys.modules))); sys.exit(code)"
    )
    modules = {}
    for stage in STAGES:
        command = [sys.executable, "-c", program, stage, *commands[stage]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        modules[stage] = set(json.loads(done.stdout))
    return modules


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_runs_code_that_its_digest_does_not_cover(stage: str, loaded: dict[str, set[str]]) -> None:
    choice = {
        "dataset": {"dataset": "synthetic_logistic"},
        "certify": {"algorithm": "dp_svrg"},
        "run": {"algorithm": "dp_svrg"},
        "optima": {"dataset": "synthetic_logistic"},
        "sweep": {"algorithm": "dp_svrg", "dataset": "synthetic_logistic"},
        "figure": {"target": "wyx17_fig1", "kind": "curves"},
        "table": {"target": "wyx17_fig1", "kind": "curves"},
    }
    covered = found(*source_modules(stage, **choice.get(stage, {})))
    # The command line and the lazy top of the package only pass the call on. Listing datasets loads them all.
    passed_on = {"__init__.py", "cli.py"} | {p.relative_to(PACKAGE).as_posix() for p in PACKAGE.glob("datasets/*.py")}
    used = {module for module in loaded[stage] if module.split(".")[0] == "dprepro"}
    executed = {
        path.relative_to(PACKAGE).as_posix()
        for module in used
        if (path := provenance._module_file(module)) and _has_code(path)
    }
    assert executed - covered - passed_on == set()


def _has_code(path: Path) -> bool:
    """Tell whether a file holds more than a docstring and future imports."""
    return any(
        not isinstance(node, ast.Expr) and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        for node in ast.parse(path.read_text()).body
    )


def test_a_run_starts_without_scipy_pandas_and_matplotlib(loaded: dict[str, set[str]]) -> None:
    heavy = {"scipy", "pandas", "matplotlib", "pyarrow", "sklearn", "seaborn", "dp_accounting", "yaml"}
    assert "numpy" in loaded["run"]
    assert heavy & loaded["run"] == set()


@pytest.fixture
def no_outer_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the package in it, committed."""
    package = tmp_path / "src" / "dprepro"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    monkeypatch.setattr(provenance, "PACKAGE", package)
    return tmp_path


def test_in_a_checkout_the_commit_is_named_and_changes_are_noticed(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert provenance.commit() == {"commit": head, "modified": False}
    (checkout / "notes.txt").write_text("untracked files are no change of the sources\n")
    assert provenance.commit() == {"commit": head, "modified": False}
    (checkout / "src/dprepro/__init__.py").write_text("VALUE = 2\n")
    assert provenance.commit() == {"commit": head, "modified": True}


@pytest.mark.usefixtures("no_outer_repository")
def test_outside_git_the_commit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    found = provenance.commit()
    assert found["commit"].endswith("(not a git checkout)")
    assert not found["modified"]


@pytest.mark.usefixtures("checkout")
def test_without_git_installed_the_commit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.commit()["commit"].endswith("(not a git checkout)")


def test_a_package_installed_inside_a_foreign_repository_does_not_claim_its_commit(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A virtual environment inside somebody's own project, which git ignores.
    (checkout / ".gitignore").write_text(".venv\n")
    installed = checkout / ".venv" / "lib" / "site-packages" / "dprepro"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(provenance, "PACKAGE", installed)
    assert provenance.commit()["commit"].endswith("(not a git checkout)")


def test_the_machine_is_the_one_this_runs_on() -> None:
    facts = provenance.machine()
    assert facts["python"] == platform.python_version()
    assert facts["numpy"] == np.__version__
    assert facts["dprepro"] == dprepro.__version__
    assert facts["cores"] == os.cpu_count()
    assert all(facts[key] for key in ("blas", "system", "processor", "cpu_kernels"))
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert facts["cpu_kernels"].split()[0] in {pool["architecture"] for pool in pools}
