"""Checkouts of one's own with a workflow of a few seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import CONFIG, TEXT, Tiny
from workflow.conftest import Checkout, checkout, made_once, pristine

__all__ = ["checkout", "pristine"]


@pytest.fixture
def tiny(checkout: Checkout) -> Tiny:
    """A tiny checkout of one's own in which nothing has been run."""
    return configured(checkout)


def configured(checkout: Checkout) -> Tiny:
    """Return the checkout with the small configuration in it."""
    (checkout.folder / CONFIG).write_text(TEXT, encoding="utf-8")
    return Tiny(checkout.folder)


@pytest.fixture(scope="session")
def made(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny checkout in which the table was made undisturbed. Not to be changed: take `ready`."""
    return Tiny(made_once(tmp_path_factory, "tiny", pristine, lambda checkout: configured(checkout).makes_all()))


@pytest.fixture
def ready(made: Tiny, tmp_path: Path) -> Tiny:
    """A tiny checkout of one's own in which the table is up to date."""
    return Tiny(made.copy(tmp_path / "ready").folder)
