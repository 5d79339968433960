"""Verdicts on a paper's claims follow from numbers by rule: other numbers, other verdicts."""

from __future__ import annotations

import copy
import csv
import itertools
import json
import math

import numpy as np
import pytest

from dprepro.algorithms import recursive_regularization, tree_spider
from dprepro.arrays import get_backend
from dprepro.errors import UserError
from dprepro.experiments import FINDINGS
from dprepro.findings import CONTRADICTED, EMPTY, HOLDS, OURS, REPAIRED, UNDECIDED, Finding, Question, abg23
from dprepro.privacy.accounting import account, gaussian_epsilon
from dprepro.privacy.cases import linear_case
from dprepro.privacy.certificate import certify
from dprepro.problems import make_risk
from dprepro.run import execute
from dprepro.stages import findings as stage

TREE_BOUND = {
    "grid": [(1, 1.0), (10, 1.0)],
    "says_from": [9e16, 1e17],
    "stops_below": [2e16, 3e16],
    "n": 1000,
    "p": 0.1,
    "bound_over_L0": 4.5e3,
    "exceeded": 0.0,
    "first_leaf": 1.0,
    "largest_output": 0.0,
}
CONSTANT_ROW = {
    "epsilon": 1.0,
    "n": 1000,
    "spent_c1": 4.0,
    "spent_at_least_c1": 2.0,
    "spent_c8": 0.4,
    "smallest_c": 3.0,
    "kappa_c1": 0.4,
    "needed_c": 2.2,
    "kappa_needed": 1.5,
    "kappa_smallest": 2.0,
    "kappa_c8": 16.0,
    "q_over": 6.0,
}
CONSTANT = {"rows": [CONSTANT_ROW, dict(CONSTANT_ROW)]}
BELOW = {"mean": 0.1, "error": 0.01, "kappa": 2.0}
ABOVE = {"mean": 0.4, "error": 0.01, "kappa": 16.0}
PHASE_LENGTH = {**CONSTANT, "runs": [{"n": 1024, "start": 0.2, "smallest": BELOW, "c8": ABOVE}]}
RECURSION = {
    "n": 10**4,
    "d": 10,
    "printed": {"lambda": 1e-7, "T": 23, "steps": 1e11, "evaluations": 1e14},
    "corrected": math.nan,
    "refusal": "Too much work.",
}
PHASES = {"rows": [{"n": 1000, "T": 7, "exact": 1.9, "exact_output": 1.8, "spent": 2.0, "repaired": 0.2, "lemma": 0.1}]}
PHASES["claimed"] = 1.0
EMBEDDED = {"rows": [{"n": 1000, "rank": 1, "k": 20, "too_long": 5e-3, "safe_k": 106}], "allowed": 5e-6}
IDENTITY = {"d": 256, "rows": [{"k": 16, "norm": 5.0, "smallest": 4.9, "claimed": 0.25}]}
DEVIATION = {"rows": [{"n": 10**4, "deviation": 1.28, "bound": 0.9, "radius": 447.0}], "beta": 1e-6}
TREE_NOISE = {"rows": [{"epsilon": 1.0, "spent": 0.75, "times": 1.3}]}
TREE_WORK = {"n": 1000, "returned": 0.0, "samples": 950, "evaluations": 1700, "T": 3, "b": 64, "D": 3}

CONSTANT_1 = (
    "holds here with a constant, as only the order of q is printed: with constant 1 (set here) kappa is at least 1/2 "
    "for every private c, "
)
WITH_5_3 = (
    "holds here with a constant, as the proof has k up to one: with 5.3 times that k; with constant 1 (set here) it"
)

