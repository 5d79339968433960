"""A checkout with a workflow of a few seconds: one experiment of three runs, and its table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflow.conftest import Checkout, Outcome

from dprepro.files import read_json, write_record

TABLE = "results/smoke/tables/wyx17_fig1.csv"
CONFIG = "mine.yaml"
RUNS = 3
TEXT = """
results: results/smoke
experiments: [wyx17_fig1]
overrides:
  wyx17_fig1:
    datasets: [{name: synthetic_logistic, rows: 300, seed: 0, parameters: {features: 5}}]
    epsilon: [1]
    replicates: 3
    tile: 8
    algorithms:
      dp-svrg-bb: {parameters: {T: 2, m: 50}}
      dp-gd: {parameters: {T: 20}}
      dp-gd-short: {parameters: {T: 5}}
"""


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Change a record and seal it again, as one who edits consistently up to here."""
    record = read_json(path)
    change(record)
    write_record(path, record)


class Tiny(Checkout):
    """A checkout with the small configuration."""

    def make(self, *arguments: str) -> Outcome:
        """Make the table of the one experiment."""
        return self.snakemake(TABLE, *arguments, config=CONFIG)

    def makes_all(self) -> Outcome:
        """Make the table, and show what was said if that fails."""
        outcome = self.make()
        assert outcome.code == 0, outcome.text
        assert (self.folder / TABLE).stat().st_size > 0
        return outcome

    def bytes_of_results(self) -> dict[str, bytes]:
        """Return what does not depend on the clock, by name."""
        kinds = ("datasets/*", "optima/*/*", "plans/*/*", "runs/*/*.npz", "tables/*.[!j]*")
        return {name: path.read_bytes() for kind in kinds for name, path in self.files(kind).items()}

    def same_results(self, other: Tiny) -> bool:
        """Whether all that does not depend on the clock is the same, byte by byte."""
        ours, theirs = self.bytes_of_results(), other.bytes_of_results()
        assert ours.keys() == theirs.keys()
        assert sum(name.startswith("runs/") for name in ours) == RUNS
        return ours == theirs

    def run_file(self, suffix: str) -> Path:
        """Return a file of one run."""
        return next(iter(self.files(f"runs/*/dp-gd-short*.{suffix}").values()))
