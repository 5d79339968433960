"""What CuPy and NVIDIA's compiler say of the sources without a GPU: kernels compile, array functions exist."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from host import signatures, source
from support import require

import dprepro
from dprepro.kernels import compiler_options

# Turing, Ampere, Hopper, Blackwell (the consumer's).
ARCHITECTURES = ("sm_75", "sm_86", "sm_90", "sm_120")
PACKAGE = Path(dprepro.__file__).parent


@pytest.fixture(scope="module")
def nvrtc():
    """NVIDIA's run-time compiler through CuPy's binding: CuPy's own `RawModule` asks a device what to compile for."""
    try:
        binding = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
        binding.getVersion()
    except Exception as error:  # CuPy has several errors for a library that is missing
        require("nvrtc", False, f"CuPy's binding of NVRTC cannot be used: {error}")
    return binding


def cubin(nvrtc, text: str, real: str, architecture: str) -> bytes:
    program = nvrtc.createProgram(text, "kernels.cuh", (), ())
    try:
        nvrtc.compileProgram(program, (*compiler_options(real), f"-arch={architecture}"))
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(program)) from None
    finally:
        nvrtc.destroyProgram(program)


@pytest.mark.parametrize("real", ["float", "double"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_kernels_compile_to_machine_code(nvrtc, architecture, real):
    binary = cubin(nvrtc, source(), real, architecture)
    assert binary[:4] == b"\x7fELF"
    for name in signatures(source()):
        assert f".text.{name}".encode() in binary, name


def test_a_mistake_in_the_source_is_an_error_with_its_line(nvrtc):
    wrong = source().replace("__syncwarp();", "__syncwrap();", 1)
    line = source()[: source().index("__syncwarp();")].count("\n") + 1
    with pytest.raises(AssertionError, match=rf"kernels\.cuh\({line}\)"):
        cubin(nvrtc, wrong, "float", ARCHITECTURES[0])


def test_cupy_has_what_a_run_short_of_memory_relies_on(nvrtc):
    """Its error is one that `run.py` catches, and its pool can be emptied."""
    cupy = importlib.import_module("cupy")
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
    assert callable(cupy.get_default_memory_pool().free_all_blocks)


def array_functions(text: str) -> set[str]:
    """The names used of an array namespace `xp`: xp.name, self.xp.name, ex.xp.linalg.name, ..."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        names.append(node.id if isinstance(node, ast.Name) else "")
        names = [name.lstrip("_") for name in reversed(names)]
        if "xp" in names[:-1]:
            behind = names[names.index("xp") + 1 :]
            found.add(".".join(behind[:2] if behind[0] == "linalg" else behind[:1]))
    return found - {"linalg"}


def test_array_functions_are_found_however_the_namespace_is_reached():
    text = "xp.sum(a); self.backend.xp.linalg.qr(a); self._xp.asarray(b).shape; ex.xp.float64; W.xp; np.sum(a)"
    assert array_functions(text) == {"sum", "linalg.qr", "asarray", "float64"}


def test_every_array_function_of_the_sources_exists_for_cupy(nvrtc):
    """CuPy's own namespace lacks some of the standard; the compatibility layer must have all that is used."""
    cupy_namespace = importlib.import_module("array_api_compat.cupy")
    importlib.import_module("array_api_compat.cupy.linalg")
    used = {name for path in PACKAGE.rglob("*.py") for name in array_functions(path.read_text(encoding="utf-8"))}
    assert {"vecdot", "matrix_transpose", "where", "linalg.qr"} <= used
    used -= {"Device"}  # of array-api-strict, in what makes its backend

    def exists(name: str) -> bool:
        place = cupy_namespace
        for part in name.split("."):
            place = getattr(place, part, None)
        return place is not None

    assert [name for name in sorted(used) if not exists(name)] == []
    assert not exists("einsum_of_tomorrow")
