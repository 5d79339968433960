"""Opacus' DP-SGD on logistic regression: Poisson batches, clipped gradients, Gaussian noise, constant steps.

`dp_sgd` with `sampling = poisson` is its counterpart here. What runs are the pieces that Opacus' `PrivacyEngine` puts
together: `GradSampleModule` (a gradient for each record), `UniformWithReplacementSampler` (each record of a batch by
itself, with probability b/n) and `DPOptimizer` (clips at C, adds N(0, (noise multiplier C)^2) to the sum, divides by b)
around plain SGD, whose weight decay is the l2 term.

Opacus' own accountants are for neighbours that differ in a record added or removed. Here a record is replaced, which
costs more at the same noise, so that the noise multiplier is found by the accountant here and given to Opacus.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dprepro.algorithms.base import CALIBRATED, Letter, Plan, Setting
from dprepro.algorithms.dp_sgd import PRACTICAL_BATCHES, PRACTICAL_STEPS
from dprepro.errors import UserError
from dprepro.peers.base import Peer
from dprepro.privacy.events import GaussianEvent, QueryPart


@dataclass(frozen=True, kw_only=True)
class OpacusPlan(Plan):
    """T steps of size eta on b records in expectation, each gradient clipped at C; sigma is that of the mean."""

    T: int
    b: int
    eta: float
    C: float
    l2: float

    @property
    def noise_multiplier(self) -> float:
        """The noise of the sum over C, as Opacus counts it."""
        return self.sigma * self.b / self.C


class Opacus(Peer):
    """Stochastic gradient descent by Opacus; the last iterate is the output."""

    name = "opacus"
    title = "Opacus"
    label = "stochastic gradient step"
    needs = Peer.needs | {"smooth", "lipschitz"}
    plan_type = OpacusPlan
    letters: ClassVar[Mapping[str, Letter]] = {
        "T": Letter(int, "steps"),
        "b": Letter(int, "expected number of records per step, n for all of them"),
        "eta": Letter(float, "constant step size"),
        "C": Letter(float, "norm at which the gradient of a record is clipped"),
    }

    def compute_plan(self, setting: Setting, given: Mapping[str, Any]) -> OpacusPlan:
        """Fill in what is not given: batches, steps and step size as in the practical dp_sgd, C = G, which clips none.

        The noise multiplier is 1 before it is calibrated.
        """
        if setting.variant not in CALIBRATED:
            raise UserError(
                "opacus has no published noise: its own accountants are for records that are added or removed, and "
                f"here one is replaced; use one of the variants {', '.join(CALIBRATED)}."
            )
        problem = setting.problem
        n, C = problem.n, given.get("C", problem.G)
        T, b = given.get("T", PRACTICAL_STEPS), given.get("b", max(1, n // PRACTICAL_BATCHES))
        if b > n:
            raise UserError(f"b of opacus is {b}, but there are {n} records: give at most as many.")
        sigma = C / b if setting.noisy else 0.0
        # A record of a Poisson batch comes or goes; one of all records is replaced.
        part = QueryPart(2.0 * C / n, n, n) if b == n else QueryPart(C / b, b, n, poisson=True)
        return OpacusPlan(
            **self.plan_head(setting),
            theorem="none: noise multiplier by the accountant here",
            sigma=sigma,
            rounds=T,
            gradient_evaluations=T * b,
            utility=None,
            events=(GaussianEvent(self.label, sigma, (part,), T, attained=setting.spread_attained and C <= problem.G),),
            conditions=(),
            T=T,
            b=b,
            eta=given.get("eta", 0.5 / (problem.L + problem.mu)),
            C=C,
            l2=problem.mu,
        )

    def evaluations(self, plan: OpacusPlan) -> int:
        """Return those of a batch of the expected size."""
        return plan.b

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Hold PyTorch to one thread: the order of its sums, and with it the last bits, depends on their number."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with warnings.catch_warnings():
                # The first layer's inputs are data: of course they ask for no gradient.
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                yield
        finally:
            torch.set_num_threads(before)

    def fit(self, plan: OpacusPlan, X: np.ndarray, y: np.ndarray, seed: int) -> Iterator[np.ndarray]:
        """Yield the weights after each step."""
        import torch
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler

        generator = torch.Generator().manual_seed(seed)
        rows, classes = torch.from_numpy(X), torch.from_numpy(0.5 * (y + 1.0))
        model, optimizer = private_model(plan, rows.dtype, generator)
        loss = torch.nn.BCEWithLogitsLoss(reduction="sum")
        batches = UniformWithReplacementSampler(
            num_samples=plan.n, sample_rate=plan.b / plan.n, generator=generator, steps=plan.T
        )
        for batch in batches:
            # An empty batch is a list without a type.
            index = torch.tensor(batch, dtype=torch.int64)
            optimizer.zero_grad()
            loss(model(rows[index])[:, 0], classes[index]).backward()
            optimizer.step()
            yield optimizer.params[0].detach().numpy()[0].copy()


def private_model(plan: OpacusPlan, dtype: Any, generator: Any) -> tuple[Any, Any]:
    """Return a linear model at w = 0 that keeps a gradient for each record, and the optimizer that adds the noise."""
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    linear = torch.nn.Linear(plan.d, 1, bias=False, dtype=dtype)
    torch.nn.init.zeros_(linear.weight)
    model = GradSampleModule(linear, loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=plan.eta, weight_decay=plan.l2),
        noise_multiplier=plan.noise_multiplier,
        max_grad_norm=plan.C,
        expected_batch_size=plan.b,
        generator=generator,
    )
    return model, optimizer


ALGORITHM = Opacus()
