"""Figures of sweeps and of tables made of parts: what is drawn, and that a reader can read it."""

from __future__ import annotations

import itertools
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
from matplotlib.legend import Legend
from matplotlib.text import Text

from dprepro import origin
from dprepro.figures import curves, parts, style, sweeps

LONG = "A method with a name that is as long as names of methods ever get"
GREY = to_rgb(style.GREY)
ORIGIN = {"commit": "0" * 40, "modified": False, "dprepro": "0.1.0", "numpy": "2.0", "python": "3.11"}
BACKEND = {"backend": "numpy", "dtype": "float64", "device": "cpu"}


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


def line(problem: str, method: str, variant: str = "published", **changes: Any) -> pd.DataFrame:
    """The rows of one method along one axis, whose error falls as the square root."""
    wanted = {"axis": "n", "values": [512, 2048, 32768], "epsilon": 1.0, "zero": 0.9, "level": 1.0, "member": ""}
    wanted |= {"replicates": 4, "metric": "excess risk", **changes}
    records = []
    for value, replicate in itertools.product(wanted["values"], range(wanted["replicates"])):
        at = {"n": 4096, "d": 8, "epsilon": wanted["epsilon"], wanted["axis"]: value}
        error = wanted["level"] * (value / wanted["values"][0]) ** -0.5 * (1.0 + 0.05 * replicate)
        records.append(
            at
            | {"problem": problem, "entry": method, "algorithm": method.split(",")[0], "method": method}
            | {"variant": variant, "axis": wanted["axis"], "axis_value": float(value), "member": wanted["member"]}
            | {"metric": wanted["metric"], "value": error, "value_at_zero": wanted["zero"], "replicate": replicate}
            | {"gradient_evaluations": 3.0 * at["n"], "function_evaluations": 0.0}
            | {"samples": at["n"], "rounds": 1.0, "bound_value": error}
            | {
                "seconds": 1e-6 * at["n"],
                "delta": 1e-5,
                "epsilon_accounted": at["epsilon"],
                "set_here": "",
                "constant_set_here": "",
            }
            | {
                "privacy_verdict": "private",
                "runs_from_n": np.nan,
                "useful_from_n": np.nan,
                "refused": "",
                "returned": np.nan,
            }
            | {"failure": "", "experiment": "one"}
        )
    return pd.DataFrame(records)


def metadata_of(frame: pd.DataFrame, timed: tuple[str, ...] = ()) -> dict[str, Any]:
    problems = list(dict.fromkeys(frame["problem"]))
    setting = {"loss": "absolute", "regularizer": {}, "constraint": None, "dataset": {"name": "data"}, "base": {}}
    return {
        "paper": "BGM21",
        "title": "Table 1, a row with a title",
        "methods": {entry: {"exponents": {"n": -0.5}} for entry in frame["entry"].unique()},
        "problems": {problem: f"the problem {problem}" for problem in problems},
        "settings": {problem: setting | {"timed": problem in timed} for problem in problems},
        "datasets": {"data": {"title": "A linear model with a long title" * 6, "preprocessing": "none"}},
        "origins": [ORIGIN | BACKEND],
    }


def drawn_sweeps(*lines: pd.DataFrame, timed: tuple[str, ...] = ()) -> tuple[Figure, str]:
    frame = pd.concat(lines, ignore_index=True)
    with style.applied():
        found, caption = sweeps.figure(frame, metadata_of(frame, timed))
        found.draw_without_rendering()
    return found, caption


def drawn_parts(**frames: pd.DataFrame) -> tuple[Figure, str]:
    described = {part: metadata_of(frame) for part, frame in frames.items()}
    frame = pd.concat([frame.assign(experiment=part) for part, frame in frames.items()], ignore_index=True)
    with style.applied():
        found, caption = parts.figure(frame, metadata_of(frame) | {"parts": described})
        found.draw_without_rendering()
    return found, caption


def texts(found: Figure) -> Iterator[Text]:
    """All words of a figure that are to be seen."""
    yield from found.texts
    for legend in found.findobj(Legend):
        yield from legend.get_texts()  # type: ignore[attr-defined]
    for axes in found.axes:
        yield from (axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title)  # type: ignore[attr-defined]
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, sorted(axes.get_ylim()))):
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if low <= tick.get_loc() <= high and tick.label1.get_visible():
                    yield tick.label1