# The numbers, what is changed in them by path, and the verdict before and after.
PLANTED = [
    (abg23.judge_tree_bound, TREE_BOUND, {"says_from": [1e5, 1e6]}, EMPTY, HOLDS),
    (abg23.judge_tree_bound, TREE_BOUND, {"says_from": [1e5, 1e17]}, EMPTY, UNDECIDED),
    (abg23.judge_tree_bound, TREE_BOUND, {"exceeded": 0.6}, EMPTY, CONTRADICTED),
    (abg23.judge_constant, CONSTANT, {"rows.1.spent_c8": 1.1}, HOLDS, CONTRADICTED),
    (
        abg23.judge_phase_length,
        PHASE_LENGTH,
        {"rows.1.kappa_needed": 0.4},
        CONSTANT_1 + "with 1/6 it is below",
        UNDECIDED,
    ),
    (abg23.judge_phase_length, PHASE_LENGTH, {"rows.1.q_over": 8.0}, HOLDS, CONSTANT_1 + "with 1/8 it is below"),
    (abg23.judge_phase_length, PHASE_LENGTH, {"rows.1.q_over": math.inf}, HOLDS, CONTRADICTED),
    (
        abg23.judge_phase_length,
        PHASE_LENGTH,
        {f"rows.{row}.kappa_{of}": 0.3 for row in (0, 1) for of in ("needed", "smallest")},
        CONSTANT_1,
        f"{HOLDS}; runs",
    ),
    (abg23.judge_recursion, RECURSION, {"printed.evaluations": 1e6, "refusal": ""}, UNDECIDED, HOLDS),
    (abg23.judge_recursion, RECURSION, {"printed.evaluations": 1e6}, UNDECIDED, UNDECIDED),
    (abg23.judge_phases, PHASES, {"rows.0.repaired": 1.1}, f"{REPAIRED}, repaired by reading n/T", CONTRADICTED),
    (abg23.judge_phases, PHASES, {"rows.0.exact": 0.5}, REPAIRED, UNDECIDED),
    (abg23.judge_phases, PHASES, {"rows.0.exact": 0.5, "rows.0.spent": 0.9}, REPAIRED, HOLDS),
    (abg23.judge_embedded_rows, EMBEDDED, {"rows.0.too_long": 1e-7}, WITH_5_3, UNDECIDED),
    (abg23.judge_embedded_rows, EMBEDDED, {"rows.0.too_long": 1e-12, "rows.0.k": 150}, WITH_5_3, HOLDS),
    (abg23.judge_identity, IDENTITY, {"rows.0.smallest": 0.9}, CONTRADICTED, UNDECIDED),
    (abg23.judge_identity, IDENTITY, {"rows.0.smallest": 0.2, "rows.0.norm": 0.3}, CONTRADICTED, HOLDS),
    (abg23.judge_uniform_deviation, DEVIATION, {"rows.0.deviation": 0.8}, CONTRADICTED, UNDECIDED),
    (abg23.judge_tree_noise, TREE_NOISE, {"rows.0.spent": 1.2}, HOLDS, CONTRADICTED),
    (abg23.judge_tree_work, TREE_WORK, {"samples": 1001}, f"{HOLDS} with a difference as one query", CONTRADICTED),
    (abg23.judge_tree_work, TREE_WORK, {"evaluations": 1000}, f"{HOLDS} with a difference", HOLDS),
    (abg23.judge_tree_work, TREE_WORK, {"returned": 0.1}, HOLDS, UNDECIDED),
]


def changed(numbers, edits):
    """Return the numbers with some of them, named by their path, replaced."""
    result = copy.deepcopy(numbers)
    for path, value in edits.items():
        *way, last = path.split(".")
        place = result
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        place[last] = value
    return result


@pytest.mark.parametrize(("judge", "numbers", "edits", "before", "after"), PLANTED)
def test_a_planted_change_of_the_numbers_changes_the_verdict(judge, numbers, edits, before, after):
    assert judge(numbers).verdict.startswith(before)
    assert judge(changed(numbers, edits)).verdict.startswith(after)


def test_every_judge_has_a_planted_change():
    assert {question.judge for question in abg23.QUESTIONS} == {judge for judge, *_ in PLANTED}


@pytest.mark.parametrize(
    ("at_least", "spent", "words"), [(2.0, 4.0, "not with c = 1, set here"), (0.5, 0.9, "and with c = 1, set here")]
)
def test_the_open_constant_taken_as_one_is_judged_by_what_it_surely_spends(at_least, spent, words):
    rows = [{**CONSTANT_ROW, "spent_at_least_c1": at_least, "spent_c1": spent}]
    assert abg23.judge_constant({"rows": rows}).verdict.endswith(words)


def test_a_constant_between_its_bounds_is_not_judged():
    rows = [{**CONSTANT_ROW, "spent_at_least_c1": 0.5, "spent_c1": 1.5}]
    assert abg23.judge_constant({"rows": rows}).verdict == "holds here with c = 8"


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({}, "the smallest certified c end below the start, with c = 8 end above the start"),
        (
            {"runs.0.c8.mean": 0.16},
            "the smallest certified c end below the start, with c = 8 end on no clear side of the start",
        ),
        ({"runs.0.smallest.mean": 0.24}, "c end on no clear side of the start, with c = 8 end above the start"),
        ({"runs.0.smallest.mean": 0.3, "runs.0.c8.mean": 0.1}, "c end above the start, with c = 8 end below the start"),
    ],
)
def test_what_runs_do_is_judged_beside_the_condition_on_kappa(edits, words):
    assert abg23.judge_phase_length(changed(PHASE_LENGTH, edits)).verdict.endswith(words)


