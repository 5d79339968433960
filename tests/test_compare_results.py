"""`dprepro compare` on folders as the workflow writes them."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dprepro.cli import main
from dprepro.collected import write_collected
from dprepro.files import write_publication, write_record

ORIGIN = {"commit": "a" * 40, "modified": False, "dprepro": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"}


def table_row(method: str, measured: Any, low: Any, high: Any, **more: Any) -> dict[str, Any]:
    return {
        "method": method,
        "quantity": "optimality gap",
        "theory": 0.5,
        "measured": measured,
        "ci_low": low,
        "ci_high": high,
        "epsilon_claimed": 1,
        "epsilon_accounted": 0.9999,
        "replicates": 8,
        "verdict": "agrees",
        **more,
    }


ROWS = [
    table_row("DP-GD", 0.10, 0.08, 0.12),
    table_row("DP-SVRG", 0.20, 0.15, 0.25),
    table_row("DP-SVRG", "", "", "", quantity="samples needed", verdict="not measurable"),
    table_row("DP-GD", 250, 250, 250, quantity="gradient evaluations"),
    table_row("DP-GD", 1.1, 1.1, 1.1, quantity="CPU seconds: exponent in n"),
]
AUDITS = [
    {
        "algorithm": "dp_gd",
        "variant": "certified",
        "epsilon_claimed": 1,
        "delta": 0.001,
        "epsilon_accounted": 0.9999,
        "epsilon_audited": 0.7,
        "verdict": "consistent",
    }
]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    write_publication(path.with_suffix(""), ["csv"], made_from={}, made_by={}, incomplete=[])


def write_sweep(folder: Path, values: list[float], seconds: float = 1.0, **origin: Any) -> None:
    frame = pd.DataFrame(
        {
            "job": "dp-gd.hard.certified",
            "axis": "n",
            "axis_value": 512.0,
            "member": "",
            "replicate": range(len(values)),
            "value": values,
            "seconds": seconds,
        }
    )
    origins = [json.dumps({**ORIGIN, **origin})]
    write_collected(
        [frame], {"kind": "sweeps", "origins": origins}, folder / "data/sweep.parquet", made_from={}, made_by={}
    )


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same results."""
    a, b = tmp_path / "a", tmp_path / "b"
    write_csv(a / "tables/table.csv", ROWS)
    write_csv(a / "privacy/audit.csv", AUDITS)
    write_sweep(a, [0.9, 1.0, 1.1, 1.2])
    shutil.copytree(a, b)
    return a, b


def compared(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, dict[str, Any], str]:
    """Return exit code, what is said in JSON, and what is said to standard error."""
    code = main(["compare", *map(str, folders), "--json", *more])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def changed(rows: list[dict[str, Any]], number: int, **cells: Any) -> list[dict[str, Any]]:
    return [{**row, **cells} if place == number else row for place, row in enumerate(rows)]


