"""Adapters to diffprivlib and Opacus: the same problem, the declared noise, the accounted epsilon, and no need of them.

Tests that run a library are skipped where it is not installed, and required under DPREPRO_REQUIRE=peers.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support import make_problem, require, rows

from dprepro import algorithms, figures, peers, tables
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.api import solve
from dprepro.cli import main
from dprepro.errors import LedgerMismatch, RunFailed, UserError
from dprepro.experiments import audit_jobs, load_config, load_experiments
from dprepro.files import jsonable, read_json
from dprepro.peers.opacus import private_model
from dprepro.privacy.certificate import certify
from dprepro.problems.optimum import find_optimum
from dprepro.run import Execution, execute
from dprepro.stages.collect import collect_sweeps
from dprepro.stages.optima import solve_points
from dprepro.stages.sweep import run_sweep
from dprepro.sweeps import optimum_name

CONFIG = Path(__file__).parents[2] / "config"
SMALL = {"diffprivlib": [{}], "opacus": [{"T": 12, "b": 20}, {"T": 5, "b": 120}]}
CASES = [(name, letters) for name in peers.names() for letters in SMALL[name]]
# Below this probability a statistical test may fail though all is well.
FALSE_ALARM = 1e-6


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPREPRO_CACHE_DIR", str(tmp_path))


@pytest.fixture
def libraries():
    """Both libraries; tests that do not ask for them run everywhere."""
    absent = [package for name in peers.names() for package in peers.missing(name)]
    require("peers", not absent, f"{' and '.join(absent)} not installed")


@pytest.fixture
def nothing_installed(monkeypatch):
    """Hide the libraries from imports."""
    for packages in peers.PACKAGES.values():
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)


each_peer = pytest.mark.parametrize("name", peers.names())
each_case = pytest.mark.parametrize(("name", "letters"), CASES, ids=str)


def planned(name, problem, letters=None, epsilon=1.0, variant="certified"):
    return get_algorithm(name).plan(Setting(problem.spec, epsilon, 1e-3, variant), **(letters or {}))


# Without the libraries.


@each_peer
def test_a_library_that_is_missing_is_one_sentence_that_names_the_extra(name, nothing_installed, tmp_path, capsys):
    X, y = rows(30, 3)
    with pytest.raises(UserError, match=rf"library {name}, .* not installed here: install dprepro\[peers\]\.$"):
        solve(name, X, y, epsilon=1.0, delta=1e-3)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    options = ["--data", str(tmp_path / "data.npz"), "--epsilon", "1", "--delta", "0.001"]
    assert main(["solve", name, *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dprepro: ")
    assert said.count("\n") == 1


def test_a_configuration_that_names_a_missing_library_is_refused_before_any_job(nothing_installed):
    with pytest.raises(UserError, match=r"methods\.opacus: The method 'opacus' is .* install dprepro\[peers\]"):
        load_experiments(load_config([CONFIG / "peers.yaml"], CONFIG), CONFIG)


def test_the_default_reproduction_asks_for_no_library(nothing_installed):
    config = load_config([], CONFIG)
    used = {job.algorithm for experiment in load_experiments(config, CONFIG) for job in experiment.jobs()}
    assert not used & set(peers.names())
    assert not set(audit_jobs(config)) & set(peers.names())
    assert not set(algorithms.names()) & set(peers.names())


def test_lists_and_typing_errors_know_the_libraries_without_them(nothing_installed, capsys):
    assert main(["list", "algorithms"]) == 0
    assert "the library of that name, not installed (dprepro[peers]); letters: T, b, eta, C" in capsys.readouterr().out
    with pytest.raises(UserError, match="did you mean opacus"):
        get_algorithm("opacsu")


def declared_plan(problem):
    """A plan of dp_gd as if a library drew its noise."""
    return dataclasses.replace(planned("dp_gd", problem, {"T": 3}), drawn_by="a library 1.0")


def test_a_certificate_says_that_a_library_drew_the_noise():
    plan = declared_plan(make_problem())
    found, own = certify(plan), certify(dataclasses.replace(plan, drawn_by=""))
    assert found["verdict"] == "certified; noise declared by a library 1.0, not drawn here"
    assert found["drawn_by"] == "a library 1.0"
    assert own["verdict"] == "certified"
    assert own["drawn_by"].startswith("dprepro ")
    assert found["epsilon_accounted"] == own["epsilon_accounted"]


def test_declared_releases_must_be_those_of_the_plan_and_of_a_plan_that_names_a_library(backend):
    problem = make_problem(backend=backend)
    plan = declared_plan(problem)
    (event,) = plan.events

    def run(plan, releases):
        ex = Execution(plan, problem, 1, [0, None])
        point = ex.by_library(event.label, lambda X, y, seed: iter(np.ones((releases, X.shape[1]))), problem.spec.n)
        ex.check(plan)
        return backend.to_host(point)

    np.testing.assert_array_equal(run(plan, 3), [[1.0] * 7, [0.0] * 7])
    for releases in (2, 4):
        with pytest.raises(LedgerMismatch):
            run(plan, releases)
    with pytest.raises(RunFailed, match="names no library"):
        run(dataclasses.replace(plan, drawn_by=""), 3)


# What every adapter must keep.


@each_case
def test_a_replicate_has_the_same_bits_in_any_company(name, letters, libraries):
    problem = make_problem()
    plan = planned(name, problem, letters)
    whole = execute(plan, problem, seed=3, replicates=range(6), tile=8)
    for chosen in ([5], [1, 4]):
        part = execute(plan, problem, seed=3, replicates=chosen, tile=8)
        np.testing.assert_array_equal(part.w, whole.w[chosen])
    other = execute(plan, problem, seed=4, replicates=range(6), tile=8)
    assert np.unique(np.concatenate([whole.w, other.w]), axis=0).shape[0] == 12


@each_case
def test_rounds_and_gradient_evaluations_are_those_of_the_plan(name, letters, libraries):
    problem = make_problem()
    plan = planned(name, problem, letters)
    result = execute(plan, problem, seed=1, replicates=[0])
    assert result.rounds[-1] == plan.rounds
    assert result.gradient_evaluations[-1] == plan.gradient_evaluations
    assert result.samples_used == problem.spec.n


@each_case
def test_the_plan_survives_json_and_is_run_with_its_own_version_only(name, letters, libraries):
    problem = make_problem()
    plan = planned(name, problem, letters)
    text = json.dumps(jsonable(plan.to_json()), allow_nan=False)
    assert get_algorithm(name).plan_type.from_json(json.loads(text)) == plan
    with pytest.raises(RunFailed, match=f"made for {name} 0.1, but {name} .* is installed"):
        execute(dataclasses.replace(plan, drawn_by=f"{name} 0.1"), problem, seed=1, replicates=[0])


@each_peer
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_the_accounted_epsilon_is_the_claimed_one_and_not_more(name, epsilon, libraries):
    certificate = certify(planned(name, make_problem(n=1200), SMALL[name][0], epsilon))
    assert 0.98 * epsilon <= certificate["epsilon_accounted"] <= epsilon
    version = peers.versions(name)[name]
    assert certificate["verdict"] == f"certified; noise declared by {name} {version}, not drawn here"
    assert certificate["adjacency"] == "replace-one"


@each_peer
def test_what_a_library_does_not_fit_is_refused(name, libraries):
    for changes, sentence in (
        ({"loss": "huber"}, "logistic regression only"),
        ({"loss": "logistic_as_printed"}, "logistic regression only"),
        ({"regularizer": {"l1": 0.1, "l2": 0.1}}, "needs a smooth regularizer"),
        ({"constraint": "l2_ball:1.0"}, "needs no constraint"),
    ):
        with pytest.raises(UserError, match=sentence):
            planned(name, make_problem(**changes), SMALL[name][0])
    with pytest.raises(UserError, match="draws its noise itself"):
        get_algorithm(name).audit_case()


@each_peer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_solve_records_the_version_that_ran(name, dtype, libraries):
    X, y = rows(120, 7)
    found = solve(name, X, y, regularizer=0.1, epsilon=1.0, delta=1e-3, replicates=2, dtype=dtype, **SMALL[name][0])
    assert found.provenance["libraries"] == peers.versions(name)
    assert found.certificate["drawn_by"] == found.plan.drawn_by == f"{name} {peers.versions(name)[name]}"
    assert found.w.shape == (2, 7)


# diffprivlib.


@pytest.mark.parametrize("regularizer", [0.01, 0.3])
@pytest.mark.parametrize("epsilon", [1e7, math.inf])
def test_diffprivlib_without_noise_finds_the_optimum_of_the_same_problem(regularizer, epsilon, libraries):
    problem = make_problem(n=400, regularizer=regularizer)
    result = execute(planned("diffprivlib", problem, epsilon=epsilon), problem, seed=1, replicates=[0])
    best = find_optimum(problem)
    assert result.final_objective[0] - best.objective == pytest.approx(0.0, abs=1e-10)
    np.testing.assert_allclose(result.w[0], best.w, atol=1e-5)


@pytest.mark.parametrize("variant", ["published", "certified"])
def test_diffprivlib_draws_the_noise_that_is_declared(variant, libraries):
    """At the minimiser the linear term is minus the rest of the gradient; its norm has the law Gamma(d, scale)."""
    problem = make_problem(n=400)
    plan = planned("diffprivlib", problem, variant=variant)
    n, d, count = plan.n, plan.d, 512
    w = execute(plan, problem, seed=7, replicates=range(count)).w
    b = -n * (np.array(problem.gradient(w)) + 0.1 * w)
    norms = np.linalg.norm(b, axis=1)
    assert stats.kstest(norms, "gamma", args=(d, 0.0, plan.sigma)).pvalue > FALSE_ALARM
    # Half of the stated noise would be seen.
    assert stats.kstest(2.0 * norms, "gamma", args=(d, 0.0, plan.sigma)).pvalue < FALSE_ALARM
    # The directions are uniform: d times the sum over the replicates, squared, over their number is about chi-square.
    pull = d * np.sum(np.sum(b / norms[:, None], axis=0) ** 2) / count
    assert stats.chi2.sf(pull, d) > FALSE_ALARM


def test_diffprivlib_is_given_its_own_epsilon_as_published_and_another_one_at_equal_accounted_epsilon(libraries):
    problem = make_problem(n=400)
    published, certified = (planned("diffprivlib", problem, variant=v) for v in ("published", "certified"))
    assert published.library_epsilon == pytest.approx(1.0, rel=1e-12)
    assert certified.library_epsilon > 1.0
    spent = [certify(plan)["epsilon_accounted"] for plan in (published, certified)]
    assert spent[0] < spent[1] <= 1.0
    assert math.isclose(certified.C * 400 * 0.1, 1.0)


def test_diffprivlib_ends_as_the_same_method_here_does(libraries):
    """Objective perturbation with gamma noise at the same scale: gaps of one law."""
    problem = make_problem(n=400)
    plans = [
        planned("diffprivlib", problem, variant="published"),
        planned("objective_perturbation", problem, {"noise": "gamma"}, variant="published"),
    ]
    assert plans[0].sigma == pytest.approx(plans[1].sigma, rel=1e-12)
    ends = [execute(plan, problem, seed=13, replicates=range(512)).final_objective for plan in plans]
    assert stats.ks_2samp(*ends).pvalue > FALSE_ALARM


def test_diffprivlib_as_published_spends_more_than_it_claims_on_long_rows(libraries):
    """Its code charges the curvature of the loss with the norm of the rows, not with its square."""
    spec = dataclasses.replace(make_problem(n=400).spec, row_norm=4.0)
    published, certified = (
        certify(get_algorithm("diffprivlib").plan(Setting(spec, 1.0, 1e-3, variant)))
        for variant in ("published", "certified")
    )
    assert certified["epsilon_accounted"] <= 1.0
    assert published["epsilon_accounted"] > 1.0
    assert not published["verdict"].startswith("certified")


def test_diffprivlib_is_refused_where_it_would_solve_another_problem_or_stop_early(libraries):
    with pytest.raises(UserError, match="would add to the regularizer by itself"):
        planned("diffprivlib", make_problem(n=10, regularizer=0.01), epsilon=0.1)
    with pytest.raises(UserError, match="needs a strongly convex objective"):
        planned("diffprivlib", make_problem(regularizer=0.0))
    problem = make_problem()
    with pytest.raises(RunFailed, match="did not reach the minimiser in 1 iterations: set a larger T"):
        execute(planned("diffprivlib", problem, {"T": 1}), problem, seed=1, replicates=[0])
    X, _ = rows(120, 7)
    one_class = make_problem(data=(X, np.ones(120)))
    with pytest.raises(UserError, match="records of both classes"):
        execute(planned("diffprivlib", one_class), one_class, seed=1, replicates=[0])


# Opacus.


@pytest.mark.parametrize(("epsilon", "tolerance"), [(1e6, 1e-5), (math.inf, 1e-12)])
def test_opacus_without_noise_finds_the_optimum_of_the_same_problem(epsilon, tolerance, libraries):
    problem = make_problem()
    plan = planned("opacus", problem, {"T": 300, "b": 120, "eta": 2.5}, epsilon)
    result = execute(plan, problem, seed=1, replicates=[0])
    assert result.final_objective[0] - find_optimum(problem).objective == pytest.approx(0.0, abs=tolerance)


def test_opacus_steps_are_clipped_mean_gradients_with_an_l2_term(libraries):
    """Three steps on all records, without noise, beside the formula."""
    problem = make_problem()
    plan = planned("opacus", problem, {"T": 3, "b": 120, "eta": 1.5, "C": 0.3}, math.inf)
    X, y = rows(120, 7)
    w = np.zeros(7)
    for _ in range(3):
        gradients = -(y / (1.0 + np.exp(y * (X @ w))))[:, None] * X
        norms = np.linalg.norm(gradients, axis=1)
        # Opacus adds 1e-6 to the norms that it divides by.
        gradients *= np.minimum(1.0, 0.3 / (norms + 1e-6))[:, None]
        assert np.mean(norms > 0.3) > 0.3, "clipping does not bind, so the test says nothing"
        w -= 1.5 * (gradients.mean(axis=0) + 0.1 * w)
    np.testing.assert_allclose(execute(plan, problem, seed=1, replicates=[0]).w[0], w, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_opacus_optimizer_adds_noise_of_the_stated_variance(libraries):
    """Steps on empty batches leave the noise alone in the gradient."""
    import torch

    plan = planned("opacus", make_problem(), {"T": 12, "b": 20, "C": 0.4})
    model, optimizer = private_model(plan, torch.float64, torch.Generator().manual_seed(5))
    drawn = []
    for _ in range(2000):
        optimizer.zero_grad()
        model(torch.zeros((0, plan.d), dtype=torch.float64)).sum().backward()
        assert optimizer.pre_step()
        drawn.append(optimizer.params[0].grad.numpy()[0].copy())
    noise = np.concatenate(drawn)
    assert stats.kstest(noise / plan.sigma, "norm").pvalue > FALSE_ALARM
    total = np.sum((noise / plan.sigma) ** 2)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], noise.size)
    assert low < total < high


def test_opacus_batches_are_poisson_and_may_be_empty(libraries):
    """One step without noise from w = 0 moves by the sum over the batch: of equal records it tells their number."""
    X = np.tile([[1.0, 0.0]], (30, 1)) * (1 - 1e-9)
    problem = make_problem(data=(X, np.ones(30)))
    plan = planned("opacus", problem, {"T": 1, "b": 2, "eta": 1.0}, math.inf)
    w = execute(plan, problem, seed=11, replicates=range(2000)).w
    sizes = np.rint(w[:, 0] * plan.b / 0.5).astype(int)
    assert sizes.min() == 0
    expected = stats.binom.pmf(np.arange(8), 30, 2 / 30) * 2000
    counts = np.bincount(np.minimum(sizes, 7), minlength=8)
    expected[7] = 2000 - expected[:7].sum()
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


def test_replacing_a_record_costs_more_than_opacus_own_accountant_says_of_adding_one(libraries):
    from opacus.accountants import PRVAccountant

    plan = planned("opacus", make_problem(n=1200), {"T": 100, "b": 60})
    accountant = PRVAccountant()
    accountant.history = [(plan.noise_multiplier, plan.b / plan.n, plan.T)]
    theirs = accountant.get_epsilon(1e-3)
    assert 0.3 < theirs < 0.99 * certify(plan)["epsilon_accounted"]


def test_opacus_has_no_published_noise_and_no_batch_beyond_the_data(libraries):
    problem = make_problem()
    with pytest.raises(UserError, match=r"has no published noise: .* certified, practical"):
        planned("opacus", problem, variant="published")
    with pytest.raises(UserError, match="b of opacus is 121, but there are 120 records"):
        planned("opacus", problem, {"b": 121})


# In the comparison.


def test_the_comparison_shows_both_libraries_beside_the_methods_here_and_says_whose_noise_it_is(libraries, tmp_path):
    config = load_config([CONFIG / "scales" / "smoke.yaml", CONFIG / "peers.yaml"], CONFIG)
    (experiment,) = load_experiments(config, CONFIG)
    entries = ("objective-perturbation", "objective-perturbation-gamma", "opacus", "diffprivlib")
    jobs = [job for job in experiment.jobs() if job.spec["entry"] in entries and job.spec["problem"] == "synthetic"]
    optima = tmp_path / "optima.json"
    solve_points(experiment.optima()[optimum_name(jobs[0].spec)], optima)
    for job in jobs:
        run_sweep(job.spec, optima, tmp_path / f"{job.spec['entry']}.npz", "sources")
    collect_sweeps([tmp_path / f"{entry}.npz" for entry in entries], experiment.claims(), tmp_path / "data.parquet")
    tables.write("wyx17_comparison", tmp_path / "data.parquet", tmp_path / "table.csv")
    figures.draw("wyx17_comparison", tmp_path / "data.parquet", tmp_path / "figure.png")
    found = pd.read_csv(tmp_path / "table.csv").set_index("method")
    labels = {"Objective perturbation", "Objective perturbation, gamma noise"}
    assert set(found.index) == labels | {"Opacus, DP-SGD", "diffprivlib, objective perturbation"}
    assert (found["epsilon_accounted"] <= found["epsilon_claimed"]).all()
    assert (found["epsilon_accounted"] >= 0.98 * found["epsilon_claimed"]).all()
    assert (found["failed"] == 0).all()
    version = peers.versions("opacus")["opacus"]
    for text in (tmp_path / "table.md", tmp_path / "figure.md"):
        assert f"is taken at its word: Opacus, DP-SGD (opacus {version}) and diffprivlib, " in text.read_text()
    record = read_json(tmp_path / "opacus.json")
    assert record["provenance"]["libraries"] == peers.versions("opacus")
    assert record["points"][0]["certificate"]["drawn_by"] == f"opacus {version}"


def test_a_sweep_of_a_missing_library_fails_and_is_not_kept_as_a_refusal(nothing_installed, tmp_path):
    with pytest.raises(UserError, match="install dprepro"):
        run_sweep({"algorithm": "opacus"}, None, tmp_path / "out.npz", "sources")
