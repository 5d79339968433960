"""Every kernel against the project's own NumPy code: compiled by g++ with one lane and with a warp, and on a GPU."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from host import HostLauncher, signatures, source
from support import make_problem

from dprepro.arrays import get_backend
from dprepro.errors import UserError
from dprepro.kernels import GROUP, LANES, MOST_CHUNKS, SOURCE, Draws, Kernels, chunk_rows
from dprepro.privacy.events import SelectionEvent, TreeEvent
from dprepro.privacy.mechanisms import SelectionMechanism, Slots, TreeMechanism
from dprepro.streams import Streams

CPU = get_backend("cpu", "float64")
# A normal number is a radius times a cosine in single precision. With errors of two units in the last place in
# logarithm and cosine, as CUDA states them, and one in each product, it is within 4e-7 of its radius, which is hardly
# above 5 here.
NORMAL = 2e-6
# Sums and products of a few dozen numbers near one, in another order.
TOLERANCE = {"float32": 2e-5, "float64": 2e-6}
STEPS = 21
SLOTS = (0, None, 5)


def streams(purpose: str = "noise", slots=SLOTS) -> Streams:
    return Streams(7, slots, purpose)


def draws(first: int, sigma: float = 0.3, index=None) -> Draws:
    return Draws(streams("noise"), streams("sample"), first, STEPS, sigma, index)


@pytest.mark.parametrize(("first", "count"), [(0, 9), (3, 50), (2**33 + 1, 6)])
def test_words_are_those_of_numpy_bit_by_bit(device, first, count):
    """Against the library itself, not only against what the project makes of it."""
    found = device.to_host(device.kernels.words(streams(), first, count))
    np.testing.assert_array_equal(found, streams().words(first, count))
    key = streams().keys[2, :2]
    own = np.random.Philox(key=key)
    own.advance(first // 4)
    np.testing.assert_array_equal(found[2], own.random_raw(first % 4 + count)[first % 4 :])
    assert not found[1].any(), "an empty slot"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("first", "steps", "d"), [(0, 6, 5), (3, 8, 7), (4, 1, 2), (5, 1, 1), (7, 40, 64)])
def test_normals_are_the_host_s_up_to_rounding(device, dtype, first, steps, d):
    backend = device.with_dtype(dtype)
    found = backend.to_host(backend.kernels.normals(streams(), first, steps, d, 0.7, backend.dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, streams().normals(first, steps, d, 0.7), rtol=0, atol=0.7 * NORMAL)


def test_a_million_normals_are_the_host_s_up_to_rounding(one_lane):
    found = one_lane.normals(streams(slots=[1, 2]), 1, 5000, 100, 1.0, np.float32)
    expected = streams(slots=[1, 2]).normals(1, 5000, 100)
    assert np.max(np.abs(found - expected)) < NORMAL
    assert np.max(np.abs(expected)) > 4.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", ["noisy_sgd", "noisy_svrg"])
@pytest.mark.parametrize(("first", "given", "l2"), [(0, False, 0.2), (3, True, 0.0)])
def test_steps_on_one_record_are_those_of_array_operations(device, dtype, kernel, first, given, l2):
    """With records drawn inside the kernel or given to it; 37 features do not fill two warps."""
    backend, d = device.with_dtype(dtype), 37
    problem = make_problem(n=50, d=d, regularizer=l2, dtype=dtype)
    index = streams("sample").integers(first, STEPS, 50)
    if given:
        index = (7 * index + 3) % 50
    noise = streams("noise").normals(first, STEPS, d, 0.3)
    start = np.random.default_rng(1).normal(size=(3, d)).astype(dtype)
    rows, handed = backend.asarray(problem._A), draws(first, index=backend.index(index) if given else None)
    if kernel == "noisy_sgd":
        etas, skipped = [0.9 / (t + 1.0) for t in range(STEPS)], first + 4
        expected = by_sgd(problem, start, index, noise, etas, first, skipped)
        x = backend.asarray(start)
        found = backend.kernels.noisy_sgd(rows, x, x, handed, etas, skipped, l2)
    else:
        snapshot, full = 0.5 * start, 0.1 * start[::-1].copy()
        eta, clip = np.array([[0.1], [0.2], [0.3]], dtype=dtype), 0.1
        expected = by_svrg(problem, start, snapshot, full, index, noise, eta, clip)
        points = map(backend.asarray, (start, snapshot, full))
        found = backend.kernels.noisy_svrg(rows, *points, handed, backend.asarray(eta), clip, l2)
    for one, other in zip(found, expected, strict=True):
        assert np.max(np.abs(other)) > 0.3
        np.testing.assert_allclose(backend.to_host(one), other, rtol=0, atol=TOLERANCE[dtype])


def by_sgd(problem, x, index, noise, etas, first, skipped):
    mean = x
    for step, eta in enumerate(etas):
        x = problem.prox(x - eta * (problem.sample_gradients(x, index[step]) + noise[step].astype(x.dtype)), eta)
        number = first + step + 1
        mean = x if number <= skipped + 1 else mean + (x - mean) / (number - skipped)
    return x, mean


def by_svrg(problem, x, snapshot, full, index, noise, eta, clip):
    total, clipped = np.zeros_like(x), 0
    for step in range(len(index)):
        plain = problem.sample_differences(x, snapshot, index[step])
        difference = problem.sample_differences(x, snapshot, index[step], clip)
        clipped += np.sum(np.abs(plain - difference).max(axis=1) > 1e-3)
        x = problem.prox(x - eta * (difference + full + noise[step].astype(x.dtype)), eta)
        total = total + x
    assert 0 < clipped < len(index) * len(x), "some differences are clipped, and some are not"
    return x, total


def test_no_clip_and_no_noise_are_what_they_say(device):
    d, rows = 5, device.asarray(make_problem(n=30, d=5)._A)
    x, full = device.asarray(np.ones((3, d))), device.zeros((3, d))
    silent = draws(0, sigma=0.0)
    clips = (None, 100.0, 1e-9)
    ends = [device.kernels.noisy_svrg(rows, x, 0.0 * x, full, silent, 0.1, clip, 0.0)[0] for clip in clips]
    moved = [device.to_host(end) for end in ends]
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-14)
    np.testing.assert_allclose(moved[2], np.ones((3, d)), atol=1e-8)
    assert np.max(np.abs(moved[0] - moved[2])) > 1e-3


def test_launches_of_a_few_steps_each_are_one_launch_of_all(one_lane, monkeypatch):
    rows, x = make_problem(n=30, d=5)._A, np.ones((3, 5))
    etas = [0.5 / (t + 1.0) for t in range(STEPS)]

    def taken():
        given = draws(3, index=streams("sample").integers(3, STEPS, 30))
        sgd = one_lane.noisy_sgd(rows, x, x, given, etas, 6, 0.1)
        return [*sgd, *one_lane.noisy_svrg(rows, x, x, x, draws(3), 0.1, None, 0.1)]

    whole = taken()
    monkeypatch.setattr("dprepro.kernels.LAUNCH_STEPS", 4)
    for one, other in zip(whole, taken(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d", "K"), [(200, 7, 64), (77, 54, 3), (1, 1, GROUP + 1)])
def test_the_full_gradient_is_that_of_array_operations(device, dtype, n, d, K):
    problem, backend = make_problem(n=n, d=d, dtype=dtype), device.with_dtype(dtype)
    W = 3.0 * np.random.default_rng(2).normal(size=(K, d))
    arrays = map(backend.asarray, (problem._A, W, problem._mean_row))
    found = backend.to_host(backend.kernels.logistic_gradient(*arrays))
    np.testing.assert_allclose(found, problem.gradient(W.astype(dtype)), rtol=0, atol=TOLERANCE[dtype] / 10)


def test_chunks_of_several_tiles_add_up_to_the_full_gradient(device, monkeypatch):
    monkeypatch.setattr("dprepro.kernels.MOST_CHUNKS", 2)
    assert chunk_rows(200) == 4 * LANES
    test_the_full_gradient_is_that_of_array_operations(device, "float64", 200, 7, 9)


def test_the_full_gradient_has_the_same_bits_with_any_number_of_lanes(one_lane, warp):
    """Its sums have one order, whoever takes them; a replicate's do not depend on its company either."""
    problem = make_problem(n=77, d=11)
    W = np.random.default_rng(2).normal(size=(10, 11))
    found = one_lane.logistic_gradient(problem._A, W, problem._mean_row)
    np.testing.assert_array_equal(warp.logistic_gradient(problem._A, W, problem._mean_row), found)
    np.testing.assert_array_equal(one_lane.logistic_gradient(problem._A, W[9:], problem._mean_row), found[9:])


