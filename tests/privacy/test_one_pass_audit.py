"""Audits of BGM21's algorithms: what they prove, and that they see bugs that are planted into the noise.

Seeds are fixed; an audit proves more than is spent with probability 1e-3 at most.
"""

from __future__ import annotations

import dataclasses

import pytest

from dprepro.algorithms import get_algorithm
from dprepro.errors import RunFailed
from dprepro.losses import Absolute
from dprepro.privacy.audit import audit
from dprepro.privacy.mechanisms import DisjointGaussianMechanism, GaussianMechanism, SelectionMechanism

# The share of the accounted epsilon that 4000 runs on each side prove at least.
POWER = {
    "phased_sgd": 0.6,
    "noisy_gd": 0.4,
    "noisy_sfw": 0.55,
    "poly_sfw": 0.5,
    "noisy_frank_wolfe": 0.5,
    "prox_guided_md": 0.5,
}
each = pytest.mark.parametrize("name", POWER)


def run(name, epsilon=2.0, algorithm=None, **options):
    options = {"variant": "certified", "delta": 1e-5, "replicates": 4000, "seed": 3, **options}
    return audit(algorithm or get_algorithm(name), epsilon=epsilon, **options)


def caught():
    return pytest.raises(RunFailed, match="a mechanism, a sensitivity or the accountant is wrong")


@each
def test_an_audit_proves_a_good_part_of_what_is_accounted_and_never_more(name):
    row = run(name)
    assert POWER[name] * row["epsilon_accounted"] <= row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0


@each
def test_audits_as_published_stay_below_what_is_accounted(name):
    row = run(name, 4.0, variant="published", replicates=1000)
    assert row["epsilon_audited"] <= row["epsilon_accounted"]


@each
def test_planted_noise_halved_is_caught(name, monkeypatch):
    gaussian, disjoint = GaussianMechanism._noise_block, DisjointGaussianMechanism.noise
    largest = SelectionMechanism.largest
    monkeypatch.setattr(GaussianMechanism, "_noise_block", lambda self, *block: 0.5 * gaussian(self, *block))
    monkeypatch.setattr(DisjointGaussianMechanism, "noise", lambda self, kind: 0.5 * disjoint(self, kind))
    # Scores twice as large are noise of half the scale.
    monkeypatch.setattr(SelectionMechanism, "largest", lambda self, scores: largest(self, 2.0 * scores))
    with caught():
        run(name, 1.0)


@pytest.mark.parametrize("name", ["phased_sgd", "noisy_sfw", "poly_sfw"])
def test_planted_sensitivity_halved_is_caught(name, monkeypatch):
    """The plan states half of what a record moves, so that calibration finds half of the noise to be enough."""
    algorithm = get_algorithm(name)
    original = type(algorithm).compute_plan

    def understated(self, setting, given):
        found = original(self, setting, given)
        return dataclasses.replace(found, events=tuple(_halved(event) for event in found.events))

    monkeypatch.setattr(type(algorithm), "compute_plan", understated)
    with caught():
        run(name, 1.0)


def _halved(event):
    """Return the event with half of every sensitivity."""
    if hasattr(event, "branches"):
        branches = tuple(tuple(_halved(inner) for inner in branch) for branch in event.branches)
        return dataclasses.replace(event, branches=branches)
    if hasattr(event, "profiles"):
        profiles = tuple(tuple((0.5 * s, count) for s, count in profile) for profile in event.profiles)
        return dataclasses.replace(event, profiles=profiles)
    if hasattr(event, "sensitivities"):
        return dataclasses.replace(event, sensitivities=tuple(0.5 * s for s in event.sensitivities))
    (part,) = event.parts
    return dataclasses.replace(event, parts=(dataclasses.replace(part, sensitivity=0.5 * part.sensitivity),))


@pytest.mark.parametrize("name", ["phased_sgd", "noisy_frank_wolfe"])
def test_audits_on_a_loss_with_kinks_have_the_same_power(name):
    """The absolute loss is as linear as the Huber loss is far from its label."""
    algorithm = get_algorithm(name)

    class Kinked(type(algorithm)):
        def audit_case(self):
            case = super().audit_case()
            return dataclasses.replace(case, spec=dataclasses.replace(case.spec, loss=Absolute()))

    row = run(name, algorithm=Kinked())
    assert POWER[name] * row["epsilon_accounted"] <= row["epsilon_audited"] <= row["epsilon_accounted"] <= 2.0
