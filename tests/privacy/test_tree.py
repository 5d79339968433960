"""The tree mechanism: which nodes a prefix is made of, their noise, and what a record in one leaf costs."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprepro.arrays import get_backend
from dprepro.errors import LedgerMismatch, UserError
from dprepro.privacy.accounting import account, gaussian_epsilon
from dprepro.privacy.bounds import audit_bounds
from dprepro.privacy.composition import tree_mu, tree_nodes
from dprepro.privacy.events import TreeEvent, event_from_json, event_to_json
from dprepro.privacy.mechanisms import Ledger, TreeMechanism

CPU = get_backend("cpu")
SIGMA = 0.5


def tree(leaves, sigma=SIGMA, d=3, backend=CPU, count=1, replicates=4, turn=None, **facts):
    event = TreeEvent("tree", sigma, 1.0, leaves, count, **facts)
    return Ledger((event,), d, 11, list(range(replicates)), backend, turn).tree("tree")


def blocks(t):
    """The nodes (first leaf, last leaf) that the first t leaves are cut into, largest first."""
    found, done = [], 0
    for level in reversed(range(t.bit_length())):
        if t >> level & 1:
            found.append((done + 1, done + 2**level))
            done += 2**level
    return found


def nodes_of(leaves):
    return sorted({block for t in range(1, leaves + 1) for block in blocks(t)})


def incidence(leaves):
    """Which nodes each prefix is made of: (leaves, nodes)."""
    nodes = nodes_of(leaves)
    return np.array([[float(node in blocks(t)) for node in nodes] for t in range(1, leaves + 1)])


def leaf_nodes(leaves, leaf):
    """How many of the nodes that prefixes use hold a leaf, numbered from 1.

    A prefix is made of left children only (and the root). On level l the leaf is in a left child if bit l of leaf - 1
    is zero, and the node is used if it ends within the leaves.
    """
    before = leaf - 1
    levels = range(leaves.bit_length())
    return sum(not before >> level & 1 and ((before >> level) + 1) << level <= leaves for level in levels)


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, 7, 8, 13, 16, 37])
def test_a_leaf_is_counted_in_every_node_that_some_prefix_uses(leaves):
    nodes = nodes_of(leaves)
    counted = [leaf_nodes(leaves, leaf) for leaf in range(1, leaves + 1)]
    assert counted == [sum(first <= leaf <= last for first, last in nodes) for leaf in range(1, leaves + 1)]
    assert max(counted) == counted[0] == tree_nodes(leaves)
    assert max(counted[1:], default=0) == tree_nodes(leaves) - 1


@settings(deadline=None, max_examples=40)
@given(leaves=st.integers(1, 60), first=st.floats(0.01, 10.0), later=st.floats(0.01, 10.0))
def test_what_a_leaf_costs_is_the_exact_distance_between_the_laws_of_all_prefixes(leaves, first, later):
    """Prefix noise has the covariance sigma^2 A A^T; leaf j moves the prefixes from j on by its sensitivity."""
    A = incidence(leaves)
    covariance = SIGMA**2 * A @ A.T
    squared = []
    for leaf in range(1, leaves + 1):
        shift = np.where(np.arange(1, leaves + 1) >= leaf, first if leaf == 1 else later, 0.0)
        squared.append(shift @ np.linalg.solve(covariance, shift))
    assert tree_mu(later, SIGMA, leaves, first) == pytest.approx(math.sqrt(max(squared)), rel=1e-9)
    assert tree_mu(later, SIGMA, leaves) == pytest.approx(tree_mu(later, SIGMA, leaves, later), rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(leaves=st.integers(1, 70), seed=st.integers(0, 10**6))
def test_without_noise_prefixes_are_the_exact_sums_and_few_nodes_are_kept(leaves, seed):
    vectors = np.random.default_rng(seed).integers(-9, 9, size=(leaves, 4, 3)).astype(float)
    mechanism = tree(leaves, sigma=0.0)
    mechanism.start()
    for t, vector in enumerate(vectors, start=1):
        np.testing.assert_array_equal(mechanism.add(vector), vectors[:t].sum(axis=0))
        assert len(mechanism._open) == t.bit_count() <= leaves.bit_length()


def noises(leaves, d, backend=CPU, count=1):
    """The noise of every prefix of every tree: (count, leaves, 64, d)."""
    mechanism = tree(leaves, d=d, backend=backend, count=count, replicates=64)
    found = []
    for _ in range(count):
        mechanism.start()
        found.append([backend.to_host(mechanism.add(backend.zeros((64, d)))) for _ in range(leaves)])
    return np.array(found)


def test_the_noise_of_prefix_t_has_the_variance_of_its_nodes_for_every_t(backend):
    """12800 draws for each of 21 prefixes: relative standard error 1.25 %, 6 of them; false alarm below 1e-7."""
    drawn = noises(21, 200, backend)[0]
    for t in range(1, 22):
        assert np.var(drawn[t - 1]) == pytest.approx(SIGMA**2 * len(blocks(t)), rel=0.075)


def test_every_node_has_noise_of_its_own_in_every_tree():
    """Correlations of 2 * 13 nodes over 19200 draws: 325 pairs, 6.5 standard errors; false alarm below 1e-7."""
    drawn = noises(13, 300, count=2).reshape(2, 13, -1)
    nodes = np.linalg.solve(incidence(13), drawn)
    correlations = np.corrcoef(nodes.reshape(26, -1))
    np.testing.assert_allclose(correlations, np.eye(26), atol=6.5 / math.sqrt(nodes.shape[-1]))


def test_vectors_may_depend_on_what_was_released_before():
    plain, adaptive = tree(11, d=2), tree(11, d=2)
    plain.start()
    adaptive.start()
    total = prefix = np.zeros((4, 2))
    for _ in range(11):
        vector = np.tanh(prefix) - 0.3
        total = total + vector
        prefix = adaptive.add(vector)
        np.testing.assert_allclose(prefix - total, plain.add(np.zeros((4, 2))), atol=1e-12)


def test_leaves_without_a_tree_and_more_trees_than_planned_are_refused():
    mechanism = tree(2)
    with pytest.raises(LedgerMismatch, match="2 leaves"):
        mechanism.add(np.zeros((4, 3)))
    mechanism.start()
    with pytest.raises(LedgerMismatch, match="planned for 1 releases, but 2"):
        mechanism.start()


def test_a_record_in_one_leaf_of_one_tree_costs_one_tree_and_in_every_tree_all():
    many = TreeEvent("t", 2.0, 0.5, 8, 9)
    assert account((many,), 1e-5).epsilon == pytest.approx(gaussian_epsilon(3 * 0.25 * 2.0, 1e-5))
    disjoint = replace(many, disjoint=True)
    assert account((disjoint,), 1e-5).epsilon == pytest.approx(gaussian_epsilon(0.25 * 2.0, 1e-5))
    assert account((replace(disjoint, first=0.1),), 1e-5).epsilon == pytest.approx(
        gaussian_epsilon(0.25 * math.sqrt(3), 1e-5)
    )
    bound = account((replace(disjoint, attained=False),), 1e-5)
    assert bound.lower == 0.0
    for event in (many, disjoint, replace(disjoint, first=0.1)):
        assert event_from_json(event_to_json(event)) == event
    with pytest.raises(UserError, match="first leaf"):
        replace(many, first=0.0)


def test_disjoint_trees_take_one_leaf_of_every_batch():
    """Planted bug: a batch that was in one leaf is put into the next as well, or into the next tree."""
    taken = [5]
    mechanism = tree(2, count=2, turn=lambda: taken[0], disjoint=True)
    vector = np.zeros((4, 3))
    mechanism.start()
    mechanism.add(vector)
    with pytest.raises(LedgerMismatch, match="would release twice on one batch"):
        mechanism.add(vector)
    mechanism.start()
    with pytest.raises(LedgerMismatch, match="would release twice on one batch"):
        mechanism.add(vector)
    taken[0] += 5
    mechanism.add(vector)


def test_the_ledger_needs_no_more_memory_for_more_leaves():
    """One number for each of 20,000 leaves would be more than a megabyte."""
    taken = [0]
    mechanism = tree(256, sigma=0.0, d=1, count=100, replicates=1, turn=lambda: taken[0], disjoint=True)
    vector = np.zeros((1, 1))

    def plant(trees):
        for _ in range(trees):
            mechanism.start()
            for _ in range(256):
                taken[0] += 1
                mechanism.add(vector)

    plant(10)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    plant(80)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 50_000


def test_disjoint_trees_do_not_cover_a_look_at_all_records():
    event = TreeEvent("tree", 1.0, 1.0, 2, 1, disjoint=True)
    book = Ledger((event,), 3, 0, [0], CPU)
    book.tree("tree").start()
    book.check(fresh=True)
    with pytest.raises(LedgerMismatch, match="full gradients"):
        book.check(full=True)


# --- audit ------------------------------------------------------------------------------------------------------


def proven_mu(leaves, leaf, distance=1.0):
    """The mu that an attacker proves who sees all prefixes: the sum of the nodes over the leaf orders the outcomes.

    Each coordinate is a run of its own, with the leaf moved by `distance` or not. Too much is proven with chance 1e-7.
    """
    nodes, d, sides = nodes_of(leaves), 400, []
    over = np.array([first <= leaf <= last for first, last in nodes])
    for side in (0, 1):
        mechanism = Ledger((TreeEvent("tree", SIGMA, 1.0, leaves, 1),), d, 5 + side, list(range(64)), CPU).tree("tree")
        mechanism.start()
        moved = [np.full((64, d), side * distance * (t == leaf)) for t in range(1, leaves + 1)]
        prefixes = np.array([mechanism.add(vector) for vector in moved]).reshape(leaves, -1)
        sides.append(np.linalg.solve(incidence(leaves), prefixes)[over].sum(axis=0))
    return audit_bounds(sides[0], sides[1], 1e-5, 1e-7).mu_lower


@pytest.mark.parametrize(("leaves", "leaf"), [(8, 1), (8, 4), (8, 8), (13, 9)])
def test_an_attacker_proves_nearly_all_that_is_accounted_and_no_more(leaves, leaf):
    exact = math.sqrt(leaf_nodes(leaves, leaf)) / SIGMA
    assert 0.9 * exact < proven_mu(leaves, leaf) <= exact


def test_planted_node_without_noise_is_caught(monkeypatch):
    """As the paper prints NODE, leaves at powers of two are in no node of their own: here the node that ends at 4."""
    original = TreeMechanism._node_noise

    def forgetful(self, step):
        noise = original(self, step)
        return 0.0 * noise if self._leaf == 4 else noise

    monkeypatch.setattr(TreeMechanism, "_node_noise", forgetful)
    assert proven_mu(8, 1) > tree_mu(1.0, SIGMA, 8)
