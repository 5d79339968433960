"""Verdicts and sentences are counted by kinds that do not mix what holds with what does not."""

from __future__ import annotations

import pytest

from dprepro import findings
from dprepro.analysis.intervals import Interval
from dprepro.analysis.rates import count_verdict, rate_verdict
from dprepro.report.verdicts import (
    AGREES,
    BAD,
    BETTER,
    COMPARED,
    DIFFERS,
    FAILED,
    FLAWED,
    FURTHER,
    GOOD,
    MISSED,
    NOTHING,
    OPEN,
    OTHER,
    REFUSED,
    counted,
    grouped,
    kind,
    tone,
)
from dprepro.tables.sweeps import ratio_verdict


def interval(middle: float, width: float = 0.02) -> Interval:
    return Interval(middle, middle - width / 2, middle + width / 2)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (rate_verdict(interval(-0.5), -0.5), AGREES),
        (rate_verdict(interval(-0.9), -0.5), BETTER),
        (rate_verdict(interval(-0.1), -0.5), MISSED),
        (rate_verdict(interval(-0.5, 2.0), -0.5), NOTHING),
        (rate_verdict(interval(-0.5), float("nan")), NOTHING),
        (count_verdict(1.0, 1.0), AGREES),
        (count_verdict(0.5, 1.0), BETTER),
        (count_verdict(2.0, 1.0), MISSED),
        (ratio_verdict(interval(3.0)), COMPARED),
        (ratio_verdict(interval(0.1)), COMPARED),
        ("agrees; 1 of 40 runs failed; not private as published", FLAWED),
        ("not reached; 1 of 40 runs failed", MISSED),
        ("12 of 40 runs failed, 3 of them not finite, so that nothing is measured at 8; agrees", FLAWED),
        ("24 of 40 runs failed; not reached", FAILED),
        ("agrees; 14 of 40 runs found no leaf to return (all at 524,288 and 1,048,576)", FLAWED),
        ("30 of 40 runs found no leaf to return (all at 524,288); agrees", FLAWED),
        ("30 of 40 runs found no leaf to return (all at 524,288); not reached", FAILED),
        ("3 of 16 replicates failed", FAILED),
        ("14 of 16 replicates end above w = 0 at this step", COMPARED),
        ("1.36e+04 times the best", COMPARED),
        ("above the bound", AGREES),
        ("above the bound with constant 1", COMPARED),
        ("indistinguishable from the bound with constant 1", COMPARED),
        ("ran", NOTHING),
        ("agrees: ran", AGREES),
        ("agrees: refused: dp_gd needs a smooth regularizer", AGREES),
        ("the paper says yes; not run here: dp_gd needs a smooth regularizer", COMPARED),
        ("the paper says no; ran", COMPARED),
        ("gradient evaluations differ", OTHER),
        ("differs", DIFFERS),
        ("170 of 256 runs failed; agrees", FLAWED),
        ("8 of 11 points no better than the initial point; agrees", FLAWED),
        ("within the bound", COMPARED),
        ("falls more slowly than the bound", COMPARED),
        ("larger than that of the private terms", COMPARED),
        ("4 of 4 runs failed; ran", FAILED),
        ("32 of 32 runs failed; agrees; not private as published", FLAWED),
        ("needs more than were run", NOTHING),
        ("refused: dp_gd needs a smooth regularizer", REFUSED),
        ("", NOTHING),
        ("not private as published (accounted epsilon = 5)", "not private"),
        ("not private as published (epsilon at least 2.45)", "not private"),
        ("not certified (accounted epsilon = 5 is an upper bound)", "not certified"),
        ("not certified (accounted epsilon = 5 is an upper bound); conditions of the theorem not met", "not certified"),
        ("not private as published with c = 1, set here (accounted epsilon = 5)", "not private"),
        ("certified, loose (3.16 times more noise than needed)", "certified"),
        ("a verdict that nobody has thought of", OTHER),
    ],
)
def test_a_verdict_is_of_the_kind_that_its_first_words_say(verdict, expected):
    assert kind(verdict) == expected


@pytest.mark.parametrize(
    "word", [findings.CONTRADICTED, findings.REPAIRED, findings.HOLDS, findings.EMPTY, findings.UNDECIDED]
)
def test_findings_are_of_the_kind_of_their_word(word):
    assert kind(f"{word}: so and so") == word


def test_kinds_are_counted_in_one_order_and_other_is_never_coloured_good():
    assert list(counted(["no bound", "agrees", "agrees; x", "???"]).items()) == [(AGREES, 2), (NOTHING, 1), (OTHER, 1)]
    assert tone(OTHER) == "open"


def test_what_fails_is_never_green_and_what_is_only_not_known_never_red():
    assert tone(kind("4 of 4 runs failed; ran")) == BAD
    assert tone(kind("4 of 4 runs failed; agrees: ran")) == OPEN, "whether it runs is all that is asked"
    assert tone(kind("agrees: refused: dp_gd needs a smooth regularizer")) == GOOD
    for verdict in (
        "ran",
        "not certified (accounted epsilon = 5 is an upper bound)",
        "above the bound with constant 1",
        "within the bound",
        "refused: dp_gd needs a smooth regularizer",
    ):
        assert tone(kind(verdict)) == OPEN
    assert tone(kind(f"{findings.REPAIRED}, repaired by twice the bound")) == OPEN


def test_sentences_that_miss_are_not_among_those_that_show():
    sentences = [
        "p: A (practical) agrees with the prediction: n^-0.43",
        "p: A (practical) misses the prediction: n^-0.20",
        "s: A needs samples as (d)^0.45, private term of the bound 1: grows less than the private term (4 values).",
        "s: A needs samples as (d)^0.98, private term of the bound 1: agrees (4 values of d).",
        "p: A is not ahead of B up to n = 10; at n = 10 its error is 2 times that.",
        "p: A is ahead of B at every n (3 n measured); at n = 10 its error is 1/2 of that.",
        "Something else.",
        "s: A needs samples as (1/beta)^1.45, private term of the bound 1.5: too wide to tell (2 values of 1/beta).",
        "s: A needs samples as (d)^nan, private term of the bound nan: no exponent to compare (2 values of d).",
    ]
    found = grouped(sentences)
    assert sorted(sentence for group in found.values() for sentence in group) == sorted(sentences)
    assert found["the prediction is missed"] == [sentences[1]]
    assert found["the exponent agrees with the predicted one"] == [sentences[0], sentences[3]]
    assert found["faster than predicted"] == [sentences[2]]
    assert found["a method of the paper is behind another at its setting"] == [sentences[4]]
    assert found["a method of the paper is ahead of another at its setting"] == [sentences[5]]
    assert found["too wide an interval or too few values to tell"] == [sentences[7]]
    assert found[FURTHER] == [sentences[6], sentences[8]]


def test_how_to_read_the_verdicts_names_the_tolerances_of_the_rules():
    from dprepro.analysis.rates import COUNT_TOLERANCE, LOWER_TOLERANCE, SHARE, TOLERANCE, WIDEST
    from dprepro.report.page import _HOW_TO_READ

    for words in (
        f"of the error comes within {TOLERANCE:g}, or {SHARE:.0%} of",
        f"is no wider than {2.0 * WIDEST:g}",
        f"the exponent of a cost, which has no interval, comes within {COUNT_TOLERANCE:g} of the stated one",
        f"within {LOWER_TOLERANCE:g} of the exponent of that lower bound",
    ):
        assert words in _HOW_TO_READ
