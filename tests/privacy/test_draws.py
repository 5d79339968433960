"""Which numbers a release gets: those of its step of the stream of its event, whoever draws them and in what blocks.

Noise that two releases share cancels in their difference, and noise of another scale is not what was accounted: here
every draw is compared with the stream itself, around the borders of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaincinv
from scipy.stats import gumbel_r, laplace

from dprepro.arrays import Backend, get_backend
from dprepro.errors import LedgerMismatch
from dprepro.privacy.events import (
    DisjointGaussianEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    QueryPart,
    SelectionEvent,
    TreeEvent,
)
from dprepro.privacy.mechanisms import (
    BLOCK_STEPS,
    DISJOINT_STEPS,
    TREE_STEPS,
    DisjointGaussianMechanism,
    Ledger,
    _gumbel,
    _laplace,
)
from dprepro.streams import DRAWN_STEPS, Streams

SEED, REPLICATES, D = 5, (3, None, 8), 2
USED, EMPTY = [0, 2], 1
ALL, ONE = QueryPart(1.0, 40, 40), QueryPart(1.0, 1, 40)
# Noise of the scale one must not be taken for none.
SIGMAS = (0.37, 1.0)


class NoiseKernels:
    """What kernels do for noise, by the streams of the host; it notes what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def normals(self, streams: Streams, first: int, steps: int, d: int, scale: float, dtype: Any) -> np.ndarray:
        self.asked.append(("normals", first, steps))
        return streams.normals(first, steps, d, scale).astype(dtype)

    def tree_prefix(self, totals: np.ndarray, steps: Sequence[int], streams: Streams, scale: float) -> np.ndarray:
        self.asked.append(("tree_prefix", *steps))
        noise = [streams.normals(step, 1, totals.shape[2], scale)[0] for step in steps]
        return np.sum(totals + np.array(noise), axis=0)

    def noisy_max(self, scores: np.ndarray, streams: Streams, first: int, scale: float, noise: str) -> np.ndarray:
        self.asked.append(("noisy_max", first, scale, noise))
        quantile = {"laplace": laplace, "gumbel": gumbel_r}[noise].ppf
        uniforms = streams.uniforms(first, scores.shape[1]).T
        return np.argmax(scores + np.where(uniforms > 0.0, scale * quantile(uniforms), 0.0), axis=1)


