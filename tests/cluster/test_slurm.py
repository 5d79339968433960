"""The workflow through a real Slurm: the same results as without, also after a job was cancelled."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import one_node
import pandas as pd
import pytest

from dprepro.files import read_publication
from dprepro.sweeps import SECONDS
from dprepro.verification import verify

if TYPE_CHECKING:
    from conftest import Checkout, Cluster, Outcome, Submission

pytestmark = [pytest.mark.slurm, pytest.mark.workflow]

STATUS = "workflow/profiles/sbatch/status.sh"
SMALL = "wyx17_fig2_certified"


@dataclass(frozen=True)
class Reproduction:
    """The smoke scale through sbatch: first with a job cancelled in mid-run, then once more."""

    checkout: Checkout
    first: Outcome
    submitted: list[Submission]
    cancelled: Submission
    half: set[str]
    report: str
    second: Outcome


@pytest.fixture(scope="module")
def reproduction(cluster: Cluster, pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    checkout = pristine.copy(tmp_path_factory.mktemp("sbatch") / "checkout")
    cancelled = []

    def meanwhile(process: subprocess.Popen[str]) -> None:
        cancelled.append(cluster.cancel_one(process, in_the_middle))

    def in_the_middle(job: Submission) -> bool:
        log = checkout.folder / f".snakemake/sbatch/sweeps-{job.number}.log"
        return job.name == "dprepro-sweeps" and log.exists() and log.read_text().count("Finished jobid") >= 2

    first = cluster.snakemake(checkout, "sbatch", meanwhile=meanwhile)
    submitted = cluster.submissions()
    half = set(checkout.files("sweeps/*/*.npz"))
    report = (checkout.results / "report.html").read_text(encoding="utf-8")
    second = cluster.snakemake(checkout, "sbatch")
    return Reproduction(checkout, first, submitted, cancelled[0], half, report, second)


def test_a_cancelled_job_ends_the_run_with_an_error_after_all_others(
    reproduction: Reproduction, local_results: Path
) -> None:
    assert reproduction.first.code == 1, reproduction.first.text
    assert re.search(r"^Failed: \d+ of \d+ jobs failed, ", reproduction.first.text, re.MULTILINE), (
        "with its whole group"
    )
    states = {job.number: job.state for job in reproduction.submitted}
    assert states.pop(reproduction.cancelled.number) == "CANCELLED"
    assert set(states.values()) == {"COMPLETED"}
    assert re.search(r"\[ *\d+/\d+\] .* of computing.* left \|", reproduction.first.text), "the queue is not estimated"
    lost = len(list(local_results.glob("sweeps/*/*.npz"))) - len(reproduction.half)
    assert 0 < lost <= 16, "the jobs of one submission, and no other"


def test_the_report_is_made_all_the_same_and_names_what_is_missing(reproduction: Reproduction) -> None:
    assert "dprepro: Missing: Sweeping " in reproduction.first.text
    (facts,) = re.findall(r'<script type="application/json" id="made-from">(.*?)</script>', reproduction.report)
    assert any(gap.startswith("Sweeping ") for gap in json.loads(facts)["incomplete"])
    assert verify(reproduction.checkout.results).incomplete == [], "the second call has made all of it anew"


def test_the_next_call_makes_up_for_it_and_repeats_nothing_else(
    reproduction: Reproduction, local_results: Path
) -> None:
    assert reproduction.second.code == 0, reproduction.second.text
    jobs = reproduction.second.jobs
    sweeps = [job for job in jobs if job.startswith("Sweeping ")]
    assert len(sweeps) == len(list(local_results.glob("sweeps/*/*.npz"))) - len(reproduction.half)
    others = ("Certifying ", "Running ", "Finding ", "Auditing ", "Preparing ", "Holding ")
    assert [job for job in jobs if job.startswith(others)] == []


def test_hundreds_of_jobs_are_few_submissions_that_a_small_node_holds(reproduction: Reproduction) -> None:
    jobs = [job for job in reproduction.first.jobs if not job.startswith(("Drawing", "Writing", "Collecting"))]
    assert len(jobs) > 280
    assert len(reproduction.submitted) < 40
    assert max(job.cores for job in reproduction.submitted) == 1
    assert max(job.memory for job in reproduction.submitted) <= one_node.MEMORY_MB // one_node.CPUS
    assert {job.name for job in reproduction.submitted} == {
        *("dprepro-runs", "dprepro-minima", "dprepro-sweeps", "dprepro-audits"),
        *("dprepro-paper_findings", "dprepro-drawn_findings"),
    }, "data and plots are made where Snakemake runs"


def test_results_through_slurm_equal_those_of_a_local_run(reproduction: Reproduction, local_results: Path) -> None:
    assert_equal_results(reproduction.checkout.results, local_results, "*")
    figures = {path.name for path in local_results.glob("figures/*")}
    assert {path.name for path in reproduction.checkout.results.glob("figures/*")} == figures


def test_the_plugin_for_slurm_sees_a_cancelled_job_and_ends_with_the_results_of_a_local_run(
    cluster: Cluster, checkout: Checkout, local_results: Path
) -> None:
    quick = ("--slurm-init-seconds-before-status-checks", "2")

    def meanwhile(process: subprocess.Popen[str]) -> None:
        cluster.cancel_one(process, lambda job: job.comment.startswith("rule_run_"), seconds=2)

    first = cluster.snakemake(checkout, "slurm", SMALL, *quick, meanwhile=meanwhile)
    assert first.code == 1, first.text
    assert "SLURM status is: 'CANCELLED'" in first.text
    assert len(checkout.files("runs/*/*.npz")) == 1
    (gap,) = read_publication(checkout.results / "tables" / SMALL)["incomplete"]
    assert gap.startswith(f"Running {SMALL}: ")

    second = cluster.snakemake(checkout, "slurm", SMALL, *quick)
    assert second.code == 0, second.text
    assert sum(job.startswith("Running ") for job in second.jobs) == 1
    assert_equal_results(checkout.results, local_results, SMALL)
    assert read_publication(checkout.results / "tables" / SMALL)["incomplete"] == []


def test_a_job_on_the_gpu_asks_slurm_for_one_and_says_itself_what_is_missing(
    cluster: Cluster, checkout: Checkout
) -> None:
    run = f"results/smoke/runs/{SMALL}/dp-svrg-pp.covertype-2000-seed0.certified.eps1.npz"
    outcome = cluster.snakemake(checkout, "sbatch", run, DPREPRO_DEVICE="gpu")
    assert outcome.code == 1, outcome.text
    assert "Submitted group job" in outcome.text, "the machine that submits needs no GPU"
    assert "A GPU was asked for by DPREPRO_DEVICE, but CuPy" in outcome.text
    last = cluster.submissions()[-1]
    assert (last.name, last.state) == ("dprepro-runs", "FAILED")
    assert "TresPerJob=gres:gpu:1" in cluster.ask("scontrol", "show", "job", str(last.number))


def test_a_partition_is_chosen_by_a_resource(cluster: Cluster, checkout: Checkout) -> None:
    dataset = "results/smoke/optima/wyx17_fig1/covertype-2000-seed0.npz"
    outcome = cluster.snakemake(checkout, "sbatch", dataset, "--default-resources", "slurm_partition=nowhere")
    assert outcome.code == 1
    assert "invalid partition specified: nowhere" in outcome.text


@pytest.mark.parametrize(
    ("script", "options", "word"),
    [("true", ["--wait"], "success"), ("false", ["--wait"], "failed"), ("sleep 60", [], "running")],
)
def test_a_job_is_running_a_success_or_failed(
    script: str, options: list[str], word: str, cluster: Cluster, pristine: Checkout
) -> None:
    command = ["sbatch", "--parsable", "--mem=10", "--output=/dev/null", *options, f"--wrap={script}"]
    # Told to wait, sbatch fails with its job.
    done = subprocess.run(command, env=cluster.environment(pristine), capture_output=True, text=True, check=False)
    assert status(cluster, pristine, done.stdout.strip())[0] == word
    cluster.ask("scancel", done.stdout.strip())


def test_a_job_that_slurm_does_not_know_counts_as_failed_and_is_named(cluster: Cluster, pristine: Checkout) -> None:
    word, complaint = status(cluster, pristine, "999999")
    assert word == "failed"
    assert "Slurm knows nothing of job 999999" in complaint


def test_a_job_counts_as_running_while_slurm_does_not_answer(
    cluster: Cluster, pristine: Checkout, tmp_path: Path
) -> None:
    conf = Path(cluster.variables["SLURM_CONF"]).read_text()
    deaf = tmp_path / "slurm.conf"
    deaf.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", conf) + "MessageTimeout=2\n")
    word, complaint = status(replace(cluster, variables={**cluster.variables, "SLURM_CONF": str(deaf)}), pristine, "1")
    assert word == "running"
    assert "asking again" in complaint


def status(cluster: Cluster, checkout: Checkout, number: str) -> tuple[str, str]:
    """Return the word and the complaints of the profile's status command."""
    command = [str(checkout.folder / STATUS), number]
    environment = cluster.environment(checkout)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip(), done.stderr


