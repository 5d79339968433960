"""kernels.cuh compiled by g++ for this machine, and a launcher for it that checks what it is given."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
from support import require

from dprepro.kernels import SHARED_BYTES, SOURCE, compiler_options

HERE = Path(__file__).parent
TYPES = {"word": np.uint64, "integer": np.int64, "int": np.int32, "float": np.float32, "double": np.float64}
REALS = {"float": np.float32, "double": np.float64}


def source() -> str:
    return SOURCE.read_text(encoding="utf-8")


def signatures(text: str) -> dict[str, list[str]]:
    """The kernels of a source with the types of their parameters, such as `const REAL*`."""
    found = re.findall(r'extern "C" __global__ void (\w+)\((.*?)\) \{', text, re.DOTALL)
    return {name: [re.sub(r"\s*\b\w+$", "", one.strip()) for one in inside.split(",")] for name, inside in found}


def compiled(
    folder: Path,
    *,
    real: str,
    lanes: int,
    text: str | None = None,
    main: Path | None = None,
    flags: tuple[str, ...] = (),
) -> Path:
    """Compile the source, or another text in its place, to a shared library, or with a main file to a program."""
    require("gxx", shutil.which("g++") is not None, "there is no g++")
    text = source() if text is None else text
    (folder / "kernels.cuh").write_text(text, encoding="utf-8")
    kernels = " ".join(f"X({name})" for name in signatures(text))
    unit = folder / "unit.cpp"
    parts = [f"#define KERNELS(X) {kernels}", f'#include "{HERE}/host_shim.h"', '#include "kernels.cuh"']
    unit.write_text("\n".join([*parts, f'#include "{main or HERE / "host_launch.h"}"', ""]), encoding="utf-8")
    out = folder / "unit"
    shape = ("-shared", "-fPIC") if main is None else ()
    # A CPU must not join a product and a sum where the GPU is told not to.
    command = ["g++", "-O1", "-g", "-ffp-contract=off", "-pthread", *compiler_options(real, lanes), *shape, *flags]
    done = subprocess.run([*command, str(unit), "-o", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


class HostLauncher:
    """What `Kernels` launches through in tests. Every argument must have the very type that the kernel declares."""

    def __init__(self, folder: Path, lanes: int, text: str | None = None) -> None:
        self._folder, self._lanes, self._text = folder, lanes, text
        self._signatures = signatures(source() if text is None else text)
        self._libraries: dict[str, ctypes.CDLL] = {}
        self.launched: set[str] = set()

    def __call__(self, name, real, blocks, threads, shared_bytes, *arguments) -> None:
        assert shared_bytes <= SHARED_BYTES
        types = self._signatures[name]
        assert len(types) == len(arguments), name
        held = [self._argument(real, kind, value) for kind, value in zip(types, arguments, strict=True)]
        pointers = (ctypes.c_void_p * len(held))(*(one.ctypes.data for one in held))
        assert self._library(real).launch(name.encode(), blocks, pointers) == 0, name
        self.launched.add(name)

    def _argument(self, real, kind, value) -> np.ndarray:
        """Return the bytes of an argument as an array: an address for an array, else the number."""
        base = REALS[real] if "REAL" in kind else TYPES[kind.replace("const", "").replace("*", "").strip()]
        if not kind.endswith("*"):
            assert type(value) is base, f"{kind} is given {type(value)}"
            return np.array([value])
        if value is None:
            return np.zeros(1, dtype=np.uintp)
        assert value.dtype == base, f"{kind} is given {value.dtype}"
        assert value.flags.c_contiguous
        return np.array([value.ctypes.data], dtype=np.uintp)

    def _library(self, real: str) -> ctypes.CDLL:
        if real not in self._libraries:
            folder = self._folder / f"{real}{self._lanes}"
            folder.mkdir(parents=True)
            self._libraries[real] = ctypes.CDLL(str(compiled(folder, real=real, lanes=self._lanes, text=self._text)))
        return self._libraries[real]
