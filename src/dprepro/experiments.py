"""From configuration files to jobs: experiment x algorithm x dataset x epsilon x variant."""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import itertools
import json
import math
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprepro import extensions, labels
from dprepro.errors import UserError
from dprepro.jobs import TILE, Job, job_seed
from dprepro.metrics import GOLDSTEIN
from dprepro.parts import PartsExperiment
from dprepro.sweeps import EPSILON, FEATURES, ROWS, SweepExperiment, candidates, grids_of

if TYPE_CHECKING:
    from dprepro.algorithms.base import Algorithm

# Where a checkout keeps its configuration; commands are run from its top folder.
CONFIG = Path("config")
# Papers whose claims are held against computations, with the figures that show something of it.
FINDINGS: dict[str, tuple[str, ...]] = {"abg23": (), "klt25": ("gap", "lasry_lions")}
# What Snakemake can be asked for besides the experiments.
TARGETS = ("figures", "tables", "findings", "privacy", "audit", "report", "all")
# The other rules of the workflow, whose names no experiment may have either.
RULES = (
    *("dataset", "optimum", "certify", "run", "collect", "optima", "sweep", "collect_sweeps", "collect_parts"),
    *("figure", "table", "paper_findings", "drawn_findings", "findings_figure", "audit_algorithm", "privacy_tables"),
    "report_page",
)


@dataclass(frozen=True)
class Experiment:
    """A validated experiment of curves: one figure of a paper, with the table of its numbers."""

    name: str
    spec: Mapping[str, Any]
    seed: int
    device: str
    kind = "curves"

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Return the prepared datasets this experiment uses, by key (which serves as file name)."""
        return {dataset_key(dataset): dict(dataset) for dataset in self.spec["datasets"]}

    def jobs(self) -> list[Job]:
        """Return all jobs in the order of the configuration."""
        return list(self._jobs())

    def problem(self, dataset: str) -> dict[str, Any]:
        """Return what defines the objective on a dataset: all that its optimum depends on."""
        return {key: self.spec[key] for key in ("loss", "regularizer", "constraint")} | {"dataset": dataset}

    def _jobs(self) -> Iterator[Job]:
        spec = self.spec
        for entry, algorithm in spec["algorithms"].items():
            for dataset in self.datasets():
                for variant in spec["variants"]:
                    for epsilon in spec["epsilon"]:
                        job = f"{entry}.{dataset}.{variant}.eps{float(epsilon):g}"
                        yield Job(
                            self.name,
                            job,
                            dataset,
                            {
                                "paper": spec["paper"],
                                "title": spec["title"],
                                "experiment": self.name,
                                "job": job,
                                "entry": entry,
                                "label": algorithm["label"],
                                "algorithm": algorithm["algorithm"],
                                "parameters": algorithm.get("parameters", {}),
                                "variant": variant,
                                "epsilon": epsilon if epsilon == "inf" else float(epsilon),
                                "delta": spec["delta"],
                                "replicates": spec["replicates"],
                                "tile": spec.get("tile", TILE),
                                "dtype": spec["dtype"],
                                "device": self.device,
                                "seed": job_seed(self.seed, self.name, job),
                                **self.problem(dataset),
                            },
                        )


def audit_jobs(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the audit of each algorithm by name, as plain values; the configuration must be validated already.

    These are all algorithms, own ones included, unless the configuration lists some.
    """
    from dprepro.algorithms import names

    settings = config["audit"]
    return {
        name: {
            "algorithm": name,
            "settings": settings["settings"],
            "delta": settings["delta"],
            "replicates": settings["replicates"],
            "device": config["device"],
            "seed": job_seed(int(config["seed"]), "audit", name),
        }
        for name in settings.get("algorithms", names())
    }


