"""Series of problems: how many samples a method needs on each, as rows, in words and as a figure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dprepro.analysis.intervals import Interval
from dprepro.errors import UserError
from dprepro.figures import klt25_samples, style
from dprepro.sweeps import SAMPLES
from dprepro.tables import sweeps

N = (1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0)
D = (4, 8, 16)
CLAIMS = {
    "own": {"samples": {"d": 1.0}, "bound": "d / beta^2", "source": "this paper"},
    "old": {"samples": {"d": 1.5}, "bound": "d^1.5 / beta^2"},
    "printed": {"samples": {"d": 1.0}},
}
CROSSINGS = {"own": (1500.0, 1.0), "old": (2000.0, 1.5), "printed": (3000.0, 1.0)}


def rows_of(entry, d, *, spread=0.05, values=0.0):
    """Rows on one problem, whose error falls to half of the start's 0.4 at the number of `CROSSINGS`."""
    first, power = CROSSINGS[entry]
    at = first * (d / 4.0) ** power
    rng = np.random.default_rng(d)
    return [
        {
            "experiment": "e", "problem": f"p-{d}", "entry": entry, "method": entry, "algorithm": "a",
            "variant": "published" if entry == "printed" else "practical", "axis": "n", "axis_value": n, "n": n,
            "d": d, "epsilon": 1.0, "epsilon_accounted": 0.3 if entry == "printed" else 1.0, "delta": 1e-6,
            "privacy_verdict": "certified", "rounds": 1.0, "gradient_evaluations": 0.0 if values else 2.0 * n,
            "function_evaluations": values * n, "metric": "Goldstein stationarity", "bound_value": np.nan,
            "refused": "", "failure": "", "set_here": "", "constant_set_here": "", "member": "",
            "replicate": replicate, "samples": n,
            "value_at_zero": 0.4, "returned": np.nan, "runs_from_n": np.nan, "useful_from_n": np.nan, "seconds": 1.0,
            "value": 0.2 * (n / at) ** -0.7 * np.exp(spread * rng.normal()),
        }
        for n in N
        for replicate in range(16)
    ]  # fmt: skip


def collected(*lines):
    frame = pd.DataFrame([row for entry, d, more in lines for row in rows_of(entry, d, **more)])
    settings = {
        f"p-{d}": {
            "loss": "ramp:0.3", "regularizer": {}, "constraint": None, "dataset": {"name": "population_spiked"},
            "base": {"n": 1000, "d": d}, "reach": 0.5, "series": {"name": "along d", "axis": "d", "value": d},
        }
        for d in D
    }  # fmt: skip
    origin = {
        "commit": "0" * 40, "modified": False, "dprepro": "0", "numpy": "0", "python": "0", "backend": "numpy",
        "dtype": "float64", "device": "cpu",
    }  # fmt: skip
    metadata = {
        "kind": "sweeps", "paper": "KLT25", "title": "samples", "methods": CLAIMS, "settings": settings,
        "problems": {key: key for key in settings}, "origins": [origin],
        "datasets": {"population_spiked": {"title": "Spiked", "preprocessing": "none"}},
    }  # fmt: skip
    return frame, metadata


def every(*entries, **more):
    return collected(*[(entry, d, more) for entry in entries for d in D])


def measured(rows, method, quantity):
    (row,) = rows[(rows["method"] == method) & (rows["quantity"] == quantity)].to_dict("records")
    return row


def test_samples_and_their_exponents_are_those_of_the_power_laws_behind_them():
    rows = sweeps.table(*every("own", "old"))
    assert set(rows["problem"]) == {"along d"}
    for method, (first, power) in list(CROSSINGS.items())[:2]:
        assert measured(rows, method, f"{SAMPLES} at d = 4")["measured"] == pytest.approx(first, rel=0.1)
        row = measured(rows, method, f"{SAMPLES}: exponent in d")
        assert row["ci_low"] < power < row["ci_high"]
        assert row["theory"] == power
        assert row["verdict"].startswith("agrees (3 values of d, ")