def assert_equal_results(found: Path, expected: Path, experiment: str) -> None:
    """Compare arrays and plans byte by byte, and tables but for the lines that tell of time."""
    patterns = [
        f"runs/{experiment}/*.npz",
        f"plans/{experiment}/*.json",
        f"optima/{experiment}/*.npz",
        "datasets/*.npz",
    ]
    if experiment == "*":
        patterns += ["sweeps/*/*.npz", "privacy/certificates.csv", "privacy/audit.csv"]
    for pattern in patterns:
        ours, theirs = by_name(found, pattern), by_name(expected, pattern)
        assert ours.keys() == theirs.keys()
        assert len(ours) > 0
        assert [name for name in ours if ours[name].read_bytes() != theirs[name].read_bytes()] == []
    tables = by_name(expected, f"tables/{experiment}.csv")
    assert by_name(found, f"tables/{experiment}.csv").keys() == tables.keys()
    for name in tables:
        pd.testing.assert_frame_equal(timeless(found / name), timeless(expected / name), check_exact=True)


def by_name(folder: Path, pattern: str) -> dict[str, Path]:
    """Return the files that match, by their path inside the folder."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.glob(pattern))}


def timeless(table: Path) -> pd.DataFrame:
    """Return a table without the lines of measured CPU time."""
    read = pd.read_csv(table)
    if "quantity" not in read:
        return read
    return read[~read["quantity"].str.startswith(SECONDS)].reset_index(drop=True)
