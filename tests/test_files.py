"""Result files: written whole or not at all, the same bytes for the same content, damage reported in words."""

from __future__ import annotations

import errno
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dprepro import files
from dprepro.errors import UserError

ARRAYS = {"w": np.arange(6.0).reshape(2, 3), "rounds": np.array([0, 1, 2]), "value": np.array(0.1)}
WRITERS: dict[str, Callable[[Path], None]] = {
    "bytes": lambda path: files.write_bytes(path, b"new"),
    "text": lambda path: files.write_text(path, "new"),
    "json": lambda path: files.write_json(path, {"a": 1}),
    "arrays": lambda path: files.write_arrays(path, ARRAYS),
}
every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())


class Interrupted(BaseException):
    """Like KeyboardInterrupt, but pytest does not stop at it."""


@pytest.mark.parametrize("error", [ValueError, Interrupted, KeyboardInterrupt, OSError])
def test_an_exception_leaves_the_old_file_and_nothing_else(error: type[BaseException], tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with files.atomic_path(target) as temporary:
            temporary.write_bytes(b"half")
            assert temporary.parent == tmp_path, "renaming is atomic within one folder only"
            raise error

    with pytest.raises(error):
        interrupted()
    assert os.listdir(tmp_path) == ["result"]
    assert target.read_bytes() == b"old"


def test_an_exception_before_anything_is_written_is_passed_on_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), files.atomic_path(tmp_path / "result"):
        1 / 0
    assert os.listdir(tmp_path) == []


