"""Files of a user's own join the registries, are refused with a sentence where they will not do, and are recorded."""

from __future__ import annotations

import hashlib
import json
import math
import os
import py_compile
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Run, assert_one_sentence, make_problem, rows

import dprepro
from dprepro import algorithms, datasets, extensions, losses, provenance
from dprepro.algorithms.base import Setting
from dprepro.arrays import get_backend, strict_backend
from dprepro.errors import LedgerMismatch, RunFailed, UserError
from dprepro.experiments import RULES, TARGETS, audit_jobs, experiment_files, load_config, load_experiments, read_yaml
from dprepro.geometry import RealSpace, get_set
from dprepro.losses import Logistic, get_loss
from dprepro.new import create
from dprepro.privacy.audit import audit
from dprepro.privacy.certificate import certify
from dprepro.problems.erm import ProblemSpec
from dprepro.regularizers import Regularizer
from dprepro.run import execute
from dprepro.workflow import code, own_files, source_modules

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config"
PRIVACY = {"epsilon": 1.0, "delta": 1e-5}
Write = Callable[..., Path]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An extension folder that is in use for one test, with the algorithm, dataset and loss of `dprepro new`."""
    monkeypatch.chdir(tmp_path)
    folder = Path("mine")
    for kind in ("algorithm", "dataset", "loss", "experiment"):
        create(kind, f"own_{kind}", folder)
    monkeypatch.setenv(extensions.VARIABLE, str(folder))
    return tmp_path / "mine"


@pytest.fixture
def edit(mine: Path) -> Write:
    """Write a file of the folder as a changed copy of that of `dprepro new`, with names as they should be."""

    def edit(kind: str, name: str, *changes: tuple[str, str]) -> Path:
        text = (mine / kind / f"own_{kind[:-1] if kind != 'losses' else 'loss'}.py").read_text()
        text = re.sub(r"own_(algorithm|dataset|loss)", name, text)
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        path = mine / kind / f"{name}.py"
        path.write_text(text)
        return path

    return edit


# What joins.


def test_an_own_algorithm_is_listed_marked_planned_wrapped_and_audited_as_any_other(mine: Path, run: Run) -> None:
    assert set(algorithms.names()) - set(algorithms.built_in()) == {"own_algorithm"}
    (line,) = [line for line in run("list", "algorithms").out.splitlines() if line.startswith("own_algorithm ")]
    assert line.endswith("(own: mine/algorithms/own_algorithm.py)")
    setting = ("--n", 1000, "--d", 50, "--epsilon", 1, "--delta", 1e-5, "--json")
    for name, letters in (("own_algorithm", ()), ("jl_own_algorithm", ("--set", "k=9", "--set", "clip=rows"))):
        record = json.loads(run("account", name, *setting, *letters).out)
        assert record["verdict"].startswith("certified")
        assert record["epsilon_accounted"] <= 1.0
    row = json.loads(run("audit", "own_algorithm", "--replicates", 1000, "--json").out)
    assert 0.0 <= row["epsilon_audited"] <= row["epsilon_accounted"] <= 1.0
    assert "own_algorithm" in audit_jobs(load_config([], CONFIG))


def test_own_loss_and_algorithm_solve_a_problem_and_are_told_with_their_bytes(mine: Path) -> None:
    X, y = rows(300, 4)
    solution = dprepro.solve("own_algorithm", X, y, loss="own_loss", epsilon=math.inf, delta=1e-5, T=3000)
    gradient = np.tanh(X @ solution.w[0] - y) @ X / len(y)
    assert np.linalg.norm(gradient) < 1e-5
    files = ("algorithms/own_algorithm.py", "losses/own_loss.py")
    assert solution.provenance["extensions"] == [
        {"file": file, "sha256": hashlib.sha256((mine / file).read_bytes()).hexdigest()} for file in files
    ]


def test_a_file_that_changed_since_it_was_imported_is_not_run_as_the_new_one(mine: Path) -> None:
    X, y = rows(100, 4)
    dprepro.solve("own_algorithm", X, y, **PRIVACY, T=2)
    path = mine / "algorithms/own_algorithm.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"own_algorithm\.py has changed since it was imported: start Python anew"):
        dprepro.solve("own_algorithm", X, y, **PRIVACY, T=2)


@pytest.mark.parametrize("where", ["at the top", "in a function"])
def test_a_helper_that_changed_since_it_was_imported_is_noticed_whenever_it_was_imported(
    where: str, edit: Write, mine: Path
) -> None:
    helper = mine / "algorithms/_steps.py"
    helper.write_text("STEPS = 7\n")
    before = "import math\n" if where == "at the top" else "        n = problem.n\n"
    indent = " " * (len(before) - len(before.lstrip()))
    edit("algorithms", "helped", (before, f"{before}{indent}from ._steps import STEPS\n"), ("100)", "STEPS)"))
    X, y = rows(100, 4)
    assert dprepro.solve("helped", X, y, **PRIVACY).plan.letters()["T"] == 7
    helper.write_text("STEPS = 8\n")
    with pytest.raises(UserError, match=r"_steps\.py has changed since it was imported: start Python anew"):
        dprepro.solve("helped", X, y, **PRIVACY)


def test_what_is_imported_is_the_file_and_not_what_was_compiled_of_an_earlier_version(edit: Write, mine: Path) -> None:
    helper = mine / "algorithms/_steps.py"
    helper.write_text("STEPS = 7\n")
    py_compile.compile(str(helper))
    stamp = helper.stat().st_mtime_ns
    helper.write_text("STEPS = 8\n")
    os.utime(helper, ns=(stamp, stamp))  # saved twice within the resolution of the clock
    edit("algorithms", "helped", ("import math\n", "import math\nfrom ._steps import STEPS\n"), ("100)", "STEPS)"))
    spec = ProblemSpec(100, 3, Logistic(), Regularizer(), RealSpace())
    assert algorithms.get_algorithm("helped").plan(Setting(spec, 1.0, 1e-5)).letters()["T"] == 8


def test_a_package_of_helpers_counts_too(mine: Path) -> None:
    helper = mine / "algorithms/_lib/__init__.py"
    helper.parent.mkdir()
    helper.write_text('"""A helper."""\nSCALE = 1.0\n', encoding="utf-8")
    path = mine / "algorithms/own_algorithm.py"
    path.write_text(
        path.read_text(encoding="utf-8").replace("import math\n", "import math\nfrom ._lib import SCALE\n", 1)
    )
    X, y = rows(100, 4)
    told = dprepro.solve("own_algorithm", X, y, **PRIVACY, T=2).provenance["extensions"]
    assert [entry["file"] for entry in told] == ["algorithms/_lib/__init__.py", "algorithms/own_algorithm.py"]


def test_without_own_files_results_say_nothing_of_any(mine: Path) -> None:
    X, y = rows(100, 4)
    assert "extensions" not in dprepro.solve("dp_gd", X, y, **PRIVACY, T=2).provenance


def test_an_own_loss_is_listed_and_marked_with_the_words_of_its_class_if_it_has_any(
    edit: Write, mine: Path, run: Run
) -> None:
    said = '    """log cosh(t - y) for t = <w, x>: convex and smooth. G = row norm, L = row norm^2."""\n'
    edit("losses", "silent", (said, ""))
    lines = {line.split()[0]: line for line in run("list", "losses").out.splitlines()}
    assert set(lines) - {"moreau:BETA:LOSS"} == {*losses.built_in(), "own_loss", "silent"}
    assert " convex, smooth; log cosh(t - y) for t = <w, x>" in lines["own_loss"]
    assert lines["own_loss"].endswith("(own: mine/losses/own_loss.py)")
    assert lines["silent"].endswith(" convex, smooth (own: mine/losses/silent.py)")


def test_own_dataset_and_experiment_are_listed_and_marked(mine: Path, run: Run, monkeypatch: Any) -> None:
    assert datasets.load("own_dataset", rows=50, spread=0.1).X.shape == (50, 3)
    assert "(own: mine/datasets/own_dataset.py)" in run("list", "datasets").out
    monkeypatch.setenv(extensions.VARIABLE, str(mine))
    monkeypatch.chdir(ROOT)
    (mine / "experiments/lost.yaml").symlink_to("nowhere.yaml")
    listed = run("list", "experiments")
    assert listed.code == 0
    assert f"(own: {mine}/experiments/own_experiment.yaml)" in listed.out
    assert any("lost " in line and "not available: The configuration file" in line for line in listed.out.splitlines())
    assert run("list", "targets").out.splitlines().count("own_experiment") == 1


def test_a_configuration_brings_its_folders_into_use_for_this_process_and_what_it_starts(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(extensions.VARIABLE, "")
    config = {**load_config([], CONFIG), "extensions": ["mine"], "experiments": ["own_experiment"]}
    config["overrides"] = {"own_experiment": {"loss": "own_loss", "datasets": [{"name": "own_dataset"}]}}
    (experiment,) = load_experiments(config, CONFIG)
    assert [job.dataset for job in experiment.jobs()] == ["own_dataset-all-seed0"] * 4
    assert os.environ[extensions.VARIABLE] == str(mine), "absolute, since jobs may run elsewhere"


@pytest.mark.parametrize(
    ("key", "text"), [("title", "two\nlines"), ("title", "of {T}"), ("title", "x" * 121), ("paper", "{}")], ids=str
)
def test_the_texts_of_an_own_experiment_are_held_to_the_same_rules(key: str, text: str, mine: Path) -> None:
    path = mine / "experiments/own_experiment.yaml"
    path.write_text(json.dumps(read_yaml(path) | {key: text}))
    config = {**load_config([], CONFIG), "extensions": ["mine"], "experiments": ["own_experiment"]}
    with pytest.raises(UserError, match="a text of 1 to 120 characters on one line, without braces") as caught:
        load_experiments(config, CONFIG)
    assert str(caught.value).startswith(f"In mine/experiments/own_experiment.yaml: {key} is ")
    assert_one_sentence(str(caught.value))


def nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("unplugged.py")


def folder_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


def lacking_data(path: Path) -> None:
    path.write_text("open('/unplugged/data.csv')\n" + path.read_text().replace("from __future__", "# "))


def lacking_a_helper(path: Path) -> None:
    path.write_text("from ._unplugged import helper\n" + path.read_text().replace("from __future__", "# "))


LOST = [nowhere, folder_in_its_place, lacking_data, lacking_a_helper]


@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("kind", ["algorithms", "datasets", "losses"])
def test_a_file_that_is_not_available_fails_what_needs_it_and_nothing_else(
    kind: str, lose: Callable[[Path], None], edit: Write, run: Run
) -> None:
    for each in ("algorithms", "datasets", "losses"):
        edit(each, "late")
    path = edit(kind, "late")
    lose(path)
    ask = {"algorithms": algorithms.get_algorithm, "datasets": datasets.load, "losses": get_loss}[kind]
    with pytest.raises(extensions.Unavailable, match=rf"The file mine/{kind}/late\.py cannot be") as caught:
        ask("late")
    assert_one_sentence(str(caught.value))
    # The workflow plans its jobs, each with the digest of its sources, and leaves it to them to fail.
    (experiment,) = load_experiments(config_with("late"), CONFIG)
    jobs = experiment.jobs()
    assert {job.dataset for job in jobs} == {"late-all-seed0"}
    assert code("certify", algorithm="late", loss="late")
    assert code("dataset", dataset="late")
    assert "late" in audit_jobs({**config_with("late"), "audit": {"settings": [], "delta": 0.1, "replicates": 200}})
    assert datasets.load("synthetic_logistic", rows=9).X.shape[0] == 9
    assert get_loss("own_loss").name == "own_loss"
    outcome = run("list", kind)
    assert outcome.code == 0
    assert f"not available: {caught.value}" in outcome.out


def test_a_file_is_used_as_soon_as_it_is_available_again(edit: Write) -> None:
    path = edit("datasets", "late")
    nowhere(path)
    assert datasets.unavailable() == {"late": path}
    without = code.__wrapped__("dataset", dataset="late")
    path.unlink()
    edit("datasets", "late")
    assert datasets.unavailable() == {}
    assert datasets.load("late", rows=20).X.shape == (20, 3)
    assert code.__wrapped__("dataset", dataset="late") != without, "its jobs run again"


def test_a_lost_file_does_not_take_the_place_of_a_built_in_dataset(mine: Path) -> None:
    (mine / "datasets/adult.py").symlink_to("unplugged.py")
    assert "adult" not in datasets.own()
    assert datasets.info("adult").rows


def test_where_it_cannot_be_known_which_file_has_a_dataset_the_lost_ones_are_named(edit: Write) -> None:
    nowhere(edit("datasets", "late"))
    edit("algorithms", "other")
    edit("losses", "other")
    with pytest.raises(UserError, match=r"unknown dataset 'other' \(it may be in mine/datasets/late\.py, which cannot"):
        load_experiments(config_with("other"), CONFIG)


def test_folders_of_configuration_and_variable_add_up_and_count_once(mine: Path, tmp_path: Path) -> None:
    create("algorithm", "other", tmp_path / "theirs")
    extensions.use(["theirs", "mine", tmp_path / "theirs"])
    assert extensions.folders() == (tmp_path / "theirs", mine)
    assert set(algorithms.own()) == {"other", "own_algorithm"}


def config_with(name: str) -> dict[str, Any]:
    """A configuration whose own experiment names an algorithm, a loss and a dataset, all of one name."""
    config = {**load_config([], CONFIG), "experiments": ["own_experiment"]}
    methods = {"own": {"label": "own", "algorithm": name}}
    choice = {"loss": name, "datasets": [{"name": name}], "algorithms": methods}
    return {**config, "overrides": {"own_experiment": choice}}


def test_files_that_are_added_while_python_runs_are_seen_and_those_taken_away_are_gone(edit: Write, mine: Path) -> None:
    late = {kind: mine / kind / "late.py" for kind in ("algorithms", "losses", "datasets")}
    for ask in (algorithms.get_algorithm, get_loss, datasets.load):
        with pytest.raises(UserError, match=r"Unknown|no dataset"):
            ask("late")
    with pytest.raises(UserError):
        load_experiments(config_with("late"), CONFIG)
    for kind in late:
        edit(kind, "late")
    assert datasets.load("late", rows=20).X.shape == (20, 3)
    assert [algorithms.get_algorithm("late").name, get_loss("late").name] == ["late", "late"]
    (experiment,) = load_experiments(config_with("late"), CONFIG)
    assert {job.dataset for job in experiment.jobs()} == {"late-all-seed0"}
    for path in late.values():
        path.unlink()
    for names in (algorithms.names, losses.names, datasets.names):
        assert "late" not in names()
    with pytest.raises(UserError):
        load_experiments(config_with("late"), CONFIG)


def test_own_datasets_are_read_once_however_often_they_are_asked_for(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    original = extensions.load
    monkeypatch.setattr(extensions, "load", lambda path: (read.append(path), original(path))[1])
    for _ in range(5):
        assert "own_dataset" in datasets.names()
        assert datasets.info("own_dataset").features == 3
    assert read == [mine / "datasets/own_dataset.py"]


def test_a_dataset_whose_file_changed_since_it_was_imported_is_not_loaded_as_the_old_one(edit: Write) -> None:
    path = edit("datasets", "edited")
    datasets.load("edited", rows=20)
    path.write_text(path.read_text() + "\n# edited\n")
    with pytest.raises(UserError, match=r"edited\.py has changed since it was imported: start Python anew"):
        datasets.load("edited", rows=20)
    assert datasets.load("digits").X.shape == (1797, 64), "the others are not touched"


def test_every_command_that_looks_something_up_by_name_takes_folders_of_own_files(
    mine: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders of the option add up, and with those of the environment."""
    create("algorithm", "theirs_too", tmp_path / "theirs")
    create("algorithm", "from_outside", tmp_path / "outside")
    np.savez("data.npz", X=np.array([[0.6, 0.0], [0.0, -0.6]] * 20), y=np.array([1.0, -1.0] * 20))
    both = ("--extensions", "mine", "--extensions", "theirs")
    privacy = ("--epsilon", 1, "--delta", 1e-5)
    solved = ("--epsilon", "inf", "--delta", 1e-5)
    commands = [
        (("list", "algorithms", *both), ["own_algorithm", "theirs_too", "from_outside"]),
        (("list", "losses", *both), ["mine/losses/own_loss.py"]),
        (("list", "datasets", *both), ["mine/datasets/own_dataset.py"]),
        (("account", "theirs_too", "--n", 100, "--d", 3, *privacy, "--loss", "own_loss", *both), ["theirs_too"]),
        (("audit", "theirs_too", "--replicates", 1000, *both), ["epsilon_audited"]),
        (("solve", "own_algorithm", "--data", "data.npz", *solved, "--loss", "own_loss", *both), ["own_algorithm"]),
    ]
    for command, parts in commands:
        monkeypatch.setenv(extensions.VARIABLE, "outside")
        outcome = run(*command)
        assert (outcome.code, outcome.err) == (0, ""), outcome.err
        assert all(part in outcome.out for part in parts)
        monkeypatch.setenv(extensions.VARIABLE, "")
        without = run(*(part for part in command if part not in {*both}))
        assert without.code == 2 or not any(part in without.out for part in parts)


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("nowhere", "The extension folder nowhere does not exist: make it, or correct the path."),
        ("empty", "The extension folder empty has none of the folders algorithms, datasets, losses, experiments"),
        (
            "hollow",
            "The extension folder hollow holds no file of your own in algorithms, datasets, losses, experiments",
        ),
        ("file", "The extension folder file does not exist"),
    ],
)
def test_an_option_that_names_no_folder_of_own_files_is_bad_input(
    folder: str, sentence: str, mine: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow/algorithms").mkdir(parents=True)
    (tmp_path / "hollow/algorithms/_helper.py").write_text("")
    (tmp_path / "file").write_text("")
    privacy = ("--epsilon", 1, "--delta", 1e-5)
    for command in (
        ("list", "targets"),
        ("account", "dp_gd", "--n", 100, "--d", 3, *privacy),
        ("audit", "dp_gd"),
        ("solve", "dp_gd", "--data", "data.npz", *privacy),
    ):
        outcome = run(*command, "--extensions", "mine", "--extensions", folder)
        assert (outcome.code, outcome.out) == (2, "")
        assert sentence in outcome.err
        assert_one_sentence(outcome.err.removeprefix("dprepro: ").removesuffix("\n"))


def test_helpers_and_tests_in_a_folder_are_no_algorithms(edit: Write, mine: Path) -> None:
    (mine / "algorithms" / "_steps.py").write_text("STEPS = 7\n")
    (mine / "algorithms" / "test_nothing.py").write_text("raise RuntimeError\n")
    edit("algorithms", "helped", ("import math\n", "import math\nfrom ._steps import STEPS\n"), ("100)", "STEPS)"))
    assert set(algorithms.own()) == {"own_algorithm", "helped"}
    spec = ProblemSpec(100, 3, Logistic(), Regularizer(), RealSpace())
    assert algorithms.get_algorithm("helped").plan(Setting(spec, 1.0, 1e-5)).T == 7


def test_folders_with_helpers_of_one_name_do_not_get_in_each_others_way(
    edit: Write, mine: Path, tmp_path: Path
) -> None:
    spec = ProblemSpec(100, 3, Logistic(), Regularizer(), RealSpace())
    path = edit(
        "algorithms", "helped", ("import math\n", "import math\nfrom ._steps import STEPS\n"), ("100)", "STEPS)")
    )
    theirs = tmp_path / "theirs" / "algorithms"
    theirs.mkdir(parents=True)
    (theirs / "also_helped.py").write_text(path.read_text().replace("helped", "also_helped"))
    (mine / "algorithms" / "_steps.py").write_text("STEPS = 7\n")
    (theirs / "_steps.py").write_text("STEPS = 8\n")
    extensions.use(["theirs"])
    plans = [algorithms.get_algorithm(name).plan(Setting(spec, 1.0, 1e-5)) for name in ("helped", "also_helped")]
    assert [plan.letters()["T"] for plan in plans] == [7, 8]


# What is refused.

CLASS = "ALGORITHM = OwnAlgorithm()"
BROKEN_ALGORITHMS = {
    "no_algorithm": ((CLASS, ""), "defines no ALGORITHM: end it with ALGORITHM = YourClass()."),
    "a_class": ((CLASS, "ALGORITHM = OwnAlgorithm"), "write YourClass()."),
    "other_name": (('"other_name"', '"another"'), "calls itself 'another': write name = 'other_name'"),
    "no_title": (('title = "Own algorithm"', ""), "without the attribute 'title': add it."),
    "need_list": (("needs = frozenset(", "needs = list("), "has the needs ["),
    "odd_letter": (('Letter(int, "steps")', "int"), "a letter 'T' without its rule: write 'T': Letter(int,"),
    "odd_need": (('"lipschitz"', '"lipshitz"'), "needs 'lipshitz', which no problem has: use smooth, convex,"),
    "no_field": (("    eta: float\n", ""), "'eta' that its plan has no field for: add it to OwnAlgorithmPlan."),
    "no_letters": ((CLASS, f"OwnAlgorithm.letters = None\n{CLASS}"), "has the letters None: give a dict such as {'T':"),
    "own_plan": ((CLASS, f"OwnAlgorithm.plan = OwnAlgorithm.compute_plan\n{CLASS}"), "declared: write compute_plan."),
    "late_plan": ((CLASS, f"{CLASS}\nALGORITHM.plan = print"), "in place of that of Algorithm, which checks what is"),
    "no_plan": (("plan_type = OwnAlgorithmPlan", "plan_type = dict"), "has the plan_type <class 'dict'>"),
    "no_run": (("def run(", "def walk("), "abstract method run at mine/algorithms/no_run.py:"),
    "raises": (("import math\n", "import math\n1 / 0\n"), "Error: division by zero at mine/algorithms/raises.py:6"),
    "no_module": (("import math\n", "import no_such\n"), "No module named 'no_such' at mine/algorithms/no_module.py:5"),
    "no_syntax": (("import math\n", "import math +\n"), "invalid syntax at mine/algorithms/no_syntax.py:5"),
    "leaves": (("import math\n", "import sys\nsys.exit(3)\n"), "SystemExit: 3 at mine/algorithms/leaves.py:6"),
    "Big": (("", ""), "use small letters, digits and underscores, a letter first."),
    "class": (("", ""), "'class' is a word of Python; use another one."),
    "jl_own": (("", ""), "names that begin with jl_ have a meaning of their own; use another one."),
    "dp_gd": (("", ""), "has the name of a built-in one, 'dp_gd': rename it."),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_ALGORITHMS)
def test_a_broken_algorithm_is_refused_with_one_sentence_that_names_its_file(
    name: str, edit: Write, run: Run, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, sentence = BROKEN_ALGORITHMS[name]
    edit("algorithms", name, change)
    outcome = run("list", "algorithms")
    said = outcome.err.removeprefix("dprepro: ").removesuffix("\n")
    assert (outcome.code, outcome.out) == (2, "")
    assert_one_sentence(said)
    assert f"mine/algorithms/{name}.py" in said
    assert sentence in said
    # It does not wait for its job.
    with pytest.raises(UserError, match=re.escape(f"mine/algorithms/{name}.py")):
        load_experiments(load_config([], CONFIG), CONFIG)


def assert_refused(call: Callable[[], Any], *parts: str) -> None:
    """Assert that a call ends in one sentence with these parts."""
    with pytest.raises(UserError) as caught:
        call()
    assert_one_sentence(str(caught.value))
    assert [part for part in parts if part not in str(caught.value)] == []


BROKEN_LOSSES = {
    "no_loss": (("LOSS = OwnLoss", ""), "defines no LOSS: end it with LOSS = YourClass."),
    "an_object": (("LOSS = OwnLoss", "LOSS = OwnLoss()"), "write the class itself."),
    "no_constant": (("def lipschitz", "def lipshitz"), "has a loss without lipschitz: write it; sensitivities"),
    "no_word": (
        ("    convex = True", "    # "),
        "that does not say whether it is convex: write convex = True or convex =",
    ),
    "odd_word": (("    smooth = True", '    smooth = "no"'), "does not say whether it is smooth: write smooth = True"),
    "a_word": (
        ("    name =", '    how: str = "wide"\n    name ='),
        "parameter how is 'wide' by default: give a number",
    ),
    "nothing": (
        ("    name =", "    how: float | None = None\n    name ="),
        "parameter how is None by default: give a number",
    ),
    "no_curvature": (("def curvature", "def curve"), "has a loss without curvature: write it"),
    "other_name": (('"other_name"', '"another"'), "write name = 'other_name'."),
    "two_numbers": (("    name =", "    a: float = 1.0\n    b: float = 1.0\n    name ="), "give it one at most"),
    "huber": (("", ""), "has the name of a built-in one, 'huber': rename it."),
}


@pytest.mark.parametrize("name", BROKEN_LOSSES)
def test_a_broken_loss_is_refused_with_one_sentence_that_names_its_file(name: str, edit: Write, run: Run) -> None:
    change, sentence = BROKEN_LOSSES[name]
    edit("losses", name, change)
    assert run("list", "losses").code == 2
    assert_refused(lambda: get_loss(name), f"mine/losses/{name}.py", sentence)


@pytest.mark.parametrize("wish", ["keyed", "keyed:2"])
def test_the_parameter_of_a_loss_may_be_one_by_keyword_only(wish: str, edit: Write) -> None:
    keyed = ("@dataclass(frozen=True)", "@dataclass(frozen=True, kw_only=True)")
    edit("losses", "keyed", keyed, ("    name =", "    scale: float = 3.0\n    name ="))
    assert get_loss(wish).scale == (2.0 if ":" in wish else 3.0)  # type: ignore[attr-defined]


VECTOR = (
    ("from dprepro.losses import Loss", "from dprepro.vector_losses import HuberMean"),
    ("class OwnLoss(Loss)", "class OwnLoss(HuberMean)"),
    ("def value", "def _value"),
    ("def core", "def _core"),
    ("def curvature", "def _curvature"),
)


def test_an_own_loss_of_the_vector_itself_is_none_of_the_inner_product_and_cannot_say_so(edit: Write) -> None:
    """Objective perturbation is private for losses of <w, x>: a loss that says it is one must be given as one."""
    edit("losses", "vectorial", *VECTOR)
    edit("losses", "scalar")
    edit("losses", "liar", *VECTOR, ("    name =", "    glm = True\n    name ="))
    plan = algorithms.get_algorithm("objective_perturbation").plan

    def setting(loss: str) -> Setting:
        return Setting(ProblemSpec(100, 3, get_loss(loss), Regularizer(l2=0.1), get_set(None)), 1.0, 1e-3)

    with pytest.raises(UserError, match="objective_perturbation needs a loss of <w, x>"):
        plan(setting("vectorial"))
    assert plan(setting("scalar")).epsilon == 1.0
    assert_refused(lambda: get_loss("liar"), "has a loss without value: write it")


@pytest.mark.parametrize(
    ("method", "returned", "constant"),
    [
        *(("lipschitz", "row_norm", constant) for constant in ("0.0", "-1.0", "None", "math.nan", "'1'")),
        *(("smoothness", "row_norm**2", constant) for constant in ("-1.0", "None")),
    ],
)
def test_a_loss_whose_constants_are_no_positive_numbers_is_refused(
    method: str, returned: str, constant: str, edit: Write, run: Run
) -> None:
    edit("losses", "constant", (f"return {returned}\n", f"return {constant}\n"))
    outcome = run("account", "dp_gd", "--n", 100, "--d", 3, "--epsilon", 1, "--delta", 1e-5, "--loss", "constant")
    assert (outcome.code, outcome.out) == (2, "")
    said = (
        f"The loss 'constant' has {constant.removeprefix('math.')} for a constant: its {method} must return a number >"
    )
    assert said in outcome.err
    assert_one_sentence(outcome.err.removeprefix("dprepro: ").removesuffix("\n"))


BROKEN_DATASETS = {
    "info_dict": (("        DatasetInfo(", "        dict("), "with an info of the class dict: give a DatasetInfo."),
    "not_callable": (
        ("        _prepare,\n", "        3,\n"),
        "whose prepare cannot be called as prepare(rows, seed): write",
    ),
    "no_seed": (("seed: int, *,", "*,"), "whose prepare cannot be called as prepare(rows, seed): write"),
    "no_default": (("spread: float = 0.5", "spread: float"), "with a default for each parameter behind the star."),
    "no_datasets": (("DATASETS = (", "OTHERS = ("), "defines no DATASETS: end it with DATASETS = (Definition(...),)."),
    "no_definition": (("DATASETS = (", "DATASETS = (3,"), "has 3 in DATASETS: give objects of the class Definition."),
    "bad_name": (('"bad_name"', '"Bad name"'), "has a dataset 'Bad name', a name that will not do: use small letters"),
    "old_name": (('"old_name"', '"adult"'), "a dataset 'adult', but there is one of this name already: rename it."),
}


@pytest.mark.parametrize("name", BROKEN_DATASETS)
def test_a_broken_dataset_is_refused_with_one_sentence_that_names_its_file(name: str, edit: Write) -> None:
    change, sentence = BROKEN_DATASETS[name]
    edit("datasets", name, change)
    assert_refused(datasets.names, f"mine/datasets/{name}.py", sentence)


@pytest.mark.parametrize("kind", ["algorithms", "datasets", "losses"])
@pytest.mark.parametrize("what", ["folder", "dangling link"])
def test_what_has_the_name_of_an_own_file_and_is_none_is_listed_with_the_reason(
    kind: str, what: str, mine: Path, run: Run
) -> None:
    path = mine / kind / "hollow.py"
    path.mkdir() if what == "folder" else path.symlink_to("nowhere.py")
    outcome = run("list", kind)
    reason = "Is a directory" if what == "folder" else "No such file or directory"
    advice = "put a Python file there, or remove it"
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("hollow ")]
    assert line.endswith(f"not available: The file mine/{kind}/hollow.py cannot be read ({reason}): {advice}.")
    assert outcome.code == 0


def test_a_folder_with_the_name_of_an_experiment_is_refused(mine: Path) -> None:
    (mine / "experiments/hollow.yaml").mkdir()
    assert_refused(lambda: read_yaml(mine / "experiments/hollow.yaml"), "hollow.yaml cannot be read (Is a directory)")


def test_an_own_dataset_that_breaks_a_promise_is_told_which_and_where(edit: Write) -> None:
    edit("datasets", "too_long", ("bounded(X)", "(3 * bounded(X)).astype(np.float32)"))
    with pytest.raises(UserError) as told:
        datasets.load("too_long", rows=50)
    assert_one_sentence(str(told.value))
    assert re.search(
        r"^The prepared dataset 'too_long' breaks a promise \(mine/datasets/too_long\.py\): "
        r"the largest norm of a row is (2\.9\d+|3), in row \d+, promised is at most 1\.$",
        str(told.value),
    )


@pytest.mark.parametrize("name", ["wyx17_fig1", "report", "certify", "curves", "klt25_gap"])
def test_an_experiment_with_a_name_that_means_something_else_is_refused(name: str, mine: Path) -> None:
    (mine / "experiments" / f"{name}.yaml").write_text((mine / "experiments/own_experiment.yaml").read_text())
    with pytest.raises(UserError, match=f"mine/experiments/{name}.yaml has the name of a built-in one"):
        experiment_files(CONFIG)


def test_the_reserved_names_are_those_of_all_rules() -> None:
    text = "".join(path.read_text() for path in [ROOT / "Snakefile", *ROOT.glob("workflow/rules/*.smk")])
    rules = re.findall(r"^(?:rule (\w+):|use rule \w+ as (\w+) with:)$", text, re.MULTILINE)
    assert sorted({one or other for one, other in rules}) == sorted({*RULES, *TARGETS})


def test_files_of_one_name_in_two_folders_are_refused(mine: Path, tmp_path: Path) -> None:
    create("algorithm", "own_algorithm", tmp_path / "theirs")
    extensions.use(["theirs"])
    with pytest.raises(UserError, match=r"theirs/algorithms/own_algorithm.py and mine/.* have one name: rename one"):
        algorithms.names()


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("nowhere", "The extension folder nowhere does not exist: make it, or correct the path."),
        ("empty", "The extension folder empty has none of the folders algorithms, datasets, losses, experiments"),
        ("a:b", "does not exist|has ':' in its path"),
    ],
)
def test_a_folder_that_is_none_is_refused(folder: str, sentence: str, mine: Path, run: Run) -> None:
    (mine.parent / "empty").mkdir()
    (mine.parent / "a:b" / "algorithms").mkdir(parents=True)
    with pytest.raises(UserError, match=sentence):
        extensions.use([folder])
    config = {**load_config([], CONFIG), "extensions": [folder]}
    with pytest.raises(UserError, match=r"^In the configuration: extensions: The extension folder"):
        load_experiments(config, CONFIG)