def test_the_first_method_is_what_the_others_are_held_against():
    rows = sweeps.table(*every("own", "old"))
    apart = measured(rows, "old", f"{SAMPLES}: exponent along d less that of own (practical)")
    assert apart["theory"] == 0.5
    assert apart["ci_low"] < 0.5 < apart["ci_high"]
    assert apart["verdict"] == "as that of the private terms"
    ratio = measured(rows, "old", f"{SAMPLES} at d = 16 over own (practical)")
    assert ratio["ci_low"] < 2000.0 * 4**1.5 / (1500.0 * 4) < ratio["ci_high"]
    assert not (rows["method"] == "own")[rows["quantity"].str.contains(" over ")].any()


def test_an_advantage_that_is_missing_or_larger_is_called_so(monkeypatch):
    for power, word in ((1.0, "smaller"), (2.0, "larger")):
        monkeypatch.setitem(CROSSINGS, "old", (1200.0, power))
        rows = sweeps.table(*every("own", "old", spread=0.02))
        apart = measured(rows, "old", f"{SAMPLES}: exponent along d less that of own (practical)")
        assert apart["verdict"] == f"{word} than that of the private terms"


def test_oracle_calls_count_values_of_the_loss_and_the_larger_number_of_samples():
    rows = sweeps.table(*collected(("own", 4, {}), ("old", 4, {"values": 16.0})))
    calls = measured(rows, "old", "oracle calls at d = 4 over own (practical)")
    samples = measured(rows, "old", f"{SAMPLES} at d = 4 over own (practical)")
    assert calls["measured"] == pytest.approx(8.0 * samples["measured"])
    assert calls["evaluations_over_n"] == 16.0


def test_a_target_that_no_n_reaches_is_said_and_leaves_no_exponent(monkeypatch):
    monkeypatch.setitem(CROSSINGS, "own", (20000.0, 1.0))
    rows = sweeps.table(*every("own"))
    assert measured(rows, "own", f"{SAMPLES} at d = 16")["verdict"] == "needs more than were run"
    row = measured(rows, "own", f"{SAMPLES}: exponent in d")
    assert np.isnan(row["measured"])
    assert row["verdict"] == "not measurable (3 values of d)"


def test_the_sentences_name_exponents_their_difference_ratios_and_the_cost_of_printed_noise():
    frame, metadata = collected(*[(entry, d, {}) for entry in ("own", "old") for d in D], ("printed", 8, {}))
    frame["method"] = frame["method"].replace("printed", "own")
    text = "\n".join(sweeps.conclusions(sweeps.table(frame, metadata), frame))
    assert "along d: own (practical) needs samples as (d)^1.0" in text
    assert "private term of the bound 1: agrees" in text
    assert "less that of own (practical) is 0.5" in text
    assert "as that of the private terms, 0.5." in text
    # 2000 4^1.5 over 1500 4 is 2.67; both ask for two gradients for a sample.
    assert "at d = 16 old (practical) needs 2.6" in text
    assert "at d = 8 own (published) needs 2.0" in text
    assert "is accounted 0.3 of the claimed epsilon 1." in text


def test_printed_noise_is_held_against_the_same_method_whatever_comes_first():
    frame, metadata = collected(("old", 8, {}), ("own", 8, {}), ("printed", 8, {}))
    frame["method"] = frame["method"].replace("printed", "own")
    rows = sweeps.table(frame, metadata)
    printed = rows[rows["variant"] == "published"]
    assert printed["quantity"].str.endswith("over own (practical)").sum() == 2


def test_the_target_is_the_share_that_the_problem_names():
    frame, metadata = collected(("own", 4, {}))
    metadata["settings"]["p-4"]["reach"] = 0.25
    found = measured(sweeps.table(frame, metadata), "own", f"{SAMPLES} at d = 4")["measured"]
    assert found == pytest.approx(1500.0 * 2.0 ** (1.0 / 0.7), rel=0.1)