def test_identical_folders_have_no_difference(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = compared(folders, capsys)
    counts = found["counts"]
    assert code == 0
    assert counts["identical"] == sum(counts.values()) > 10
    assert found["not_the_same"] == found["beyond"] == found["verdicts"] == []


def test_the_order_of_rows_does_not_matter(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    # The first and the last are alike but for their numbers.
    rows = [*ROWS, table_row("DP-GD", 0.3, 0.28, 0.32)]
    write_csv(folders[0] / "tables/table.csv", rows)
    write_csv(folders[1] / "tables/table.csv", rows[::-1])
    code, found, _ = compared(folders, capsys)
    assert code == 0
    assert found["counts"]["identical"] == sum(found["counts"].values())


def test_a_number_beyond_its_interval_is_shown_with_both(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(folders[1] / "tables/table.csv", changed(ROWS, 0, measured=0.40, ci_low=0.38, ci_high=0.42))
    code, found, err = compared(folders, capsys)
    assert code == 1
    (row,) = found["beyond"]
    assert (row["file"], row["column"]) == ("tables/table.csv", "measured")
    assert "DP-GD" in row["about"]
    assert (row["a"]["mean"], row["b"]["high"]) == (0.1, 0.42)
    assert err.count("\n") == 1
    assert main(["compare", *map(str, folders)]) == 1
    text = capsys.readouterr().out
    assert "a 0.1 [0.08, 0.12]" in text
    assert "b 0.4 [0.38, 0.42]" in text


def test_a_number_within_its_interval_is_no_difference(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(folders[1] / "tables/table.csv", changed(ROWS, 0, measured=0.11, ci_low=0.09, ci_high=0.13))
    code, found, _ = compared(folders, capsys)
    assert code == 0
    assert found["counts"]["within intervals"] == 1


def test_many_comparisons_leave_more_room_than_one(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(folders[1] / "tables/table.csv", changed(ROWS, 0, measured=0.13, ci_low=0.11, ci_high=0.15))
    code, found, _ = compared(folders, capsys)
    assert (code, found["different_by_themselves"]) == (0, 1)
    assert found["expected_by_chance"] == pytest.approx(0.05 * found["estimates"])
    code, found, _ = compared(folders, capsys, "--each")
    assert (code, len(found["beyond"])) == (1, 1)


@pytest.mark.parametrize(
    ("number", "cells"),
    [
        pytest.param(0, {"epsilon_accounted": 0.98}, id="accounted epsilon"),
        pytest.param(3, {"measured": 251, "ci_low": 251, "ci_high": 251}, id="count"),
        pytest.param(2, {"measured": 900, "ci_low": 800, "ci_high": 1000}, id="measured in one only"),
    ],
)
def test_what_is_computed_may_differ_by_rounding_only(
    number: int, cells: dict[str, Any], folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(folders[1] / "tables/table.csv", changed(ROWS, number, **cells))
    code, found, _ = compared(folders, capsys)
    assert (code, len(found["beyond"])) == (1, 1)


def test_rounding_is_no_difference_and_its_size_can_be_given(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(folders[1] / "tables/table.csv", changed(ROWS, 0, epsilon_accounted=0.9999000001))
    code, found, _ = compared(folders, capsys)
    assert (code, found["counts"]["equal within rounding"]) == (0, 1)
    assert compared(folders, capsys, "--tolerance", "0")[0] == 1


def test_times_are_told_and_never_counted(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(folders[1] / "tables/table.csv", changed(ROWS, 4, measured=3, ci_low=3, ci_high=3, verdict="differs"))
    write_sweep(folders[1], [0.9, 1.0, 1.1, 1.2], seconds=50.0)
    code, found, _ = compared(folders, capsys)
    assert (code, found["verdicts"]) == (0, [])
    assert {(time["a"], time["b"]) for time in found["times"]} == {(1.1, 3.0), (1.0, 50.0)}


def test_the_mean_of_replicates_is_judged_by_their_spread(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(folders[1], [1.0, 1.1, 0.8, 1.2])
    assert compared(folders, capsys)[0] == 0
    write_sweep(folders[1], [9.0, 9.1, 9.2, 9.1])
    code, found, _ = compared(folders, capsys)
    assert code == 1
    assert [row["file"] for row in found["beyond"]] == ["data/sweep.parquet"]


def test_replicates_without_a_finite_value_are_not_averaged(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in folders:
        write_sweep(folder, [float("nan")] * 4)
    assert compared(folders, capsys)[0] == 0
    write_sweep(folders[1], [1.0, 1.1, 0.8, float("inf")])
    assert compared(folders, capsys)[0] == 1, "there is a mean in one of them only"


def test_a_verdict_counts_as_changed_if_its_words_do(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, verdicts in zip(
        folders, (("1.48 times the best", "best"), ("1.51 times the best", "1.2 times")), strict=True
    ):
        rows = changed(changed(ROWS, 0, verdict=verdicts[0]), 1, verdict=verdicts[1])
        write_csv(folder / "tables/table.csv", rows)
    code, found, _ = compared(folders, capsys)
    assert code == 0
    assert [(verdict["a"], verdict["b"]) for verdict in found["verdicts"]] == [("best", "1.2 times")]


def test_a_finding_that_is_decided_otherwise_is_a_difference(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, verdict in zip(folders, ("contradicted", "holds here"), strict=True):
        write_csv(folder / "tables/abg23_findings.csv", [{"finding": "Noise", "verdict": verdict, "numbers": "{}"}])
    code, found, _ = compared(folders, capsys)
    assert (code, len(found["contradictions"])) == (1, 1)


def test_an_audit_that_proves_more_than_the_other_accounts_for_is_a_difference(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(folders[1] / "privacy/audit.csv", changed(AUDITS, 0, epsilon_audited=0.8))
    code, found, _ = compared(folders, capsys)
    assert (code, len(found["without_intervals"])) == (0, 1)
    write_csv(folders[1] / "privacy/audit.csv", changed(AUDITS, 0, epsilon_audited=1.2))
    code, found, _ = compared(folders, capsys)
    assert code == 1
    assert "proves epsilon 1.2" in found["contradictions"][0]


def test_what_made_the_results_is_told_where_it_differs(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(folders[1], [0.9, 1.0, 1.1, 1.2], numpy="2.1.0", commit="b" * 40)
    code, found, _ = compared(folders, capsys)
    assert code == 0
    assert found["not_the_same"] == ["commit: aaaaaaaaaaaa in a, bbbbbbbbbbbb in b", "numpy: 2.4.6 in a, 2.1.0 in b"]


def write_job(folder: Path, **settings: Any) -> None:
    """Write the record of a sweep of one point with these settings, the seed among those of the point."""
    point = {"axis": "n", "value": settings.pop("n", 512), "seed": settings.pop("seed", 1)}
    record = {
        "job": {"algorithm": "dp_gd", "replicates": 4, **settings},
        "points": [{"point": point}],
        "provenance": {
            **dict.fromkeys(("python", "numpy", "blas", "system", "processor", "cpu_kernels", "cores", "commit"), "x"),
            "dprepro": ORIGIN["dprepro"],
        },
    }
    write_record(folder / "sweeps/sweep/dp-gd.json", record)


def test_a_table_that_is_incomplete_is_named(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    table = folders[1] / "tables/table"
    write_publication(table, ["csv"], made_from={}, made_by={}, incomplete=["a run failed"])
    code, found, _ = compared(folders, capsys)
    assert code == 0
    assert found["not_the_same"] == ["incomplete in b: tables/table.csv"]


def test_seeds_and_replicates_are_told_where_they_differ(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(folders[0])
    write_job(folders[1], seed=2, replicates=8)
    _, found, _ = compared(folders, capsys)
    assert found["not_the_same"] == [
        "replicates: not the same in 1 of 1 jobs",
        "seed: not the same in 1 of 1 jobs",
    ]


@pytest.mark.parametrize(("settings", "named"), [({"n": 1024}, "points"), ({"variant": "practical"}, "variant")])
def test_results_of_another_configuration_are_refused(
    settings: dict[str, Any], named: str, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(folders[0])
    write_job(folders[1], **settings)
    assert main(["compare", *map(str, folders)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"sweeps/sweep/dp-gd differs in {named}" in said


def test_results_of_another_version_are_refused(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(folders[1], [0.9, 1.0, 1.1, 1.2], dprepro="0.0.9")
    assert main(["compare", *map(str, folders)]) == 2
    assert "by dprepro 0.0.9: compare results of one version" in capsys.readouterr().err
    # Older ones have no record beside their tables.
    shutil.rmtree(folders[1] / "data")
    (folders[1] / "tables/table.json").unlink()
    assert main(["compare", *map(str, folders)]) == 2
    assert "tables/table.json does not exist" in capsys.readouterr().err


def test_an_edited_table_is_refused(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    table = folders[1] / "tables/table.csv"
    table.write_text(table.read_text().replace("0.2", "0.1"))
    assert main(["compare", *map(str, folders)]) == 2
    assert f"The file {table} was changed after it was written" in capsys.readouterr().err


def test_folders_whose_files_do_not_belong_together_are_refused(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    table = folders[1] / "tables/table"
    write_publication(table, ["csv"], made_from={"data/sweep.parquet": "0" * 64}, made_by={}, incomplete=[])
    assert main(["compare", *map(str, folders)]) == 2
    assert f"The file {table}.csv was not made from {folders[1] / 'data/sweep.parquet'} as it is" in (
        capsys.readouterr().err
    )
    write_publication(table, ["csv"], made_from={}, made_by={}, incomplete=[])
    write_job(folders[1])
    write_record(folders[1] / "jobs/sweep/dp-gd.json", {"algorithm": "dp_sgd"})
    assert main(["compare", *map(str, folders)]) == 2
    assert "is of another configuration than" in capsys.readouterr().err


def test_what_is_only_in_one_folder_is_named(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(folders[0] / "tables/other.csv", ROWS)
    write_csv(folders[1] / "tables/table.csv", ROWS[1:])
    code, found, _ = compared(folders, capsys)
    assert code == 0
    assert {row["file"] for row in found["only_in_a"]} == {"tables/other.csv", "tables/table.csv"}
    assert found["only_in_b"] == []
    assert main(["compare", *map(str, folders)]) == 0
    assert "files only in a:\n  tables/other.csv" in capsys.readouterr().out


def damaged(folder: Path, what: str) -> None:
    if what == "missing":
        shutil.rmtree(folder)
    elif what == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    elif what == "parquet":
        (folder / "data/sweep.parquet").write_bytes((folder / "data/sweep.parquet").read_bytes()[:200])
    elif what == "csv":
        (folder / "tables/table.csv").write_bytes(b"\xff\xfe\x00")
    elif what == "short csv":
        text = (folder / "tables/table.csv").read_text()
        (folder / "tables/table.csv").write_text(text[: len(text) // 2])
    else:
        write_csv(folder / "tables/table.csv", [{"name": "somebody", "verdict": ""}])
        shutil.rmtree(folder / "privacy")
        shutil.rmtree(folder / "data")


@pytest.mark.parametrize("what", ["missing", "empty", "parquet", "csv", "short csv", "foreign"])
def test_a_folder_that_cannot_be_compared_is_one_sentence(
    what: str, folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(folders[1], what)
    assert main(["compare", *map(str, folders)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dprepro: ")
    assert captured.err.count("\n") == 1
    assert str(folders[1]) in captured.err
