from __future__ import annotations

import dataclasses
import inspect
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dprepro.algorithms import get_algorithm, names
from dprepro.errors import LedgerMismatch, RunFailed, UserError, VacuousSetting
from dprepro.privacy import audit as audits
from dprepro.privacy import calibrate
from dprepro.privacy.audit import audit
from dprepro.privacy.bounds import AuditBound
from dprepro.privacy.calibrate import smallest_scale
from dprepro.privacy.cases import linear_case, sampled_case
from dprepro.privacy.events import GaussianEvent, QueryPart
from dprepro.privacy.mechanisms import GaussianMechanism
from dprepro.regularizers import Regularizer


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))


def run(name, epsilon=1.0, variant="certified", replicates=20_000, seed=3):
    return audit(get_algorithm(name), variant=variant, epsilon=epsilon, delta=1e-5, replicates=replicates, seed=seed)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_audit_of_noisy_gradient_descent_proves_most_of_what_is_accounted_and_never_more(epsilon):
    """The seed is fixed; over seeds the bound exceeds the truth with probability 1e-3 and at epsilon = 1 falls below
    70 % in about one case of six."""
    row = run("dp_gd", epsilon, seed=1)
    assert 0.7 * row["epsilon_accounted"] <= row["epsilon_audited"] <= row["epsilon_accounted"]


@pytest.mark.parametrize("name", names())
def test_audits_of_certified_algorithms_stay_below_the_accounted_epsilon(name):
    row = run(name, 2.0, replicates=4000)
    assert 0.0 <= row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0


def test_audit_of_dp_gd_as_published_proves_more_than_the_paper_claims():
    row = run("dp_gd", 1.0, "published")
    assert 1.0 < row["epsilon_audited"] <= row["epsilon_accounted"]
    assert row["verdict"] == "proves more than claimed with c = 1, set here"


def test_what_no_constant_repairs_is_not_put_down_to_a_constant_set_here():
    row = run("dp_acc_md", 1.0, "published")
    assert row["verdict"] == (
        "proves more than claimed: noise is added in the mirror step only, as in the proof (59)-(71), and the gradient "
        "step uses gradients without noise, which no constant repairs"
    )


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_planted_noise_halved_is_caught_by_the_audit(epsilon, monkeypatch):
    original = GaussianMechanism._noise_block
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 0.5 * original(self, *block))
    with pytest.raises(RunFailed, match="a mechanism, a sensitivity or the accountant is wrong"):
        run("dp_gd", epsilon)


@pytest.mark.parametrize("name", ["output_perturbation", "dp_acc_md", "noisy_mirror_descent", "dp_sgd"])
def test_planted_noise_halved_is_caught_in_every_algorithm_with_a_strong_attack(name, monkeypatch):
    original = GaussianMechanism._noise_block
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 0.5 * original(self, *block))
    with pytest.raises(RunFailed, match="the accountant is wrong"):
        run(name, 2.0, replicates=10_000)


@pytest.mark.parametrize("name", ["output_perturbation", "dp_acc_md", "noisy_mirror_descent", "dp_sgd"])
def test_the_same_algorithms_pass_their_audit_with_all_of_their_noise(name):
    row = run(name, 2.0, replicates=10_000)
    assert 0.3 < row["epsilon_audited"] <= row["epsilon_accounted"]


def test_planted_noise_halved_is_caught_under_last_iterate_accounting(monkeypatch):
    """On a strongly convex quadratic the last iterate leaks exactly what is accounted."""
    algorithm = _LastIterate()
    row = audit(algorithm, variant="certified", epsilon=2.0, delta=1e-5, replicates=8000, seed=1)
    assert 1.0 < row["epsilon_audited"] <= row["epsilon_accounted"]
    original = GaussianMechanism._noise_block
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 0.5 * original(self, *block))
    with pytest.raises(RunFailed, match="the accountant is wrong"):
        audit(algorithm, variant="certified", epsilon=2.0, delta=1e-5, replicates=8000, seed=1)


def test_planted_noise_halved_is_caught_in_poisson_batches(monkeypatch):
    algorithm = _PoissonSGD()
    row = audit(algorithm, variant="certified", epsilon=2.0, delta=1e-5, replicates=8000, seed=1)
    assert 0.3 < row["epsilon_audited"] <= row["epsilon_accounted"]
    original = GaussianMechanism._noise_block
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 0.5 * original(self, *block))
    with pytest.raises(RunFailed, match="the accountant is wrong"):
        audit(algorithm, variant="certified", epsilon=2.0, delta=1e-5, replicates=8000, seed=1)


