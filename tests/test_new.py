"""`dprepro new` writes files that work and tests that can fail; nothing is overwritten."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import Run, assert_one_sentence

from dprepro import extensions
from dprepro.new import create

WRITTEN = {
    "algorithm": ["algorithms/first_try.py", "tests/test_algorithm_first_try.py"],
    "dataset": ["datasets/first_try.py", "tests/test_dataset_first_try.py"],
    "loss": ["losses/first_try.py", "tests/test_loss_first_try.py"],
    "experiment": ["experiments/first_try.yaml"],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(extensions.VARIABLE, "")
    return tmp_path


def failed_tests(folder: Path) -> list[str]:
    """Run all tests in a folder as a user does and return the names of those that fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.search(r"\d+ (passed|failed)", done.stdout), done.stdout + done.stderr
    return re.findall(r"^FAILED .*::(\w+)", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("kind", WRITTEN)
def test_it_writes_what_it_says_and_says_what_to_do(kind: str, run: Run, here: Path) -> None:
    outcome = run("new", kind, "first_try", "--path", "mine")
    assert (outcome.code, outcome.err) == (0, "")
    assert [line.split()[1] for line in outcome.out.splitlines() if line.startswith("written")] == [
        f"mine/{file}" for file in WRITTEN[kind]
    ]
    for file in WRITTEN[kind]:
        text = (here / "mine" / file).read_text()
        assert not re.search(r"[Mm]y.?(algorithm|dataset|loss|experiment)", text, re.IGNORECASE)
        assert "first_try" in text or "FirstTry" in text
    ways = ["export DPREPRO_EXTENSIONS=mine", "--extensions mine", "extensions: [mine]"]
    assert [line[12:] for line in outcome.out.splitlines() if "xtensions" in line.lower()] == ways, "to be copied"


@pytest.mark.parametrize("words", [("new", "loss", "first_try"), ("solve", "--help"), ("list", "--help")], ids=" ".join)
def test_it_is_told_that_such_files_are_code(
    words: tuple[str, ...], run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    try:
        said = run(*words).out
    except SystemExit:
        said = capsys.readouterr().out
    assert "files in extension folders are Python code and run with your rights: use only folders you trust" in said


def test_without_a_path_it_writes_into_extensions(run: Run, here: Path) -> None:
    assert run("new", "loss", "first_try").code == 0
    assert (here / "extensions/losses/first_try.py").is_file()


def test_the_tests_that_come_with_it_pass_as_they_stand() -> None:
    for kind in ("algorithm", "dataset", "loss"):
        create(kind, f"fresh_{kind}", Path("mine"))
    assert failed_tests(Path("mine")) == []


def test_one_folder_holds_one_of_each_kind_under_one_name(run: Run, here: Path) -> None:
    for kind in WRITTEN:
        assert run("new", kind, "first_try", "--path", "mine").err == ""
    assert failed_tests(Path("mine")) == []
    # Each kind has tests of its own: a bug is told by those of the file it is in.
    path = here / "mine/losses/first_try.py"
    path.write_text(path.read_text().replace("return xp.tanh(s - y)", "return 0.9 * xp.tanh(s - y)"))
    assert "test_the_derivative_is_that_of_the_value" in failed_tests(Path("mine"))


CONVERGES = "test_without_noise_it_converges_to_the_optimum"
COUNTS = "test_it_makes_as_many_gradient_evaluations_as_its_steps_take"
DECLARES = "test_one_record_moves_a_release_by_at_most_the_declared_sensitivity"
AUDITED = "test_the_audit_proves_no_more_than_is_accounted"


@pytest.mark.parametrize(
    ("before", "after", "noticed"),
    [
        ("sensitivity = 2.0 *", "sensitivity = 1.0 *", {DECLARES, AUDITED}),
        ("(x) + z)", "(x) + 0.5 * z)", {AUDITED}),
        ("x - plan.eta", "x + plan.eta", {CONVERGES}),
        (
            "rounds=T,\n            gradient_evaluations=T * n",
            "rounds=T,\n            gradient_evaluations=T",
            {COUNTS},
        ),
    ],
    ids=["sensitivity halved", "noise halved", "uphill", "gradients not counted"],
)
def test_the_tests_of_an_algorithm_notice_a_planted_bug(before: str, after: str, noticed: set[str]) -> None:
    path, _ = create("algorithm", "buggy", Path("mine"))
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    assert noticed <= set(failed_tests(Path("mine")))


@pytest.mark.parametrize("there", WRITTEN["algorithm"])
def test_nothing_is_overwritten_and_nothing_written_beside_it(there: str, run: Run, here: Path) -> None:
    path = here / "mine" / there
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    outcome = run("new", "algorithm", "first_try", "--path", "mine")
    assert outcome.code == 2
    assert_one_sentence(outcome.err.removeprefix("dprepro: ").removesuffix("\n"))
    assert f"The file mine/{there} exists already: choose another name" in outcome.err
    assert [file for file in (here / "mine").rglob("*") if file.is_file()] == [path]
    assert path.read_text() == "precious"


def test_a_link_that_leads_nowhere_is_not_overwritten(run: Run, here: Path) -> None:
    link = here / "mine/algorithms/first_try.py"
    link.parent.mkdir(parents=True)
    link.symlink_to("unplugged.py")
    outcome = run("new", "algorithm", "first_try", "--path", "mine")
    assert (outcome.code, link.is_symlink()) == (2, True)
    assert "exists already" in outcome.err


def test_if_one_file_cannot_be_written_none_is(run: Run, here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine/tests").write_text("no folder")
    outcome = run("new", "algorithm", "first_try", "--path", "mine")
    assert outcome.code == 2
    assert "mine/tests/test_algorithm_first_try.py" in outcome.err
    assert [file.name for file in (here / "mine").rglob("*") if file.is_file()] == ["tests"]


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("algorithm", "dp_gd", "There is a built-in algorithm 'dp_gd' already: choose another name."),
        ("algorithm", "base", "There is a built-in algorithm 'base' already"),
        ("algorithm", "jl_fast", "names that begin with jl_ have a meaning of their own"),
        ("algorithm", "My-GD", "use small letters, digits and underscores, a letter first"),
        ("algorithm", "../escape", "use small letters"),
        ("algorithm", "lambda", "'lambda' is a word of Python"),
        ("dataset", "adult", "There is a built-in dataset 'adult' already"),
        ("dataset", "", "use small letters"),
        ("loss", "huber", "There is a built-in loss 'huber' already"),
        ("loss", "moreau", "There is a built-in loss 'moreau' already"),
        ("experiment", "report", "There is a built-in experiment 'report' already"),
        ("experiment", "2nd", "a letter first"),
    ],
)
def test_a_name_that_will_not_do_is_refused(kind: str, name: str, sentence: str, run: Run, here: Path) -> None:
    outcome = run("new", kind, name, "--path", "mine")
    assert (outcome.code, outcome.out) == (2, "")
    assert_one_sentence(outcome.err.removeprefix("dprepro: ").removesuffix("\n"))
    assert sentence in outcome.err
    assert list(here.iterdir()) == []


def test_a_path_that_is_no_folder_is_told(run: Run, here: Path) -> None:
    (here / "mine").write_text("a file")
    outcome = run("new", "loss", "first_try", "--path", "mine")
    assert outcome.code == 2
    assert re.search(r"The file mine/\S+ cannot be written \(\w[\w ]+\): choose another folder\.$", outcome.err.strip())
