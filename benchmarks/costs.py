"""What jobs of the default run take, into src/dprepro/costs.json: `make costs`, after `make reproduce`.

The time left of a run whose jobs have not run before is estimated from this table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dprepro.costs import measured
from dprepro.errors import UserError
from dprepro.files import read_record, write_json

TABLE = Path(__file__).parents[1] / "src" / "dprepro" / "costs.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table of a folder of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"), help="results of the default run")
    parser.add_argument("--out", type=Path, default=TABLE)
    options = parser.parse_args(arguments)
    seconds = measured(options.results)
    if not {"runs", "sweeps", "privacy", "report"} <= seconds.keys():
        print(f"The folder {options.results} lacks benchmarks of some kinds: run snakemake first.", file=sys.stderr)
        return UserError.exit_code
    made = read_record(next(options.results.glob("runs/*/*.json")), "provenance")["provenance"]
    facts = {key: made[key] for key in ("commit", "processor", "cores")}
    write_json(options.out, {"made": facts, "seconds": seconds})
    return 0


if __name__ == "__main__":
    sys.exit(main())
