"""The protocol: an algorithm is a plan and a run.

`plan` turns public numbers into a frozen record of everything the theorem prescribes and the privacy events that
will be spent. `run` is the paper's pseudocode; it draws noise only through the mechanisms of its plan.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from dprepro.errors import BrokenAlgorithm, UserError, VacuousSetting
from dprepro.privacy.accounting import check_delta, check_epsilon
from dprepro.privacy.events import (
    Event,
    GaussianEvent,
    QueryPart,
    event_from_json,
    event_to_json,
    leaves,
    scale_events,
)
from dprepro.problems.erm import FAR_LABEL, ProblemSpec

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.run import Execution

Array = Any
VARIANTS = ("published", "certified", "practical")
# Variants whose noise is the smallest that the accountant certifies.
CALIBRATED = ("certified", "practical")
LARGEST_N = 10**30
LARGEST_WORK = 10**15
# Beyond any use; keeps the arithmetic of the plans within floating-point numbers.
LARGEST_LETTER = 1e100
# Why phased SGD, by itself or within another algorithm, refuses single precision.
SHRINKING_STEPS = (
    "its steps shrink below the resolution of float32, where rounding moves them further than the noise covers"
)

_NEED_TEXTS = {
    "smooth": ("a smooth loss", "choose another loss"),
    "convex": ("a convex loss", "choose another loss"),
    "strongly_convex": ("a strongly convex objective", "add an l2 regularizer, for example regularizer=0.01"),
    "smooth_regularizer": (
        "a smooth regularizer",
        "drop the l1 part or use an algorithm with a proximal step",
    ),
    "lipschitz": ("a Lipschitz loss", "add a bounded constraint, for example constraint='l2_ball:1.0'"),
    "bounded": ("a bounded constraint set", "add one, for example constraint='l2_ball:1.0'"),
    "centrally_symmetric": ("a centrally symmetric constraint set", "use for example constraint='l1_ball:1.0'"),
    "polytope": ("a polytope as constraint set", "use for example constraint='l1_ball:1.0'"),
    "unconstrained": ("no constraint", "drop the constraint"),
    "glm": (
        "a loss of <w, x> (a generalized linear model)",
        "choose one, for example logistic, or an algorithm for other losses, for example dp_sgd",
    ),
}


@dataclass(frozen=True)
class Condition:
    """A condition of the theorem and whether it holds at the plan's numbers.

    `privacy` says that the claimed epsilon rests on it; other conditions are about how good the output is. `set_here`
    names a constant of the condition that the paper leaves open, with the value it has here.
    """

    text: str
    holds: bool
    detail: str
    privacy: bool = False
    set_here: str = ""


@dataclass(frozen=True)
class UtilityBound:
    """What the theorem bounds and its value with the hidden constant taken as 1."""

    theorem: str
    quantity: str
    formula: str
    value: float


@dataclass(frozen=True)
class Setting:
    """What a plan is made from: the problem's public constants and the privacy that is asked for."""

    problem: ProblemSpec
    epsilon: float
    delta: float
    variant: str = "published"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))
        if self.variant not in VARIANTS:
            raise UserError(f"Unknown variant {self.variant!r}: use one of {', '.join(VARIANTS)}.")

    @property
    def noisy(self) -> bool:
        """Whether noise is asked for at all."""
        return not math.isinf(self.epsilon)

    def noise(self, c: float, releases: int) -> float:
        """Return G sqrt(c releases ln(1/delta)) / (n epsilon): the form of WYX17's equations (3), (9) and (11)."""
        if not self.noisy:
            return 0.0
        problem = self.problem
        return math.sqrt(c * releases * math.log(1.0 / self.delta)) * problem.G / (problem.n * self.epsilon)

    @property
    def full_part(self) -> QueryPart:
        """The part of the mean gradient over all records, which moves by at most 2G/n when one is replaced."""
        problem = self.problem
        return QueryPart(2.0 * problem.G / problem.n, problem.n, problem.n)

    @property
    def spread_attained(self) -> bool:
        """Whether two samples are known whose gradients are 2 G apart at every point.

        They are where the loss is linear with its steepest slope however far the label is, and labels may be so far
        away that no run comes near them: two samples with opposite rows. A release of gradients then moves by all of
        its sensitivity, whatever was released before.
        """
        return math.isinf(self.problem.loss.linear_radius) and self.problem.label_bound >= FAR_LABEL

    @property
    def mu(self) -> float:
        """The mu of Gaussian DP that epsilon and delta allow; infinite without noise."""
        return _gaussian_mu(self.epsilon, self.delta) if self.noisy else math.inf

    def relative_noise(self, n: float | None = None) -> float:
        """Return 2 sqrt(d) / (n mu): how long the noise is, over G, if the budget goes into one mean gradient."""
        n = self.problem.n if n is None else n
        return 2.0 * math.sqrt(self.problem.d) / (n * self.mu)

    def signal(self, n: float | None = None) -> float:
        """Return n epsilon / (G sqrt(d ln(1/delta))): how far the data outweigh the noise."""
        n = self.problem.n if n is None else n
        return n * self.epsilon / (self.problem.G * math.sqrt(self.problem.d * math.log(1.0 / self.delta)))


