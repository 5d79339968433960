"""What the tables of exponents say in words follows from their numbers by rule."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dprepro.sweeps import NONSMOOTH
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
                    "privacy_verdict": privacy, "delta": 1e-3, "rounds": 10.0,
                    "gradient_evaluations": 10 * x, "function_evaluations": 0.0,
                    "metric": "optimality gap", "bound_value": np.nan, "refused": "", "failure": failure,
                    "set_here": "", "constant_set_here": "", "member": "", "replicate": replicate, "samples": x,
                    "value_at_zero": np.nan,
                    "returned": np.nan, "tried": "[]", "runs_from_n": 10.0, "useful_from_n": 99.0,
                    "value": level * (x / 1000.0) ** slope * np.exp(0.05 * rng.normal()),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def conclusions(*lines):
    frame = pd.concat(lines, ignore_index=True)
    return sweeps.conclusions(sweeps.table(frame, metadata(frame)), frame)


def metadata(frame):
    methods = dict.fromkeys(frame["entry"].unique(), CLAIMS)
    return {"methods": methods, "problems": {"p": "a problem"}, "settings": {"p": {}}}


def test_a_rate_lost_to_certified_noise_and_its_repair_are_named_with_their_exponents():
    text = "\n".join(
        conclusions(
            line("plain", "svrg", "published", -2.0, accounted=50.0, privacy="not private as published").assign(
                constant_set_here="c = 1"
            ),
            line("honest", "svrg", "certified", -0.5, level=9.0),
            line("clipped", "svrg", "practical", -2.1),
        )
    )
    assert "svrg has the bound's n^-2 with the published noise (c = 1, set here); with the smallest noise that" in text
    assert "honest (certified) falls as n^-0.5" in text
    assert "calibrated alike, clipped (practical) falls as n^-2.1" in text
    assert "the published noise of plain with c = 1, set here, claims epsilon = 1" in text
    assert "at delta = 0.001 and spends 50." in text
    assert "clipped (practical) has the smallest optimality gap" in text


def test_nothing_is_called_lost_where_the_published_noise_misses_the_bound_too():
    lines = line("plain", "md", "published", -0.4), line("honest", "md", "certified", -0.4)
    assert not any("falls as" in text for text in conclusions(*lines))


def test_what_is_called_spent_is_the_lower_bound_where_a_verdict_quotes_one():
    verdict = "not private as published with c = 1, set here (epsilon at least 2.45)"
    (text,) = conclusions(line("plain", "fw", "published", -2.0, accounted=5.7, privacy=verdict))
    assert text.endswith("claims epsilon = 1 at delta = 0.001 and spends at least 2.45.")


def test_a_label_that_states_the_constant_is_not_followed_by_it_once_more():
    frame = line("DP-SGD, c = 1 (set here)", "sgd", "published", -2.0, accounted=3.0).assign(constant_set_here="c = 1")
    (text,) = conclusions(frame)
    assert "the published noise of DP-SGD, c = 1 (set here) claims epsilon = 1" in text


def test_beside_published_noise_it_is_said_how_it_was_read():
    frame = line("plain", "fw", "published", -2.0, accounted=3.0)
    found = metadata(frame)
    found["methods"] = {"plain": {**CLAIMS, "printed_noise": "that is with n; with n/T the claim is kept"}}
    (text,) = sweeps.conclusions(sweeps.table(frame, found), frame)
    assert text.endswith("what it spends is not known; that is with n; with n/T the claim is kept.")


def test_an_exponent_of_two_values_is_not_judged_in_row_or_sentence():
    frame = line("ours", "a", "practical", -1.0)
    two = frame[frame["axis_value"] < 3000.0]
    assert sweeps.table(two, metadata(two))["verdict"].iloc[0] == "too few values to tell"
    (sentence,) = conclusions(two)
    assert "ours (practical) has too few values of n to tell: n^-1.0" in sentence
    lost = frame.copy()
    lost.loc[lost["axis_value"] > 3000.0, "value"] = np.inf
    assert sweeps.table(lost, metadata(lost))["verdict"].iloc[0] == "too few values to tell", "two are left"
    three = frame[frame["axis_value"] < 5000.0]
    assert sweeps.table(three, metadata(three))["verdict"].iloc[0] == "not reached"


def test_an_exponent_is_held_against_a_baselines_own_bound_where_one_is_named():
    from dprepro.report.verdicts import COMPARED, kind

    frame = line("pure", "op", "published", 1.5)
    found = metadata(frame)
    found["methods"] = {"pure": {"exponents": {"n": 1.0}, "own_bounds": {"n": "its own bound"}}}
    for power, verdict in ((2.0, "within its own bound"), (1.0, "not within its own bound")):
        row = sweeps.table(frame.assign(bound_value=frame["n"] ** power), found).iloc[0]
        assert row["verdict"] == f"{verdict}, whose exponent is {power:.2f} here"
        assert kind(row["verdict"]) == COMPARED
        assert np.isnan(row["theory"]), "the table's entry is another bound"
    assert sweeps.table(frame, found)["verdict"].iloc[0] == "no exponent to compare"
    two = frame[frame["axis_value"] < 3000.0].assign(bound_value=lambda rows: rows["n"] ** 2.0)
    assert sweeps.table(two, found)["verdict"].iloc[0] == "too few values to tell"
    near = frame.assign(bound_value=frame["n"] ** 1.4)
    assert sweeps.table(near, found)["verdict"].iloc[0].endswith("whose exponent is 1.40 here, up to 0.15")


def test_costs_without_a_stated_exponent_are_nothing_to_compare_however_many_runs_failed():
    from dprepro.report.verdicts import FLAWED, NOTHING, kind

    frame = line("ours", "a", "certified", -2.0, failure="F(w) > F(0)")
    found = metadata(frame)
    for stated, expected in (({}, NOTHING), ({"evaluations": 1.0}, FLAWED)):
        found["methods"] = {"ours": {"exponents": {"n": -2.0}, **stated}}
        rows = sweeps.table(frame, found).set_index("quantity")["verdict"]
        assert kind(rows["gradient evaluations: exponent in n"]) == expected
    found["methods"] = {"ours": {}}
    rows = sweeps.table(frame, found).set_index("quantity")["verdict"]
    assert rows["gradient evaluations: exponent in n"] == "no exponent to compare; 32 of 32 runs failed"


def test_an_upper_bound_is_not_called_spent():
    (text,) = conclusions(line("plain", "fw", "published", -2.0, accounted=3.0, privacy="not certified (...)"))
    assert text.endswith(
        "claims epsilon = 1 at delta = 0.001 and is accounted 3, an upper bound: what it spends is not known."
    )


def test_the_winner_changes_with_the_numbers_and_equals_are_named():
    for best, other in (("a", "b"), ("b", "a")):
        (text,) = conclusions(
            line(best, best, "certified", -2.0, level=0.5),
            line(other, other, "certified", -2.0, level=0.9),
        )
        assert f"{best} (certified) has the smallest" in text
        assert "indistinguishable" not in text
    (text,) = conclusions(line("a", "a", "certified", -2.0), line("b", "b", "certified", -2.0))
    assert "indistinguishable from it: " in text


def test_of_practical_lines_it_is_said_whether_they_show_the_prediction_and_if_not_why():
    shown = conclusions(line("ours", "a", "practical", -2.0))
    assert "- p: ours (practical) agrees with the prediction: n^-2.0" in shown[0]
    assert "predicted n^-2.00." in shown[0]
    (faster,) = conclusions(line("ours", "a", "practical", -2.5))
    assert "is faster than predicted on this instance" in faster
    (alone,) = conclusions(line("ours", "a", "practical", -1.0))
    assert "ours (practical) misses the prediction: n^-1.0" in alone
    assert "no line without noise tells whether noise or schedule is the cause." in alone
    for slope, cause in (
        (-1.02, "the noise is not the cause here."),
        (-2.0, "the noise is part of the cause."),
    ):
        silent = line("silent", "a", "published", slope).assign(epsilon=np.inf, epsilon_accounted=np.inf)
        (text,) = conclusions(line("ours", "a", "practical", -1.0), silent)
        assert f"without noise it is n^{slope:.1f}" in text
        assert text.endswith(cause)


def owned(frame, entry):
    """The metadata of lines of which one is the paper's own."""
    found = metadata(frame)
    found["methods"] = {**found["methods"], entry: {**CLAIMS, "source": "this paper, Theorem 1"}}
    return found


