"""Folders with spaces, quotes and letters of other alphabets: checkout, extension folder and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from dprepro.new import create

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Checkout

pytestmark = pytest.mark.workflow

ODD = 'it\'s "our" $HOME; é&|<2 #%'
METHOD = {"label": "DP-GD", "algorithm": "dp_gd", "parameters": {"T": 5}}
TRIAL = {
    "paper": "own", "title": "A trial", "loss": "our_loss", "regularizer": {"l2": 0.1}, "constraint": None,
    "datasets": [{"name": "our_data", "rows": 100}], "epsilon": [1], "delta": 0.001, "variants": ["certified"],
    "replicates": 3, "tile": 8, "dtype": "float64", "algorithms": {"dp-gd": METHOD},
}  # fmt: skip
PROBLEM = {
    "title": "a problem", "metric": "optimality gap", "loss": "logistic", "regularizer": {"l2": 0.1},
    "constraint": None, "dataset": {"name": "synthetic_logistic"}, "base": {"n": 100, "d": 3, "epsilon": 1},
    "sweeps": {"n": [100, 200]},
}  # fmt: skip
SWEEP = {
    "kind": "sweeps", "paper": "own", "title": "A 'sweep' & \"more\"", "delta": 0.001, "replicates": 3, "tile": 8,
    "dtype": "float64", "problems": {"one": PROBLEM},
    "methods": {"dp-gd": {**METHOD, "variants": ["certified"], "claims": {"exponents": {"n": -1}}}},
}  # fmt: skip
WHOLE = {"kind": "parts", "paper": "own", "title": SWEEP["title"], "parts": ["our_sweep"]}


def test_no_rule_trips_over_an_odd_name(pristine: Checkout, tmp_path: Path) -> None:
    checkout = pristine.copy(tmp_path / ODD)
    folder = checkout.folder / ODD
    create("dataset", "our_data", folder)
    create("loss", "our_loss", folder)
    (folder / "experiments").mkdir()
    for name, content in {"our_trial": TRIAL, "our_sweep": SWEEP, "our_whole": WHOLE}.items():
        (folder / f"experiments/{name}.yaml").write_text(yaml.safe_dump(content))
    results = f"results/{ODD}"
    config = checkout.write_config(
        yaml.safe_dump(
            {
                "extensions": [ODD],
                "results": results,
                "experiments": ["our_trial", "our_whole"],
                "audit": {
                    "algorithms": ["dp_gd"],
                    "replicates": 200,
                    "settings": [{"variant": "certified", "epsilon": [1]}],
                },
            }
        )
    )
    outcome = checkout.snakemake(config=config)
    assert outcome.code == 0, outcome.text
    made = checkout.folder / results
    for file in (
        "report.html",
        "figures/our_trial.png",
        "figures/our_whole.svg",
        "tables/our_sweep.tex",
        "privacy/audit.csv",
    ):
        assert (made / file).stat().st_size > 0
    assert [path.name for path in (checkout.folder / "results").iterdir()] == [ODD]
    assert checkout.planned(config=config) == []
