"""Stage `audit`: attack one algorithm in all configured settings; a proof above the accounted epsilon fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprepro.algorithms import get_algorithm
from dprepro.arrays import blas_threads, single_blas_thread, wished_device
from dprepro.costs import own_cost
from dprepro.files import write_record
from dprepro.privacy.audit import audit
from dprepro.provenance import commit, machine
from dprepro.workflow import made_by, own_files


def audit_algorithm(spec: Mapping[str, Any], out: Path) -> None:
    """Write one row per variant and epsilon of `spec`, with provenance."""
    algorithm = get_algorithm(spec["algorithm"])
    device, _ = wished_device(None, spec["device"])
    rows = [
        audit(
            algorithm,
            variant=setting["variant"],
            epsilon=float(epsilon),
            delta=spec["delta"],
            replicates=spec["replicates"],
            seed=spec["seed"],
            device=device,
        )
        for setting in spec["settings"]
        for epsilon in setting["epsilon"]
    ]
    with single_blas_thread():
        threads = blas_threads()
    own = own_files("audit", algorithm=spec["algorithm"])
    provenance = {**commit(), **machine(), "threads": threads, **own}
    sources = made_by("audit", algorithm=spec["algorithm"])
    content = {"job": dict(spec), "rows": rows, "made_by": sources, "provenance": provenance, "cost": own_cost()}
    write_record(out, content)