def test_a_mistake_that_comes_up_in_a_run_is_told_with_its_line(edit: Write, run: Run, mine: Path) -> None:
    path = edit("algorithms", "stumbles", ("        x = ex.start()\n", "        x = ex.begin()\n"))
    line = path.read_text().splitlines().index("        x = ex.begin()") + 1
    outcome = run("audit", "stumbles", "--replicates", 1000)
    place = f"mine/algorithms/stumbles.py:{line}"
    assert outcome.code == 2
    assert outcome.err.endswith(f"has no attribute 'begin' at {place}; correct this file of your own.\n")


TRIPPING = {
    "audits_three": ("algorithms", ("    # The audit attacks", "    def audit_case(self):\n        return 3\n\n    #")),
    "runs_alone": ("algorithms", (", ex: Execution) -> Any:", ", **ex) -> Any:")),
    "counts_none": ("algorithms", ("gradient_evaluations=T * n", "gradient_evaluations=None")),
    "counts_words": ("algorithms", ("rounds=T", "rounds='many'")),
    "sets_words": ("algorithms", ("            T=T,\n", "            T=T,\n            conditions=('x',),\n")),
    "bends": ("losses", ("return xp.tanh(s - y)", "return xp.tanh(s - y)[:1]")),
    "takes_one": ("losses", ("row_norm: float, radius: float, label_bound: float)", "row_norm: float)")),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIPPING)
