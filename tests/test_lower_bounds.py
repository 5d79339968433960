"""The explicit lower bounds, their instances, and the table and figure that hold algorithms against them."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dprepro import datasets
from dprepro.errors import RunFailed, UserError
from dprepro.lower_bounds import bias, bias_bound, mean_bound
from dprepro.privacy.accounting import gaussian_delta
from dprepro.tables import abg23_lower_bounds as lower_bounds_table
from dprepro.vector_losses import HuberMean

EPSILONS, DELTA = (0.05, 0.3, 1.0, 3.0), 1e-5


@pytest.mark.parametrize("n", [1, 2, 3, 10, 401])
def test_the_sampling_bound_has_the_exact_distance_of_the_two_laws(n):
    counts = np.arange(n + 1)
    p = 1.0 / math.sqrt(16.0 * n)
    up, down = (binom.pmf(counts, n, (1 + sign * p) / 2) for sign in (1, -1))
    distance = 0.5 * np.sum(np.abs(up - down))
    assert bias_bound(n, 2.0).explicit == pytest.approx(2.0 * p / 2 * (1 - distance), rel=1e-12)
    assert bias_bound(n, 2.0).shape == pytest.approx(2.0 / math.sqrt(n))


@pytest.mark.parametrize("n", [1, 4, 9])
def test_no_rule_on_the_samples_beats_the_sampling_bound_and_the_best_one_meets_it(n):
    """A rule gives a w for every number of +1. The error is convex in each, so the best are among few values."""
    p = bias(n)
    counts = np.arange(n + 1)
    mass = np.stack([binom.pmf(counts, n, (1 + v * p) / 2) for v in (1, -1)])
    w = np.linspace(-1.0, 1.0, 2001)
    errors = np.stack([np.abs(v * p / 2 + np.clip(w, -0.5, 0.5)) for v in (1, -1)])
    mean_over_signs = 0.5 * np.einsum("vc,vw->cw", mass, errors)
    best = np.sum(np.min(mean_over_signs, axis=1))
    assert best == pytest.approx(bias_bound(n).explicit, rel=5e-3)
    assert best >= bias_bound(n).explicit * (1 - 1e-12)


def test_too_many_records_for_the_signs_are_refused():
    with pytest.raises(UserError, match="do not fit"):
        mean_bound(15, 17, 1.0, DELTA, 1)


def test_without_privacy_there_is_no_privacy_bound():
    assert mean_bound(100, 4, math.inf, DELTA, 1).explicit == 0.0


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("copies", [1, 3])
def test_step_four_is_the_largest_distance_that_group_privacy_allows(epsilon, copies):
    """Randomized response that just meets (k epsilon, delta_k) has 1 - TV = 2 (1 - delta_k)/(1 + e^(k epsilon))."""
    n, d = 64, 5
    group_delta = sum(DELTA * math.exp(i * epsilon) for i in range(copies))
    level = math.exp(copies * epsilon)
    # Outcomes: certainly +, probably +, probably -, certainly -.
    mass = (1 - group_delta) / (1 + level)
    P = np.array([group_delta, level * mass, mass, 0.0])
    Q = P[::-1]
    assert np.sum(np.maximum(P - level * Q, 0.0)) == pytest.approx(group_delta)
    common = np.sum(np.minimum(P, Q))
    r = copies / n * 0.25
    assert mean_bound(n, d, epsilon, DELTA, copies).explicit == pytest.approx(math.sqrt(d - 1) * r * common)


def test_a_gaussian_mechanism_has_at_least_the_common_mass_of_step_four():
    from scipy.special import ndtr

    for mu in (0.1, 0.5, 1.0, 2.0):
        for epsilon in EPSILONS:
            delta = gaussian_delta(mu, epsilon)
            assert 2 * ndtr(-mu / 2) >= 2 * (1 - delta) / (1 + math.exp(epsilon)) - 1e-12


def instance(n: int, features: int, copies: int, seed: int = 0):
    """Return atoms (M, d), their shares (M, 1) and the mean (d,) of the signed means."""
    data = datasets.load("population_signed_mean", rows=n, seed=seed, features=features, copies=copies)
    shares = data.population.probabilities[:, None]
    return data.X.astype(float), data.y, shares, (shares.T @ data.X)[0]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.floats(0.0, 6.0), st.sampled_from([(4, 2, 5), (16, 9, 1), (300, 9, 7)]))
def test_the_gradient_is_at_least_the_distance_cut_at_half_the_bend_also_far_away(seed, log_length, sizes):
    """Step 1 of the proof, near the mean, in the region of the bends and far away."""
    n, features, copies = sizes
    X, y, shares, mean = instance(n, features, min(copies, n // (features - 1)))
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(features)
    w = mean + 10.0 ** (log_length - 3.0) * direction / np.linalg.norm(direction)
    norm = np.linalg.norm(HuberMean(1.0).mean_gradient(np, w[None, :], X, y, shares))
    assert norm >= min(np.linalg.norm(w - mean), 0.5) * (1 - 1e-9)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.floats(0.0, 4.0))
def test_clipping_to_the_box_of_the_signs_only_comes_nearer_to_the_mean(seed, log_length):
    """Step 2 of the proof: ||w' - mean||_1 / sqrt(m) <= min(||w - mean||, B/2)."""
    n, features, copies = 40, 9, 5
    _, _, _, mean = instance(n, features, copies)
    m, r = features - 1, copies / n * 0.25
    np.testing.assert_allclose(np.abs(mean[:m]), r)
    w = 10.0 ** (log_length - 3.0) * np.random.default_rng(seed).standard_normal(features)
    clipped = np.append(np.clip(w[:m], -r, r), mean[m])
    assert np.sum(np.abs(clipped - mean)) / math.sqrt(m) <= min(np.linalg.norm(w - mean), 0.5) + 1e-12