def dataset_key(dataset: Mapping[str, Any]) -> str:
    """Return a short file name for a dataset with its rows, seed and parameters."""
    rows = dataset.get("rows")
    key = f"{dataset['name']}-{'all' if rows is None else rows}-seed{dataset.get('seed', 0)}"
    parameters = dataset.get("parameters")
    if parameters:
        text = json.dumps(parameters, sort_keys=True)
        key += "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return key


AnyExperiment = Experiment | SweepExperiment | PartsExperiment
KINDS: dict[str, type[AnyExperiment]] = {cls.kind: cls for cls in (Experiment, SweepExperiment, PartsExperiment)}


def load_experiments(config: Mapping[str, Any], folder: Path = CONFIG) -> list[AnyExperiment]:
    """Validate the configuration and return its experiments; a mistake is a `UserError` that names the key.

    The parts of an experiment that has some stand before it, whether the configuration lists them or not. The extension
    folders of the configuration are in use from here on.
    """
    validate(config, "config", folder, "the configuration")
    with _naming("In the configuration: extensions"):
        extensions.use(config.get("extensions", ()))
    _check_own_files()
    _check_audits(config)
    known = experiment_names(folder)
    overrides = config.get("overrides", {})
    for name in [*config["experiments"], *overrides]:
        if name not in known:
            raise UserError(f"Unknown experiment {name!r} in the configuration: {_suggest(name, known)}")
    # Overrides of an experiment that is not run are checked too: a typo there should not wait.
    experiments = {name: _load(name, config, folder) for name in dict.fromkeys([*config["experiments"], *overrides])}
    for name in list(experiments):
        for part in _parts(experiments[name]):
            if part not in known:
                raise UserError(f"Unknown experiment {part!r} in the parts of {name}: {_suggest(part, known)}")
            if part not in experiments:
                experiments[part] = _load(part, config, folder)
            if experiments[part].kind != SweepExperiment.kind:
                raise UserError(f"The experiment {name} has the part {part!r}, which is no sweep: name sweeps only.")
    wanted = [wish for name in config["experiments"] for wish in (*_parts(experiments[name]), name)]
    return [experiments[name] for name in dict.fromkeys(wanted)]


def _check_own_files() -> None:
    """Import every file of the extension folders that is there: a mistake in one should not wait for its job."""
    from dprepro import algorithms, datasets, losses

    for name in algorithms.own():
        with _left_to_its_jobs():
            algorithms.get_algorithm(name)
    for name in losses.own():
        with _left_to_its_jobs():
            losses.get_loss(name)
    datasets.own()


def _check_audits(config: Mapping[str, Any]) -> None:
    from dprepro import algorithms

    known = algorithms.names()
    for name in config["audit"].get("algorithms", ()):
        if name not in known:
            raise UserError(
                f"In the configuration: unknown algorithm {name!r} in audit.algorithms; {_suggest(name, known)}"
            )


def papers_found(experiments: Sequence[AnyExperiment]) -> list[str]:
    """Return the papers with findings among the experiments: those with a table of parts."""
    wholes = {experiment.spec["paper"].lower() for experiment in experiments if experiment.kind == "parts"}
    return [paper for paper in FINDINGS if paper in wholes]


def _parts(experiment: AnyExperiment) -> list[str]:
    """Return the experiments that one brings with it: its parts and what is made beside them."""
    return [*experiment.parts, *experiment.beside] if isinstance(experiment, PartsExperiment) else []


def _load(name: str, config: Mapping[str, Any], folder: Path) -> AnyExperiment:
    """Read and check one experiment with the configuration's overrides."""
    overrides = config.get("overrides", {})
    path = experiment_files(folder)[name]
    spec = merge(read_yaml(path), overrides.get(name, {}))
    shown = extensions.shown(path)
    where = f"{shown} with the configuration's overrides" if name in overrides else shown
    kind = str(spec.get("kind", Experiment.kind))
    if kind not in KINDS:
        raise UserError(f"In {where}: unknown kind {kind!r}; {_suggest(kind, sorted(KINDS))}")
    validate(spec, kind, folder, where)
    _check_mathematics(spec, f"In {where}: ")
    if kind == Experiment.kind:
        _check_curves(spec, where)
    elif kind == SweepExperiment.kind:
        _check_sweeps(spec, where)
    return KINDS[kind](name, spec, int(config["seed"]), str(config["device"]))


