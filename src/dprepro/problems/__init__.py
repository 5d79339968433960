"""Problems: from a public description and data to the risk on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dprepro.arrays import Backend
    from dprepro.problems.erm import EmpiricalRisk, ProblemSpec


def make_risk(
    spec: ProblemSpec,
    X: np.ndarray,
    y: np.ndarray,
    backend: Backend,
    *,
    probabilities: np.ndarray | None = None,
    repeated: bool = False,
    sphere: float | None = None,
    law: Mapping[str, Any] | None = None,
) -> EmpiricalRisk:
    """Return the risk over stored rows or, with probabilities, over atoms.

    Atoms are those of a population, of which n independent samples are drawn, or, if `repeated`, what the n records
    are exact copies of. With `sphere`, the size of the label noise, X is the truth of `SphereRisk`. With a
    `law` samples are drawn as they are asked for, by the class that its `name` stands for.
    """
    from dprepro.problems.erm import EmpiricalRisk
    from dprepro.problems.network import NetworkPopulation
    from dprepro.problems.population import PopulationRisk
    from dprepro.problems.repeated import RepeatedRisk, copies_of
    from dprepro.problems.sphere import SphereRisk
    from dprepro.problems.spiked import SpikedPopulation
    from dprepro.problems.vector import VectorPopulation, VectorRepeated, VectorRisk

    if sphere is not None:
        return SphereRisk(spec, X, y, sphere, backend)
    if law is not None:
        drawn = {"spiked": SpikedPopulation, "network": NetworkPopulation}[law["name"]]
        return drawn(spec, X, y, law, backend)
    glm = spec.loss.glm
    if probabilities is None:
        return (EmpiricalRisk if glm else VectorRisk)(spec, X, y, backend)
    if repeated:
        return (RepeatedRisk if glm else VectorRepeated)(spec, X, y, copies_of(probabilities, spec.n), backend)
    return (PopulationRisk if glm else VectorPopulation)(spec, X, y, probabilities, backend)
