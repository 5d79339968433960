"""Digests that bind every result to what it was made from.

dataset -> plan -> certificate -> run -> collected table -> figure, table and report

A JSON, npz, Parquet or HTML file of the results carries a seal: the sha256 of all its other bytes. Under `made_from` it
lists the seals of the files it was made from; a figure or table has a JSON file beside it that does both for its
renderings. A JSON or Parquet file carries its own name, so that one result is not taken for another. A certificate
carries the digest of the plan it speaks of.

Threat model: accident and inconsistent editing. A damaged file, a changed number or a file from another run is noticed
wherever it is read. Forgery is not: whoever changes a file can compute its seal, and those of all files made from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dprepro.errors import UserError

# The seal of a file: this mark and 64 hexadecimal digits. The digest is that of the file with zeros in their place.
MARK = b"sealed:"
BLANK = MARK + b"0" * 64
_SEAL = re.compile(MARK + rb"([0-9a-f]{64})")
_CHUNK_BYTES = 1 << 22
AGAIN = "remove it and make it again"


def of_value(value: Any) -> str:
    """Return the digest of plain JSON values; the order of keys does not count."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def of_problem(job: Mapping[str, Any]) -> str:
    """Return the digest of what a job minimizes, apart from the data."""
    return of_value({key: job[key] for key in ("loss", "regularizer", "constraint")})


def of_file(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a file that carries no seal of its own."""
    with _content(path) as content:
        return hashlib.sha256(content).hexdigest()


def seal(path: str | os.PathLike[str]) -> str:
    """Write the digest of a file over its blank seal, and return it."""
    with _content(path) as content:
        place = content.rfind(BLANK)
        if place < 0:
            raise ValueError(f"{path} has no place for a seal")
        place += len(MARK)
        digest = _digest_around(content, place)
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(digest.encode())
    return digest


def check(path: str | os.PathLike[str], expected: str | None = None, because: str = "") -> str:
    """Return the digest of a sealed file; a `UserError` if it was changed, or is not the file `expected`.

    `because` names the file that states the expected digest.
    """
    with _content(path) as content:
        found = _last_seal(path, content)
        stated = found.group(1).decode()
        digest = _digest_around(content, found.start(1))
    if digest != stated:
        raise UserError(
            f"The file {path} was changed after it was written: its content has the digest {digest[:12]}, its seal "
            f"says {stated[:12]}; {AGAIN}."
        )
    if expected is not None and digest != expected:
        raise UserError(
            f"The file {path} is not the one that {because} was made with: expected digest {expected[:12]}, "
            f"found {digest[:12]}; {AGAIN}."
        )
    return digest


def stated(path: str | os.PathLike[str]) -> str:
    """Return the digest that a sealed file states of itself, which `check` would recompute."""
    with _content(path) as content:
        return _last_seal(path, content).group(1).decode()


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name that a sealed JSON or Parquet file carries: that of its folder and its own."""
    place = Path(path).absolute()
    return f"{place.parent.name}/{place.name}"


def check_name(path: str | os.PathLike[str], stated: Any) -> None:
    """Raise `UserError` if a file was written under another name than it has: a copy of another result."""
    if stated != (found := name_of(path)):
        raise UserError(f"The file {path} was written as {stated}, not as {found}: a copy of another result; {AGAIN}.")


def _last_seal(path: str | os.PathLike[str], content: Any) -> re.Match[bytes]:
    """Return the last seal in a file: texts in it may hold the mark, too."""
    end = len(content)
    while (place := content.rfind(MARK, 0, end)) >= 0:
        if found := _SEAL.match(content, place):
            return found
        end = place
    raise UserError(f"The file {path} carries no seal: it is damaged, foreign or of another version; {AGAIN}.")


def not_made_from(path: Path, source: Path, expected: str, found: str) -> UserError:
    """Return the error for a file that was made from a source of another digest than it has now."""
    return UserError(
        f"The file {path} was not made from {source} as it is: expected digest {expected[:12]}, found {found[:12]}; "
        "one of the two was changed or made again: remove both and run snakemake again."
    )


def check_made_from(path: Path, made_from: Mapping[str, str], folder: Path) -> None:
    """Raise `UserError` if a file in the folder of results is not the one, with this digest, that `path` came from."""
    for place, expected in made_from.items():
        source = folder / place
        if source.is_file() and (found := stated(source)) != expected:
            raise not_made_from(path, source, expected, found)


def check_files(record: Mapping[str, Any], place: Path) -> None:
    """Raise `UserError` if a file that the record `place` lists under `files` is not as it was written."""
    for suffix, expected in record.get("files", {}).items():
        file = place.with_suffix(f".{suffix}")
        if (found := of_file(file)) != expected:
            raise UserError(
                f"The file {file} was changed after it was written: its content has the digest {found[:12]}, {place} "
                f"says {expected[:12]}; {AGAIN}."
            )


def check_binding(certificate: Mapping[str, Any], plan: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` unless the certificate in the file `where` is that of the plan, given as plain JSON values."""
    if (found := of_value(plan)) != (expected := str(certificate.get("plan_digest"))):
        raise UserError(
            f"The certificate in {where} is not that of its plan: expected digest {expected[:12]}, found "
            f"{found[:12]}; {AGAIN}."
        )


@contextlib.contextmanager
def _content(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yield the bytes of a file, mapped into memory; a missing, empty or unreadable one is a `UserError`."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise UserError(f"The file {path} is empty: {AGAIN}.")
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise UserError(f"The file {path} does not exist: check the path.") from None
    except OSError as error:
        raise UserError(f"The file {path} cannot be read ({error.strerror}): check the disk and the path.") from None
    with content:
        yield content


def _digest_around(content: Any, place: int) -> str:
    """Return the sha256 of the content with zeros for the 64 digits at `place`."""
    total = hashlib.sha256()
    for start, end in ((0, place), (place + 64, len(content))):
        for low in range(start, end, _CHUNK_BYTES):
            total.update(content[low : min(low + _CHUNK_BYTES, end)])
        if start == 0:
            total.update(b"0" * 64)
    return total.hexdigest()
