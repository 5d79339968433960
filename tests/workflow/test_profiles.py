"""The profiles for clusters and GPUs hold what they need, and a GPU that cannot be used is one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from support import require

from dprepro.arrays import gpu_problem

if TYPE_CHECKING:
    from conftest import Checkout

ROOT = Path(__file__).parents[2]
PROFILES = ROOT / "workflow" / "profiles"
RUN = "results/smoke/runs/wyx17_fig1/dp-gd.covertype-2000-seed0.published.eps1.npz"
OPTIMUM = "results/smoke/optima/wyx17_fig1/covertype-2000-seed0.npz"


def profile(name: str) -> dict[str, object]:
    """Return the options of a profile."""
    return dict(yaml.safe_load((PROFILES / name / "config.yaml").read_text()))


def rules() -> dict[str, str]:
    """Return the text of every rule that makes files, by name."""
    texts = [path.read_text() for path in sorted((ROOT / "workflow" / "rules").glob("*.smk"))]
    found = [re.findall(r"^rule (\w+):\n((?:(?:    .*)?\n)+)", text, re.MULTILINE) for text in texts]
    return {name: body for pairs in found for name, body in pairs if "shell:" in body}


@pytest.mark.parametrize("name", ["slurm", "sbatch", "gpu"])
def test_a_profile_carries_the_options_of_the_default_one(name: str) -> None:
    assert profile("default").items() <= profile(name).items()


def test_a_job_that_is_not_local_says_how_much_time_memory_threads_and_gpus_it_needs() -> None:
    remote = {name: body for name, body in rules().items() if "localrule: True" not in body}
    assert set(remote) == {"optimum", "certify", "run", "optima", "sweep", "audit_algorithm", "paper_findings"}
    for name, body in remote.items():
        assert "    threads: 1\n" in body, name
        assert all(f"        {resource}=" in body for resource in ("runtime", "mem_mb", "gpu")), name


def test_only_what_computes_on_the_device_asks_for_a_gpu() -> None:
    assert {name for name, body in rules().items() if "gpu=GPUS" in body} == {"run", "sweep", "audit_algorithm"}


def test_jobs_in_groups_are_jobs_that_are_submitted() -> None:
    assert set(profile("sbatch")["groups"]) < {name for name, body in rules().items() if "localrule" not in body}
    assert set(profile("sbatch")["groups"].values()) == set(profile("sbatch")["group-components"])


@pytest.mark.workflow
@pytest.mark.parametrize("asked", ["profile", "configuration"])
def test_a_gpu_that_is_missing_is_one_sentence_before_any_job(asked: str, checkout: Checkout) -> None:
    require("no gpu", bool(gpu_problem()), "there is a GPU here")
    smoke = (checkout.folder / "config/scales/smoke.yaml").read_text()
    config = checkout.write_config(smoke + ("device: gpu\n" if asked == "configuration" else ""))
    options = ("--profile", "workflow/profiles/gpu") if asked == "profile" else ()
    outcome = checkout.snakemake(RUN, *options, config=config)
    assert outcome.code == 2, outcome.text
    assert outcome.sentences == [
        f"dprepro: A GPU was asked for by the configuration, but {gpu_problem()}: "
        "install dprepro[gpu] on a machine with an NVIDIA GPU, or use device cpu or auto."
    ]
    assert "Traceback" not in outcome.text
    assert outcome.jobs == []
    assert set(checkout.files("*")) <= {"logs", "jobs"}, "the progress of a run that did not come to its jobs"
    assert checkout.snakemake(OPTIMUM, *options, config=config).code == 0, "no lock is left, and this needs no GPU"


@pytest.mark.workflow
def test_the_gpu_profile_does_not_lose_its_device_to_another_setting(checkout: Checkout) -> None:
    outcome = checkout.snakemake(RUN, "--profile", "workflow/profiles/gpu", "--config", "seed=3")
    assert outcome.code == 2, outcome.text
    assert outcome.sentences == [
        "dprepro: The limit on the resource gpu is for the device gpu, which is auto here: add --config device=gpu."
    ]
    assert outcome.jobs == []


@pytest.mark.workflow
def test_the_gpu_profile_plans_jobs_on_the_gpu_and_has_one_to_give(pristine: Checkout) -> None:
    outcome = pristine.snakemake(RUN, "--profile", "workflow/profiles/gpu", "--dry-run")
    assert outcome.code == 0, "a dry run needs no GPU, and with another device its resource is refused"
    assert profile("gpu")["config"] == {"device": "gpu"}
    assert profile("gpu")["resources"] == {"gpu": 1}