def test_it_is_said_from_which_n_a_method_of_the_paper_beats_the_others():
    ours, theirs = line("ours", "a", "certified", -2.0, level=4.0), line("theirs", "b", "certified", -1.0, level=1.2)
    frame = pd.concat([ours, theirs], ignore_index=True)
    text = "\n".join(sweeps.conclusions(sweeps.table(frame, owned(frame, "ours")), frame))
    assert "p: ours (certified) is ahead of theirs (certified) from n = 4,000 on (4 n measured)" in text
    assert "at n = 8,000 its error is 1/2.4 of that; neither is tuned in this run." in text
    turned = "\n".join(sweeps.conclusions(sweeps.table(frame, owned(frame, "theirs")), frame))
    ahead = "(ahead at n = 1,000, 2,000)"
    assert (
        f"p: theirs (certified) is not ahead of ours (certified) at n = 8,000, the largest measured {ahead}" in turned
    )
    assert "at n = 8,000 its error is 2.4 times that; neither is tuned in this run." in turned
    late = pd.concat([ours.assign(value=1.5 * ours["value"]), theirs], ignore_index=True)
    text = "\n".join(sweeps.conclusions(sweeps.table(late, owned(late, "ours")), late))
    assert "p: ours (certified) is ahead of theirs (certified) at n = 8,000, the largest measured (4 n" in text
    level = pd.concat([ours, ours.assign(method="theirs", entry="theirs")], ignore_index=True)
    text = "\n".join(sweeps.conclusions(sweeps.table(level, owned(level, "ours")), level))
    words = "ours (certified) cannot be told from theirs (certified) at n = 8,000, the largest measured; at"
    assert words in text, "equal errors are no win"
    other = level["method"] == "theirs"
    level.loc[other & (level["axis_value"] < 3000.0), "value"] *= 2.0
    text = "\n".join(sweeps.conclusions(sweeps.table(level, owned(level, "ours")), level))
    words = "cannot be told from theirs (certified) at n = 8,000, the largest measured (ahead at n = 1,000, 2,000); at"
    assert words in text, "where it is ahead is said here as elsewhere"


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ("[]", "[]", "; neither is tuned in this run."),
        ("[1, 2]", "[]", "; only ours is tuned in this run."),
        ("[]", "[1, 2, 3]", "; only theirs is tuned in this run."),
        ("[1, 2]", "[1, 2, 3]", "; tuned over 2 and 3 candidates."),
    ],
)
def test_a_comparison_says_which_side_is_tuned(ours, theirs, words):
    lines = line("ours", "a", "certified", -2.0).assign(tried=ours), line("theirs", "b", "certified", -1.0)
    frame = pd.concat([lines[0], lines[1].assign(tried=theirs)], ignore_index=True)
    text = "\n".join(sweeps.conclusions(sweeps.table(frame, owned(frame, "ours")), frame))
    assert next(part for part in text.split("\n") if "ahead of" in part).endswith(words)