@functools.cache
def _gaussian_mu(epsilon: float, delta: float) -> float:
    from dprepro.privacy.calibrate import smallest_scale

    one = GaussianEvent("one release", 1.0, (QueryPart(1.0, 1, 1),), 1)
    return 1.0 / smallest_scale((one,), epsilon, delta)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a run does, fixed before it sees the data. Subclasses add the paper's letters."""

    algorithm: str
    variant: str
    theorem: str
    n: int
    d: int
    epsilon: float
    delta: float
    sigma: float
    rounds: int
    gradient_evaluations: int
    events: tuple[Event, ...]
    utility: UtilityBound | None = None
    conditions: tuple[Condition, ...] = ()
    # Values of one sample's loss, of which only algorithms without gradients make use.
    function_evaluations: int = 0
    # A constant of the published noise that is not the paper's, such as "c = 1"; see `Letter.constant`.
    constant_set_here: str = ""
    # The library, with its version, that draws the noise itself; empty where the mechanisms here draw it.
    drawn_by: str = ""

    def with_noise(self, factor: float) -> Self:
        """Return the same plan with `factor` times the noise."""
        return dataclasses.replace(self, sigma=self.sigma * factor, events=scale_events(self.events, factor))

    def letters(self) -> dict[str, Any]:
        """Return the paper's letters with their values: what the algorithm's own plan adds to the common fields."""
        common = {field.name for field in dataclasses.fields(Plan)}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in common}

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        record = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        record["events"] = [event_to_json(event) for event in self.events]
        record["utility"] = dataclasses.asdict(self.utility) if self.utility else None
        record["conditions"] = [dataclasses.asdict(condition) for condition in self.conditions]
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Plan:
        """Return the plan that `to_json` wrote."""
        fields = dict(record)
        fields["epsilon"] = float(fields["epsilon"])  # "inf" in JSON
        fields["events"] = tuple(event_from_json(event) for event in fields["events"])
        fields["utility"] = UtilityBound(**fields["utility"]) if fields["utility"] else None
        fields["conditions"] = tuple(Condition(**condition) for condition in fields["conditions"])
        return cls(**fields)


