"""What stands in place of a figure if no run has a result: a sentence, and the reasons in the caption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from dprepro import origin
from dprepro.figures import style


def has_results(frame: pd.DataFrame) -> bool:
    """Whether a collected table has the result of any run."""
    return not frame.empty and ("refused" not in frame or bool((frame["refused"] == "").any()))


def figure(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> tuple[Figure, str]:
    """Return a figure that states in words that no run has a result, and its caption."""
    title = f"{metadata['paper']}: {metadata['title']}"
    lines = [
        f"**{metadata['paper']}.** {metadata['title']}. No run has a result.",
        f"{origin.data_line(frame, metadata)}. {origin.problem_line(metadata)}",
        "Without a result:",
        "\n".join(f"- {reason}" for reason in origin.refusals(frame, metadata)),
        f"Made by {origin.made_line(metadata)}.",
    ]
    return words("No run has a result; the caption lists the reasons.", title), "\n\n".join(lines)


def words(text: str, title: str = "") -> Figure:
    """Return a figure that holds a sentence instead of data."""
    drawn = plt.figure(figsize=(7.4, 1.6))
    drawn.text(0.5, 0.45, text, ha="center", va="center", color=style.GREY)
    drawn.suptitle(title, fontsize=8.5, x=0.1, ha="left")
    return drawn
