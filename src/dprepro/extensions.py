"""Own files: folders of a user's own whose algorithms, datasets, losses and experiments join the built-in ones.

Such a folder has any of `algorithms/`, `datasets/` and `losses/` with Python files and `experiments/` with YAML files:
what a file is follows from where it lies, and what it is called from its name, as in the package itself. A name that
begins with `_` or `test_` is a helper's or a test's.

The folders in use are those that the environment variable DPREPRO_EXTENSIONS names, to which a configuration and the
option --extensions of a command add: jobs that this process starts see the same ones. Each folder is a Python package
of its own, so that files find their helpers by `from ._helper import ...` and two folders never meet.
"""

from __future__ import annotations

import hashlib
import importlib
import keyword
import os
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from dprepro.errors import UserError

VARIABLE = "DPREPRO_EXTENSIONS"
ALGORITHMS, DATASETS, LOSSES, EXPERIMENTS = "algorithms", "datasets", "losses", "experiments"
_SUFFIXES = {ALGORITHMS: ".py", DATASETS: ".py", LOSSES: ".py", EXPERIMENTS: ".yaml"}
_PACKAGE = "dprepro_extension_"
_PROGRAM = Path(__file__).parent


class Unavailable(UserError):
    """An own file, or what it reads when it is imported, is not there or not readable: a link that leads nowhere, say.

    Only what needs the file fails for it; any other mistake in a file is refused before the first job.
    """


def readable(path: Path) -> bool:
    """Whether there is a file that this process may read."""
    return path.is_file() and os.access(path, os.R_OK)


