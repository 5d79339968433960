"""The numbers behind WYX17, appendix A, Figure 1 at equal accounted epsilon."""

from __future__ import annotations

import pandas as pd

from dprepro.tables.gap_table import gap_table


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per method, epsilon and quantity."""
    return gap_table(frame)
