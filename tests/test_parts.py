"""A paper's table made of parts: what is loaded, what is gathered, what the table and the figure say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from support import assert_one_sentence
from test_experiments import CONFIG, GOOD_CONFIG, GOOD_SWEEPS
from test_sweeps import experiment, run

from dprepro import tables
from dprepro.collected import read_collected
from dprepro.errors import UserError
from dprepro.experiments import load_config, load_experiments
from dprepro.stages.collect import collect_parts, collect_sweeps
from dprepro.sweeps import SweepExperiment

PARTS = {"kind": "parts", "paper": "BGM21", "title": "Table 1", "parts": ["one", "two"]}


def load(tmp_path: Path, wanted: list[str], **files: Any) -> list[Any]:
    import shutil

    folder = tmp_path / "config"
    shutil.copytree(CONFIG / "schema", folder / "schema")
    (folder / "experiments").mkdir()
    for name, content in {"one": GOOD_SWEEPS, "two": GOOD_SWEEPS, "whole": PARTS, **files}.items():
        (folder / "experiments" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    config = {**GOOD_CONFIG, "extensions": [], "experiments": wanted, "overrides": {}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return load_experiments(load_config([], folder), folder)


@pytest.mark.parametrize("wanted", [["whole"], ["two", "whole"], ["one", "two", "whole"]])
def test_parts_come_with_the_whole_and_before_it(tmp_path: Path, wanted: list[str]) -> None:
    found = load(tmp_path, wanted)
    assert sorted(e.name for e in found) == ["one", "two", "whole"]
    assert found[-1].name == "whole"
    assert found[-1].parts == ["one", "two"]
    assert found[-1].jobs() == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [(["one", "tow"], "did you mean 'two'"), (["one", "nested"], "which is no sweep"), (["one", "one"], "each once")],
)
def test_parts_that_are_none_are_named(tmp_path: Path, parts: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, ["whole"], whole={**PARTS, "parts": parts}, nested=PARTS)
    assert_one_sentence(str(caught.value))
    assert said in str(caught.value)


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two parts, the second of them with a timed problem besides, gathered into one table."""
    folder = tmp_path_factory.mktemp("parts")
    files = []
    logit = {key: value for key, value in experiment().spec["problems"]["logit"].items() if key != "nonsmooth"}
    for name, problems in (("one", {"logit": logit}), ("two", {"logit": logit, "stored": {**logit, "timed": True}})):
        spec = {**experiment(sweeps={"n": [300, 600, 1200]}).spec, "problems": problems}
        trial = SweepExperiment(name, spec, 1, "cpu")
        (folder / name).mkdir()
        for job in trial.jobs():
            run(job, folder / name)
        files.append(folder / f"{name}.parquet")
        collect_sweeps([folder / name / f"{job.id}.npz" for job in trial.jobs()], trial.claims(), files[-1])
    collect_parts(files, "BGM21", "Table 1", folder / "whole.parquet")
    return folder


def test_gathering_keeps_every_row_and_what_is_said_of_each_part(gathered: Path) -> None:
    frame, metadata = read_collected(gathered / "whole.parquet")
    parts = [read_collected(gathered / f"{name}.parquet") for name in ("one", "two")]
    pd.testing.assert_frame_equal(frame, pd.concat([part for part, _ in parts], ignore_index=True))
    assert metadata["parts"] == {"one": parts[0][1], "two": parts[1][1]}
    assert list(metadata["problems"]) == ["one/logit", "two/logit", "two/stored"]
    assert metadata["origins"] == parts[0][1]["origins"]


def test_the_table_has_the_exponents_of_the_first_and_the_times_of_the_second(gathered: Path) -> None:
    tables.write("whole", gathered / "whole.parquet", gathered / "whole.csv")
    rows = pd.read_csv(gathered / "whole.csv")
    assert list(rows["part"] + "/" + rows["problem"] + ": " + rows["quantity"]) == [
        "one/logit: optimality gap: exponent in n",
        "one/logit: gradient evaluations: exponent in n",
        "two/logit: optimality gap: exponent in n",
        "two/logit: gradient evaluations: exponent in n",
        "two/stored: gradient evaluations: exponent in n",
        "two/stored: CPU seconds: exponent in n",
    ]
    assert rows["evaluations_over_n"].to_list() == [10.0] * 6
    frame, _ = read_collected(gathered / "two.parquet")
    spent = frame[frame["problem"] == "stored"].groupby("axis_value")["seconds"].first()
    slope = np.polyfit(np.log(spent.index), np.log(spent), 1)[0]
    assert rows["measured"].iloc[-1] == pytest.approx(slope, rel=1e-9)
    text = (gathered / "whole.md").read_text()
    head, _, rest = text.partition("## What the numbers say")
    full = rest.split("## Every method on every problem")[1].split("## All quantities")[0]
    times = f"| {slope:.2f} (bound 1) |"
    one, two = [line for line in head.splitlines() if line.startswith("| a trial | DP-GD | published | 1/n^2 |")]
    assert times in two
    assert times not in one
    assert "yes: evaluations n^1.00, at most 10 n, 1 n samples" in one
    assert "predicted" not in rest.split("## Every method")[0], "no sentence speaks of the time"
    assert [times in line for line in full.splitlines() if "DP-GD" in line] == [False, False, True]
