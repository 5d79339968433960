"""Kernels on whatever can run them: g++ with one lane, g++ with a warp of threads, a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from host import HostLauncher

from dprepro.arrays import get_backend, gpu_problem
from dprepro.kernels import Kernels


@pytest.fixture(scope="session")
def one_lane(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The kernels compiled for this machine with one lane to a warp."""
    return Kernels(HostLauncher(tmp_path_factory.mktemp("lane"), 1), np, None)


@pytest.fixture(scope="session")
def warp(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The kernels compiled for this machine with 32 threads to a warp."""
    return Kernels(HostLauncher(tmp_path_factory.mktemp("warp"), 32), np, None)


@pytest.fixture(params=["one lane", "warp", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest):
    """A backend with kernels in double precision: the same cases run on all of them."""
    if request.param == "gpu":
        if problem := gpu_problem():
            pytest.skip(problem)
        return get_backend("gpu", "float64")
    kernels = request.getfixturevalue({"one lane": "one_lane", "warp": "warp"}[request.param])
    return replace(get_backend("cpu", "float64"), kernels=kernels)


@pytest.fixture
def fused(one_lane: Kernels):
    """NumPy arrays with kernels that run on the CPU: the engine takes the paths that it takes on a GPU."""
    return replace(get_backend("cpu", "float64"), kernels=one_lane)