def test_failed_runs_beat_nothing_however_small_their_error_is():
    ours = line("ours", "a", "certified", -2.0, level=0.1, failure="F(w) > F(0)")
    frame = pd.concat([ours, line("theirs", "b", "certified", -1.0)], ignore_index=True)
    text = "\n".join(sweeps.conclusions(sweeps.table(frame, owned(frame, "ours")), frame))
    assert "ours (certified) is not ahead of theirs (certified) at n = 8,000, the largest measured (4 n" in text
    assert "ahead at none); at n = 8,000 runs of ours (certified) failed; failed runs at 4 of 4 n" in text
    turned = "\n".join(sweeps.conclusions(sweeps.table(frame, owned(frame, "theirs")), frame))
    assert "; at n = 8,000 runs of ours (certified) failed; neither" in turned
    assert "times that" not in text + turned, "of runs that failed no ratio is quoted"
    some = line("ours", "a", "certified", -2.0, level=4.0)
    some.loc[some["axis_value"] < 1500.0, "failure"] = "F(w) > F(0)"
    frame = pd.concat([some, line("theirs", "b", "certified", -1.0)], ignore_index=True)
    text = "\n".join(sweeps.conclusions(sweeps.table(frame, owned(frame, "ours")), frame))
    assert "times that; failed runs at 1 of 4 n" in text or "of that; failed runs at 1 of 4 n" in text


def test_methods_are_ranked_at_one_n_where_the_axis_is_another_one():
    small, large = line("small", "a", "certified", -2.0), line("large", "b", "certified", -2.0, level=0.1)
    third = line("third", "c", "certified", -2.0, level=2.0)
    frame = pd.concat([rows.assign(axis="d", n=n) for rows, n in ((small, 100), (large, 900), (third, 100))])
    (text,) = [line for line in conclusions(frame) if "smallest" in line]
    assert "p, at d = 8000, n = 100, epsilon = 1 accounted for all: small (certified) has the smallest" in text
    assert "large" not in text