def test_the_target_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "result"
    with files.atomic_path(target) as temporary:
        temporary.write_bytes(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert os.listdir(target.parent) == ["result"]


@every_writer
def test_an_old_file_is_replaced(write: Callable[[Path], None], tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.write_bytes(b"old")
    write(target)
    assert target.read_bytes() != b"old"
    assert os.listdir(tmp_path) == ["result"]


@every_writer
@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "a folder you may write to"),
        (errno.EROFS, "a folder you may write to"),
        (errno.EPERM, "a folder you may write to"),
    ],
    ids=lambda value: errno.errorcode.get(value) if isinstance(value, int) else None,
)
def test_a_full_or_forbidden_disk_is_reported_and_the_old_file_kept(
    write: Callable[[Path], None], number: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "result"
    target.write_bytes(b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UserError, match=advice) as caught:
        write(target)
    assert str(target) in str(caught.value)
    assert os.listdir(tmp_path) == ["result"]
    assert target.read_bytes() == b"old"


def test_a_disk_that_fills_up_while_writing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(UserError, match="No space left on the disk while writing"):
        files.write_text(tmp_path / "result", "a long text")
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_while_arrays_are_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(UserError, match="No space left on the disk while writing"):
        files.write_arrays(tmp_path / "result.npz", ARRAYS)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_the_real_thing_a_device_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def into_full_device(self: Path, content: bytes) -> int:
        with open("/dev/full", "wb") as file:
            return file.write(content)

    monkeypatch.setattr(Path, "write_bytes", into_full_device)
    with pytest.raises(UserError, match="No space left on the disk while writing"):
        files.write_bytes(tmp_path / "result", b"x")


@every_writer
@pytest.mark.parametrize("below", ["file/result", "file/folder/result"])
def test_a_path_below_a_regular_file_is_refused(write: Callable[[Path], None], below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(UserError, match="choose another output path"):
        write(tmp_path / below)
    assert (tmp_path / "file").read_bytes() == b"old"


@every_writer
def test_a_folder_in_the_place_of_the_file_is_refused(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "result").mkdir()
    with pytest.raises(UserError, match="choose another output path"):
        write(tmp_path / "result")
    assert os.listdir(tmp_path) == ["result"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    """Root may write everywhere, so the child that tries becomes nobody first; it starts in the folder, by no path."""
    (tmp_path / "result").write_text("old")
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                os.setuid(65534)
            files.write_text("result", "new")
            said = "written"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    assert said == "UserError: Cannot write result: Permission denied. Choose a folder you may write to."
    tmp_path.chmod(stat.S_IRWXU)
    assert os.listdir(tmp_path) == ["result"]
    assert (tmp_path / "result").read_text() == "old"


def test_another_system_error_is_not_dressed_up_as_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="Input/output error"):
        files.write_text(tmp_path / "result", "text")
    assert os.listdir(tmp_path) == []


def test_arrays_come_back_with_values_shapes_and_types(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        **ARRAYS,
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "empty": np.zeros((0, 4)),
        "special": np.array([np.nan, np.inf, -np.inf, -0.0]),
    }
    files.write_arrays(tmp_path / "a.npz", given)
    found = files.read_arrays(tmp_path / "a.npz")
    assert set(found) == set(given)
    for name, array in given.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_equal_arrays_give_equal_bytes_at_any_time_and_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_arrays(tmp_path / "first.npz", ARRAYS)
    # Years later, in another layout in memory and another order of the names.
    monkeypatch.setattr("time.time", lambda: 2.0e9)
    later = {name: ARRAYS[name].copy(order="F") for name in reversed(ARRAYS)}
    files.write_arrays(tmp_path / "second.npz", later)
    assert (tmp_path / "first.npz").read_bytes() == (tmp_path / "second.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "first.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_one_changed_bit_gives_other_bytes(tmp_path: Path) -> None:
    files.write_arrays(tmp_path / "first.npz", ARRAYS)
    files.write_arrays(tmp_path / "second.npz", {**ARRAYS, "value": np.nextafter(ARRAYS["value"], 1.0)})
    assert (tmp_path / "first.npz").read_bytes() != (tmp_path / "second.npz").read_bytes()


def damaged(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    return {
        "empty": b"",
        "cut short": content[:middle],
        "last byte lost": content[:-1],
        "flipped": content[:middle] + bytes(b ^ 0xFF for b in content[middle : middle + 16]) + content[middle + 16 :],
        "text": b"these are not arrays",
    }


@pytest.mark.parametrize("damage", list(damaged(b"")))
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_a_damaged_archive_of_the_user_is_told_in_one_sentence(
    damage: str, save: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "a.npz"
    save(path, X=np.random.default_rng(0).integers(0, 9, (200, 5)).astype(float))
    path.write_bytes(damaged(path.read_bytes())[damage])
    with pytest.raises(UserError, match=r"is not a readable \.npz") as caught:
        files.read_arrays(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", list(damaged(b"")))
def test_a_damaged_archive_of_a_result_is_told_in_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    record = {"arrays": files.write_arrays(path, {"X": np.arange(1000.0)})}
    path.write_bytes(damaged(path.read_bytes())[damage])
    with pytest.raises(UserError, match="remove it and make it again") as caught:
        files.read_result(path, "X", record=record)
    assert str(path) in str(caught.value)


def test_an_archive_of_pickled_objects_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.array([1, "a", None], dtype=object))
    with pytest.raises(UserError, match=r"is not a readable \.npz"):
        files.read_arrays(tmp_path / "a.npz")


def test_a_single_array_under_the_name_of_an_archive_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.arange(3.0))
    with pytest.raises(UserError, match=r"is not a readable \.npz"):
        files.read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("read", [files.read_arrays, files.read_json])
def test_a_missing_file_is_named(read: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist: check the path") as caught:
        read(tmp_path / "nowhere")
    assert "nowhere" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1', b"{'a': 1}", b"\xff\xfe"])
def test_damaged_json_is_a_sentence_for_the_user(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match="is not valid JSON") as caught:
        files.read_json(tmp_path / "a.json")
    assert str(tmp_path / "a.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_holds_plain_values_and_survives_infinities(tmp_path: Path) -> None:
    content = {
        "infinite": [float("inf"), -float("inf"), np.inf, np.float32(-np.inf)],
        "nan": [float("nan"), np.float64("nan")],
        "array": np.array([[1.5, np.inf], [np.nan, 2.0]]),
        "number": np.int64(3),
        "truth": np.True_,
        "tuple": (1, "a", None),
        "set": {3, 1, 2},
        7: {"deep": {"deeper": float("inf")}},
    }
    files.write_json(tmp_path / "a.json", content)

    def strict(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=strict)
    assert found == files.read_json(tmp_path / "a.json")
    assert found == {
        "infinite": ["inf", "-inf", "inf", "-inf"],
        "nan": [None, None],
        "array": [[1.5, "inf"], [None, 2.0]],
        "number": 3,
        "truth": True,
        "tuple": [1, "a", None],
        "set": [1, 2, 3],
        "7": {"deep": {"deeper": "inf"}},
    }
    # What readers do with an epsilon that may be infinite.
    assert [float(value) for value in found["infinite"]] == [np.inf, -np.inf, np.inf, -np.inf]


def test_numbers_in_json_come_back_exactly(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-100, 100)
    files.write_json(tmp_path / "a.json", numbers)
    assert files.read_json(tmp_path / "a.json") == numbers.tolist()