def test_a_mistake_over_which_the_program_trips_is_told_with_the_files_that_are_loaded(
    name: str, edit: Write, run: Run, mine: Path
) -> None:
    kind, change = TRIPPING[name]
    edit(kind, name, change)
    np.savez("data.npz", X=np.array([[0.6, 0.0], [0.0, -0.6]] * 20), y=np.array([1.0, -1.0] * 20))
    solve = ("solve", "dp_gd", "--data", "data.npz", "--epsilon", 1, "--delta", 1e-5, "--set", "T=3", "--loss", name)
    outcome = run("audit", name, "--replicates", 1000) if kind == "algorithms" else run(*solve)
    said = outcome.err.removeprefix("dprepro: ").removesuffix("\n")
    assert (outcome.code, outcome.out) == (2, "")
    assert_one_sentence(said)
    cause = f"the likely cause is what your own mine/{kind}/{name}.py gave to the program: correct it."
    assert re.fullmatch(rf"(\w+Error): .* at dprepro/\S+\.py:\d+; {re.escape(cause)}", said)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ImportError("No module named 'pandas'")])
def test_a_lack_of_the_machine_is_not_blamed_on_own_files(
    error: Exception, mine: Path, run: Run, monkeypatch: Any
) -> None:
    def fail() -> None:
        raise error

    algorithms.get_algorithm("own_algorithm")
    monkeypatch.setattr(algorithms, "names", fail)
    with pytest.raises(type(error)):
        run("list", "algorithms")


