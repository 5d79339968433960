"""Recorded answers: numbers that must not move unnoticed. That they are right is shown by other tests."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "recorded"


def plain(value: Any) -> Any:
    """Return numbers, texts, lists and dictionaries of them in place of arrays and tuples; infinities as texts."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def record(name: str, cases: Mapping[str, Callable[[], Any]]) -> None:
    """Write the answers of all cases."""
    FOLDER.mkdir(exist_ok=True)
    answers = {case: plain(compute()) for case, compute in cases.items()}
    (FOLDER / f"{name}.json").write_text(json.dumps(answers, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def recorded(name: str) -> dict[str, Any]:
    """Return the recorded answers by case."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def assert_same(found: Any, expected: Any, tolerance: float) -> None:
    """Assert that an answer is the recorded one: numbers to the relative tolerance, all else exactly."""
    found = plain(found)
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for key, one in expected.items():
            assert_same(found[key], one, tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, tolerance)
    elif isinstance(expected, float) and isinstance(found, float | int):
        assert math.isclose(found, expected, rel_tol=tolerance, abs_tol=0.0), f"{found!r} is not {expected!r}"
    else:
        assert found == expected
        assert isinstance(found, bool) == isinstance(expected, bool)
