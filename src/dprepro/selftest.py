"""`dprepro selftest`: whether this machine gives the answers that are known, in well under two minutes and offline.

Every check computes something whose result is known from elsewhere and says in one sentence what it saw. A check that
fails, for whatever reason, is told and the others go on.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from dprepro import datasets
from dprepro.algorithms import get_algorithm
from dprepro.algorithms.base import Algorithm, Plan, Setting
from dprepro.algorithms.dp_gd import DPGD
from dprepro.arrays import DTYPES, Backend, get_backend, gpu_problem, single_blas_thread, wished_device
from dprepro.datasets.sources import cache_folder
from dprepro.errors import RunFailed, UserError
from dprepro.files import jsonable
from dprepro.geometry import L1Ball, Polytope, get_set
from dprepro.kernels import GRADIENT, NOISE, SELECTION, STEPS, TREE
from dprepro.losses import get_loss
from dprepro.privacy.accounting import gaussian_epsilon
from dprepro.privacy.audit import audit
from dprepro.privacy.certificate import certify
from dprepro.privacy.events import SelectionEvent, TreeEvent
from dprepro.privacy.mechanisms import GaussianMechanism, SelectionMechanism, Slots, TreeMechanism
from dprepro.problems import make_risk
from dprepro.problems.erm import EmpiricalRisk, ProblemSpec
from dprepro.problems.near_stationarity import ACCURACY, near_stationarity
from dprepro.problems.optimum import find_optimum
from dprepro.regularizers import get_regularizer
from dprepro.run import execute
from dprepro.streams import Streams

DELTA = 1e-5


class CheckFailed(Exception):
    """A check saw something else than it should; the sentence says what."""


@dataclass(frozen=True)
class Check:
    """A name, and a function that returns what was seen or raises."""

    name: str
    look: Callable[[], str]


@dataclass(frozen=True)
class Outcome:
    """How a check ended."""

    name: str
    ok: bool
    seen: str
    seconds: float

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'FAILED':<6}  {self.name:<34}  {self.seen} ({self.seconds:.1f} s)"


def checks(device: str = "auto") -> list[Check]:
    """Return all checks in their order; `device` is the one that the backend is checked on, as in `get_backend`."""
    available = [name for name in datasets.names() if name not in datasets.unavailable()]
    shipped = [name for name in available if datasets.info(name).sha256]
    return [
        Check("environment: Python and packages", check_packages),
        Check("environment: BLAS threads", check_threads),
        Check("environment: cache folder", check_cache),
        *(Check(f"data: {name}", partial(check_data, name)) for name in shipped),
        Check("known answer: Gaussian epsilon", check_gaussian_epsilon),
        Check("known answer: words of Philox", check_words),
        *(Check(f"minimum: {case.algorithm}", partial(check_minimum, case)) for case in MINIMA),
        *(Check(f"solver: {case.method}", partial(check_optimum, case)) for case in OPTIMA),
        Check("solver: perturbed objectives", check_perturbed_objectives),
        Check("solver: projection onto a polytope", check_projection),
        Check("solver: proximal points", check_proximal_points),
        *(Check(f"seeded run: {case.algorithm}", partial(check_seeded_run, case)) for case in SEEDED_RUNS),
        *(Check(f"audit: {name}", partial(check_audit, name)) for name in AUDITED),
        Check("audit: half of the noise left out", check_planted_bug),
        Check("backend: replicates in company", check_company),
        Check("backend: single precision", check_single_precision),
        Check("backend: GPU", partial(check_gpu, device)),
        Check("backend: GPU kernels", partial(check_kernels, device)),
    ]


def outcomes(wanted: Sequence[Check]) -> Iterator[Outcome]:
    """Yield the outcome of each check as soon as it is there."""
    for check in wanted:
        start = time.perf_counter()
        try:
            ok, seen = True, check.look()
        except (CheckFailed, UserError, RunFailed) as failure:
            ok, seen = False, str(failure)
        except Exception as error:  # whatever a broken installation raises is the result of the check
            ok, seen = False, f"{type(error).__name__}: {' '.join(str(error).split())}"
        yield Outcome(check.name, ok, seen, time.perf_counter() - start)


def print_selftest(device: str, in_json: bool) -> None:
    """Run all checks and print them one by one, or as JSON at the end; `RunFailed` if one fails."""
    # A wrong name of a device is bad input, not a failed check.
    wished_device(device, None)
    found: list[Outcome] = []
    for outcome in outcomes(checks(device)):
        found.append(outcome)
        if not in_json:
            print(outcome, flush=True)
    failed = [outcome.name for outcome in found if not outcome.ok]
    seconds = sum(outcome.seconds for outcome in found)
    if in_json:
        record = {"ok": not failed, "seconds": seconds, "checks": [asdict(outcome) for outcome in found]}
        print(json.dumps(jsonable(record), indent=2), flush=True)
    elif not failed:
        print(f"All {len(found)} checks passed in {seconds:.0f} s.", flush=True)
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(found)} checks failed ({', '.join(failed)}): do not trust results of this machine "
            "before they pass; `pip install -c envs/constraints.txt -e .` installs the versions that are known to work."
        )


def require(holds: bool, sentence: str) -> None:
    """Raise `CheckFailed` with the sentence unless it holds."""
    if not holds:
        raise CheckFailed(sentence)


# --- environment ------------------------------------------------------------------------------------------------


def check_packages() -> str:
    """Hold Python and every required package against what the installed dprepro asks for."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    try:
        metadata = importlib.metadata.metadata("dprepro")
    except importlib.metadata.PackageNotFoundError:
        raise CheckFailed("dprepro is not installed here: run pip install -e . in its checkout") from None
    wanted = [Requirement(text) for text in metadata.get_all("Requires-Dist") or ()]
    needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    python = platform.python_version()
    asked = metadata["Requires-Python"]
    wrong = [] if python in SpecifierSet(asked) else [f"Python {python} (wanted {asked})"]
    for one in needed:
        installed = _version(one.name)
        if installed is None or not one.specifier.contains(installed, prereleases=True):
            wrong.append(f"{one.name} {installed or 'missing'} (wanted {one.specifier})")
    require(not wrong, f"{', '.join(wrong)}: install them anew")
    return f"Python {python}, NumPy {np.__version__}, {len(needed)} packages as required"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_threads() -> str:
    """See that BLAS can be held to one thread, which results that do not depend on company need."""
    from threadpoolctl import threadpool_info

    with single_blas_thread():
        threads = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not threads:
        return "the threads of this BLAS cannot be told; replicates in company are compared below"
    require(max(threads) == 1, f"BLAS runs {max(threads)} threads though one was asked for: set OPENBLAS_NUM_THREADS=1")
    return "one per job"