def test_a_run_that_returns_no_points_fails_with_a_sentence(edit: Write, run: Run) -> None:
    edit("algorithms", "silent", ("        return x\n", ""))
    edit("algorithms", "flat", ("        return x\n", "        return x[0]\n"))
    for name, given in (("silent", "returned None"), ("flat", r"returned an array of shape \(2,\)")):
        outcome = run("audit", name, "--replicates", 1000)
        assert outcome.code == 1
        assert re.search(rf"{name} {given}: it must return its output, an array of shape \(64, 2\)\.$", outcome.err)
        with pytest.raises(RunFailed, match="it must return its output"):
            dprepro.solve(name, *rows(50, 3), **PRIVACY, T=2)


@pytest.mark.parametrize("kind", ["algorithm", "loss"])
def test_what_dprepro_new_writes_runs_on_strict_arrays_and_the_same_in_any_company(kind: str, mine: Path) -> None:
    loss = "own_loss" if kind == "loss" else "logistic"
    results = []
    for backend in (get_backend("cpu"), strict_backend()):
        problem = make_problem(loss=loss, backend=backend)
        plan = algorithms.get_algorithm("own_algorithm").plan(Setting(problem.spec, 1.0, 1e-3), T=5)
        results.append(execute(plan, problem, seed=1, replicates=range(3)).w)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-10, atol=1e-13)
    problem = make_problem(loss=loss)
    np.testing.assert_array_equal(execute(plan, problem, seed=1, replicates=[2]).w[0], results[0][2])