def test_runs_that_found_nothing_to_return_stand_beside_the_exponent():
    frame = line("ours", "a", "certified", -1.0).assign(returned=1.0)
    frame.loc[frame["axis_value"] == 2000.0, "returned"] = 0.5
    rows = sweeps.table(frame, metadata(frame))
    assert rows["verdict"].iloc[0] == "not reached; 4 of 32 runs found no leaf to return (all at 2,000)"
    frame.loc[frame["axis_value"] > 3000.0, "returned"] = 0.0
    rows = sweeps.table(frame, metadata(frame))
    assert rows["verdict"].iloc[0].startswith("20 of 32 runs found no leaf to return (all at 2,000 and 4,000")


def test_agreement_of_runs_that_found_nothing_to_return_is_no_plain_agreement_in_badge_sentence_or_caption():
    from dprepro.origin import _sweep_failures
    from dprepro.report.verdicts import FLAWED, kind

    frame = line("ours", "a", "practical", -2.0).assign(returned=1.0)
    assert _sweep_failures(frame) == "No run failed."
    frame.loc[frame["axis_value"] == 2000.0, "returned"] = 0.25
    verdict = sweeps.table(frame, metadata(frame))["verdict"].iloc[0]
    assert verdict == "agrees; 6 of 32 runs found no leaf to return (all at 2,000)"
    assert kind(verdict) == FLAWED
    (sentence,) = conclusions(frame)
    assert sentence.endswith("; 6 of 32 runs found no leaf to return (all at 2,000).")
    assert _sweep_failures(frame) == (
        "No run ended worse than w = 0 or not finite. Runs that found no leaf to return: p, ours (practical): 6 of 32."
    )
    frame.loc[:, "returned"] = 0.25
    (sentence,) = conclusions(frame)
    assert "ours (practical) is no success, as half of its runs or more failed or returned nothing, or half" in sentence


def test_regimes_of_one_method_meet_where_their_fitted_lines_do():
    steep = line("ours", "a", "certified", -2.0)
    flat = line("ours", "a", "certified", -0.5, level=0.01).assign(problem="q", entry="flat")
    flat["axis_value"] *= 100.0
    frame = pd.concat([steep, flat.assign(n=flat["axis_value"])], ignore_index=True)
    methods = {"ours": CLAIMS, "flat": {**CLAIMS, "exponents": {"n": -0.5}}}
    found = {"methods": methods, "problems": {}, "settings": {"p": {}, "q": {}}}
    text = "\n".join(sweeps.conclusions(sweeps.table(frame, found), frame))
    # (x/1000)^-2 = 0.01 (x/100000)^-0.5 at (x/1000)^1.5 = 10.
    assert "p and q: the error of ours (certified) goes as n^-2.0" in text
    meets = float(text.partition("the fitted lines meet at n = ")[2].split()[0].rstrip("."))
    assert abs(meets / (1000.0 * 10.0 ** (2.0 / 3.0)) - 1.0) < 0.1
    divided = frame.assign(rounds=frame["axis_value"] ** 0.1)
    assert "meet at" in "\n".join(sweeps.conclusions(sweeps.table(divided, found), divided)), "rounds are no axis"
    same = {**found, "methods": {"ours": CLAIMS, "flat": CLAIMS}}
    assert "meet at" not in "\n".join(sweeps.conclusions(sweeps.table(frame, same), frame))


def test_points_that_are_no_better_than_the_start_stand_beside_the_exponent():
    frame = line("ours", "a", "certified", -1.0).assign(value_at_zero=0.4)
    rows = sweeps.table(frame, metadata(frame))
    assert rows["verdict"].iloc[0] == "2 of 4 points no better than the initial point; not reached"
    assert rows["below_start_from"].iloc[0] == 4000.0
    assert abs(rows["last_error_over_start"].iloc[0] - 0.125 / 0.4) < 0.02
    rows = sweeps.table(frame.assign(value_at_zero=0.9), metadata(frame))
    assert rows["verdict"].iloc[0] == "not reached; 1 of 4 points no better than the initial point"


def test_the_worst_overspend_of_all_axes_is_reported_with_its_own_delta():
    frame = line("ours", "a", "published", -2.0, accounted=1.5)
    worse = frame.assign(axis="epsilon", epsilon_accounted=3.0, delta=1e-7)
    frame = pd.concat([frame, worse], ignore_index=True)
    (text,) = sweeps.conclusions(sweeps.table(frame, metadata(frame)), frame)
    assert "claims epsilon = 1 at delta = 1e-07 and is accounted 3, an upper bound: what" in text


