"""Covertype: 581,012 patches of forest in Colorado, and which tree covers each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dprepro.datasets.preparation import ROWS_RULE, bounded, chosen_rows, scaled, signs
from dprepro.datasets.records import DatasetInfo, Definition, Prepared
from dprepro.datasets.sources import Fetched, RawFile, fetch

if TYPE_CHECKING:
    import numpy as np

ROWS = 581_012
WILDERNESS_AREAS = 4
SOIL_TYPES = 40
LODGEPOLE_PINE = 2

# Elevation, aspect, slope, horizontal and vertical distance to water, distance to roads, hillshade at 9, 12
# and 15 o'clock, distance to fire points: the ranges that the published data covers.
RANGES = (
    (1859, 3858),
    (0, 360),
    (0, 66),
    (0, 1397),
    (-173, 601),
    (0, 7117),
    (0, 254),
    (0, 254),
    (0, 254),
    (0, 7173),
)

_CSV_SHA256 = "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"
COMPACT = RawFile("covtype.compact.xz", "5a2c73a5b2d58ed5caf4d0f8733f1190140abb19fde8c334ab892ef1686ea505", "covtype")
FORMS = (
    COMPACT,
    RawFile("covtype.data.gz", _CSV_SHA256, "covtype", at_uci=True),
    RawFile("covtype.data", _CSV_SHA256, "covtype"),
)


@dataclass(frozen=True, eq=False)
class Table:
    """The raw table, its two one-hot groups as codes.

    `numeric` is int16 of shape (n, 10); `wilderness` (0..3), `soil` (0..39) and `cover` (1..7) are
    integers of shape (n,).
    """

    numeric: np.ndarray
    wilderness: np.ndarray
    soil: np.ndarray
    cover: np.ndarray


def read_table(fetched: Fetched) -> Table:
    """Read the table from either form of the file; the rows are in UCI's order."""
    return _from_compact(fetched.content) if fetched.file == COMPACT else _from_csv(fetched.content)


def _from_compact(content: bytes) -> Table:
    """Read 23 planes of one byte per row: low and high bytes of ten int16 columns, then the three codes."""
    import numpy as np

    planes = np.frombuffer(content, dtype=np.uint8).reshape(2 * len(RANGES) + 3, ROWS)
    # Two neighbouring bytes, low one first, are one little-endian int16.
    pairs = np.ascontiguousarray(planes[: 2 * len(RANGES)].T)
    wilderness, soil, cover = planes[2 * len(RANGES) :]
    return Table(pairs.view("<i2"), wilderness, soil, cover)


def _from_csv(content: bytes) -> Table:
    import numpy as np

    columns = len(RANGES) + WILDERNESS_AREAS + SOIL_TYPES + 1
    values = np.fromstring(content.replace(b"\n", b","), dtype=np.int16, sep=",").reshape(ROWS, columns)
    numeric, areas, soils, cover = np.split(values, np.cumsum([len(RANGES), WILDERNESS_AREAS, SOIL_TYPES]), axis=1)
    return Table(numeric, areas.argmax(axis=1), soils.argmax(axis=1), cover[:, 0])


def _prepare(rows: int | None, seed: int) -> Prepared:
    import numpy as np

    fetched = fetch(FORMS)
    table = read_table(fetched)
    chosen = chosen_rows(ROWS, rows, seed)
    X = np.zeros((len(chosen), len(RANGES) + WILDERNESS_AREAS + SOIL_TYPES))
    X[:, : len(RANGES)] = scaled(table.numeric[chosen], RANGES)
    every = np.arange(len(chosen))
    X[every, len(RANGES) + table.wilderness[chosen].astype(np.intp)] = 1
    X[every, len(RANGES) + WILDERNESS_AREAS + table.soil[chosen].astype(np.intp)] = 1
    return Prepared(bounded(X), signs(table.cover[chosen] == LODGEPOLE_PINE), fetched.origin)


DATASETS = (
    Definition(
        DatasetInfo(
            name="covertype",
            title="Covertype (forest cover in Colorado)",
            task="classification",
            rows=ROWS,
            features=len(RANGES) + WILDERNESS_AREAS + SOIL_TYPES,
            licence=(
                "Copyright Jock A. Blackard and Colorado State University; "
                "reuse is unlimited with retention of that notice"
            ),
            citation="J. A. Blackard. Covertype. UCI Machine Learning Repository, 1998. doi:10.24432/C50K5N",
            preprocessing=(
                "Label +1 for cover type 2 (lodgepole pine), -1 for the other six. The ten numeric columns "
                "are mapped to [0, 1] by fixed ranges (the ones the published data covers), the 44 indicator "
                f"columns are kept, and {ROWS_RULE}."
            ),
            sha256={form.name: form.sha256 for form in FORMS},
        ),
        _prepare,
    ),
)
