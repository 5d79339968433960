"""What tests need of the machine is never missed in silence."""

from __future__ import annotations

import pytest
from support import require


def test_what_is_missing_skips_a_test_and_fails_it_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPREPRO_REQUIRE", raising=False)
    require("slurm", True, "never said")
    with pytest.raises(pytest.skip.Exception, match="no slurmd"):
        require("slurm", False, "no slurmd")
    monkeypatch.setenv("DPREPRO_REQUIRE", "chromium")
    with pytest.raises(pytest.skip.Exception):
        require("slurm", False, "no slurmd")
    monkeypatch.setenv("DPREPRO_REQUIRE", "chromium,slurm")
    with pytest.raises(pytest.fail.Exception, match="asks for slurm: no slurmd"):
        require("slurm", False, "no slurmd")