def test_refused_points_and_other_axes_do_not_count():
    frame, metadata = collected(("own", 4, {}))
    before = measured(sweeps.table(frame, metadata), "own", f"{SAMPLES} at d = 4")
    refused = frame[frame["n"] == N[-1]].assign(n=1e9, axis_value=1e9, value=np.nan, refused="It is vacuous.")
    other = frame[frame["n"] == N[-1]].assign(axis="epsilon", axis_value=2.0, n=1e9, value=9.0)
    after = measured(
        sweeps.table(pd.concat([frame, refused, other], ignore_index=True), metadata), "own", f"{SAMPLES} at d = 4"
    )
    assert after["measured"] == before["measured"]


def test_a_method_that_is_refused_everywhere_has_no_number_and_no_crash():
    frame, metadata = collected(("own", 4, {}))
    frame = frame.assign(refused="It is vacuous.", value=np.nan)
    assert measured(sweeps.table(frame, metadata), "own", f"{SAMPLES} at d = 4")["verdict"] == "not measurable"


def test_the_ratio_of_two_equal_methods_has_an_interval_that_is_no_point():
    """Both have the same runs, but are resampled for themselves."""
    frame, metadata = collected(("own", 4, {"spread": 0.3}))
    twice = pd.concat([frame, frame.assign(method="again", entry="old")], ignore_index=True)
    ratio = measured(sweeps.table(twice, metadata), "again", f"{SAMPLES} at d = 4 over own (practical)")
    assert ratio["measured"] == pytest.approx(1.0)
    assert ratio["ci_low"] < 0.95
    assert ratio["ci_high"] > 1.05
    assert ratio["verdict"] == "indistinguishable"


def test_an_accuracy_that_is_not_the_problems_is_refused():
    frame, metadata = collected(("own", 4, {}))
    metadata["settings"]["p-4"]["series"] = {"name": "accuracy", "axis": "1/beta", "value": 4}
    with pytest.raises(UserError, match=r"at 1/beta = 4, but 0\.5 of its start's error is 0\.2: give 1/beta = 5"):
        sweeps.table(frame, metadata)


def test_points_and_replicates_are_those_of_all_problems_of_the_series():
    rows = sweeps.table(*every("own"))
    assert set(rows["points"]) == {len(N) * len(D)}


def test_a_wide_difference_tells_nothing():
    assert sweeps._apart_verdict(Interval(0.5, -3.0, 3.0), 0.5) == "too wide to tell"


def test_the_summary_shows_a_table_per_series_with_thousands_and_the_private_term_beside_exponents():
    frame, metadata = every("own")
    text = sweeps.summary(sweeps.table(frame, metadata), frame, metadata)
    assert "Series `along d`:" in text
    assert "(private term 1)" in text
    assert "[1,4" in text or "[1,5" in text


def test_the_figure_has_a_panel_per_series_with_every_measured_point_and_the_bounds_slope():
    frame, metadata = collected(*[(entry, d, {}) for entry in ("own", "old") for d in D], ("printed", 8, {}))
    with style.applied():
        drawn, caption = klt25_samples.figure(frame, metadata)
    (axes,) = drawn.axes
    assert axes.get_title() == "along d"
    assert axes.get_xlabel() == "d"
    rows = sweeps.table(frame, metadata)
    lines = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == len(D)]
    drawn_points = {tuple(np.round(line.get_ydata(), 6)) for line in lines}
    for method in ("own", "old"):
        counts = [measured(rows, method, f"{SAMPLES} at d = {d}")["measured"] for d in D]
        assert tuple(np.round(counts, 6)) in drawn_points
    guides = [line for line in axes.lines if line.get_linestyle() == ":"]
    bars = [bar for bar in axes.collections if len(bar.get_segments())]
    heights = [segment[1, 1] / segment[0, 1] for bar in bars for segment in bar.get_segments()]
    assert min(heights) > 1.001, "every point has an interval"
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [len(line.get_xdata()) for line in hollow] == [1]
    slopes = sorted(np.diff(np.log(line.get_ydata()))[0] / np.diff(np.log(line.get_xdata()))[0] for line in guides)
    assert slopes == pytest.approx([1.0, 1.5])
    assert "noise as printed" in [text.get_text().rpartition(", ")[2] for text in drawn.legends[0].get_texts()]
    assert "down to 0.5 of that" in caption