@pytest.mark.parametrize(
    ("edits", "returned"), [({}, True), ({"first_leaf": 0.5}, False), ({"largest_output": 1e-3}, False)]
)
def test_an_empty_bound_names_what_a_run_returns_only_if_every_replicate_does(edits, returned):
    verdict = abg23.judge_tree_bound(changed(TREE_BOUND, edits)).verdict
    assert verdict.startswith("empty below n = 9e+16: true, and says nothing")
    assert verdict.endswith("w = 0") == returned


def test_it_is_said_for_which_ranks_rows_are_too_long_and_for_which_that_is_not_known():
    rows = [
        {**EMBEDDED["rows"][0], "rank": rank, "k": 20 * rank, "too_long": 10.0 ** -(2 * rank)} for rank in range(1, 7)
    ]
    verdict = abg23.judge_embedded_rows({**EMBEDDED, "rows": rows}).verdict
    assert verdict.endswith(
        "; with constant 1 (set here) it fails for rank 1 and 2 and is not shown for rank 3, 4 and 5"
    )


def test_a_slip_that_a_lost_symbol_makes_is_said_to_be_perhaps_our_copys():
    assert OURS in abg23.judge_phases(PHASES).verdict
    assert OURS not in abg23.judge_phase_length(PHASE_LENGTH).verdict


def test_a_verdict_outside_the_five_is_no_finding():
    with pytest.raises(ValueError, match="no verdict"):
        Finding("c", "p", "x", "r", "maybe", {})


# What is computed.


def test_the_bound_of_the_tree_is_empty_and_every_replicate_returns_the_first_leaf():
    """The bound is 3/2 of the threshold, so that it is below L0 from about (3/2)^3 times as many records on."""
    numbers = abg23.compute_tree_bound()
    assert numbers["first_leaf"] == 1.0
    assert numbers["largest_output"] == numbers["exceeded"] == 0.0
    assert all(1e16 < n < 1e17 for n in numbers["stops_below"])
    for says, stops in zip(numbers["says_from"], numbers["stops_below"], strict=True):
        assert 1.5**3 < says / stops < 1.2 * 1.5**3
    assert (
        abg23.judge_tree_bound(numbers).verdict
        == "empty below n = 9.32e+16: true, and says nothing; the run returns w = 0"
    )


def test_a_bound_out_of_sight_says_nothing_at_any_size(monkeypatch):
    monkeypatch.setattr(tree_spider, "printed_alpha_tilde", lambda setting, F0: 1.0)
    assert abg23._bound_says_from(1.0, 10) == math.inf


def test_the_constant_of_the_noise_is_private_from_about_three_and_spends_four_at_one():
    rows = abg23.compute_constant()["rows"]
    for row in rows:
        assert 2.4 < row["smallest_c"] < 3.4
        assert row["spent_c8"] < row["epsilon"] < row["spent_at_least_c1"]
        assert row["kappa_smallest"] >= row["kappa_needed"] > 0.5
        assert row["smallest_c"] >= row["needed_c"] > 1.0
    assert [round(row["spent_c1"], 1) for row in rows if row["epsilon"] == 1.0] == [4.1, 4.2, 3.8]


def test_no_private_noise_meets_the_condition_on_phases_and_yet_runs_with_the_smallest_descend():
    numbers = abg23.compute_phase_length()
    for r in numbers["runs"]:
        assert r["smallest"]["kappa"] > 0.5
        assert r["start"] == pytest.approx(0.2, rel=1e-6)
        assert r["smallest"]["mean"] + 5.0 * r["smallest"]["error"] < r["start"]
        assert r["c8"]["mean"] - 5.0 * r["c8"]["error"] > r["start"]
    finding = abg23.judge_phase_length(numbers)
    assert finding.verdict.startswith(CONSTANT_1 + "with 1/6 it is below; runs")


