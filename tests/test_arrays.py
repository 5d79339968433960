from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from dprepro import arrays
from dprepro.arrays import Backend, get_backend, padded, single_blas_thread, strict_backend
from dprepro.errors import UserError


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(arrays, "gpu_problem", lambda: "CuPy is not installed")
    monkeypatch.delenv("DPREPRO_DEVICE", raising=False)


def test_argument_goes_before_environment_before_configuration(monkeypatch, no_gpu):
    monkeypatch.setenv("DPREPRO_DEVICE", "cpu")
    assert get_backend(configured="gpu").why == "cpu asked for by DPREPRO_DEVICE"
    assert "the argument" in get_backend("cpu", configured="gpu").why
    monkeypatch.delenv("DPREPRO_DEVICE")
    assert "the configuration" in get_backend(configured="cpu").why


def test_auto_without_gpu_runs_on_the_cpu_and_records_why(no_gpu):
    backend = get_backend()
    assert backend.name == "numpy"
    assert backend.device_name == "cpu"
    assert "CuPy is not installed" in backend.why


def test_gpu_asked_for_and_absent_is_an_error_not_a_fallback(no_gpu):
    with pytest.raises(UserError, match=r"A GPU was asked for by the argument, but CuPy is not installed: install"):
        get_backend("gpu")


@pytest.mark.parametrize("wish", ["tpu", "GPU", ""])
def test_unknown_device_names_the_choices(wish, no_gpu):
    with pytest.raises(UserError, match="auto, cpu, gpu"):
        get_backend(wish)


def test_unknown_dtype_names_the_choices():
    with pytest.raises(UserError, match="float32, float64"):
        get_backend("cpu", "float16")


@pytest.mark.parametrize(
    ("available", "answer", "expected"),
    [(False, 14, "no CUDA device"), (True, 13, "wrong answer"), (True, None, "cannot run a kernel")],
)
def test_gpu_probe_runs_a_kernel_and_says_what_is_wrong(monkeypatch, available, answer, expected):
    """A CuPy that imports but cannot compute must not count as a GPU."""

    class Kernel:
        def __pow__(self, power):
            if answer is None:
                raise RuntimeError("CUDA driver version is insufficient\nmore lines")
            return self

        def sum(self):
            return self

        def get(self):
            return answer

    fake = types.ModuleType("cupy")
    fake.cuda = types.SimpleNamespace(is_available=lambda: available)
    fake.int64 = np.int64
    fake.arange = lambda *a, **k: Kernel()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    arrays.gpu_problem.cache_clear()
    try:
        assert expected in arrays.gpu_problem()
    finally:
        arrays.gpu_problem.cache_clear()


def test_host_and_device_round_trip(backend):
    values = np.arange(6.0).reshape(2, 3)
    device = backend.asarray(values)
    assert device.dtype == backend.dtype
    np.testing.assert_array_equal(backend.to_host(device), values)
    assert backend.to_host(backend.index([1, 2])).dtype == np.int64


def test_strict_backend_refuses_host_arrays():
    backend = strict_backend()
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        backend.zeros((2,)) + backend.xp.asarray([1.0, 2.0])


def test_chunks_cover_all_rows_once_and_fit_the_budget():
    backend = Backend("numpy", np, None, "float32", 64 * 1024, "test")
    slices = list(backend.chunks(1000, 64))
    assert [row for s in slices for row in range(s.start, s.stop)] == list(range(1000))
    assert max(s.stop - s.start for s in slices) * 64 * 4 <= 64 * 1024
    # 64 rows is the floor, whatever the budget says
    assert next(iter(Backend("numpy", np, None, "float32", 1, "test").chunks(1000, 64))) == slice(0, 64)


def test_segment_sums_add_up_each_segment_by_itself(backend):
    values = np.random.default_rng(0).normal(size=(9, 3))
    starts = [0, 1, 5]
    assert list(backend.segments(backend.index(starts), 9)) == [slice(0, 1), slice(1, 5), slice(5, 9)]
    sums = backend.to_host(backend.segment_sums(backend.asarray(values), backend.index(starts)))
    np.testing.assert_allclose(sums, [values[:1].sum(0), values[1:5].sum(0), values[5:].sum(0)], rtol=1e-14)
    # To the last bit, whatever stands before: no difference of running totals.
    tiny, huge = np.full((4, 3), 1e-9), np.full((1, 3), 1e9)
    crowd = backend.asarray(np.concatenate([huge, tiny]))
    alone = backend.segment_sums(backend.asarray(tiny), backend.index([0]))
    found = backend.segment_sums(crowd, backend.index([0, 1]))
    np.testing.assert_array_equal(backend.to_host(found)[1], backend.to_host(alone)[0])


def test_padding_rounds_up_to_the_next_multiple():
    assert [padded(d) for d in (1, 16, 17, 54, 64)] == [16, 16, 32, 64, 64]


def test_blas_is_held_to_one_thread_when_the_process_did_not_start_so(monkeypatch):
    from threadpoolctl import threadpool_info, threadpool_limits

    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with threadpool_limits(limits=2, user_api="blas"):
        with single_blas_thread():
            assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
            assert arrays.blas_threads() == 1
        assert arrays.blas_threads() == 2


@pytest.mark.gpu
def test_gpu_gives_the_cpu_gradient():
    """Runs only where a GPU answers; compares a full gradient with NumPy's."""
    if problem := arrays.gpu_problem():
        pytest.skip(problem)
    from support import make_problem

    W = np.random.default_rng(1).normal(size=(64, 7))
    results = []
    for device in ("cpu", "gpu"):
        backend = get_backend(device)
        results.append(backend.to_host(make_problem(backend=backend).gradient(backend.asarray(W))))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-10)