class _PoissonSGD(type(get_algorithm("dp_sgd"))):
    """DP-SGD with Poisson batches on the case that makes a drawn record leak all it can."""

    def audit_case(self):
        return sampled_case({"T": 20, "b": 10, "eta": 1.0, "sampling": "poisson"})


class _LastIterate(type(get_algorithm("dp_gd"))):
    """DP-GD with last-iterate accounting on a linear loss with an l2 term, where its bound is attained."""

    def audit_case(self):
        case = linear_case(50, {"T": 10, "eta": 0.5, "release": "last"})
        return dataclasses.replace(case, spec=dataclasses.replace(case.spec, regularizer=Regularizer(l2=0.5)))


def test_planted_sensitivity_halved_is_caught_by_the_audit(monkeypatch):
    algorithm = get_algorithm("dp_gd")
    compute = type(algorithm).compute_plan

    def halved(self, setting, given):
        plan = compute(self, setting, given)
        event = plan.events[0]
        part = dataclasses.replace(event.parts[0], sensitivity=event.parts[0].sensitivity / 2)
        return dataclasses.replace(plan, events=(dataclasses.replace(event, parts=(part,)),))

    monkeypatch.setattr(type(algorithm), "compute_plan", halved)
    with pytest.raises(RunFailed, match="a mechanism, a sensitivity or the accountant is wrong"):
        run("dp_gd")


@pytest.mark.parametrize("name", ["dp_svrg", "dp_svrg_pp"])
def test_planted_snapshot_gradient_left_out_of_the_ledger_is_refused(name, monkeypatch):
    algorithm = get_algorithm(name)
    compute = type(algorithm).compute_plan

    def forgotten(self, setting, given):
        plan = compute(self, setting, given)
        event = plan.events[0]
        sampled = tuple(part for part in event.parts if not part.full)
        return dataclasses.replace(plan, events=(dataclasses.replace(event, parts=sampled),))

    monkeypatch.setattr(type(algorithm), "compute_plan", forgotten)
    with pytest.raises(LedgerMismatch, match="full gradients, but no event of its plan has such a part"):
        run(name, replicates=400)


def test_planted_batch_reused_is_caught_by_the_audit(monkeypatch):
    """Planted bug: every step looks at the batch of the first step instead of a fresh one.

    The record is then in all batches or in none; the output of a run in which it is gives it away.
    """
    drawn = GaussianMechanism._batches
    monkeypatch.setattr(
        GaussianMechanism,
        "_batches",
        lambda self, first, steps, part: steps * [next(drawn(self, 0, 1, part))],
    )
    with pytest.raises(RunFailed, match="the accountant is wrong"):
        audit(_SampledDescent(), variant="certified", epsilon=2.0, delta=1e-5, replicates=8000, seed=1)


def test_the_same_algorithm_with_fresh_batches_passes_its_audit():
    row = audit(_SampledDescent(), variant="certified", epsilon=2.0, delta=1e-5, replicates=8000, seed=1)
    assert row["epsilon_audited"] <= row["epsilon_accounted"]


class _SampledDescent(type(get_algorithm("dp_gd"))):
    """Noisy gradient descent on one sampled record per step: small enough to plant bugs into."""

    name = "sampled_descent"

    def compute_plan(self, setting, given):
        plan = super().compute_plan(setting, given)
        n = setting.problem.n
        event = GaussianEvent("gradient step", plan.sigma, (QueryPart(2.0 * setting.problem.G, 1, n),), plan.T)
        return dataclasses.replace(plan, events=(event,), gradient_evaluations=plan.T)

    def audit_case(self):
        from dprepro.privacy.cases import linear_case

        return linear_case(20, {"T": 200})

    def run(self, plan, ex):
        x = ex.start()
        for i, z in ex.gaussian("gradient step").sampled(plan.T):
            x = ex.project(x - plan.eta * (ex.sample_gradient(x, i) + z))
            ex.checkpoint(x)
        return x


def test_bad_questions_are_refused():
    with pytest.raises(UserError, match="replicates is 199: an audit needs at least 200"):
        run("dp_gd", replicates=199)
    with pytest.raises(UserError, match="epsilon is inf: an audit needs a claim to refute"):
        run("dp_gd", math.inf)
    with pytest.raises(UserError, match="seed is -1"):
        run("dp_gd", seed=-1)