def assert_readable(found: Figure) -> None:
    """No word is cut, none lies over another one, and no name lies over a panel."""
    words = [text for text in texts(found) if text.get_text()]
    boxes = {text: text.get_window_extent() for text in words}
    for text, box in boxes.items():
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= found.bbox.x1 and box.y1 <= found.bbox.y1
        assert inside, f"{text.get_text()!r} is cut: {box} in {found.bbox}"
    for one, other in itertools.combinations(words, 2):
        # Lines of text that stand close touch by a pixel.
        assert not boxes[one].padded(-1).overlaps(boxes[other].padded(-1)), f"{one.get_text()!r}, {other.get_text()!r}"
    for axes, text in itertools.product(found.axes, words):
        assert not axes.bbox.overlaps(boxes[text].padded(-1)), f"{text.get_text()!r} lies over a panel"


def by_label(found: Figure, label: str) -> list[Axes]:
    return [axes for axes in found.axes if axes.get_ylabel() == label]


def dashes(axes: Axes) -> list[list[float]]:
    """The heights of the grey dashed lines of a panel."""
    grey = [one for one in axes.get_lines() if one.get_linestyle() == "--" and to_rgb(one.get_color()) == GREY]
    return [sorted(set(np.asarray(one.get_ydata(), dtype=float).round(12))) for one in grey]


def five_lines(problem: str, **changes: Any) -> list[pd.DataFrame]:
    names = [f"{LONG}, {number}" for number in range(3)]
    lines = [line(problem, name, variant, **changes) for name in names for variant in ("published", "certified")]
    return lines[:5]


def test_long_names_many_axes_and_many_problems_leave_every_word_readable() -> None:
    found, _ = drawn_sweeps(
        *five_lines("l-one-and-a-half"),
        *five_lines("l-one-and-a-half", axis="epsilon", values=[0.1, 0.2, 0.4]),
        *five_lines("l-one-and-a-half", axis="d", values=[8, 64, 1024], level=1e-4),
        *five_lines("p2", axis="epsilon", values=[0.1, 0.2, 0.4], level=1e-6, zero=np.nan),
        line("low-rank", LONG, axis="d", values=[16, 1024]),
        line("low-rank-ball-with-a-long-key", LONG, axis="d", values=[16, 1024]),
        line("timed", LONG, values=[4096, 725178632]),
        timed=("timed",),
    )
    assert_readable(found)


def test_a_single_panel_still_has_room_for_the_title() -> None:
    found, _ = drawn_sweeps(line("p", "M", axis="d", values=[16, 1024]))
    assert_readable(found)


@pytest.mark.parametrize("level", [9.3e-4, 0.02, 0.95, 4e5])
@pytest.mark.parametrize("spread", [1.001, 2.0, 6.0, 80.0, 1e9])
def test_every_panel_names_two_to_four_heights(level: float, spread: float) -> None:
    found, _ = drawn_sweeps(
        line("p", "low", level=level, zero=np.nan, values=[512, 513], axis="d"),
        line("p", "high", level=spread * level, zero=np.nan, values=[512, 513], axis="d"),
    )
    low, high = found.axes[0].get_ylim()
    named = [tick.get_text() for tick in found.axes[0].get_yticklabels()]
    assert 2 <= len(named) <= 4
    assert len(set(named)) == len(named)
    assert all(low <= at <= high for at in found.axes[0].get_yticks())
    assert high >= 2.99 * low, "chance does not look like a trend"
    assert_readable(found)


def test_published_and_accounted_lines_share_a_panel_and_differ_in_their_marks() -> None:
    found, caption = drawn_sweeps(
        line("p", "M"), line("p", "M", "certified", level=0.5), line("p", "M, free", epsilon=np.inf, level=0.2)
    )
    (panel,) = by_label(found, "excess risk")
    marks = [one[0] for one in panel.containers if isinstance(one, ErrorbarContainer)]
    assert [to_rgb(mark.get_markerfacecolor()) == (1.0, 1.0, 1.0) for mark in marks] == [True, False, False]
    assert [mark.get_marker() for mark in marks][2] == "x"
    assert len({mark.get_marker() for mark in marks}) == 3
    (legend,) = found.findobj(Legend)
    names = [text.get_text() for text in legend.get_texts()]  # type: ignore[attr-defined]
    assert names == ["M (published)", "M (certified)", "M, free, without noise"]
    assert panel.get_title(loc="left") == "p, epsilon = 1"
    assert "Hollow marks have the published noise, full ones the accounted noise, crosses none." in caption


def test_names_give_the_epsilon_where_it_is_not_the_common_one() -> None:
    found, _ = drawn_sweeps(line("p", "M"), line("p", "N"), line("p", "O", epsilon=0.25))
    (legend,) = found.findobj(Legend)
    assert [text.get_text() for text in legend.get_texts()][2] == "O (published), epsilon =\n0.25"  # type: ignore[attr-defined]


