"""Configuration: every mistake is one sentence that names the key and the file; good ones become jobs."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import assert_one_sentence

from dprepro import datasets, extensions
from dprepro.errors import UserError
from dprepro.experiments import (
    dataset_key,
    experiment_names,
    job_seed,
    load_config,
    load_experiments,
    merge,
    read_yaml,
)
from dprepro.new import create

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config"
SCALES = sorted((CONFIG / "scales").glob("*.yaml"))

# A configuration and one experiment of each kind in which every key of the schemas is present.
GOOD_CONFIG: dict[str, Any] = {
    "extensions": ["mine"],
    "results": "results",
    "device": "cpu",
    "seed": 1,
    "audit": {
        "replicates": 500,
        "delta": 0.00001,
        "settings": [{"variant": "certified", "epsilon": [1]}],
        "algorithms": ["dp_gd"],
    },
    "experiments": ["trial"],
    "overrides": {"trial": {"replicates": 3}},
}
GOOD_EXPERIMENT: dict[str, Any] = {
    "paper": "WYX17",
    "title": "A trial",
    "loss": "logistic",
    "regularizer": {"l1": 0.0, "l2": 0.1},
    "constraint": "l2_ball:1.0",
    "datasets": [{"name": "synthetic_logistic", "rows": 100, "seed": 0, "parameters": {"features": 3}}],
    "epsilon": [0.5, 1, "inf"],
    "delta": 0.001,
    "variants": ["published"],
    "replicates": 4,
    "tile": 8,
    "dtype": "float64",
    "algorithms": {"dp-gd": {"label": "DP-GD, T = {T}", "algorithm": "dp_gd", "parameters": {"T": 5}}},
}
GOOD_SWEEPS: dict[str, Any] = {
    "kind": "sweeps",
    "paper": "WYX17",
    "title": "A trial",
    "delta": 0.001,
    "replicates": 4,
    "tile": 8,
    "dtype": "float64",
    "problems": {
        "logit": {
            "title": "a problem",
            "metric": "optimality gap",
            "loss": "logistic",
            "regularizer": {"l1": 0.0, "l2": 0.1},
            "nonsmooth": {"l1": 0.1, "l2": 0.1},
            "constraint": "l2_ball:1.0",
            "minimum": 0.1,
            "timed": False,
            "delta_power": 1.5,
            "family": {"margin": [3]},
            "dataset": {"name": "synthetic_logistic", "seed": 0, "repeated": False, "parameters": {"margin": 3}},
            "base": {"n": 100, "d": 3, "epsilon": 1},
            "sweeps": {"n": [100, 200], "noise": [0.1, 0.2]},
        },
        # A problem with a family is in no series.
        "small": {
            "title": "a problem of a series",
            "metric": "Goldstein stationarity",
            "loss": "logistic",
            "regularizer": {},
            "constraint": None,
            "radius": 0.5,
            "reach": 0.5,
            "series": {"name": "along d", "axis": "d", "value": 3},
            "delta_power": 1.5,
            "dataset": {"name": "synthetic_logistic"},
            "base": {"n": 100, "d": 3, "epsilon": 1},
            "sweeps": {"n": [100, 200]},
        },
    },
    "methods": {
        "dp-gd": {
            "label": "DP-GD",
            "algorithm": "dp_gd",
            "variants": ["published", "certified"],
            "replicates": 6,
            "parameters": {"T": 5},
            "tune": {"eta": [0.5, 1.0]},
            "problems": ["logit"],
            "base": {"n": 100, "epsilon": 2},
            "sweeps": {"n": [100, 300]},
            "claims": {
                "source": "a theorem",
                "bound": "1/n",
                "complexity": "n",
                "exponents": {"n": -1},
                "log_exponents": {"n": 2},
                "own_bounds": {"n": "its own bound"},
                "printed_noise": "as our copy prints it",
                "samples": {"d": 1},
                "evaluations": 1,
                "evaluations_log_power": 1,
                "nonsmooth": True,
            },
        }
    },
}
# The part is the example of a sweep, beside which the fixture puts it.
GOOD_PARTS: dict[str, Any] = {
    "kind": "parts",
    "paper": "WYX17",
    "title": "A trial",
    "parts": ["part"],
    "beside": ["part"],
}
GOOD = {
    "config": GOOD_CONFIG,
    "curves": {"kind": "curves", **GOOD_EXPERIMENT},
    "sweeps": GOOD_SWEEPS,
    "parts": GOOD_PARTS,
}
PLACES = {
    "config": "In the configuration: ",
    "curves": "experiments/trial.yaml: ",
    "sweeps": "experiments/trial.yaml: ",
    "parts": "experiments/trial.yaml: ",
}

# Changing this number changes every published result.
SEED = 11402024864997739990

Place = tuple[str | int, ...]


def schema(name: str) -> dict[str, Any]:
    return json.loads((CONFIG / "schema" / f"{name}.schema.json").read_text(encoding="utf-8"))


def walk(name: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield every place of the schema with its rules, in terms of the good example."""

    whole = schema(name)

    def below(path: Place, rules: dict[str, Any], content: Any) -> Iterator[tuple[Place, dict[str, Any]]]:
        rules = whole["$defs"][rules["$ref"].rpartition("/")[2]] if "$ref" in rules else rules
        yield path, rules
        for key, inner in rules.get("properties", {}).items():
            # Keys that exclude each other stand in two entries.
            if key in content:
                yield from below((*path, key), inner, content[key])
        if isinstance(rules.get("items"), dict):
            yield from below((*path, 0), rules["items"], content[0])
        if isinstance(rules.get("additionalProperties"), dict):
            for entry in (key for key in content if key not in rules.get("properties", {})):
                yield from below((*path, entry), rules["additionalProperties"], content[entry])

    yield from below((), whole, GOOD[name])


