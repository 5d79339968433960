from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dprepro import datasets
from dprepro.datasets import adult, covertype
from dprepro.datasets.sources import EMBEDDED, RawFile, cache_folder, fetch
from dprepro.errors import UserError

CONTENT = b"1,2,3\n4,5,6\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FORMS = (RawFile("tiny.data.gz", SHA256, "tiny", at_uci=True), RawFile("tiny.data", SHA256, "tiny"))
Serve = Callable[[dict[str, bytes]], str]


def refusal(forms: tuple[RawFile, ...] = FORMS, **arguments: object) -> str:
    """Return the sentence with which fetching `forms` is refused."""
    with pytest.raises(UserError) as caught:
        fetch(forms, **arguments)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


def dead_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_the_sources_are_asked_in_the_documented_order(
    tmp_path: Path, data_dir: Path, cache: Path, serve: Serve
) -> None:
    address = serve({"/tiny/tiny.data.gz": gzip.compress(CONTENT)})
    embedded = tmp_path / "embedded"
    for folder in (data_dir, cache, embedded):
        folder.mkdir(exist_ok=True)
        (folder / "tiny.data").write_bytes(CONTENT)
    origins = []
    for folder in (data_dir, cache, embedded):
        origins.append(fetch(FORMS, base_address=address, embedded=embedded).origin)
        (folder / "tiny.data").unlink()
    origins += [fetch(FORMS, base_address=address, embedded=embedded).origin for _ in range(2)]
    assert origins == ["DPREPRO_DATA_DIR", "cache", "embedded", "download", "cache"]


@pytest.mark.parametrize("place", ["tiny.data", "tiny.data.gz", "tiny/tiny.data", "tiny/tiny.data.gz"])
def test_a_supplied_file_is_found_packed_or_not_and_in_uci_s_folder(place: str, data_dir: Path) -> None:
    path = data_dir / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(CONTENT) if path.suffix == ".gz" else CONTENT)
    found = fetch(FORMS)
    assert (found.content, found.origin, found.file.name) == (CONTENT, "DPREPRO_DATA_DIR", path.name)


def test_a_supplied_adult_file_is_used_and_named_as_origin(data_dir: Path) -> None:
    (data_dir / "adult.data").write_bytes(gzip.decompress((EMBEDDED / "adult.data.gz").read_bytes()))
    supplied = datasets.load("adult", rows=500)
    embedded_test = datasets.load("adult", rows=500, split="test")
    assert (supplied.origin, embedded_test.origin) == ("DPREPRO_DATA_DIR", "embedded")


def test_a_data_folder_that_does_not_exist_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPREPRO_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"DPREPRO_DATA_DIR=.*nowhere is not a folder: create it"):
        datasets.load("adult")


def test_a_wrong_supplied_file_is_refused_with_both_checksums(data_dir: Path) -> None:
    (data_dir / "covtype.data").write_bytes(CONTENT)
    with pytest.raises(UserError) as caught:
        datasets.load("covertype", rows=10)
    sentence = str(caught.value)
    for part in (str(data_dir / "covtype.data"), covertype.FORMS[2].sha256, SHA256, "unset DPREPRO_DATA_DIR"):
        assert part in sentence


@pytest.mark.parametrize(("name", "dataset"), [("covtype.compact.xz", "covertype"), ("adult.data.gz", "adult")])
@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_a_truncated_file_is_refused(name: str, dataset: str, size: int, data_dir: Path) -> None:
    (data_dir / name).write_bytes((EMBEDDED / name).read_bytes()[:size])
    with pytest.raises(UserError, match=rf"{re.escape(str(data_dir / name))} is (damaged|not the genuine)"):
        datasets.load(dataset, rows=10)


def test_a_file_with_one_changed_byte_is_refused(data_dir: Path) -> None:
    content = bytearray(gzip.decompress((EMBEDDED / "adult.data.gz").read_bytes()))
    content[1] ^= 1
    (data_dir / "adult.data.gz").write_bytes(gzip.compress(bytes(content), compresslevel=1))
    assert "is not the genuine adult.data.gz" in refusal(adult.SPLITS["train"])


