"""KLT25's Table 1: a line per method with the samples that it needs, as bounded and as measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from dprepro.algorithms import get_algorithm
from dprepro.algorithms._o2nc import O2NC, informative_from
from dprepro.algorithms.base import Setting
from dprepro.geometry import get_set
from dprepro.losses import get_loss
from dprepro.problems.erm import ProblemSpec
from dprepro.regularizers import get_regularizer
from dprepro.sweeps import SAMPLES
from dprepro.tables import markdown_rows, parts, records, sweeps
from dprepro.tables.parts import table

__all__ = ["summary", "table"]

# The finding that measures the gap between population and sample.
GAP = "Proposition 5.1, a tight instance"
# The setting in which it is asked from which n the bounds say anything; L = 1.
EPSILON, DELTA, ALPHA, PHI, DIMENSIONS = 1.0, 1e-6, 0.1, 1.0, (10, 100)
# Letters of a line that decide its bound.
_LETTERS = ("oracle", "estimator", "noise")
_ERROR = "Goldstein stationarity: exponent in n"
_SAMPLES_HELP = (
    "How the samples grow that bring the Goldstein stationarity within the radius 2 alpha down to half of that of "
    "the initial point, along each series of problems, with 95 % bootstrap intervals over replicates (rounding of "
    "periods and batches is not in them: see the range with one value left out), in brackets the exponent of the "
    "bound's term with epsilon, and how they compare. The other term is not measured: these problems make it small. "
    "`less that of`: the difference of two exponents, with that of the private terms in brackets. `at the end`: the "
    "samples at the last value of a series. With equal periods the noise has the theory's dependence on d by "
    "construction: the runs show that the samples follow it. Problems, n and letters were chosen after looking at "
    "runs; docs/fidelity.md says which."
)
_GUARANTEES_HELP = (
    "`below L from n`: from there on the bound of Proposition 2.6 with explicit constants, the estimator and noise "
    "of the line and the best windows, periods and batches that are powers of two, is shown to say more than that "
    f"gradients are at most L long (alpha = {ALPHA:g}, Phi = {PHI:g}, L = 1, epsilon = {EPSILON:g}, delta = "
    f"{DELTA:g}); other letters may do so from a somewhat smaller n on. That of many passes is on the "
    "loss over their samples, and those with values of the loss (zero-order, Zhang et al.) leave out the error of "
    "directions that samples share. Noise as printed has the estimator of the other variants: with the printed one "
    "the number of directions is out of reach. `error in n`: exponents of the stationarity on natural problems, in "
    "brackets that of the bound in the limit and, as `here`, of both of its terms over the n measured. What the "
    "population adds to the loss over the samples, d/beta^2 in the bound of many passes, is measured apart: the "
    f'findings on KLT25, "{GAP}", have its exponents in d and n.'
)


def summary(rows: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping[str, Any]) -> str:
    """Return the paper's table with measured exponents in place, and what follows from them, in Markdown."""
    head = ["## The paper's table, measured: samples needed", "", markdown_rows(samples(rows)), "", _SAMPLES_HELP, ""]
    head += ["## Guarantees and natural problems", "", markdown_rows(guarantees(rows, frame)), "", _GUARANTEES_HELP, ""]
    return "\n".join([*head, parts.details(rows, frame, metadata)])


