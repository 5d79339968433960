"""One command makes all results, no work is done twice, and mistakes end in a sentence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workflow.conftest import CRASHED

from dprepro.experiments import load_config, load_experiments

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = pytest.mark.workflow

CURVES = ("wyx17_fig1", "wyx17_fig1_certified", "wyx17_fig2", "wyx17_fig2_certified")
PARTS = {
    "bgm21_table1": tuple(f"bgm21_row{row}" for row in range(1, 6)),
    "abg23_table1": tuple(f"abg23_row{row}" for row in range(1, 7)),
    "klt25_table1": ("klt25_samples", "klt25_natural"),
}
SWEEPS = (
    *("wyx17_table1", "wyx17_table2", "wyx17_table3", "wyx17_section6", "wyx17_comparison"),
    *(part for parts in PARTS.values() for part in parts),
    "abg23_lower_bounds",
)
EXPERIMENTS = (*CURVES, *SWEEPS, *PARTS)
# Figures of what findings computed.
FINDINGS = ("klt25_gap", "klt25_lasry_lions")
ROOT = Path(__file__).parents[2]
SMOKE = "config/scales/smoke.yaml"
DATA = "covertype-2000-seed0.published"
PRIVACY = "Writing the tables of certificates and audits"
# Follows from every other result.
REPORT = "Writing the report"


def smoke_jobs(kind: str) -> list[tuple[str, str, str]]:
    """Return experiment, id and algorithm of every job of one kind at the smoke scale."""
    config = load_config([ROOT / SMOKE], ROOT / "config")
    experiments = load_experiments(config, ROOT / "config")
    return [(job.experiment, job.id, job.algorithm) for e in experiments if e.kind == kind for job in e.jobs()]


def test_commands_in_a_copy_use_the_sources_of_the_copy(pristine: Checkout) -> None:
    command = [sys.executable, "-c", "import dprepro; print(dprepro.__file__)"]
    found = subprocess.run(
        command, cwd=pristine.folder, env=pristine.environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert found == str(pristine.folder / "src/dprepro/__init__.py")


def test_one_command_makes_every_figure_and_table(finished: Checkout) -> None:
    suffixes = ("png", "pdf", "svg", "md", "json")
    figures = {f"figures/{name}.{suffix}" for name in (*EXPERIMENTS, *FINDINGS) for suffix in suffixes}
    tables = {f"tables/{name}.{suffix}" for name in EXPERIMENTS for suffix in ("csv", "md", "tex", "json")}
    assert set(finished.files("figures/*")) == figures
    findings = {f"tables/{paper}_findings.{suffix}" for paper in ("abg23", "klt25") for suffix in ("csv", "md", "json")}
    assert set(finished.files("tables/*")) == tables | findings
    assert all(path.stat().st_size > 0 for path in finished.files("*/*.*").values())
    assert len(finished.files("runs/*/*.npz")) == len(finished.files("plans/*/*.certificate.json")) == 17
    assert len(finished.files("plans/*/*.json")) == 2 * 17
    assert len(finished.files("sweeps/*/*.npz")) == len(smoke_jobs("sweeps"))
    assert set(finished.files("privacy/*.csv")) == {"privacy/certificates.csv", "privacy/audit.csv"}
    assert finished.files("report.html")["report.html"].stat().st_size > 0


def test_every_job_leaves_a_log_and_a_benchmark(finished: Checkout) -> None:
    made = sum(len(finished.files(f"{kind}/**/*.{suffix}")) for kind, suffix in (
        ("datasets", "npz"), ("optima", "npz"), ("plans", "certificate.json"), ("runs", "npz"), ("data", "parquet"),
        ("figures", "png"), ("tables", "csv"), ("privacy/audits", "json"), ("optima", "json"), ("sweeps", "npz"),
    ))  # fmt: skip
    # The tables of certificates and audits are one job more, and so is the report; a table of findings and what its
    # figures show are one job.
    assert "data/klt25_findings.parquet" in finished.files("data/*")
    assert len(finished.files("logs/**/*.log")) == len(finished.files("benchmarks/**/*.tsv")) == made + 1 > 100


def test_a_run_records_its_certificate_and_where_it_comes_from(finished: Checkout) -> None:
    for path in finished.files("runs/*/*.json").values():
        record = json.loads(path.read_text())
        assert record["certificate"]["verdict"]
        assert len(record["provenance"]["sources"]) == 16
        assert record["provenance"]["data"]["checksum"] == record["dataset"]["checksum"]
        assert record["provenance"]["threads"] == 1


def test_a_sweep_records_the_certificate_of_every_point(finished: Checkout) -> None:
    refused = 0
    for path in finished.files("sweeps/*/*.json").values():
        record = json.loads(path.read_text())
        assert len(record["provenance"]["sources"]) == 16
        for point in record["points"]:
            assert point["dataset"]["checksum"]
            assert point["refused"] or point["certificate"]["verdict"]
            refused += bool(point["refused"])
    assert refused < 20, "most points run at the smoke scale"


def test_a_second_run_has_nothing_to_do(done: Checkout) -> None:
    outcome = done.snakemake()
    assert outcome.code == 0
    assert "Nothing to be done" in outcome.text
    assert outcome.jobs == []


def test_a_lost_figure_is_drawn_again_alone_and_with_the_same_bytes(done: Checkout) -> None:
    before = {name: path.read_bytes() for name, path in done.files("figures/wyx17_fig1.*").items()}
    (done.results / "figures/wyx17_fig1.png").unlink()
    assert done.planned("wyx17_fig1") == ["Drawing wyx17_fig1"]
    outcome = done.snakemake("wyx17_fig1")
    assert outcome.code == 0, outcome.text
    assert outcome.jobs == ["Drawing wyx17_fig1"]
    after = {name: path.read_bytes() for name, path in done.files("figures/wyx17_fig1.*").items()}
    assert len(after) == 5
    assert [name for name in before if after[name] != before[name]] == []


def other_constant(text: str) -> str:
    """Add one to the first whole number that a source gives a name."""
    return re.sub(r"^([A-Z_]+ = )(\d+)$", lambda m: f"{m[1]}{int(m[2]) + 1}", text, count=1, flags=re.MULTILINE)


def with_statement(text: str) -> str:
    return f"{text}\nADDED = 1\n"


def with_comment(text: str) -> str:
    head, _, rest = text.partition("from __future__")
    return f"{head}# A remark changes nothing.\n\n\nfrom __future__{rest}\n\n# Nor does this one.\n"


def downstream(experiment: str) -> list[str]:
    what = "parts" if experiment in PARTS else "sweeps" if experiment in SWEEPS else "runs"
    return [f"Collecting the {what} of {experiment}", f"Drawing {experiment}", f"Writing the table of {experiment}"]


def jobs_of(experiment: str, *entries: str) -> list[str]:
    return [
        f"{verb} {experiment}: {entry}.{DATA}.eps{epsilon}"
        for verb in ("Certifying", "Running")
        for entry in entries
        for epsilon in ("0.5", "1")
    ]


def sweeps_of(algorithm: str) -> list[str]:
    """Return the sweeps of an algorithm and what follows from them."""
    names = (algorithm, f"jl_{algorithm}")
    jobs = [(experiment, job) for experiment, job, used in smoke_jobs("sweeps") if used in names]
    touched = {experiment for experiment, _ in jobs}
    touched |= {whole for whole, parts in PARTS.items() if touched & set(parts)}
    return [
        *(f"Sweeping {experiment}: {job}" for experiment, job in jobs),
        *(line for experiment in touched for line in downstream(experiment)),
    ]


def certified_jobs_of(experiment: str, *entries: str) -> list[str]:
    name = "covertype-2000-seed0.certified.eps1"
    return [f"{verb} {experiment}: {entry}.{name}" for verb in ("Certifying", "Running") for entry in entries]


@pytest.mark.parametrize(
    ("source", "change", "expected"),
    [
        pytest.param(
            "algorithms/dp_svrg.py",
            other_constant,
            [
                *jobs_of("wyx17_fig1", "dp-svrg-bb"),
                *certified_jobs_of("wyx17_fig1_certified", "dp-svrg", "dp-svrg-batch"),
                *downstream("wyx17_fig1"),
                *downstream("wyx17_fig1_certified"),
                *sweeps_of("dp_svrg"),
                "Auditing dp_svrg",
                PRIVACY,
                REPORT,
            ],
            id="one algorithm",
        ),
        pytest.param(
            "algorithms/dp_gd.py",
            other_constant,
            [
                *jobs_of("wyx17_fig1", "dp-gd", "dp-gd-short"),
                *jobs_of("wyx17_fig2", "dp-gd", "dp-gd-1-over-l"),
                *certified_jobs_of("wyx17_fig1_certified", "dp-gd"),
                *certified_jobs_of("wyx17_fig2_certified", "dp-gd-1-over-l"),
                *[line for name in CURVES for line in downstream(name)],
                *sweeps_of("dp_gd"),
                "Auditing dp_gd",
                # Which wraps it there.
                "Auditing jl_method",
                PRIVACY,
                REPORT,
            ],
            id="an algorithm of two experiments",
        ),
        pytest.param(
            "figures/style.py",
            with_statement,
            [*(f"Drawing {name}" for name in (*EXPERIMENTS, *FINDINGS)), PRIVACY, REPORT],
            id="look of figures",
        ),
        pytest.param(
            "tables/__init__.py",
            with_statement,
            # These figures show numbers of their tables.
            [
                *(f"Writing the table of {name}" for name in EXPERIMENTS),
                *(f"Drawing {name}" for name in (*PARTS, "abg23_lower_bounds", "klt25_samples")),
                PRIVACY,
                REPORT,
            ],
            id="writing of tables",
        ),
    ],
)
def test_an_edit_repeats_the_jobs_that_it_concerns_and_no_other(
    source: str, change: Callable[[str], str], expected: list[str], done: Checkout
) -> None:
    done.edit(source, change)
    assert done.planned() == sorted(expected)


def test_comments_layout_and_code_of_no_result_repeat_nothing(done: Checkout) -> None:
    for source in ("algorithms/dp_gd.py", "algorithms/base.py", "losses.py", "run.py", "figures/style.py"):
        done.edit(source, with_comment)
    done.edit("doctor.py", with_statement)
    assert done.planned() == []


def test_one_more_epsilon_runs_only_what_is_new(done: Checkout) -> None:
    smoke = (done.folder / "config/scales/smoke.yaml").read_text()
    config = done.write_config(smoke.replace("epsilon: [0.5, 1]", "epsilon: [0.5, 1, 2]", 1))
    entries = ("dp-svrg-bb", "dp-gd", "dp-gd-short")
    new = [f"{verb} wyx17_fig1: {entry}.{DATA}.eps2" for verb in ("Certifying", "Running") for entry in entries]
    assert done.planned(config=config) == sorted([*new, *downstream("wyx17_fig1"), PRIVACY, REPORT])


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("overrides: {wyx17_fig1: {epsilonn: [1]}}", "unknown key 'epsilonn'; did you mean 'epsilon'?"),
        ("seed: many", "seed is 'many'; it must be: "),
        ("experiments: [wyx17_fig3]", "Unknown experiment 'wyx17_fig3'"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_sentence_and_nothing_is_written(
    config: str, sentence: str, checkout: Checkout
) -> None:
    name = checkout.write_config(config)
    before = checkout.everything()
    outcome = checkout.snakemake(config=name)
    assert outcome.code == 2
    assert len(outcome.sentences) == 1, outcome.text
    assert sentence in outcome.sentences[0]
    assert "Traceback" not in outcome.text
    assert checkout.everything() == before


def test_an_unknown_target_is_named(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> None:
    checkout = pristine.copy(tmp_path_factory.mktemp("target") / "checkout")
    outcome = checkout.snakemake("wyx17_fig3")
    assert outcome.code == 1
    assert "wyx17_fig3" in outcome.text
    assert "Traceback" not in outcome.text


def test_a_crash_costs_its_own_rows_and_never_the_report(done: Checkout) -> None:
    lost = [path for path in done.files("runs/wyx17_fig1/dp-svrg-bb*").values() if path.suffix == ".npz"]
    for path in lost:
        path.unlink()
    others = {name: path.read_bytes() for name, path in done.files("tables/*.csv").items() if "wyx17_fig1" not in name}
    outcome = done.snakemake(fault=CRASHED)
    assert outcome.code == 1
    (gap,) = (sentence for sentence in outcome.sentences if "Missing: " in sentence)
    report = (done.results / "report.html").read_text(encoding="utf-8")
    listed = report.partition('class="incomplete"')[2].partition("</ul>")[0]
    assert len(lost) > 1
    for path in lost:
        assert f"Running wyx17_fig1: {path.stem}" in gap
        assert f"Running wyx17_fig1: {path.stem}" in listed
    assert all((done.results / name).read_bytes() == content for name, content in others.items())
    assert done.snakemake().code == 0
    assert 'class="incomplete"' not in (done.results / "report.html").read_text(encoding="utf-8")


def test_a_job_that_fails_shows_why(checkout: Checkout) -> None:
    rows = "overrides: {wyx17_fig1: {datasets: [{name: digits, rows: 99999}]}}\n"
    outcome = checkout.snakemake("wyx17_fig1", config=checkout.write_config(f"results: results/smoke\n{rows}"))
    assert outcome.code == 1
    assert len(outcome.sentences) >= 1, "the log of the failed job is shown"
    assert "rows=99999 is more than the 1797 rows" in outcome.text
    assert checkout.files("datasets/*") == {}


def test_a_results_folder_with_a_space_in_its_name_works_or_is_refused(checkout: Checkout) -> None:
    dataset = "overrides: {wyx17_fig1: {datasets: [{name: synthetic_logistic, rows: 50}]}}\n"
    config = checkout.write_config(f"results: my results\n{dataset}")
    file = "my results/datasets/synthetic_logistic-50-seed0.npz"
    outcome = checkout.snakemake(file, config=config)
    if outcome.code == 0:
        assert (checkout.folder / file).stat().st_size > 0
    else:
        assert (outcome.code, len(outcome.sentences)) == (2, 1), outcome.text
        assert "results" in outcome.sentences[0]
    assert not (checkout.folder / "my").exists()
