"""A run that is stopped, politely or not, goes on where it was and ends with the same bits."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from dprepro.collected import read_collected
from dprepro.stages.collect import TIMING_COLUMNS

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = pytest.mark.workflow

EXPERIMENT = "wyx17_fig1"
TARGET = f"results/smoke/tables/{EXPERIMENT}.csv"
RUNS = 6


@pytest.mark.parametrize(
    ("number", "group"),
    [
        pytest.param(signal.SIGINT, True, id="Ctrl-C in a terminal"),
        pytest.param(signal.SIGTERM, False, id="SIGTERM to Snakemake"),
        pytest.param(signal.SIGKILL, True, id="SIGKILL to everything"),
    ],
)
def test_a_stopped_run_is_taken_up_again_and_ends_with_the_same_bits(
    number: signal.Signals, group: bool, checkout: Checkout, finished: Checkout
) -> None:
    checkout.interrupt(TARGET, number, group=group)
    assert 3 <= len(checkout.files("runs/*/*.npz")) < RUNS, "it was stopped in the middle"
    early = {name: path.stat().st_mtime_ns for name, path in checkout.files("datasets/*.npz").items()}
    if number != signal.SIGKILL:
        assert sorted(checkout.folder.rglob("*.partial")) == [], "nothing half-written is left"
    assert checkout.files("data/*") == checkout.files("tables/*") == {}, "no table is made of what is there"

    outcome = checkout.snakemake(TARGET)
    assert outcome.code == 0, outcome.text
    assert sorted(checkout.folder.rglob("*.partial")) == []
    assert 0 < sum(job.startswith("Running") for job in outcome.jobs) < RUNS, "what was done is kept"
    assert early == {name: path.stat().st_mtime_ns for name, path in checkout.files("datasets/*.npz").items()}
    assert_same_results(checkout, finished)


def assert_same_results(found: Checkout, expected: Checkout) -> None:
    """Compare all that does not depend on the clock, byte by byte; of the collected table, all other columns."""
    for pattern in (
        "datasets/*",
        f"optima/{EXPERIMENT}/*",
        f"plans/{EXPERIMENT}/*",
        f"runs/{EXPERIMENT}/*.npz",
        f"tables/{EXPERIMENT}.[!j]*",
    ):
        ours, theirs = found.files(pattern), expected.files(pattern)
        assert ours.keys() == theirs.keys()
        assert len(ours) > 0
        assert [name for name in ours if ours[name].read_bytes() != theirs[name].read_bytes()] == []
    table, metadata = read_collected(found.results / f"data/{EXPERIMENT}.parquet")
    other, other_metadata = read_collected(expected.results / f"data/{EXPERIMENT}.parquet")
    timing = list(TIMING_COLUMNS)
    pd.testing.assert_frame_equal(table.drop(columns=timing), other.drop(columns=timing), check_exact=True)
    # Digests are those of files with times in them.
    assert {**metadata, "digest": "", "made_from": ""} == {**other_metadata, "digest": "", "made_from": ""}
