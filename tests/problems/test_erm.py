from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from support import make_problem, rows

from dprepro.arrays import Backend, get_backend, strict_backend
from dprepro.errors import UserError
from dprepro.geometry import L1Ball, Polytope, RealSpace, Simplex
from dprepro.losses import Logistic, Squared
from dprepro.privacy.mechanisms import PoissonBatch
from dprepro.problems.erm import SMALL_BATCH, ProblemSpec
from dprepro.regularizers import Regularizer

LOSSES = ["logistic", "logistic_as_printed", "squared", "huber:0.5"]


def plain_objective(problem, X, y, w):
    """F^r written out as in the paper, without any batching."""
    spec = problem.spec
    t = X @ w
    values = spec.loss.value(np, y * t if spec.loss.margin else t, y)
    return np.mean(values) + float(spec.regularizer.value(np, w[None])[0])


@pytest.mark.parametrize("loss", LOSSES)
def test_objective_is_the_plain_mean_over_samples(loss, backend):
    X, y = rows(150, 5)
    problem = make_problem(data=(X, y), loss=loss, regularizer={"l1": 0.2, "l2": 0.1}, backend=backend)
    W = np.random.default_rng(1).normal(size=(4, 5))
    found = backend.to_host(problem.objective(backend.asarray(W)))
    np.testing.assert_allclose(found, [plain_objective(problem, X, y, w) for w in W], rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_the_derivative_of_the_objective(loss, backend):
    X, y = rows(150, 5)
    problem = make_problem(data=(X, y), loss=loss, regularizer=0.0, backend=backend)
    W = np.random.default_rng(1).normal(size=(3, 5))
    gradient = backend.to_host(problem.gradient(backend.asarray(W)))
    step = 1e-6
    for k in range(3):
        for j in range(5):
            e = step * np.eye(5)[j]
            slope = (plain_objective(problem, X, y, W[k] + e) - plain_objective(problem, X, y, W[k] - e)) / (2 * step)
            assert gradient[k, j] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_sample_gradients_average_to_the_full_gradient(loss, backend):
    problem = make_problem(n=40, loss=loss, backend=backend)
    w, v = np.random.default_rng(2).normal(size=(2, 7))
    W, V = backend.asarray(np.tile(w, (40, 1))), backend.asarray(np.tile(v, (40, 1)))
    index = backend.index(np.arange(40))
    samples = backend.to_host(problem.sample_gradients(W, index))
    np.testing.assert_allclose(samples.mean(axis=0), backend.to_host(problem.gradient(W))[0], atol=1e-14)
    differences = backend.to_host(problem.sample_differences(W, V, index))
    np.testing.assert_allclose(differences, samples - backend.to_host(problem.sample_gradients(V, index)), atol=1e-14)


def test_hessian_is_the_derivative_of_the_gradient(backend):
    problem = make_problem(backend=backend, regularizer=0.0)
    w = np.random.default_rng(2).normal(size=7)
    hessian = backend.to_host(problem.hessian(backend.asarray(w)))
    step = 1e-6
    for j in range(7):
        W = backend.asarray(np.stack([w + step * np.eye(7)[j], w - step * np.eye(7)[j]]))
        up, down = backend.to_host(problem.gradient(W))
        np.testing.assert_allclose(hessian[j], (up - down) / (2 * step), atol=1e-8)


def test_chunking_changes_only_the_order_of_summation():
    X, y = rows(1000, 9)
    W = np.random.default_rng(3).normal(size=(64, 9))
    coarse = make_problem(data=(X, y), backend=Backend("numpy", np, None, "float64", 1 << 30, "one chunk"))
    fine = make_problem(data=(X, y), backend=Backend("numpy", np, None, "float64", 1, "64 rows"))
    np.testing.assert_allclose(fine.gradient(W), coarse.gradient(W), rtol=1e-12, atol=1e-15)


def test_single_precision_gradient_is_accurate_to_single_precision():
    X, y = rows(5000, 20)
    W = np.random.default_rng(3).normal(size=(64, 20))
    exact = make_problem(data=(X, y)).gradient(W)
    problem = make_problem(data=(X, y), backend=get_backend("cpu", "float32"))
    np.testing.assert_allclose(problem.gradient(W.astype(np.float32)), exact, atol=3e-7)


def test_replacing_one_record_moves_the_gradients_within_the_stated_sensitivities():
    """2G/n for the full gradient; two spreads for a sampled difference."""
    rng = np.random.default_rng(7)
    X, y = rows(50, 4)
    worst_full = worst_sampled = 0.0
    for _ in range(200):
        X2, y2 = X.copy(), y.copy()
        X2[3] = rng.normal(size=4)
        X2[3] /= np.linalg.norm(X2[3])
        y2[3] = -y[3]
        one, two = make_problem(data=(X, y)), make_problem(data=(X2, y2))
        W, V = 20 * rng.normal(size=(2, 1, 4))
        worst_full = max(worst_full, np.linalg.norm(one.gradient(W) - two.gradient(W)))
        index = np.array([3])
        moved = one.sample_differences(W, V, index) - two.sample_differences(W, V, index)
        worst_sampled = max(worst_sampled, np.linalg.norm(moved))
    spec = one.spec
    assert 0.5 * 2 * spec.G / spec.n < worst_full <= 2 * spec.G / spec.n
    assert 0.5 * 2 * spec.gradient_spread < worst_sampled <= 2 * spec.gradient_spread


def test_spec_states_what_an_algorithm_may_rely_on():
    ridge = ProblemSpec(10, 3, Logistic(), Regularizer(l2=0.1), RealSpace())
    assert ridge.properties == {
        *("smooth", "convex", "strongly_convex", "smooth_regularizer", "lipschitz", "glm", "unconstrained"),
    }
    lasso = ProblemSpec(10, 3, Squared(), Regularizer(l1=0.1), L1Ball(2.0))
    assert lasso.properties == {"smooth", "convex", "lipschitz", "glm", "bounded", "polytope", "centrally_symmetric"}
    assert lasso.G == 3.0
    assert "lipschitz" not in ProblemSpec(10, 3, Squared(), Regularizer(), RealSpace()).properties


# The records of three replicates.
RAGGED = ([], [4], [0, 7, 3, 9, 39])


def ragged(backend, n, segments, size):
    """Segments of records as the mechanism hands them out: each begins with the sentinel."""
    lengths = np.array([1 + len(segment) for segment in segments])
    rows_of = np.concatenate([[n, *segment] for segment in segments])
    return PoissonBatch(backend.index(rows_of), backend.index(np.cumsum(lengths) - lengths), size)


def naive_slope(loss, x, y, w):
    """Derivative of phi(<w, x>, y) for one record, from the loss itself by a central difference."""
    step = 1e-6

    def value(t):
        t = np.array([t])
        return float(loss.value(np, y * t if loss.margin else t, np.array([y]))[0])

    t = float(x @ w)
    return (value(t + step) - value(t - step)) / (2 * step)


def naive_mean(X, y, loss, records, divisor, w, v=None, clip=np.inf):
    """Mean of clipped gradient differences (of gradients without v), one record at a time."""
    total = np.zeros(X.shape[1])
    for i in records:
        slope = naive_slope(loss, X[i], y[i], w) - (0.0 if v is None else naive_slope(loss, X[i], y[i], v))
        vector = slope * X[i]
        length = np.linalg.norm(vector)
        total += vector if length <= clip else vector * (clip / length)
    return total / divisor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "make_backend", [lambda dtype: get_backend("cpu", dtype), strict_backend], ids=["np", "strict"]
)
@pytest.mark.parametrize("loss", ["logistic", "logistic_as_printed", "soft_logistic", "huber:0.5"])
def test_clipped_differences_and_gradients_are_those_of_a_plain_loop(loss, make_backend, dtype):
    """All three kinds of index; both ways through Poisson batches (small and large expected size)."""
    backend = make_backend(dtype)
    X, y = rows(40, 5)
    X[::3] *= 0.4  # rows of different norms
    problem = make_problem(data=(X, y), loss=loss, backend=backend)
    W, V = 3.0 * np.random.default_rng(2).normal(size=(2, 3, 5))
    on_device = backend.asarray(W), backend.asarray(V)
    single, batches = [5, 5, 30], [[1, 2], [30, 5], [0, 39]]
    kinds = [
        (backend.index(single), [[i] for i in single], 1),
        (backend.index(batches), batches, 2),
        (ragged(backend, 40, RAGGED, 2), RAGGED, 2),
        (ragged(backend, 40, RAGGED, SMALL_BATCH), RAGGED, SMALL_BATCH),
    ]
    clipped = 0
    for index, records, divisor in kinds:
        found = backend.to_host(problem.sample_gradients(on_device[0], index))
        expected = [naive_mean(X, y, problem.spec.loss, records[k], divisor, W[k]) for k in range(3)]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        for clip in (None, 0.03, 0.2):
            found = backend.to_host(problem.sample_differences(*on_device, index, clip))
            bound = np.inf if clip is None else clip
            expected = [naive_mean(X, y, problem.spec.loss, records[k], divisor, W[k], V[k], bound) for k in range(3)]
            np.testing.assert_allclose(found, expected, atol=1e-6)
            clipped += clip is not None and bool(np.any(np.abs(expected) > 1e-3))
    assert clipped == 8, "nothing is left after clipping, so the test says little"


