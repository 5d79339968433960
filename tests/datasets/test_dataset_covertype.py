from __future__ import annotations

import gzip
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from dprepro import datasets
from dprepro.datasets import covertype

# Read before the fixtures hide it: a folder that may hold UCI's own file.
USER_DATA_DIR = os.environ.get("DPREPRO_DATA_DIR")


def test_embedded_covertype_is_the_genuine_uci_file(covertype_csv: bytes) -> None:
    assert len(covertype_csv) == 75_169_317
    found = hashlib.sha256(covertype_csv).hexdigest()
    assert found == "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"


def test_class_counts_are_the_published_ones(covertype_table: covertype.Table) -> None:
    counts = np.bincount(covertype_table.cover)
    assert counts.tolist() == [0, 211840, 283301, 35754, 2747, 9493, 17367, 20510]


def test_the_fixed_ranges_cover_the_data_exactly(covertype_table: covertype.Table) -> None:
    low, high = np.array(covertype.RANGES).T
    assert np.array_equal(covertype_table.numeric.min(axis=0), low)
    assert np.array_equal(covertype_table.numeric.max(axis=0), high)


def test_every_row_has_one_wilderness_area_and_one_soil_type_of_equal_weight() -> None:
    data = datasets.load("covertype", rows=2000)
    areas, soils = data.X[:, 10:14], data.X[:, 14:]
    assert np.all(np.count_nonzero(areas, axis=1) == 1)
    assert np.all(np.count_nonzero(soils, axis=1) == 1)
    assert np.array_equal(areas.max(axis=1), soils.max(axis=1))


def test_a_row_is_its_scaled_table_row_divided_by_the_norm(covertype_table: covertype.Table) -> None:
    data = datasets.load("covertype", rows=50, seed=7)
    chosen = np.random.default_rng(7).permutation(covertype.ROWS)[:50]
    low, high = np.array(covertype.RANGES, dtype=float).T
    numeric = (covertype_table.numeric[chosen] - low) / (high - low)
    norms = np.sqrt((numeric**2).sum(axis=1) + 2)
    np.testing.assert_allclose(data.X[:, :10], numeric / norms[:, None], rtol=1e-6)
    assert np.array_equal(data.y > 0, covertype_table.cover[chosen] == 2)
    assert data.origin == "embedded"


@pytest.mark.parametrize("name", ["covtype.data", "covtype.data.gz"])
def test_the_csv_forms_give_the_same_arrays_as_the_embedded_file(
    name: str, data_dir: Path, covertype_csv: bytes
) -> None:
    if USER_DATA_DIR and (Path(USER_DATA_DIR) / name).is_file():
        shutil.copy(Path(USER_DATA_DIR) / name, data_dir)
    else:
        packed = gzip.compress(covertype_csv, compresslevel=1) if name.endswith(".gz") else covertype_csv
        (data_dir / name).write_bytes(packed)
    supplied = datasets.load("covertype", rows=20_000, seed=2)
    (data_dir / name).unlink()
    embedded = datasets.load("covertype", rows=20_000, seed=2)
    assert (supplied.origin, embedded.origin) == ("DPREPRO_DATA_DIR", "embedded")
    assert supplied.checksum == embedded.checksum
