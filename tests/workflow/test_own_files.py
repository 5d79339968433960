"""Own files in the workflow: all kinds join one experiment, jobs see them, an edit repeats what it concerns."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from dprepro import extensions
from dprepro.collected import read_collected
from dprepro.experiments import dataset_key
from dprepro.new import create

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = pytest.mark.workflow

CONFIG = """
extensions: [our files]
results: results/smoke
experiments: [our_trial, our_sweep]
audit: {algorithms: [our_gd], replicates: 1000, settings: [{variant: certified, epsilon: [1]}]}
"""
TRIAL = """
paper: own
title: A trial of files of our own
loss: our_loss
regularizer: {}
constraint: null
datasets: [{name: our_data, rows: 200, parameters: {spread: 0.3}}]
epsilon: [1]
delta: 0.001
variants: [certified]
replicates: 4
tile: 8
dtype: float32
algorithms:
  our-gd: {label: our method, algorithm: our_gd, parameters: {T: 5}}
  jl: {label: our method embedded, algorithm: jl_our_gd, parameters: {T: 5, k: 2, clip: rows}}
  dp-gd: {label: DP-GD, algorithm: dp_gd, parameters: {T: 5}}
"""
SWEEP = """
kind: sweeps
paper: own
title: A sweep of files of our own
delta: 0.001
replicates: 4
tile: 8
dtype: float64
problems:
  ours:
    title: our data
    metric: optimality gap
    loss: our_loss
    regularizer: {l2: 0.1}
    constraint: null
    dataset: {name: our_data}
    base: {n: 100, epsilon: 1}
    sweeps: {n: [100, 200]}
methods:
  our-gd: {label: our method, algorithm: our_gd, variants: [certified], parameters: {T: 5}}
  dp-gd: {label: DP-GD, algorithm: dp_gd, variants: [certified], parameters: {T: 5}}
"""
DATA = dataset_key({"name": "our_data", "rows": 200, "parameters": {"spread": 0.3}})


@pytest.fixture(scope="module")
def ours(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout with own files of every kind, in which the workflow has run. The folder's name has a space."""
    checkout = pristine.copy(tmp_path_factory.mktemp("ours") / "checkout")
    folder = checkout.folder / "our files"
    for kind, name in (("algorithm", "our_gd"), ("dataset", "our_data"), ("loss", "our_loss")):
        create(kind, name, folder)
    (folder / "experiments").mkdir()
    (folder / "experiments/our_trial.yaml").write_text(TRIAL)
    (folder / "experiments/our_sweep.yaml").write_text(SWEEP)
    assert extensions.VARIABLE not in checkout.environment, "jobs are told of the folder by the workflow"
    outcome = checkout.snakemake(config=checkout.write_config(CONFIG))
    assert outcome.code == 0, outcome.text
    return checkout


def test_own_files_join_figures_tables_certificates_audits_and_the_report(ours: Checkout) -> None:
    table = pd.read_csv(ours.results / "tables/our_trial.csv")
    assert list(dict.fromkeys(table["method"])) == ["our method", "our method embedded", "DP-GD"]
    assert set(table["privacy"]) == {"certified"}
    assert "our method" in (ours.results / "figures/our_trial.svg").read_text()
    certificates = pd.read_csv(ours.results / "privacy/certificates.csv")
    assert set(certificates["algorithm"]) == {"our_gd", "jl_our_gd", "dp_gd"}
    (audit,) = pd.read_csv(ours.results / "privacy/audit.csv").to_dict("records")
    assert audit["algorithm"] == "our_gd"
    assert 0.0 <= audit["epsilon_audited"] <= audit["epsilon_accounted"] <= 1.0
    assert "A trial of files of our own" in (ours.results / "report.html").read_text()


