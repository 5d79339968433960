"""Damaged result files: every stage that reads one names it and says what to do, without a traceback."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dprepro.cli import main
from dprepro.collected import read_collected
from dprepro.errors import UserError
from dprepro.files import read_arrays, read_json, write_record

ALGORITHM = "dp_gd"
ERRATA = Path(__file__).parents[2] / "docs" / "fidelity.md"
RUN, ATTACK = "runs/wyx17_fig1/a.npz", f"privacy/audits/{ALGORITHM}.json"
JOB = {
    "experiment": "wyx17_fig1", "job": "a", "entry": "a", "label": "Method", "paper": "WYX17", "title": "A test",
    "algorithm": ALGORITHM, "parameters": {"T": 5}, "variant": "published", "epsilon": 1.0, "delta": 0.001,
    "replicates": 2, "tile": 8, "dtype": "float64", "device": "cpu", "seed": 5, "loss": "logistic",
    "regularizer": {"l2": 0.1}, "constraint": None, "dataset": "small",
}  # fmt: skip
AUDIT = {
    "algorithm": ALGORITHM, "delta": 0.001, "replicates": 300, "seed": 0, "device": "cpu",
    "settings": [{"variant": "published", "epsilon": [1.0]}],
}  # fmt: skip
SWEEP = {
    **{key: value for key, value in JOB.items() if key not in ("parameters", "dataset", "epsilon")},
    "problem": "p", "set_here": "", "candidates": [{"T": 5}], "metric": "optimality gap",
    "points": [
        {
            "axis": "n", "value": n, "epsilon": 1.0, "seed": 1, "tuning_seed": 2, "loss": "logistic", "minimum": None,
            "regularizer": {"l2": 0.1}, "constraint": None,
            "dataset": {"name": "synthetic_logistic", "rows": n, "seed": 0, "parameters": {"features": 4}},
        }
        for n in (50, 100)
    ],
}  # fmt: skip

REPORT = {
    "experiments": [
        {
            "name": "wyx17_fig1", "paper": "WYX17", "title": "A test", "kind": "curves", "figures": ["wyx17_fig1"],
            "parts": [], "jobs": ["a"], "optima": [],
        }
    ],
    "findings": {}, "privacy": True, "audits": [ALGORITHM], "seed": 5, "absent": [], "changed": [],
}  # fmt: skip


def stages(folder: Path) -> dict[str, list[str]]:
    """Return the command of every stage that reads files, in their order."""

    def at(name: str) -> str:
        return str(folder / name)

    spec, sweep = json.dumps(JOB), json.dumps(SWEEP)
    claims = json.dumps({"problems": {}, "settings": {}, "methods": {}})
    return {
        "certify": ["certify", "--spec", spec, "--facts", at("small.json"), "--out", at("plan.json")],
        "run": ["run", "--plan", at("plan.json"), "--data", at("small.npz"), "--out", at(RUN)],
        "optimum": ["optimum", "--spec", spec, "--data", at("small.npz"), "--out", at("optima/small.npz")],
        "collect": ["collect", "--runs", at(RUN), "--optima", at("optima/small.npz"), "--out", at("c.parquet")],
        "sweep": ["sweep", "--spec", sweep, "--optima", at("minima.json"), "--out", at("s.npz"), "--sources", "0"],
        "collect-sweeps": ["collect-sweeps", "--runs", at("s.npz"), "--claims", claims, "--out", at("d.parquet")],
        "collect-parts": [
            *("collect-parts", "--data", at("d.parquet"), "--paper", "P", "--title", "T", "--out", at("e.parquet"))
        ],
        "privacy": [
            "privacy",
            "--plans",
            at("plan.json"),
            "--audits",
            at(ATTACK),
            "--out",
            at("privacy/certificates.csv"),
        ],
        "figure": ["figure", "wyx17_fig1", "--data", at("c.parquet"), "--out", at("figures/wyx17_fig1.svg")],
        "table": ["table", "wyx17_fig1", "--data", at("c.parquet"), "--out", at("tables/wyx17_fig1.csv")],
        "report": [
            *("report", "--spec", json.dumps(REPORT), "--results", str(folder), "--errata", str(ERRATA)),
            *("--out", at("report.html")),
        ],
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage was run."""
    folder = tmp_path_factory.mktemp("whole") / "results"
    data = {"name": "synthetic_logistic", "rows": 60, "seed": 3, "parameters": {"features": 4}}
    points = {"points": SWEEP["points"]}
    assert main(["dataset", "--spec", json.dumps(data), "--out", str(folder / "small.npz")]) == 0
    assert main(["optima", "--spec", json.dumps(points), "--out", str(folder / "minima.json")]) == 0
    assert main(["audit-stage", "--spec", json.dumps(AUDIT), "--out", str(folder / ATTACK)]) == 0
    for command in stages(folder).values():
        assert main(command) == 0
    return folder


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "last bytes lost": lambda content: content[:-3],
    "zeros": lambda content: bytes(len(content)),
    "foreign JSON": lambda content: b"{}",
    "a list": lambda content: b"[1, 2]",
}


