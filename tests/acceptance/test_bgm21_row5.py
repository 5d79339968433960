"""Facts of row 5 of BGM21's Table 1, measured on points of the default configuration's own sweeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dprepro.analysis.rates import exact_exponent, exponent


@pytest.mark.parametrize(
    ("job", "largest", "low", "high"),
    [
        # Faster than the bound, which has -0.28 over these n. Eight replicates leave a standard error of 0.02; windows
        # are three of them to each side.
        ("prox-guided-md.l2.published", 2**14, -0.46, -0.33),
        # Without noise the bound has a quarter.
        ("prox-guided-md-without-noise.l2.published", 2**14, -0.35, -0.22),
        # One point of every run instead of the mean over all its rounds: a standard error of 0.05.
        ("prox-guided-md-practical.l2.practical", 2**16, -0.62, -0.29),
    ],
)
def test_near_stationarity_falls_with_n(
    job: str, largest: int, low: float, high: float, run: Callable[..., Any]
) -> None:
    records, values = run(f"bgm21_row5/{job}", lambda point: point["axis"] == "n" and point["value"] <= largest)
    n = [record["point"]["value"] for record in records]
    assert n == [2**power for power in range(11, largest.bit_length())]
    assert low <= exponent(n, values).mean <= high
    assert exact_exponent(n, [record["gradient_evaluations"] for record in records]) == pytest.approx(1.5, abs=0.01)