def test_a_mistake_of_the_program_itself_keeps_its_traceback(mine: Path, run: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(algorithms, "names", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("list", "algorithms")


@pytest.mark.parametrize("given", [["dp_dg"], ["jl_dp_gd"]])
def test_audits_of_unknown_algorithms_are_refused(given: list[str]) -> None:
    config = load_config([], CONFIG)
    config["audit"] = {**config["audit"], "algorithms": given}
    with pytest.raises(UserError, match=f"unknown algorithm '{given[0]}' in audit.algorithms; did you mean 'dp_gd'"):
        load_experiments(config, CONFIG)


def test_audits_can_be_held_to_some_algorithms(mine: Path) -> None:
    config = load_config([], CONFIG)
    config["audit"] = {**config["audit"], "algorithms": ["own_algorithm", "dp_gd"]}
    assert list(audit_jobs(config)) == ["own_algorithm", "dp_gd"]
    whole = audit_jobs({**config, "audit": {k: v for k, v in config["audit"].items() if k != "algorithms"}})
    assert whole["dp_gd"] == audit_jobs(config)["dp_gd"], "the same audit, whatever else is audited"


# What is declared.

EVENTS = "events=(GaussianEvent(STEP, sigma, (QueryPart(sensitivity, n, n),), T),)"


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ("events=GaussianEvent(STEP, sigma, (QueryPart(sensitivity, n, n),), T)", "write (event,) for a single one"),
        ("events=()", "undeclared claims epsilon = 1, but declares no sensitivity: list in the events of its plan"),
        ("events=(ConditionEvent('luck', 1e-9),)", "but declares no sensitivity"),
        ("events=({'sigma': sigma},)", "which is none: use those of dprepro.privacy.events, each with its sensitivity"),
        (
            "events=(GaussianEvent(STEP, sigma, (), T),)",
            "'gradient step' declares no sensitivity: give it at least one",
        ),
        ("events=(GaussianEvent(STEP, sigma, (QueryPart(0.0, n, n),), T),)", "declare a finite number > 0"),
    ],
)
def test_an_algorithm_without_a_declared_sensitivity_is_refused_before_it_sees_data(
    events: str, sentence: str, edit: Write, run: Run
) -> None:
    imports = ("import GaussianEvent,", "import ConditionEvent, GaussianEvent,")
    edit("algorithms", "undeclared", (EVENTS, events), imports)
    outcome = run("account", "undeclared", "--n", 1000, "--d", 5, "--epsilon", 1, "--delta", 1e-5)
    assert (outcome.code, outcome.out) == (2, "")
    assert_one_sentence(outcome.err.removeprefix("dprepro: ").removesuffix("\n"))
    assert sentence in outcome.err