def test_evaluations_are_shown_along_n_alone_and_not_of_a_timed_problem() -> None:
    found, _ = drawn_sweeps(
        line("along-n", "M"),
        line("along-n", "M", axis="d", values=[4, 8]),
        line("along-d", "M", axis="d", values=[4, 8]),
        line("timed", "M"),
        timed=("timed",),
    )
    assert len(by_label(found, "excess risk")) == 2
    (counts,) = by_label(found, "gradient evaluations")
    (one,) = counts.get_lines()
    assert list(one.get_ydata()) == [3.0 * n for n in (512, 2048, 32768)]
    (seconds,) = by_label(found, "CPU seconds")
    (mark, *_), *_ = seconds.containers
    assert list(mark.get_ydata()) == pytest.approx([1e-6 * n for n in (512, 2048, 32768)])
    assert len(found.axes) == 5


def test_small_problems_stand_side_by_side() -> None:
    small = [line(f"p{number}", "M", axis="d", values=[16, 1024]) for number in range(5)]
    found, _ = drawn_sweeps(*small)
    tops = [round(axes.get_position().y1, 6) for axes in found.axes]
    assert tops[0] == tops[1] == tops[2] > tops[3] == tops[4]
    assert found.get_size_inches()[0] <= 9.5


def test_the_error_of_the_initial_point_is_dashed_in_every_error_panel_where_it_is_known() -> None:
    changing = line("p", "M", axis="d", values=[4, 16])
    changing["value_at_zero"] = np.where(changing["d"] == 4, 0.6, 0.7)
    found, caption = drawn_sweeps(
        line("p", "M", zero=0.8),
        changing,
        line("unknown", "M", zero=np.nan),
        line("timed", "M", zero=0.8),
        timed=("timed",),
    )
    along_n, along_d, counts, unknown, _, timed = found.axes
    assert dashes(along_n) == [[0.8]]
    assert dashes(along_d) == [[0.6, 0.7]]
    assert not any(height for axes in (counts, unknown, timed) for height in dashes(axes))
    assert "grey dashes are the error of the initial point" in caption


def test_the_initial_point_of_a_family_is_that_of_the_worst_member_shown() -> None:
    strong = line("p", "M", member="signal = 0.5", level=2.0, zero=0.5)
    weak = line("p", "M", member="signal = 0.1", level=1.0, zero=0.1)
    hidden = line("p", "M", member="signal = 0.9", level=0.1, zero=0.9)
    other = line("p", "N", member="signal = 0.1", level=1.0, zero=0.1)
    found, caption = drawn_sweeps(strong, weak, hidden, other)
    assert dashes(found.axes[0]) == [[0.5]]
    assert "the largest of the members shown" in caption
    assert "members" not in drawn_sweeps(line("p", "M"))[1]


def test_a_table_of_parts_leaves_every_word_readable_whatever_the_names() -> None:
    for name in ("M", LONG, LONG + " and " + LONG):
        one = pd.concat([line("p", name), line("p", name, axis="epsilon", values=[0.1, 0.2, 0.4])])
        found, _ = drawn_parts(one=one, two=line("a-problem-with-a-long-key", name, "practical"))
        assert f"a-problem-with-a-long-key: {name} (practical)" in [text.get_text() for text in texts(found)]
        assert_readable(found)


def test_a_table_of_parts_tells_published_accounted_and_no_noise_apart() -> None:
    one = [line("p", "M"), line("p", "M", "certified"), line("p", "M without noise", epsilon=np.inf)]
    found, caption = drawn_parts(one=pd.concat(one))
    marks = [container[0] for container in found.axes[0].containers]
    assert [mark.get_marker() for mark in marks] == ["o", "o", "x"]
    assert [to_rgb(mark.get_markerfacecolor()) == (1.0, 1.0, 1.0) for mark in marks] == [True, False, False]
    assert [mark.get_xdata()[0] for mark in marks] == pytest.approx([-0.5] * 3)
    labels = [tick.get_text() for tick in found.axes[0].get_yticklabels()]
    title = "Table 1, a row with a title"
    assert labels == [title, "p: M (published)", "p: M (certified)", "p: M without noise"]
    assert [mark.get_ydata()[0] for mark in marks] == [1, 2, 3]
    assert "crosses: no noise" in caption
    assert caption.startswith("**BGM21.** Table 1")


def test_the_foot_of_a_table_of_parts_gives_sizes_privacy_and_replicates() -> None:
    free = line("p", "M without noise", epsilon=np.inf)
    one = pd.concat([line("p", "M"), free, line("p", "M", axis="epsilon", values=[0.25, 4])])
    found, _ = drawn_parts(one=one, two=line("q", "M", replicates=16))
    foot = found.texts[-1].get_text()
    assert "n = 512 to 32,768; d = 8; epsilon = 0.25 to 4; delta = 1e-05; 4 to 16 replicates" in foot


