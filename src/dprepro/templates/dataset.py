"""MyDataset: points around two centres, labelled by the centre they belong to."""

from __future__ import annotations

from dprepro.datasets.preparation import bounded, signs
from dprepro.datasets.records import DatasetInfo, Definition, Prepared


def _prepare(rows: int | None, seed: int, *, spread: float = 0.5) -> Prepared:
    """Return the rows and labels; `rows` and `seed` come from the experiment, and so do keyword-only arguments."""
    import numpy as np  # here, since this file is imported whenever datasets are listed

    # To read a file instead, put it beside this one under the same name; jobs then run again when it changes:
    # table = np.loadtxt(Path(__file__).with_suffix(".csv"), delimiter=",")
    rng = np.random.default_rng(seed)
    n = 1000 if rows is None else rows
    first = rng.random(n) < 0.5
    X = np.where(first[:, None], 0.5, -0.5) * np.ones((1, 3)) + spread * rng.standard_normal((n, 3))
    # Scale columns by constants that you know beforehand, never by what the data show: privacy is accounted on the
    # strength of rows of norm at most 1, which `bounded` sees to, and of labels -1 and 1.
    return Prepared(bounded(X), signs(first), "generated")


DATASETS = (
    Definition(
        DatasetInfo(
            name="my_dataset",
            title="Points around two centres",
            task="classification",  # or regression, with labels in [-1, 1]
            rows=None,  # how many there are, if they are not generated
            features=3,
            licence="Generated; no licence needed",
            citation="None; generated",
            preprocessing="Rows longer than 1 are shortened to 1; each coordinate has the deviation spread=0.5.",
            sha256={},
        ),
        _prepare,
    ),
)