def test_an_optimal_test_of_each_sign_is_close_to_the_bound_in_the_mean_over_all_signs():
    """Randomized response of each sign, which is what one record allows: the bound is met up to the box's geometry."""
    n, features, epsilon = 8, 4, 1.0
    m, r = features - 1, 0.25 / n
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    total = 0.0
    for v in itertools.product((-1, 1), repeat=m):
        for seen in itertools.product((-1, 1), repeat=m):
            chance = math.prod(keep if a == b else 1 - keep for a, b in zip(v, seen, strict=True))
            total += chance * r * np.linalg.norm(np.subtract(v, seen)) / 2**m
    bound = mean_bound(n, features, epsilon, 1e-300, 1).explicit
    assert bound <= total <= 2.0 * bound


def test_the_signs_depend_on_the_seed_and_the_instance_stays_in_its_ball():
    first, second = (instance(100, 40, 2, seed)[0] for seed in (0, 1))
    assert np.all(np.linalg.norm(first, axis=1) <= 0.25)
    assert not np.array_equal(first, second)
    assert set(np.unique(np.sign(np.diag(first)[:-1]))) == {-1.0, 1.0}


def test_one_choice_of_signs_shows_the_error_of_all():
    """Means of 256 runs each on two draws of the signs: 6 standard errors, a false alarm below one in a million."""
    from dprepro.algorithms.base import Setting
    from dprepro.algorithms.dp_gd import ALGORITHM
    from dprepro.arrays import get_backend
    from dprepro.run import execute
    from dprepro.stages.points import load_point

    errors = []
    for seed in (0, 1):
        dataset = {"name": "population_signed_mean", "rows": 1024, "seed": seed, "parameters": {"features": 16}}
        point = {
            "dataset": {**dataset, "repeated": True},
            "loss": "huber_mean:1",
            "regularizer": {},
            "constraint": None,
        }
        problem, _ = load_point(point, get_backend("cpu", "float64"))
        plan = ALGORITHM.plan(Setting(problem.spec, 1.0, DELTA, "certified"), T=1)
        result = execute(plan, problem, seed=seed, replicates=range(256))
        norms = problem.gradient_norm(problem.backend.asarray(result.w))
        errors.append(problem.backend.to_host(norms))
    one, two = errors
    assert abs(one.mean() - two.mean()) <= 6.0 * math.sqrt((one.var(ddof=1) + two.var(ddof=1)) / 256)
    assert one.mean() > mean_bound(1024, 16, 1.0, DELTA, 1).explicit


def test_the_two_sides_of_the_bias_mirror_each_other():
    one, two = (datasets.load("population_bias", rows=64, side=side).population.probabilities for side in (1, 2))
    np.testing.assert_array_equal(one, two[::-1])
    assert one[0] - one[1] == pytest.approx(1.0 / 32.0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("population_bias", {"side": 3}),
        ("population_bias", {"side": 0}),
        ("population_signed_mean", {"features": 1}),
        ("population_signed_mean", {"features": 9, "copies": 3}),
        ("population_signed_mean", {"offset": 2.0}),
    ],
)
def test_instances_that_do_not_exist_are_refused(name, parameters):
    with pytest.raises(UserError, match=r"choose|give|ask"):
        datasets.load(name, rows=16, **parameters)


