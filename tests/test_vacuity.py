"""From which n a setting makes sense."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support import make_problem

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.vacuity import MOST_SAMPLES, thresholds


def setting_at(n: int) -> Setting:
    problem = make_problem(n=20, d=5, regularizer=0.0, constraint="l2_ball:1.0")
    return Setting(replace(problem.spec, n=n), 1.0, 1e-5, "published")


def bound(n: int) -> float:
    utility = get_algorithm("phased_sgd").plan(setting_at(n)).utility
    assert utility is not None
    return utility.value


@pytest.mark.parametrize("trivial", [0.3, 0.05])
def test_thresholds_are_the_first_n_that_run_and_whose_bound_is_below_the_start(trivial: float) -> None:
    found = thresholds(get_algorithm("phased_sgd"), {}, setting_at, "excess risk", trivial)
    runs, useful = int(found["runs_from_n"]), int(found["useful_from_n"])
    assert 1 < runs < useful
    bound(runs)
    with pytest.raises(Exception, match=f"it makes sense from n = {runs}"):
        bound(runs - 1)
    assert bound(useful) < trivial <= bound(useful - 1)


def test_no_threshold_where_there_is_none() -> None:
    hopeless = thresholds(get_algorithm("phased_sgd"), {}, setting_at, "excess risk", 1e-12)
    assert hopeless["runs_from_n"] < MOST_SAMPLES
    assert hopeless["useful_from_n"] == math.inf
    unknown = thresholds(get_algorithm("phased_sgd"), {}, setting_at, "excess risk", math.nan)
    assert math.isnan(unknown["useful_from_n"])
    other = thresholds(get_algorithm("phased_sgd"), {}, setting_at, "stationarity gap", 0.3)
    assert math.isnan(other["useful_from_n"]), "its bound is one on the excess risk"
    refused = thresholds(get_algorithm("poly_sfw"), {}, setting_at, "stationarity gap", 0.3)
    assert refused["runs_from_n"] == math.inf, "poly_sfw takes no ball without vertices"
