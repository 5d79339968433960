"""Three small sets that scikit-learn carries: breast cancer, digits and diabetes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dprepro.datasets.preparation import ROWS_RULE, bounded, chosen_rows, scaled, signs
from dprepro.datasets.records import DatasetInfo, Definition, Prepared
from dprepro.errors import UserError

if TYPE_CHECKING:
    import numpy as np

BREAST_CANCER = DatasetInfo(
    name="breast_cancer",
    title="Breast Cancer Wisconsin (Diagnostic)",
    task="classification",
    rows=569,
    features=30,
    licence="CC BY 4.0, as UCI lists it",
    citation=(
        "W. Wolberg, O. Mangasarian, N. Street, W. Street. Breast Cancer Wisconsin (Diagnostic). "
        "UCI Machine Learning Repository, 1995. doi:10.24432/C5DW2B"
    ),
    preprocessing=(
        "Label +1 for malignant, -1 for benign. Columns are clipped to the ranges printed in scikit-learn's "
        f"description of the set and mapped to [0, 1]; {ROWS_RULE}."
    ),
    sha256={
        "data": "6b202a2072f9a0385f405a8f8605b1b06f6f36ae6d23d9cd6cbbc0974a416bc7",
        "target": "bad6d9428eff14b52b3cc46c7d720fbc92f92a1118f65487ae67d5cd6a3fa399",
    },
)
# Radius, texture, perimeter, area, smoothness, compactness, concavity, concave points, symmetry and fractal
# dimension: of the mean, of the standard error and of the worst.
BREAST_CANCER_RANGES = (
    *((6.981, 28.11), (9.71, 39.28), (43.79, 188.5), (143.5, 2501.0), (0.053, 0.163)),
    *((0.019, 0.345), (0.0, 0.427), (0.0, 0.201), (0.106, 0.304), (0.05, 0.097)),
    *((0.112, 2.873), (0.36, 4.885), (0.757, 21.98), (6.802, 542.2), (0.002, 0.031)),
    *((0.002, 0.135), (0.0, 0.396), (0.0, 0.053), (0.008, 0.079), (0.001, 0.03)),
    *((7.93, 36.04), (12.02, 49.54), (50.41, 251.2), (185.2, 4254.0), (0.071, 0.223)),
    *((0.027, 1.058), (0.0, 1.252), (0.0, 0.291), (0.156, 0.664), (0.055, 0.208)),
)
MALIGNANT = 0

DIGITS = DatasetInfo(
    name="digits",
    title="Optical recognition of handwritten digits, odd against even",
    task="classification",
    rows=1797,
    features=64,
    licence="CC BY 4.0, as UCI lists it",
    citation=(
        "E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. "
        "UCI Machine Learning Repository, 1998. doi:10.24432/C50P49"
    ),
    preprocessing=f"Label +1 for an odd digit, -1 for an even one. Pixels are divided by 16; {ROWS_RULE}.",
    sha256={
        "data": "20def7f70a702f0af9732fbba4375e147a7d54fe70d8c45569b8e7c1c7010c10",
        "target": "061ad6ef55db43219297185e36e289bb03a3645efcf351c452b19739ecdfb900",
    },
)
DIGITS_RANGES = ((0, 16),) * 64

DIABETES = DatasetInfo(
    name="diabetes",
    title="Diabetes progression after one year",
    task="regression",
    rows=442,
    features=10,
    licence="Published with the article; carried by scikit-learn",
    citation=(
        "B. Efron, T. Hastie, I. Johnstone, R. Tibshirani. Least Angle Regression. "
        "Annals of Statistics 32 (2004) 407-499"
    ),
    preprocessing=(
        "The label 25..346 is mapped to [-1, 1]. Columns are clipped to fixed round ranges and "
        f"mapped to [0, 1]; {ROWS_RULE}."
    ),
    sha256={
        "data": "6b93b2556c8942c79d8374838768047adf9d1f4044510b9f948ddace62567d75",
        "target": "4911e8747aff95aa1cd523fea86dd91cfd1cd14c1a8ead274f1913b14fa853c4",
    },
)
# Age, sex, body mass index, blood pressure and six blood serum measurements.
DIABETES_RANGES = (
    *((18, 80), (1, 2), (15, 45), (60, 140), (90, 310)),
    *((40, 250), (20, 100), (2, 10), (3, 6.5), (50, 130)),
)
DIABETES_LABEL_RANGE = (25, 346)


def _raw(info: DatasetInfo, **options: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's arrays as float64, shapes (n, d) and (n,), if they are the known ones."""
    import numpy as np
    import sklearn
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{info.name}")(**options)
    arrays = {part: np.ascontiguousarray(bunch[part], dtype="<f8") for part in ("data", "target")}
    for part, array in arrays.items():
        found = hashlib.sha256(array.data).hexdigest()
        if found != info.sha256[part]:
            raise UserError(
                f"The {part} of {info.name!r} in scikit-learn {sklearn.__version__} is not the known one: "
                f"its sha256 should be {info.sha256[part]} but is {found}; install another version."
            )
    return arrays["data"], arrays["target"]


def _breast_cancer(rows: int | None, seed: int) -> Prepared:
    data, target = _raw(BREAST_CANCER)
    chosen = chosen_rows(len(data), rows, seed)
    X = bounded(scaled(data[chosen], BREAST_CANCER_RANGES))
    return Prepared(X, signs(target[chosen] == MALIGNANT), "scikit-learn")


def _digits(rows: int | None, seed: int) -> Prepared:
    data, target = _raw(DIGITS)
    chosen = chosen_rows(len(data), rows, seed)
    return Prepared(bounded(scaled(data[chosen], DIGITS_RANGES)), signs(target[chosen] % 2 == 1), "scikit-learn")


def _diabetes(rows: int | None, seed: int) -> Prepared:
    import numpy as np

    data, target = _raw(DIABETES, scaled=False)
    chosen = chosen_rows(len(data), rows, seed)
    label = 2 * scaled(target[chosen, None], [DIABETES_LABEL_RANGE])[:, 0] - 1
    return Prepared(bounded(scaled(data[chosen], DIABETES_RANGES)), label.astype(np.float32), "scikit-learn")


DATASETS = (
    Definition(BREAST_CANCER, _breast_cancer),
    Definition(DIGITS, _digits),
    Definition(DIABETES, _diabetes),
)
