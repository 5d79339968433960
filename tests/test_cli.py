"""The command line: exit codes, one line for each mistake, no traceback, and a quick start."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import Outcome, Run

import dprepro
from dprepro import algorithms, datasets, losses, peers
from dprepro.cli import main
from dprepro.files import read_json

ROOT = Path(__file__).parents[1]
COLUMNS = ["height", "width", "depth"]


def run_apart(*arguments: object, cwd: Path = ROOT) -> Outcome:
    """Run a command in a process of its own, as a user does."""
    command = [sys.executable, "-m", "dprepro", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def python(program: str, *arguments: object, cwd: Path = ROOT) -> str:
    """Run a program in a process of its own and return what it prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same 200 rows as CSV, npz and parquet."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 3))
    X /= np.linalg.norm(X, axis=1)[:, None] * 1.001
    y = np.where(X[:, 0] > 0, 1, -1)
    frame = pd.DataFrame(X, columns=COLUMNS).assign(outcome=y)
    frame.to_csv(folder / "d.csv", index=False, float_format="%.17g")
    frame.to_parquet(folder / "d.parquet")
    np.savez(folder / "d.npz", X=X, y=y)
    np.savez_compressed(folder / "packed.npz", X=X, y=y)
    frame[["outcome", *COLUMNS]].to_csv(folder / "first.csv", index=False, float_format="%.17g")
    frame.rename(columns={"outcome": "y"})[["y", *COLUMNS]].to_csv(folder / "y.csv", index=False, float_format="%.17g")
    frame.assign(outcome=(y + 1) // 2).to_csv(folder / "zero_one.csv", index=False, float_format="%.17g")
    return folder


PRIVACY = ("--epsilon", "2", "--delta", "0.0001", "--variant", "published")
STEPS = ("--set", "T=4")


def solution_of(data: Path, name: str, run: Run, tmp_path: Path, *more: object) -> bytes:
    """Return the bytes of the solution that `solve` writes for a data file."""
    out = tmp_path / f"{name}.out.npz"
    outcome = run("solve", "dp_gd", "--data", data / name, *PRIVACY, *STEPS, *more, "--out", out, "--force")
    assert outcome.code == 0, outcome.err
    return out.read_bytes()


def test_list_algorithms_gives_a_line_each_with_letters_and_needs(run: Run) -> None:
    outcome = run("list", "algorithms")
    assert outcome.code == 0
    assert outcome.err == ""
    lines = {line.split()[0]: line for line in outcome.out.splitlines()}
    assert list(lines) == [*algorithms.names(), "jl_<name>", *peers.names()]
    assert (
        "letters: T, m, b, eta, c, step, r, sampling, fall; needs: convex, lipschitz, smooth, strongly_convex"
        in lines["dp_svrg"]
    )


def test_list_datasets_gives_a_line_each_with_its_size(run: Run) -> None:
    outcome = run("list", "datasets")
    lines = {line.split()[0]: line for line in outcome.out.splitlines()}
    assert list(lines) == datasets.names()
    assert "581012 x 54" in lines["covertype"]
    assert "any x any" in lines["synthetic_logistic"]


def test_list_losses_gives_a_line_each_with_what_it_is_and_its_parameter(run: Run) -> None:
    outcome = run("list", "losses")
    assert (outcome.code, outcome.err) == (0, "")
    lines = {line.split()[0]: line for line in outcome.out.splitlines()}
    assert list(lines) == [*losses.names(), "moreau:BETA:LOSS"]
    assert {"logistic", "huber", "valley", "relu_network"} < set(lines)
    assert " convex, smooth; parameter: width = 1; r^2 / 2 for |r| <= width" in lines["huber"]
    assert " convex, not smooth; |t - y|. " in lines["absolute"]
    assert " not convex, smooth; 1 / (1 + exp(y t))" in lines["sigmoid"]


def test_list_experiments_and_targets_are_what_the_workflow_makes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    experiments = [line.split()[0] for line in run("list", "experiments").out.splitlines()]
    assert experiments == sorted(path.stem for path in (ROOT / "config/experiments").glob("*.yaml"))
    everything = ["figures", "tables", "findings", "privacy", "audit", "report", "all"]
    assert run("list", "targets").out.splitlines() == [*experiments, *everything]


@pytest.mark.parametrize(("more", "said"), [
    (["--set", "rank=2"], "jl_spiderboost (certified), n = 10000, d = 500"),
    (["--set", "k=30", "--regularizer", "0"], "letters              k = 30, rank = None, clip = rows"),
])  # fmt: skip
def test_account_takes_the_jl_method_around_an_algorithm_by_its_own_name(run: Run, more: list[str], said: str) -> None:
    problem = ["--n", "10000", "--d", "500", "--epsilon", "1", "--delta", "1e-5", "--variant", "certified"]
    outcome = run("account", "jl_spiderboost", *problem, *more)
    assert outcome.code == 0, outcome.err
    assert said in outcome.out
    assert "verdict              certified" in outcome.out


@pytest.mark.parametrize(("name", "more", "said"), [
    ("jl_spiderboos", [], "Unknown algorithm 'jl_spiderboos': did you mean jl_spiderboost?"),
    ("jl_noisy_gd", [], "cannot wrap noisy_gd, which needs a constraint set: choose another algorithm."),
    ("jl_dp_gd", ["--set", "q=1"], "jl_dp_gd has no parameter 'q': it takes clip, k, rank, and of dp_gd F0, T, c, eta"),
    ("jl_dp_gd", ["--set", "rank=2", "--regularizer", "0.1"], "jl_dp_gd takes no regularizer"),
    ("tree_spider", [], "tree_spider would return its initial point at n = 10000"),
    ("o2nc_multi_pass", ["--set", "T=8", "--set", "D=0.1"], "D = 0.1 leaves no window within alpha = 0.1: give D <= "),
])  # fmt: skip
def test_account_says_in_one_line_what_is_wrong_with_a_wrapped_or_vacuous_plan(
    run: Run, name: str, more: list[str], said: str
) -> None:
    outcome = run("account", name, "--n", "10000", "--d", "500", "--epsilon", "1", "--delta", "1e-5", *more)
    assert outcome.code == 2
    assert outcome.out == ""
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("what", ["experiments", "targets"])
def test_outside_a_checkout_the_list_says_where_to_go(
    what: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(run("list", what), "run from the top of a dprepro checkout")


def test_solve_reports_objective_noise_and_what_privacy_was_really_spent(data: Path, run: Run) -> None:
    outcome = run("solve", "dp_gd", "--data", data / "d.csv", *PRIVACY, *STEPS, "--replicates", "3")
    assert outcome.code == 0
    assert outcome.err == ""
    first = outcome.out.splitlines()[0]
    assert first == "dp_gd (published), n = 200, d = 3, epsilon = 2, delta = 0.0001, replace-one neighbours"
    for part in ("objective  ", "over 3 replicates", "gradient evaluations 800", "noise sigma", "verdict  "):
        assert part in outcome.out
    assert "accounted epsilon    " in outcome.out
    assert "not for releasing data" in outcome.out
    assert "column 'outcome' was taken as the label" in outcome.out
    assert "written" not in outcome.out


def test_the_three_file_formats_give_the_same_bits(data: Path, run: Run, tmp_path: Path) -> None:
    names = ("d.csv", "d.npz", "packed.npz", "d.parquet")
    assert len({solution_of(data, name, run, tmp_path) for name in names}) == 1


def test_the_label_column_is_named_or_y_or_the_last(data: Path, run: Run, tmp_path: Path) -> None:
    expected = solution_of(data, "d.csv", run, tmp_path)
    assert solution_of(data, "first.csv", run, tmp_path, "--target", "outcome") == expected
    assert solution_of(data, "d.parquet", run, tmp_path, "--target", "outcome") == expected
    assert solution_of(data, "y.csv", run, tmp_path) == expected


def test_labels_0_and_1_are_recoded_and_reported(data: Path, run: Run, tmp_path: Path) -> None:
    assert solution_of(data, "zero_one.csv", run, tmp_path) == solution_of(data, "d.csv", run, tmp_path)
    outcome = run("solve", "dp_gd", "--data", data / "zero_one.csv", *PRIVACY, *STEPS)
    assert "labels 0 and 1 were read as -1 and +1" in outcome.out


def test_set_overrides_the_letters_of_the_paper(data: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "s.npz"
    letters = ("--set", "T=2", "--set", "m=7", "--set", "eta=0.05", "--set", "step=bb")
    command = ("solve", "dp_svrg", "--data", data / "d.csv", *PRIVACY, "--regularizer", "0.1", *letters, "--out", out)
    assert run(*command).code == 0
    plan = read_json(tmp_path / "s.json")["plan"]
    assert (plan["T"], plan["m"], plan["eta"], plan["step"]) == (2, 7, 0.05, "bb")


def test_options_reach_the_solver(data: Path, run: Run, tmp_path: Path) -> None:
    outputs = {
        solution_of(data, "d.csv", run, tmp_path, *more)
        for more in (
            (),
            ("--seed", 1),
            ("--regularizer", 0.5),
            ("--constraint", "l2_ball:0.01"),
            ("--loss", "huber"),
            ("--row-norm", 2),
            ("--dtype", "float32"),
            ("--replicates", 2),
            ("--set", "eta=0.5"),
        )
    }
    assert len(outputs) == 9


def test_out_writes_the_solution_and_its_certificate(data: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "new" / "solution.npz"
    command = ("solve", "dp_gd", "--data", data / "d.csv", *PRIVACY, *STEPS, "--replicates", 2, "--out", out)
    outcome = run(*command)
    assert f"written              {out} and {out.with_suffix('.json')}" in outcome.out
    assert sorted(os.listdir(out.parent)) == ["solution.json", "solution.npz"]
    with np.load(out) as arrays:
        assert arrays["w"].shape == (2, 3)
        assert arrays["objective"].shape == (2, 5)
        assert arrays["final_objective"].tolist() == arrays["objective"][:, -1].tolist()
        assert arrays["rounds"].tolist() == [0, 1, 2, 3, 4]
        assert arrays["gradient_evaluations"].tolist() == [0, 200, 400, 600, 800]
    record = read_json(out.with_suffix(".json"))
    assert record["plan"]["T"] == 4
    assert record["certificate"]["epsilon_claimed"] == 2.0
    assert record["provenance"]["dprepro"] == dprepro.__version__


def test_solve_and_account_print_and_write_evaluations_of_the_loss(data: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "s.npz"
    letters = {"alpha": 0.5, "D": 0.1, "M": 2, "T": 8, "Sigma": 4, "B1": 12, "B2": 6}
    options = [word for key, value in letters.items() for word in ("--set", f"{key}={value}")]
    common = ("--loss", "absolute", "--variant", "certified", "--epsilon", "2", "--delta", "1e-4", *options)
    solved = run("solve", "o2nc_zero_order", "--data", data / "d.csv", "--regularizer", "0", *common, "--out", out)
    planned = run("account", "o2nc_zero_order", "--n", "200", "--d", "3", *common)
    for outcome in (solved, planned):
        assert outcome.code == 0, outcome.err
        assert "function evaluations 576\n" in outcome.out
    with np.load(out) as arrays:
        assert arrays["function_evaluations"].tolist() == [0, 72, 144, 216, 288, 360, 432, 504, 576]
    assert "function evaluations" not in run("account", "dp_gd", "--n", "9", "--d", "3", *PRIVACY, *STEPS).out


def test_infinite_epsilon_is_written_as_valid_json(data: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "s.npz"
    command = ("solve", "dp_gd", "--data", data / "d.csv", "--epsilon", "inf", "--delta", "0.1", *STEPS, "--out", out)
    assert run(*command).code == 0
    text = (tmp_path / "s.json").read_text()
    assert "Infinity" not in text
    assert json.loads(text)["certificate"]["epsilon_accounted"] == "inf"


def test_a_run_that_fails_ends_with_code_1_and_one_line_of_advice(data: Path, run: Run) -> None:
    outcome = run("solve", "dp_gd", "--data", data / "d.csv", *PRIVACY, *STEPS, "--set", "c=1e9")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "1 of 1 replicates ended worse than w = 0" in outcome.err


def assert_refused(outcome: Outcome, *parts: str) -> None:
    """Check for exit code 2, one line on standard error and nothing on standard output."""
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("dprepro: ")
    assert outcome.err.endswith("\n")
    assert outcome.err.count("\n") == 1, outcome.err
    for part in parts:
        assert part in outcome.err


def damaged(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes(255 - byte for byte in content[middle : middle + 40]) + content[middle + 40 :]


def make_bad_files(good: Path, folder: Path) -> None:
    for name in ("d.npz", "packed.npz", "d.parquet"):
        content = (good / name).read_bytes()
        (folder / f"cut_{name}").write_bytes(content[: len(content) // 2])
        (folder / f"flipped_{name}").write_bytes(damaged(content))
    # The last bytes of a parquet file say where its description is; these say that it is beyond the file.
    parquet = (good / "d.parquet").read_bytes()
    (folder / "footer.parquet").write_bytes(parquet[:-8] + b"\xff\xff\xff\x7fPAR1")
    (folder / "empty.csv").write_bytes(b"")
    (folder / "header.csv").write_bytes(b"a,b,y\n")
    (folder / "narrow.csv").write_bytes(b"y\n1\n-1\n")
    (folder / "ragged.csv").write_bytes(b"a,y\n0.1,1\n0.1,1,7,8\n")
    (folder / "shifted.csv").write_bytes(b"a,b,y\n0.7,0.1,0.2,1\n0.8,0.1,0.2,-1\n")
    (folder / "binary.csv").write_bytes(bytes(range(128, 256)))
    (folder / "words.csv").write_bytes(b"size,colour,y\n0.1,red,1\n0.2,blue,-1\n")
    (folder / "labels.csv").write_bytes(b"a,y\n0.1,yes\n0.2,no\n")
    (folder / "hole.csv").write_bytes(b"a,b,y\n0.1,0.1,1\n0.2,,-1\n")
    (folder / "long.csv").write_bytes(b"a,b,y\n3.0,4.0,1\n0.2,0.1,-1\n")
    (folder / "huge.csv").write_bytes(b"a,b,y\n1e200,1e200,1\n0.2,0.1,-1\n")
    (folder / "classes.csv").write_bytes(b"a,y\n0.1,0\n0.2,1\n0.3,2\n")
    (folder / "notes.txt").write_bytes(b"a,y\n0.1,1\n")
    (folder / "folder.csv").mkdir()
    (folder / "folder.npz").mkdir()
    np.savez(folder / "no_y.npz", X=np.zeros((3, 2)))
    np.savez(folder / "objects.npz", X=np.array([["a", None]], dtype=object), y=np.ones(1))
    with (folder / "single.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    times = pd.to_datetime(["2020-01-01", "2020-01-02"])
    pd.DataFrame({"when": times, "y": [1, -1]}).to_parquet(folder / "dates.parquet")


BAD_FILES = {
    "missing.csv": "does not exist",
    "missing.npz": "does not exist",
    "cut_d.npz": "is not a readable .npz",
    "cut_packed.npz": "is not a readable .npz",
    "cut_d.parquet": "cannot be read",
    "flipped_d.npz": "is not a readable .npz",
    "flipped_packed.npz": "is not a readable .npz",
    "footer.parquet": "cannot be read",
    "empty.csv": "cannot be read",
    "header.csv": "has shape (0, 3)",
    "narrow.csv": "has shape (2, 1)",
    "ragged.csv": "cannot be read",
    "binary.csv": "is not UTF-8 text",
    "shifted.csv": "has records with more fields than names",
    "words.csv": "Column 'colour' of",
    "labels.csv": "y does not hold numbers only",
    "hole.csv": "NaN or infinite value at row 1, column 1",
    "long.csv": "Row 0 of X has a norm above the declared row_norm = 1",
    "huge.csv": "Row 0 of X has a norm above",
    "classes.csv": "y does not hold two classes",
    "notes.txt": "is not .csv, .npz or .parquet",
    "folder.csv": "cannot be read",
    "folder.npz": "is not a readable .npz",
    "no_y.npz": "has no array 'y'",
    "objects.npz": "is not a readable .npz",
    "single.npz": "is not a readable .npz",
    "dates.parquet": "Column 'when' of",
}


@pytest.fixture(scope="module")
def bad_files(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    make_bad_files(data, folder)
    return folder


@pytest.mark.parametrize(("name", "complaint"), BAD_FILES.items(), ids=BAD_FILES.keys())
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_bad_data_file_is_refused_in_one_line_and_nothing_is_written(
    name: str, complaint: str, bad_files: Path, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "s.npz"
    outcome = run("solve", "dp_gd", "--data", bad_files / name, *PRIVACY, *STEPS, "--out", out)
    assert_refused(outcome, complaint)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--set", "T"), "--set 'T' is not of the form LETTER=VALUE"),
        (("--set", "T="), "--set 'T=' is not of the form LETTER=VALUE"),
        (("--set", "=5"), "--set '=5' is not of the form LETTER=VALUE"),
        (("--set", "T=many"), "T of dp_gd is 'many': give a whole number > 0"),
        (("--set", "T=2.5"), "T of dp_gd is '2.5': give a whole number > 0"),
        (("--set", "T=-1"), "T of dp_gd is '-1'"),
        (("--set", "eta=nan"), "eta of dp_gd is 'nan'"),
        (("--set", "Q=1"), "dp_gd has no parameter 'Q': it takes F0, T, c, eta, mu, output, release"),
        (("--set", "seed=3"), "seed"),
        (("--set", "epsilon=3"), "epsilon"),
        (("--set", "X=3"), "dp_gd has no parameter 'X'"),
        (("--set", "output=best"), "use one of last, uniform"),
        (("--target", "weight"), "has no column 'weight': it has height, width, depth, outcome"),
        (("--epsilon", "0"), "epsilon is 0.0: give a number > 0"),
        (("--epsilon", "nan"), "epsilon is nan: give a number > 0"),
        (("--delta", "1"), "delta is 1.0"),
        (("--loss", "hinges"), "Unknown loss 'hinges'"),
        (("--variant", "improved"), "Unknown variant 'improved'"),
        (("--device", "tpu"), "Unknown device 'tpu'"),
        (("--dtype", "float16"), "Unknown floating-point type 'float16'"),
        (("--constraint", "box"), "Unknown constraint 'box'"),
        (("--l1", "0.1"), "dp_gd needs a smooth regularizer"),
        (("--regularizer", "-1"), "l2 strength of the regularizer is -1.0"),
        (("--row-norm", "0.5"), "above the declared row_norm = 0.5"),
        (("--row-norm", "0"), "row_norm is 0.0: give a positive number"),
        (("--replicates", "0"), "replicates is 0"),
        (("--seed", "-1"), "seed is -1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_bad_option_is_refused_in_one_line_and_nothing_is_written(
    options: tuple[str, ...], complaint: str, data: Path, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "s.npz"
    outcome = run("solve", "dp_gd", "--data", data / "d.csv", *PRIVACY, *STEPS, "--out", out, *options)
    assert_refused(outcome, complaint)
    assert os.listdir(tmp_path) == []


def test_a_misspelt_algorithm_is_answered_with_the_right_one(data: Path, run: Run) -> None:
    assert_refused(run("solve", "dp_dg", "--data", data / "d.csv", *PRIVACY), "did you mean dp_gd?")


@pytest.mark.parametrize("name", ["s.txt", "s", "s.npz.csv", ".npz", "file/s.npz", "file/deep/s.npz", "folder.npz"])
def test_an_output_that_cannot_be_is_refused_and_nothing_is_written(
    name: str, data: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "folder.npz").mkdir()
    assert_refused(run("solve", "dp_gd", "--data", data / "d.csv", *PRIVACY, *STEPS, "--out", tmp_path / name), name)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.npz"]
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path / "folder.npz") == []


def test_an_output_without_its_ending_is_refused_before_the_work_is_done(
    data: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the solver was started")

    monkeypatch.setattr("dprepro.api.execute", work)
    out = tmp_path / "s.txt"
    assert_refused(run("solve", "dp_gd", "--data", data / "d.csv", *PRIVACY, *STEPS, "--out", out), "does not end in")


def solving(data: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("solve", "dp_gd", "--data", data, *PRIVACY, *STEPS, "--out", out, *more)


@pytest.mark.parametrize("taken", ["s.npz", "s.json"])
@pytest.mark.parametrize("link", [False, True], ids=["file", "link that leads nowhere"])
def test_what_is_there_is_overwritten_only_by_force(
    taken: str, link: bool, data: Path, run: Run, tmp_path: Path
) -> None:
    there = tmp_path / taken
    there.symlink_to("nowhere") if link else there.write_bytes(b"old")
    outcome = run(*solving(data / "d.csv", tmp_path / "s.npz"))
    assert_refused(outcome, f"{taken} exists already: choose another name, or add --force to overwrite it.")
    assert os.listdir(tmp_path) == [taken]
    assert there.is_symlink() if link else there.read_bytes() == b"old"
    assert run(*solving(data / "d.csv", tmp_path / "s.npz", "--force")).code == 0
    assert sorted(os.listdir(tmp_path)) == ["s.json", "s.npz"]
    assert not there.is_symlink()
    assert read_json(tmp_path / "s.json")["plan"]["T"] == 4


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("way", ["its name", "another spelling", "symlink", "hard link", "link as certificate"])
def test_the_data_are_never_overwritten_whatever_they_are_called(
    way: str, force: tuple[str, ...], data: Path, run: Run, tmp_path: Path
) -> None:
    given, out = tmp_path / "d.npz", tmp_path / "s.npz"
    given.write_bytes((data / "d.npz").read_bytes())
    if way == "its name":
        out = given
    elif way == "another spelling":
        (tmp_path / "folder").mkdir()
        out = tmp_path / "folder" / ".." / "d.npz"
    elif way == "hard link":
        out.hardlink_to(given)
    else:
        (out.with_suffix(".json") if way == "link as certificate" else out).symlink_to(given)
    before = sorted(os.listdir(tmp_path))
    outcome = run(*solving(given, out, *force))
    assert_refused(outcome, f"is the same file as the input {given}: choose another name.")
    assert given.read_bytes() == (data / "d.npz").read_bytes()
    assert sorted(os.listdir(tmp_path)) == before


def test_what_appears_while_the_solver_works_is_not_overwritten(
    data: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, execute = tmp_path / "s.npz", dprepro.api.execute

    def work(*arguments: object, **options: object) -> object:
        out.write_bytes(b"new")
        return execute(*arguments, **options)

    monkeypatch.setattr("dprepro.api.execute", work)
    assert_refused(run(*solving(data / "d.csv", out)), "exists already")
    assert out.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["s.npz"]


def test_a_solution_is_written_with_its_certificate_or_not_at_all(
    data: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "s.npz"
    assert run(*solving(data / "d.csv", out)).code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dprepro.digests.seal", full)
    assert_refused(run(*solving(data / "d.csv", out, "--force", "--seed", 5)), "No space left on the disk")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_name_that_is_too_long_is_refused(data: Path, run: Run, tmp_path: Path) -> None:
    assert_refused(run(*solving(data / "d.csv", tmp_path / f"{'s' * 300}.npz")), "File name too long")


def test_what_is_said_of_bad_data_holds_none_of_their_values(run: Run, tmp_path: Path) -> None:
    rows = {
        "norm": "x,y\n31.7,1\n",
        "classes": "x,y\n0.1,31.7\n",
        "no names": "31.7,1\n0.5,1\n",
        "words": "x,y\n31.7!,1\n",
    }
    for name, text in rows.items():
        (tmp_path / "d.csv").write_text(text)
        outcome = run("solve", "dp_gd", "--data", tmp_path / "d.csv", *PRIVACY, *STEPS)
        assert outcome.code == 2, name
        said = (outcome.err + outcome.out).replace(str(tmp_path), "")
        assert "31" not in said, name


def test_a_csv_without_a_line_of_names_is_refused_and_numbered_columns_are_not(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "d.csv"
    for line in ("0.5,1", "0.0,0.0,1", "0.5,,1", "0.61,0.25,yes", "a,a"):
        width = line.count(",")
        data.write_text(f"{line}\n{'0.25,' * width}-1\n{'0.125,' * width}1\n")
        outcome = run("solve", "dp_gd", "--data", data, *PRIVACY, *STEPS)
        assert_refused(outcome, "the first line must name each column.")
        assert "0.61" not in outcome.err, "values of a record stay private"
    for line, label in (("0,1", "1"), ("1,2", "2"), ("0,y", "y")):
        data.write_text(f"{line}\n0.25,-1\n0.125,1\n")
        told = run("solve", "dp_gd", "--data", data, *PRIVACY, *STEPS).out
        assert label == "y" or f"column '{label}' was taken as the label" in told
        assert "objective" in told


def test_a_target_for_an_archive_of_arrays_is_not_ignored_in_silence(data: Path, run: Run) -> None:
    outcome = run("solve", "dp_gd", "--data", data / "d.npz", *PRIVACY, *STEPS, "--target", "weight")
    assert "weight" in outcome.err or "target" in outcome.out


def test_columns_named_by_numbers_can_be_used(data: Path, run: Run, tmp_path: Path) -> None:
    frame = pd.read_parquet(data / "d.parquet")
    frame.set_axis(range(4), axis="columns").to_parquet(tmp_path / "d.parquet")
    expected = solution_of(data, "d.parquet", run, tmp_path)
    assert solution_of(tmp_path, "d.parquet", run, tmp_path) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ("dataset", "--spec", '{"name": "covertyp"}', "--out", "d.npz"),
        ("certify", "--spec", "{}", "--facts", "missing.json", "--out", "p.json"),
        ("run", "--plan", "missing.json", "--data", "missing.npz", "--out", "r.npz"),
        ("optimum", "--spec", "{}", "--data", "missing.npz", "--out", "o.npz"),
        ("collect", "--runs", "missing.npz", "--optima", "missing.npz", "--out", "t.parquet"),
        ("figure", "wyx17_fig1", "--data", "missing.parquet", "--out", "f.png"),
        ("table", "wyx17_fig1", "--data", "missing.parquet", "--out", "t.csv"),
        ("figure", "wyx17_fig9", "--data", "missing.parquet", "--out", "f.png"),
        ("table", "wyx17_fig9", "--data", "missing.parquet", "--out", "t.csv"),
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[1]}",
)
def test_a_stage_without_its_input_is_refused_in_one_line(
    arguments: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(run(*arguments))
    assert os.listdir(tmp_path) == []


def test_an_interrupt_ends_with_code_130_and_one_line(data: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dprepro.api.execute", interrupt)
    outcome = run("solve", "dp_gd", "--data", data / "d.csv", *PRIVACY, *STEPS)
    assert outcome.code == 130
    assert outcome.err == "dprepro: interrupted; nothing half-written was left behind.\n"


def test_doctor_shows_versions_backend_and_genuine_data(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DPREPRO_OFFLINE", "1")
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("DPREPRO_DEVICE", "cpu")
    monkeypatch.delenv("DPREPRO_DATA_DIR", raising=False)
    outcome = run("doctor")
    assert outcome.code == 0
    assert outcome.err == ""
    for part in (
        f"dprepro     {dprepro.__version__}, commit ",
        f"package     numpy {np.__version__}",
        "variable    DPREPRO_OFFLINE=1",
        "backend     numpy on cpu: cpu asked for by DPREPRO_DEVICE",
        "data        covertype: genuine, from embedded",
        "data        adult: genuine, from embedded",
    ):
        assert part in outcome.out


def test_a_user_sees_exit_codes_and_no_traceback(data: Path, tmp_path: Path) -> None:
    good = run_apart("solve", "dp_gd", "--data", data / "d.npz", *PRIVACY, *STEPS, cwd=tmp_path)
    assert good.code == 0, good.err
    assert_refused(run_apart("solve", "dp_gd", "--data", "none.csv", *PRIVACY, cwd=tmp_path), "none.csv")
    failed = run_apart("solve", "dp_gd", "--data", data / "d.npz", *PRIVACY, *STEPS, "--set", "c=1e9", cwd=tmp_path)
    assert failed.code == 1
    assert "Traceback" not in failed.err


@pytest.mark.parametrize("arguments", [(), ("fry",), ("list", "cakes"), ("solve", "dp_gd")], ids=" ".join)
def test_wrong_usage_ends_with_code_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: dprepro")
    assert "Traceback" not in captured.err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"dprepro {dprepro.__version__}\n"


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m dprepro list datasets | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


MODULES = "import sys\nprint(*sys.modules)"
HELP = "from dprepro.cli import main\ntry:\n    main(['solve', '--help'])\nexcept SystemExit:\n    pass\n"


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        (HELP, {"numpy", "yaml", "pandas"}),
        ("from dprepro.cli import main\nmain(['list', 'targets'])\n", {"numpy", "pandas"}),
        ("from dprepro.cli import main\nmain(['list', 'datasets'])\n", {"numpy", "pandas"}),
        ("from dprepro.cli import main\nmain(['list', 'losses'])\n", {"numpy", "pandas"}),
        ("import dprepro\n", {"numpy", "pandas"}),
        ("import dprepro.api\n", {"scipy", "pandas", "matplotlib", "sklearn", "snakemake"}),
    ],
    ids=["solve --help", "list targets", "list datasets", "list losses", "import dprepro", "import dprepro.api"],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(program: str, absent: set[str]) -> None:
    loaded = python(program + MODULES).splitlines()[-1].split()
    assert "dprepro" in loaded
    assert absent & set(loaded) == set()


def test_blas_is_held_to_one_thread_before_numpy_is_loaded() -> None:
    program = (
        "import os\nfor name in ('OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'MKL_NUM_THREADS'):\n"
        "    os.environ.pop(name, None)\nfrom dprepro.cli import main\nmain(['list', 'targets'])\n"
        "import numpy\nfrom threadpoolctl import threadpool_info\n"
        "print(max(pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == 'blas'))"
    )
    assert python(program).splitlines()[-1] == "1"


def test_an_asked_device_is_checked_as_the_environment_and_the_configuration_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dprepro.arrays.gpu_problem", lambda: "there is none")
    monkeypatch.delenv("DPREPRO_DEVICE", raising=False)
    assert main(["check-device", "--configured", "auto"]) == 0
    assert main(["check-device", "--configured", "gpu"]) == 2
    monkeypatch.setenv("DPREPRO_DEVICE", "cpu")
    assert main(["check-device", "--configured", "gpu"]) == 0
    monkeypatch.setenv("DPREPRO_DEVICE", "gpu")
    assert main(["check-device", "--configured", "cpu"]) == 2
    assert capsys.readouterr().err.count("but there is none") == 2