def test_phased_sgd_is_private_with_n_over_t_in_the_noise_and_not_with_the_printed_n():
    """Exact on one pair, and so at most what is accounted. With n/T mu is epsilon/(4 sqrt(ln(1/delta)))."""
    numbers = abg23.compute_phases()
    rows = numbers["rows"]
    assert [round(row["exact"], 2) for row in rows] == [1.97, 3.04, 4.15]
    assert [round(row["spent"], 2) for row in rows] == [2.08, 3.08, 4.17]
    assert all(1.0 < row["exact_output"] <= row["exact"] <= row["spent"] for row in rows)
    ideal = gaussian_epsilon(1.0 / (4.0 * math.sqrt(math.log(1.0 / abg23.DELTA))), abg23.DELTA)
    assert all(row["repaired"] == pytest.approx(ideal, rel=0.02) for row in rows)
    assert all(row["lemma"] < 0.05 for row in rows)
    verdict = abg23.judge_phases(numbers).verdict
    assert verdict.startswith("fails as printed, repaired by reading n/T for n, as for NoisyGD")
    assert verdict.endswith(f"it then spends at most {max(row['repaired'] for row in rows):.3g}")


def test_what_is_accounted_of_phases_is_what_the_table_shows():
    """The table has R = 1; a farther ball costs more rounding."""
    for row in abg23.compute_phases()["rows"]:
        shown = certify(abg23.phased_plan(row["n"], 1.0, R=1.0))["epsilon_accounted"]
        assert (
            row["spent"] == shown < account(abg23.phased_plan(row["n"], 1.0).events, abg23.DELTA).epsilon * (1 + 1e-9)
        )


@pytest.mark.parametrize(("round_number", "k"), [(1, 1), (1, 2), (1, 4), (7, 1), (7, 4)])
def test_the_shift_of_a_phase_is_that_of_two_runs_without_noise(round_number, k, monkeypatch):
    """The theorem's plan on both neighbours, the record being the first sample of the phase."""
    plan, n = abg23.phased_plan(1000, math.inf), 1000
    phases = [(r, phase) for r in plan.schedule.rounds() for phase in r.phases()]
    place = next(i for i, (r, _) in enumerate(phases) if r.t == round_number) + k - 1
    first = sum(phase.steps for _, phase in phases[:place])
    case, means, backend = linear_case(n, {}), [], get_backend("cpu", "float64")
    mean_point = recursive_regularization._output_perturbed

    def kept(*arguments):
        means.append(mean_point(*arguments))
        return means[-1]

    monkeypatch.setattr(recursive_regularization, "_output_perturbed", kept)
    for X, y in (case.rows, case.neighbour):
        problem = make_risk(case.spec, np.roll(X, first, axis=0), np.roll(y, first), backend)
        execute(plan, problem, seed=0, replicates=[0], tile=1)
    up, down = means[place], means[len(phases) + place]
    assert up[0, 0] - down[0, 0] == pytest.approx(abg23.phase_shift(plan, *phases[place]), rel=1e-9)
    assert np.array_equal(up[:, 1:], down[:, 1:])
    before = zip(means[:place], means[len(phases) :], strict=False)
    assert all(np.array_equal(one, other) for one, other in before)


def test_the_noise_of_phases_reaches_no_ball():
    for n in (10**3, 10**4, 10**5):
        plan = abg23.phased_plan(n, 1.0)
        sigmas = plan.events[0].sigmas
        assert all(r.R_t > 10.0 * sigmas[phase.kind] for r in plan.schedule.rounds() for phase in r.phases())
        assert plan.lam == math.log(n) / n


