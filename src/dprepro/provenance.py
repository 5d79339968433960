"""Where a result comes from: commit, versions, machine, and a digest of the sources that made it."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import Any

import dprepro
from dprepro import extensions

PACKAGE = Path(dprepro.__file__).resolve().parent
NO_CHECKOUT = "unknown (not a git checkout)"


def sources(modules: Iterable[str]) -> list[Path]:
    """Return the files of `modules` and of all dprepro modules and own files that they import, directly or not.

    Imports under `if TYPE_CHECKING` do not run and do not count.
    """
    found: dict[Path, None] = {}
    waiting = [path for module in modules if (path := _module_file(module))]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            waiting.extend(_imported_files(path, path.stat().st_mtime_ns))
    return sorted(found)


def digest(modules: Iterable[str]) -> str:
    """Return a sha256 over what the sources of `modules` do: comments, layout and docstrings do not change it.

    Of a CUDA source that stands beside a module of its name every byte counts.
    """
    total = hashlib.sha256()
    # Not in the order of the paths: an extension folder may lie anywhere.
    for path in sorted(sources(modules), key=lambda path: PurePosixPath(place(path))):
        total.update(place(path).encode())
        total.update(_meaning(path, path.stat().st_mtime_ns).encode())
        if (kernels := path.with_suffix(".cuh")).is_file():
            total.update(kernels.read_bytes())
    return total.hexdigest()[:16]


def place(path: Path) -> str:
    """Return where a source is in the package or in its extension folder, which may lie anywhere."""
    folder = PACKAGE if path.is_relative_to(PACKAGE) else extensions.folder_of(path)
    return path.relative_to(folder or path.anchor).as_posix()


def commit() -> dict[str, Any]:
    """Return the commit that the package's checkout is at, and whether its sources differ from it."""
    try:
        # A package installed inside somebody else's repository must not claim that repository's commit.
        if Path(_git("rev-parse", "--show-toplevel")) / "src" / "dprepro" == PACKAGE:
            changes = _git("status", "--porcelain", "--", str(PACKAGE))
            return {"commit": _git("rev-parse", "HEAD"), "modified": bool(changes)}
    except (OSError, subprocess.CalledProcessError):
        pass
    return {"commit": NO_CHECKOUT, "modified": False}


def machine() -> dict[str, Any]:
    """Return the versions and the machine of this very process."""
    import numpy

    blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "python": platform.python_version(),
        "dprepro": dprepro.__version__,
        "numpy": numpy.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cpu_kernels": _cpu_kernels(),
        "cores": os.cpu_count(),
    }


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _cpu_kernels() -> str:
    """Return what BLAS and NumPy chose for this CPU: with other kernels the last digits of results are others."""
    from threadpoolctl import threadpool_info

    blas = {str(pool.get("architecture")) for pool in threadpool_info() if pool["user_api"] == "blas"}
    try:
        from numpy._core._multiarray_umath import (  # type: ignore[import-not-found]
            __cpu_dispatch__,
            __cpu_features__,
        )
    except ImportError:  # NumPy has moved it: the kernel of BLAS matters more
        return " ".join(sorted(blas))
    return " ".join([*sorted(blas), *(name for name in __cpu_dispatch__ if __cpu_features__.get(name))])


def _module_file(module: str) -> Path | None:
    """Return the source file of a dprepro module or of an own file's, or None for anything else."""
    head, _, rest = module.partition(".")
    if head != "dprepro":
        return extensions.file_of(module)
    base = PACKAGE.joinpath(*rest.split(".")) if rest else PACKAGE
    candidates = (base / "__init__.py", base.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


@functools.cache
def _imported_files(path: Path, stamp: int) -> tuple[Path, ...]:
    if path == PACKAGE / "__init__.py":
        # The front door imports the library on demand; no stage goes through it.
        return ()
    return tuple(file for module in _imports(path, stamp) if (file := _module_file(module)))


@functools.cache
def _tree(path: Path, stamp: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def _meaning(path: Path, stamp: int) -> str:
    """Return a sha256 of the compiled source without its line numbers and docstrings."""
    code = compile(_tree(path, stamp), path.name, "exec", dont_inherit=True, optimize=2)
    return hashlib.sha256(repr(_instructions(code)).encode()).hexdigest()


def _instructions(code: CodeType) -> tuple[object, ...]:
    """Return what a code object does, as plain values in a fixed order."""
    constants = tuple(_constant(value) for value in code.co_consts)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_name, code.co_code, constants, names, shape, code.co_exceptiontable)


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _instructions(value)
    # The order of a set differs from process to process.
    return ("set", sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


@functools.cache
def _imports(path: Path, stamp: int) -> frozenset[str]:
    names: set[str] = set()
    waiting: list[ast.AST] = [_tree(path, stamp)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (module := _imported_from(node, path)):
            names.add(module)
            names.update(f"{module}.{alias.name}" for alias in node.names)
        # Imports are statements: expressions need not be looked into.
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            waiting.extend(inner if isinstance(inner, list) else ())
    return frozenset(names)


def _imported_from(node: ast.ImportFrom, path: Path) -> str | None:
    """Return the module that names are imported from; only own files import relative to themselves."""
    if not node.level:
        return node.module
    if extensions.folder_of(path) is None:
        return None
    package = extensions.module_of(path).split(".")[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])
