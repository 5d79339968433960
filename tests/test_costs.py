"""What jobs took: read from benchmarks, and in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from dprepro.costs import Cost, duration, read_cost

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
