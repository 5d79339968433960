"""Adult: who earned more than 50,000 dollars a year, from the United States census of 1994."""

from __future__ import annotations

import csv

from dprepro.datasets.preparation import ROWS_RULE, bounded, chosen_rows, scaled, signs
from dprepro.datasets.records import DatasetInfo, Definition, Prepared
from dprepro.datasets.sources import RawFile, fetch
from dprepro.errors import UserError

# The columns in the file's order: a range for a numeric one, a vocabulary for a categorical one.
# "?" stands for a value that was not recorded and is a category of its own.
COLUMNS: dict[str, tuple[int, int] | str] = {
    "age": (17, 90),
    "workclass": ("? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay"),
    "fnlwgt": (0, 1_500_000),
    "education": (
        "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc Assoc-acdm "
        "Bachelors Masters Prof-school Doctorate"
    ),
    "education-num": (1, 16),
    "marital-status": (
        "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed"
    ),
    "occupation": (
        "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
        "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
        "Transport-moving"
    ),
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 4_500),
    "hours-per-week": (1, 99),
    "native-country": (
        "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany "
        "Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica "
        "Japan Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico "
        "Scotland South Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia"
    ),
}
RANGES = {name: column for name, column in COLUMNS.items() if isinstance(column, tuple)}
VOCABULARIES = {name: column.split() for name, column in COLUMNS.items() if isinstance(column, str)}
FEATURES = len(RANGES) + sum(map(len, VOCABULARIES.values()))


def _forms(name: str, sha256: str) -> tuple[RawFile, RawFile]:
    return RawFile(f"{name}.gz", sha256, "adult"), RawFile(name, sha256, "adult", at_uci=True)


SPLITS = {
    "train": _forms("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    "test": _forms("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
}


def _prepare(rows: int | None, seed: int, *, split: str = "train") -> Prepared:
    import numpy as np

    if split not in SPLITS:
        raise UserError(f"The split {split!r} of 'adult' does not exist: choose {' or '.join(SPLITS)}.")
    fetched = fetch(SPLITS[split])
    # The test file begins with a remark after "|", and both files end in an empty line.
    lines = [line for line in fetched.content.decode("ascii").splitlines() if line and not line.startswith("|")]
    chosen = [lines[i] for i in chosen_rows(len(lines), rows, seed)]
    *cells, income = zip(*csv.reader(chosen, skipinitialspace=True), strict=True)
    table = dict(zip(COLUMNS, cells, strict=True))

    X = np.zeros((len(chosen), FEATURES))
    numeric = np.array([list(map(int, table[name])) for name in RANGES]).T
    X[:, : len(RANGES)] = scaled(numeric, list(RANGES.values()))
    every, start = np.arange(len(chosen)), len(RANGES)
    for name, vocabulary in VOCABULARIES.items():
        code = {word: start + k for k, word in enumerate(vocabulary)}
        X[every, [code[word] for word in table[name]]] = 1
        start += len(vocabulary)
    # The labels of the test file end in a full stop, those of the training file do not.
    return Prepared(bounded(X), signs(np.array([label.startswith(">50K") for label in income])), fetched.origin)


DATASETS = (
    Definition(
        DatasetInfo(
            name="adult",
            title="Adult (census income)",
            task="classification",
            rows=32_561,
            features=FEATURES,
            licence="CC BY 4.0, as UCI lists it",
            citation=("B. Becker, R. Kohavi. Adult. UCI Machine Learning Repository, 1996. doi:10.24432/C5XW20"),
            preprocessing=(
                "Label +1 for an income above 50K, -1 otherwise. The six numeric columns are clipped to "
                "fixed ranges and mapped to [0, 1], the eight categorical columns become indicators over "
                f"fixed vocabularies in which '?' is a category, and {ROWS_RULE}. "
                "split='train' (default) is adult.data, split='test' the 16,281 rows of adult.test."
            ),
            sha256={form.name: form.sha256 for forms in SPLITS.values() for form in forms},
        ),
        _prepare,
    ),
)