def test_the_printed_recursion_is_that_of_an_independent_sum():
    """lambda = d/(n epsilon)^2 = 1e-7, T = floor(log2(1e7)) = 23, K_t the noise's term in every round but few."""
    found = abg23.printed_recursion(10**4, 10, 1.0)
    assert found["lambda"] == pytest.approx(1e-7)
    assert found["T"] == 23
    lam = 1e-7 * 2.0 ** np.arange(1, 24)
    noise = 1e8 * (1e-7 + 1.0) / (23**2 * 1e-7 * 10 * math.log(1e5))
    steps = np.maximum((1 + lam) / lam * np.log((1 + lam) / lam), noise)
    assert found["evaluations"] == pytest.approx(np.sum(steps) * (10**4 // 23))
    assert found["evaluations"] > 1e14
    assert abg23.judge_recursion(abg23.compute_recursion()).verdict.startswith(UNDECIDED)


def test_the_probability_of_a_long_row_is_that_of_draws():
    """20000 draws: 6 standard deviations, a false alarm in less than one case in a million."""
    row = abg23.compute_embedded_rows()["rows"][0]
    lengths = np.random.default_rng(0).chisquare(row["k"], size=20_000) / row["k"]
    share, p = np.mean(lengths > 2.0), row["too_long"]
    assert abs(share - p) <= 6.0 * math.sqrt(p / 20_000)


def test_the_rows_of_an_embedding_are_no_identity():
    rows = abg23.compute_identity()["rows"]
    assert all(row["smallest"] >= 1.0 for row in rows)
    assert all(earlier["norm"] > later["norm"] for earlier, later in itertools.pairwise(rows))


def test_the_deviation_of_the_counter_example_is_that_of_plain_gradients():
    """A small copy with dense rows, against the numbers of slopes and counts."""
    n, N = 30, 300
    drawn = np.random.default_rng(4).integers(N, size=n)
    X = np.concatenate([np.ones((N, 1)), np.eye(N)], axis=1) / math.sqrt(2.0)
    w = np.full(N + 1, -math.sqrt(2.0))
    w[0], w[1 + drawn] = 0.0, math.sqrt(2.0)
    slopes = np.clip(X @ w, -1.0, 1.0)
    gap = np.mean(slopes[:, None] * X, axis=0) - np.mean(slopes[drawn, None] * X[drawn], axis=0)
    assert abg23.deviation(np.bincount(drawn, minlength=N)) == pytest.approx(np.linalg.norm(gap))
    assert np.linalg.norm(w) == pytest.approx(math.sqrt(2.0 * N))


def test_the_counter_example_breaks_the_lemma():
    numbers = abg23.compute_uniform_deviation()
    assert all(1.25 < row["deviation"] < 1.31 for row in numbers["rows"])
    assert abg23.judge_uniform_deviation(numbers).verdict == (
        "contradicted as stated, for rows whose rank and a ball whose radius grow with n; the example says nothing of "
        "a fixed rank, at which the table abg23_row6 measures the rate of Corollary 6.2"
    )


def test_the_noise_of_the_tree_is_private_and_more_than_needed():
    rows = abg23.compute_tree_noise()["rows"]
    assert [round(row["spent"], 3) for row in rows] == [0.751, 0.353, 0.061]
    assert all(row["times"] > 1.25 for row in rows)


def test_a_run_of_the_tree_looks_at_few_samples_and_evaluates_more_gradients_than_records():
    numbers = abg23.compute_tree_work()
    assert numbers["returned"] == 0.0
    T, b, D = (numbers[key] for key in ("T", "b", "D"))
    assert numbers["samples"] == T * b * (D + 2) // 2 <= numbers["n"]
    assert numbers["evaluations"] == T * b * (D + 1) > numbers["n"]


# The stage.


def test_the_stage_writes_claims_numbers_rules_and_verdicts(tmp_path, monkeypatch):
    question = Question("A claim", lambda: {"x": math.inf}, lambda numbers: _finding(numbers, HOLDS))
    other = Question("Another", lambda: {"x": 2.0}, lambda numbers: _finding(numbers, f"{CONTRADICTED} at 2"))
    monkeypatch.setitem(stage.PAPERS, "abg23", (question, other))
    stage.write_findings("abg23", tmp_path / "f.csv")
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert [row["verdict"] for row in rows] == [HOLDS, f"{CONTRADICTED} at 2"]
    assert [json.loads(row["numbers"])["x"] for row in rows] == ["inf", 2.0]
    text = (tmp_path / "f.md").read_text()
    assert "| A claim | a \\| b | here | holds here |" in text
    assert "Claim (here): a | b." in text
    assert "Rule: by rule." in text
    assert "Computed: by hand." in text
    assert "Verdict: **contradicted at 2**." in text
    assert "Made by commit" in text
    assert all(f"`{word}`" in text for word in (CONTRADICTED, REPAIRED, HOLDS, EMPTY, UNDECIDED))
    assert "machine-converted text, in which symbols may be lost" in text


def _finding(numbers, verdict):
    return Finding("a | b", "here", "by hand", "by rule", verdict, numbers)


def test_a_paper_without_findings_is_refused(tmp_path):
    with pytest.raises(UserError, match="no findings on 'wyx99': choose one of abg23"):
        stage.write_findings("wyx99", tmp_path / "f.csv")


def test_the_workflow_makes_the_findings_of_every_paper_that_has_some():
    assert set(FINDINGS) == set(stage.PAPERS)
