"""A stage runs on the device that the environment asks for, whatever the configuration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.files import read_json
from dprepro.privacy.audit import MIN_REPLICATES
from dprepro.stages.audit import audit_algorithm


def test_an_audit_follows_the_environment_before_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dprepro.arrays.gpu_problem", lambda: "there is none")
    spec = {
        "algorithm": "dp_gd",
        "settings": [{"variant": "certified", "epsilon": [1]}],
        "delta": 1e-3,
        "replicates": MIN_REPLICATES,
        "seed": 0,
        "device": "gpu",
    }
    with pytest.raises(UserError, match="by the argument, but there is none"):
        audit_algorithm(spec, tmp_path / "audit.json")
    monkeypatch.setenv("DPREPRO_DEVICE", "cpu")
    audit_algorithm(spec, tmp_path / "audit.json")
    assert len(read_json(tmp_path / "audit.json")["rows"]) == 1
