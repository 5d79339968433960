"""The benchmarks at a tiny size: every script runs and writes what docs/performance.md promises. No time is judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from support import require

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers"
COLUMNS = ["case", "variant", "measure", "unit", "value", "dtype", "n", "d", "K", "aim", "reached"]
TINY = ("--rows", "400", "--rounds", "1", "--steps", "20")


def bench(script: str, out: Path, *options: str) -> str:
    """Run a benchmark and return what it prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--out", str(out), *TINY, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(out: Path, name: str) -> pd.DataFrame:
    frame = pd.read_csv(out / f"{name}.csv", keep_default_na=False)
    assert list(frame.columns) == COLUMNS
    assert (frame["reached"].isin(["yes", "no"]) == (frame["aim"] != "")).all()
    return frame


def ratios(frame: pd.DataFrame) -> dict[tuple[str, str, str], str]:
    """The aims of a table by case, variant and floating-point type."""
    aimed = frame[frame["aim"] != ""]
    return dict(zip(zip(aimed["case"], aimed["variant"], aimed["dtype"], strict=True), aimed["aim"], strict=True))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables that the figure shows, the peers left out."""
    folder = tmp_path_factory.mktemp("benchmarks")
    bench("engine.py", folder)
    bench("growth.py", folder)
    bench("peers.py", folder, "--peers", str(folder / "nowhere"))
    return folder


def test_the_engine_is_held_against_plain_numpy_its_products_and_the_limits(out: Path) -> None:
    frame = table(out, "engine")
    assert ratios(frame) == {
        ("full gradient", "engine / plain NumPy", "float32"): ">= 8",
        ("full gradient", "engine / plain NumPy", "float64"): ">= 7",
        ("full gradient", "engine / its matrix products", "float32"): "<= 1.35",
        ("full gradient", "engine / its matrix products", "float64"): "<= 1.5",
        ("one-sample loop", "engine", "float32"): ">= 1.2",
        ("one-sample loop", "block noise / library's normals", "float32"): ">= 1.3",
    }
    limits = frame[frame["variant"].isin(["square matrices", "raw Philox words", "library's normals"])]
    assert set(limits["unit"]) == {"GF/s", "million"}
    assert (frame["value"] > 0).all()


def test_a_ratio_is_that_of_the_times_beside_it(out: Path) -> None:
    frame = table(out, "engine")
    single = frame[(frame["case"] == "full gradient") & (frame["dtype"] == "float32")].set_index(["variant", "measure"])
    time = single["value"].xs("time per replicate-step", level="measure")
    ratio = single["value"].loc[("engine / plain NumPy", "speed")]
    assert ratio == pytest.approx(time["plain NumPy, one replicate"] / time["engine"], rel=1e-4)


def test_the_machine_is_described_beside_the_numbers(out: Path) -> None:
    facts = pd.read_csv(out / "machine.csv", dtype=str, keep_default_na=False).set_index("fact")["value"]
    assert {"processor", "cores", "blas", "blas_kernel", "numpy", "commit", "load_at_start"} <= set(facts.index)
    assert facts["blas_threads"] == "1"


def test_growth_has_times_exponents_and_memory(out: Path) -> None:
    frame = table(out, "growth")
    assert set(frame["measure"]) == {
        "time per replicate-step",
        "exponent in n",
        "exponent in d",
        "peak memory",
        "memory before the data",
        "ten times the replicates",
    }
    peaks = frame[frame["measure"] == "peak memory"]
    assert len(peaks) == 2 * 4 * 2
    assert set(peaks["dtype"]) == {"float32", "float64"}
    assert (peaks["value"].to_numpy() > frame[frame["measure"] == "memory before the data"]["value"].to_numpy()).all()


def test_without_the_peers_one_sentence_says_so_and_the_rest_goes_on(out: Path, tmp_path: Path) -> None:
    said = bench("peers.py", tmp_path, "--peers", str(tmp_path / "nowhere")).splitlines()[0]
    assert said.endswith("could not be installed (`make .venv-peers/.installed-peers` says why): left out.")
    assert table(tmp_path, "peers").empty
    bench("figure.py", out)
    assert all((out / f"speed.{suffix}").stat().st_size > 0 for suffix in ("png", "pdf", "svg"))
    assert "Made by `make bench` on" in (out / "speed.md").read_text(encoding="utf-8")


def test_the_peers_run_in_turns_with_the_engine(tmp_path: Path) -> None:
    require("peers", (PEERS / ".installed-peers").exists(), "make .venv-peers/.installed-peers was not run")
    bench("peers.py", tmp_path, "--peers", os.path.relpath(PEERS))
    frame = table(tmp_path, "peers")
    assert {"engine", "plain PyTorch", "Opacus, all rows at once"} <= set(frame["variant"])
    assert set(ratios(frame).values()) == {">= 60", ">= 25"}
    assert set(frame["case"]) == {"private step", "private fit"}


def test_the_certificates_of_points_are_timed(tmp_path: Path) -> None:
    bench("goldstein.py", tmp_path, "--rows", "2")
    assert set(table(tmp_path, "goldstein")["d"]) == {2, 8, 32, 64}


@pytest.mark.workflow
def test_the_cost_of_snakemake_is_held_against_one_process(tmp_path: Path) -> None:
    bench("overhead.py", tmp_path)
    frame = table(tmp_path, "overhead").set_index(["variant", "measure"])["value"]
    assert frame["both", "jobs"] == 17
    assert frame["Snakemake, one core", "wall time"] > frame["a run job without work", "wall time"] > 0
    assert frame["Snakemake without its jobs", "wall time per job"] > 0
    assert frame["one process", "CPU time"] > 0
