"""Seals: what is written is read back, and every change of a file is noticed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import assert_one_sentence

from dprepro import digests
from dprepro.collected import read_collected, write_collected
from dprepro.errors import UserError
from dprepro.files import (
    read_publication,
    read_record,
    read_result,
    write_arrays,
    write_publication,
    write_record,
    write_sealed,
)

ARRAYS = {"w": np.arange(12.0).reshape(3, 4), "rounds": np.arange(3)}
RECORD = {"job": {"epsilon": "inf", "label": "Größe"}, "seconds": [0.25, None], "digest": "of an earlier file"}


def sealed(folder: Path) -> list[Path]:
    """Return one sealed file of every kind."""
    write_record(folder / "record.json", RECORD)
    write_arrays(folder / "arrays.npz", ARRAYS)
    frame = pd.DataFrame({"value": np.linspace(0.0, 1.0, 7), "job": "a"})
    write_collected(
        [frame], {"origins": ["{}"]}, folder / "table.parquet", made_from={"runs/table/a.json": "0" * 64}, made_by={}
    )
    write_sealed(folder / "page.html", f"<p>0.999</p><!-- {digests.BLANK.decode()} -->")
    return [folder / name for name in ("record.json", "arrays.npz", "table.parquet", "page.html")]


def test_the_seal_is_the_sha256_of_the_file_with_zeros_in_its_place(tmp_path: Path) -> None:
    for path in sealed(tmp_path):
        digest = digests.check(path)
        content = path.read_bytes()
        assert content.count(digest.encode()) == 1
        assert hashlib.sha256(content.replace(digest.encode(), b"0" * 64)).hexdigest() == digest


def test_what_was_sealed_is_read_back(tmp_path: Path) -> None:
    record, arrays, table, _ = sealed(tmp_path)
    assert read_record(record) == {**RECORD, "file": digests.name_of(record), "digest": digests.check(record)}
    found = read_result(arrays, "w", record={"arrays": digests.check(arrays)})
    assert all(np.array_equal(found[name], values) for name, values in ARRAYS.items())
    frame, metadata = read_collected(table)
    assert list(frame["value"]) == list(np.linspace(0.0, 1.0, 7))
    assert metadata["digest"] == digests.check(table)
    assert metadata["made_from"] == {"runs/table/a.json": "0" * 64}


def test_equal_content_has_equal_bytes(tmp_path: Path) -> None:
    for first, second in zip(sealed(tmp_path / "a" / "here"), sealed(tmp_path / "b" / "here"), strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_a_copy_under_another_name_is_noticed(tmp_path: Path) -> None:
    record, _, table, _ = sealed(tmp_path / "here")
    for path, read in ((record, read_record), (table, read_collected)):
        for copy in (path.with_stem("other"), tmp_path / "there" / path.name):
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
            with pytest.raises(UserError, match=f"was written as here/{path.name}, not as {digests.name_of(copy)}"):
                read(copy)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    chance = random.Random(0)
    for path in sealed(tmp_path):
        content = path.read_bytes()
        for _ in range(150):
            damaged = bytearray(content)
            damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises(UserError) as caught:
                digests.check(path)
            assert_one_sentence(str(caught.value))
            assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b'{"digest": "none"}', "carries no seal"),
        (b"sealed:" + b"0" * 20, "carries no seal"),
        (b"0.5 " + digests.BLANK, "was changed after it was written"),
    ],
)
def test_a_file_without_a_true_seal_is_told_in_one_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        digests.check(path)
    assert "remove it and make it again" in str(caught.value)


def test_a_text_may_hold_the_mark_of_a_seal(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    digest = write_sealed(path, f"{digests.BLANK.decode()} and then: sealed:nothing, sealed:")
    assert digests.check(path) == digest


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        digests.check(tmp_path / "a.json")


def test_a_whole_file_in_place_of_another_is_noticed(tmp_path: Path) -> None:
    expected = write_arrays(tmp_path / "a.npz", ARRAYS)
    write_arrays(tmp_path / "a.npz", {**ARRAYS, "rounds": np.arange(3) + 1})
    with pytest.raises(UserError, match=r"a\.npz is not the one that .*a\.json was made with: expected digest"):
        read_result(tmp_path / "a.npz", "w", record={"arrays": expected})


def test_files_of_a_figure_are_held_to_the_record_beside_them(tmp_path: Path) -> None:
    place = tmp_path / "figure"
    for suffix in ("svg", "md"):
        place.with_suffix(f".{suffix}").write_text("0.25")
    write_publication(place, ("svg", "md"), made_from={"data": "0" * 64}, incomplete=[])
    assert read_publication(place)["made_from"] == {"data": "0" * 64}
    place.with_suffix(".svg").write_text("0.26")
    with pytest.raises(UserError, match=r"figure\.svg was changed after it was written"):
        read_publication(place)


def test_plain_values_have_one_digest_in_any_order() -> None:
    plan = {"sigma": 0.1, "events": [{"count": 3}], "epsilon": "inf"}
    assert digests.of_value(plan) == digests.of_value(dict(reversed(plan.items())))
    assert digests.of_value(plan) == digests.of_value(json.loads(json.dumps(plan)))
    assert digests.of_value(plan) != digests.of_value({**plan, "sigma": np.nextafter(0.1, 1.0)})


def test_a_certificate_belongs_to_one_plan() -> None:
    plan = {"sigma": 1.0}
    digests.check_binding({"plan_digest": digests.of_value(plan)}, plan, "p.json")
    for certificate in ({"plan_digest": digests.of_value(plan)}, {}):
        with pytest.raises(UserError, match=r"The certificate in p\.json is not that of its plan: expected"):
            digests.check_binding(certificate, {"sigma": 0.1}, "p.json")
