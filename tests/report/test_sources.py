"""What the report is made from decides when it is made again, and is in the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

from dprepro.provenance import PACKAGE, sources
from dprepro.report.page import ASSETS
from dprepro.workflow import source_modules

ROOT = Path(__file__).parents[2]


def test_the_digest_covers_every_module_of_the_report_and_no_algorithm():
    found = set(sources(source_modules("report")))
    # The file of the package itself holds a docstring alone.
    assert set(PACKAGE.glob("report/[a-z]*.py")) <= found
    assert not {path for path in found if path.is_relative_to(PACKAGE / "algorithms")}


def test_the_style_and_the_script_are_all_that_the_digest_adds_and_are_installed():
    assert set(PACKAGE.glob("report/report.*")) == set(ASSETS)
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["dprepro"]
    assert {path for pattern in patterns for path in PACKAGE.glob(pattern)} >= set(ASSETS)