def _check_mathematics(spec: Mapping[str, Any], where: str) -> None:
    """Check what figures would read as mathematics in the titles and labels of an experiment."""
    # As figures draw it.
    texts = {"title": f"{spec['paper']}: {spec['title']}"}
    for part, key in (("problems", "title"), ("algorithms", "label"), ("methods", "label")):
        texts |= {f"{part}.{name}.{key}": entry[key] for name, entry in spec.get(part, {}).items()}
    for place, text in texts.items():
        if problem := labels.mathematics_problem(text):
            raise UserError(f"{where}{place} is {_short(text)}, which {problem}; correct or drop them.")


def load_config(files: Sequence[Path], folder: Path = CONFIG) -> dict[str, Any]:
    """Read the default configuration with `files` merged over it, as Snakemake does."""
    merged = read_yaml(folder / "config.yaml")
    for file in files:
        merged = merge(merged, read_yaml(file))
    return merged


def experiment_names(folder: Path = CONFIG) -> list[str]:
    """Return the names of the experiments, own ones included."""
    return list(experiment_files(folder))


def experiment_files(folder: Path = CONFIG) -> dict[str, Path]:
    """Return the files of the experiments by name: those of the configuration folder and the user's own."""
    if not (folder / "experiments").is_dir():
        raise UserError(f"There is no folder {folder / 'experiments'} here: run from the top of a dprepro checkout.")
    own = extensions.found(extensions.EXPERIMENTS, reserved_names(folder))
    return dict(sorted({**_built_in(folder), **own}.items()))


def reserved_names(folder: Path = CONFIG) -> set[str]:
    """Return what no own experiment may be called: those of the configuration folder, rules and what draws others."""
    # Modules that make the figure or table of an experiment by its name; importing their packages would take a second.
    packages = [str(Path(__file__).parent / package) for package in ("figures", "tables")]
    findings = {f"{paper}_{part}" for paper, figures in FINDINGS.items() for part in ("findings", *figures)}
    return {
        *_built_in(folder),
        *TARGETS,
        *RULES,
        *findings,
        *(module.name for module in pkgutil.iter_modules(packages)),
    }