def copied(whole: Path, place: Path) -> Path:
    """Return a copy of a folder under its own name, which its files carry."""
    return Path(shutil.copytree(whole, place / whole.name))


def certified_for_less(record: dict) -> None:
    record["certificate"].update(epsilon_accounted=0.01, verdict="certified")


def without_events(record: dict) -> None:
    record["certificate"].update(events=[])


def of_another_claim(record: dict) -> None:
    record["certificate"].update(epsilon_claimed=0.5)


def of_less_noise(record: dict) -> None:
    record["plan"]["events"][0]["sigma"] /= 10.0


@pytest.mark.parametrize("edit", [certified_for_less, without_events, of_another_claim, of_less_noise])
@pytest.mark.parametrize(
    ("stage", "file"),
    [
        ("run", "plan.json"),
        ("collect", f"{RUN[:-4]}.json"),
        ("collect-sweeps", "s.json"),
        ("privacy", "plan.json"),
        ("privacy of sweeps", "s.json"),
    ],
)
def test_a_certificate_that_was_edited_and_sealed_again_is_not_published(
    stage: str, file: str, edit: Callable, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = copied(whole, tmp_path)
    record = read_json(folder / file)
    edit(record["points"][1] if "points" in record else record)
    write_record(folder / file, record)
    command = stages(folder)[stage.partition(" ")[0]]
    command = [str(folder / file) if word == str(folder / "plan.json") else word for word in command]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dprepro: The certificate in {folder / file} ")
    assert said.count("\n") == 1, said
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}, "nothing is written"


def test_minima_of_another_sweep_are_not_used(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = copied(whole, tmp_path)
    shutil.copy(folder / "minima.json", folder / "others.json")
    command = [
        str(folder / "others.json") if word.endswith("minima.json") else word for word in stages(folder)["sweep"]
    ]
    assert main(command) == 2
    assert f"The file {folder / 'others.json'} was written as results/minima.json" in capsys.readouterr().err


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("stage", "file"),
    [
        ("certify", "small.json"),
        ("run", "plan.json"),
        ("run", "small.npz"),
        ("run", "small.json"),
        ("optimum", "small.npz"),
        ("collect", RUN),
        ("collect", f"{RUN[:-4]}.json"),
        ("collect", "optima/small.npz"),
        ("sweep", "minima.json"),
        ("collect-sweeps", "s.npz"),
        ("collect-sweeps", "s.json"),
        ("collect-parts", "d.parquet"),
        ("privacy", "plan.json"),
        ("privacy", ATTACK),
        ("figure", "c.parquet"),
        ("table", "c.parquet"),
        ("report", f"{RUN[:-4]}.json"),
        ("report", ATTACK),
        ("report", "tables/wyx17_fig1.csv"),
        ("report", "figures/wyx17_fig1.svg"),
        ("report", "privacy/certificates.csv"),
        ("report", "privacy/audit.csv"),
        ("report", "privacy/audit.svg"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(
    stage: str, file: str, damage: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = copied(whole, tmp_path)
    (folder / file).write_bytes(DAMAGES[damage]((folder / file).read_bytes()))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(stages(folder)[stage]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dprepro: ")
    assert said.count("\n") == 1, said
    assert str(folder / file) in said
    assert "remove it and make it again" in said
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}, "nothing is written"


@pytest.mark.parametrize(("name", "read"), [(RUN, read_arrays), ("c.parquet", read_collected)])
def test_flipped_bits_are_noticed_or_change_no_number(name: str, read: Callable, whole: Path, tmp_path: Path) -> None:
    """Of all places; names and sizes in a Parquet file's own directory have no checksum, so its pages alone count."""
    content, chance = (whole / name).read_bytes(), random.Random(0)
    expected = read(whole / name)
    end = len(content) if name.endswith("npz") else len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    place, noticed = tmp_path / whole.name / Path(name).name, 0
    place.parent.mkdir()
    for _ in range(150):
        damaged = bytearray(content)
        damaged[chance.randrange(end)] ^= 1 << chance.randrange(8)
        place.write_bytes(damaged)
        try:
            # Stages name the arrays that they need: the names have no checksum.
            found = read(place, *expected) if name.endswith("npz") else read(place)
        except UserError:
            noticed += 1
            continue
        if name.endswith("npz"):
            assert all(found[key].tobytes() == expected[key].tobytes() for key in expected)
        else:
            assert found[0].equals(expected[0])
    assert noticed > 50
