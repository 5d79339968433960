"""Reference pages made from the code: commands from the parser, keys from the schemas, names from the registries."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from docstrings import as_markdown

from dprepro import algorithms, datasets, losses
from dprepro.cli import build_parser
from dprepro.experiments import experiment_names, read_yaml

WORKFLOW = "workflow: "
# Schemas with what each describes, in the order of the page.
SCHEMAS = {
    "config": "The configuration: `config/config.yaml` and what `--configfile` lays over it",
    "curves": "An experiment of curves: a figure with trajectories",
    "sweeps": "An experiment of sweeps: errors along n, d, epsilon or a parameter of the data",
    "parts": "An experiment of parts: the rows of a paper's table",
}


def pages(root: Path) -> dict[str, str]:
    """Return the generated pages by their paths under docs/."""
    return {
        "reference/command-line.md": "\n\n".join(command_line()) + "\n",
        "reference/configuration.md": "\n\n".join(configuration(root)) + "\n",
        "reference/catalogue.md": "\n\n".join(catalogue(root)) + "\n",
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown; what stands in a cell is shown as it is."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def _cell(value: object) -> str:
    """Return a value for a cell: on one line, and with its bars escaped between backticks too."""
    return re.sub(r"(?<!\\)\|", r"\\|", _plain(value))


def _plain(value: object) -> str:
    return as_markdown(" ".join(str(value).split()))


def code(value: object) -> str:
    """Return the value as code."""
    return f"`{value}`"


# --- commands ---------------------------------------------------------------------------------------------------


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every verb of the command."""
    (action,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


def command_line() -> Iterator[str]:
    """Yield the blocks of the page of commands."""
    found = verbs()
    yield "# Command line"
    yield "Exit codes: 0 done, 1 a run failed, 2 bad input. Errors are one sentence on standard error."
    yield from _commands(name for name in found if not _is_stage(found[name]))
    yield "## Stages of the workflow"
    yield "These are what the rules of the Snakefile call; one seldom calls them by hand."
    yield from _commands((name for name in found if _is_stage(found[name])), level=3)


def _is_stage(parser: argparse.ArgumentParser) -> bool:
    return str(parser.description).startswith(WORKFLOW)


def _commands(names: Iterable[str], level: int = 2) -> Iterator[str]:
    found = verbs()
    for name in names:
        parser = found[name]
        summary = str(parser.description).removeprefix(WORKFLOW)
        yield f"{'#' * level} dprepro {name}"
        yield f"{summary[0].upper()}{summary[1:]}."
        if rows := [_option(action) for action in parser._actions if action.dest != "help"]:
            yield table(("argument", "meaning", "default"), rows)


def _option(action: argparse.Action) -> tuple[str, str, str]:
    """Return how an argument is written, what it means and what holds without it."""
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    shown = "|".join(map(str, action.choices)) if action.choices else str(value)
    written = " ".join([*action.option_strings, *([] if action.nargs == 0 else [shown])])
    if action.required:
        return code(written), action.help or "", "required"
    flag = action.nargs == 0 or action.default is None or action.default == []
    return code(written), action.help or "", "" if flag else code(action.default)


# --- configuration ----------------------------------------------------------------------------------------------


def configuration(root: Path) -> Iterator[str]:
    """Yield the blocks of the page of configuration keys."""
    yield "# Configuration"
    yield (
        "Made from the JSON Schemas in `config/schema/`, which every configuration is held against while the Snakefile "
        "is read: an unknown key is an error that names it. A name in capitals stands for one of your choice; `[]` for "
        "each entry of a list. What the keys of experiments mean is told in [Extending](../extending.md)."
    )
    for name, title in SCHEMAS.items():
        schema = json.loads((root / f"config/schema/{name}.schema.json").read_text(encoding="utf-8"))
        yield f"## {name.capitalize()}"
        yield f"{title}."
        yield table(("key", "", "value"), keys(_resolved(schema, schema.get("$defs", {}))))


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return the schema with what it refers to (`#/$defs/NAME`) in place of the references.

    A description beside a reference says what the value is for.
    """
    if isinstance(schema, list):
        return [_resolved(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = _resolved(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
        return {**found, "description": ": ".join(filter(None, (schema.get("description"), found.get("description"))))}
    return {key: _resolved(value, definitions) for key, value in schema.items()}


def keys(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (path, required or not, what the value must be) of every key, those inside of it after it."""
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        yield code(prefix + name), "required" if name in required else "", _value(inner)
        yield from _inside(inner, prefix + name)
    for inner in _free(schema):
        yield code(f"{prefix}NAME"), "", _value(inner)
        yield from _inside(inner, f"{prefix}NAME")


def _inside(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    yield from keys(schema, f"{path}.")
    if isinstance(entries := schema.get("items"), dict) and "properties" in entries:
        yield from keys(entries, f"{path}[].")
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from keys(choice, f"{path}.")


def _free(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the schemas of entries whose names are free."""
    found = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return [inner for inner in found if isinstance(inner, dict)]


def _value(schema: Mapping[str, Any]) -> str:
    """Say what the value must be: the schema's own words, or its choices, or its type."""
    if "enum" in schema:
        return " or ".join(code(choice) for choice in schema["enum"])
    if "description" in schema:
        return str(schema["description"])
    if "const" in schema:
        return code(schema["const"])
    kinds = schema.get("type", "")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


# --- registries -------------------------------------------------------------------------------------------------


def catalogue(root: Path) -> Iterator[str]:
    """Yield the blocks of the page of everything that has a name."""
    yield "# Algorithms, datasets, losses, experiments"
    yield "What `dprepro list algorithms`, `datasets`, `losses` and `experiments` name, in full."
    yield "## Algorithms"
    for name in algorithms.names():
        yield from _algorithm(name)
    yield "## Datasets"
    for name in datasets.names():
        yield from _dataset(name)
    yield "## Losses"
    yield (
        "Functions of t = <w, x> and the label y, unless they say otherwise. `NAME:0.5` sets the parameter, and "
        "`moreau:BETA:NAME` is the Moreau envelope of a convex loss made of straight lines."
    )
    yield table(("name", "what it is"), ((code(name), losses.facts(losses.get_loss(name))) for name in losses.names()))
    yield "## Experiments"
    specs = {name: read_yaml(root / f"config/experiments/{name}.yaml") for name in experiment_names(root / "config")}
    rows = ((code(name), spec["paper"], spec.get("kind", "curves"), spec["title"]) for name, spec in specs.items())
    yield "`snakemake --cores 2 NAME` makes the figure and the table of one."
    yield table(("name", "paper", "kind", "title"), rows)


def _algorithm(name: str) -> Iterator[str]:
    algorithm = algorithms.get_algorithm(name)
    yield f"### {name}"
    needs = ", ".join(sorted(algorithm.needs)) or "nothing"
    yield _plain(f"{algorithm.title} ({algorithm.paper}). Needs of a problem: {needs}.")
    letters = (
        (code(letter), " or ".join(map(code, facts.choices)) or facts.kind.__name__, facts.meaning)
        for letter, facts in algorithm.letters.items()
    )
    yield table(("letter", "value", "meaning"), letters)


def _dataset(name: str) -> Iterator[str]:
    facts = datasets.info(name)
    shape = f"{facts.rows} rows, {facts.features} features" if facts.rows else "rows as asked for"
    yield f"### {name}"
    yield f"{_plain(facts.title)}: {facts.task}, {shape}. {_plain(facts.preprocessing)}"
    yield f"Licence: {_plain(facts.licence)}. Source: {_plain(facts.citation)}"
