"""Figures of the findings: what is drawn is what was computed, and a reader can read it."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from dprepro import origin
from dprepro.analysis.rates import exact_exponent
from dprepro.collected import read_collected
from dprepro.errors import UserError
from dprepro.experiments import FINDINGS
from dprepro.figures import klt25_gap, klt25_lasry_lions, style
from dprepro.findings import DRAWN, HOLDS, Finding, Question, klt25
from dprepro.provenance import PACKAGE
from dprepro.stages import findings as stage

GREY = to_rgb(style.GREY)
ORIGIN = {"commit": "0" * 40, "modified": False, "dprepro": "0.1.0", "numpy": "2.0", "python": "3.11"}
ORIGIN |= {"backend": "numpy", "dtype": "float64", "device": "cpu"}
SIZES = {"d": (8, 16, 32, 64, 128), "n": (512, 1024, 2048, 4096, 8192)}
FIXED = {"d": {"n": 8192}, "n": {"d": 32}}
SPREAD = np.array([0.9, 1.0, 1.0, 1.1])
# Student's t, 95 %, 3 degrees of freedom, times the standard error of SPREAD.
HALF = 3.182446305 * math.sqrt(0.02 / 3.0) / 2.0


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    with style.applied():
        yield
    plt.close("all")


def gap_frame() -> pd.DataFrame:
    """Gaps of the sizes that are measured: 0.55 sqrt(d/n) and 0.52/sqrt(n), times SPREAD."""
    rows = []
    for axis, sizes in SIZES.items():
        for x, (replicate, factor) in itertools.product(sizes, enumerate(SPREAD)):
            at = {"d": x, "n": x} | FIXED[axis]
            gaps = {"tight gap": 0.55 * math.sqrt(at["d"] / at["n"]), "benign gap": 0.52 / math.sqrt(at["n"])}
            rows += [
                {"series": series, "axis": axis, "x": float(x), "replicate": replicate, "gap": factor * value}
                for series, value in gaps.items()
            ]
    return pd.DataFrame(rows)


def gap_metadata() -> dict[str, Any]:
    def fitted(d: float, n: float) -> dict[str, Any]:
        slopes = {"d": d, "n": n}
        return {a: {"slope": s, "low": s - 0.03, "high": s + 0.04} for a, s in slopes.items()} | {"fixed": FIXED}

    rows = [
        {"n": n, "k": 50 * n, "population": 0.5, "sample": 0.0, "smoothed": 0.49, "bound": 1.5 / math.sqrt(n)}
        for n in (20, 40, 60)
    ]
    numbers = (fitted(0.52, -0.48), fitted(0.01, -0.51), {"rows": rows})
    names = (*(finding for _, finding, _ in klt25_gap.GAPS), klt25_gap.COUNTER_EXAMPLE)
    findings = {
        name: {"verdict": f"holds here, number {k}", "numbers": one}
        for k, (name, one) in enumerate(zip(names, numbers, strict=True))
    }
    return {"paper": "KLT25", "kind": "findings", "findings": findings, "origins": [ORIGIN]}


def grey_lines(axes: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    return [line.get_data() for line in axes.get_lines() if to_rgb(line.get_color()) == GREY and len(line.get_xdata())]


def error_bars(axes: Axes) -> list[ErrorbarContainer]:
    return [container for container in axes.containers if isinstance(container, ErrorbarContainer)]


def texts(drawn: Figure) -> list[Text]:
    """All texts but those of ticks."""
    axes = [axis for panel in drawn.axes for axis in (panel.xaxis, panel.yaxis)]
    ticks = {text for axis in axes for text in axis.get_ticklabels(which="both")}
    found = [text for text in drawn.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return [text for text in found if text not in ticks]


def assert_readable(drawn: Figure) -> None:
    """No text leaves the figure, none is below 5 points, and no two overlap."""
    drawn.canvas.draw()
    whole = drawn.bbox
    shown = [(text, text.get_window_extent()) for text in texts(drawn)]
    assert len(shown) > 10
    for text, box in shown:
        assert whole.x0 <= box.x0, text.get_text()
        assert box.x1 <= whole.x1, text.get_text()
        assert text.get_fontsize() >= 5.0
    for (one, box), (other, second) in itertools.combinations(shown, 2):
        apart = box.x1 <= second.x0 or second.x1 <= box.x0 or box.y1 <= second.y0 or second.y1 <= box.y0
        assert apart, f"{one.get_text()!r} and {other.get_text()!r} overlap"


def assert_labels_are_off_the_curves(axes: Axes) -> None:
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    for line in axes.get_lines():
        x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
        if line.get_transform() != axes.transData or len(x) < 2 or line.get_linestyle() == "None":
            continue
        pixels = axes.transData.transform(np.column_stack([x, y]))
        path = np.concatenate([np.linspace(a, b, 200) for a, b in itertools.pairwise(pixels)])
        for name, box in boxes.items():
            inside = (path[:, 0] > box.x0) & (path[:, 0] < box.x1) & (path[:, 1] > box.y0) & (path[:, 1] < box.y1)
            assert not inside.any(), f"a curve runs through {name!r}"


# The gap.


def test_the_guides_of_the_gap_are_the_bound_with_constant_one_and_have_its_exponents():
    drawn, _ = klt25_gap.figure(gap_frame(), gap_metadata())
    for axes, axis, theory in zip(drawn.axes[:2], ("d", "n"), (0.5, -0.5), strict=True):
        (guide,) = grey_lines(axes)
        assert guide[0] == pytest.approx(SIZES[axis])
        assert exact_exponent(*guide) == pytest.approx(theory)
        at = {"d": guide[0], "n": guide[0]} | FIXED[axis]
        assert guide[1] == pytest.approx(np.sqrt(at["d"] / at["n"]))
        assert axes.get_xscale() == axes.get_yscale() == "log"


def test_points_are_means_over_replicates_with_students_intervals():
    drawn, _ = klt25_gap.figure(gap_frame(), gap_metadata())
    for axes, axis in zip(drawn.axes[:2], ("d", "n"), strict=True):
        tight, benign = error_bars(axes)
        at = {"d": np.array(SIZES[axis]), "n": np.array(SIZES[axis])} | FIXED[axis]
        for bars, mean in ((tight, 0.55 * np.sqrt(at["d"] / at["n"])), (benign, 0.52 / np.sqrt(at["n"] + 0 * at["d"]))):
            line, _, (spans,) = bars.lines
            assert line.get_ydata() == pytest.approx(mean)
            ends = np.array([segment[:, 1] for segment in spans.get_segments()])
            assert ends == pytest.approx(np.outer(mean, [1.0 - HALF, 1.0 + HALF]), rel=1e-6)


def test_labels_have_the_exponents_of_the_findings():
    metadata = gap_metadata()
    metadata["findings"][klt25_gap.GAPS[0][1]]["numbers"]["n"] = {"slope": -0.31, "low": -0.4, "high": -0.2}
    drawn, _ = klt25_gap.figure(gap_frame(), metadata)
    labels = [[text.get_text() for text in axes.texts] for axes in drawn.axes]
    assert "w that fits the signs:\n$n^{-0.31}$  [-0.40, -0.20]" in labels[1]
    assert "w where descent leads:\n$d^{0.01}$  [-0.02, 0.05]" in labels[0]
    assert [axes.get_title(loc="left") for axes in drawn.axes[:2]] == ["against d, n = 8,192", "against n, d = 32"]


def test_the_counter_example_shows_the_norms_of_its_finding_and_what_the_bound_allows():
    drawn, _ = klt25_gap.figure(gap_frame(), gap_metadata())
    axes = drawn.axes[2]
    (allowed,) = grey_lines(axes)
    assert allowed[1] == pytest.approx([0.5 - 1.5 / math.sqrt(n) for n in (20, 40, 60)])
    heights = [list(line.get_ydata()) for line in axes.get_lines() if to_rgb(line.get_color()) != GREY]
    assert heights == [[0.5] * 3, [0.49] * 3, [0.0] * 3]


def test_the_gap_is_readable_and_says_where_it_comes_from():
    drawn, caption = klt25_gap.figure(gap_frame(), gap_metadata())
    assert_readable(drawn)
    for axes in drawn.axes:
        assert_labels_are_off_the_curves(axes)
    assert "over 4 samples (d = 8 to 128 at n = 8,192; n = 512 to 8,192 at d = 32)" in caption
    assert "k = 1,000 at n = 20" in caption
    assert "Proposition 5.1 as stated: holds here, number 2." in caption
    assert "commit 000000000000, dprepro 0.1.0, NumPy 2.0, Python 3.11, numpy float64 on cpu" in caption
    assert any(origin.made_line({"origins": [ORIGIN]}) in text.get_text() for text in drawn.texts)


# Lasry-Lions smoothing.


RISES = {0.1: -1.4, 0.3: 0.5}


def zigzag_frame(lam: float) -> pd.DataFrame:
    """A function with slopes from -1 to 1, which rise at the rate 1/lambda around RISES[lambda]."""
    x = np.linspace(-2.0, 2.0, 401)
    slope = np.clip((x - RISES[lam]) / lam, -1.0, 1.0)
    slope[:8] = slope[-8:] = np.nan
    h = np.abs(x - RISES[lam])
    columns = {"series": f"zigzag, lambda = {lam:g}", "x_1": x, "h": h, "smoothed": h - 0.1 * lam, "slope": slope}
    return pd.DataFrame(columns | {"lambda": lam})


def plane_frame() -> pd.DataFrame:
    ticks = np.linspace(-1.5, 1.5, 21)
    x, y = (part.ravel() for part in np.meshgrid(ticks, ticks, indexing="ij"))
    h = np.maximum(np.abs(x) - np.abs(y), np.abs(y) - 1.0)
    columns = {"series": "saddle, lambda = 0.1", "x_1": x, "x_2": y, "h": h, "smoothed": h - 0.05 * np.exp(-(x**2))}
    return pd.DataFrame(columns | {"lambda": 0.1})


def smoothing_rows() -> list[dict[str, Any]]:
    made = [("peak", 1, L, 0.1) for L in (0.1, 0.3, 1.0, 3.0)] + [("peak", 2, 3.0, 0.1), ("saddle", 2, 1.0, 0.1)]
    made += [("zigzag", 1, 1.0, lam) for lam in (0.1, 0.3)]
    return [
        {"family": f, "d": d, "L": L, "lambda": lam, "below": 0.9 * L**2 * lam, "smoothness": 0.8 / lam}
        | {"excess": -0.01 * L}
        for f, d, L, lam in made
    ]


def smoothing_figure(rows: list[dict[str, Any]] | None = None) -> tuple[Figure, str]:
    frame = pd.concat([zigzag_frame(0.1), zigzag_frame(0.3), plane_frame()], ignore_index=True)
    numbers = {"rows": smoothing_rows() if rows is None else rows, "allowance": 0.02}
    names = (klt25_lasry_lions.DISTANCE, klt25_lasry_lions.SMOOTHNESS, klt25_lasry_lions.GOLDSTEIN)
    findings = {name: {"verdict": "holds here", "numbers": numbers} for name in names}
    metadata = {"paper": "KLT25", "kind": "findings", "findings": findings, "origins": [ORIGIN]}
    return klt25_lasry_lions.figure(frame, metadata)


def bounds(axes: Axes, kind: str) -> list[float]:
    lines = [line.get_ydata() for line in axes.get_lines() if line.get_gid() == kind]
    assert all(low == high for low, high in lines)
    return [float(low) for low, _ in lines]


def test_the_bounds_beside_the_measured_facts_are_those_as_printed_and_as_corrected():
    drawn, _ = smoothing_figure()
    distances, smoothness, goldstein = drawn.axes[4:]
    L = np.array([0.1, 0.3, 1.0, 3.0])
    assert bounds(distances, "printed") == pytest.approx(L)
    assert bounds(distances, "corrected") == pytest.approx(L**2)
    assert bounds(smoothness, "printed") == pytest.approx(L)
    assert bounds(smoothness, "corrected") == pytest.approx(np.ones(4))
    assert [label.get_text() for label in goldstein.get_xticklabels()] == ["0.1", "0.3", "1", "3"]


def measured(axes: Axes) -> list[float]:
    markers = [line for line in axes.get_lines() if line.get_marker() in klt25_lasry_lions.FAMILIES.values()]
    return sorted(float(value) for line in markers for value in line.get_ydata())


def test_every_smoothed_function_is_a_point_in_units_of_its_own_lambda():
    rows = smoothing_rows()
    rows[0]["below"] = 0.05
    drawn, _ = smoothing_figure(rows)
    distances, smoothness, goldstein = drawn.axes[4:]
    assert measured(distances) == pytest.approx(sorted([0.5, *(0.9 * row["L"] ** 2 for row in rows[1:])]))
    assert measured(smoothness) == pytest.approx([0.8] * len(rows))
    assert measured(goldstein) == pytest.approx([-0.01] * len(rows))


def test_points_stand_over_the_bound_of_their_own_lipschitz_constant():
    drawn, _ = smoothing_figure()
    levels = [0.1, 0.3, 1.0, 3.0]
    for line in drawn.axes[4].get_lines():
        if line.get_marker() in klt25_lasry_lions.FAMILIES.values():
            for x, y in zip(*line.get_data(), strict=True):
                assert y == pytest.approx(0.9 * levels[round(x)] ** 2)
                assert abs(x - round(x)) < 0.42


def test_a_family_without_a_marker_is_not_passed_over():
    """Every function of the findings has one."""
    made = {(case.family, case.instance.d) for case in klt25.smoothed_cases()}
    assert made == set(klt25_lasry_lions.FAMILIES)


def test_the_guides_of_the_gradients_have_the_slope_one_over_lambda():
    drawn, _ = smoothing_figure()
    guides = grey_lines(drawn.axes[1])
    assert [float((y[1] - y[0]) / (x[1] - x[0])) for x, y in guides] == pytest.approx([10.0, 1.0 / 0.3])
    for (x, y), place in zip(guides, RISES.values(), strict=True):
        assert np.interp(place, x, y) == pytest.approx(0.0, abs=1e-6), "the guide lies on the slopes that rise"


def test_a_function_of_two_variables_and_its_smoothing_have_the_same_contours():
    drawn, _ = smoothing_figure()
    one, other = (axes.collections[0] for axes in drawn.axes[2:4])
    assert one.levels == pytest.approx(other.levels)
    assert len(one.levels) > 10
    assert all(axes.get_aspect() == 1.0 for axes in drawn.axes[2:4])


def test_lasry_lions_is_readable_and_says_where_it_comes_from():
    drawn, caption = smoothing_figure()
    assert_readable(drawn)
    for axes in drawn.axes[4:]:
        assert_labels_are_off_the_curves(axes)
    assert "two lambda (0.1 and 0.3)" in caption
    assert "for 8 smoothed functions with L from 0.1 to 3" in caption
    assert "Fact C.2 (iv): holds here" in caption
    assert caption.endswith("numpy float64 on cpu.")


# What is drawn is what was judged.


def test_the_drawn_smoothings_are_those_that_were_measured():
    numbers = klt25.compute_smoothing()
    rows = {(row["family"], row["L"], row["lambda"]): row for row in numbers["rows"]}
    for lam in (0.1, 0.3):
        columns, row = numbers[DRAWN][f"zigzag, lambda = {lam:g}"], rows["zigzag", 1.0, lam]
        assert float(np.max(columns["h"] - columns["smoothed"])) == row["below"]
        assert float(np.nanmax(np.abs(columns["slope"]))) == row["steepest"]
        assert columns["x_1"][1] - columns["x_1"][0] == pytest.approx(row["step"])
        # The slope stands at the point that it belongs to.
        inner = np.gradient(columns["smoothed"], columns["x_1"])[10:-10]
        assert inner == pytest.approx(columns["slope"][10:-10], abs=8.0 * row["step"] / lam)
    plane = numbers[DRAWN]["saddle, lambda = 0.1"]
    assert len(plane["h"]) == 101**2
    assert float(np.max(plane["h"] - plane["smoothed"])) <= rows["saddle", 1.0, 0.1]["below"]
    middle = (plane["x_1"] == 0.0) & (plane["x_2"] == 0.0)
    assert plane["h"][middle] == 0.0


def question(name: str, drawn: dict[str, Any] | None = None) -> Question:
    numbers = {"x": math.inf} | ({DRAWN: drawn} if drawn else {})
    return Question(name, lambda: numbers, lambda n: Finding("a", "here", "by hand", "by rule", HOLDS, n))


def test_the_stage_writes_what_figures_show_beside_the_verdicts(tmp_path, monkeypatch):
    shown = {"one": {"x": np.array([1.0, 2.0]), "y": [3.0, 4.0]}, "other": {"x": [5.0]}}
    monkeypatch.setitem(stage.PAPERS, "abg23", (question("A", shown), question("B", shown), question("C")))
    stage.write_findings("ABG23", tmp_path / "f.csv", tmp_path / "f.parquet")
    frame, metadata = read_collected(tmp_path / "f.parquet")
    assert frame["series"].tolist() == ["one", "one", "other"], "a computation that two questions share is drawn once"
    assert frame["x"].tolist() == [1.0, 2.0, 5.0]
    assert metadata["findings"]["A"] == {"verdict": HOLDS, "numbers": {"x": "inf"}}
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert [json.loads(row["numbers"]) for row in rows] == [{"x": "inf"}] * 3
    text = (tmp_path / "f.md").read_text()
    assert text.endswith(f"Made by {origin.made_line(metadata)}.\n")
    assert "float64 on cpu" in text


def test_the_stage_writes_nothing_if_a_question_has_no_answer(tmp_path, monkeypatch):
    def fail() -> dict[str, Any]:
        raise UserError("No.")

    broken = Question("B", fail, question("A").judge)
    monkeypatch.setitem(stage.PAPERS, "abg23", (question("A", {"one": {"x": [1.0]}}), broken))
    with pytest.raises(UserError, match=r"No\."):
        stage.write_findings("abg23", tmp_path / "f.csv", tmp_path / "f.parquet")
    assert list(tmp_path.iterdir()) == []


def test_findings_that_no_figure_shows_have_no_data(tmp_path, monkeypatch):
    monkeypatch.setitem(stage.PAPERS, "abg23", (question("A"),))
    with pytest.raises(UserError, match="No figure shows the findings on abg23: leave out --data"):
        stage.write_findings("abg23", tmp_path / "f.csv", tmp_path / "f.parquet")
    with pytest.raises(UserError, match=r"no \.parquet file"):
        stage.write_findings("abg23", tmp_path / "f.csv", tmp_path / "f.npz")
    assert list(tmp_path.iterdir()) == []
    stage.write_findings("abg23", tmp_path / "f.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.csv", "f.json", "f.md"]


def test_every_figure_of_findings_has_a_module_of_its_name_and_only_papers_with_something_to_draw_have_some():
    assert FINDINGS["abg23"] == ()
    named = [f"{paper}_{figure}" for paper, names in FINDINGS.items() for figure in names]
    assert named == ["klt25_gap", "klt25_lasry_lions"]
    assert all((PACKAGE / "figures" / f"{name}.py").is_file() for name in named)


def test_the_finding_of_the_extending_page_is_decided_by_its_numbers():
    page = (PACKAGE.parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "QUESTIONS" in block]
    module: dict[str, Any] = {}
    exec(code, module)
    (asked,) = module["QUESTIONS"]
    numbers = asked.compute()
    assert asked.judge(numbers).verdict == "contradicted at epsilon = 10"
    assert asked.judge(numbers | {"spent": [0.1, 0.2, 0.3]}).verdict == HOLDS


def test_figures_ask_for_findings_that_are_there():
    names = {question.name for question in klt25.QUESTIONS}
    asked = [*(finding for _, finding, _ in klt25_gap.GAPS), klt25_gap.COUNTER_EXAMPLE]
    asked += [klt25_lasry_lions.DISTANCE, klt25_lasry_lions.SMOOTHNESS, klt25_lasry_lions.GOLDSTEIN]
    assert set(asked) <= names