def test_a_plan_that_is_none_is_refused(edit: Write, run: Run) -> None:
    edit("algorithms", "planless", ("        return OwnAlgorithmPlan(", "        OwnAlgorithmPlan("))
    outcome = run("account", "planless", "--n", 1000, "--d", 5, "--epsilon", 1, "--delta", 1e-5)
    assert outcome.code == 2
    assert outcome.err.endswith("planless is None: return an object of OwnAlgorithmPlan.\n")


def test_what_is_declared_as_unprotected_is_not_certified(edit: Write) -> None:
    imports = ("import GaussianEvent,", "import GaussianEvent, UnprotectedEvent,")
    edit("algorithms", "open_one", (EVENTS, 'events=(UnprotectedEvent("gradients", T),)'), imports)
    spec = ProblemSpec(100, 3, Logistic(), Regularizer(), RealSpace())
    plan = algorithms.get_algorithm("open_one").plan(Setting(spec, 1.0, 1e-5))
    assert certify(plan)["verdict"] == "not certified (a data-dependent quantity was used without noise)"
    with pytest.raises(UserError):
        algorithms.get_algorithm("open_one").plan(Setting(spec, 1.0, 1e-5, "certified"))


def test_gradients_that_no_event_covers_fail_the_run(edit: Write) -> None:
    """The plan declares one record a step, the run looks at all of them."""
    edit("algorithms", "looks_further", ("QueryPart(sensitivity, n, n)", "QueryPart(sensitivity, 1, n)"))
    X, y = rows(100, 3)
    with pytest.raises(LedgerMismatch):
        dprepro.solve("looks_further", X, y, **PRIVACY, variant="published", T=3)


