"""Out of memory: smaller temporaries with the same bits, then a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import make_problem

from dprepro import run
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.arrays import CPU_BUDGET_BYTES, get_backend
from dprepro.files import read_json
from dprepro.privacy.events import DisjointGaussianEvent, TreeEvent
from dprepro.privacy.mechanisms import TREE_STEPS, DisjointGaussianMechanism, Slots, TreeMechanism
from dprepro.problems.erm import EmpiricalRisk
from dprepro.stages.certify import certify_job
from dprepro.stages.dataset import prepare
from dprepro.stages.run import run_job

# A block of noise has 256 steps of 8 replicates: 66 MB in single precision, and twice that in double precision.
FEATURES = 8_000
DATASET = {"name": "synthetic_logistic", "rows": 20, "parameters": {"features": FEATURES}}
JOB = {
    "experiment": "wyx17_fig1", "job": "a", "entry": "a", "label": "DP-GD", "paper": "WYX17", "title": "A test",
    "algorithm": "dp_gd", "parameters": {"T": 256}, "variant": "published", "epsilon": 1.0, "delta": 0.001,
    "replicates": 1, "tile": 8, "dtype": "float64", "device": "cpu", "seed": 5, "loss": "logistic",
    "regularizer": {"l2": 0.1}, "constraint": None, "dataset": "small",
}  # fmt: skip
# The stage in a process that may take so many MB more than it has after its first matrix product.
LIMITED = """
import resource, sys
from pathlib import Path
from dprepro import cli
import dprepro.stages.run
import numpy as np
np.ones((64, 64)) @ np.ones((64, 64))
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = size + int(sys.argv[1]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset and a plan whose noise takes much memory."""
    folder = tmp_path_factory.mktemp("memory")
    prepare(DATASET, folder / "small.npz")
    certify_job(JOB, folder / "small.json", folder / "plan.json")
    return folder


def run_with(megabytes: int, folder: Path, out: Path) -> tuple[int, str]:
    """Run the job in a process with so much memory for itself; return its exit code and what it said."""
    command = [sys.executable, "-c", LIMITED, str(megabytes)]
    words = ["run", "--plan", str(folder / "plan.json"), "--data", str(folder / "small.npz"), "--out", str(out)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not say how large a process is")
def test_a_run_short_of_memory_makes_do_with_less_and_has_the_same_bits(job: Path, tmp_path: Path) -> None:
    run_job(job / "plan.json", job / "small.npz", tmp_path / "usual.npz")
    assert "temporaries_cut" not in read_json(tmp_path / "usual.json")["provenance"]
    code, said = run_with(120, job, tmp_path / "short.npz")
    assert (code, said) == (0, "")
    assert read_json(tmp_path / "short.json")["provenance"]["temporaries_cut"] in (4, 16)
    assert (tmp_path / "short.npz").read_bytes() == (tmp_path / "usual.npz").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not say how large a process is")
def test_a_run_that_fits_into_no_memory_fails_with_a_sentence(job: Path, tmp_path: Path) -> None:
    code, said = run_with(12, job, tmp_path / "none.npz")
    assert code == 1
    assert said.startswith("dprepro: ")
    assert said.count("\n") == 1, said
    assert "ut of memory" in said
    assert "Unable to allocate" in said, "how much was asked for"
    assert "give the job more memory" in said
    assert list(tmp_path.iterdir()) == []


class Short:
    """Stands for an allocation that fails: the first `fails` runs of an algorithm find no memory."""

    def __init__(self, algorithm, fails: int) -> None:
        self._run, self.fails, self.cuts = algorithm.run, fails, []

    def __call__(self, plan, ex):
        self.cuts.append(ex._backend.cut)
        if len(self.cuts) <= self.fails:
            raise MemoryError("Unable to allocate 3.00 GiB")
        return self._run(plan, ex)


def executed(monkeypatch: pytest.MonkeyPatch, fails: int, name: str = "dp_gd", backend=None, n: int = 60, **letters):
    """Run an algorithm whose first attempts fail; return its result and the cuts of all attempts."""
    problem, algorithm = make_problem(n=n, d=5, backend=backend), get_algorithm(name)
    plan = algorithm.plan(Setting(problem.spec, 1.0, 1e-3, "published"), **letters)
    short = Short(algorithm, fails)
    monkeypatch.setattr(type(algorithm), "run", lambda self, *arguments: short(*arguments))
    return run.execute(plan, problem, seed=3, replicates=range(10), tile=8), short.cuts


def test_what_was_cut_stays_so_for_the_tiles_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    result, cuts = executed(monkeypatch, 1, T=300)
    assert cuts == [1, 4, 4]
    assert (result.cut, result.circumstances) == (4, {"temporaries_cut": 4})


def test_after_two_cuts_it_gives_up_and_says_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(run.RunFailed, match=r"dp_gd ran out of memory .* 16 times smaller .*3\.00 GiB.*more memory"):
        executed(monkeypatch, 3, T=10)


@pytest.mark.parametrize(
    ("name", "letters", "problem"),
    [
        ("dp_gd", {"T": 300}, {}),
        ("dp_svrg", {"T": 2, "m": 300, "eta": 0.05}, {}),
        ("dp_sgd", {"T": 300}, {}),
        ("spiderboost", {"T": 40, "q": 5}, {"regularizer": 0.0}),
        ("phased_sgd", {}, {"regularizer": 0.0, "constraint": "l2_ball:1"}),
    ],
)
def test_blocks_of_noise_of_any_length_give_the_same_bits(name: str, letters: dict, problem: dict) -> None:
    whole = make_problem(n=256, d=5, **problem)
    plan = get_algorithm(name).plan(Setting(whole.spec, 1.0, 1e-3, "published"), **letters)
    usual = run.execute(plan, whole, seed=3, replicates=range(3), tile=8)
    for cut in (4, 16, 256):
        short = make_problem(n=256, d=5, backend=replace(whole.backend, cut=cut), **problem)
        short = run.execute(plan, short, seed=3, replicates=range(3), tile=8)
        assert np.array_equal(short.w, usual.w)
        assert np.array_equal(short.objective, usual.objective)


@pytest.mark.parametrize("steps", [1, 2, 8, 32])
def test_trees_and_disjoint_batches_draw_the_same_noise_in_blocks_of_any_length(steps: int) -> None:
    tree_event = TreeEvent("tree", 1.0, 1.0, 75, 1)
    disjoint_event = DisjointGaussianEvent("disjoint", (1.0,), (1.0,), 75)

    def drawn(cut: int) -> list[np.ndarray]:
        slots = Slots(3, (0, 1, None), replace(get_backend("cpu", "float64"), cut=cut))
        tree, disjoint = TreeMechanism(tree_event, 4, slots), DisjointGaussianMechanism(disjoint_event, 4, slots)
        tree.start()
        return [*(tree.add(np.zeros((3, 4))) for _ in range(75)), *(disjoint.noise(0) for _ in range(75))]

    usual, short = drawn(1), drawn(TREE_STEPS // steps)
    assert all(np.array_equal(one, other) for one, other in zip(usual, short, strict=True))
    assert not np.array_equal(usual[0], usual[1])


def test_on_a_cpu_blocks_shrink_twice_and_chunks_never() -> None:
    cpu = get_backend("cpu", "float64")
    once = cpu.smaller(10**6, 64)
    assert (once.cut, once.smaller(10**6, 64).cut, once.smaller(10**6, 64).smaller(10**6, 64)) == (4, 16, None)
    assert once.budget == cpu.budget == CPU_BUDGET_BYTES
    assert [once.steps(256), once.steps(3), cpu.steps(256)] == [64, 1, 256]


def test_on_a_gpu_chunks_are_halved_down_to_64_rows() -> None:
    """From what the data fill of them: a budget of gigabytes need not be halved in vain for a thousand rows."""
    backend, rows = replace(get_backend("cpu", "float64"), budget=1 << 32, halves=True), []
    while backend is not None:
        rows.append(min(1000, backend.chunk_rows(64)))
        backend = backend.smaller(1000, 64)
    assert rows == [1000, 500, 250, 125, 64]
    few = replace(get_backend("cpu", "float64"), budget=1 << 32, halves=True)
    assert few.smaller(50, 64).cut == 2, "with few rows blocks of noise are left to be shortened"


@pytest.mark.parametrize(("fails", "chunk"), [(1, 100), (2, 64)])
def test_a_gpu_out_of_memory_goes_on_with_half_the_chunk_and_says_so(
    monkeypatch: pytest.MonkeyPatch, fails: int, chunk: int
) -> None:
    gpu = replace(get_backend("cpu", "float64"), budget=1 << 30, halves=True)
    result, cuts = executed(monkeypatch, fails, T=10, backend=gpu, n=200)
    assert cuts == [2**attempt for attempt in range(fails + 1)] + [2**fails]
    assert result.circumstances == {"temporaries_cut": 2**fails, "chunk_rows": chunk}


def test_what_judges_a_run_in_double_precision_spares_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = replace(get_backend("cpu", "float32"), budget=1 << 30, halves=True)
    problem, objective = make_problem(n=200, d=5, backend=gpu), EmpiricalRisk.objective
    plan = get_algorithm("dp_gd").plan(Setting(problem.spec, 1.0, 1e-3, "published"), T=10, output="uniform")

    def short(self, W):
        if self.chunk_rows(W.shape[0]) > 100:
            raise MemoryError("Unable to allocate 3.00 GiB")
        return objective(self, W)

    monkeypatch.setattr(EmpiricalRisk, "objective", short)
    assert run.execute(plan, problem, seed=3, replicates=range(3), tile=8).chunk_rows == 100


def test_a_gpu_out_of_memory_with_the_smallest_chunks_fails_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = replace(get_backend("cpu", "float64"), budget=1 << 30, halves=True)
    expected = (
        r"dp_gd ran out of memory .* 16 times smaller than usual and chunks of 64 rows \(Unable .* 3\.00 GiB\): give"
    )
    with pytest.raises(run.RunFailed, match=expected):
        executed(monkeypatch, 9, T=10, backend=gpu, n=200)


def test_memory_that_cupy_keeps_is_given_back_before_a_second_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy holds freed memory in a pool, which a smaller array of another size may not find its place in."""
    import sys
    import types

    freed: list[bool] = []
    pool = types.SimpleNamespace(free_all_blocks=lambda: freed.append(True))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(get_default_memory_pool=lambda: pool))
    gpu = replace(get_backend("cpu", "float64"), name="cupy", budget=1 << 30, halves=True)
    assert gpu.smaller(1000, 64) is not None
    assert freed == [True]


def test_out_of_memory_in_any_stage_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from dprepro import cli
    from dprepro.stages import dataset

    def too_much(*_: object) -> None:
        raise MemoryError("Unable to allocate 9.00 GiB")

    monkeypatch.setattr(dataset, "write_arrays", too_much)
    words = ["dataset", "--spec", json.dumps({"name": "digits", "rows": 20}), "--out", str(tmp_path / "d.npz")]
    assert cli.main(words) == 1
    assert capsys.readouterr().err == (
        "dprepro: Out of memory (Unable to allocate 9.00 GiB): give the job more memory, fewer rows or features, or a "
        "narrower tile.\n"
    )