# The table and the figure.

SETTINGS = {
    "sampling": {
        "loss": "tilted_huber:0.5",
        "regularizer": {},
        "constraint": None,
        "dataset": {"name": "population_bias"},
        "base": {"n": 64, "epsilon": 1},
    },
    "privacy": {
        "loss": "huber_mean:1",
        "regularizer": {},
        "constraint": None,
        "dataset": {"name": "population_signed_mean", "parameters": {"copies": 2}},
        "base": {"n": 64, "epsilon": 1, "d": 5},
    },
}
METADATA = {
    "paper": "ABG23",
    "title": "t",
    "problems": {"sampling": "one", "privacy": "two"},
    "methods": {},
    "settings": SETTINGS,
}
SIZES = (64, 256, 1024)


def explicit(problem: str, n: int, epsilon: float = 1.0) -> float:
    """Return the bound that the rows of `line` are held against."""
    bound = bias_bound(n) if problem == "sampling" else mean_bound(n, 5, epsilon, 1e-5, 2)
    return bound.explicit


def line(problem, method, ratio, *, accounted=1.0, spread=0.1, variant="certified", epsilon=1.0, refused="", member=""):
    """Rows of one method whose mean error is `ratio` times the bound at every n."""
    rows = []
    for n in SIZES:
        for replicate, step in enumerate((-1.5, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.5)):
            rows.append(
                {
                    "experiment": "e", "problem": problem, "entry": method, "method": method, "algorithm": method,
                    "variant": variant, "set_here": "", "constant_set_here": "", "axis": "n", "axis_value": float(n),
                    "member": member, "n": n,
                    "d": 1 if problem == "sampling" else 5, "epsilon": epsilon, "epsilon_accounted": accounted,
                    "delta": 1e-5, "metric": "gradient norm", "replicate": replicate, "refused": refused,
                    "failure": "", "value_at_zero": 7.0 * explicit(problem, n),
                    "value": np.nan if refused else explicit(problem, n) * ratio * (1.0 + spread * step),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def made(*lines):
    return lower_bounds_table.table(pd.concat(lines, ignore_index=True), METADATA)


@pytest.mark.parametrize("problem", ["sampling", "privacy"])
def test_the_table_fails_loudly_where_a_certified_method_is_below_the_bound(problem):
    with pytest.raises(RunFailed, match=rf"too-good .* on {problem}, surely below .* but no algorithm"):
        made(line(problem, "fair", 3.0), line(problem, "too-good", 0.5))


def test_a_method_just_below_the_bound_by_chance_is_shown_as_level_with_it():
    rows = made(line("sampling", "lucky", 0.99))
    assert rows["verdict"].iloc[0] == "indistinguishable from the bound"
    assert rows["measured"].iloc[0] == pytest.approx(0.99)


def test_a_method_that_spends_more_is_held_against_what_it_spends():
    spent = 3.0
    ratio = 1.5 * explicit("privacy", 64, spent) / explicit("privacy", 64)
    assert ratio < 0.5, "the claimed epsilon would refuse it"
    rows = made(line("privacy", "leaky", ratio, accounted=spent, variant="published"))
    assert rows["measured"].iloc[0] == pytest.approx(1.5)
    with pytest.raises(RunFailed):
        made(line("privacy", "leaky", ratio))


def test_without_privacy_only_sampling_bounds_a_method():
    free = {"accounted": math.inf, "epsilon": math.inf}
    rows = made(line("privacy", "free", 1e-3, **free), line("sampling", "free", 2.0, **free))
    assert list(rows["verdict"][:2]) == ["no bound without privacy", "above the bound"]
    with pytest.raises(RunFailed):
        made(line("sampling", "free", 0.3, **free))


def test_the_error_of_a_family_is_that_of_its_worst_member():
    rows = made(line("sampling", "m", 0.2, member="side = 1"), line("sampling", "m", 5.0, member="side = 2"))
    assert rows["measured"].iloc[0] == pytest.approx(5.0)


def test_a_replicate_that_is_not_finite_is_no_small_error():
    data = line("privacy", "wild", 0.2)
    data.loc[data["replicate"] == 3, "value"] = np.nan
    rows = made(data)
    assert math.isinf(rows["measured"].iloc[0])


def test_ratio_exponent_and_sentence_follow_from_the_numbers():
    rows = made(line("privacy", "near", 2.0), line("privacy", "far", 9.0), line("sampling", "near", 7.0, spread=0.0))
    privacy = rows[(rows["problem"] == "privacy") & (rows["method"] == "near")]
    assert list(privacy["quantity"]) == ["smallest error / lower bound", "gradient norm: exponent in n"]
    assert list(privacy["measured"]) == pytest.approx([2.0, -1.0])
    assert list(privacy["verdict"]) == ["above the bound", "falls as the bound"]
    text = lower_bounds_table.summary(rows, pd.DataFrame(), METADATA)
    assert "privacy: every line is above the proven bound. Closest is near (certified) with 2 [" in text
    assert "staying at w = 0 is 7 times the bound there" in text
    assert "it stays at w = 0, which is 7 times the bound there" in text
    assert "1 of 1 lines cannot be told" in lower_bounds_table.summary(
        made(line("privacy", "level", 1.0)), pd.DataFrame(), METADATA
    )


def test_a_slower_method_is_called_slower():
    data = line("privacy", "slow", 2.0)
    data["value"] *= np.sqrt(data["n"] / 64.0)
    assert made(data)["verdict"].iloc[1] == "falls more slowly than the bound"


@pytest.mark.parametrize(
    ("extra", "verdict"),
    [
        (0.02, "falls as the bound"),
        (0.1, "falls more slowly than the bound"),
        (-0.1, "falls faster than the bound here"),
    ],
)
def test_an_exponent_a_twentieth_away_is_another_one_and_the_text_says_so(extra, verdict):
    data = line("privacy", "m", 4.0, spread=0.01)
    data["value"] *= (data["n"] / 64.0) ** extra
    assert made(data)["verdict"].iloc[1] == verdict
    assert "comes within 0.05 of the bound's exponent" in lower_bounds_table.summary(
        made(data), pd.DataFrame(), METADATA
    )


def experiment():
    """The experiment of the configuration, and the rows of its table as far as the missing methods need them."""
    from dprepro.experiments import CONFIG, read_yaml

    spec = read_yaml(CONFIG / "experiments" / "abg23_lower_bounds.yaml")
    rows = [(problem, entry["algorithm"]) for entry in spec["methods"].values() for problem in entry["problems"]]
    return spec, pd.DataFrame(rows, columns=["problem", "algorithm"])


def test_every_registered_algorithm_is_run_or_named_as_missing_on_every_instance():
    from dprepro import algorithms

    spec, rows = experiment()
    found = list(lower_bounds_table.missing(rows, {"settings": spec["problems"]}))
    assert [text.split(":")[0] for text in found] == [
        "Theorem A.2, d = 1",
        "Theorem 4.3, d = 16",
        "Theorem 4.3, d = 256",
    ]
    for text, start in zip(found, ("sampling", "privacy-16", "privacy-256"), strict=True):
        run = set(rows["algorithm"][rows["problem"].isin([start, f"{start}-ball"])])
        for name in algorithms.names():
            named = re.search(rf"\b{name}\b", text) is not None
            assert named != (name in run or (name == "jl_method" and "jl_dp_gd" in run)), name


@pytest.mark.parametrize("start", ["sampling", "privacy-16", "privacy-256"])
def test_what_is_missing_runs_where_it_is_said_to_and_is_refused_elsewhere(start):
    from dprepro import algorithms
    from dprepro.algorithms.base import Setting
    from dprepro.arrays import get_backend
    from dprepro.run import execute
    from dprepro.stages.points import load_point

    spec, rows = experiment()
    settings_ = [setting for key, setting in spec["problems"].items() if key in (start, f"{start}-ball")]
    done = {"jl_method", *rows["algorithm"][rows["problem"].str.startswith(start)]}

    def runs(name, setting, variant):
        data = {"seed": 0, "rows": 4096, **setting["dataset"]}
        features = {"features": setting["base"]["d"]} if "d" in setting["base"] else {}
        point = {**setting, "dataset": data | {"parameters": data.get("parameters", {}) | features}}
        problem, _ = load_point(point, get_backend("cpu", "float64"))
        # The one asks for a rho where the loss is convex, the other takes long with all its rounds.
        letters = {"prox_guided_md": {"rho": 1.0}, "dp_svrg_pp": {"T": 1}}.get(name, {})
        try:
            plan = algorithms.get_algorithm(name).plan(Setting(problem.spec, 1.0, DELTA, variant), **letters)
            execute(plan, problem, seed=0, replicates=range(1))
        except UserError:
            return False
        return True

    for name in sorted(set(algorithms.names()) - done):
        left_out = lower_bounds_table.obstacle(name, settings_) == lower_bounds_table.LEFT_OUT
        tries = itertools.product(settings_, ("practical", "certified"))
        assert any(runs(name, setting, variant) for setting, variant in tries) == left_out, name


def test_a_refused_method_keeps_its_sentence():
    rows = made(line("privacy", "no", 2.0, refused="It needs more."), line("privacy", "yes", 2.0))
    assert rows["verdict"].iloc[0] == "refused: It needs more."


def test_a_problem_without_a_bound_is_refused():
    settings_ = {**SETTINGS, "privacy": SETTINGS["privacy"] | {"loss": "huber_mean:2"}}
    with pytest.raises(UserError, match="There is no lower bound for huber_mean:2"):
        lower_bounds_table.table(line("privacy", "m", 2.0), METADATA | {"settings": settings_})


def test_the_figure_has_a_panel_per_instance_and_the_line_that_nothing_crosses(tmp_path):
    from dprepro.figures import style
    from dprepro.figures.abg23_lower_bounds import figure

    origin = {"commit": "0" * 40, "modified": False, "dprepro": "0", "numpy": "0", "python": "0", "backend": "numpy"}
    metadata = METADATA | {
        "origins": [origin | {"dtype": "float64", "device": "cpu"}],
        "datasets": {"data": {"title": "Data", "preprocessing": "none", "name": "data"}},
    }
    data = pd.concat([line("sampling", "slow", 3.0), line("privacy", "quick", 2.0)], ignore_index=True)
    with style.applied():
        drawn, caption = figure(data, metadata)
        titles = [axes.get_title(loc="left") for axes in drawn.axes]
        assert titles == ["Theorem A.2, d = 1", "Theorem 4.3, d = 5"]
        for axes, ratio in zip(drawn.axes, (3.0, 2.0), strict=True):
            heights = [np.asarray(shown.get_ydata(), dtype=float) for shown in axes.get_lines()]
            assert any(np.allclose(height, ratio) for height in heights), "the method"
            assert any(np.allclose(height, 7.0) for height in heights), "the start"
            assert any(np.allclose(height, 1.0) for height in heights), "the bound"
        style.save(drawn, tmp_path / "f.png")
    assert "proven lower bound" in caption
    assert "Theorem 4.3, d = 5: missing are " in caption


def test_a_method_in_a_ball_is_drawn_with_its_instance_and_named_so():
    from dprepro.figures import style
    from dprepro.figures.abg23_lower_bounds import figure

    origin = {"commit": "0" * 40, "modified": False, "dprepro": "0", "numpy": "0", "python": "0", "backend": "numpy"}
    metadata = METADATA | {
        "settings": SETTINGS | {"ball": SETTINGS["sampling"] | {"constraint": "l2_ball:1"}},
        "origins": [origin | {"dtype": "float64", "device": "cpu"}],
        "datasets": {"data": {"title": "Data", "preprocessing": "none", "name": "data"}},
    }
    inside = line("sampling", "bounded", 2.0).assign(problem="ball")
    with style.applied():
        drawn, _ = figure(pd.concat([line("sampling", "free", 3.0), inside], ignore_index=True), metadata)
    (axes,) = drawn.axes
    assert axes.get_title(loc="left") == "Theorem A.2, d = 1"
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["free (certified)", "bounded, in a ball (certified)"]


def test_the_experiment_has_a_bound_for_every_problem_and_the_best_number_of_copies():
    from dprepro.experiments import CONFIG, read_yaml

    spec = read_yaml(CONFIG / "experiments" / "abg23_lower_bounds.yaml")
    for problem in spec["problems"].values():
        base = problem["base"]
        for n in problem["sweeps"]["n"]:
            point = {"n": n, "d": base.get("d", 1), "epsilon": base["epsilon"], "epsilon_accounted": base["epsilon"]}
            assert lower_bounds_table.bound_at(problem, {**point, "delta": spec["delta"]}).explicit > 0.0
            if "d" in base:
                copies = problem["dataset"]["parameters"]["copies"]
                fitting = range(1, n // (base["d"] - 1) + 1)
                bounds = [mean_bound(n, base["d"], base["epsilon"], spec["delta"], k).explicit for k in fitting]
                assert copies == fitting[int(np.argmax(bounds))]