@pytest.mark.parametrize(("generic", "words"), [(True, "no step. It is the generic audit"), (False, "no step.$")])
def test_only_the_generic_audit_asks_for_another_case_where_its_data_are_too_few(generic, words):
    def vacuous(*setting, **letters):
        raise VacuousSetting("It has no step.")

    case = dataclasses.replace(linear_case(50, {}), generic=generic)
    algorithm = SimpleNamespace(audit_case=lambda: case, plan=vacuous)
    with pytest.raises(UserError, match=words):
        audit(algorithm, variant="certified", epsilon=1.0, delta=1e-5, replicates=200)


def test_an_audit_holds_a_run_to_its_plan():
    class Hasty(type(get_algorithm("dp_gd"))):
        def run(self, plan, ex):
            return ex.start()

    with pytest.raises(LedgerMismatch):
        audit(Hasty(), variant="published", epsilon=1.0, delta=1e-5, replicates=200)


def test_an_audit_has_20_000_runs_on_each_side_and_the_seed_0_unless_told_otherwise():
    default = inspect.signature(audit).parameters
    assert (default["replicates"].default, default["seed"].default) == (20_000, 0)


def test_an_attacker_sees_every_step_and_so_no_kernel_takes_them():
    """It is the backend that would have a kernel; what it is told is why it may not."""
    asked = []
    allowed = lambda kernel, obstacle: asked.append(obstacle) or not obstacle  # noqa: E731
    ex = object.__new__(audits.Watched)
    ex._backend, ex._embedding = SimpleNamespace(kernels=SimpleNamespace(allowed=allowed)), None
    assert not ex.steps_in_kernel("step")
    assert not ex.steps_in_kernel("step", "a reason of its own")
    assert asked == ["an audit sees every step", "a reason of its own"]


# What follows from the scores. The scores and bounds here are made up.


class Shown:
    """Scores of 0 on the neighbour and 1 on the dataset; what is found in them; the questions asked."""

    def __init__(self, monkeypatch, clopper_pearson=0.0, tradeoff=0.0, refuted=0.0, violated=False, scores=(0.0, 1.0)):
        self.seeds, self.asked = [], []

        def side_scores(algorithm, plan, case, rows, *, seed, **_):
            self.seeds.append(seed)
            return np.full(200, scores[rows is case.rows])

        def audit_bounds(scores0, scores1, delta, beta):
            self.asked.append(("bounds", scores0[0], scores1[0], delta, beta))
            return AuditBound(clopper_pearson, tradeoff, 0.0, 0.0, 0.0, 0.0, 200, beta)

        def violates(scores0, scores1, profile, beta, epsilons):
            self.asked.append(("curve", scores0[0], scores1[0], epsilons[0], beta))
            return violated

        monkeypatch.setattr(audits, "side_scores", side_scores)
        monkeypatch.setattr(audits, "audit_bounds", audit_bounds)
        monkeypatch.setattr(audits, "violates", violates)
        monkeypatch.setattr(audits, "_refuted_epsilon", lambda *_: refuted)


GAUSSIAN, OTHER = "dp_gd", "noisy_frank_wolfe"


def shown(name, epsilon=1.0, variant="published", seed=3):
    return run(name, epsilon, variant, replicates=200, seed=seed)


@pytest.mark.parametrize("name", [GAUSSIAN, OTHER])
def test_the_sides_share_no_random_numbers_and_the_dataset_is_the_positive_one(name, monkeypatch):
    found = Shown(monkeypatch)
    assert shown(name, seed=0)["confidence"] == 0.998
    shown(name, seed=7)
    assert found.seeds == [0, 1, 14, 15]
    curve = [] if name == GAUSSIAN else [("curve", 0.0, 1.0, 0.0, 1e-3)]
    assert found.asked == 2 * [("bounds", 0.0, 1.0, 1e-5, 1e-3), *curve]


def test_a_gaussian_mechanism_is_proven_to_spend_the_larger_of_both_bounds(monkeypatch):
    for bounds in ({"clopper_pearson": 0.3, "tradeoff": 0.4}, {"clopper_pearson": 0.4, "tradeoff": 0.3}):
        Shown(monkeypatch, **bounds, refuted=9.0, violated=True)
        row = shown(GAUSSIAN)
        assert (row["epsilon_audited"], row["epsilon_tradeoff"]) == (0.4, bounds["tradeoff"])
        assert row["verdict"] == "below the accounted epsilon"