def test_chunks_of_the_full_gradient_are_few_and_whole_warps():
    for n in (1, 31, 200_000, 10**7):
        assert chunk_rows(n) % LANES == 0
        assert -(-n // chunk_rows(n)) <= MOST_CHUNKS


@pytest.mark.parametrize("noise", ["laplace", "gumbel"])
@pytest.mark.parametrize("candidates", [1, 7, 108])
def test_the_noisy_maximum_is_that_of_the_selection_mechanism(device, candidates, noise):
    """Over 40 releases; a score that is not a number is found as numpy.argmax finds it."""
    event = SelectionEvent("pick", noise, 0.5, 1.0, 40)
    host, other = (SelectionMechanism(event, Slots(7, SLOTS, backend)) for backend in (CPU, device))
    scores = np.random.default_rng(4).normal(size=(40, 3, candidates))
    scores[30, 0, candidates // 2 :] = np.nan
    scores[31, 1, :] = 0.25  # an empty slot has no noise: the first of equals is chosen
    found = [device.to_host(other.largest(device.asarray(one))) for one in scores]
    expected = [host.largest(one) for one in scores]
    np.testing.assert_array_equal(found, expected)
    assert other.drawn == host.drawn == 40
    if candidates > 1:
        assert np.any(np.array(expected) != np.argmax(scores, axis=2)), "noise decides some of them"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tree_prefixes_are_those_of_the_tree_mechanism(device, dtype):
    """All prefixes of two trees of 13 leaves, with vectors and, for the noise alone, with zeros."""
    backend, d = device.with_dtype(dtype), 6
    for size in (0.0, 1.0):
        vectors = size * np.random.default_rng(5).normal(size=(2, 13, 3, d))
        event = TreeEvent("tree", 0.4, 1.0, 13, 2)
        host, other = (TreeMechanism(event, d, Slots(7, SLOTS, one)) for one in (CPU.with_dtype(dtype), backend))
        for tree in vectors.astype(dtype):
            host.start()
            other.start()
            for leaf in tree:
                found, expected = backend.to_host(other.add(backend.asarray(leaf))), host.add(leaf)
                np.testing.assert_allclose(found, expected, rtol=0, atol=4 * NORMAL)


# ------------------------------------------------------------------------------------------------- negative controls


@pytest.mark.parametrize(
    ("printed", "changed"),
    [
        ("0xD2E7470EE14C6C93ull, x0", "0xD2E7470EE14C6C95ull, x0"),
        ("0x9E3779B97F4A7C15ull", "0x9E3779B97F4A7C17ull"),
        ("round < 10", "round < 9"),
        ("x0 = c + 1,", "x0 = c,"),
        ("high1 ^ x1 ^ key0", "high1 ^ x1 ^ key1"),
    ],
)
def test_a_changed_generator_is_noticed_before_anything_runs(tmp_path, printed, changed):
    assert printed in source()
    mutant = Kernels(HostLauncher(tmp_path, 1, source().replace(printed, changed)), np, None)
    with pytest.raises(UserError, match="other random words"):
        mutant.check()


def normals_hold(device):
    test_normals_are_the_host_s_up_to_rounding(device, "float64", 3, 8, 7)


def sgd_holds(device):
    test_steps_on_one_record_are_those_of_array_operations(device, "float64", "noisy_sgd", 0, False, 0.2)


def svrg_holds(device):
    test_steps_on_one_record_are_those_of_array_operations(device, "float64", "noisy_svrg", 0, False, 0.2)


def gradient_holds(device):
    test_the_full_gradient_is_that_of_array_operations(device, "float64", 200, 7, 64)


def maximum_holds(device):
    test_the_noisy_maximum_is_that_of_the_selection_mechanism(device, 7, "laplace")


def trees_hold(device):
    test_tree_prefixes_are_those_of_the_tree_mechanism(device, "float64")


@pytest.mark.parametrize(
    ("claim", "printed", "changed"),
    [
        (normals_hold, "first_pair * d / 4;", "first_pair * d / 4 + 1;"),
        (normals_hold, "bits >> 24", "bits >> 25"),
        (trees_hold, "step % 2 ? pair.odd : pair.even", "pair.even"),
        (sgd_holds, "averaged <= 1", "averaged <= 2"),
        (sgd_holds, "drawn < n ? drawn : n - 1", "drawn < n - 1 ? drawn + 1 : 0"),
        (svrg_holds, "0.5 * (here - there)", "0.5 * (here + there)"),
        (svrg_holds, "if (length > clip) turn *= clip / length;", ""),
        (svrg_holds, "total[j] += x[j];", "total[j] = x[j];"),
        (maximum_holds, "value == other && place < place_of_other", "value == other && place > place_of_other"),
        (maximum_holds, "centred > 0.0 ? size : -size", "size"),
        (gradient_holds, "chunk < chunks; ++chunk", "chunk < chunks - 1; ++chunk"),
        (gradient_holds, "begin + chunk < n ? begin + chunk : n", "begin + chunk"),
    ],
)
def test_a_changed_kernel_fails_its_test(fused, tmp_path, claim, printed, changed):
    """The tests above can fail: each of these changes makes one of them do so."""
    assert source().count(printed) == 1
    claim(fused)
    mutant = Kernels(HostLauncher(tmp_path, 1, source().replace(printed, changed)), np, None)
    with pytest.raises(AssertionError):
        claim(replace(CPU, kernels=mutant))


def test_every_kernel_of_the_source_is_launched_by_name():
    """What the source has and Python does not know would be tested by nobody."""
    text = SOURCE.with_suffix(".py").read_text(encoding="utf-8")
    assert set(signatures(source())) == set(re.findall(r'self\._(?:strided|warps)\("(\w+)"', text))
