"""Recorded answers of composition.py: they only tell that something moved. That they are right is shown elsewhere.

`python tests/privacy/test_recorded_composition.py` records them anew.
"""

from __future__ import annotations

import math

import pytest
from recorded import assert_same, record, recorded

from dprepro.privacy.composition import (
    advanced,
    bounded_range,
    optimal_pure,
    tree_mu,
    tree_nodes,
    zcdp_delta,
    zcdp_epsilon,
)

ARITHMETIC, SEARCHED = 1e-12, 1e-10

CASES = {
    "advanced": lambda: [advanced(0.1, 1e-8, 100, 1e-5), advanced(3.0, 1e-3, 7, 0.5), advanced(0.0, 0.0, 3, 1e-6)],
    "advanced, no release": lambda: advanced(0.7, 0.1, 0, 1e-5),
    "advanced, beyond the largest number": lambda: [advanced(699.0, 0.0, 1, 0.1)[0], advanced(700.0, 0.0, 1, 0.1)[0]],
    "optimal pure, one": lambda: [optimal_pure(1.0, 1, delta) for delta in (1e-9, 0.1, 0.4, 0.46, 0.47, 0.9)],
    "optimal pure, few": lambda: [optimal_pure(e, k, 1e-3) for e in (1e-3, 0.3, 2.0, 40.0) for k in (2, 3, 9)],
    "optimal pure, edges": lambda: [
        optimal_pure(0.0, 5, 0.1),
        optimal_pure(2.0, 0, 0.1),
        optimal_pure(math.inf, 2, 0.1),
        optimal_pure(math.inf, 0, 0.1),
    ],
    "optimal pure, a large delta": lambda: [optimal_pure(e, k, 0.7) for e in (0.01, 1.0, 3.0) for k in (1, 2, 30)],
    "optimal pure, a probability capped at one": lambda: optimal_pure(40.0, 1, 1.0 - 1e-6),
    "tree nodes": lambda: [tree_nodes(leaves) for leaves in (1, 2, 3, 4, 63, 64, 10**12)],
    "tree mu": lambda: [tree_mu(0.5, 2.0, leaves) for leaves in (1, 2, 5, 64)],
    "tree mu, first leaf": lambda: [tree_mu(s, 3.0, 8, first) for s in (0.5, 2.0) for first in (0.0, 0.4, 0.6, 5.0)],
    "tree mu, edges": lambda: [tree_mu(0.0, 0.0, 4), tree_mu(0.0, 1.0, 4), tree_mu(0.3, 0.0, 4), tree_mu(3.0, 1.0, 1)],
    "tree mu, one leaf": lambda: [tree_mu(2.0, 4.0, 1, 0.0), tree_mu(2.0, 4.0, 1, 3.0)],
}
SEARCHES = {
    "zcdp epsilon": lambda: [zcdp_epsilon(rho, d) for rho in (1e-8, 1e-3, 0.5, 1.0, 30.0, 1e5) for d in (1e-30, 1e-6)],
    "zcdp epsilon, a large delta": lambda: [zcdp_epsilon(rho, d) for rho in (1e-3, 1.0, 50.0) for d in (0.2, 0.9)],
    "zcdp epsilon, orders at the ends": lambda: [zcdp_epsilon(1e12, 1e-6), zcdp_epsilon(50.0, 1.0 - 1e-9)],
    "zcdp epsilon, edges": lambda: [zcdp_epsilon(0.0, 0.1), zcdp_epsilon(math.inf, 0.1)],
    "zcdp delta": lambda: [zcdp_delta(rho, e) for rho in (1e-4, 0.02, 0.5, 1.0, 7.0) for e in (0.1, 1.0, 3.0, 20.0)],
    "zcdp delta, orders at the ends": lambda: [zcdp_delta(*c) for c in ((1e-4, 0.0), (5e4, 5e4), (1e6, 1e6))],
    "zcdp delta, edges": lambda: [zcdp_delta(0.0, 1.0), zcdp_delta(math.inf, 1.0), zcdp_delta(0.3, 0.0)],
    "bounded range": lambda: [bounded_range(e, k, 1e-5) for e in (0.01, 0.5, 3.0) for k in (1, 2, 20, 200)],
    "optimal pure, one too many to list": lambda: optimal_pure(1e-5, 10_000_001, 1e-6),
    "optimal pure, very many": lambda: [optimal_pure(e, 10**8, 1e-6) for e in (1e-9, 1e-5, 1e-3, 3.0)],
}
RECORDED = recorded("composition") if __name__ != "__main__" else {}


@pytest.mark.parametrize("case", CASES)
def test_arithmetic_gives_the_recorded_numbers(case):
    assert_same(CASES[case](), RECORDED[case], ARITHMETIC)


@pytest.mark.parametrize("case", SEARCHES)
def test_a_search_gives_the_recorded_numbers(case):
    assert_same(SEARCHES[case](), RECORDED[case], SEARCHED)


if __name__ == "__main__":
    record("composition", {**CASES, **SEARCHES})
