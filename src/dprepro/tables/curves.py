"""Final optimality gap and gradient evaluations of each run, beside what the theory says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dprepro.analysis.intervals import Interval, mean_interval


def table(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> pd.DataFrame:
    """Return two rows per method and epsilon: the optimality gap and the gradient evaluations.

    `theory` of the gap is the theorem's bound with its hidden constant taken as 1, empty where the theorem
    bounds something else; of the gradient evaluations it is the count of the pseudocode.
    """
    records = []
    # Without any result the collected table has no columns.
    runs = ["dataset", "variant", "epsilon", "method"]
    groups: Iterable[tuple[Any, pd.DataFrame]] = () if frame.empty else frame.groupby(runs, sort=False)
    for _, rows in groups:
        first = rows.iloc[0]
        ends = rows.groupby("replicate").first()
        failed = int((ends["failure"] != "").sum())
        gaps = ends["final_gap"].to_numpy()
        interval = mean_interval(gaps)
        theory = float(first["theory"]) if first["theory_quantity"] == "optimality gap" else float("nan")
        count = int(rows["gradient_evaluations"].max())
        planned = int(first["planned_gradient_evaluations"])
        common = {
            "n": first["n"],
            "d": first["d"],
            "dataset": first["dataset"],
            "variant": first["variant"],
            "replicates": len(ends),
            "failed": failed,
            "epsilon_claimed": first["epsilon"],
            "delta": first["delta"],
            "epsilon_accounted": first["epsilon_accounted"],
            "privacy": first["privacy_verdict"],
        }
        records.append(
            {
                "method": first["method"],
                "quantity": "optimality gap",
                "theory": theory,
                "measured": interval.mean,
                "ci_low": interval.low,
                "ci_high": interval.high,
                **common,
                "verdict": _ended_above(failed, gaps, str(first["variant"]))
                or _gap_verdict(interval, theory, str(first["theory_quantity"]), failed, len(ends)),
            }
        )
        records.append(
            {
                "method": first["method"],
                "quantity": "gradient evaluations",
                "theory": float(planned),
                "measured": float(count),
                "ci_low": float(count),
                "ci_high": float(count),
                **common,
                "verdict": "agrees" if count == planned else "differs",
            }
        )
    return pd.DataFrame([*records, *(_refused_row(run) for run in metadata["refused"])])


def _refused_row(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run without a result: a refused setting, or a solver that did not converge."""
    nothing = {key: float("nan") for key in ("theory", "measured", "ci_low", "ci_high")}
    return {
        "method": run["method"],
        "quantity": "optimality gap",
        **nothing,
        **{key: run[key] for key in ("n", "d", "dataset", "variant")},
        "replicates": 0,
        "failed": 0,
        "epsilon_claimed": run["epsilon"],
        "delta": run["delta"],
        "epsilon_accounted": float("nan"),
        "privacy": "",
        "verdict": f"refused: {run['reason']}",
    }


def _ended_above(failed: int, gaps: np.ndarray, variant: str) -> str:
    """Return what is said of a curve that is not the published one and ends in numbers above w = 0; else nothing.

    No parameter of a curve is tuned: such an end is one of its step, not of the method.
    """
    above = failed and variant != "published" and np.isfinite(gaps).all()
    return f"{failed} of {len(gaps)} replicates end above w = 0 at this step" if above else ""


def _gap_verdict(gap: Interval, theory: float, quantity: str, failed: int, replicates: int) -> str:
    if failed:
        return f"{failed} of {replicates} replicates failed"
    if np.isnan(theory):
        return f"the theorem bounds the {quantity}" if quantity else "no bound stated"
    if gap.high <= theory:
        return "within the bound"
    return "above the bound with constant 1" if gap.low > theory else "indistinguishable from the bound with constant 1"
