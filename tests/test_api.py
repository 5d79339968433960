"""`dprepro.solve`: what it returns, what it refuses and how, and that its results can be repeated."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import dprepro
from dprepro.errors import UserError, VacuousSetting
from dprepro.losses import Loss

N, D = 300, 5
_rng = np.random.default_rng(7)
X = _rng.standard_normal((N, D))
X /= np.linalg.norm(X, axis=1)[:, None]
Y = np.where(X @ _rng.standard_normal(D) + 0.1 * _rng.standard_normal(N) > 0, 1.0, -1.0)

ALGORITHMS = ("dp_gd", "dp_svrg", "dp_svrg_pp")
LETTERS: dict[str, dict[str, Any]] = {
    "dp_gd": {"T": 12},
    "dp_svrg": {"T": 3, "m": 20},
    "dp_svrg_pp": {"T": 3},
}
GRADIENTS = {"dp_gd": 12 * N, "dp_svrg": 3 * (N + 2 * 20), "dp_svrg_pp": 3 * N + 2 * (2 + 4 + 8) * 10}
ROUNDS = {"dp_gd": 12, "dp_svrg": 3, "dp_svrg_pp": 3}

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def solve(algorithm: str = "dp_gd", X: Any = X, y: Any = Y, **changes: Any) -> dprepro.Solution:
    defaults = {
        "variant": "published",
        "epsilon": 2.0,
        "delta": 1e-4,
        "regularizer": 0.1,
        "replicates": 3,
        "device": "cpu",
    }
    letters = LETTERS.get(algorithm, {}) if isinstance(algorithm, str) else {}
    return dprepro.solve(algorithm, X, y, **{**defaults, **letters, **changes})


@every_algorithm
def test_a_solution_has_a_row_per_replicate_and_the_planned_cost(algorithm: str) -> None:
    solution = solve(algorithm)
    assert solution.w.shape == (3, D)
    assert solution.w.dtype == np.float64
    assert np.all(np.isfinite(solution.w))
    assert len({row.tobytes() for row in solution.w}) == 3, "replicates are independent"
    assert solution.objective.shape == (3,)
    assert solution.gradient_evaluations == GRADIENTS[algorithm] == solution.plan.gradient_evaluations
    assert solution.seconds > 0
    assert solution.notes == ()


@every_algorithm
def test_the_objective_is_that_of_the_returned_point(algorithm: str) -> None:
    solution = solve(algorithm)
    by_hand = [np.mean(np.logaddexp(0, -Y * (X @ w))) + 0.05 * w @ w for w in solution.w]
    np.testing.assert_allclose(solution.objective, by_hand, rtol=1e-12)
    assert solution.failures == sum(value > math.log(2) for value in by_hand)


@every_algorithm
def test_the_trajectory_is_a_tidy_table_from_zero_to_the_end(algorithm: str) -> None:
    solution = solve(algorithm)
    table = solution.trajectory
    assert list(table.columns) == ["replicate", "round", "gradient_evaluations", "objective", "seconds"]
    assert len(table) == 3 * (ROUNDS[algorithm] + 1), "few rounds: all of them are kept, and the start"
    assert table["replicate"].unique().tolist() == [0, 1, 2]
    for replicate, rows in table.groupby("replicate"):
        assert rows["round"].tolist() == list(range(ROUNDS[algorithm] + 1))
        assert rows["gradient_evaluations"].is_monotonic_increasing
        assert rows["seconds"].is_monotonic_increasing
        assert rows["objective"].iloc[0] == pytest.approx(math.log(2), rel=1e-14)
        assert rows["objective"].iloc[-1] == solution.objective[replicate]
        assert rows["gradient_evaluations"].iloc[-1] == GRADIENTS[algorithm]


# Two periods of a gradient over 12 samples and three differences over 6, with 5 directions.
ZERO_ORDER = {"loss": "absolute", "alpha": 0.5, "D": 0.1, "M": 2, "T": 8, "Sigma": 4, "B1": 12, "B2": 6, "m": D}
VALUES = 2 * D * (2 * 12 + 2 * 6 * 6)


def test_a_run_on_values_of_the_loss_counts_them_and_not_gradients() -> None:
    solution = solve("o2nc_zero_order", regularizer=0.0, variant="certified", **ZERO_ORDER)
    assert (solution.function_evaluations, solution.gradient_evaluations) == (VALUES, 0)
    assert solution.plan.function_evaluations == VALUES
    table = solution.trajectory
    columns = ["replicate", "round", "gradient_evaluations", "function_evaluations", "objective", "seconds"]
    assert list(table.columns) == columns
    for _, rows in table.groupby("replicate"):
        assert rows["function_evaluations"].iloc[:3].tolist() == [0, 2 * D * 12, 2 * D * (12 + 2 * 6)]
        assert rows["function_evaluations"].iloc[-1] == VALUES
    assert solve("dp_gd").function_evaluations == 0


@every_algorithm
def test_the_certificate_says_what_is_claimed_and_what_is_accounted(algorithm: str) -> None:
    solution = solve(algorithm)
    certificate = solution.certificate
    assert set(certificate) == {
        "algorithm", "variant", "adjacency", "epsilon_claimed", "delta", "epsilon_accounted", "accountant",
        "tight", "theorem", "conditions", "verdict", "events", "caveat", "probability_record_sampled", "epsilon_lower",
        "noise_ratio", "delta_at_claimed_epsilon", "accountant_version", "epsilon_advanced_composition", "drawn_by",
        "plan_digest",
        "constant_set_here",
    }  # fmt: skip
    assert (certificate["algorithm"], certificate["variant"]) == (algorithm, "published")
    assert (certificate["epsilon_claimed"], certificate["delta"]) == (2.0, 1e-4)
    assert certificate["epsilon_accounted"] > 0
    assert certificate["adjacency"] == "replace-one"
    assert [event["sigma"] for event in certificate["events"]] == [solution.plan.sigma]
    assert solution.plan.sigma > 0
    assert certificate["verdict"].startswith("certified") == (certificate["epsilon_accounted"] <= 2.0)
    assert certificate["epsilon_lower"] <= certificate["epsilon_accounted"]
    assert "not for releasing data" in certificate["caveat"]


@every_algorithm
def test_the_provenance_tells_how_to_get_the_same_again(algorithm: str) -> None:
    facts = solve(algorithm, seed=11).provenance
    for key in ("commit", "modified", "python", "dprepro", "numpy", "blas", "system", "processor"):
        assert key in facts
    assert facts["commit"]
    assert facts["dprepro"] == dprepro.__version__
    assert facts["numpy"] == np.__version__
    assert facts["seed"] == 11
    assert (facts["backend"], facts["device"], facts["dtype"], facts["threads"]) == ("numpy", "cpu", "float64", 1)
    assert facts["why"]
    assert facts["data"]["checksum"] == hashlib.sha256(X.tobytes() + Y.tobytes()).hexdigest()


@every_algorithm
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(algorithm: str, dtype: str) -> None:
    first, again, other = (solve(algorithm, seed=seed, dtype=dtype) for seed in (3, 3, 4))
    assert first.w.tobytes() == again.w.tobytes()
    assert first.result.objective.tobytes() == again.result.objective.tobytes()
    assert not np.any(first.w == other.w)


@every_algorithm
def test_a_replicate_does_not_depend_on_how_many_run_beside_it(algorithm: str) -> None:
    assert solve(algorithm, replicates=1).w.tobytes() == solve(algorithm, replicates=66).w[:1].tobytes()


@every_algorithm
def test_without_privacy_there_is_no_noise_and_every_replicate_of_a_full_gradient_agrees(algorithm: str) -> None:
    solution = solve(algorithm, epsilon=math.inf)
    assert solution.plan.sigma == 0.0
    assert solution.certificate["epsilon_accounted"] == math.inf
    assert solution.certificate["verdict"] == "no privacy asked for"
    assert solution.failures == 0
    if algorithm == "dp_gd":
        assert len({row.tobytes() for row in solution.w}) == 1


def test_more_privacy_means_more_noise() -> None:
    sigmas = [solve(epsilon=epsilon).plan.sigma for epsilon in (0.5, 1.0, 2.0)]
    assert sigmas == pytest.approx([4 * sigmas[2], 2 * sigmas[2], sigmas[2]])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 2), (False, True)])
def test_other_codes_of_two_classes_are_read_and_reported(low: Any, high: Any) -> None:
    solution = solve(y=np.where(Y > 0, high, low))
    assert solution.w.tobytes() == solve().w.tobytes()
    assert solution.notes == (f"labels {low:g} and {high:g} were read as -1 and +1",)


def test_lists_and_other_layouts_are_read_like_arrays() -> None:
    expected = solve().w.tobytes()
    assert solve(X=X.tolist(), y=Y.tolist()).w.tobytes() == expected
    assert solve(X=np.asfortranarray(X), y=Y.astype(np.int8)).w.tobytes() == expected


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64], ids=lambda kind: kind.__name__)
def test_numbers_of_numpy_are_numbers(number: type) -> None:
    assert solve(epsilon=number(2), row_norm=number(1)).w.tobytes() == solve(epsilon=2, row_norm=1).w.tobytes()


def test_the_input_arrays_are_not_changed() -> None:
    features, labels = X.copy(), np.where(Y > 0, 1.0, 0.0)
    solve(X=features, y=labels)
    assert np.array_equal(features, X)
    assert set(np.unique(labels)) == {0.0, 1.0}


def test_a_row_at_its_bound_and_a_declared_larger_bound_are_accepted() -> None:
    assert solve(X=X * (1 + 1e-9)).plan.sigma == solve().plan.sigma
    assert solve(X=3 * X, row_norm=3.0).plan.sigma == pytest.approx(3 * solve().plan.sigma)


def test_regression_needs_labels_within_their_declared_bound() -> None:
    options = {"loss": "squared", "constraint": "l2_ball:1.0"}
    assert solve(y=5 * Y, label_bound=5.0, **options).plan.sigma > solve(**options).plan.sigma
    with pytest.raises(UserError, match="value in row 0 of a size above the declared label_bound = 1: scale"):
        solve(y=5 * Y, **options)


def test_a_constraint_holds_in_every_replicate() -> None:
    solution = solve(constraint="l2_ball:0.01")
    assert np.all(np.linalg.norm(solution.w, axis=1) <= 0.01 * (1 + 1e-12))


def spoilt(row: int, column: int, value: float) -> np.ndarray:
    changed = X.copy()
    changed[row, column] = value
    return changed


BAD_INPUT: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt algorithm": ({"algorithm": "dp_svgr"}, r"Unknown algorithm 'dp_svgr': did you mean dp_svrg\?"),
    "unknown algorithm": ({"algorithm": "qqqq"}, r"Unknown algorithm 'qqqq': use one of dp_acc_md, dp_gd, "),
    "algorithm not text": ({"algorithm": 5}, "Unknown algorithm 5"),
    "loss": ({"loss": "hing"}, "Unknown loss 'hing': use one of logistic, "),
    "loss with kinks": ({"loss": "hinge"}, "dp_gd needs a smooth loss, but was given loss 'hinge' "),
    "variant": ({"variant": "improved"}, r"Unknown variant 'improved': use one of published, certified, practical\."),
    "device": ({"device": "tpu"}, "Unknown device 'tpu' given by the argument: use one of auto, cpu, gpu"),
    "dtype": ({"dtype": "float16"}, "Unknown floating-point type 'float16': use one of float32, float64"),
    "epsilon zero": ({"epsilon": 0}, r"epsilon is 0: give a number > 0 \(inf for no noise\)"),
    "epsilon negative": ({"epsilon": -1.0}, r"epsilon is -1\.0: give a number > 0"),
    "epsilon nan": ({"epsilon": math.nan}, "epsilon is nan: give a number > 0"),
    "epsilon text": ({"epsilon": "1"}, "epsilon is '1': give a number > 0"),
    "epsilon none": ({"epsilon": None}, "epsilon is None: give a number > 0"),
    "delta zero": ({"delta": 0.0}, r"delta is 0\.0: give a number strictly between 0 and 1"),
    "delta one": ({"delta": 1}, "delta is 1: give a number strictly between 0 and 1"),
    "delta negative": ({"delta": -1e-5}, "delta is -1e-05"),
    "delta nan": ({"delta": math.nan}, "delta is nan"),
    "delta text": ({"delta": "small"}, "delta is 'small'"),
    "delta too small": ({"delta": 1e-320}, "delta"),
    "X nan": ({"X": spoilt(7, 2, math.nan)}, "X has a NaN or infinite value at row 7, column 2: clean the data"),
    "X infinite": ({"X": spoilt(0, 4, -math.inf)}, "X has a NaN or infinite value at row 0, column 4"),
    "X text": ({"X": [["a", "b"]] * N}, "X does not hold numbers only"),
    "X ragged": ({"X": [[1, 2], [3]]}, "X does not hold numbers only"),
    "X complex": ({"X": X * 1j}, "X does not hold"),
    "X flat": ({"X": X[:, 0]}, r"X has shape \(300,\): give a non-empty two-dimensional array"),
    "X deep": ({"X": X[:, :, None]}, r"X has shape \(300, 5, 1\)"),
    "X no rows": ({"X": X[:0], "y": Y[:0]}, r"X has shape \(0, 5\)"),
    "X no columns": ({"X": X[:, :0]}, r"X has shape \(300, 0\)"),
    "row norm": ({"X": spoilt(9, 0, 2.0)}, "Row 9 of X has a norm above the declared row_norm = 1: scale"),
    "row norm zero": ({"row_norm": 0}, "row_norm is 0: give a positive number"),
    "row norm nan": ({"row_norm": math.nan}, "row_norm is nan: give a positive number"),
    "row norm text": ({"row_norm": "one"}, "row_norm is 'one': give a positive number"),
    "y short": ({"y": Y[:-1]}, r"y has shape \(299,\), but X has 300 rows: give one label per row"),
    "y as column": ({"y": Y[:, None]}, r"y has shape \(300, 1\), but X has 300 rows"),
    "y text": ({"y": ["yes"] * N}, "y does not hold numbers only"),
    "y nan": ({"y": np.where(np.arange(N) == 4, math.nan, Y)}, "y has a NaN or infinite value at row 4"),
    "three classes": ({"y": np.arange(N) % 3}, r"y does not hold two classes coded as -1/\+1, 0/1 or 1/2: recode"),
    "other classes": ({"y": 2 * Y}, "y does not hold two classes"),
    "label bound text": ({"loss": "huber", "label_bound": "one"}, "label_bound"),
    "label bound nan": ({"loss": "huber", "label_bound": math.nan}, "label_bound"),
    "replicates zero": ({"replicates": 0}, "replicates is 0: give a whole number >= 1"),
    "replicates beyond memory": ({"replicates": 2**70}, "give at most 1000000 at one time"),
    "replicates half": ({"replicates": 1.5}, r"replicates is 1\.5: give a whole number >= 1"),
    "seed negative": ({"seed": -1}, "seed is -1: give a whole number >= 0"),
    "seed text": ({"seed": "a"}, "seed is 'a': give a whole number >= 0"),
    "unknown letter": ({"Q": 1}, "dp_gd has no parameter 'Q': it takes F0, T, c, eta, mu, output, release"),
    "letter of another": ({"m": 5}, "dp_gd has no parameter 'm'"),
    "T half": ({"T": 2.5}, r"T of dp_gd is 2\.5: give a whole number > 0 \(steps\)"),
    "T zero": ({"T": 0}, "T of dp_gd is 0: give a finite number > 0"),
    "T truth": ({"T": True}, "T of dp_gd is True: give a whole number > 0"),
    "T text": ({"T": "many"}, "T of dp_gd is 'many': give a whole number > 0"),
    "T infinite": ({"T": math.inf}, "T of dp_gd is inf: give a whole number > 0"),
    "T beyond numbers": ({"algorithm": "dp_svrg_pp", "T": 2000}, "T"),
    "eta negative": ({"eta": -0.1}, r"eta of dp_gd is -0\.1: give a finite number > 0"),
    "output": ({"output": "best"}, "output of dp_gd is 'best': use one of last, uniform"),
    "squared unbounded": ({"loss": "squared"}, "dp_gd needs a Lipschitz loss.*add a bounded constraint"),
    "svrg without l2": ({"algorithm": "dp_svrg", "regularizer": 0}, "needs a strongly convex.*add an l2 regularizer"),
    "gd with l1": ({"regularizer": {"l1": 0.1}}, "dp_gd needs a smooth regularizer.*drop the l1 part"),
    "regularizer key": ({"regularizer": {"l3": 1}}, "Unknown regularizer key 'l3': use l1 and l2"),
    "regularizer text": ({"regularizer": "strong"}, "strength 'strong' is not a number"),
    "regularizer negative": ({"regularizer": -0.1}, r"l2 strength of the regularizer is -0\.1: give a number >= 0"),
    "constraint": ({"constraint": "box"}, "Unknown constraint 'box': use one of real_space, l2_ball, l1_ball"),
    "constraint number": ({"constraint": 1.0}, "constraint"),
    "radius": ({"constraint": "l2_ball:-1"}, r"radius of the l2_ball is -1\.0: give a positive number"),
    "radius text": ({"constraint": "l2_ball:big"}, r"no number after the colon: write for example l2_ball:1\.0"),
}


@pytest.mark.parametrize(("changes", "sentence"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_input_is_answered_with_what_was_given_and_what_to_do(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        solve(**changes)
    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    assert caught.value.exit_code == 2


def test_a_gpu_that_is_not_there_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dprepro.arrays.gpu_problem", lambda: "there is none")
    with pytest.raises(UserError, match=r"GPU was asked for by the argument, but there is none: .* use device cpu"):
        solve(device="gpu")
    solution = solve(device="auto")
    assert solution.provenance["device"] == "cpu"
    assert "there is none" in solution.provenance["why"]


def test_the_environment_chooses_the_device_unless_the_caller_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dprepro.arrays.gpu_problem", lambda: "there is none")
    monkeypatch.setenv("DPREPRO_DEVICE", "gpu")
    with pytest.raises(UserError, match="GPU was asked for by DPREPRO_DEVICE"):
        solve(device="auto")
    assert solve(device="cpu").provenance["device"] == "cpu"
    monkeypatch.setenv("DPREPRO_DEVICE", "tpu")
    with pytest.raises(UserError, match="Unknown device 'tpu' given by DPREPRO_DEVICE"):
        solve(device="auto")


@every_algorithm
@pytest.mark.parametrize("epsilon", [0.03, 0.1])
def test_a_vacuous_setting_names_the_smallest_n_that_works(algorithm: str, epsilon: float) -> None:
    def rows(n: int) -> Callable[[], dprepro.Solution]:
        # Whether the theorem says anything depends on the number of rows alone, not on what is in them.
        options = {"epsilon": epsilon, "delta": 1e-4, "regularizer": 0.5, "device": "cpu"}
        return lambda: dprepro.solve(algorithm, np.resize(X, (n, D)), np.resize(Y, n), **options)

    with pytest.raises(VacuousSetting, match="it makes sense from n = ") as caught:
        rows(3)()
    assert f"{algorithm} has no" in str(caught.value)
    assert "at n = 3:" in str(caught.value)
    named = re.search(r"from n = (\d+)\. Give more data, a larger epsilon, or set T\.", str(caught.value))
    assert named
    enough = int(named.group(1))
    assert enough > 20
    with pytest.raises(VacuousSetting, match=f"from n = {enough}"):
        rows(enough - 1)()
    assert rows(enough)().plan.n == enough


@every_algorithm
@pytest.mark.parametrize("tiny", [{"epsilon": 5e-324}, {"delta": 1e-320}], ids=str)
def test_a_vacuous_setting_beyond_the_range_of_numbers_is_refused_all_the_same(
    algorithm: str, tiny: dict[str, float]
) -> None:
    with pytest.raises(UserError):
        dprepro.solve(algorithm, X, Y, **{"epsilon": 1.0, "delta": 1e-4, "regularizer": 0.5, **tiny})


@every_algorithm
def test_setting_T_by_hand_runs_where_the_theorem_is_silent(algorithm: str) -> None:
    solution = solve(algorithm, X=X[:10], y=Y[:10], epsilon=0.01)
    assert solution.plan.rounds == ROUNDS[algorithm]


def test_a_step_that_is_far_too_large_is_counted_as_a_failure() -> None:
    solution = solve(eta=1e6)
    assert solution.failures == 3
    assert np.all(solution.objective > math.log(2))


def test_the_package_offers_solve_at_its_top_and_nothing_unknown() -> None:
    assert dprepro.solve.__module__ == "dprepro.api"
    assert set(dprepro.__all__) == {"RunFailed", "Solution", "UserError", "__version__", "solve"}
    assert dprepro.UserError is UserError
    with pytest.raises(AttributeError, match="no attribute 'sovle'"):
        dprepro.sovle


@dataclass(frozen=True)
class Rough(Loss):
    """|t - y|, with the constants that its users need and no others."""

    name = "rough"
    residual = True
    convex = True
    smooth = False

    def value(self, xp, t, y):
        return xp.abs(t - y)

    def core(self, xp, s, y):
        return xp.sign(s - y)

    def lipschitz(self, row_norm, radius, label_bound):
        return row_norm


def test_a_loss_need_not_state_a_constant_that_no_one_asks_for():
    constraint, letters = "l2_ball:1", {"T": 5, "eta": 0.1}
    solution = dprepro.solve("noisy_gd", X, Y, loss=Rough(), constraint=constraint, epsilon=1.0, delta=1e-3, **letters)
    assert solution.certificate["verdict"] == "certified"
