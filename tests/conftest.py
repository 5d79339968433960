"""Shared fixtures: one BLAS thread, both backends."""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import pytest
from support import Outcome, Run

from dprepro.arrays import get_backend, strict_backend
from dprepro.cli import main


@pytest.fixture(params=["numpy", "strict"])
def backend(request):
    """Every numeric test runs on NumPy and on array-api-strict's second device."""
    return get_backend("cpu", "float64") if request.param == "numpy" else strict_backend("float64")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command of dprepro in this process."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