def check_cache() -> str:
    """Write to the cache folder."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"dprepro")
    except OSError as error:
        raise CheckFailed(f"{folder} cannot be written ({error.strerror}): set DPREPRO_CACHE_DIR to a folder") from None
    return f"{folder} can be written"


# --- data -------------------------------------------------------------------------------------------------------

# Datasets of more than one part, with the parameters that ask for each.
_PARTS: dict[str, tuple[dict[str, Any], ...]] = {"adult": ({"split": "train"}, {"split": "test"})}


def check_data(name: str) -> str:
    """Load the dataset as a run would, which compares its sha256 with the recorded one, but without the network."""
    with _environment("DPREPRO_OFFLINE", "1"):
        parts = [datasets.load(name, **parameters) for parameters in _PARTS.get(name, ({},))]
    rows, info = sum(len(part.y) for part in parts), datasets.info(name)
    features = {part.X.shape[1] for part in parts}
    require(
        len(parts[0].y) == info.rows and features == {info.features}, f"its shape is not {info.rows, info.features}"
    )
    return f"genuine, from {parts[0].origin}: {rows} rows, {info.features} features"


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


@contextlib.contextmanager
def _empty_cache() -> Iterator[None]:
    """Let noise be calibrated here and now, not read from an earlier calculation."""
    with tempfile.TemporaryDirectory() as folder, _environment("DPREPRO_CACHE_DIR", folder):
        yield


# --- known answers ----------------------------------------------------------------------------------------------

# (mu, delta, epsilon): delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) solved with 40 digits.
GAUSSIAN_EPSILONS = (
    (0.1, 1e-6, 0.39685737764408359),
    (1.0, 1e-5, 4.3771780956812246),
    (4.0, 1e-10, 32.848274141624374),
)


def check_gaussian_epsilon() -> str:
    """Compare the exact epsilon of Gaussian DP with values computed to many more digits."""
    worst = 0.0
    for mu, delta, known in GAUSSIAN_EPSILONS:
        found = gaussian_epsilon(mu, delta)
        away = abs(found / known - 1.0)
        require(away <= 1e-11, f"epsilon at mu = {mu:g}, delta = {delta:g} is {found!r}, not {known!r}")
        worst = max(worst, away)
    return f"{len(GAUSSIAN_EPSILONS)} tabulated values met to {worst:.0e}"


# Philox 4x64-10 with key 0 and counter 0: the known answer that its authors publish (Salmon et al. 2011, Random123).
PHILOX_WORDS = (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)
# Integers below 2^31 of steps 1000 to 1003 of replicate 3 for the purpose "selftest" and seed 2017.
STREAM_INTEGERS = (215733828, 1086924291, 208264553, 547326350)


def check_words() -> str:
    """Compare words of the generator with those of its authors, and numbers of a stream with recorded ones."""
    # NumPy counts up before it draws.
    raw = np.random.Philox(key=0, counter=2**256 - 1).random_raw(4)
    require(tuple(map(int, raw)) == PHILOX_WORDS, f"NumPy {np.__version__} draws {[hex(word) for word in raw]}")
    drawn = Streams(2017, [None, 3], "selftest").integers(1000, 4, 2**31)[:, 1]
    require(tuple(map(int, drawn)) == STREAM_INTEGERS, f"a stream gives {drawn.tolist()}, not {STREAM_INTEGERS}")
    return "those of its authors; a stream has its recorded numbers"


# --- minima -----------------------------------------------------------------------------------------------------

# Where the coordinates of the minimiser want to be: of length 1, and all within the width of the Huber loss.
TARGETS = (0.6, -0.48, 0.64)


@dataclass(frozen=True)
class Minimum:
    """A problem whose minimum is known on paper, and an algorithm that must come `within` of it without noise.

    The records are the unit vectors with the labels a = `TARGETS`, so that coordinate j is fitted to a_j alone. With
    r = w - a in d dimensions the minima are: of |r|^2/(2d) + l2 |w|^2/2 on the whole space |a|^2 l2 / (2 + 2 d l2); of
    |r|^2/(2d) on the ball of radius s < |a| (|a| - s)^2/(2d); of the mean of |r_j| on the whole space 0.
    """

    algorithm: str
    paper: str
    loss: str
    minimum: float
    within: float
    letters: Mapping[str, Any]
    l2: float = 0.0
    constraint: str | None = None
    population: bool = False

    def risk(self) -> EmpiricalRisk:
        """Return the problem: every record often, or samples of them without end."""
        return _fitted(self.loss, self.l2, self.constraint, self.population)


def _fitted(loss: str, l2: float, constraint: str | None, population: bool = False) -> EmpiricalRisk:
    """Return the problem whose records are the unit vectors with the labels `TARGETS`."""
    d, copies = len(TARGETS), 20
    X, y = np.eye(d), np.array(TARGETS)
    spec = ProblemSpec(
        n=10**9 if population else d * copies,
        d=d,
        loss=get_loss(loss),
        regularizer=get_regularizer(l2),
        constraint=get_set(constraint),
    )
    backend = get_backend("cpu", "float64")
    if population:
        return make_risk(spec, X, y, backend, probabilities=np.full(d, 1.0 / d))
    return make_risk(spec, np.tile(X, (copies, 1)), np.tile(y, copies), backend)


_L2 = 0.1
_O2NC = {"alpha": 0.05, "M": 16, "D": 0.05 / 16, "T": 1600, "Sigma": 16, "eta": 0.05 / 64, "estimator": "frame"}
MINIMA = (
    Minimum("dp_svrg", "WYX17", "huber", _L2 / (2 + 6 * _L2), 1e-9, {"T": 30, "m": 300, "eta": 0.3}, l2=_L2),
    Minimum("noisy_sfw", "BGM21", "squared", 0.25 / 6, 2e-4, {"R": 12}, constraint="l2_ball:0.5", population=True),
    Minimum(
        "spiderboost",
        "ABG23",
        "huber",
        _L2 / (2 + 6 * _L2),
        1e-9,
        {"T": 300, "q": 5, "b2": 30, "output": "last"},
        l2=_L2,
    ),
    Minimum("o2nc_multi_pass", "KLT25", "absolute", 0.0, 0.05, _O2NC),
)


def check_minimum(case: Minimum) -> str:
    """Run without noise and compare the objective with the minimum that is known."""
    risk = case.risk()
    plan = get_algorithm(case.algorithm).plan(Setting(risk.spec, math.inf, DELTA, "certified"), **case.letters)
    result = execute(plan, risk, seed=1, replicates=range(2))
    above = float(np.max(np.abs(result.final_objective - case.minimum)))
    start = float(result.objective[0, 0]) - case.minimum
    require(above <= case.within, f"{case.paper}: ends {above:.2g} from the minimum, more than {case.within:g}")
    return f"{case.paper}, without noise: from {start:.2g} above the minimum to {above:.1e}"


# --- solvers ----------------------------------------------------------------------------------------------------

# Minima are found to 1e-10, those of losses with kinks to 1e-8.
OPTIMUM_TOLERANCE = 1e-8


@dataclass(frozen=True)
class OptimumCase:
    """A problem on the records of `Minimum` whose minimum is known on paper, and the method that is to find it."""

    method: str
    loss: str
    minimum: float
    l2: float = 0.0
    constraint: str | None = None


_SIZES = sorted(map(abs, TARGETS))
# On the ball of radius 0.9 the mean of |r_j| is least where the smallest coordinate is met and the others are equal.
_EQUAL = math.sqrt(0.5 * (0.9**2 - _SIZES[0] ** 2))
OPTIMA = (
    OptimumCase("Newton's method", "huber", _L2 / (2 + 6 * _L2), l2=_L2),
    OptimumCase("accelerated", "squared", 0.25 / 6, constraint="l2_ball:0.5"),
    OptimumCase("linear program", "absolute", (sum(_SIZES) - 1.2) / 3, constraint="l1_ball:1.2"),
    OptimumCase("envelopes", "absolute", (sum(_SIZES[1:]) - 2 * _EQUAL) / 3, constraint="l2_ball:0.9"),
)


def check_optimum(case: OptimumCase) -> str:
    """Find a minimum that is known, by the method that is meant; `find_optimum` raises if it is not accurate."""
    found = find_optimum(_fitted(case.loss, case.l2, case.constraint))
    require(found.method.startswith(case.method), f"{case.loss} was minimised by another method, {found.method}")
    apart = abs(found.objective - case.minimum)
    require(apart <= OPTIMUM_TOLERANCE, f"the minimum is {apart:.2g} from the known one")
    return f"{case.loss} on {case.constraint or 'the whole space'}: {apart:.0e} from the known minimum"


# Each way to perturb an objective and to find its minimiser: the letters and the l1 term.
PERTURBED: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("Gaussian noise, Newton", {}, 0.0),
    ("gamma noise, Newton", {"noise": "gamma"}, 0.0),
    ("Gaussian noise, accelerated", {}, 0.001),
)
PERTURBED_SEEDS = range(5)
# The released points of single precision are those of double precision rounded, of noise that is rounded.
PERTURBED_TOLERANCE = 1e-5


def check_perturbed_objectives() -> str:
    """Minimise perturbed objectives in single precision, where a run fails unless it meets its tolerance."""
    worst = 0.0
    for name, letters, l1 in PERTURBED:
        for seed in PERTURBED_SEEDS:
            ends = []
            for dtype in DTYPES:
                risk = _breast_cancer(get_backend("cpu", dtype), l2=0.01, l1=l1)
                plan = get_algorithm("objective_perturbation").plan(
                    Setting(risk.spec, 8.0, DELTA, "published"), **letters
                )
                ends.append(execute(plan, risk, seed=seed, replicates=range(2), tile=2).w)
            apart = float(np.max(np.abs(ends[0] - ends[1])) / np.max(np.abs(ends[1])))
            require(apart <= PERTURBED_TOLERANCE, f"{name}: float32 ends {apart:.1e} from float64 with seed {seed}")
            worst = max(worst, apart)
    return f"{len(PERTURBED)} ways, {len(PERTURBED_SEEDS)} seeds each: all found, float32 within {worst:.0e} of float64"


def check_projection() -> str:
    """Project onto the l1 ball and the cube, given by their vertices, where closed forms are known."""
    V = np.random.default_rng(5).standard_normal((40, 4)) * np.logspace(-1.0, 2.0, 40)[:, None]
    eye, cube = np.eye(4), np.array(list(itertools.product((-1.0, 1.0), repeat=4)))
    shapes = ((np.concatenate([eye, -eye]), L1Ball(1.0).project), (cube, lambda xp, W: xp.clip(W, -1.0, 1.0)))
    worst = 0.0
    for dtype, allowed in zip(DTYPES, (1e-6, 1e-12), strict=True):
        W = V.astype(dtype)
        for vertices, known in shapes:
            apart = float(np.max(np.abs(Polytope(vertices).project(np, W) - known(np, W.astype(np.float64)))))
            require(apart <= allowed, f"in {dtype} it is {apart:.1e} from the closed form, allowed is {allowed:g}")
            worst = max(worst, apart)
    return f"at most {worst:.0e} from closed forms"


def check_proximal_points() -> str:
    """Find the near stationarity of 0 for the loss `mcp:1` on the unit ball.

    With beta = 2 and D = 2 it is 4 ||prox(0)||. On the records of `Minimum` the proximal point has coordinates of the
    size (1 - |a_j|) / (2 d - 1), and all are inside the ball.
    """
    risk, d = _fitted("mcp:1", 0.0, "l2_ball:1"), len(TARGETS)
    known = 4.0 * math.sqrt(sum((1.0 - abs(a)) ** 2 for a in TARGETS)) / (2 * d - 1)
    apart = abs(float(near_stationarity(risk, np.zeros((1, d)))[0]) - known)
    require(apart <= ACCURACY, f"near stationarity is {apart:.1e} from its known value, allowed is {ACCURACY:g}")
    return f"near stationarity is {apart:.0e} from its known value"


# --- seeded runs ------------------------------------------------------------------------------------------------

# Another machine's elementary functions may round the last bit of the noise, which is drawn in single precision.
OBJECTIVE_TOLERANCE = 1e-5
# Epsilons are computed to 0.003.
EPSILON_TOLERANCE = 0.01


@dataclass(frozen=True)
class SeededRun:
    """A run on `breast_cancer` with noise by a closed formula, and what replicate 1 ended with when it was recorded."""

    algorithm: str
    paper: str
    letters: Mapping[str, Any]
    objective: float
    epsilon_accounted: float
    loss: str = "logistic"
    l2: float = 0.0
    constraint: str | None = None

    def run(self, backend: Backend, replicates: Sequence[int] = (0, 1)) -> tuple[Plan, np.ndarray, np.ndarray]:
        """Return the plan, and outputs and objectives of the replicates."""
        risk = _breast_cancer(backend, self.loss, self.l2, self.constraint)
        plan = get_algorithm(self.algorithm).plan(Setting(risk.spec, 2.0, DELTA, "published"), **self.letters)
        result = execute(plan, risk, seed=2017, replicates=replicates)
        return plan, result.w, result.final_objective


def _breast_cancer(
    backend: Backend, loss: str = "logistic", l2: float = 0.1, constraint: str | None = None, l1: float = 0.0
) -> EmpiricalRisk:
    """Return the problem on `breast_cancer`."""
    data = datasets.load("breast_cancer")
    spec = ProblemSpec(
        n=len(data.y),
        d=data.X.shape[1],
        loss=get_loss(loss),
        regularizer=get_regularizer({"l1": l1, "l2": l2}),
        constraint=get_set(constraint),
    )
    return make_risk(spec, data.X, data.y, backend)


SEEDED_RUNS = (
    SeededRun("dp_svrg", "WYX17", {"T": 3, "m": 50, "eta": 0.3}, 0.6524766155356716, 6352.53, l2=0.1),
    SeededRun("phased_sgd", "BGM21", {}, 0.7086359111275207, 0.519771, constraint="l2_ball:1"),
    SeededRun("spiderboost", "ABG23", {"T": 20, "q": 5, "b2": 40}, 0.6544305529159719, 6.31797, l2=0.1),
    SeededRun(
        "o2nc_first_order",
        "KLT25",
        {"alpha": 0.5, "D": 0.1, "M": 8, "T": 64, "Sigma": 4, "B1": 8, "B2": 4},
        0.926419669152614,
        0.634839,
        loss="absolute",
    ),
)


def check_seeded_run(case: SeededRun) -> str:
    """Repeat a recorded run: the same noise, the same end, the same privacy."""
    with _empty_cache():
        plan, _, objective = case.run(get_backend("cpu", "float64"))
        epsilon = float(certify(plan)["epsilon_accounted"])
    close = abs(objective[1] - case.objective) <= OBJECTIVE_TOLERANCE * abs(case.objective)
    require(close, f"{case.paper}: replicate 1 ends at {objective[1]:.10g}, recorded is {case.objective:.10g}")
    same = abs(epsilon - case.epsilon_accounted) <= EPSILON_TOLERANCE * case.epsilon_accounted
    require(same, f"{case.paper}: epsilon = {epsilon:.6g} is accounted, recorded is {case.epsilon_accounted:.6g}")
    return f"{case.paper}, published: objective {objective[1]:.6f}, accounted epsilon {epsilon:.4g}, as recorded"


# --- audits -----------------------------------------------------------------------------------------------------

# One algorithm of each paper whose attack is strong.
AUDITED = ("dp_gd", "phased_sgd", "spiderboost", "o2nc_zero_order")
CLAIMED, AUDIT_RUNS = 2.0, 4000
# An attack that proves less than this part of the claim would not see half of the noise missing.
LEAST_PROVEN = 0.5


def _audit(algorithm: Algorithm) -> dict[str, Any]:
    with _empty_cache():
        return audit(
            algorithm, variant="certified", epsilon=CLAIMED, delta=DELTA, replicates=AUDIT_RUNS, seed=1, device="cpu"
        )


def check_audit(name: str) -> str:
    """Attack a correct algorithm: the proof must be strong, and stay below what is accounted (else `audit` raises)."""
    row = _audit(get_algorithm(name))
    proven, accounted = row["epsilon_audited"], row["epsilon_accounted"]
    require(proven >= LEAST_PROVEN * accounted, f"the attack proves only {proven:.3g} of {accounted:.3g}")
    return f"an attacker proves epsilon >= {proven:.3f}; accounted is {accounted:.3f}"


class _HalfTheNoise:
    """An execution whose Gaussian noise has half of the deviation that the plan and the ledger state."""

    def __init__(self, execution: Any) -> None:
        self._execution = execution

    def __getattr__(self, name: str) -> Any:
        return getattr(self._execution, name)

    def gaussian(self, label: str) -> Any:
        """Return something that draws the noise of the event, halved."""
        return _HalvedMechanism(self._execution.gaussian(label))


@dataclass(frozen=True)
class _HalvedMechanism:
    mechanism: GaussianMechanism

    def noise(self, releases: int) -> Iterator[Any]:
        """Yield half of each noise array; the releases are counted as usual."""
        return (0.5 * noise for noise in self.mechanism.noise(releases))


class _PlantedBug(DPGD):
    """DP-GD with half of its noise."""

    def run(self, plan: Any, ex: Any) -> Any:
        """Execute Algorithm 4 with noise that is not the planned one; the ledger cannot see it."""
        return super().run(plan, _HalfTheNoise(ex))  # type: ignore[arg-type]


def check_planted_bug() -> str:
    """Leave out half of the noise: the audit must prove more than is accounted."""
    try:
        row = _audit(_PlantedBug())
    except RunFailed as caught:
        if "proves epsilon" not in str(caught):
            raise
        return f"caught: {str(caught).partition(': ')[0]}"
    raise CheckFailed(
        f"not caught: epsilon >= {row['epsilon_audited']:.3f} is proven, which is below the accounted one"
    )


# --- backend ----------------------------------------------------------------------------------------------------

# Rounding in single precision; on a device that of its noise alone, whose elementary functions have other last bits.
SINGLE_TOLERANCE, DEVICE_TOLERANCE = 1e-3, 1e-5


def _difference(one: Backend, other: Backend) -> float:
    """Return by how much the outputs of a run on two backends differ, relative to their size."""
    run = SEEDED_RUNS[0]
    (_, a, _), (_, b, _) = run.run(one), run.run(other)
    return float(np.max(np.abs(a - b)) / np.max(np.abs(a)))


def check_company() -> str:
    """See that a replicate has the same bits alone and beside others."""
    run, backend = SEEDED_RUNS[0], get_backend("cpu", "float64")
    (_, alone, _), (_, together, _) = run.run(backend, [3]), run.run(backend, range(8))
    require(bool(np.array_equal(alone[0], together[3])), "replicate 3 of 8 differs from replicate 3 alone in its bits")
    return "replicate 3 has the same bits alone and among eight"


def check_single_precision() -> str:
    """Compare a run in single precision with the same run in double precision."""
    apart = _difference(get_backend("cpu", "float64"), get_backend("cpu", "float32"))
    require(
        apart <= SINGLE_TOLERANCE, f"NumPy in float32 is {apart:.1e} away from float64, allowed is {SINGLE_TOLERANCE:g}"
    )
    return f"NumPy in float32 is {apart:.1e} away from float64"


def _no_gpu(device: str) -> str:
    """Return why no GPU is looked at; nothing if one is there or was asked for."""
    wish, _ = wished_device(device, None)
    if wish == "cpu":
        return "not looked at, the CPU was asked for"
    return f"none is used: {gpu_problem()}" if wish == "auto" and gpu_problem() else ""


def check_gpu(device: str) -> str:
    """Run the same problem on the GPU if there is one; it is an error only if one was asked for."""
    if reason := _no_gpu(device):
        return reason
    apart = _difference(get_backend("cpu", "float64"), get_backend(device, "float64"))
    require(apart <= DEVICE_TOLERANCE, f"the GPU is {apart:.1e} away from the CPU, allowed is {DEVICE_TOLERANCE:g}")
    return f"CuPy is {apart:.1e} away from NumPy"


# Replicates that the work of kernels is done for; the second one is an empty slot, which has no noise.
_TRIED = (0, None, 5)


def _noise(backend: Backend) -> np.ndarray:
    slots = Slots(2017, _TRIED, backend)
    return backend.to_host(slots.normals(slots.streams("selftest"), first=3, steps=40, d=37, scale=0.7))


def _full_gradient(backend: Backend) -> np.ndarray:
    """More replicates than a block of the kernel takes, and rows that do not fill its last one."""
    risk = _breast_cancer(backend)
    points = 3.0 * np.random.default_rng(1).standard_normal((9, risk.spec.d))
    return backend.to_host(risk.gradient(backend.asarray(points)))


def _steps(algorithm: str, letters: Mapping[str, Any], backend: Backend) -> np.ndarray:
    risk = _breast_cancer(backend)
    plan = get_algorithm(algorithm).plan(Setting(risk.spec, 2.0, DELTA, "published"), **letters)
    return execute(plan, risk, seed=2017, replicates=range(3)).w


def _noisy_maxima(backend: Backend) -> np.ndarray:
    """Places of maxima with either noise; the empty slot has equal scores once, of which the first is to be found."""
    scores = np.random.default_rng(2).standard_normal((40, len(_TRIED), 45))
    scores[31, 1, :] = 0.25
    found = []
    for noise in ("laplace", "gumbel"):
        event = SelectionEvent("selftest", noise, 0.5, 1.0, len(scores))
        mechanism = SelectionMechanism(event, Slots(2017, _TRIED, backend))
        found += [backend.to_host(mechanism.largest(backend.asarray(one))) for one in scores]
    return np.array(found, dtype=np.float64)


def _tree_sums(backend: Backend) -> np.ndarray:
    """All prefix sums of two trees."""
    trees = np.random.default_rng(3).standard_normal((2, 13, len(_TRIED), 6))
    mechanism = TreeMechanism(TreeEvent("selftest", 0.4, 1.0, 13, 2), 6, Slots(2017, _TRIED, backend))
    sums = []
    for tree in trees:
        mechanism.start()
        sums += [backend.to_host(mechanism.add(backend.asarray(leaf))) for leaf in tree]
    return np.array(sums)


@dataclass(frozen=True)
class KernelCase:
    """A kind of work that kernels do: a function that does some of it on a backend, and how far results may differ.

    `tolerance` is relative, for float64 and float32. Noise is drawn in single precision in either; what has none is
    held to the rounding of its own precision.
    """

    name: str
    work: str
    results: Callable[[Backend], np.ndarray]
    tolerance: tuple[float, float] = (1e-5, 1e-4)


KERNEL_CASES = (
    KernelCase("noise", NOISE, _noise, (1e-5, 1e-5)),
    KernelCase("full gradient", GRADIENT, _full_gradient, (1e-12, 1e-5)),
    KernelCase("steps of SGD", STEPS, partial(_steps, "dp_sgd", {"T": 61, "output": "suffix"})),
    KernelCase("steps of SVRG", STEPS, partial(_steps, "dp_svrg", {"T": 2, "m": 40, "eta": 0.3, "r": 0.05})),
    KernelCase("noisy maximum", SELECTION, _noisy_maxima, (0.0, 0.0)),
    KernelCase("tree noise", TREE, _tree_sums, (1e-5, 1e-5)),
)


def check_kernels(device: str) -> str:
    """Let every kernel do its work on the GPU, in both precisions, and compare with NumPy on the CPU."""
    if reason := _no_gpu(device):
        return reason
    worst = 0.0
    for dtype in reversed(DTYPES):
        for case in KERNEL_CASES:
            # Anew for each case: its kernels note what they did.
            backend = get_backend(device, dtype)
            require(backend.kernels is not None, "the GPU has no kernels")
            backend.kernels.check()  # type: ignore[union-attr]  # or the line before has raised
            ours, theirs = case.results(get_backend("cpu", dtype)), case.results(backend)
            how = backend.kernels.paths.get(case.work, "no kernel was asked")  # type: ignore[union-attr]
            require(how == "kernel", f"{case.name} in {dtype} was not done by a kernel: {how}")
            apart = float(np.max(np.abs(ours - theirs)) / np.max(np.abs(ours)))
            allowed = case.tolerance[dtype == "float32"]
            require(apart <= allowed, f"{case.name} in {dtype} is {apart:.1e} away from NumPy, allowed is {allowed:g}")
            worst = max(worst, apart)
    return f"{', '.join(case.name for case in KERNEL_CASES)}: at most {worst:.1e} away from NumPy in both precisions"