@pytest.mark.parametrize("loss", ["logistic_as_printed", "logistic", "huber:0.5", "sine_squared", "squared"])
@pytest.mark.parametrize("size", [1, SMALL_BATCH])
def test_the_sentinel_contributes_nothing_even_where_its_slope_is_not_zero(loss, size, backend):
    problem = make_problem(n=40, loss=loss, backend=backend)
    W, V = (backend.asarray(values) for values in np.random.default_rng(2).normal(size=(2, 3, 7)))
    empty = ragged(backend, 40, ([], [], []), size)
    assert np.all(backend.to_host(problem.sample_gradients(W, empty)) == 0.0)
    assert np.all(backend.to_host(problem.sample_differences(W, V, empty, 0.1)) == 0.0)


def test_a_ragged_batch_gives_a_replicate_the_same_bits_in_any_company():
    rng = np.random.default_rng(4)
    for dtype in ("float32", "float64"):
        problem = make_problem(n=300, d=11, dtype=dtype)
        backend = problem.backend
        W, V = (backend.asarray(values) for values in rng.normal(size=(2, 64, 11)))
        for size in (3, 2 * SMALL_BATCH):
            segments = [rng.choice(300, size=rng.poisson(size), replace=False).tolist() for _ in range(64)]
            whole = problem.sample_differences(W, V, ragged(backend, 300, segments, size), 0.05)
            for k in (0, 17, 63):
                alone = [segments[j] if j == k else [] for j in range(64)]
                part = problem.sample_differences(W, V, ragged(backend, 300, alone, size), 0.05)
                np.testing.assert_array_equal(part[k], whole[k])


