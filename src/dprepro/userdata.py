"""A user's own files for `dprepro solve`: reading data, writing solutions, reporting."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.algorithms import get_algorithm
from dprepro.errors import UserError
from dprepro.files import atomic_path, check_outputs, json_text, read_arrays, write_arrays

if TYPE_CHECKING:
    import pandas as pd

    from dprepro.api import Solution

# Kinds of types of numbers, as NumPy names them.
_NUMBERS = "fiub"


def read_table(path: Path, target: str | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return X, y and notes from a .csv, .npz or .parquet file."""
    if not os.path.exists(path):
        raise UserError(f"The data file {path} does not exist: check the path.")
    if path.suffix == ".npz":
        if target is not None:
            raise UserError(f"--target {target} does not go with {path}: an .npz file holds its labels in the array y.")
        arrays = read_arrays(path, advice="check it")
        if missing := {"X", "y"} - set(arrays):
            raise UserError(f"The file {path} has no array {sorted(missing)[0]!r}: store the arrays X and y in it.")
        if arrays["X"].dtype.kind not in _NUMBERS:
            raise UserError(f"The array 'X' of {path} is of type {arrays['X'].dtype}: give numbers.")
        return arrays["X"], arrays["y"], ()
    frame = _read_frame(path)
    frame.columns = frame.columns.map(str)
    notes: tuple[str, ...] = ()
    if target is None:
        target = "y" if "y" in frame.columns else str(frame.columns[-1])
        notes = (f"column {target!r} was taken as the label",)
    if target not in frame.columns:
        raise UserError(f"The file {path} has no column {target!r}: it has {', '.join(map(str, frame.columns[:10]))}.")
    features = frame.drop(columns=[target])
    for name in features.columns:
        if features[name].dtype.kind not in _NUMBERS:
            raise UserError(f"Column {name!r} of {path} is not numeric: encode it as numbers first.")
    return features.to_numpy(dtype=float), frame[target].to_numpy(), notes


def _check_names(path: Path) -> None:
    """Refuse a CSV file whose first line is not a line of names: it would be lost as a record, and shown as names.

    Each column has a name of its own; a number is a name only if it counts the columns, from 0 or 1, as pandas does.
    """
    import pandas as pd

    line = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, skipinitialspace=True)
    names = [str(name).strip() for name in line.iloc[0]]
    for position, name in enumerate(names):
        counts = name in (str(position), str(position + 1))
        if not name or names.count(name) > 1 or (_is_number(name) and not counts):
            what = "no name" if not name else "a number for a name" if _is_number(name) else "the name of another"
            raise UserError(
                f"Column {position + 1} in the first line of {path} has {what}: the first line must name each column."
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def overrides_from(items: Sequence[str], algorithm: str) -> dict[str, Any]:
    """Return the letters given as LETTER=VALUE, checked by the algorithm."""
    given: dict[str, Any] = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator or not name or not value:
            raise UserError(f"--set {item!r} is not of the form LETTER=VALUE: write for example --set T=10.")
        given[name] = value
    return get_algorithm(algorithm).check_letters(given)


def check_out(out: Path | None, data: Path, *, force: bool = False) -> None:
    """Refuse an output name before any work is done: one that will not do, is taken or is that of the data."""
    if out is None:
        return
    if out.suffix != ".npz":
        raise UserError(f"The output {out} does not end in .npz: choose such a name.")
    check_outputs((out, out.with_suffix(".json")), (data,), force=force)


def write_solution(solution: Solution, out: Path) -> None:
    """Write w and the trajectory as `.npz`, plan, certificate and provenance as `.json` beside it: both or none."""
    result = solution.result
    text = json_text(
        {
            "plan": solution.plan.to_json(),
            "certificate": solution.certificate,
            "provenance": solution.provenance,
            "notes": solution.notes,
            "seconds": result.seconds,
        }
    )
    with atomic_path(out.with_suffix(".json")) as temporary:
        temporary.write_text(text, encoding="utf-8")
        write_arrays(
            out,
            {
                "w": solution.w,
                "objective": result.objective,
                "final_objective": result.final_objective,
                "rounds": result.rounds,
                **result.counts(),
            },
        )


def report(solution: Solution, notes: Sequence[str], out: Path | None) -> str:
    """Return what a user wants to know first, as a few lines of text."""
    plan, certificate = solution.plan, solution.certificate
    mean, spread = float(np.mean(solution.objective)), float(np.std(solution.objective))
    lines = [
        f"{plan.algorithm} ({plan.variant}), n = {plan.n}, d = {plan.d}, "
        f"epsilon = {plan.epsilon:g}, delta = {plan.delta:g}, {certificate['adjacency']} neighbours",
        f"objective            {mean:.6g} (standard deviation {spread:.2g} over {solution.w.shape[0]} replicates)",
        *_evaluations(solution.gradient_evaluations, solution.function_evaluations),
        f"noise sigma          {plan.sigma:.6g}",
        f"accounted epsilon    {certificate['epsilon_accounted']:.6g} ({certificate['accountant']})",
        f"verdict              {certificate['verdict']}",
    ]
    lines += [
        f"condition            {c['condition']}: {'holds' if c['holds'] else 'DOES NOT HOLD'} ({c['detail']})"
        for c in certificate["conditions"]
    ]
    lines += [f"note                 {note}" for note in (*notes, *solution.notes, certificate["caveat"])]
    if out:
        lines.append(f"written              {out} and {out.with_suffix('.json')}")
    return "\n".join(lines)


def _evaluations(gradients: int, values: int) -> list[str]:
    """Return the lines of the evaluations; of values of the loss only where there are some."""
    return [f"gradient evaluations {gradients}"] + [f"function evaluations {values}"] * (values > 0)


def _read_frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet}
    if path.suffix not in readers:
        raise UserError(f"The data file {path} is not .csv, .npz or .parquet: convert it.")
    try:
        if path.suffix == ".csv":
            _check_names(path)
        frame: pd.DataFrame = readers[path.suffix](path)  # type: ignore[operator]
    except (UserError, MemoryError):
        raise
    except UnicodeDecodeError:
        raise UserError(f"The data file {path} is not UTF-8 text: convert it.") from None
    except Exception as error:  # pandas and pyarrow raise a dozen kinds for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"The data file {path} cannot be read ({reason}): check it.") from None
    if path.suffix == ".csv" and not isinstance(frame.index, pd.RangeIndex):
        raise UserError(f"The data file {path} has records with more fields than names in the first line: check it.")
    if frame.shape[0] == 0 or frame.shape[1] < 2:
        raise UserError(f"The data file {path} has shape {frame.shape}: give rows, features and a label column.")
    return frame


