"""WYX17, appendix A, Figure 1 at equal accounted epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dprepro.figures.gap_curves import gap_curves


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return the figure and its caption."""
    return gap_curves(frame, metadata, "WYX17, Figure 1, certified")
