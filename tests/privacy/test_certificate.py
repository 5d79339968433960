from __future__ import annotations

import math

import pytest
from support import make_problem

from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Setting
from dprepro.privacy.certificate import certify


def certificate(name, *, n=120, epsilon=1.0, delta=1e-3, **letters):
    setting = Setting(make_problem(n=n).spec, epsilon, delta)
    return certify(get_algorithm(name).plan(setting, **letters))


@pytest.mark.parametrize(("epsilon", "accounted"), [(0.2, 0.328), (0.5, 0.976), (1.0, 2.245)])
def test_dp_gd_as_published_spends_more_than_it_claims(epsilon, accounted):
    """With c = 1 the noise depends on epsilon and delta alone: n and T cancel."""
    for n, T in ((120, 10), (300, 77)):
        found = certificate("dp_gd", n=n, epsilon=epsilon, T=T)
        assert found["epsilon_accounted"] == pytest.approx(accounted, abs=5e-4)
        assert found["verdict"].startswith("not private as published")


def test_dp_gd_with_the_proofs_constant_is_certified():
    found = certificate("dp_gd", T=10, c=8.0)
    assert found["epsilon_accounted"] <= 1.0
    assert found["verdict"] == "certified"


def test_sampled_mechanism_is_not_certified_and_its_condition_fails():
    found = certificate("dp_svrg", T=2, m=50)
    assert found["verdict"].startswith("not certified")
    assert found["conditions"][0]["holds"] is False
    assert found["adjacency"] == "replace-one"


def test_barzilai_borwein_step_is_reported_as_unprotected():
    found = certificate("dp_svrg", T=3, m=50, step="bb")
    assert found["epsilon_accounted"] == math.inf
    assert "without noise" in found["verdict"]
    assert any("Barzilai-Borwein" in c["detail"] for c in found["conditions"])


def test_without_noise_no_privacy_is_claimed():
    assert certificate("dp_gd", epsilon=math.inf, T=5)["verdict"] == "no privacy asked for"