def samples(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a line per series, method and variant: the exponent of its samples, alone and beside another's."""
    needed = rows[rows["quantity"].str.startswith(SAMPLES)]
    found = []
    for (series, method, variant), here in needed.groupby(["problem", "method", "variant"], sort=False):
        found.append(
            {"series": series, "method": method, "variant": variant, "bound": here["bound"].iloc[0]}
            | {"exponent of the samples": _grown(here)}
            | {"less that of": _apart(here)}
            | {"at the end": _end(here)}
        )
    return pd.DataFrame(found)


def guarantees(rows: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a line per method and variant of which the samples needed were measured."""
    needed = rows[rows["quantity"].str.startswith(SAMPLES)]
    natural = dict.fromkeys(rows[rows["quantity"] == _ERROR]["problem"])
    found = []
    for (method, variant), here in needed.groupby(["method", "variant"], sort=False):
        first = here.iloc[0]
        same = rows[(rows["method"] == method) & (rows["variant"] == variant)]
        runs = frame[(frame["method"] == method) & (frame["variant"] == variant) & (frame["refused"] == "")]
        found.append(
            {"method": method, "variant": variant}
            | {f"below L from n, d = {d}": _useful(first, _letters(runs), d) for d in DIMENSIONS}
            | {"epsilon accounted / claimed": _spent(same)}
            | {f"error in n, {problem}": _cell(same[same["problem"] == problem], _ERROR) for problem in natural}
        )
    return pd.DataFrame(found)


def _grown(rows: pd.DataFrame) -> str:
    """Return the exponent of a line with what it is in, its interval, theory and verdict."""
    found = records(rows[rows["quantity"].str.startswith(f"{SAMPLES}: exponent in ")])
    if not found or not sweeps.cell(found[0]):
        return ""
    axis = found[0]["quantity"].rpartition(" ")[2]
    return f"in {axis}: {sweeps.cell(found[0])}: {found[0]['verdict']}"


def _apart(rows: pd.DataFrame) -> str:
    """Return how much larger the exponent of a line is than that of another one, and how that compares."""
    found = records(rows[rows["quantity"].str.contains(" less that of ")])
    if not found or not sweeps.cell(found[0]):
        return ""
    other = found[0]["quantity"].partition(" less that of ")[2]
    return f"{other}: {sweeps.cell(found[0])}: {found[0]['verdict']}"


def _end(rows: pd.DataFrame) -> str:
    """Return the samples at the last value of a series, and how many times those of another line they are."""
    at = rows[rows["quantity"].str.startswith(f"{SAMPLES} at ")]
    if at.empty:
        return ""
    last = records(at[~at["quantity"].str.contains(" over ")])[-1]
    place = last["quantity"].removeprefix(f"{SAMPLES} ")
    ratio = records(at[at["quantity"].str.startswith(f"{last['quantity']} over ")])
    number = sweeps.cell(last) or last["verdict"]
    beside = f"; over {ratio[0]['quantity'].partition(' over ')[2]}: {ratio[0]['verdict']}" if ratio else ""
    return f"{place}: {number}{beside}"


def _cell(rows: pd.DataFrame, quantity: str) -> str:
    found = records(rows[rows["quantity"] == quantity])
    return sweeps.cell(found[0]) if found else ""


def _spent(rows: pd.DataFrame) -> float:
    """Return the largest share of the claimed epsilon that is accounted."""
    return float((rows["epsilon_accounted"] / rows["epsilon_claimed"]).max())


def _letters(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the letters of a line that decide its bound; all of its runs have them in common."""
    letters = json.loads(runs["letters"].iloc[0]) if len(runs) else {}
    return {key: letters[key] for key in _LETTERS if key in letters}


def _useful(line: pd.Series, letters: Mapping[str, Any], d: int) -> float:
    """Return the first n, to a hundredth, at which an algorithm's bound is below L; NaN for one without this bound."""
    algorithm, variant = get_algorithm(line["algorithm"]), line["variant"]
    if not isinstance(algorithm, O2NC):
        return float("nan")
    problem = ProblemSpec(1, d, get_loss("capped_absolute:8"), get_regularizer({}), get_set(None))
    setting = Setting(problem, EPSILON, DELTA, "certified" if variant == "practical" else variant)
    given = {"alpha": ALPHA, "Phi": PHI} | {key: value for key, value in letters.items() if key in algorithm.letters}
    return informative_from(lambda n: algorithm.best_bound(setting, given, n))
