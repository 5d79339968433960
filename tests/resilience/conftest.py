"""Checkouts of one's own with a workflow of a few seconds."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from tiny import CONFIG, TEXT, Tiny
from workflow.conftest import Checkout, checkout, pristine

__all__ = ["checkout", "pristine"]


@pytest.fixture
def tiny(checkout: Checkout) -> Tiny:
    """A tiny checkout of one's own in which nothing has been run."""
    (checkout.folder / CONFIG).write_text(TEXT, encoding="utf-8")
    return Tiny(checkout.folder)


@pytest.fixture(scope="session")
def made(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny checkout in which the table was made undisturbed. Not to be changed: take `ready`."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "tiny.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "tiny").exists():
            shutil.rmtree(shared / "tiny-unfinished", ignore_errors=True)
            folder = pristine.copy(shared / "tiny-unfinished").folder
            (folder / CONFIG).write_text(TEXT, encoding="utf-8")
            Tiny(folder).makes_all()
            folder.rename(shared / "tiny")
    return Tiny(shared / "tiny")


@pytest.fixture
def ready(made: Tiny, tmp_path: Path) -> Tiny:
    """A tiny checkout of one's own in which the table is up to date."""
    return Tiny(made.copy(tmp_path / "ready").folder)