def test_results_record_the_own_files_that_made_them_and_no_others(ours: Checkout) -> None:
    def recorded(name: str) -> list[dict[str, str]]:
        return json.loads((ours.results / name).read_text())["provenance"].get("extensions", [])

    folder = ours.folder / "our files"
    loss_and_data = ["datasets/our_data.py", "losses/our_loss.py"]
    found = recorded(f"runs/our_trial/our-gd.{DATA}.certified.eps1.json")
    assert [one["file"] for one in found] == ["algorithms/our_gd.py", *loss_and_data]
    assert all(one["sha256"] == hashlib.sha256((folder / one["file"]).read_bytes()).hexdigest() for one in found)
    without = recorded(f"runs/our_trial/dp-gd.{DATA}.certified.eps1.json")
    assert [one["file"] for one in without] == loss_and_data
    assert recorded("sweeps/our_sweep/our-gd.ours.certified.json") == found
    assert recorded("privacy/audits/our_gd.json") == found[:1]
    for experiment in ("our_trial", "our_sweep"):
        assert read_collected(ours.results / f"data/{experiment}.parquet")[1]["extensions"] == found
        caption = (ours.results / f"figures/{experiment}.md").read_text()
        assert re.findall(r"own file (\S+) \(sha256 (\w{12})\)", caption) == [
            (one["file"], one["sha256"][:12]) for one in found
        ]


FOLLOWING = [
    line
    for name, what in (("our_trial", "runs"), ("our_sweep", "sweeps"))
    for line in (f"Collecting the {what} of {name}", f"Drawing {name}", f"Writing the table of {name}")
]
FOLLOWING += ["Writing the tables of certificates and audits", "Writing the report"]


def runs_of(*entries: str) -> list[str]:
    jobs = [f"our_trial: {entry}.{DATA}.certified.eps1" for entry in entries]
    return [f"{verb} {job}" for verb in ("Certifying", "Running") for job in jobs]


def sweeps_of(*entries: str) -> list[str]:
    return [f"Sweeping our_sweep: {entry}.ours.certified" for entry in entries]


EDITS = {
    "algorithms/our_gd.py": [*runs_of("our-gd", "jl"), *sweeps_of("our-gd"), "Auditing our_gd"],
    "losses/our_loss.py": [
        *runs_of("our-gd", "jl", "dp-gd"),
        *sweeps_of("our-gd", "dp-gd"),
        f"Finding the non-private optimum of our_trial on {DATA}",
        "Finding the minima of our_sweep: ours",
    ],
    "datasets/our_data.py": [
        *runs_of("our-gd", "jl", "dp-gd"),
        *sweeps_of("our-gd", "dp-gd"),
        f"Preparing dataset {DATA}",
        f"Finding the non-private optimum of our_trial on {DATA}",
        "Finding the minima of our_sweep: ours",
    ],
}


@pytest.mark.parametrize("file", EDITS)
def test_an_edit_of_an_own_file_repeats_its_jobs_and_no_other(file: str, ours: Checkout, tmp_path: Path) -> None:
    checkout = ours.copy(tmp_path / "checkout")
    path = checkout.folder / "our files" / file
    path.write_text(f"{path.read_text()}\nADDED = 1\n")
    planned = [re.sub(r"(: ours)\.\w+$", r"\1", job) for job in checkout.planned(config="mine.yaml")]
    assert sorted(planned) == sorted([*EDITS[file], *FOLLOWING])


def test_comments_in_own_files_and_another_place_of_the_folder_repeat_nothing(ours: Checkout, tmp_path: Path) -> None:
    checkout = ours.copy(tmp_path / "checkout")
    path = checkout.folder / "our files/algorithms/our_gd.py"
    path.write_text(f"{path.read_text()}\n# A remark.\n")
    (checkout.folder / "our files").rename(tmp_path / "elsewhere")
    config = checkout.write_config(CONFIG.replace("our files", str(tmp_path / "elsewhere")))
    assert checkout.planned(config=config) == []


def test_a_broken_own_file_ends_snakemake_with_one_sentence_before_any_job(checkout: Checkout) -> None:
    create("algorithm", "our_gd", checkout.folder / "our files")
    path = checkout.folder / "our files/algorithms/our_gd.py"
    path.write_text(path.read_text().replace("import math\n", "import no_such_module\n"))
    config = checkout.write_config("extensions: [our files]\nresults: results/smoke\n")
    before = checkout.everything()
    outcome = checkout.snakemake(config=config)
    assert outcome.code == 2
    (sentence,) = outcome.sentences
    assert "our files/algorithms/our_gd.py cannot be imported" in sentence
    assert "No module named 'no_such_module' at our files/algorithms/our_gd.py:5; correct it." in sentence
    assert "Traceback" not in outcome.text
    assert checkout.everything() == before
