"""What the adapters share: a plan that names the library, and the refusal of what the library does not fit."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dprepro.algorithms.base import Algorithm, Plan, Setting
from dprepro.errors import RunFailed, UserError
from dprepro.peers import versions

if TYPE_CHECKING:
    from dprepro.privacy.cases import Case
    from dprepro.problems.erm import ProblemSpec
    from dprepro.run import Execution

Array = Any


class Peer(Algorithm):
    """A library's logistic regression with an l2 term over the whole space, without an intercept.

    The library draws batches and noise itself. The plan declares them as an event, accounted as any other; that the
    library keeps to it is taken at its word, and the certificate says so.
    """

    paper = "peer"
    needs = frozenset({"smooth_regularizer", "unconstrained"})
    # The event that the library spends.
    label: ClassVar[str]

    @abstractmethod
    def fit(self, plan: Any, X: np.ndarray, y: np.ndarray, seed: int) -> Iterator[np.ndarray]:
        """Yield the library's point (d,) after each release on rows X (n, d) with labels y (n,) of -1 and +1."""

    @abstractmethod
    def evaluations(self, plan: Any) -> int:
        """Return the gradient evaluations of one release."""

    def around(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for all fits: one thread, where holding BLAS to it does not do, and no idle warnings."""
        return contextlib.nullcontext()

    def drawn_by(self) -> str:
        """Return the library that draws the noise, with its version."""
        return f"{self.name} {versions(self.name)[self.name]}"

    def plan_head(self, setting: Setting) -> dict[str, Any]:
        """Return the fields that follow from the setting, and who draws the noise."""
        return {**super().plan_head(setting), "drawn_by": self.drawn_by()}

    def check_needs(self, problem: ProblemSpec) -> None:
        """Refuse every loss but the logistic one."""
        if problem.loss.full_name != "logistic":
            raise UserError(
                f"{self.name} is run for logistic regression only, not for the loss {problem.loss.full_name!r}: "
                "use loss logistic."
            )
        super().check_needs(problem)

    def audit_case(self) -> Case:
        """Refuse: an audit follows noise that is drawn here through tens of thousands of runs side by side."""
        raise UserError(f"{self.name} draws its noise itself, one run after the other: audits are of algorithms here.")

    def run(self, plan: Plan, ex: Execution) -> Array:
        """Let the library fit every replicate by itself; it has no means to fit several at one time."""
        if plan.drawn_by != self.drawn_by():
            raise RunFailed(
                f"The plan was made for {plan.drawn_by}, but {self.drawn_by()} is installed here: make the plan again."
            )
        try:
            with self.around():
                return ex.by_library(self.label, functools.partial(self.fit, plan), self.evaluations(plan))
        except ImportError as error:
            raise RunFailed(
                f"{self.name} is installed, but cannot be imported ({error}): install dprepro[peers], which asks for "
                "versions that go together."
            ) from None
