"""`dprepro doctor`: what is installed, which backend would run, where data come from."""

from __future__ import annotations

import importlib.metadata
import os

from dprepro.arrays import blas_threads, get_backend, gpu_problem
from dprepro.provenance import commit, machine

_PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "seaborn",
    "scikit-learn",
    "snakemake",
    "array-api-compat",
    "dp-accounting",
    "pooch",
    "array-api-strict",
    "cupy-cuda12x",
    "diffprivlib",
    "opacus",
    "torch",
)
_VARIABLES = ("DPREPRO_DATA_DIR", "DPREPRO_CACHE_DIR", "DPREPRO_OFFLINE", "DPREPRO_DEVICE", "DPREPRO_EXTENSIONS")


def diagnose() -> list[str]:
    """Return one line per finding."""
    facts, source = machine(), commit()
    lines = [
        f"dprepro     {facts['dprepro']}, commit {source['commit']}{' (modified)' if source['modified'] else ''}",
        f"python      {facts['python']} on {facts['system']}, {facts['processor']}, {facts['cores']} cores",
        f"blas        {facts['blas']}, {blas_threads()} thread(s) per job",
        f"kernels     {facts['cpu_kernels']}",
    ]
    lines += [f"package     {name} {_version(name)}" for name in _PACKAGES]
    lines += [f"variable    {name}={os.environ.get(name, '(not set)')}" for name in _VARIABLES]
    lines.append(f"gpu         {gpu_problem() or 'usable'}")
    backend = get_backend()
    lines.append(f"backend     {backend.name} on {backend.device_name}: {backend.why}")
    return [*lines, *_extension_lines(), *_data_lines()]


def _extension_lines() -> list[str]:
    from dprepro import extensions
    from dprepro.errors import UserError

    try:
        return [f"extensions  {folder}" for folder in extensions.folders()]
    except UserError as error:
        # Nothing below could be told from this mistake.
        del os.environ[extensions.VARIABLE]
        return [f"extensions  {error}"]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _data_lines() -> list[str]:
    from dprepro import datasets
    from dprepro.errors import UserError

    lines = []
    for name in ("covertype", "adult"):
        try:
            data = datasets.load(name, rows=1000)
            lines.append(f"data        {name}: genuine, from {data.origin}")
        except UserError as error:
            lines.append(f"data        {name}: {error}")
    return lines
