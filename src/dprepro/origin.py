"""What figures and tables share: the module that makes them, and what they say of their origin."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from dprepro.escape import one_line
from dprepro.metrics import NO_LEAF
from dprepro.provenance import NO_CHECKOUT, commit, machine

if TYPE_CHECKING:
    from dprepro.arrays import Backend


def module_for(package: str, target: str, kind: str) -> ModuleType:
    """Return the module of a figure or table: the one of the target's own name, else that of its kind."""
    own = importlib.util.find_spec(f"{package}.{target}") is not None
    return importlib.import_module(f"{package}.{target if own else kind}")


def data_line(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return data, sizes, privacy, variant and replicates; those of the refused runs if no run has a result."""
    nothing = frame.empty
    # Runs of curves that are refused have no rows, points of sweeps have.
    frame = pd.DataFrame(metadata["refused"]) if nothing else frame
    titles = one_line(" and ".join(sorted({facts["title"] for facts in metadata["datasets"].values()})))
    variants = " and ".join(sorted(frame["variant"].unique()))
    sizes = f"n = {span(frame['n'])}, d = {span(frame['d'])}"
    known = sorted(frame["delta"].unique())
    # Where delta falls with n there are as many as points.
    deltas = ", ".join(f"{delta:g}" for delta in known) if len(known) <= 3 else span(frame["delta"])
    shown = "no run has a result" if nothing else f"mean and 95 % interval over {replicates(frame)} replicates"
    return f"{titles}; {sizes}; delta = {deltas}; variant {variants}; {shown}"


def origin_here(backend: Backend) -> dict[str, Any]:
    """Return commit, versions and backend of what this process computes, one of the `origins` of `made_line`."""
    facts = {**commit(), **machine(), **backend.facts()}
    told = ("commit", "modified", "dprepro", "python", "numpy", "backend", "device", "dtype")
    return {key: facts[key] for key in told}


def incomplete_lines(metadata: Mapping[str, Any]) -> str:
    """Return what is missing in a figure or table that was made although a job failed; nothing if it is complete."""
    if not metadata["incomplete"]:
        return ""
    return "**Incomplete.** Missing here until the next run that succeeds:\n\n" + "\n".join(
        f"- {gap}" for gap in metadata["incomplete"]
    )


def made_line(metadata: Mapping[str, Any], separator: str = "; ") -> str:
    """Return commit, versions and backend of the runs, of all that were collected, and the user's own files."""
    parts = [
        f"commit {_short(origin['commit'])}{' (modified)' if origin['modified'] else ''}, "
        f"dprepro {origin['dprepro']}, NumPy {origin['numpy']}, Python {origin['python']}, "
        f"{origin['backend']} {origin['dtype']} on {origin['device']}"
        for origin in metadata["origins"]
    ]
    own = [f"own file {one['file']} (sha256 {one['sha256'][:12]})" for one in metadata.get("extensions", ())]
    return separator.join([*parts, *own])


def problem_line(metadata: Mapping[str, Any]) -> str:
    """Return loss, regulariser, constraint and preprocessing in words."""
    told = (f"{facts['title']}: {facts['preprocessing']}" for facts in metadata["datasets"].values())
    preparations = one_line(" ".join(told))
    if "problem" not in metadata:
        problems = " ".join(_sweep_problem(key, problem) for key, problem in metadata["settings"].items())
        return f"{problems} Preprocessing, where parameters in the text are those by default: {preparations}"
    problem = metadata["problem"]
    losses = {
        "logistic": "log(1 + exp(-y<w,x>))",
        "logistic_as_printed": "log(1 + exp(1 + y<w,x>)), as printed in the paper",
    }
    strengths = [f"{name} = {value:g}" for name, value in problem["regularizer"].items() if value]
    text = f"Loss {losses.get(problem['loss'], problem['loss'])}; regulariser {', '.join(strengths) or 'none'}"
    if problem["constraint"]:
        text += f"; constraint {problem['constraint']}"
    return f"{text}. Preprocessing of {preparations}"


def _sweep_problem(key: str, problem: Mapping[str, Any]) -> str:
    """Return what a problem of a sweep is made of, in words."""

    def listed(values: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} = {value}" for name, value in values.items()) or "none"

    dataset = problem["dataset"]
    return (
        f"{key}: loss {problem['loss']}; regulariser {listed(problem['regularizer'])}; "
        f"constraint {problem['constraint'] or 'none'}; {_radius(problem)}data {dataset['name']} with parameters "
        f"{listed(dataset.get('parameters', {}))}; unless swept or said otherwise {listed(problem['base'])}."
    )


def _radius(problem: Mapping[str, Any]) -> str:
    return f"Goldstein stationarity within the radius {problem['radius']:g}; " if "radius" in problem else ""


def sweep_caption(text: str, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return a caption: title, what the figure shows, the problems, the data, the failures and the origin."""
    problems = "; ".join(f"{key}: {title}" for key, title in metadata["problems"].items())
    return "\n\n".join(
        [
            f"**{metadata['paper']}.** {metadata['title']}. {text}",
            f"Problems: {problems}.",
            f"{data_line(frame, metadata)}. {problem_line(metadata)}",
            _sweep_failures(frame),
            f"Made by {made_line(metadata)}.",
        ]
    )


def without_a_leaf(rows: pd.DataFrame) -> int:
    """Return how many runs of an algorithm that stops by a test of its own went to the end without passing it.

    `returned` holds at every replicate the share of its point's replicates that passed the test.
    """
    return round(float((1.0 - rows["returned"]).sum()))


def _sweep_failures(frame: pd.DataFrame) -> str:
    """Return how many runs of each method failed or had nothing to return, or that none did."""
    failed, nothing = [], []
    for _, group in frame.groupby(["problem", "method", "variant"], sort=False):
        first, count = group.iloc[0], int((group["failure"] != "").sum())
        name = f"{first['problem']}, {first['method']} ({first['variant']})"
        if count:
            failed.append(f"{name}: {count} of {len(group)}")
        if "returned" in group and (lost := without_a_leaf(group)):
            nothing.append(f"{name}: {lost} of {int(group['returned'].notna().sum())}")
    worse = "ended worse than w = 0 or not finite"
    if failed or nothing:
        said = [f"Runs that {worse}: {'; '.join(failed)}." if failed else f"No run {worse}."]
        said += [f"Runs that {NO_LEAF}: {'; '.join(nothing)}."] if nothing else []
        return " ".join(said)
    return "No run failed."


def failures_line(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return how many replicates failed in which run, or that none did; and why runs have no result."""
    refused = refusals(frame, metadata)
    nothing = f" Without a result: {'; '.join(refused)}" if refused else ""
    return _failed_replicates(frame) + nothing


def refusals(frame: pd.DataFrame, metadata: Mapping[str, Any]) -> list[str]:
    """Return why runs of curves and points of sweeps have no result, each reason of a method once."""
    runs = [f"{run['method']}, epsilon = {run['epsilon']:g}: {run['reason']}" for run in metadata.get("refused", ())]
    if "refused" not in frame:
        return runs
    points = frame[frame["refused"] != ""].drop_duplicates(["problem", "method", "variant", "refused"])
    named = [f"{row.problem}, {row.method} ({row.variant}): {row.refused}" for row in points.itertuples(index=False)]
    return [*runs, *named]


def _failed_replicates(frame: pd.DataFrame) -> str:
    ends = frame.groupby(["method", "epsilon", "replicate"], sort=False)["failure"].first().reset_index()
    failed = ends[ends["failure"] != ""]
    if failed.empty:
        return "No replicate failed."
    counts = failed.groupby(["method", "epsilon", "failure"]).size().reset_index(name="replicates")
    parts = [
        f"{row.method}, epsilon = {row.epsilon:g}: {row.replicates} ({row.failure})"
        for row in counts.itertuples(index=False)
    ]
    return f"Failed replicates: {'; '.join(parts)}."


def libraries_line(frame: pd.DataFrame) -> str:
    """Return which methods are libraries that draw their noise themselves; empty if there is none."""
    declared = frame[frame["drawn_by"] != ""].groupby("method", sort=False)["drawn_by"].first()
    if declared.empty:
        return ""
    named = " and ".join(f"{method} ({library})" for method, library in declared.items())
    return f"Run by its own library, which draws batches and noise itself and is taken at its word: {named}."


def replicates(frame: pd.DataFrame) -> str:
    """Return how many replicates there are, from the fewest to the most: a method may have a number of its own."""
    return span(frame.groupby(["experiment", "entry"])["replicate"].nunique())


def span(numbers: pd.Series) -> str:
    """Return the smallest and the largest of some numbers."""
    low, high = numbers.min(), numbers.max()
    return f"{low:,.6g}" if low == high else f"{low:,.6g} to {high:,.6g}"


def _short(commit: str) -> str:
    return commit if commit == NO_CHECKOUT else commit[:12]
