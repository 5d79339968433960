"""What the tables of exponents say in words follows from their numbers by rule."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dprepro.tables import sweeps

X = (1000.0, 2000.0, 4000.0, 8000.0)
CLAIMS = {"exponents": {"n": -2.0}, "bound": "1/n^2", "evaluations": 1.0}


def line(method, algorithm, variant, slope, *, level=1.0, accounted=1.0, privacy="certified", failure=""):
    """Rows of one method along n with an exact power law for its error."""
    rng = np.random.default_rng(0)
    rows = []
    for x in X:
        for replicate in range(8):
            rows.append(
                {
                    "problem": "p", "entry": method, "method": method, "algorithm": algorithm, "variant": variant,
                    "axis": "n", "axis_value": x, "n": x, "d": 5, "epsilon": 1.0, "epsilon_accounted": accounted,
                    "privacy_verdict": privacy, "delta": 1e-3, "rounds": 10.0, "gradient_evaluations": 10 * x,
                    "metric": "optimality gap", "bound_value": np.nan, "refused": "", "failure": failure,
                    "set_here": "", "replicate": replicate,
                    "value": level * (x / 1000.0) ** slope * np.exp(0.05 * rng.normal()),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def conclusions(*lines):
    frame = pd.concat(lines, ignore_index=True)
    metadata = {"methods": dict.fromkeys(frame["entry"].unique(), CLAIMS), "problems": {"p": "a problem"}}
    return sweeps.conclusions(sweeps.table(frame, metadata), frame)


def test_a_rate_lost_to_honest_noise_and_its_repair_are_named_with_their_exponents():
    text = "\n".join(
        conclusions(
            line("plain", "svrg", "published", -2.0, accounted=50.0, privacy="not private as published"),
            line("honest", "svrg", "certified", -0.5, level=9.0),
            line("clipped", "svrg", "practical", -2.1),
        )
    )
    assert "svrg has the bound's n^-2 with the published noise; with the noise that its privacy needs" in text
    assert "honest (certified) falls as n^-0.5" in text
    assert "calibrated alike, clipped (practical) falls as n^-2.1" in text
    assert "the published noise of plain, open constants taken as 1, claims epsilon = 1 and spends 50." in text
    assert "clipped (practical) has the smallest optimality gap" in text


def test_nothing_is_called_lost_where_the_published_noise_misses_the_bound_too():
    lines = line("plain", "md", "published", -0.4), line("honest", "md", "certified", -0.4)
    assert not any("falls as" in text for text in conclusions(*lines))


def test_an_upper_bound_is_not_called_spent():
    (text,) = conclusions(line("plain", "fw", "published", -2.0, accounted=3.0, privacy="not certified (...)"))
    assert text.endswith("claims epsilon = 1 and is accounted at most 3.")


def test_the_winner_changes_with_the_numbers_and_equals_are_named():
    for best, other in (("a", "b"), ("b", "a")):
        (text,) = conclusions(
            line(best, best, "certified", -2.0, level=0.5),
            line(other, other, "certified", -2.0, level=0.9),
        )
        assert f"{best} (certified) has the smallest" in text
        assert "not to be told" not in text
    (text,) = conclusions(line("a", "a", "certified", -2.0), line("b", "b", "certified", -2.0))
    assert "not to be told from it: " in text


def test_failed_runs_stand_beside_the_exponent():
    rows = sweeps.table(
        line("honest", "svrg", "certified", -0.5, failure="F(w) > F(0)"),
        {"methods": {"honest": CLAIMS}, "problems": {"p": ""}},
    )
    assert "32 of 32 runs failed" in rows["verdict"].iloc[0]
    assert sweeps._wide(rows)["failed"].iloc[0] == "32 of 32"