def _built_in(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in (folder / "experiments").glob("*.yaml")}


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping."""
    import yaml

    try:
        content = _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"The configuration file {path} does not exist: check the path.") from None
    except OSError as error:
        raise UserError(f"The configuration file {path} cannot be read ({error.strerror}): check the path.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UserError(f"The configuration file {path} is not valid YAML{line}: correct it.") from None
    if not isinstance(content, dict):
        raise UserError(f"The configuration file {path} does not hold keys and values: correct it.")
    return content


def _parsed(text: str) -> Any:
    """Return the content of a YAML text."""
    import yaml

    try:
        # Written in C, if it is there, and ten times as fast.
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        # The other one tells the line of a mistake better.
        return yaml.safe_load(text)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `over` laid on top; mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def validate(content: Mapping[str, Any], schema: str, folder: Path, where: str) -> None:
    """Check `content` against a closed JSON Schema; the first mistake becomes one sentence."""
    import jsonschema

    rules = json.loads((folder / "schema" / f"{schema}.schema.json").read_text(encoding="utf-8"))
    strict = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer).redefine(
        "number", _is_number
    )
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=strict)(rules)
    error = jsonschema.exceptions.best_match(validator.iter_errors(content))
    if error is not None:
        raise UserError(f"In {where}: {_explain(error)}")


def _is_integer(checker: Any, value: Any) -> bool:
    """Whether a value is written as a whole number; plain JSON Schema would let 7.0 pass."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: Any, value: Any) -> bool:
    """Whether a value is a finite number; plain JSON Schema lets NaN pass every bound."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _explain(error: Any) -> str:
    """Turn a schema error into one sentence: what, where, what to do."""
    while error.parent is not None and error.parent.validator == "anyOf":
        error = error.parent
    place = ".".join(str(part) for part in error.absolute_path)
    inside = f" in {place}" if place else ""
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known), key=str)
        return f"unknown key {unknown[0]!r}{inside}; {_suggest(unknown[0], known)}"
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"the key {missing!r} is missing{inside}; add it."
    if error.validator == "enum" and error.absolute_schema_path[-2] == "propertyNames":
        return f"unknown key {error.instance!r}{inside}; {_suggest(error.instance, error.validator_value)}"
    if error.validator == "enum":
        return f"{place} is {error.instance!r}; use one of {', '.join(map(str, error.validator_value))}."
    advice = error.schema.get("description", error.message)
    return f"{place or 'the top level'} is {_short(error.instance)}; it must be: {advice}."


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _suggest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}."


def _check_curves(spec: Mapping[str, Any], where: str) -> None:
    """Check what a schema cannot know: registered algorithms with their letters, and datasets."""
    _check_problem(spec, f"In {where}")
    for entry, algorithm in spec["algorithms"].items():
        with _left_to_its_jobs():
            _check_method(algorithm, where, f"algorithms.{entry}")
            if len(spec["variants"]) > 1 and "variant" not in labels.names(algorithm["label"]):
                raise UserError(
                    f"In {where}: algorithms.{entry}.label is shared by several variants; add {{variant}} to it."
                )
            with _naming(f"In {where}: algorithms.{entry}.parameters"):
                _letters_checked(algorithm, algorithm.get("parameters", {}))
    for dataset in spec["datasets"]:
        _check_dataset(dataset, where, dataset.get("parameters", {}))


def _check_sweeps(spec: Mapping[str, Any], where: str) -> None:
    """Check the names in a sweep experiment: problems with their datasets and axes, methods with their letters."""
    for key, problem in spec["problems"].items():
        _check_swept(problem, where, f"In {where}: problems.{key}")
        if "delta_power" not in problem and "delta" not in spec:
            raise UserError(f"In {where}: problems.{key} has no delta_power and the experiment no delta; add one.")
    for entry, method in spec["methods"].items():
        with _left_to_its_jobs():
            _check_method(method, where, f"methods.{entry}")
        for name in method.get("problems", ()):
            if name not in spec["problems"]:
                hint = _suggest(name, list(spec["problems"]))
                raise UserError(f"In {where}: unknown problem {name!r} in methods.{entry}.problems; {hint}")
        for letters in candidates(method):
            with _left_to_its_jobs(), _naming(f"In {where}: methods.{entry}"):
                _letters_checked(method, letters)
        if set("{}") & set(method["label"]):
            raise UserError(
                f"In {where}: methods.{entry}.label is {method['label']!r}; letters change from point to point of a "
                "sweep, so drop the braces."
            )
        for name in method.get("problems", spec["problems"]):
            _check_axes(method, name, spec["problems"][name], f"In {where}: methods.{entry}")
    seen = set()
    for method in spec["methods"].values():
        for line in itertools.product([method["label"]], method["variants"], method.get("problems", spec["problems"])):
            if line in seen:
                raise UserError(f"In {where}: two methods are called {line[0]!r} in the variant {line[1]}; rename one.")
            seen.add(line)
    _check_series(spec, f"In {where}: ")


def _check_swept(problem: Mapping[str, Any], where: str, place: str) -> None:
    """Check one problem of a sweep experiment: its names, the axes of its base, and what is measured on it."""
    _check_problem(problem, place)
    axes = {**problem["base"], **problem["sweeps"], **_family(problem, place)}
    _check_dataset(problem["dataset"], where, _parameters(problem, axes))
    if EPSILON not in problem["base"]:
        raise UserError(f"{place}.base has no epsilon; add one.")
    if "delta_power" in problem and ROWS not in problem["base"]:
        raise UserError(f"{place}.base has no n, which delta_power needs; add one.")
    with _left_to_its_jobs():
        _check_metric(problem, place)
    if problem["dataset"].get("repeated") and not _is_population(problem):
        raise UserError(f"{place}.dataset is repeated, which needs a population_* dataset; drop repeated.")
    _check_timed(problem, place)
    _check_timed_axes(problem, problem["sweeps"], place)


def _check_metric(problem: Mapping[str, Any], place: str) -> None:
    """Check that a problem has what its metric is defined by."""
    from dprepro.geometry import ball_exponent, get_set
    from dprepro.losses import get_loss

    loss, constraint, metric = get_loss(problem["loss"]), get_set(problem["constraint"]), problem["metric"]
    plain = not any(part.get("l1") for part in (problem["regularizer"], problem.get("nonsmooth", {})))
    needs = {
        "excess risk": {"a population_* dataset": _is_population(problem)},
        GOLDSTEIN: {
            "a radius": "radius" in problem,
            "no regularizer": not any(problem["regularizer"].values()),
            "no constraint": problem["constraint"] is None,
        },
        "gradient norm": {"a smooth loss": loss.smooth, "a regularizer without l1": plain},
        "stationarity gap": {
            "a smooth loss": loss.smooth,
            "a bounded set": "bounded" in constraint.properties,
            "a regularizer without l1": plain,
        },
        "near stationarity": {
            "a loss that is weakly convex and not convex": 0.0 < loss.weak_convexity(1.0) < math.inf,
            "an l_p ball with 1 <= p <= 2": ball_exponent(constraint) is not None,
            "a regularizer without l1": plain,
        },
    }
    for need, holds in needs.get(metric, {}).items():
        if not holds:
            raise UserError(f"{place}.metric is {metric!r}, which needs {need}; change the metric or the problem.")


def _check_timed(problem: Mapping[str, Any], place: str) -> None:
    """Check that the time that a problem takes grows with n, and that there is one time for every n."""
    if not problem.get("timed"):
        return
    if "family" in problem:
        raise UserError(f"{place} is timed, but has a family, each member with its own time; drop family or timed.")
    if _is_population(problem):
        name = problem["dataset"]["name"]
        raise UserError(f"{place} is timed, but the cost of {name!r} does not grow with n; use stored rows.")


def _check_timed_axes(problem: Mapping[str, Any], grids: Mapping[str, Any], place: str) -> None:
    """Check that a timed problem is swept over n alone."""
    others = [axis for axis in grids if axis != ROWS]
    if problem.get("timed") and others:
        raise UserError(f"{place}.sweeps has the axis {others[0]!r}, but time is measured against n only; drop it.")


def _check_series(spec: Mapping[str, Any], where: str) -> None:
    """Check that problems in series, the keys that go with them and the methods on them tell samples along an axis."""
    seen: dict[str, dict[float, str]] = {}
    axes: dict[str, str] = {}
    for key, problem in spec["problems"].items():
        place = f"{where}problems.{key}"
        _check_needed(problem, place)
        if "series" not in problem:
            continue
        _check_value(problem["series"], problem["base"], f"{place}.series", "the base")
        name, axis, value = (problem["series"][part] for part in ("name", "axis", "value"))
        if axis != axes.setdefault(name, axis):
            raise UserError(
                f"{place}.series is along {axis}, but others of {name!r} along {axes[name]}; give them one axis."
            )
        twin = seen.setdefault(name, {}).setdefault(value, key)
        if twin != key:
            raise UserError(
                f"{place}.series is at {axis} = {value:g}, and so is problems.{twin} in {name!r}; drop one of them."
            )
    for entry, method in spec["methods"].items():
        _check_method_in_series(method, spec["problems"], f"{where}methods.{entry}")


def _check_needed(problem: Mapping[str, Any], place: str) -> None:
    """Check that a problem has the keys that a series and the Goldstein stationarity need, and no others of them."""
    if "radius" in problem and problem["metric"] != GOLDSTEIN:
        raise UserError(
            f"{place} has a radius, which only the metric {GOLDSTEIN!r} uses; drop it or change the metric."
        )
    if "series" in problem and "reach" not in problem:
        raise UserError(f"{place} is in a series, but says not what is to be reached; add reach.")
    if "reach" in problem and "series" not in problem:
        raise UserError(f"{place} has reach, but is in no series, where samples are told; add series or drop reach.")
    if "series" in problem and "family" in problem:
        raise UserError(
            f"{place} is in a series, but has a family, each member with its own samples; drop one of them."
        )


def _check_value(series: Mapping[str, Any], base: Mapping[str, Any], place: str, said: str) -> None:
    """Check that a series is at the value of its axis that a base has, where that has one."""
    axis, value = series["axis"], series["value"]
    key = axis.removeprefix("1/")
    if key not in base:
        return
    own = 1.0 / float(base[key]) if axis.startswith("1/") else base[key]
    if not math.isclose(own, value, rel_tol=1e-9):
        raise UserError(f"{place} is at {axis} = {value:g}, but {said} has {own:g}; make them equal.")


def _check_method_in_series(method: Mapping[str, Any], problems: Mapping[str, Any], place: str) -> None:
    """Check that a method's own values are those it is run with, and that on a series they leave the axis alone."""
    own = method.get("problems", problems)
    if "sweeps" in method and isinstance(method.get("problems"), Mapping) and any(own.values()):
        raise UserError(f"{place} has sweeps and values in problems, which go before; drop one of them.")
    for key in own:
        problem = problems[key]
        if "series" not in problem:
            continue
        _check_value(problem["series"], method.get("base", {}), f"{place}: the series of {key}", "the method's base")
        if len(grids_of(method, key, problem).get(ROWS, ())) < 2:
            raise UserError(f"{place} has fewer than two n on {key}, which is in a series; give at least two.")


