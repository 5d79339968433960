"""Calibration: the smallest noise that the accountant certifies, found once and remembered.

Noise is calibrated by one factor on all noise scales of a plan. More noise never costs more privacy, so the factor is
found by search; the one returned is on the safe side.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from dprepro.errors import UserError
from dprepro.files import jsonable, write_json
from dprepro.privacy.accounting import (
    FINE,
    FIRST_SHARE,
    ROUGH,
    account,
    best_share,
    check_delta,
    check_epsilon,
    has_summed_parts,
    within,
)
from dprepro.privacy.events import Event, event_to_json, scale_events
from dprepro.provenance import digest

# The factor is the smallest one up to this relative error, always upwards.
TOLERANCE = 1e-3
_LARGEST_FACTOR = 1e12
# Noise within this factor of the smallest certified noise does not count as loose.
HARDLY_MORE = 1.02


def smallest_scale(events: Sequence[Event], epsilon: float, delta: float) -> float:
    """Return the smallest factor on all noise scales with which `events` are (epsilon, delta)-DP."""
    check_epsilon(epsilon)
    check_delta(delta)
    key = _key(events, epsilon, delta)
    if (known := _recall(key)) is not None:
        return known
    factor = _search(events, epsilon, delta)
    _remember(key, factor)
    return factor


def noise_ratio(events: Sequence[Event], epsilon: float, delta: float, accounted: float) -> float:
    """Return the noise of events, accounted at `accounted`, over the smallest noise that is certified for `epsilon`.

    Calibrated noise is compared with hardly less of it, which must not be certified: the crossing in between is found
    on logarithmic axes. Nothing that calibration found or remembered is taken for it; other noise is calibrated.
    """
    less = account(scale_events(events, 1.0 / HARDLY_MORE), delta).epsilon
    if 0.0 < accounted <= epsilon < less:
        return HARDLY_MORE ** (math.log(epsilon / accounted) / math.log(less / accounted))
    return 1.0 / smallest_scale(events, epsilon, delta)


def _search(events: Sequence[Event], epsilon: float, delta: float) -> float:
    """Find the factor roughly for one division of the noise, then finely for the best division.

    The best division changes with the noise: it is looked for again until the factor hardly moves.
    """

    def shown(start: float, share: float, settled: float, tolerance: float) -> float:
        return _crossing(
            lambda f: within(scale_events(events, f), epsilon, delta, share, settled),
            start,
            tolerance,
        )

    share = FIRST_SHARE
    factor = shown(1.0, share, ROUGH, ROUGH)
    if math.isinf(factor):
        reason = account(events, delta).accountant.removeprefix("none: ")
        raise UserError(f"No amount of noise is shown to make this plan ({epsilon:g}, {delta:g})-DP ({reason}).")
    before = math.inf if has_summed_parts(events) else factor
    while factor < before / (1.0 + ROUGH):
        before, share = factor, best_share(scale_events(events, factor), delta)
        factor = shown(factor, share, ROUGH, ROUGH / 4.0)
    factor = shown(factor, share, FINE, TOLERANCE)
    # The accountant that writes certificates has the last word.
    while account(scale_events(events, factor), delta).epsilon > epsilon:
        factor *= 1.0 + TOLERANCE / 2.0
    return factor


def _crossing(enough: Callable[[float], bool], start: float, tolerance: float) -> float:
    """Return the smallest factor, up to `tolerance` and upwards, that is `enough`; infinity if there is none."""
    low = high = start
    step = 1.0 + 2.0 * tolerance
    if enough(start):
        while enough(low):
            high, low, step = low, low / step, min(step * step, 64.0)
            if low < 1.0 / _LARGEST_FACTOR:
                return high
    else:
        while not enough(high):
            low, high, step = high, high * step, min(step * step, 64.0)
            if high > _LARGEST_FACTOR:
                return math.inf
    while high > low * (1.0 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def cache_folder() -> Path:
    """Return the folder of remembered calibrations."""
    folder = os.environ.get("DPREPRO_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "dprepro"
    )
    return Path(folder) / "calibrations"


def _key(events: Sequence[Event], epsilon: float, delta: float) -> str:
    """Return a name for the question that changes with the accountant's sources."""
    question = [digest(["dprepro.privacy.calibrate"]), [event_to_json(event) for event in events], epsilon, delta]
    return hashlib.sha256(json.dumps(jsonable(question), sort_keys=True).encode()).hexdigest()[:32]


def _recall(key: str) -> float | None:
    """Return a remembered factor; a damaged file is as good as none, for the answer can be found again.

    A wrong factor would be too little noise, so it counts only with the seal that was written beside it.
    """
    try:
        known = json.loads((cache_folder() / f"{key}.json").read_text(encoding="utf-8"))
        factor, seal = known["factor"], known["seal"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return factor if isinstance(factor, float) and seal == _seal(key, factor) else None


def _remember(key: str, factor: float) -> None:
    """Keep a factor; a cache that cannot be written costs time, not correctness."""
    with contextlib.suppress(UserError, OSError):
        write_json(cache_folder() / f"{key}.json", {"factor": factor, "seal": _seal(key, factor)})


def _seal(key: str, factor: float) -> str:
    """Return a digest of a question and its answer, which a damaged file does not have."""
    return hashlib.sha256(f"{key} {factor!r}".encode()).hexdigest()[:32]