# What the generic audit catches.

ADDED = "ex.regularizer_gradient(x) + z)"
BUGS = {
    "halves_its_noise": (ADDED, "ex.regularizer_gradient(x) + 0.5 * z)"),
    "forgets_its_noise": (ADDED, "ex.regularizer_gradient(x))"),
    "understates_itself": ("sensitivity = 2.0 * problem.G / n", "sensitivity = 1.0 * problem.G / n"),
}


def audited(name: str) -> dict[str, Any]:
    return audit(algorithms.get_algorithm(name), variant="certified", epsilon=2.0, delta=1e-5, replicates=8000, seed=1)


NEEDS = {
    "no_needs": "frozenset()",
    "ball": 'frozenset({"smooth", "bounded", "centrally_symmetric"})',
    "vertices": 'frozenset({"polytope"})',
    "curved": 'frozenset({"strongly_convex"})',
}


@pytest.mark.parametrize("needs", NEEDS)
@pytest.mark.parametrize("bug", [None, *BUGS])
def test_the_generic_audit_passes_an_honest_algorithm_and_catches_each_planted_bug(
    needs: str, bug: str | None, edit: Write
) -> None:
    name = f"{needs}_{bug}".lower()
    changes = [
        ('frozenset({"smooth", "smooth_regularizer", "lipschitz"})', NEEDS[needs]),
        *([BUGS[bug]] if bug else []),
    ]
    edit("algorithms", name, *changes)
    if bug is None:
        row = audited(name)
        assert 0.5 * row["epsilon_accounted"] < row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0
    else:
        with pytest.raises(RunFailed, match="a mechanism, a sensitivity or the accountant is wrong"):
            audited(name)


