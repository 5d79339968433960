"""Datasets with bounded rows: `names()`, `info(name)` and `load(name, rows=..., seed=...)`.

Each other module of this package that has a `DATASETS` tuple adds datasets, so a new dataset is a new file. So does
each file in the folder `datasets` of an extension folder.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import inspect
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dprepro import extensions
from dprepro.datasets.preparation import whole_number
from dprepro.datasets.promises import ROW_NORM, broken_promise
from dprepro.datasets.records import Dataset, DatasetInfo, Definition, Population
from dprepro.errors import RunFailed, UserError
from dprepro.files import jsonable

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Dataset", "DatasetInfo", "Population", "check_parameters", "info", "load", "module_of", "names"]

_LABEL_VALUES: dict[str, tuple[float, ...]] = {"classification": (-1.0, 1.0), "regression": ()}


def names() -> list[str]:
    """Return the names of all datasets in alphabetical order."""
    return sorted({*_definitions(), *unavailable()})


def info(name: str) -> DatasetInfo:
    """Return what is known about the dataset `name` without loading it."""
    return _definition(name).info


def load(name: str, *, rows: int | None = None, seed: int = 0, repeated: bool = False, **parameters: Any) -> Dataset:
    """Load and prepare the dataset `name`.

    For a real dataset, `rows` keeps that many rows: the first ones of the permutation that
    `numpy.random.default_rng(seed)` draws, in that order; None keeps all rows in the file's order, and `seed`
    then plays no part. For a generated dataset `rows` is the number to generate (None means 1000) and `seed`
    fixes every draw. For a population it is the number of samples to draw from it or, if `repeated`, of records that
    are copies of its atoms in the shares of their probabilities.

    `parameters` are the dataset's own, such as `split` of "adult" or `features` of "synthetic_logistic".
    """
    definition = _definition(name)
    if path := own().get(name):
        extensions.load(path)  # which refuses a file that has changed since its definitions were read
    if rows is not None:
        rows = whole_number("rows", rows, 1)
    check_parameters(name, parameters)
    prepared = definition.prepare(rows, whole_number("seed", seed, 0), **parameters)
    if problem := broken_promise(definition.info, prepared):
        kind, place = (UserError, f" ({extensions.shown(path)})") if path else (RunFailed, "")
        raise kind(f"The prepared dataset {name!r} breaks a promise{place}: {problem}.")
    population = _repeated(name, prepared.population) if repeated else prepared.population
    atoms = (None, None) if population is None else (population.probabilities, population.law)
    return Dataset(
        name=name,
        X=prepared.X,
        y=prepared.y,
        row_norm=ROW_NORM if population is None else population.row_norm,
        label_values=_LABEL_VALUES[definition.info.task],
        origin=prepared.origin,
        checksum=checksum(prepared.X, prepared.y, *atoms),
        info=definition.info,
        population=population,
    )


def checksum(
    X: np.ndarray, y: np.ndarray, probabilities: np.ndarray | None = None, law: Mapping[str, Any] | None = None
) -> str:
    """Return the sha256 of prepared data: rows, labels and, of a population, what its atoms' shares and law are."""
    total = hashlib.sha256(X.data)
    total.update(y.data)
    if probabilities is not None:
        total.update(probabilities.tobytes())
    if law is not None:
        total.update(json.dumps(jsonable(law), sort_keys=True).encode())
    return total.hexdigest()


def _repeated(name: str, population: Population | None) -> Population:
    if population is None or population.sphere is not None or population.law is not None:
        raise UserError(f"The dataset {name!r} has no atoms that its records could be copies of: drop repeated.")
    return replace(population, repeated=True)


def module_of(name: str) -> str:
    """Return the name of the module that defines the dataset."""
    path = own().get(name)
    return _definition(name).prepare.__module__ if path is None else extensions.module_of(path)


def own() -> dict[str, Path]:
    """Return the files of the user's own datasets by the names of these."""
    return {**unavailable(), **{name: path for name, (_, path) in _own(_available()).items()}}