def _is_population(problem: Mapping[str, Any]) -> bool:
    """Whether a problem's data are a distribution, which the names of such datasets say."""
    return str(problem["dataset"]["name"]).startswith("population_")


def _parameters(problem: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a problem and its axes ask of the dataset; only their names count."""
    names = ["features" if axis == FEATURES else axis for axis in axes if axis not in (ROWS, EPSILON)]
    return {**problem["dataset"].get("parameters", {}), **dict.fromkeys(names)}


def _check_axes(method: Mapping[str, Any], key: str, problem: Mapping[str, Any], where: str) -> None:
    """Check that a method's own axes exist, that counts are whole, and that claims speak of axes."""
    base = {**problem["base"], **method.get("base", {})}
    grids = grids_of(method, key, problem)
    known = {**base, **grids}
    _check_timed_axes(problem, grids, where)
    _check_dataset(problem["dataset"], where.removeprefix("In "), _parameters(problem, known))
    for axis in (ROWS, FEATURES):
        for value in [*grids.get(axis, []), *([base[axis]] if axis in base else [])]:
            if value != int(value):
                raise UserError(f"{where}: the axis {axis} has the value {value}; give whole numbers.")
    for key in ("exponents", "log_exponents", "own_bounds"):
        for axis in method.get("claims", {}).get(key, {}):
            if axis not in known:
                raise UserError(f"{where}.claims.{key} has the axis {axis!r}; {_suggest(axis, list(known))}")


def _family(problem: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return a problem's family: the parameter that tells its members apart with its values, if it has one."""
    family: Mapping[str, Any] = problem.get("family", {})
    swept = [name for name in family if name in (ROWS, FEATURES, EPSILON) or name in problem["sweeps"]]
    if len(family) > 1 or swept:
        raise UserError(f"{where}.family is over {', '.join(family)}; use one parameter of the data that is no axis.")
    return family


def _check_problem(problem: Mapping[str, Any], where: str) -> None:
    from dprepro.geometry import get_set
    from dprepro.losses import get_loss

    with _left_to_its_jobs(), _naming(f"{where}: loss"):
        get_loss(problem["loss"])
    with _naming(f"{where}: constraint"):
        get_set(problem["constraint"])


def _check_method(method: Mapping[str, Any], where: str, place: str) -> None:
    from dprepro import algorithms, peers

    if method["algorithm"] == "jl_method":
        raise UserError(
            f"In {where}: {place}.algorithm is 'jl_method', which may wrap any algorithm; write jl_<name>, so that its "
            "jobs run again when that one changes."
        )
    if not _is_known(method["algorithm"], extensions.files(extensions.ALGORITHMS)):
        hint = _suggest(method["algorithm"], [*algorithms.names(), *peers.names()])
        raise UserError(f"In {where}: unknown algorithm {method['algorithm']!r} in {place}; {hint}")
    with _naming(f"In {where}: {place}"):
        _algorithm(method["algorithm"], extensions.files(extensions.ALGORITHMS))
    _check_label(method, f"In {where}: {place}.label")


@functools.cache
def _is_known(algorithm: str, own: tuple[Path, ...]) -> bool:
    """Whether there is such an algorithm; methods by the hundred ask for few, and each answer lists the package."""
    from dprepro import algorithms

    return algorithms.is_known(algorithm)


@functools.cache
def _algorithm(name: str, own: tuple[Path, ...]) -> Algorithm:
    from dprepro.algorithms import get_algorithm

    return get_algorithm(name)


def _letters_checked(method: Mapping[str, Any], letters: Mapping[str, Any]) -> dict[str, Any]:
    return _algorithm(method["algorithm"], extensions.files(extensions.ALGORITHMS)).check_letters(letters)


def _check_dataset(dataset: Mapping[str, Any], where: str, parameters: Mapping[str, Any]) -> None:
    from dprepro import datasets

    if dataset["name"] not in datasets.names():
        hint = _suggest(dataset["name"], datasets.names())
        lost = ", ".join(map(extensions.shown, datasets.unavailable().values()))
        unless = f" (it may be in {lost}, which cannot be read)" if lost else ""
        raise UserError(f"In {where}: unknown dataset {dataset['name']!r}{unless}; {hint}")
    with _left_to_its_jobs(), _naming(f"In {where}: datasets"):
        datasets.check_parameters(dataset["name"], parameters)


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    """Put the place in the configuration before the sentence of a `UserError`."""
    try:
        yield
    except extensions.Unavailable:
        raise
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _left_to_its_jobs() -> contextlib.suppress:
    """Skip a check if an extension file is not available: only the jobs that need it fail."""
    return contextlib.suppress(extensions.Unavailable)


def _check_label(algorithm: Mapping[str, Any], where: str) -> None:
    """Check that a label uses only names that the algorithm's plan has, in formats for their types, such as {eta:g}."""
    import dataclasses

    plan_type = _algorithm(algorithm["algorithm"], extensions.files(extensions.ALGORITHMS)).plan_type
    types = {field.name: getattr(field.type, "__name__", str(field.type)) for field in dataclasses.fields(plan_type)}
    try:
        used = labels.names(algorithm["label"])
    except ValueError as error:
        raise UserError(
            f"{where} is {algorithm['label']!r}, which has {error}; correct the braces, or double those that are text."
        ) from None
    for name in used:
        if name not in types:
            raise UserError(f"{where} uses {{{name}}}; {_suggest(name, sorted(types))}")
    if problem := labels.format_problem(algorithm["label"], types):
        raise UserError(f"{where} is {algorithm['label']!r}, which {problem}; correct what follows the colon.")
    if problem := labels.mathematics_problem(labels.sample(algorithm["label"], types)):
        raise UserError(f"{where} is {algorithm['label']!r}, which {problem}; put no parameter into mathematics.")
