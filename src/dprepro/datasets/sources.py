"""Where raw data files come from, and the check that they are the genuine ones.

The sources are asked in this order, and the first that has a file serves it:

1. the folder named by the environment variable `DPREPRO_DATA_DIR`;
2. the cache folder: `DPREPRO_CACHE_DIR`, or the user's cache folder when it is not set;
3. the files inside this package;
4. a download from the UCI Machine Learning Repository, which then lies in the cache folder;
   `DPREPRO_OFFLINE=1` forbids it.

A file that is there but wrong is an error, never a reason to go on to the next source.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dprepro.errors import UserError
from dprepro.files import atomic_path

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
EMBEDDED = Path(__file__).parent / "embedded"

_UNPACK = {".gz": gzip.decompress, ".xz": lzma.decompress}


@dataclass(frozen=True)
class RawFile:
    """One form of a raw file. The ending of `name` (.gz, .xz or none) says how it is packed.

    `sha256` is that of the unpacked content. `folder` is the file's folder at UCI; in a local source the file
    may lie in a subfolder of that name or at the top. `at_uci` says whether UCI offers this very form.
    """

    name: str
    sha256: str
    folder: str
    at_uci: bool = False


@dataclass(frozen=True)
class Fetched:
    """The verified, unpacked `content` of `file`, and which source had it."""

    file: RawFile
    content: bytes
    origin: str


def fetch(forms: Sequence[RawFile], *, base_address: str = UCI, embedded: Path = EMBEDDED) -> Fetched:
    """Return the first of `forms` (alternatives, the preferred one first) that a source has."""
    cache = cache_folder()
    local = [(cache, "cache", "remove it and run again"), (embedded, "embedded", "install dprepro again")]
    if (supplied := _supplied_folder()) is not None:
        advice = "replace it by the genuine file or unset DPREPRO_DATA_DIR"
        local.insert(0, (supplied, "DPREPRO_DATA_DIR", advice))
    for folder, origin, advice in local:
        for form in forms:
            for path in (folder / form.name, folder / form.folder / form.name):
                if (packed := _read(path, advice)) is not None:
                    return Fetched(form, _verified(packed, str(path), form, advice), origin)
    return _downloaded(forms, cache, base_address)


def cache_folder() -> Path:
    """Return the folder in which downloads are kept; it need not exist yet."""
    if chosen := os.environ.get("DPREPRO_CACHE_DIR"):
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("dprepro"))


def _supplied_folder() -> Path | None:
    chosen = os.environ.get("DPREPRO_DATA_DIR")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise UserError(f"DPREPRO_DATA_DIR={chosen} is not a folder: create it, correct the path or unset it.")
    return folder


def _read(path: Path, advice: str) -> bytes | None:
    """Return the bytes of `path`, or None if there is no such file; the error ends in `advice`."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"The data file {path} cannot be read ({error.strerror}): {advice}.") from None


def _verified(packed: bytes, place: str, form: RawFile, advice: str) -> bytes:
    """Unpack what was found at `place` if it is the genuine `form`; the errors end in `advice`."""
    try:
        content = _UNPACK.get(Path(form.name).suffix, bytes)(packed)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"The data file {place} is damaged or cut short ({error}): {advice}.") from None
    found = hashlib.sha256(content).hexdigest()
    if found != form.sha256:
        raise UserError(
            f"The data file {place} is not the genuine {form.name}: the sha256 of its unpacked content "
            f"should be {form.sha256} but is {found}; {advice}."
        )
    return content


def _downloaded(forms: Sequence[RawFile], cache: Path, base_address: str) -> Fetched:
    """Download the form that UCI offers into `cache`; a wrong or broken file is not kept."""
    names = " or ".join(form.name for form in forms)
    supply = f"put {names} into a folder and set DPREPRO_DATA_DIR to it"
    form = next((form for form in forms if form.at_uci), None)
    if form is None:
        raise UserError(f"No source has {names} and it cannot be downloaded: {supply}.")
    if os.environ.get("DPREPRO_OFFLINE", "") not in ("", "0"):
        raise UserError(f"{form.name} is needed but DPREPRO_OFFLINE forbids downloads: {supply}, or unset it.")
    import pooch
    from requests import RequestException

    address = f"{base_address}/{form.folder}/{form.name}"
    with atomic_path(cache / form.name) as temporary:
        try:
            pooch.HTTPDownloader()(address, str(temporary), None)
        except RequestException as error:
            answer = error.response
            reason = type(error).__name__ if answer is None else f"HTTP status {answer.status_code}"
            raise UserError(f"Cannot download {address} ({reason}): check the network, or {supply}.") from None
        return Fetched(form, _verified(temporary.read_bytes(), address, form, supply), "download")