def test_methods_are_compared_at_the_last_point_that_most_of_them_share():
    long, short = line("long", "a", "certified", -2.0), line("short", "b", "certified", -2.0, level=3.0)
    third = line("third", "c", "certified", -2.0, level=2.0, failure="F(w) > F(0)")
    short, third = short[short["axis_value"] < 5000.0], third[third["axis_value"] < 5000.0]
    (text,) = conclusions(long, short, third)
    assert "p, at n = 4000, epsilon = 1 accounted for all: long (certified) has the smallest optimality gap" in text
    assert "; behind it: short (certified) 0.1" in text
    assert "; left out for failed runs: third (certified); tuned in this run: none." in text


def test_failed_runs_stand_beside_the_exponent():
    frame = line("honest", "svrg", "certified", -0.5, failure="F(w) > F(0)")
    rows = sweeps.table(frame, metadata(frame))
    assert rows["verdict"].iloc[0].startswith("32 of 32 runs failed; not reached")
    assert sweeps._wide(rows)["failed"].iloc[0] == "32 of 32"


@pytest.mark.parametrize(
    ("stated", "refused", "failure", "verdict"),
    [
        (True, "", "", "agrees: ran"),
        (False, "", "", "the paper says no; ran"),
        (False, "it needs a smooth regularizer", "", "agrees: refused: it needs a smooth regularizer"),
        (True, "it needs a smooth regularizer", "", "the paper says yes; not run here: it needs a smooth regularizer"),
        (None, "", "", "ran"),
        (True, "", "F(w) > F(0)", "8 of 8 runs failed; agrees: ran"),
        (None, "", "F(w) > F(0)", "8 of 8 runs failed; ran"),
    ],
)
def test_a_run_with_a_kink_is_held_against_what_the_paper_says_and_is_no_success_if_it_fails(
    stated, refused, failure, verdict
):
    frame = line("ours", "a", "certified", -1.0, failure=failure).assign(axis=NONSMOOTH, refused=refused)
    frame = frame[frame["axis_value"] == X[0]]
    found = metadata(frame)
    found["methods"] = {"ours": {} if stated is None else {"nonsmooth": stated}}
    assert sweeps.table(frame, found)["verdict"].iloc[0] == verdict


@pytest.mark.parametrize("slope", [-2.0, -2.5, -1.0])
def test_the_sentence_on_a_practical_line_quotes_the_verdict_of_its_row(slope):
    frame = line("ours", "a", "practical", slope)
    verdict = sweeps.table(frame, metadata(frame))["verdict"].iloc[0]
    words = {"agrees": "agrees with the prediction", "faster than the bound": "is faster than predicted"}
    (sentence,) = conclusions(frame)
    assert f"ours (practical) {words.get(verdict, 'misses the prediction')}" in sentence


def test_an_interval_that_is_too_wide_is_not_said_to_show_anything():
    rng = np.random.default_rng(1)
    frame = line("ours", "a", "practical", -2.0)
    frame["value"] *= np.exp(2.0 * rng.normal(size=len(frame)))
    assert sweeps.table(frame, metadata(frame))["verdict"].iloc[0] == "too wide to tell"
    (sentence,) = conclusions(frame)
    assert "ours (practical) has too wide an interval to tell" in sentence


def test_a_line_of_which_all_runs_failed_does_not_meet_a_bound():
    lines = (
        line("plain", "svrg", "published", -2.0, failure="F(w) > F(0)"),
        line("honest", "svrg", "certified", -0.5, level=9.0),
    )
    assert not any("has the bound's" in text for text in conclusions(*lines))


def test_failures_stand_beside_an_exponent_that_would_agree():
    frame = line("ours", "a", "practical", -2.0)
    frame.loc[frame["replicate"] < 5, "failure"] = "F(w) > F(0)"
    assert sweeps.table(frame, metadata(frame))["verdict"].iloc[0] == "20 of 32 runs failed; agrees"
    (sentence,) = (text for text in conclusions(frame) if "(practical)" in text)
    assert "ours (practical) is no success, as half of its runs or more failed" in sentence
    assert sentence.endswith("; 20 of its runs failed.")
    lost = [line("plain", "a", "published", -2.0), frame.assign(method="lost", entry="lost", variant="certified")]
    text = "\n".join(conclusions(*lost))
    assert "has the bound's" not in text, "of runs that failed no exponent is told"


def test_agreement_by_the_tolerance_alone_is_said():
    (sentence,) = conclusions(line("ours", "a", "practical", -1.9))
    assert (
        "ours (practical) agrees with the prediction only to within the table's tolerance of 0.15: n^-1.9" in sentence
    )