def _regularizer(options: Any) -> float:
    """Return the strength that was given, else 0.01 where the algorithm takes a regulariser."""
    default = 0.01 if get_algorithm(options.algorithm).takes_regularizer else 0.0
    return default if options.regularizer is None else float(options.regularizer)


def account_record(options: Any) -> dict[str, Any]:
    """Return plan and certificate for the options of `dprepro account`."""
    from dprepro.algorithms.base import Setting
    from dprepro.geometry import get_set
    from dprepro.losses import get_loss
    from dprepro.privacy.certificate import certify
    from dprepro.problems.erm import ProblemSpec
    from dprepro.regularizers import get_regularizer

    for name in ("n", "d"):
        if getattr(options, name) < 1:
            raise UserError(f"{name} is {getattr(options, name)}: give a whole number >= 1.")
    problem = ProblemSpec(
        n=options.n,
        d=options.d,
        loss=get_loss(options.loss),
        regularizer=get_regularizer(_regularizer(options)),
        constraint=get_set(options.constraint),
    )
    setting = Setting(problem, options.epsilon, options.delta, options.variant)
    plan = get_algorithm(options.algorithm).plan(setting, **overrides_from(options.set, options.algorithm))
    return {**certify(plan), "plan": plan.to_json()}


def _certain(epsilon: float) -> str:
    return f"{epsilon:.6g}, attained by a pair of data sets" if epsilon > 0.0 else "none known for this loss"


def account_report(record: dict[str, Any]) -> str:
    """Return a certificate as a few lines of text."""
    plan = record["plan"]
    letters = {key: plan[key] for key in get_algorithm(plan["algorithm"]).letters}
    lines = [
        f"{plan['algorithm']} ({plan['variant']}), n = {plan['n']}, d = {plan['d']}, {record['theorem']}",
        f"letters              {', '.join(f'{key} = {value}' for key, value in letters.items())}",
        f"noise sigma          {plan['sigma']:.6g}",
        *_evaluations(plan["gradient_evaluations"], plan["function_evaluations"]),
        f"claimed epsilon      {record['epsilon_claimed']:g} at delta = {record['delta']:g}, {record['adjacency']}",
        f"accounted epsilon    {record['epsilon_accounted']:.6g} ({record['accountant']})",
        f"lower bound          {_certain(record['epsilon_lower'])}",
        f"delta at the claim   {record['delta_at_claimed_epsilon']:.4g}",
        f"noise ratio          {record['noise_ratio']:.4g} (this noise over the smallest certified noise)",
        f"P(record sampled)    {record['probability_record_sampled']:.4g}",
        f"verdict              {record['verdict']}",
    ]
    lines += [
        f"condition            {c['condition']}: {'holds' if c['holds'] else 'DOES NOT HOLD'} ({c['detail']})"
        for c in record["conditions"]
    ]
    return "\n".join([*lines, f"note                 {record['caveat']}"])