class Algorithm(ABC):
    """One algorithm. A subclass lives in the file that bears its name."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = "own"
    needs: ClassVar[frozenset[str]]
    takes_regularizer: ClassVar[bool] = True
    # Whether a run calls a solver with a stopping rule, which may raise `NotConverged`.
    solves_exactly: ClassVar[bool] = False
    # Whether losses of single samples are asked for, which embedded rows have no means for.
    looks_at_samples: ClassVar[bool] = False
    plan_type: ClassVar[type[Plan]]
    # The letters a user may override, each with the check of its value.
    letters: ClassVar[Mapping[str, Letter]]

    def plan(self, setting: Setting, **overrides: Any) -> Plan:
        """Check the setting and the overrides, then compute the plan.

        The variant `certified` has the numbers of the published plan and the smallest noise that the accountant
        certifies for its events; `practical` has that noise too, and constants that work at affordable n.
        """
        self.check_needs(setting.problem)
        given = self.check_letters(overrides)
        plan = self.compute_plan(setting, given)
        self._check_plan(plan, setting)
        if setting.variant == "published" and setting.noisy:
            plan = dataclasses.replace(plan, constant_set_here=self.constant_set_here(plan, given))
        counts = (("gradient", plan.gradient_evaluations), ("function", plan.function_evaluations))
        letters = ", ".join(sorted(set(self.letters) & {"T", "m"}))
        advice = f"set {letters}, or regularize more" if self.takes_regularizer else f"set {letters}"
        for kind, count in counts:
            if count > LARGEST_WORK:
                raise UserError(
                    f"{self.name} would make {count:.1e} {kind} evaluations at this setting, which no"
                    f" machine finishes: {advice}."
                )
        if setting.variant in CALIBRATED and setting.noisy:
            from dprepro.privacy.calibrate import smallest_scale

            return plan.with_noise(smallest_scale(plan.events, setting.epsilon, setting.delta))
        return plan

    def rules(self, given: Mapping[str, Any]) -> Mapping[str, Letter]:
        """Return every letter that may be given, with its rule; `given` are checked overrides."""
        return self.letters

    def constant_set_here(self, plan: Plan, given: Mapping[str, Any]) -> str:
        """Return the constants of the published noise that are not the paper's, with their values."""
        own = [
            name
            for name, rule in self.rules(given).items()
            if rule.constant == "set here" or (rule.constant == "stated" and name in given)
        ]
        letters = plan.letters()
        return ", ".join(f"{name} = {letters[name]:.4g}" for name in own)

    def anew(self) -> Self:
        """Return a copy to run: what an object keeps in itself, its class apart, must not go into another run."""
        return copy.deepcopy(self)

    def plan_head(self, setting: Setting) -> dict[str, Any]:
        """Return the fields of a plan that follow from the algorithm and the setting alone."""
        return {
            "algorithm": self.name,
            "variant": setting.variant,
            "n": setting.problem.n,
            "d": setting.problem.d,
            "epsilon": setting.epsilon,
            "delta": setting.delta,
        }

    def check_letters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given letters in their proper types or raise `UserError`."""
        if unknown := sorted(set(given) - set(self.letters)):
            raise UserError(f"{self.name} has no parameter {unknown[0]!r}: it takes {', '.join(sorted(self.letters))}.")
        return {key: self.letters[key].check(self.name, key, value) for key, value in given.items()}

    def check_needs(self, problem: ProblemSpec) -> None:
        """Raise `UserError` when the problem lacks something that the algorithm's theory needs."""
        for need in sorted(self.needs - problem.properties):
            what, advice = _NEED_TEXTS[need]
            raise UserError(
                f"{self.name} needs {what}, but was given loss {problem.loss.name!r} with regularizer "
                f"{problem.regularizer.name!r} on {problem.constraint.name}: {advice}."
            )

    def _check_plan(self, plan: Plan, setting: Setting) -> None:
        """Refuse what is no plan, is one for another setting, or declares no sensitivity of anything it releases."""
        if not isinstance(plan, self.plan_type):
            raise BrokenAlgorithm(
                f"The plan of the algorithm {self.name} is {plan!r}: return an object of {self.plan_type.__name__}."
            )
        if not isinstance(plan.events, tuple):
            raise BrokenAlgorithm(
                f"The algorithm {self.name} has events that are not a tuple: write (event,) for a single one."
            )
        for event in leaves(plan.events):
            if not isinstance(event, Event):
                raise BrokenAlgorithm(
                    f"The algorithm {self.name} has {event!r} among the events of its plan, which is none: use those "
                    "of dprepro.privacy.events, each with its sensitivity."
                )
        for key, value in self.plan_head(setting).items():
            if getattr(plan, key) != value:
                raise BrokenAlgorithm(
                    f"The algorithm {self.name} was asked for {key} = {value}, but its plan has {getattr(plan, key)}: "
                    "begin it with **self.plan_head(setting)."
                )
        for event in leaves(plan.events):
            for part in event.parts if isinstance(event, GaussianEvent) else ():
                if part.population > plan.n or (not part.full and part.population != plan.n):
                    raise BrokenAlgorithm(
                        f"The algorithm {self.name} takes records of {event.label!r} from {part.population}, "
                        f"but there are {plan.n}: give the query part the population {plan.n}."
                    )
        # What never happens declares nothing.
        declared = [event for event in leaves(plan.events) if getattr(event, "count", 0) > 0]
        if setting.noisy and not declared:
            raise BrokenAlgorithm(
                f"The algorithm {self.name} claims epsilon = {plan.epsilon:g}, but declares no sensitivity: list in "
                "the events of its plan what is released, with its noise and sensitivity, or as an UnprotectedEvent."
            )

    def audit_case(self) -> Case:
        """Return the neighbouring datasets on which the algorithm is audited.

        The default attacks the output on a linear loss, where a full-batch algorithm leaks all that its accounting
        allows; an algorithm that hides its leak there returns a sharper case.
        """
        from dprepro.privacy.cases import generic_case

        return generic_case(self.needs, {"T": 10} if "T" in self.letters else {})

    @abstractmethod
    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> Plan:
        """Return the plan; `given` holds checked overrides."""

    @abstractmethod
    def run(self, plan: Any, ex: Execution) -> Array:
        """Execute the pseudocode for all replicates side by side and return the output (K, d)."""


