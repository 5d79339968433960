"""Which jobs `make test-machines` runs: all that call a solver which may not end, whatever they are called."""

from __future__ import annotations

from pathlib import Path

import exact_jobs
import pytest

import dprepro
from dprepro.experiments import CONFIG, load_config, load_experiments, merge
from dprepro.geometry import Polytope, get_set

ROOT = Path(__file__).parents[2]


def jobs(changes: dict | None = None) -> list[exact_jobs.ExactJob]:
    config = merge(load_config([], ROOT / CONFIG), changes or {})
    return exact_jobs.exact_jobs(load_experiments(config, ROOT / CONFIG), config)


def test_whatever_may_not_converge_is_declared_and_whatever_is_declared_may_not_converge():
    assert exact_jobs.raising(Path(dprepro.__file__).parent) == exact_jobs.declared()


@pytest.mark.parametrize("raised", ["NotConverged('no')", "NotConverged", "errors.NotConverged(f'{1}') from None"])
def test_a_new_solver_without_a_declaration_is_seen(raised, tmp_path):
    package = tmp_path / "dprepro"
    (package / "problems").mkdir(parents=True)
    (package / "problems" / "saddle.py").write_text(f"def find(x):\n    if x:\n        raise {raised}\n")
    (package / "problems" / "bisection.py").write_text("def find(x):\n    raise ValueError(NotConverged)\n")
    assert exact_jobs.raising(package) == {"dprepro.problems.saddle"}


def test_every_solver_of_the_default_configuration_is_called_by_a_job():
    called = {module for job in jobs() for module in job.solvers}
    # Sets that no default experiment has, which the self-test projects onto on each kernel, and libraries.
    elsewhere = {"dprepro.geometry", "dprepro.peers.diffprivlib"}
    assert called == exact_jobs.declared() - elsewhere
    assert getattr(Polytope, "solves_exactly", False)
    assert not getattr(type(get_set("l1_ball:1")), "solves_exactly", False)


def test_jobs_are_found_by_what_they_are_made_of_and_not_by_their_names():
    found = {(job.stage, job.name) for job in jobs()}
    assert ("sweep", "wyx17_table2/objective-perturbation.scales.published") in found
    assert ("audit", "objective_perturbation") in found
    # By its metric alone.
    assert ("sweep", "bgm21_row5/prox-guided-md.l2.published") in found
    assert {stage for stage, _ in found} == {"optimum", "optima", "sweep", "audit"}
    renamed = {
        "experiments": ["wyx17_fig1"],
        "overrides": {"wyx17_fig1": {"algorithms": {"mine": {"label": "mine", "algorithm": "objective_perturbation"}}}},
    }
    runs = [job for job in jobs(renamed) if job.stage == "run"]
    assert len(runs) == 3
    assert all("/mine." in job.name for job in runs)


def test_minima_come_before_the_sweeps_that_need_them_and_are_found_once():
    seen = set()
    for job in jobs():
        if job.stage == "sweep" and job.needs:
            assert ("optima", job.needs) in seen
        seen.add((job.stage, job.name))
    optima = [job for job in jobs() if job.stage == "optimum"]
    assert len({exact_jobs.solved_alike(job) for job in optima}) < len(optima)