def reach(content: Any, path: Place) -> Any:
    for part in path:
        content = content[part]
    return content


# The key `kind` chooses the schema, so mistakes in it are answered differently; it has tests of its own.
KEYS = [(name, path) for name in GOOD for path, _ in walk(name) if path and path != ("kind",)]
CLOSED = [(name, path) for name in GOOD for path, rules in walk(name) if rules.get("additionalProperties") is False]
REQUIRED = [
    (name, (*path, key))
    for name in GOOD
    for path, rules in walk(name)
    for key in rules.get("required", ())
    if key != "kind"
]
NAMED = [
    (name, path, key)
    for name in GOOD
    for path, rules in walk(name)
    if rules.get("additionalProperties") is False
    for key in rules["properties"]
    if key in reach(GOOD[name], path)
]


def dotted(value: Any) -> str:
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The folder of the good example's extensions, whose use ends with the test.
    monkeypatch.chdir(tmp_path)
    create("loss", "own_loss", Path("mine"))
    monkeypatch.setenv(extensions.VARIABLE, "")
    shutil.copytree(CONFIG / "schema", tmp_path / "config" / "schema")
    (tmp_path / "config" / "experiments").mkdir()
    return tmp_path / "config"


@pytest.fixture
def load(folder: Path) -> Callable[..., Any]:
    """Load a configuration and an experiment called `trial` from files; the default is the good example."""

    def load(config: Any = GOOD_CONFIG, experiment: Any = GOOD_EXPERIMENT) -> Any:
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "experiments" / "trial.yaml").write_text(yaml.safe_dump(experiment))
        (folder / "experiments" / "part.yaml").write_text(yaml.safe_dump(GOOD_SWEEPS))
        return load_experiments(load_config([], folder), folder)

    return load


@pytest.fixture
def refusal(load: Callable[..., Any]) -> Callable[[str, dict[str, Any]], str]:
    """Load with one of the two files changed and return the sentence of the refusal."""

    def refusal(name: str, content: dict[str, Any]) -> str:
        # Without overrides: they would hide a mistake in the experiment's file.
        argument = "config" if name == "config" else "experiment"
        files = {"config": {**GOOD_CONFIG, "overrides": {}}, argument: content}
        with pytest.raises(UserError) as caught:
            load(**files)
        text = str(caught.value)
        assert_one_sentence(text)
        assert PLACES[name] in text
        return text

    return refusal


def changed(name: str, path: Place, value: Any) -> dict[str, Any]:
    content = copy.deepcopy(GOOD[name])
    reach(content, path[:-1])[path[-1]] = value
    return content


def test_the_good_example_of_these_tests_has_every_key_and_loads(load: Callable[..., Any]) -> None:
    assert len(KEYS) == len(set(KEYS)) >= 30
    for name in GOOD:
        places = list(walk(name))
        for _, rules in places:
            held = [reach(GOOD[name], path) for path, others in places if others is rules]
            assert set(rules.get("properties", {})) <= set().union(
                *(entry for entry in held if isinstance(entry, dict))
            )
    (experiment,) = load()
    assert experiment.spec["replicates"] == 3, "the override counts"
    assert [job.id for job in experiment.jobs()] == [
        f"dp-gd.{next(iter(experiment.datasets()))}.published.eps{e}" for e in ("0.5", "1", "inf")
    ]