def unavailable() -> dict[str, Path]:
    """Return the own files that are not available; each is taken to define the dataset that it is called after."""
    there, mine = set(_available()), _own(_available())
    files = (path for path in extensions.files(extensions.DATASETS) if path not in there)
    return {path.stem: path for path in files if path.stem not in built_in() and path.stem not in mine}


def _available() -> tuple[Path, ...]:
    return tuple(path for path in extensions.files(extensions.DATASETS) if _is_available(path))


def _is_available(path: Path) -> bool:
    try:
        _loaded(path)
    except extensions.Unavailable:
        return False
    return True


@functools.cache
def _loaded(path: Path) -> ModuleType:
    """Return the module of an own file, which is imported once; one that is not available is tried again."""
    return extensions.load(path)


def _definitions() -> Mapping[str, Definition]:
    mine = {name: definition for name, (definition, _) in _own(_available()).items()}
    return {**built_in(), **mine}


@functools.cache
def built_in() -> Mapping[str, Definition]:
    """Return the datasets of this package by name."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = [definition for module in modules for definition in getattr(module, "DATASETS", ())]
    return {definition.info.name: definition for definition in found}


@functools.cache
def _own(files: tuple[Path, ...]) -> Mapping[str, tuple[Definition, Path]]:
    """Return the definitions in own files, each with its file; a file that is new in a folder makes it look again."""
    found: dict[str, tuple[Definition, Path]] = {}
    for path in files:
        where = f"The file {extensions.shown(path)}"
        definitions = getattr(_loaded(path), "DATASETS", None)
        if not isinstance(definitions, tuple | list) or not definitions:
            raise UserError(f"{where} defines no DATASETS: end it with DATASETS = (Definition(...),).")
        for definition in definitions:
            if not isinstance(definition, Definition):
                raise UserError(f"{where} has {definition!r} in DATASETS: give objects of the class Definition.")
            if not isinstance(definition.info, DatasetInfo):
                kind = type(definition.info).__name__
                raise UserError(f"{where} has a Definition with an info of the class {kind}: give a DatasetInfo.")
            name = definition.info.name
            if not _takes_rows_and_seed(definition.prepare):
                raise UserError(
                    f"{where} has a dataset {name!r} whose prepare cannot be called as prepare(rows, seed): write "
                    "def prepare(rows, seed, *, ...), with a default for each parameter behind the star."
                )
            if definition.info.task not in _LABEL_VALUES:
                tasks = " or ".join(_LABEL_VALUES)
                raise UserError(f"{where} has a dataset with the task {definition.info.task!r}: write {tasks}.")
            if problem := extensions.name_problem(name):
                raise UserError(f"{where} has a dataset {name!r}, a name that will not do: {problem}.")
            if name in built_in() or name in found:
                raise UserError(f"{where} has a dataset {name!r}, but there is one of this name already: rename it.")
            found[name] = definition, path
    return found


def _takes_rows_and_seed(prepare: Any) -> bool:
    try:
        inspect.signature(prepare).bind(None, 0)
    except (TypeError, ValueError):  # no function, or one of other arguments; one that does not tell them
        return False
    return True


def _definition(name: str) -> Definition:
    try:
        return _definitions()[name]
    except KeyError:
        if path := unavailable().get(name):
            _loaded(path)  # which says why it is not
        near = difflib.get_close_matches(str(name), names(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"There is no dataset {name!r}: {hint}choose one of {', '.join(names())}.") from None


def check_parameters(name: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that the dataset does not have."""
    definition = _definition(name)
    signature = inspect.signature(definition.prepare).parameters.values()
    known = [parameter.name for parameter in signature if parameter.kind is parameter.KEYWORD_ONLY]
    if unknown := sorted(set(parameters) - set(known)):
        raise UserError(
            f"The dataset {definition.info.name!r} has no parameter {', '.join(map(repr, unknown))}: "
            f"it takes {', '.join(known) or 'none'} besides rows and seed."
        )