def test_of_another_mechanism_the_tradeoff_figure_is_shown_but_not_called_proven(monkeypatch):
    Shown(monkeypatch, clopper_pearson=0.2, tradeoff=9.0, refuted=5.0)
    row = shown(OTHER)
    assert (row["epsilon_audited"], row["epsilon_tradeoff"]) == (0.2, 5.0)


def test_more_than_claimed_or_more_than_accounted_is_said_and_exactly_as_much_is_neither(monkeypatch):
    Shown(monkeypatch)
    accounted = shown(GAUSSIAN)["epsilon_accounted"]
    assert accounted > 1.0
    verdicts = {
        1.0: "below the accounted epsilon",
        1.001: "proves more than claimed with c = 1, set here",
        accounted: "proves more than claimed with c = 1, set here",
    }
    for proven, verdict in verdicts.items():
        Shown(monkeypatch, tradeoff=proven)
        assert shown(GAUSSIAN)["verdict"] == verdict
    Shown(monkeypatch, tradeoff=np.nextafter(accounted, 9.0))
    with pytest.raises(RunFailed, match="a mechanism, a sensitivity or the accountant is wrong"):
        shown(GAUSSIAN)


def test_a_curve_that_is_not_gaussian_is_refuted_as_a_whole(monkeypatch):
    Shown(monkeypatch, violated=True)
    with pytest.raises(RunFailed, match="a mechanism, a sensitivity or the accountant is wrong"):
        shown(OTHER)
    Shown(monkeypatch, clopper_pearson=9.0)
    with pytest.raises(RunFailed, match="a mechanism, a sensitivity or the accountant is wrong"):
        shown(OTHER)


def test_runs_without_a_score_prove_nothing(monkeypatch):
    Shown(monkeypatch, scores=(0.0, math.nan))
    with pytest.raises(RunFailed, match="200 of 400 runs in the audit of dp_gd"):
        shown(GAUSSIAN)


def test_claims_are_compared_from_epsilon_0_to_12(monkeypatch):
    """The grids of the curve that is accounted and of those with more noise."""
    asked = []
    monkeypatch.setattr(audits, "delta_profile", lambda events, delta: lambda e: asked.append(e) or 1.0)
    audits._refuted_epsilon([np.zeros(200), np.ones(200)], (GaussianEvent("a", 1.0, (QueryPart(1.0, 9, 9),), 1),), 1e-5)
    np.testing.assert_allclose(asked[:11], np.arange(11) / 10, atol=1e-15)
    np.testing.assert_allclose(asked[11:], 1.25 * (12.0 / 1.25) ** (np.arange(14) / 13))


def test_curves_with_a_tenth_to_nine_tenths_of_the_spent_are_tried_one_after_the_other(monkeypatch):
    tried = []
    monkeypatch.setattr(audits, "largest_refuted_scale", lambda *arguments: tried.extend(arguments[3]))
    assert (
        audits._refuted_epsilon([np.zeros(9), np.ones(9)], (GaussianEvent("a", 1.0, (QueryPart(1.0, 9, 9),), 1),), 0.1)
        == 0
    )
    assert (tried[0], tried[-1]) == (0.1, 0.9)
    assert all(0.0 < step < 0.16 for step in np.diff(tried))


def test_calibration_is_remembered_and_a_damaged_memory_is_ignored(tmp_path):
    event = GaussianEvent("step", 1.0, (QueryPart(1.0, 10, 10),), 4)
    first = smallest_scale((event,), 1.0, 1e-5)
    file = tmp_path / "calibrations" / f"{calibrate._key((event,), 1.0, 1e-5)}.json"
    text = file.read_text()
    other = GaussianEvent("step", 1.0, (QueryPart(1.0, 10, 10),), 5)
    smallest_scale((other,), 1.0, 1e-5)
    foreign = (file.parent / f"{calibrate._key((other,), 1.0, 1e-5)}.json").read_text()
    # A wrong number would be too little noise: it has no seal, or one that does not fit.
    wrong = text.replace(repr(first), repr(first / 2))
    assert wrong != text
    for damaged in ("", "{damaged", "[]", "null", '{"factor": 3.5}', text[: len(text) // 2], wrong, foreign):
        file.write_text(damaged)
        assert smallest_scale((event,), 1.0, 1e-5) == first
        assert file.read_text() == text, "it is found and remembered anew"
    calibrate._remember(file.stem, 3.5)
    assert smallest_scale((event,), 1.0, 1e-5) == 3.5, "a whole one is taken"
    assert first == pytest.approx(2.0 / 0.26805, rel=2e-3)
