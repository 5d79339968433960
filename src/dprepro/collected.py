"""Collected tables: Parquet files with metadata, sealed, and bound to the results that they were made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dprepro import digests
from dprepro.errors import UserError
from dprepro.files import atomic_path, jsonable

METADATA_KEY = b"dprepro"
SEAL_KEY = "dprepro seal"


def write_collected(
    frames: Sequence[pd.DataFrame],
    metadata: Mapping[str, Any],
    out: Path,
    *,
    made_from: Mapping[str, str],
    made_by: Mapping[str, str],
    gaps: Sequence[str] = (),
) -> None:
    """Write frames as one sealed table, with the metadata that `read_collected` returns.

    Without frames the table has neither rows nor columns. `made_from` has the digest of each file by its place in the
    folder of results.
    """
    import pyarrow
    import pyarrow.parquet

    metadata = {
        **metadata,
        "file": digests.name_of(out),
        "made_from": made_from,
        "made_by": made_by,
        "incomplete": list(gaps),
    }
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    text = json.dumps(jsonable(metadata), sort_keys=True).encode()
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA_KEY: text})
    with atomic_path(out) as temporary:
        with pyarrow.parquet.ParquetWriter(temporary, table.schema, write_page_checksum=True) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({SEAL_KEY: digests.BLANK.decode()})
        digests.seal(temporary)


def read_collected(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a collected table and its metadata, with the digest of the file under `digest`."""
    import pyarrow.parquet

    digest = digests.check(path)
    try:
        table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
        metadata = json.loads((table.schema.metadata or {})[METADATA_KEY])
        metadata["origins"] = [json.loads(origin) for origin in metadata["origins"]]
        frame = table.to_pandas()
    except MemoryError:
        raise
    except Exception as error:  # pyarrow and pandas raise a dozen kinds for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"The table {path} cannot be read ({reason}): remove it and make it again.") from None
    digests.check_name(path, metadata.get("file"))
    return frame, metadata | {"digest": digest}


def read_current(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a collected table as `read_collected` does; a `UserError` if results beside it are not those it has."""
    frame, metadata = read_collected(path)
    digests.check_made_from(path, metadata["made_from"], path.absolute().parents[1])
    return frame, metadata