def use(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Put folders before those in use already, for this process and what it starts; paths are relative to here."""
    wanted = [*(_filled(Path(path)) for path in paths), *folders()]
    if wanted:
        os.environ[VARIABLE] = os.pathsep.join(str(folder) for folder in dict.fromkeys(wanted))


def folders() -> tuple[Path, ...]:
    """Return the folders in use; one that is none is refused."""
    named = os.environ.get(VARIABLE, "").split(os.pathsep)
    return tuple(dict.fromkeys(_checked(Path(name)) for name in named if name))


def _checked(path: Path) -> Path:
    folder = path.expanduser().resolve()
    if not folder.is_dir():
        raise UserError(f"The extension folder {path} does not exist: make it, or correct the path.")
    if os.pathsep in str(folder):
        raise UserError(f"The extension folder {path} has {os.pathsep!r} in its path: rename it.")
    if not any((folder / kind).is_dir() for kind in _SUFFIXES):
        raise UserError(
            f"The extension folder {path} has none of the folders {', '.join(_SUFFIXES)}: put your files into these."
        )
    return folder


def _filled(path: Path) -> Path:
    folder = _checked(path)
    if not any(next(_listed(folder, kind), None) for kind in _SUFFIXES):
        raise UserError(
            f"The extension folder {path} holds no file of your own in {', '.join(_SUFFIXES)}: put one there, "
            "or correct the path."
        )
    return folder


def _listed(folder: Path, kind: str) -> Iterator[Path]:
    """Yield the files of a kind in an extension folder, in the order of their names, without helpers and tests."""
    for path in sorted((folder / kind).glob(f"*{_SUFFIXES[kind]}")):
        if not path.name.startswith(("_", "test_")):
            yield path


def found(kind: str, taken: Collection[str] = ()) -> dict[str, Path]:
    """Return the own files of a kind by name; `taken` are the built-in names, which none of them may have."""
    own: dict[str, Path] = {}
    for folder in folders():
        for path in _listed(folder, kind):
            name = path.stem
            if problem := name_problem(name):
                raise UserError(f"The file {shown(path)} has a name that will not do: {problem}.")
            if name in taken:
                raise UserError(f"The file {shown(path)} has the name of a built-in one, {name!r}: rename it.")
            if name in own:
                raise UserError(f"The files {shown(own[name])} and {shown(path)} have one name: rename one of them.")
            own[name] = path
    return own


def files(kind: str) -> tuple[Path, ...]:
    """Return the own files of a kind: what was learned from them holds as long as these are the same."""
    return tuple(found(kind).values())


def name_problem(name: str) -> str:
    """Return what is wrong with the name of an own file; nothing if it will do."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return "use small letters, digits and underscores, a letter first"
    if keyword.iskeyword(name):
        return f"{name!r} is a word of Python; use another one"
    if name.startswith(("jl_", "test_")):
        return f"names that begin with {name.partition('_')[0]}_ have a meaning of their own; use another one"
    return ""


def load(path: Path) -> ModuleType:
    """Import an own file; what goes wrong in it is a `UserError` that tells the line."""
    importlib.invalidate_caches()  # it may have been written a moment ago
    try:
        path.read_bytes()
    except OSError as error:
        raise Unavailable(
            f"The file {shown(path)} cannot be read ({error.strerror}): put a Python file there, or remove it."
        ) from None
    try:
        module = importlib.import_module(module_of(path))
    except (Exception, SystemExit) as error:
        place = place_of(error) or shown(path)
        kind = Unavailable if _lacks_a_file(error) else UserError
        raise kind(f"The file {shown(path)} cannot be imported: {told(error)} at {place}; correct it.") from error
    _refuse_changed(module.__name__.partition(".")[0])
    return module


def _lacks_a_file(error: BaseException) -> bool:
    """Whether an own file could not be imported for want of another file: data, or a helper beside it."""
    helper = isinstance(error, ModuleNotFoundError) and str(error.name).startswith(_PACKAGE)
    return helper or isinstance(error, OSError)


class _Source(SourceFileLoader):
    """Compiles what a file holds now, whatever was kept of an earlier version, and remembers it."""

    content = b""

    def get_code(self, fullname: str) -> CodeType:
        self.content = self.get_data(self.path)
        return self.source_to_code(self.content, self.path)


class _Finder(PathFinder):
    """Finds the modules of extension folders, helpers included, for `_Source`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target) if fullname.startswith(_PACKAGE) else None
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Source(fullname, spec.loader.path)
        return spec


def _refuse_changed(package: str) -> None:
    """Refuse files of a folder that are not what was imported: what runs must be what the provenance records."""
    for name, module in list(sys.modules.items()):
        loader = getattr(module, "__loader__", None)
        if isinstance(loader, _Source) and name.partition(".")[0] == package:
            path = Path(loader.path)
            if path.is_file() and path.read_bytes() != loader.content:
                raise UserError(f"The file {shown(path)} has changed since it was imported: start Python anew.")


def loaded() -> list[Path]:
    """Return the own files in use that this process has imported, helpers included."""
    return [path for name in list(sys.modules) if name.startswith(_PACKAGE) and (path := file_of(name))]


def module_of(path: Path) -> str:
    """Return the module name of an own file; its folder becomes a package."""
    folder = folder_of(path)
    if folder is None:
        raise ValueError(f"{path} is in no extension folder")
    name = _package_name(folder)
    if name not in sys.modules:
        package = ModuleType(name, f"The extension folder {folder}.")
        package.__path__ = [str(folder)]
        sys.modules[name] = package
        if _Finder not in sys.meta_path:
            sys.meta_path.insert(0, _Finder)
    return ".".join([name, *path.relative_to(folder).with_suffix("").parts])


def file_of(module: str) -> Path | None:
    """Return the file of a module in an extension folder, or None for anything else."""
    head, _, rest = module.partition(".")
    folder = next((folder for folder in folders() if _package_name(folder) == head), None)
    if folder is None or not rest:
        return None
    place = folder.joinpath(*rest.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if readable(path)), None)


def folder_of(path: Path) -> Path | None:
    """Return the extension folder that a file is in."""
    return next((folder for folder in folders() if path.is_relative_to(folder)), None)


def _package_name(folder: Path) -> str:
    return _PACKAGE + hashlib.sha256(str(folder).encode()).hexdigest()[:12]


def blamed(error: Exception) -> str:
    """Return what to say of an error that an own file is to blame for; nothing where none is.

    It is one that has a line of its own in the traceback or else, where the program trips over what it was given, any
    that is loaded: but for errors that come from the machine, or from what is installed on it.
    """
    if place := place_of(error):
        return f"{told(error)} at {place}; correct this file of your own."
    if isinstance(error, OSError | ImportError) or not (suspects := ", ".join(map(shown, loaded()))):
        return ""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    path, line = [frame for frame in frames if frame[0].is_relative_to(_PROGRAM)][-1]
    where = f"{path.relative_to(_PROGRAM.parent)}:{line}"
    return f"{told(error)} at {where}; the likely cause is what your own {suspects} gave to the program: correct it."


def place_of(error: BaseException) -> str:
    """Return file and line in an own file where an error came up; nothing if it came up elsewhere."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    own = [(Path(file), line) for file, line in frames if folder_of(Path(file)) is not None]
    return f"{shown(own[-1][0])}:{own[-1][1]}" if own else ""


def told(error: BaseException) -> str:
    """Return the kind and the first line of an error's text."""
    lines = str(error.msg if isinstance(error, SyntaxError) else error).splitlines()
    return ": ".join([type(error).__name__, *lines[:1]]).removesuffix(".")


def shown(path: Path) -> str:
    """Return a path as short as a reader here understands it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