@pytest.mark.parametrize(("name", "path"), CLOSED, ids=dotted)
def test_an_unknown_key_is_refused_by_name_and_place(
    name: str, path: Place, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    text = refusal(name, changed(name, (*path, "qqqq"), 1))
    assert "unknown key 'qqqq'" in text
    assert dotted(path) in text
    for key in reach(GOOD[name], path):
        assert key in text, "without a near miss, the known keys are listed"


@pytest.mark.parametrize(("name", "path", "key"), NAMED, ids=dotted)
def test_a_misspelt_key_is_answered_with_the_right_one(
    name: str, path: Place, key: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    text = refusal(name, changed(name, (*path, key + key[-1]), reach(GOOD[name], (*path, key))))
    assert f"unknown key '{key}{key[-1]}'" in text
    assert f"did you mean '{key}'?" in text


@pytest.mark.parametrize(("name", "path"), REQUIRED, ids=dotted)
def test_a_missing_key_is_asked_for(name: str, path: Place, refusal: Callable[[str, dict[str, Any]], str]) -> None:
    content = copy.deepcopy(GOOD[name])
    del reach(content, path[:-1])[path[-1]]
    text = refusal(name, content)
    assert f"the key '{path[-1]}' is missing" in text
    assert dotted(path[:-1]) in text


def wrong_kind(value: Any) -> Any:
    """Return a value of a kind that the key cannot have."""
    return 5 if isinstance(value, str | list | dict) or value is None else "five"


@pytest.mark.parametrize(("name", "path"), KEYS, ids=dotted)
def test_a_value_of_the_wrong_kind_is_refused_under_its_key(
    name: str, path: Place, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    value = wrong_kind(reach(GOOD[name], path))
    text = refusal(name, changed(name, path, value))
    assert f"{dotted(path)} is {value!r}; " in text
    assert "it must be: " in text or "use one of " in text


@pytest.mark.parametrize(
    ("name", "path", "value", "advice"),
    [
        ("config", ("results",), "", "a folder name"),
        ("config", ("seed",), -1, "a whole number >= 0"),
        ("config", ("seed",), 1.5, "a whole number >= 0"),
        ("config", ("seed",), True, "a whole number >= 0"),
        ("config", ("device",), "tpu", "auto, cpu, gpu"),
        ("config", ("experiments",), [], "at least one"),
        ("config", ("experiments",), ["trial", "trial"], "each once"),
        ("config", ("overrides",), None, "experiment names"),
        ("curves", ("paper",), "", "a text of 1 to 120 characters on one line"),
        ("curves", ("title",), "", "a text of 1 to 120 characters on one line"),
        ("curves", ("regularizer", "l2"), -0.1, "a number >= 0"),
        ("curves", ("regularizer", "l1"), -0.1, "a number >= 0"),
        ("curves", ("datasets",), [], "a list of one dataset"),
        ("curves", ("datasets", 0, "rows"), 0, "a whole number >= 1"),
        ("curves", ("datasets", 0, "seed"), -1, "a whole number >= 0"),
        ("curves", ("epsilon",), [], "numbers > 0"),
        ("curves", ("epsilon",), [1, 1], "each once"),
        ("curves", ("epsilon",), [1, 1.0], "each once"),
        ("curves", ("epsilon", 0), 0, "a number > 0"),
        ("curves", ("epsilon", 0), -1.0, "a number > 0"),
        ("curves", ("delta",), 0, "strictly between 0 and 1"),
        ("curves", ("delta",), 1, "strictly between 0 and 1"),
        ("curves", ("delta",), "1e-3", "written with a point"),
        ("curves", ("variants",), [], "a list of variants"),
        ("curves", ("variants", 0), "improved", "published"),
        ("curves", ("replicates",), 1, "a whole number from 2"),
        ("curves", ("replicates",), 100001, "to 100000"),
        ("curves", ("dtype",), "float16", "float32, float64"),
        ("curves", ("algorithms",), {}, "at least one algorithm"),
        ("curves", ("algorithms", "dp-gd", "label"), "", "a text of 1 to 120 characters on one line"),
    ],
    ids=dotted,
)
def test_a_value_out_of_range_is_refused_with_the_range(
    name: str, path: Place, value: Any, advice: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    text = refusal(name, changed(name, path, value))
    assert f"{dotted(path)} is {value!r}; " in text
    assert advice in text


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("path", [("delta",), ("regularizer", "l1"), ("regularizer", "l2")], ids=dotted)
def test_a_number_must_be_finite(path: Place, number: float, refusal: Callable[[str, dict[str, Any]], str]) -> None:
    assert dotted(path) in refusal("curves", changed("curves", path, number))


def test_an_epsilon_must_be_a_number(refusal: Callable[[str, dict[str, Any]], str]) -> None:
    assert "epsilon" in refusal("curves", changed("curves", ("epsilon",), [float("nan")]))


@pytest.mark.parametrize("path", [("replicates",), ("datasets", 0, "rows")], ids=dotted)
def test_a_whole_number_written_with_a_point_is_refused_or_means_the_same(
    path: Place, load: Callable[..., Any]
) -> None:
    config = {**GOOD_CONFIG, "overrides": {}}
    (plain,) = load(config, changed("curves", path, 7))
    pointed = changed("curves", path, 7.0)
    try:
        (experiment,) = load(config, pointed)
    except UserError:
        with pytest.raises(UserError, match=re.escape(dotted(path))):
            load(config, pointed)
    else:
        assert experiment.jobs() == plain.jobs()


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("loss",), "logistik", "logistik"),
        (("constraint",), "l2_bal:1.0", "l2_bal"),
        (("constraint",), "l2_ball:-1", "l2_ball"),
        (("datasets", 0, "parameters"), {"fetures": 3}, "fetures"),
        (("algorithms", "dp-gd", "parameters"), {"TT": 5}, "TT"),
        (("algorithms", "dp-gd", "parameters"), {"T": 2.5}, "2.5"),
    ],
    ids=dotted,
)
def test_a_name_that_nothing_bears_is_refused_before_any_job_starts(
    path: Place, value: Any, named: str, load: Callable[..., Any]
) -> None:
    with pytest.raises(UserError, match=re.escape(named)) as caught:
        load(experiment=changed("curves", path, value))
    assert "experiments/trial.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "advice"),
    [
        (("datasets", 0, "name"), "synthetic_logistics", "did you mean 'synthetic_logistic'?"),
        (("datasets", 0, "name"), "qqqq", "use one of adult, "),
        (("algorithms", "dp-gd", "algorithm"), "dp_dg", "did you mean 'dp_gd'?"),
        (("algorithms", "dp-gd", "algorithm"), "qqqq", "use one of dp_acc_md, dp_gd, "),
        (("algorithms", "dp-gd", "algorithm"), "jl_method", "write jl_<name>, so that its jobs run again"),
        (("algorithms", "dp-gd", "label"), "T = {TT}", "did you mean 'T'?"),
        (("algorithms", "dp-gd", "label"), "T = {}", "use one of F0, T, "),
        (("algorithms", "dp-gd", "label"), "T = {T", "correct the braces"),
        (("algorithms", "dp-gd", "label"), "T = T}", "or double those that are text"),
        (("algorithms", "dp-gd", "label"), "{T.real}", "uses {T.real}; use one of"),
        (("algorithms", "dp-gd", "label"), "{eta:d}", "cannot be formatted (Unknown format code 'd'"),
        (("algorithms", "dp-gd", "label"), "{step:g}", "algorithms.dp-gd.label"),
        (("algorithms", "dp-gd", "label"), "{T:999}", "has the format '999', whose width or precision exceeds 120"),
        (("algorithms", "dp-gd", "label"), "{T:{eta}}", "exceeds 120"),
        (("algorithms", "dp-gd", "label"), r"$\nosuch$", "dollar signs"),
    ],
    ids=dotted,
)
def test_registered_names_and_labels_are_checked_with_suggestions(
    path: Place, value: str, advice: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    text = refusal("curves", changed("curves", path, value))
    assert advice in text
    assert str(path[0]).removesuffix("s") in text


@pytest.mark.parametrize("name", ["a {b}", "a*", "a?", "[a]", "a\\b", "a\nb", "-n", "--forceall", " "])
def test_a_results_folder_whose_name_is_a_pattern_or_an_option_is_refused(
    name: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    assert "results is " in refusal("config", changed("config", ("results",), name))


@pytest.mark.parametrize("name", ["our results", 'it\'s "ours"', "ergebnisse/für uns", "/tmp/結果"])
def test_a_results_folder_may_have_any_other_name(name: str, load: Callable[..., Any]) -> None:
    assert load({**GOOD_CONFIG, "results": name})


TITLES = [
    ("curves", ("paper",)),
    ("curves", ("title",)),
    ("sweeps", ("paper",)),
    ("sweeps", ("title",)),
    ("sweeps", ("problems", "logit", "title")),
    ("sweeps", ("problems", "small", "series", "name")),
    ("parts", ("paper",)),
    ("parts", ("title",)),
]
TEXTS = [
    *TITLES,
    ("curves", ("algorithms", "dp-gd", "label")),
    ("sweeps", ("methods", "dp-gd", "label")),
    *(("sweeps", ("methods", "dp-gd", "claims", key)) for key in ("source", "bound", "complexity")),
]


@pytest.mark.parametrize(("name", "path"), TEXTS, ids=dotted)
@pytest.mark.parametrize("text", ["two\nlines", "two\rlines", "a\ttab", "a\u2028line", "\x1b[2J", "x" * 121, "", "  "])
def test_a_text_for_figures_and_tables_is_one_line_of_at_most_120_characters(
    name: str, path: Place, text: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    said = refusal(name, changed(name, path, text))
    assert f"{dotted(path)} is " in said
    assert "it must be: a text of 1 to 120 characters on one line" in said


@pytest.mark.parametrize(("name", "path"), TITLES, ids=dotted)
@pytest.mark.parametrize("text", ["all {T}", "{{", "}", "{}"])
def test_a_title_has_no_parameters_and_so_no_braces(
    name: str, path: Place, text: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    said = refusal(name, changed(name, path, text))
    assert f"{dotted(path)} is {text!r}; it must be: a text of 1 to 120 characters on one line, without braces." in said


@pytest.mark.parametrize("text", ["x" * 120, "100 % & more $5 <b> | \\ ~^_#", "ℓ₂, naïve, 日本語", r"$\eta$ = 1"])
def test_other_texts_are_taken(text: str, load: Callable[..., Any]) -> None:
    spec = changed("curves", ("title",), text)
    spec["algorithms"]["dp-gd"]["label"] = text
    (experiment,) = load(experiment=spec)
    assert experiment.jobs()[0].spec["label"] == text


@pytest.mark.parametrize("entry", ["DP-GD", "dp gd", "dp.gd", "dp/gd", ""])
def test_an_algorithm_needs_a_short_name_that_can_be_part_of_a_file_name(
    entry: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    text = refusal(
        "curves",
        changed("curves", ("algorithms",), {entry: GOOD_EXPERIMENT["algorithms"]["dp-gd"]}),
    )
    assert "algorithms" in text
    assert "small letters, digits and dashes" in text


@pytest.mark.parametrize("key", [True, 1])
def test_a_key_that_yaml_does_not_read_as_text_is_refused_like_any_unknown_key(
    key: object, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    assert f"unknown key {key!r}" in refusal("config", {**GOOD_CONFIG, key: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("place", ["experiments", "overrides"])
def test_an_unknown_experiment_is_refused_with_a_suggestion(place: str, load: Callable[..., Any]) -> None:
    for wrong, advice in (("trail", "did you mean 'trial'?"), ("qqqq", "use one of part, trial.")):
        config = {**GOOD_CONFIG, place: [wrong] if place == "experiments" else {wrong: {"replicates": 3}}}
        with pytest.raises(UserError) as caught:
            load(config)
        assert_one_sentence(str(caught.value))
        assert f"Unknown experiment '{wrong}' in the configuration: {advice}" in str(caught.value)


def test_a_mistake_in_an_override_is_found_too(load: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"trial.*unknown key 'epsilonn'; did you mean 'epsilon'\?") as caught:
        load({**GOOD_CONFIG, "overrides": {"trial": {"epsilonn": [1]}}})
    assert_one_sentence(str(caught.value))


def test_merging_goes_key_by_key_through_mappings_and_replaces_everything_else() -> None:
    base = {"a": {"x": 1, "y": {"z": [1, 2]}}, "b": [1, 2], "c": 3, "d": {"k": 1}}
    before = copy.deepcopy(base)
    over = {"a": {"y": {"z": [3]}, "w": 4}, "b": [], "c": {"deep": 1}, "d": None, "e": 5}
    assert merge(base, over) == {
        "a": {"x": 1, "y": {"z": [3]}, "w": 4},
        "b": [],
        "c": {"deep": 1},
        "d": None,
        "e": 5,
    }
    assert base == before, "the base is not touched"
    assert merge(base, {}) == base
    assert merge({}, base) == base


@pytest.mark.parametrize("scale", SCALES, ids=lambda path: path.stem)
def test_scales_are_merged_as_snakemake_merges_them(scale: Path) -> None:
    utils = pytest.importorskip("snakemake.utils")
    expected = read_yaml(CONFIG / "config.yaml")
    utils.update_config(expected, read_yaml(scale))
    assert load_config([scale], CONFIG) == expected


@pytest.mark.parametrize("scale", [None, *SCALES], ids=lambda path: path.stem if path else "default")
def test_the_shipped_configuration_loads_at_every_scale(scale: Path | None) -> None:
    config = load_config([scale] if scale else [], CONFIG)
    experiments = load_experiments(config, CONFIG)
    assert sorted(e.name for e in experiments) == experiment_names(CONFIG), "every experiment is run by default"
    assert all(e.jobs() for e in experiments if e.kind != "parts")


@pytest.mark.parametrize("scale", [None, *SCALES], ids=lambda path: path.stem if path else "default")
def test_job_ids_are_unique_fit_the_wildcards_and_have_seeds_of_their_own(scale: Path | None) -> None:
    constraints = dict(
        re.findall(r'^    (experiment|dataset|job)="(.+)",$', (ROOT / "workflow/rules/common.smk").read_text(), re.M)
    )
    assert len(constraints) == 3
    experiments = load_experiments(load_config([scale] if scale else [], CONFIG), CONFIG)
    jobs = [job for experiment in experiments for job in experiment.jobs()]
    assert len({(job.experiment, job.id) for job in jobs}) == len(jobs)
    seeds = [seed for job in jobs for seed in seeds_of(job)]
    assert len(set(seeds)) == len(seeds)
    for job in jobs:
        assert re.fullmatch(constraints["experiment"], job.experiment)
        assert re.fullmatch(constraints["job"], job.id)
        assert re.fullmatch(constraints["dataset"], job.dataset)
        assert json.loads(json.dumps(dict(job.spec))) == dict(job.spec)


def seeds_of(job: Any) -> list[int]:
    """Return the seeds of a job: one, or two for each point of a sweep."""
    points = job.spec.get("points")
    if points is None:
        return [job.spec["seed"]]
    return [point[key] for point in points for key in ("seed", "tuning_seed")]


@pytest.mark.parametrize("kind", ["curve", "Sweeps", 5])
def test_an_unknown_kind_is_refused(kind: Any, load: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=f"unknown kind '{kind}'; (did you mean|use one of)"):
        load(experiment={**GOOD_EXPERIMENT, "kind": kind})


@pytest.mark.parametrize(
    ("path", "value", "advice"),
    [
        (("problems", "logit", "loss"), "logistik", "Unknown loss"),
        (("problems", "logit", "dataset", "name"), "synthetic_logistik", "did you mean 'synthetic_logistic'"),
        (("problems", "logit", "base"), {"n": 100}, "has no epsilon"),
        (("problems", "logit", "sweeps"), {"colour": [1]}, "has no parameter 'colour'"),
        (("methods", "dp-gd", "problems"), ["probit"], "unknown problem 'probit'"),
        (("methods", "dp-gd", "algorithm"), "dp_gdd", "did you mean 'dp_gd'"),
        (("methods", "dp-gd", "tune"), {"speed": [1]}, "has no parameter 'speed'"),
        (("methods", "dp-gd", "parameters"), {"T": 0.5}, "give a whole number"),
        (("methods", "dp-gd", "label"), "DP-GD, T = {T}", "drop the braces"),
        (("methods", "dp-gd", "label"), "DP-GD {{", "drop the braces"),
        (("methods", "dp-gd", "label"), "DP-GD }}", "drop the braces"),
        (("methods", "dp-gd", "sweeps"), {"colour": [1]}, "has no parameter 'colour'"),
        (("methods", "dp-gd", "base"), {"n": 100.5}, "give whole numbers"),
        (("methods", "dp-gd", "claims", "exponents"), {"N": -2}, "has the axis 'N'"),
        (("methods", "twin"), {"label": "DP-GD", "algorithm": "dp_gd", "variants": ["certified"]}, "rename one"),
    ],
    ids=dotted,
)
def test_names_in_a_sweep_experiment_are_checked(
    path: Place, value: Any, advice: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    assert advice in refusal("sweeps", changed("sweeps", path, value))


def test_unusual_but_valid_numbers_give_job_ids_that_fit_the_wildcards(load: Callable[..., Any]) -> None:
    (experiment,) = load(experiment={**GOOD_EXPERIMENT, "epsilon": [1e-5, 0.1 + 0.2, 12345, "inf"]})
    ids = [job.id for job in experiment.jobs()]
    assert len(set(ids)) == 4
    assert all(re.fullmatch("[A-Za-z0-9_.-]+", job) for job in ids)


def test_a_job_seed_is_fixed_by_root_experiment_and_job_for_all_time() -> None:
    job = "dp-gd.covertype-200000-seed0.published.eps1"
    assert job_seed(2017, "wyx17_fig1", job) == SEED
    others = {
        job_seed(2018, "wyx17_fig1", job),
        job_seed(2017, "wyx17_fig2", job),
        job_seed(2017, "wyx17_fig1", job + "0"),
    }
    assert len(others | {SEED}) == 4


def test_a_job_keeps_its_seed_when_others_are_added(load: Callable[..., Any]) -> None:
    (small,) = load(experiment={**GOOD_EXPERIMENT, "epsilon": [1]})
    (large,) = load(experiment={**GOOD_EXPERIMENT, "epsilon": [0.1, 1, 2]})
    (job,) = small.jobs()
    assert job in large.jobs()


def test_the_root_seed_changes_every_job_and_nothing_else(load: Callable[..., Any]) -> None:
    (first,), (second,) = load(), load(config={**GOOD_CONFIG, "seed": 2})
    for job, other in zip(first.jobs(), second.jobs(), strict=True):
        assert {key for key in job.spec if job.spec[key] != other.spec[key]} == {"seed"}


def test_datasets_that_differ_have_different_keys() -> None:
    datasets: list[dict[str, Any]] = [
        {"name": "adult"},
        {"name": "digits"},
        {"name": "adult", "rows": 10},
        {"name": "adult", "rows": 10, "seed": 1},
        {"name": "adult", "parameters": {"split": "test"}},
        {"name": "adult", "parameters": {"split": "train"}},
    ]
    assert len({dataset_key(dataset) for dataset in datasets}) == len(datasets)
    assert dataset_key({"name": "adult"}) == dataset_key({"name": "adult", "rows": None, "seed": 0, "parameters": {}})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "does not exist"),
        (b"results: [", "is not valid YAML at line 1"),
        (b"results: a\nseed: 1\n\tdevice: cpu\n", "is not valid YAML at line 3"),
        (b"\xff\xfe\xfa", "is not valid YAML"),
        (b"- a\n- b\n", "does not hold keys and values"),
        (b"just words", "does not hold keys and values"),
        (b"", "does not hold keys and values"),
    ],
    ids=["missing", "bracket", "tab", "not text", "list", "scalar", "empty"],
)
def test_a_missing_or_damaged_configuration_file_is_named(
    content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_config([file], CONFIG)
    assert_one_sentence(str(caught.value))
    assert str(file) in str(caught.value)
    assert complaint in str(caught.value)


def test_outside_a_checkout_the_folder_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run from the top of a dprepro checkout"):
        experiment_names(tmp_path)


@pytest.mark.parametrize("parameter", ["noise", "n", "d", "epsilon"])
def test_a_family_over_an_axis_is_refused(parameter: str, refusal: Callable[[str, dict[str, Any]], str]) -> None:
    text = refusal("sweeps", changed("sweeps", ("problems", "logit", "family"), {parameter: [0.5]}))
    assert f"problems.logit.family is over {parameter}; use one parameter of the data that is no axis." in text


def test_a_family_over_something_that_the_data_do_not_have_is_refused(
    refusal: Callable[[str, dict[str, Any]], str],
) -> None:
    text = refusal("sweeps", changed("sweeps", ("problems", "logit", "family"), {"colour": [1]}))
    assert "'synthetic_logistic' has no parameter 'colour'" in text


def test_a_delta_that_falls_with_n_needs_an_n(refusal: Callable[[str, dict[str, Any]], str]) -> None:
    text = refusal("sweeps", changed("sweeps", ("problems", "logit", "base"), {"d": 3, "epsilon": 1}))
    assert "problems.logit.base has no n, which delta_power needs" in text


def test_delta_may_be_missing_where_every_problem_has_a_power_of_n(load: Callable[..., Any]) -> None:
    (experiment,) = load({**GOOD_CONFIG, "overrides": {}}, _without(GOOD_SWEEPS, "delta"))
    job = experiment.jobs()[0]
    assert job.spec["delta"] is None
    assert [point["delta"] for point in job.spec["points"]] == [float(n) ** -1.5 for n in (100, 300)]


def test_a_problem_without_a_power_of_n_needs_a_delta(refusal: Callable[[str, dict[str, Any]], str]) -> None:
    content = copy.deepcopy(_without(GOOD_SWEEPS, "delta"))
    del content["problems"]["logit"]["delta_power"]
    assert "problems.logit has no delta_power and the experiment no delta; add one." in refusal("sweeps", content)


def _without(content: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}


def timed(**changes: Any) -> dict[str, Any]:
    """The good sweep with a timed problem, and one method that goes along the problem's own axes."""
    content = copy.deepcopy(GOOD_SWEEPS)
    problem, method = content["problems"]["logit"], content["methods"]["dp-gd"]
    del problem["family"], problem["nonsmooth"], method["sweeps"]
    problem.update({"timed": True, "sweeps": {"n": [100, 200]}} | changes)
    return content


def test_a_timed_problem_is_swept_over_n(load: Callable[..., Any]) -> None:
    assert load({**GOOD_CONFIG, "overrides": {}}, timed())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sweeps": {"n": [100, 200], "d": [3]}}, "problems.logit.sweeps has the axis 'd', but time is measured"),
        ({"family": {"margin": [3]}}, "problems.logit is timed, but has a family"),
        (
            {"dataset": {"name": "population_sparse"}, "loss": "huber:1"},
            "problems.logit is timed, but the cost of 'population_sparse' does not grow with n; use stored rows.",
        ),
    ],
    ids=["axis", "family", "population"],
)
def test_a_time_that_says_nothing_of_n_is_refused(
    changes: dict[str, Any], sentence: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    assert sentence in refusal("sweeps", timed(**changes))


def test_a_method_takes_a_timed_problem_along_n_only(refusal: Callable[[str, dict[str, Any]], str]) -> None:
    content = timed()
    content["methods"]["dp-gd"]["sweeps"] = {"n": [100, 200], "epsilon": [1, 2]}
    assert "methods.dp-gd.sweeps has the axis 'epsilon', but time is" in refusal("sweeps", content)


SMOOTH = {"loss": "welsch:1", "regularizer": {"l2": 0.1}, "nonsmooth": {}}
POPULATION = {"dataset": {"name": "population_sparse"}, "family": {"noise": [0.1]}, "sweeps": {"n": [100]}}


def judged(metric: str, **changes: Any) -> dict[str, Any]:
    """The good sweep with another metric, on a problem that has all that any metric needs but for the changes."""
    content = copy.deepcopy(GOOD_SWEEPS)
    content["problems"]["logit"].update({"metric": metric} | SMOOTH | POPULATION | changes)
    return content


@pytest.mark.parametrize("metric", ["optimality gap", "excess risk", "stationarity gap", "near stationarity"])
def test_a_problem_with_all_that_a_metric_needs_loads(metric: str, load: Callable[..., Any]) -> None:
    (experiment,) = load({**GOOD_CONFIG, "overrides": {}}, judged(metric))
    assert {job.spec["metric"] for job in experiment.jobs()} == {metric}


@pytest.mark.parametrize(
    ("metric", "changes", "need"),
    [
        (
            "excess risk",
            {"dataset": {"name": "synthetic_regression"}, "family": {"noise": [0.1]}},
            "a population_* dataset",
        ),
        ("stationarity gap", {"loss": "absolute"}, "a smooth loss"),
        ("stationarity gap", {"constraint": None}, "a bounded set"),
        ("stationarity gap", {"regularizer": {"l1": 0.1}}, "a regularizer without l1"),
        ("stationarity gap", {"nonsmooth": {"l1": 0.1}}, "a regularizer without l1"),
        ("near stationarity", {"loss": "huber:1"}, "a loss that is weakly convex and not convex"),
        ("near stationarity", {"loss": "absolute"}, "a loss that is weakly convex and not convex"),
        ("near stationarity", {"constraint": None}, "an l_p ball with 1 <= p <= 2"),
        ("near stationarity", {"constraint": "simplex:1"}, "an l_p ball with 1 <= p <= 2"),
        ("near stationarity", {"regularizer": {"l1": 0.1}}, "a regularizer without l1"),
    ],
    ids=str,
)
def test_a_metric_that_the_problem_does_not_have_is_refused(
    metric: str, changes: dict[str, Any], need: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    text = refusal("sweeps", judged(metric, **changes))
    assert f"problems.logit.metric is {metric!r}, which needs {need}; change the metric or the problem." in text


def test_populations_are_told_by_their_names() -> None:
    loaded = {name: datasets.load(name, rows=64).population for name in datasets.names() if "_" in name}
    populations = {name for name, population in loaded.items() if population is not None}
    assert populations == {name for name in datasets.names() if name.startswith("population_")}


def test_a_method_may_have_its_own_values_on_every_problem(load: Callable[..., Any]) -> None:
    content = copy.deepcopy(GOOD_SWEEPS)
    content["problems"]["other"] = content["problems"]["logit"]
    method = content["methods"]["dp-gd"]
    method |= {"problems": {"logit": {"n": [150, 250]}, "other": None}, "replicates": 6}
    del method["tune"], method["sweeps"]
    (experiment,) = load(experiment=content)
    found = {job.spec["problem"]: job.spec for job in experiment.jobs()}
    sizes = {key: [p["value"] for p in spec["points"] if p["axis"] == "n"] for key, spec in found.items()}
    assert sizes == {"logit": [150, 250], "other": [100, 200]}
    assert {spec["replicates"] for spec in found.values()} == {6}


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ({"probit": {"n": [100]}}, "unknown problem 'probit'"),
        ({"logit": {"n": [100.5]}}, "the axis n has the value 100.5"),
        ({"logit": {"colour": [1]}}, "has no parameter 'colour'"),
        ({"logit": {"n": []}}, "methods.dp-gd.problems"),
    ],
)
def test_mistakes_in_a_methods_own_values_are_named(problems, message, refusal) -> None:
    assert message in refusal("sweeps", changed("sweeps", ("methods", "dp-gd", "problems"), problems))


def in_series(**changes: Any) -> dict[str, Any]:
    """The good sweep with two problems in its series and a method on both; None drops a key, `__` goes inwards."""
    content = copy.deepcopy(GOOD_SWEEPS)
    small = content["problems"]["small"]
    wide = {"series": {"name": "along d", "axis": "d", "value": 5}, "base": {"n": 100, "d": 5, "epsilon": 1}}
    content["problems"]["wide"] = copy.deepcopy(small) | wide
    own = {"small": {"n": [150, 250]}, "wide": None}
    content["methods"]["two"] = {"label": "Two", "algorithm": "dp_gd", "variants": ["certified"], "problems": own}
    for place, value in changes.items():
        *path, key = ("methods" if place.startswith("two") else "problems", *place.split("__"))
        inner = reach(content, tuple(path))
        inner.pop(key, None)
        if value is not None:
            inner[key] = value
    return content


def along(axis: str, value: float, name: str = "along d") -> dict[str, Any]:
    return {"name": name, "axis": axis, "value": value}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"wide__series": along("d", 5, "another")},
        {"wide__series": along("1/epsilon", 1, "another")},
        {"small__series": along("1/beta", 3), "wide__series": along("1/beta", 7)},
        {"two__base": {"d": 5}, "two__problems": ["wide"]},
        {"two__base": {"epsilon": "inf"}},
        {"two__problems": ["small"], "two__sweeps": {"n": [50, 60], "epsilon": [1]}},
        {"two__problems": {"small": None}, "two__sweeps": {"n": [50, 60]}},
    ],
    ids=str,
)
def test_series_that_can_be_told_load(changes: dict[str, Any], load: Callable[..., Any]) -> None:
    assert load({**GOOD_CONFIG, "overrides": {}}, in_series(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"small__series": along("d", 5)}, "problems.small.series is at d = 5, but the base has 3; make them equal."),
        (
            {"small__series": along("1/epsilon", 2)},
            "problems.small.series is at 1/epsilon = 2, but the base has 1; make them equal.",
        ),
        (
            {"small__series": along("1/epsilon", 2), "small__base": {"n": 100, "epsilon": "inf"}},
            "problems.small.series is at 1/epsilon = 2, but the base has 0; make them equal.",
        ),
        ({"small__reach": None}, "problems.small is in a series, but says not what is to be reached; add reach."),
        (
            {"wide__series": None},
            "problems.wide has reach, but is in no series, where samples are told; add series or drop reach.",
        ),
        (
            {"small__metric": "gradient norm"},
            "problems.small has a radius, which only the metric 'Goldstein stationarity' uses; drop it or change",
        ),
        *(
            ({f"small__{key}": value}, f"problems.small.metric is 'Goldstein stationarity', which needs no {need}")
            for key, value, need in (
                ("regularizer", {"l2": 0.5}, "regularizer"),
                ("regularizer", {"l1": 0.5}, "regularizer"),
                ("constraint", "l2_ball:1.0", "constraint"),
            )
        ),
        (
            {"small__family": {"margin": [3, 4]}},
            "problems.small is in a series, but has a family, each member with its own samples; drop one of them.",
        ),
        (
            {"wide__series": along("d", 3), "wide__base": {"n": 100, "d": 3, "epsilon": 1}},
            "problems.wide.series is at d = 3, and so is problems.small in 'along d'; drop one of them.",
        ),
        (
            {"wide__series": along("1/epsilon", 1)},
            "problems.wide.series is along 1/epsilon, but others of 'along d' along d; give them one axis.",
        ),
        (
            {"two__base": {"d": 64}},
            "methods.two: the series of small is at d = 3, but the method's base has 64; make them equal.",
        ),
        (
            {"two__sweeps": {"n": [50, 60]}},
            "methods.two has sweeps and values in problems, which go before; drop one of them.",
        ),
        (
            {"two__problems": {"small": {"n": [150]}}},
            "methods.two has fewer than two n on small, which is in a series; give at least two.",
        ),
        ({"two__problems": {"small": {"d": [3, 5]}}}, "methods.two has fewer than two n on small"),
        ({"two__problems": ["small"], "two__sweeps": {"epsilon": [1, 2]}}, "methods.two has fewer than two n on small"),
        ({"wide__sweeps": {"n": [100]}}, "methods.two has fewer than two n on wide"),
        (
            {"two__claims": {"samples": {"qqqq": 1}}},
            "unknown key 'qqqq' in methods.two.claims.samples; use one of d, 1/epsilon, 1/beta.",
        ),
        ({"two__claims": {"samples": {"epsilon": -1}}}, "'epsilon' in methods.two.claims.samples; did you mean '1/eps"),
    ],
    ids=str,
)
def test_series_that_cannot_be_told_are_refused(
    changes: dict[str, Any], message: str, refusal: Callable[[str, dict[str, Any]], str]
) -> None:
    assert message in refusal("sweeps", in_series(**changes))


@pytest.mark.parametrize("label", ["GD, T = {T}", "GD {{variant}}"])
def test_a_label_that_variants_share_is_refused(
    label: str, refusal: Callable[..., str], load: Callable[..., Any]
) -> None:
    """A figure would draw the mean of both under one name."""
    several = changed("curves", ("variants",), ["published", "certified"])
    several["algorithms"]["dp-gd"]["label"] = label
    assert "dp-gd.label is shared by several variants; add {variant} to it." in refusal("curves", several)
    several["algorithms"]["dp-gd"]["label"] = "GD {variant}"
    load(experiment=several)