def test_batches_taken_in_groups_of_replicates_are_those_taken_at_once():
    data = rows(300, 9)
    W, V = np.random.default_rng(3).normal(size=(2, 64, 9))
    index = np.random.default_rng(5).integers(0, 300, size=(64, 12))
    found = [
        make_problem(data=data, backend=Backend("numpy", np, None, "float64", budget, "test")).sample_differences(
            W, V, index, 0.05
        )
        for budget in (1, 20_000, 1 << 30)
    ]
    np.testing.assert_allclose(found[0], found[2], rtol=1e-12)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-12)


@pytest.mark.parametrize("clip", [0.01, 0.3])
def test_replacing_one_record_moves_clipped_estimates_within_the_stated_sensitivities(clip):
    """2 r/b for a batch of fixed size, r/b for one record of a Poisson batch.

    The first pair reaches them: two records that lean a little along the way from V to W and point away from each
    other else (a convex loss lets no difference point against that way).
    """
    rng = np.random.default_rng(7)
    X, y = rows(50, 4)
    b, lean = 2, 0.01
    side = np.sqrt(1.0 - lean**2)
    far = np.array([[1e4, 0.0, 0.0, 0.0]])
    random_pairs = [(rng.normal(size=(2, 4)), 20 * rng.normal(size=(2, 1, 4))) for _ in range(200)]
    pairs = [(np.array([[lean, side, 0, 0], [lean, -side, 0, 0]]), (far, -far)), *random_pairs]
    worst_fixed, worst_added = [], []
    for records, (W, V) in pairs:
        problems = []
        for record in records:
            changed = X.copy()
            changed[3] = record / np.linalg.norm(record)
            problems.append(make_problem(data=(changed, y)))
        one, two = (problem.sample_differences(W, V, np.array([[3, 8]]), clip) for problem in problems)
        worst_fixed.append(np.linalg.norm(one - two))
        with_it, without = (
            problems[0].sample_differences(W, V, ragged(problems[0].backend, 50, [segment], b), clip)
            for segment in ([8, 3], [8])
        )
        worst_added.append(np.linalg.norm(with_it - without))
    assert max(worst_fixed) <= 2 * clip / b * (1 + 1e-12)
    assert max(worst_added) <= clip / b * (1 + 1e-12)
    assert worst_fixed[0] >= 0.999 * 2 * clip / b
    assert worst_added[0] >= 0.999 * clip / b