def test_a_planted_bug_ends_the_audit_command_with_code_1(edit: Write, run: Run) -> None:
    edit("algorithms", "halved", BUGS["halves_its_noise"])
    outcome = run("audit", "halved", "--epsilon", 2, "--replicates", 8000)
    assert outcome.code == 1
    assert "The audit of halved (certified, claimed epsilon = 2) proves epsilon >= " in outcome.err


def test_an_algorithm_that_has_no_step_on_the_data_of_the_generic_audit_asks_for_a_case(edit: Write) -> None:
    vacuous = (
        '        n = problem.n\n',
        '        n = problem.n\n        refuse_vacuous(setting, lambda m: m > 60, "choosy has no step", "so it is")\n',
    )  # fmt: skip
    edit("algorithms", "choosy", vacuous, ("Plan, Setting\n", "Plan, Setting, refuse_vacuous\n"))
    with pytest.raises(UserError, match=r"makes sense from n = 61\..*generic audit.*write an audit_case\.$"):
        audited("choosy")


# What makes jobs run again.


@pytest.fixture
def fresh_code() -> Callable[..., str]:
    """The digest of a stage's sources as they are now, not as they were when the process began."""
    return code.__wrapped__  # type: ignore[attr-defined, no-any-return]


def touched(path: Path, text: str) -> None:
    """Write a file with another time than it had: an editor is never that fast."""
    stamp = path.stat().st_mtime_ns + 1_000_000_000
    path.write_text(text)
    os.utime(path, ns=(stamp, stamp))


JOBS = {
    "algorithms/own_algorithm.py": {"algorithm": "own_algorithm"},
    "losses/own_loss.py": {"loss": "own_loss:1"},
    "datasets/own_dataset.py": {"dataset": "own_dataset"},
}


@pytest.mark.parametrize("file", JOBS)
def test_an_edit_changes_the_digest_of_the_jobs_that_use_the_file_and_of_no_other(
    file: str, mine: Path, fresh_code: Callable[..., str]
) -> None:
    def digests() -> list[str]:
        return [fresh_code("sweep", **names) for names in [*JOBS.values(), {"algorithm": "dp_gd", "loss": "logistic"}]]

    before = digests()
    text = (mine / file).read_text()
    touched(mine / file, f"# A remark.\n{text}")
    assert digests() == before
    touched(mine / file, f"{text}\nADDED = 1\n")
    changed = [one != other for one, other in zip(before, digests(), strict=True)]
    assert changed == [name == file for name in JOBS] + [False]


def test_what_an_own_file_imports_is_a_part_of_it(edit: Write, mine: Path, fresh_code: Callable[..., str]) -> None:
    helper = mine / "algorithms" / "_steps.py"
    helper.write_text("STEPS = 7\n")
    edit("algorithms", "helped", ("import math\n", "import math\nfrom ._steps import STEPS\n"), ("100)", "STEPS)"))
    before = fresh_code("run", algorithm="helped")
    touched(helper, "STEPS = 8\n")
    assert fresh_code("run", algorithm="helped") != before
    used = {provenance.place(path) for path in provenance.sources(source_modules("run", algorithm="jl_helped"))}
    assert {"algorithms/helped.py", "algorithms/_steps.py", "algorithms/jl_method.py", "run.py"} <= used
    files = [one["file"] for one in own_files("run", algorithm="jl_helped")["extensions"]]
    assert files == ["algorithms/_steps.py", "algorithms/helped.py"]


def test_a_data_file_beside_a_dataset_belongs_to_it(mine: Path, fresh_code: Callable[..., str]) -> None:
    before = fresh_code("dataset", dataset="own_dataset")
    (mine / "datasets/own_dataset.csv").write_text("1,2\n")
    first = fresh_code("dataset", dataset="own_dataset")
    (mine / "datasets/own_dataset.csv").write_text("1,3\n")
    assert len({before, first, fresh_code("dataset", dataset="own_dataset")}) == 3
    files = [one["file"] for one in own_files("run", dataset="own_dataset")["extensions"]]
    assert files == ["datasets/own_dataset.py", "datasets/own_dataset.csv"]


def test_the_digest_does_not_depend_on_where_the_folder_lies(
    mine: Path, monkeypatch: pytest.MonkeyPatch, fresh_code: Callable[..., str]
) -> None:
    before = fresh_code("run", algorithm="own_algorithm")
    mine.rename(mine.parent / "moved")
    monkeypatch.setenv(extensions.VARIABLE, "moved")
    assert fresh_code("run", algorithm="own_algorithm") == before


def test_a_smoothed_own_loss_depends_on_its_file(mine: Path) -> None:
    assert losses.modules_of("moreau:10:own_loss") == losses.modules_of("own_loss") != []
    assert losses.modules_of("moreau:10:huber:0.5") == []
