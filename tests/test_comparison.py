"""The conclusion of the comparison follows from its numbers by rule."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from dprepro.tables import wyx17_comparison as comparison

SETTING = {
    "loss": "logistic",
    "regularizer": {"l2": 0.1},
    "constraint": None,
    "dataset": {"name": "data"},
    "base": {"n": 10},
}
TRIED = json.dumps([{"letters": {"T": 3}}, {"letters": {"T": 9}}])
METADATA = {"problems": {"p": "a problem"}, "methods": {}, "settings": {"p": SETTING}}


def frame(*methods: tuple[str, float, float, int]) -> pd.DataFrame:
    """Replicates of methods given as (name, mean gap, spread, gradient evaluations); gap at w = 0 is 1."""
    rows = []
    for name, mean, spread, cost in methods:
        for replicate, step in enumerate((-1.0, -0.5, 0.5, 1.0)):
            value = mean + spread * step
            rows.append(
                {
                    "experiment": "e", "problem": "p", "method": name, "entry": name, "variant": "certified",
                    "metric": "optimality gap",
                    "epsilon": 0.5, "epsilon_accounted": 0.5, "delta": 1e-3, "n": 10, "d": 2, "replicate": replicate,
                    "value": value, "value_at_zero": 1.0, "gradient_evaluations": cost, "refused": "",
                    "failure": "" if value <= 1.0 else "F(w) > F(0)", "covers": "all iterates", "drawn_by": "",
                    "letters": json.dumps({"T": 3, "eta": 0.123456, "r": None}), "tried": TRIED,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def test_the_best_is_named_first_and_others_are_measured_against_it():
    rows = comparison.table(frame(("slow", 0.3, 0.01, 900), ("good", 0.1, 0.01, 1000)), METADATA)
    assert list(rows["method"]) == ["good", "slow"]
    assert list(rows["verdict"]) == ["best", "3 times the best"]
    assert rows["letters"].iloc[0] == "T=3, eta=0.1235"
    assert rows["tried"].iloc[0] == 2


def test_methods_whose_intervals_meet_are_level_and_the_cheaper_one_is_named():
    data = frame(("good", 0.1, 0.05, 1000), ("cheap", 0.11, 0.05, 10), ("far", 0.5, 0.01, 1))
    rows = comparison.table(data, METADATA)
    assert list(rows["verdict"]) == ["best", "level with the best", "5 times the best"]
    overall, sentence = comparison.conclusion(rows)
    assert overall == "- Of 1 settings, the smallest gap was reached by: good in 1."
    assert "good has the smallest gap, 0.1 " in sentence
    assert "indistinguishable from cheap" in sentence
    assert "cheap is the cheapest with 100 times fewer gradients" in sentence


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((0.01, 0.1, 0.2), ""),
        ((0.1,), ""),
        ((0.1, 0.2), " (the smallest step of its grid was chosen, and a smaller one may do better)"),
        ((0.01, 0.1), " (the largest step of its grid was chosen, and a larger one may do better)"),
    ],
)
def test_a_step_at_an_end_of_its_grid_is_named_in_verdict_and_conclusion(steps, words):
    data = frame(("good", 0.1, 0.01, 5), ("cut", 0.3, 0.01, 5), ("wild", 0.5, 0.6, 5), ("even", 0.1, 0.01, 5))
    cut = data["method"] != "good"
    data.loc[cut, "letters"] = json.dumps({"eta": 0.1})
    data.loc[cut, "tried"] = json.dumps([{"letters": {"eta": eta}} for eta in steps])
    rows = comparison.table(data, METADATA)
    said = ("best", f"level with the best{words}", f"3 times the best{words}", f"1 of 4 replicates failed{words}")
    assert tuple(rows["verdict"]) == said
    text = "\n".join(comparison.conclusion(rows))
    assert "indistinguishable from even" in text
    ends = [f"- For cut{words.replace('(', '').rstrip(')')}: p at epsilon = 0.5."] if words else []
    assert [line for line in text.split("\n") if line.startswith("- For cut ")] == ends


def test_the_rule_promises_no_more_than_the_best_of_these_candidates():
    data = frame(("good", 0.1, 0.01, 5))
    text = comparison.summary(comparison.table(data, METADATA), data, METADATA)
    assert "the best of these candidates on other seeds, which is neither the best that a method can do nor" in text


def test_methods_certified_for_their_output_alone_are_named():
    data = frame(("good", 0.1, 0.01, 5), ("quiet", 0.2, 0.01, 5))
    data.loc[data["method"] == "quiet", "covers"] = "output"
    last = comparison.conclusion(comparison.table(data, METADATA))[-1]
    assert last == "- Certified for the output alone, all others for every iterate: quiet."


def test_swapping_the_numbers_swaps_the_winner():
    for winner, loser in (("a", "b"), ("b", "a")):
        rows = comparison.table(frame((winner, 0.1, 0.01, 5), (loser, 0.2, 0.01, 5)), METADATA)
        assert f"reached by: {winner} in 1" in comparison.conclusion(rows)[0]


def test_a_method_with_failed_replicates_never_wins_and_is_named():
    rows = comparison.table(frame(("wild", 0.01, 0.005, 5), ("safe", 0.2, 0.01, 5)), METADATA)
    assert rows["method"].iloc[0] == "wild"
    data = frame(("wild", 0.5, 0.6, 5), ("safe", 0.9, 0.01, 5))
    rows = comparison.table(data, METADATA)
    assert rows["method"].iloc[0] == "safe"
    assert rows["verdict"].iloc[1] == "1 of 4 replicates failed"
    text = "\n".join(comparison.conclusion(rows))
    assert "wild ends above w = 0 in some replicates: p at epsilon = 0.5." in text
    assert "reached by: safe in 1" in text


def test_a_refused_method_keeps_its_sentence():
    data = frame(("good", 0.1, 0.01, 5), ("no", 0.2, 0.01, 5))
    data.loc[data["method"] == "no", ["value", "gradient_evaluations"]] = np.nan
    data.loc[data["method"] == "no", "refused"] = "It needs more."
    rows = comparison.table(data, METADATA)
    assert rows["verdict"].iloc[1] == "refused: It needs more."
    assert "no" not in comparison.conclusion(rows)[0].split("by: ")[1]


def test_the_figure_is_drawn_from_the_same_table(tmp_path):
    from dprepro.figures import style
    from dprepro.figures.wyx17_comparison import figure

    origin = {"commit": "0" * 40, "modified": False, "dprepro": "0", "numpy": "0", "python": "0", "backend": "numpy"}
    facts = {"title": "Data", "preprocessing": "none", "name": "data"}
    metadata = METADATA | {
        "paper": "WYX17",
        "title": "t",
        "origins": [origin | {"dtype": "float64", "device": "cpu"}],
        "datasets": {"data": facts},
    }
    with style.applied():
        drawn, caption = figure(frame(("good", 0.1, 0.01, 5), ("wild", 0.9, 0.2, 5)), metadata)
        style.save(drawn, tmp_path / "f.png")
    assert (tmp_path / "f.svg").read_text().count("wild") == 1
    assert "every method at the same accounted epsilon" in caption
    assert "p, wild (certified): 1 of 4" in caption