SYMMETRIC = [None, "l2_ball:0.7", "l1_ball:0.7", "lp_ball:1.5:0.7", "lp_ball:3:0.7"]


def proximal_point(v, eta, regularizer, inside):
    """argmin 1/2 ||x - v||^2 + eta r(x) over a set, by SLSQP on x = p - q with p, q >= 0."""
    d = len(v)

    def objective(z):
        x = z[:d] - z[d:]
        return 0.5 * np.sum((x - v) ** 2) + eta * (regularizer.l1 * np.sum(z) + 0.5 * regularizer.l2 * np.sum(x**2))

    found = minimize(
        objective, np.full(2 * d, 0.2), bounds=[(0, None)] * (2 * d), method="SLSQP",
        constraints=[{**rule, "fun": lambda z, f=rule["fun"]: f(z[:d] - z[d:])} for rule in inside],
        options={"ftol": 1e-15, "maxiter": 1000},
    )  # fmt: skip
    return found.x[:d] - found.x[d:]


@pytest.mark.parametrize("regularizer", [Regularizer(l1=0.4), Regularizer(l1=0.2, l2=0.8)])
@pytest.mark.parametrize("constraint", SYMMETRIC)
def test_projecting_after_the_prox_is_exact_on_sets_that_are_symmetric_in_every_coordinate(constraint, regularizer):
    problem = make_problem(d=3, constraint=constraint, regularizer=regularizer)
    p = {"l2_ball": 2.0, "l1_ball": 1.0, "lp_ball": getattr(problem.spec.constraint, "p", None)}
    power = p.get(problem.spec.constraint.name)
    inside = [{"type": "ineq", "fun": lambda x: 0.7**power - np.sum(np.abs(x) ** power)}] if power else []
    V = np.random.default_rng(0).normal(size=(8, 3))
    V[0, 0] = 0.0
    found = problem.prox(V, 0.5)
    expected = [proximal_point(v, 0.5, regularizer, inside) for v in V]
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.any(found == 0.0)


def test_an_l1_term_is_refused_where_projecting_after_its_prox_is_wrong():
    triangle = Polytope([[1.0, 0.2], [-0.3, 1.0], [-0.8, -0.9]])
    for constraint, sentence in ((Simplex(1.0), "constant there: drop it"), (triangle, "drop it, or use a ball")):
        with pytest.raises(UserError, match=f"An l1 term has no proximal step on the .* here: .*{sentence}"):
            make_problem(d=2, constraint=constraint, regularizer={"l1": 0.1, "l2": 0.1})
        make_problem(d=2, constraint=constraint, regularizer=0.1)
    # On the simplex the term is constant, so that its prox is the projection; that of a shrunk point is another one.
    v = np.array([[0.9, 0.2]])
    shrunk = Simplex(1.0).project(np, Regularizer(l1=0.3).prox(np, v, 1.0))
    np.testing.assert_allclose(Simplex(1.0).project(np, v), [[0.85, 0.15]])
    np.testing.assert_allclose(shrunk, [[0.8, 0.2]])