@dataclass(frozen=True)
class Letter:
    """A parameter named as in the paper: its type, its range and what it means."""

    kind: type
    meaning: str
    choices: tuple[str, ...] = ()
    # Whether it is a constant of the noise that the paper has, or one whose value is set here in any case.
    constant: Literal["", "stated", "set here"] = ""

    def check(self, algorithm: str, name: str, value: Any) -> Any:
        """Return the value in its proper type or raise `UserError`."""
        if self.choices:
            if value not in self.choices:
                raise UserError(f"{name} of {algorithm} is {value!r}: use one of {', '.join(self.choices)}.")
            return value
        try:
            if isinstance(value, bool):
                raise ValueError
            number = float(value)
            if self.kind is int and number != int(number):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            noun = "a whole number" if self.kind is int else "a number"
            raise UserError(f"{name} of {algorithm} is {value!r}: give {noun} > 0 ({self.meaning}).") from None
        if not (0.0 < number < LARGEST_LETTER):
            raise UserError(f"{name} of {algorithm} is {value!r}: give a finite number > 0 ({self.meaning}).")
        return self.kind(number)


def complaint(algorithm: object, name: str) -> str:
    """Return what an object lacks to be the algorithm `name`, as the rest of a sentence; nothing if it is one."""
    if algorithm is None:
        return "defines no ALGORITHM: end it with ALGORITHM = YourClass()"
    if not isinstance(algorithm, Algorithm):
        return f"has an ALGORITHM that is no object of a class of Algorithm, but {algorithm!r}: write YourClass()"
    for attribute in ("name", "title", "needs", "letters", "plan_type"):
        if not hasattr(algorithm, attribute):
            return f"has a class without the attribute {attribute!r}: add it"
    if getattr(algorithm.plan, "__func__", None) is not Algorithm.plan:
        return "has a plan of its own in place of that of Algorithm, which checks what is declared: write compute_plan"
    if algorithm.name != name:
        return f"has an algorithm that calls itself {algorithm.name!r}: write name = {name!r}, or rename the file"
    if not isinstance(algorithm.needs, frozenset):
        return f"has the needs {algorithm.needs!r}: give a frozenset of words"
    if unknown := sorted(algorithm.needs - set(_NEED_TEXTS)):
        return f"needs {unknown[0]!r}, which no problem has: use {', '.join(_NEED_TEXTS)}"
    plan_type: object = algorithm.plan_type
    if not (isinstance(plan_type, type) and issubclass(plan_type, Plan)):
        return f"has the plan_type {plan_type!r}: give a frozen dataclass that is a subclass of Plan"
    if not isinstance(algorithm.letters, Mapping):
        return (
            f"has the letters {algorithm.letters!r}: give a dict such as {{'T': Letter(int, 'steps')}}, {{}} for none"
        )
    if odd := [letter for letter, rule in algorithm.letters.items() if not isinstance(rule, Letter)]:
        return f"has a letter {odd[0]!r} without its rule: write {odd[0]!r}: Letter(int, 'what it means')"
    if missing := sorted(set(algorithm.letters) - {field.name for field in dataclasses.fields(plan_type)}):
        return f"has a letter {missing[0]!r} that its plan has no field for: add it to {plan_type.__name__}"
    return ""


def beyond_the_loss(problem: ProblemSpec) -> tuple[Condition, ...]:
    """Return the condition that fails where a theorem on the gradient of the loss over R^d does not cover a problem."""
    if problem.regularizer.name == "none" and "unconstrained" in problem.properties:
        return ()
    text = "no regularizer and no constraint"
    return (Condition(text, False, "the theorem bounds the gradient of the loss alone, over R^d"),)


def refuse_vacuous(setting: Setting, works: Callable[[float], bool], what: str, why: str, letter: str = "T") -> None:
    """Raise `VacuousSetting` unless `works` holds at the setting's n; say from which n it does.

    `what` is missing (`dp_gd has no step`) because of `why`; setting `letter` would help too.
    """
    if not works(setting.problem.n):
        enough = smallest_n(setting, works)
        raise VacuousSetting(
            f"{what} to run at n = {setting.problem.n}: {why}; it makes sense from n = {enough}. "
            f"Give more data, a larger epsilon, or set {letter}."
        )


def smallest_n(setting: Setting, works: Callable[[float], bool]) -> int:
    """Return the smallest n for which `works` holds (it must be monotone in n)."""
    low, high = 0, 1
    while not works(float(high)):
        low, high = high, 2 * high
        if high > LARGEST_N:
            raise VacuousSetting(
                f"epsilon = {setting.epsilon:g} with delta = {setting.delta:g} is out of reach: no data set of up to "
                f"{LARGEST_N:.0e} records would give the theorem a step to run. Give a larger epsilon, or set T."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(float(middle)) else (middle, high)
    return high
