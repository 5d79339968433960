"""Tests of my_loss: derivatives against differences, and the two constants that privacy and steps rest on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dprepro import extensions
from dprepro.losses import Loss, get_loss

NAME = "my_loss"
# Points and labels that meet every part of the loss; a margin loss sees y t in place of t.
T, Y = (grid.ravel() for grid in np.meshgrid(np.linspace(-6.0, 6.0, 1001), np.linspace(-1.0, 1.0, 5)))
STEP = 1e-5


@pytest.fixture
def loss(monkeypatch: pytest.MonkeyPatch) -> Loss:
    """The loss, from the extension folder that this file is in."""
    monkeypatch.setenv(extensions.VARIABLE, str(Path(__file__).parents[1]))
    return get_loss(NAME)


def test_the_derivative_is_that_of_the_value(loss: Loss) -> None:
    slope = (loss.value(np, T + STEP, Y) - loss.value(np, T - STEP, Y)) / (2.0 * STEP)
    np.testing.assert_allclose(loss.derivative(np, T, Y), slope, atol=1e-8)


def test_the_curvature_is_that_of_the_derivative(loss: Loss) -> None:
    bend = (loss.derivative(np, T + STEP, Y) - loss.derivative(np, T - STEP, Y)) / (2.0 * STEP)
    np.testing.assert_allclose(loss.curvature(np, T, Y), bend, atol=1e-8)


def test_the_curvature_is_nowhere_negative_if_the_loss_is_said_to_be_convex(loss: Loss) -> None:
    assert not loss.convex or loss.curvature(np, T, Y).min() >= 0.0


def test_the_lipschitz_constant_bounds_every_derivative_and_is_reached(loss: Loss) -> None:
    steepest = np.abs(loss.derivative(np, T, Y)).max()
    declared = loss.lipschitz(row_norm=1.0, radius=6.0, label_bound=1.0)
    assert 0.99 * declared <= steepest <= declared * (1.0 + 1e-12)
    assert loss.lipschitz(row_norm=3.0, radius=6.0, label_bound=1.0) == pytest.approx(3.0 * declared)


def test_the_smoothness_bounds_every_curvature_and_is_reached(loss: Loss) -> None:
    declared = loss.smoothness(row_norm=1.0)
    assert 0.99 * declared <= np.abs(loss.curvature(np, T, Y)).max() <= declared * (1.0 + 1e-12)
    assert loss.smoothness(row_norm=3.0) == pytest.approx(9.0 * declared)
