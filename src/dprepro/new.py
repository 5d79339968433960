"""`dprepro new`: the first version of an own algorithm, dataset, loss or experiment, with its tests.

The templates are whole files that work and are checked as they stand; only the names in them are replaced. Nothing is
ever overwritten.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection
from pathlib import Path

from dprepro import extensions
from dprepro.errors import TRUST, UserError
from dprepro.files import write_text

_TEMPLATES = Path(__file__).parent / "templates"
# What there is to write: for each file its template, and where it goes in the extension folder. The kind is a part of a
# test's name, so that one folder can hold an algorithm, a dataset and a loss of one name.
_FILES = {
    "algorithm": {"algorithm.py": "algorithms/{name}.py", "test_algorithm.py": "tests/test_algorithm_{name}.py"},
    "dataset": {"dataset.py": "datasets/{name}.py", "test_dataset.py": "tests/test_dataset_{name}.py"},
    "loss": {"loss.py": "losses/{name}.py", "test_loss.py": "tests/test_loss_{name}.py"},
    "experiment": {"experiment.yaml": "experiments/{name}.yaml"},
}


def create(kind: str, name: str, folder: Path) -> list[Path]:
    """Write the files of a new extension into `folder` and return them; refuse a name that is taken or will not do."""
    if problem := extensions.name_problem(name):
        raise UserError(f"The name {name!r} will not do: {problem}.")
    if name in _taken(kind):
        raise UserError(f"There is a built-in {kind} {name!r} already: choose another name.")
    files = {folder / place.format(name=name): _TEMPLATES / template for template, place in _FILES[kind].items()}
    for path in files:
        if os.path.lexists(path):
            raise UserError(f"The file {path} exists already: choose another name or folder; nothing was written.")
    written: list[Path] = []
    for path, template in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, _named(template.read_text(encoding="utf-8"), kind, name))
        except (OSError, UserError) as error:
            for begun in written:
                begun.unlink(missing_ok=True)
            if isinstance(error, UserError):
                raise
            raise UserError(f"The file {path} cannot be written ({error.strerror}): choose another folder.") from None
        written.append(path)
    return written


def _taken(kind: str) -> Collection[str]:
    """Return the built-in names of a kind."""
    from dprepro import algorithms, datasets, experiments, losses

    if kind == "algorithm":
        return algorithms.reserved_names()
    if kind == "dataset":
        return datasets.built_in()
    return losses.reserved_names() if kind == "loss" else experiments.reserved_names()


def _named(text: str, kind: str, name: str) -> str:
    """Return a template with the names that it is to have."""
    words = name.split("_")
    names = {f"my_{kind}": name, f"My{kind.capitalize()}": "".join(map(str.capitalize, words))}
    names[f"My {kind}"] = " ".join(words).strip().capitalize()
    return re.sub("|".join(names), lambda found: names[found[0]], text)


def next_steps(kind: str, folder: Path, files: list[Path]) -> list[str]:
    """Return what to do with the files, as lines of text."""
    lines = [f"written     {path}" for path in files]
    if len(files) > 1:
        lines.append(f"test        python -m pytest {shlex.quote(str(files[-1]))}")
    quoted = shlex.quote(str(folder))
    # Each way is a line of its own, to be copied as it stands.
    lines += [
        f"in a shell  export {extensions.VARIABLE}={quoted}",
        f"or option   --extensions {quoted}",
        f"or config   extensions: [{folder}]",
    ]
    name = files[0].stem
    tried = {
        "algorithm": f"dprepro audit {name}",
        "dataset": f"a dataset {{name: {name}}} of an experiment",
        "loss": f"loss: {name} in an experiment, or --loss {name}",
        "experiment": f"experiments: [{name}] in a configuration, then snakemake --cores 2 {name}",
    }
    return [*lines, f"then        {tried[kind]}", f"note        {TRUST}"]
