"""What jobs took: read from benchmarks, and in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from dprepro import costs
from dprepro.costs import Cost, duration, read_cost
from dprepro.experiments import load_config, load_experiments
from dprepro.status import expected_jobs

HEADER = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            f"{HEADER}\n1.47\t0:00:01\t159.78\t1616.13\t97.10\t123.6\t0.0\t0.01\t31.9\t0.96\n",
            Cost(1.47, 0.96, 159.78),
        ),
        (f"{HEADER}\n0.2\t0:00:00\tNA\tNA\tNA\tNA\tNA\tNA\tNA\tNA\n", Cost(0.2)),
        (f"{HEADER}\n1\t0:00:01\t1\t1\t1\t1\t1\t1\t1\t1\n2\t0:00:02\t3\t1\t1\t1\t1\t1\t1\t4\n", Cost(2.0, 4.0, 3.0)),
        (f"{HEADER}\n", Cost()),
        (f"{HEADER}\n1.47\t0:00\n", Cost()),
        ("", Cost()),
        ("x\ty\n1\t2\n", Cost()),
    ],
)
def test_a_benchmark_is_read_or_nothing_is_known(content: str, expected: Cost, tmp_path: Path) -> None:
    (tmp_path / "job.tsv").write_text(content)
    assert read_cost(tmp_path / "job.tsv") == expected
    assert read_cost(tmp_path / "none.tsv") == Cost()


@pytest.mark.parametrize(
    ("given_seconds", "words"),
    [(0.24, "0.2 s"), (9.96, "10 s"), (75.4, "75 s"), (100.0, "2 min"), (361.0, "6 min"), (7500.0, "2 h 05 min")],
)
def test_durations_are_said_as_one_would(given_seconds: float, words: str) -> None:
    assert duration(given_seconds) == words


def test_what_a_job_usually_takes_is_known_by_experiment_and_guessed_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_usual", lambda: {"sweeps": {"bgm21_row1": 8.0, "bgm21_row2": 2.0}})
    place = "my results/benchmarks/here/benchmarks/sweeps"
    assert costs.usual_seconds(f"{place}/bgm21_row1/dp-gd.l1.tsv") == 8.0
    assert costs.usual_seconds(f"{place}/mine/dp-gd.l1.tsv") is None
    assert costs.guessed_seconds(f"{place}/mine/dp-gd.l1.tsv") == 5.0
    for unknown in ("results/benchmarks/cakes/bgm21_row1.tsv", ""):
        assert costs.usual_seconds(unknown) is None
        assert costs.guessed_seconds(unknown) is None


def test_the_table_of_costs_covers_every_kind_of_job() -> None:
    """Of the default run: no job there is of unknown length."""
    experiments = load_experiments(load_config([]))
    kinds = {job.output.split("/")[0] for job in expected_jobs(experiments, load_config([]))} - {"report.html"}
    for kind in {*kinds, "datasets", "report"}:
        assert costs.guessed_seconds(f"results/benchmarks/{kind}/any.tsv") > 0.0, kind
    for experiment in experiments:
        if experiment.kind in ("curves", "sweeps"):
            kind = {"curves": "runs", "sweeps": "sweeps"}[experiment.kind]
            assert experiment.name in costs._usual()[kind]


def test_the_table_is_made_from_the_benchmarks_of_a_run(tmp_path: Path) -> None:
    for place, seconds in (("runs/a/x", 1.0), ("runs/a/y", 2.0), ("runs/b/x", 0.123), ("report/report", 4.0)):
        file = tmp_path / "benchmarks" / f"{place}.tsv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"s\tmax_rss\n{seconds}\t10\n")
    assert costs.measured(tmp_path) == {"report": {"report": 4.0}, "runs": {"a": 1.5, "b": 0.12}}
