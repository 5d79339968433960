"""Disks of one's own: a command in a private mount namespace, which leaves no trace on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest


def _prefix() -> list[str]:
    # Root needs no user namespace, in which it could not become somebody else.
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


def _possible() -> bool:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    trial = [*_prefix(), "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not _possible(), reason="this system lets nobody mount a disk in a namespace")


def in_namespace(script: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a shell script in a folder, with mounts of its own; return its exit code and all that it said."""
    done = subprocess.run(
        [*_prefix(), "bash", "-c", script],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout
