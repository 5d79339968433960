"""Reading and writing result files: atomic, sealed, and with the same bytes for the same content."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dprepro import digests, escape
from dprepro.errors import UserError
from dprepro.owner import check_owner, host

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_Read = TypeVar("_Read")

# The earliest date a zip archive can hold: archives must not remember when they were written.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
# A path that no file can have.
_NO_SUCH_PLACE = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP)
# The name of a file that process `pid` of a machine is still writing.
PARTIAL = re.compile(r"\..+\.(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)\.partial")


def host_tag() -> str:
    """Return what tells this machine from others in the names of unfinished files."""
    return f"{zlib.crc32(host().encode()):08x}"


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is renamed to `path`, on failure removed."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{host_tag()}-{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        check_owner()
        os.replace(temporary, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"No space left on the disk while writing {target}: free some space and run again."
            ) from None
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise UserError(f"Cannot write {target}: {error.strerror}. Choose a folder you may write to.") from None
        if error.errno in _NO_SUCH_PLACE:
            raise UserError(f"Cannot write {target} ({error.strerror}): choose another output path.") from None
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8 to `path` atomically."""
    write_bytes(path, text.encode())


def write_table(path: str | os.PathLike[str], frame: pd.DataFrame, *, float_format: str | None = None) -> None:
    """Write a table as CSV; its texts are on one line each, and none is a formula to a spreadsheet."""

    def shown(value: Any) -> Any:
        return escape.cell(escape.one_line(value)) if isinstance(value, str) else value

    texts = {name: frame[name].map(shown) for name in frame.columns if frame[name].dtype.kind not in "biuf"}
    write_text(path, frame.assign(**texts).to_csv(index=False, float_format=float_format))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write `content` as indented JSON; infinities become the strings "inf" and "-inf", NaN becomes null."""
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """Return what `write_json` writes."""
    return json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n"


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path] = (), *, force: bool = False) -> None:
    """Refuse an output that is an input (under any name), a folder or, without `force`, an existing file."""
    taken = list(inputs)
    for out in outputs:
        for path in taken:
            if _is_same_file(out, path):
                raise UserError(f"The output {out} is the same file as the input {path}: choose another name.")
        if os.path.isdir(out):
            raise UserError(f"The output {out} is a folder: choose another name.")
        # A dangling symlink counts as an existing file.
        if not force and os.path.lexists(out):
            raise UserError(f"The output {out} exists already: choose another name, or add --force to overwrite it.")
        place = next(place for place in out.absolute().parents if os.path.lexists(place))
        if not os.path.isdir(place):
            raise UserError(f"The output {out} cannot be written: {place} is not a folder; choose another name.")
        if not os.access(place, os.W_OK | os.X_OK):
            raise UserError(f"The output {out} cannot be written: you may not write to {place}; choose another name.")


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def write_record(path: str | os.PathLike[str], content: Mapping[str, Any]) -> str:
    """Write a mapping as JSON, its name under `file` and a seal under `digest`; return the digest."""
    sealed = jsonable(unsealed(content)) | {"file": digests.name_of(path), "digest": digests.BLANK.decode()}
    text = json.dumps(sealed, indent=2, allow_nan=False)
    return write_sealed(path, text + "\n")


def unsealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without its name and its digest."""
    return {key: value for key, value in record.items() if key not in ("file", "digest")}


def write_sealed(path: str | os.PathLike[str], text: str) -> str:
    """Write a text that has a blank seal as UTF-8, sealed; return the digest."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(text.encode())
        return digests.seal(temporary)


def read_record(path: str | os.PathLike[str], *keys: str) -> dict[str, Any]:
    """Read what `write_record` wrote, with its digest under `digest`; a changed or renamed file is a `UserError`."""
    digest = digests.check(path)
    content: dict[str, Any] = read_json(path, *keys)
    digests.check_name(path, content.get("file"))
    return content | {"digest": digest}


def job_file(path: Path) -> Path:
    """Return the file with the specification that the workflow wrote for results/KIND/EXPERIMENT/JOB.json."""
    folder = path.absolute().parent
    return folder.parent.parent / "jobs" / folder.name / path.name


def check_job(path: Path, spec: Mapping[str, Any]) -> None:
    """Raise `UserError` if a result is of another specification than the one that the workflow wrote for its job.

    `path` is results/KIND/EXPERIMENT/JOB.json; what no workflow asked for has no such specification.
    """
    job = job_file(path)
    if job.exists() and unsealed(read_record(job)) != jsonable(spec):
        raise UserError(f"The result {path} is of another configuration than {job}: remove it and run snakemake again.")


def each_trusted(paths: Iterable[Path], read: Callable[[Path], _Read], gaps: list[str] | None) -> Iterator[_Read]:
    """Yield what `read` returns of each file.

    After a job has failed, `gaps` is a list: a file for which `read` raises `UserError` is then left out, and the
    sentence added to the list.
    """
    for path in paths:
        try:
            content = read(path)
        except UserError as error:
            if gaps is None:
                raise
            gaps.append(str(error))
        else:
            yield content


def write_publication(place: Path, suffixes: Sequence[str], **content: Any) -> None:
    """Write `place` with the suffix .json: digests of the files with `suffixes` beside it, and `content`."""
    files = {suffix: digests.of_file(place.with_suffix(f".{suffix}")) for suffix in suffixes}
    write_record(place.with_suffix(".json"), {**content, "files": files})


def read_publication(place: Path) -> dict[str, Any]:
    """Read what `write_publication` wrote; a `UserError` if one of the files was changed since."""
    record = read_record(place.with_suffix(".json"), "files")
    digests.check_files(record, place.with_suffix(".json"))
    return record


def read_json(path: str | os.PathLike[str], *keys: str) -> Any:
    """Read a JSON file; a missing or damaged one, or one that lacks one of `keys`, is a `UserError`."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"The file {path} does not exist: check the path.") from None
    except OSError as error:
        raise UserError(f"The file {path} cannot be read ({error.strerror}): check the disk and the path.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"The file {path} is not valid JSON ({error}): remove it and make it again.") from None
    _check_names(path, content if isinstance(content, dict) else (), keys)
    return content


def jsonable(content: Any) -> Any:
    """Turn `content` into plain JSON values (arrays to lists, infinities to strings)."""
    if isinstance(content, Mapping):
        return {str(key): jsonable(value) for key, value in content.items()}
    if isinstance(content, (list, tuple, set, frozenset)):
        items = sorted(content) if isinstance(content, (set, frozenset)) else content
        return [jsonable(item) for item in items]
    if hasattr(content, "tolist"):
        return jsonable(content.tolist())
    if isinstance(content, float):
        if content != content:
            return None
        if content in (float("inf"), float("-inf")):
            return "inf" if content > 0 else "-inf"
    return content


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> str:
    """Write an uncompressed `.npz` whose bytes depend on the arrays alone (no time stamps); return its digest.

    The seal is the comment of the archive.
    """
    import numpy as np

    with atomic_path(path) as temporary:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(arrays):
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.asarray(arrays[name], order="C"), allow_pickle=False)
                entry = zipfile.ZipInfo(f"{name}.npy", date_time=_ZIP_EPOCH)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, buffer.getbuffer())
            archive.comment = digests.BLANK
        return digests.seal(temporary)


def read_result(path: Path, *names: str, record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Read the arrays of a result: sealed, and those whose digest its `record`, the JSON beside it, states."""
    _check_names(path.with_suffix(".json"), record, ("arrays",))
    digests.check(path, expected=record["arrays"], because=str(path.with_suffix(".json")))
    return read_arrays(path, *names)


def read_arrays(
    path: str | os.PathLike[str], *names: str, advice: str = "remove it and make it again"
) -> dict[str, np.ndarray]:
    """Read a `.npz`; a missing, truncated or foreign one, or one that lacks one of `names`, is a `UserError`."""
    import numpy as np

    try:
        opened = np.load(path, allow_pickle=False)
        if isinstance(opened, np.ndarray):
            raise ValueError("a single array, not an archive of named arrays")
        with opened as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise UserError(f"The file {path} does not exist: check the path.") from None
    except MemoryError:
        raise
    except Exception as error:  # zipfile and NumPy raise a dozen kinds for damaged files
        raise UserError(f"The file {path} is not a readable .npz ({error}): {advice}.") from None
    _check_names(path, arrays, names)
    return arrays


def _check_names(path: str | os.PathLike[str], found: Collection[str], needed: Sequence[str]) -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        raise UserError(f"The file {path} lacks {missing[0]!r}: it is damaged or foreign; remove it and make it again.")