@pytest.fixture(params=["host", "short blocks", "kernels"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """NumPy as it is, with little memory, and with kernels."""
    usual = get_backend("cpu", "float64")
    changed = {"host": {}, "short blocks": {"cut": 4}, "kernels": {"kernels": NoiseKernels()}}[request.param]
    return replace(usual, **changed)


def book(event: Event, backend: Backend | None = None) -> Ledger:
    return Ledger((event,), D, SEED, REPLICATES, backend or get_backend("cpu", "float64"))


def stream(purpose: str) -> Streams:
    return Streams(SEED, REPLICATES, purpose)


def normals(sigma: float, steps: int) -> np.ndarray:
    return stream("noise:a").normals(0, steps, D, sigma)


# --- Gaussian noise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", SIGMAS)
def test_release_t_gets_step_t_of_the_stream_and_no_other(backend: Backend, sigma: float) -> None:
    count = 2 * BLOCK_STEPS + 3
    mechanism = book(GaussianEvent("a", sigma, (ALL,), count), backend).gaussian("a")
    drawn = [z for piece in (3, BLOCK_STEPS, BLOCK_STEPS) for z in mechanism.noise(piece)]
    np.testing.assert_array_equal(drawn, normals(sigma, count))
    assert mechanism.drawn == count


def test_without_noise_there_is_nothing_in_any_slot(backend: Backend) -> None:
    (drawn,) = book(GaussianEvent("a", 0.0, (ALL,), 1), backend).gaussian("a").noise(1)
    np.testing.assert_array_equal(drawn, np.zeros((3, D)))


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_sampled_releases_get_their_records_from_a_stream_of_their_own(backend: Backend, batch: int) -> None:
    count = 2 * BLOCK_STEPS // batch + 3
    part = QueryPart(1.0, batch, 40)
    pairs = list(book(GaussianEvent("a", 0.37, (ALL, part), count), backend).gaussian("a").sampled(count))
    records = stream("sample:a")
    expected = records.integers(0, count, 40) if batch == 1 else records.subsets(0, count, batch, 40)
    np.testing.assert_array_equal([index for index, _ in pairs], expected)
    np.testing.assert_array_equal([z for _, z in pairs], normals(0.37, count))


def test_poisson_batches_are_those_of_the_stream(backend: Backend) -> None:
    count = BLOCK_STEPS // 3 + 2
    part = QueryPart(1.0, 3, 40, poisson=True)
    pairs = list(book(GaussianEvent("a", 0.37, (part,), count), backend).gaussian("a").sampled(count))
    records, counts = stream("sample:a").poisson(0, count, 3, 40)
    for step, (batch, z) in enumerate(pairs):
        expected = [[40, *records[step, slot, : counts[step, slot]]] for slot in range(3)]
        assert batch.rows.tolist() == [record for segment in expected for record in segment]
        assert batch.starts.tolist() == np.cumsum([0, *map(len, expected[:-1])]).tolist()
        assert batch.size == 3
        np.testing.assert_array_equal(z, normals(0.37, count)[step])


COPIES = np.array([5, 20, 15])


@pytest.mark.parametrize("poisson", [False, True])
def test_copies_are_counted_as_the_records_would_be_drawn(backend: Backend, poisson: bool) -> None:
    """A batch of fixed size holds exactly so many records; a Poisson batch as many as there happen to be."""
    count = 2 * DRAWN_STEPS + 3
    part = QueryPart(1.0, 7, 40, poisson=poisson)
    mechanism = book(GaussianEvent("a", 0.37, (ALL, part), count), backend).gaussian("a")
    found = [pair for piece in (2, DRAWN_STEPS, DRAWN_STEPS + 1) for pair in mechanism.counted(piece, COPIES)]
    records = stream("sample:a")
    expected = (records.binomials if poisson else records.hypergeometrics)(0, count, 7, COPIES)
    np.testing.assert_array_equal([counts for (counts, _), _ in found], expected)
    assert (np.ptp(expected[:, USED, :].sum(axis=2)) > 0) == poisson
    assert {size for (_, size), _ in found} == {7}
    np.testing.assert_array_equal([z for _, z in found], normals(0.37, count))
    assert mechanism.drawn == count


@pytest.mark.parametrize("copies", [COPIES + 1, COPIES - 1, COPIES[:2]])
def test_copies_of_another_number_of_records_are_refused(copies: np.ndarray) -> None:
    """From more records than are accounted a batch would be rarer: more amplification than the data give."""
    mechanism = book(GaussianEvent("a", 1.0, (QueryPart(1.0, 7, 40),), 3)).gaussian("a")
    with pytest.raises(LedgerMismatch, match="'a' is planned for 40 records, not these"):
        next(mechanism.counted(3, copies))
    assert mechanism.drawn == 0


# --- steps in a kernel --------------------------------------------------------------------------------------------


HALF_POISSON = QueryPart(1.0, 1, 40, poisson=True)
OBSTACLE = "batches other than of one record"


@pytest.mark.parametrize(
    ("parts", "obstacle"),
    [
        ((ONE,), ""),
        ((ALL, ONE), ""),
        ((ONE, ALL), ""),
        ((ALL,), OBSTACLE),
        ((QueryPart(1.0, 1, 1),), OBSTACLE),
        ((QueryPart(1.0, 2, 40),), OBSTACLE),
        ((HALF_POISSON,), OBSTACLE),
        ((QueryPart(1.0, 1, 1), QueryPart(1.0, 2, 40)), OBSTACLE),
        ((QueryPart(1.0, 1, 1), HALF_POISSON), OBSTACLE),
    ],
)
def test_a_kernel_draws_only_for_events_on_one_random_record(parts: tuple[QueryPart, ...], obstacle: str) -> None:
    """It draws one record whatever the event says: a batch of eight would be accounted with an eighth of its effect."""
    ledger = book(GaussianEvent("a", 1.0, parts, 3))
    mechanism = ledger.gaussian("a")
    assert mechanism.obstacle_to_steps == obstacle
    if obstacle:
        with pytest.raises(LedgerMismatch, match=f"one record for each release, but the event 'a' is for {OBSTACLE}"):
            mechanism.handed_over(3)
        assert not ledger.begun
        return
    mechanism.handed_over(3)
    ledger.check(sampled=True)


def test_what_is_handed_over_to_a_kernel_are_the_next_steps_of_both_streams() -> None:
    mechanism = book(GaussianEvent("a", 0.37, (ONE,), 9)).gaussian("a")
    list(mechanism.sampled(2))
    draws = mechanism.handed_over(3)
    assert (draws.first, draws.count, draws.sigma, draws.index) == (2, 3, 0.37, None)
    np.testing.assert_array_equal(draws.noise.keys, stream("noise:a").keys)
    np.testing.assert_array_equal(draws.samples.keys, stream("sample:a").keys)
    assert (mechanism.drawn, mechanism.handed_over(4).first) == (5, 5)
    with pytest.raises(LedgerMismatch, match="planned for 9 releases, but 10"):
        mechanism.handed_over(1)


def test_the_records_that_a_kernel_draws_are_at_hand_and_must_be_looked_at() -> None:
    ledger = Ledger((GaussianEvent("a", 1.0, (ONE,), 2),), D, SEED, REPLICATES, get_backend("cpu"), lambda: 1)
    draws = ledger.gaussian("a").handed_over(1)
    assert ledger.at_hand["a"].batch is draws
    with pytest.raises(LedgerMismatch, match="was not looked at before its release was over"):
        ledger.gaussian("a").handed_over(1)


# --- disjoint batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigmas", [(0.37, 1.0), (1.0, 0.37), (0.25, 0.0)])
def test_disjoint_releases_get_the_noise_of_their_kind_and_of_their_step(
    backend: Backend, sigmas: tuple[float, float]
) -> None:
    count = 3 * DISJOINT_STEPS + 2
    ledger = book(DisjointGaussianEvent("a", sigmas, (1.0, 1.0), count), backend)
    mechanism = ledger.disjoint_gaussian("a")
    kinds = [step % 3 // 2 for step in range(count)]
    drawn = [mechanism.noise(kind) for kind in kinds]
    units = normals(1.0, count)
    expected = [np.float32(sigmas[kind]) * unit for kind, unit in zip(kinds, units, strict=True)]
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)
    assert mechanism.drawn == count
    if isinstance(backend.kernels, NoiseKernels):
        noisy = [step for step, kind in enumerate(kinds) if sigmas[kind] > 0.0]
        assert backend.kernels.asked == [("normals", step, 1) for step in noisy]
    ledger.check(fresh=True)
    with pytest.raises(LedgerMismatch, match=f"planned for {count} releases, but {count + 1}"):
        mechanism.noise(0)


def test_noise_is_not_used_again_where_the_first_release_of_a_block_needs_none() -> None:
    """The block of the releases before it must not serve those behind it."""
    count = 3 * DISJOINT_STEPS
    mechanism = book(DisjointGaussianEvent("a", (1.0, 0.0), (1.0, 1.0), count)).disjoint_gaussian("a")
    drawn = np.array([mechanism.noise(int(step % DISJOINT_STEPS == 0)) for step in range(count)])
    noisy = [z.tobytes() for step, z in enumerate(drawn) if step % DISJOINT_STEPS]
    assert len(set(noisy)) == len(noisy)
    assert not drawn[::DISJOINT_STEPS].any()


def test_disjoint_noise_is_drawn_once_for_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    original = Streams.normals
    monkeypatch.setattr(Streams, "normals", lambda self, *given: asked.append(given) or original(self, *given))
    mechanism = book(DisjointGaussianEvent("a", (1.0,), (1.0,), 40)).disjoint_gaussian("a")
    assert isinstance(mechanism, DisjointGaussianMechanism)
    for _ in range(40):
        mechanism.noise(0)
    assert asked == [(0, DISJOINT_STEPS, D), (DISJOINT_STEPS, DISJOINT_STEPS, D)]


# --- Laplace noise and selections ---------------------------------------------------------------------------------


def test_laplace_noise_is_the_quantile_of_the_uniforms_of_its_step(backend: Backend) -> None:
    event = LaplaceEvent("a", 0.7, 1.0, 5)
    ledger = book(event, backend)
    drawn = np.array([z for piece in (2, 3) for z in ledger.laplace("a").noise(piece)])
    uniforms = stream("noise:a").uniforms(0, 5 * D).reshape(5, D, 3).transpose(0, 2, 1)
    np.testing.assert_allclose(drawn[:, USED], laplace.ppf(uniforms[:, USED], scale=0.7), rtol=1e-12)
    assert not drawn[:, EMPTY].any()
    ledger.check(full=True)


@pytest.mark.parametrize(("quantile", "law"), [(_laplace, laplace), (_gumbel, gumbel_r)])
def test_quantiles_are_those_of_the_law_and_zero_in_empty_slots(quantile: Any, law: Any) -> None:
    uniforms = np.array([2.0**-54, 12345.5 * 2.0**-53, 0.1, 0.3, 0.6, 0.9, 1.0 - 2.0**-53])  # as streams have them
    np.testing.assert_allclose(quantile(uniforms), law.ppf(uniforms), rtol=1e-12)
    assert quantile(np.zeros(1)) == 0.0


@pytest.mark.parametrize("noise", ["laplace", "gumbel"])
def test_a_selection_adds_the_noise_of_its_own_candidates(backend: Backend, noise: str) -> None:
    candidates, count, scale = 4, 60, 0.8
    ledger = book(SelectionEvent("a", noise, scale, 1.0, count), backend)
    scores = np.tile(np.linspace(0.0, 1.0, candidates), (3, 1))
    chosen = np.array([ledger.selection("a").largest(scores) for _ in range(count)])
    uniforms = stream("noise:a").uniforms(0, count * candidates).reshape(count, candidates, 3).transpose(0, 2, 1)
    quantile = {"laplace": laplace, "gumbel": gumbel_r}[noise].ppf
    expected = np.argmax(scores[USED] + scale * quantile(uniforms[:, USED]), axis=2)
    np.testing.assert_array_equal(chosen[:, USED], expected)
    assert np.all(chosen[:, EMPTY] == candidates - 1), "empty slots get no noise"
    assert len(np.unique(expected)) == candidates
    ledger.check(full=True)
    if isinstance(backend.kernels, NoiseKernels):
        assert backend.kernels.asked == [("noisy_max", step * candidates, scale, noise) for step in range(count)]


# --- trees --------------------------------------------------------------------------------------------------------


def cut(t: int) -> list[tuple[int, int]]:
    """The nodes (first leaf, last leaf) that the first t leaves are cut into, largest first."""
    found, done = [], 0
    for level in reversed(range(t.bit_length())):
        if t >> level & 1:
            found.append((done + 1, done + 2**level))
            done += 2**level
    return found


@pytest.mark.parametrize("sigma", [*SIGMAS, 0.0])
def test_a_node_of_a_tree_gets_the_noise_of_the_leaf_that_completes_it(backend: Backend, sigma: float) -> None:
    leaves, trees = 13, 3
    assert leaves * trees > TREE_STEPS, "more than one block"
    ledger = book(TreeEvent("a", sigma, 1.0, leaves, trees), backend)
    mechanism = ledger.tree("a")
    noise = stream("noise:a").normals(0, leaves * trees, D, sigma).astype(np.float64).reshape(trees, leaves, 3, D)
    vectors = np.random.default_rng(0).normal(size=(trees, leaves, 3, D))
    for number in range(trees):
        mechanism.start()
        for t in range(1, leaves + 1):
            nodes = [vectors[number, first - 1 : last].sum(axis=0) + noise[number, last - 1] for first, last in cut(t)]
            np.testing.assert_allclose(mechanism.add(vectors[number, t - 1]), np.sum(nodes, axis=0), atol=1e-12)
    assert mechanism.drawn == trees
    ledger.check(fresh=True)
    if isinstance(backend.kernels, NoiseKernels):
        steps = [
            leaves * number + last - 1 for number in range(trees) for t in range(1, leaves + 1) for _, last in cut(t)
        ]
        assert [step for asked in backend.kernels.asked for step in asked[1:]] == steps


# --- objective perturbation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_a_random_linear_term_has_the_direction_of_the_first_normals_and_its_own_radius(
    backend: Backend, noise: str
) -> None:
    ledger = book(ObjectivePerturbationEvent("a", noise, 0.7, 1.0, 1.0, 1.0, 1), backend)
    found = ledger.objective_perturbation("a").draw()
    unit = normals(1.0, 1)[0].astype(np.float64)
    assert not found[EMPTY].any()
    if noise == "gaussian":
        np.testing.assert_allclose(found, 0.7 * unit, rtol=1e-12)
    else:
        radius = 0.7 * gammaincinv(D, stream("radius:a").uniforms(0, 1)[0])
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), radius, rtol=1e-12)
        directions = found[USED] / radius[USED, None]
        np.testing.assert_allclose(
            directions, unit[USED] / np.linalg.norm(unit[USED], axis=1, keepdims=True), rtol=1e-12
        )
    ledger.check(full=True)