def test_a_method_with_replicates_of_its_own_is_counted_by_itself() -> None:
    said = "95 % interval over 8 to 16 replicates"
    rare = line("q", "M", replicates=8).assign(entry="m-at-another-n")
    both = pd.concat([line("p", "M", replicates=16), rare])
    assert origin.data_line(both, metadata_of(both)).endswith(said)
    assert "95 % interval over 8 replicates" in origin.data_line(rare, metadata_of(rare))
    found, caption = drawn_parts(one=both)
    assert "; 8 to 16 replicates" in found.texts[-1].get_text().replace("\n", " ")
    assert said in caption


# --- curves -----------------------------------------------------------------------------------------------------


def curve_rows(methods: tuple[str, ...], epsilons: tuple[float, ...]) -> pd.DataFrame:
    """The rows of methods that all fall alike at every epsilon."""
    return pd.DataFrame(
        {"method": method, "epsilon": epsilon, "delta": 1e-5, "checkpoint": checkpoint, "replicate": replicate}
        | {"gradient_evaluations": 100 * checkpoint, "seconds": 0.01 * checkpoint, "gap": 1.0 / (1 + checkpoint)}
        | {"gap_at_zero": 1.0, "gap_accuracy": 1e-12, "failure": "", "variant": "published", "n": 100, "d": 3}
        | {"epsilon_accounted": epsilon, "privacy_verdict": "certified", "entry": method, "experiment": "one"}
        | {"tile": 8, "final_gap": 0.5}
        for method in methods
        for epsilon in epsilons
        for checkpoint in range(4)
        for replicate in range(2)
    )


def drawn_curves(rows: pd.DataFrame, **changes: Any) -> tuple[Figure, str]:
    problem = {"loss": "logistic", "regularizer": {}, "constraint": None}
    metadata = {"paper": "WYX17", "title": "A figure", "problem": problem, "origins": [ORIGIN | BACKEND], **changes}
    metadata["datasets"] = {"data": {"title": "Some data", "preprocessing": "none"}}
    with style.applied():
        found, caption = curves.figure(rows, metadata)
        found.set_dpi(plt.rcParams["savefig.dpi"])
        found.draw_without_rendering()
    return found, caption


@pytest.mark.parametrize("lost", [0.5, 1.0])
def test_a_method_without_a_run_at_one_epsilon_keeps_its_other_curves_and_its_name(lost: float) -> None:
    rows = curve_rows(("GD", "DP-GD"), (0.5, 1.0))
    found, _ = drawn_curves(rows[(rows["method"] != "GD") | (rows["epsilon"] != lost)])
    lines = {axes: [one for one in axes.get_lines() if one.get_marker() == "o"] for axes in found.axes}
    assert sorted(len(curves) for curves in lines.values()) == [1, 1, 2, 2]
    named = [text for text in found.findobj(Text) if text.get_text() == "GD"]  # type: ignore[attr-defined]
    assert len(named) == 2
    assert all(len(lines[text.axes]) == 2 for text in named if lost == 1.0), "beside its last curve"


def test_a_run_that_is_finite_nowhere_costs_no_other_curve() -> None:
    rows = curve_rows(("GD", "DP-GD"), (1.0,))
    rows.loc[rows["method"] == "GD", "gap"] = np.inf
    found, _ = drawn_curves(rows)
    assert all(sum(one.get_marker() == "o" for one in axes.get_lines()) == 1 for axes in found.axes)


@pytest.mark.parametrize("epsilons", [(1.0,), (0.2, 0.5, 1.0)])
@pytest.mark.parametrize("name", ["GD", "DP-GD, eta = 1/L, T = 1000", "WWWWWWWWWWWWWWWWWWWWWWWWWWWW", LONG[:50]])
def test_the_name_of_a_curve_is_not_cut_however_long_it_is(name: str, epsilons: tuple[float, ...]) -> None:
    """The file of an own algorithm says what its curve is called."""
    rows = curve_rows((name, "DP-GD"), epsilons)
    rows["final_gap"] = np.where((rows["method"] == name) & (rows["epsilon"] == 1.0), 2.0, 0.5)
    found, caption = drawn_curves(rows)
    assert "No parameter is tuned" in caption
    assert f"Ends above w = 0 in the mean: {name} (epsilon = 1)." in caption
    assert "time per replicate when 8 run side by side" in caption, "the width of the runs themselves"
    named = [text for text in found.findobj(Text) if text.get_text() == style.folded(name)]  # type: ignore[attr-defined]
    assert len(named) == 2
    assert all(text.get_window_extent().x1 <= found.bbox.x1 for text in named)
    assert all(axes.bbox.width > 0.1 * found.bbox.width for axes in found.axes)