def test_a_folder_in_place_of_a_file_is_refused(data_dir: Path) -> None:
    (data_dir / "tiny.data").mkdir()
    assert "cannot be read (Is a directory)" in refusal()


def test_a_corrupt_cached_file_is_refused_and_to_be_removed(cache: Path) -> None:
    cache.mkdir()
    shutil.copy(EMBEDDED / "adult.test.gz", cache / "adult.data.gz")
    with pytest.raises(UserError, match=r"cache/adult\.data\.gz is not the genuine .*; remove it and run again"):
        datasets.load("adult")


def test_a_corrupt_embedded_file_asks_for_a_new_installation(tmp_path: Path) -> None:
    (tmp_path / "tiny.data").write_bytes(b"x")
    assert "install dprepro again" in refusal(embedded=tmp_path)


def test_the_cache_folder_defaults_to_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPREPRO_CACHE_DIR")
    assert cache_folder().name == "dprepro"


def test_a_download_is_verified_and_kept(cache: Path, serve: Serve) -> None:
    packed = (EMBEDDED / "adult.test.gz").read_bytes()
    address = serve({"/adult/adult.test": gzip.decompress(packed)})
    found = fetch(adult.SPLITS["test"], base_address=address, embedded=cache)
    assert (found.origin, found.file.name) == ("download", "adult.test")
    assert [path.name for path in cache.iterdir()] == ["adult.test"]
    assert datasets.load("adult", rows=10, split="test").origin == "cache"


@pytest.mark.parametrize(
    "page",
    [gzip.compress(b"other"), gzip.compress(CONTENT)[:-9], b"<html>moved</html>", b""],
    ids=["other content", "truncated", "a web page", "nothing"],
)
def test_wrong_bytes_from_the_server_are_refused_and_not_kept(page: bytes, cache: Path, serve: Serve) -> None:
    address = serve({"/tiny/tiny.data.gz": page})
    sentence = refusal(base_address=address)
    assert f"{address}/tiny/tiny.data.gz is " in sentence
    assert "put tiny.data.gz or tiny.data into a folder and set DPREPRO_DATA_DIR to it" in sentence
    assert list(cache.iterdir()) == []


def test_a_file_missing_on_the_server_is_reported_with_its_status(cache: Path, serve: Serve) -> None:
    assert "(HTTP status 404): check the network" in refusal(base_address=serve({}))
    assert list(cache.iterdir()) == []


def test_no_network_is_one_sentence_and_leaves_nothing(cache: Path) -> None:
    address = dead_address()
    sentence = refusal(base_address=address)
    assert sentence.startswith(f"Cannot download {address}/tiny/tiny.data.gz (ConnectionError): check the network")
    assert list(cache.iterdir()) == []


def test_offline_nothing_is_downloaded(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    address = serve({"/tiny/tiny.data.gz": gzip.compress(CONTENT)})
    monkeypatch.setenv("DPREPRO_OFFLINE", "1")
    sentence = refusal(base_address=address)
    assert sentence.startswith("tiny.data.gz is needed but DPREPRO_OFFLINE forbids downloads: put tiny.data.gz or")
    assert not cache.exists()
    monkeypatch.setenv("DPREPRO_OFFLINE", "0")
    assert fetch(FORMS, base_address=address).origin == "download"


def test_a_file_that_nobody_offers_is_to_be_supplied() -> None:
    assert refusal(FORMS[1:]).startswith("No source has tiny.data and it cannot be downloaded: put tiny.data")


def test_a_cache_that_cannot_be_written_is_reported(cache: Path, serve: Serve) -> None:
    cache.write_text("a file, not a folder")
    address = serve({"/tiny/tiny.data.gz": gzip.compress(CONTENT)})
    assert refusal(base_address=address).startswith(f"Cannot write {cache / 'tiny.data.gz'}")
