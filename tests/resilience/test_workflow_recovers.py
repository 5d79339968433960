"""The workflow after kills, on full and read-only disks, with damaged files and wrong clocks."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import kill_at_random
import pandas as pd
import pytest
from namespaces import in_namespace, needs_mounts
from tiny import CONFIG, RUNS, TABLE, Tiny
from workflow.conftest import CRASHED, KILLED

from dprepro import files
from dprepro.experiments import read_yaml
from dprepro.files import read_publication
from dprepro.new import create
from dprepro.verification import lines, verify

pytestmark = pytest.mark.workflow


def test_killed_at_random_it_completes_with_the_same_results(
    made: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    made.copy(tmp_path / "reference")
    words = f"{TABLE} --config {CONFIG} --kills 2 --in-turn --share 0.5 --seed 3 --folder {tmp_path}"
    assert kill_at_random.main(words.split()) == 0
    said = capsys.readouterr().out
    assert "the whole group killed" in said
    assert "a worker killed" in said
    assert "2 kills, every rerun completed, results identical, nothing lost" in said


def test_snakemake_killed_alone_is_taken_up_again_without_flags(tiny: Tiny, made: Tiny) -> None:
    process = subprocess.Popen(
        tiny.command(TABLE, config=CONFIG),
        cwd=tiny.folder,
        env=tiny.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300.0
    while not tiny.files("plans/*/*.certificate.json"):
        assert process.poll() is None, "it ended before a plan was written"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # Held in mid-run, it keeps a second run out, with a sentence; a look is allowed.
    process.send_signal(signal.SIGSTOP)
    second, look = tiny.make(), tiny.make("--dry-run")
    process.kill()
    process.wait()
    assert (second.code, len(second.sentences)) == (2, 1), second.text
    assert f"Another run (process {process.pid} on " in second.sentences[0]
    assert (look.code, look.sentences) == (0, []), look.text
    half = tiny.results / "runs" / "wyx17_fig1" / f".x.npz.{files.host_tag()}-{process.pid}.partial"
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_bytes(b"half")

    outcome = tiny.makes_all()
    assert any("was killed: its lock is removed" in sentence for sentence in outcome.sentences), outcome.text
    assert list(tiny.folder.rglob("*.partial")) == []
    assert list(kill_at_random._workers(process.pid)) == [], "no job outlives its Snakemake"
    assert tiny.same_results(made)


def methods_in(tiny: Tiny) -> int:
    """Return how many methods the table has."""
    return int(pd.read_csv(tiny.folder / TABLE)["method"].nunique())


def test_a_crash_costs_its_own_rows_and_the_next_call_makes_the_rest(ready: Tiny, made: Tiny) -> None:
    for path in ready.files("runs/*/dp-svrg-bb*").values():
        path.unlink()
    outcome = ready.snakemake("wyx17_fig1", config=CONFIG, fault=CRASHED)
    assert outcome.code == 1, outcome.text
    assert not ready.files("runs/*/dp-svrg-bb*"), "a crash leaves no output"
    _, missing, rest = outcome.sentences
    assert "Missing: Running wyx17_fig1: dp-svrg-bb" in missing
    assert "planted" in missing
    assert "marked incomplete: 10 files" in rest
    assert methods_in(ready) == RUNS - 1
    for name in ("tables/wyx17_fig1", "figures/wyx17_fig1"):
        record = read_publication(ready.results / name)
        assert len(record["incomplete"]) == 1
        assert "**Incomplete.**" in (ready.results / f"{name}.md").read_text()
    assert "incomplete         Running wyx17_fig1: dp-svrg-bb" in "\n".join(lines(verify(ready.results)))

    outcome = ready.snakemake("wyx17_fig1", config=CONFIG)
    assert outcome.code == 0, outcome.text
    assert sum(job.startswith("Running") for job in outcome.jobs) == 1, "only what failed is run again"
    assert ready.same_results(made)
    assert verify(ready.results).incomplete == []


def flip(path: Path) -> None:
    """Change one bit in the middle of a file, and leave its time as it is."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


REPORTED = """
audit: {algorithms: [dp_gd, dp_sgd], replicates: 200, delta: 0.001, settings: [{variant: certified, epsilon: [1]}]}
"""


@pytest.mark.parametrize("what", ["the stage privacy", "a run", "a plan", "an audit"])
def test_whatever_fails_the_report_is_made_of_the_rest(what: str, ready: Tiny) -> None:
    config = ready.folder / CONFIG
    config.write_text(config.read_text() + REPORTED)
    assert ready.snakemake("report", config=CONFIG).code == 0
    if what == "the stage privacy":
        ready.edit(
            "stages/privacy.py",
            lambda text: text.replace("    planned = ", "    raise OSError('planted')\n    planned = "),
        )
        outcome = ready.snakemake("report", config=CONFIG)
    else:
        places = {
            "a run": "runs/*/dp-gd-short*",
            "a plan": "plans/*/dp-gd-short*[!e]",
            "an audit": "privacy/audits/dp_sgd",
        }
        damaged = next(iter(ready.files(f"{places[what]}.json").values()))
        flip(damaged)
        for path in ready.files("data/*").values():
            path.unlink()
        (ready.results / "privacy/certificates.csv").unlink()
        outcome = ready.snakemake("report", config=CONFIG)
    assert outcome.code == 1, outcome.text
    report = (ready.results / "report.html").read_text(encoding="utf-8")
    assert 'class="incomplete"' in report
    assert ("The certificates and audits are missing" in report) == (what == "the stage privacy")
    if what == "the stage privacy":
        assert any("planted" in sentence for sentence in outcome.sentences)
        assert methods_in(ready) == RUNS
        ready.edit("stages/privacy.py", lambda text: text.replace("    raise OSError('planted')\n", ""))
    else:
        missing = [sentence for sentence in outcome.sentences if sentence.startswith("dprepro: Missing: ")]
        assert len(missing) == 1, "each gap is told once"
        assert f"{damaged.name} was changed after it was written" in missing[0]
        listed = report.partition('class="incomplete"')[2].partition("</ul>")[0]
        assert listed.count(f"{damaged.name} was changed after it was written") == 1
        assert methods_in(ready) == RUNS - (what == "a run")
        assert len(pd.read_csv(ready.results / "privacy/certificates.csv")) == RUNS - (what == "a plan")
        assert len(pd.read_csv(ready.results / "privacy/audit.csv")) == 2 - (what == "an audit")
        damaged.unlink()
    outcome = ready.snakemake("report", config=CONFIG)
    assert outcome.code == 0, outcome.text
    assert 'class="incomplete"' not in (ready.results / "report.html").read_text(encoding="utf-8")
    assert verify(ready.results).problems == []


def test_a_figure_that_fails_costs_neither_its_table_nor_the_report(ready: Tiny) -> None:
    config = ready.folder / CONFIG
    config.write_text(config.read_text() + REPORTED)
    planted = "    raise ValueError('\\nplanted')\n    drawn, grid = "
    ready.edit("figures/curves.py", lambda text: text.replace("    drawn, grid = ", planted))
    outcome = ready.snakemake("report", config=CONFIG)
    assert outcome.code == 1, outcome.text
    report = (ready.results / "report.html").read_text(encoding="utf-8")
    assert "Not in the report: the figure wyx17_fig1" in report
    assert "planted" in report
    assert 'id="wyx17_fig1"' in report
    assert methods_in(ready) == RUNS
    ready.edit("figures/curves.py", lambda text: text.replace(planted, "    drawn, grid = "))
    outcome = ready.snakemake("report", config=CONFIG)
    assert outcome.code == 0, outcome.text
    assert "the figure wyx17_fig1" not in (ready.results / "report.html").read_text(encoding="utf-8")


def test_runs_from_before_an_edit_are_not_shown_where_their_job_could_not_start(ready: Tiny) -> None:
    """The plan of one method fails in every run: its old result is still there, of another seed than the others."""
    old = {path: path.read_bytes() for path in ready.files("runs/*/dp-svrg-bb*").values()}
    seed = "\nseed: 99\n"
    config = ready.folder / CONFIG
    config.write_text(config.read_text() + seed)
    outcome = ready.snakemake("wyx17_fig1", config=CONFIG, fault=CRASHED.replace('"run"', '"certify"'))
    assert outcome.code == 1, outcome.text
    assert len(old) == 2
    assert methods_in(ready) == RUNS - 1, "only runs with the new seed"


def test_a_job_killed_while_an_edit_is_carried_out_leaves_no_outdated_table(ready: Tiny) -> None:
    target = "wyx17_fig1"
    assert ready.snakemake(target, config=CONFIG).code == 0
    ready.edit("algorithms/dp_svrg.py", lambda text: f"{text}\nEDITED = 1\n")
    killed = ready.snakemake(target, config=CONFIG, fault=KILLED)
    assert killed.code == 1, killed.text
    assert not ready.files("runs/*/dp-svrg-bb*.npz"), "Snakemake removed the run from before the edit"
    assert read_publication((ready.folder / TABLE).with_suffix(""))["incomplete"], "what is left of the table says so"
    outcome = ready.snakemake(target, config=CONFIG)
    assert outcome.code == 0, outcome.text
    assert sum(job.startswith("Running") for job in outcome.jobs) == 1
    assert f"Writing the table of {target}" in outcome.jobs


def test_a_truncated_table_is_named_and_made_again_once_removed(ready: Tiny, made: Tiny) -> None:
    data = ready.results / "data" / "wyx17_fig1.parquet"
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    (ready.folder / TABLE).unlink()
    outcome = ready.make()
    assert outcome.code == 1
    (sentence,) = outcome.sentences
    assert "data/wyx17_fig1.parquet was changed after it was written" in sentence
    assert "remove it and make it again" in sentence
    assert "Traceback" not in outcome.text
    data.unlink()
    ready.makes_all()
    assert ready.same_results(made)


def test_results_from_the_future_do_not_stop_it_and_it_comes_to_rest(ready: Tiny, made: Tiny) -> None:
    """As after a clock was set back by a day: all results are newer than anything that can be made now."""
    future = time.time() + 86400.0
    for path in ready.files("**/*").values():
        os.utime(path, (future, future))
    for path in (ready.run_file("npz"), ready.results / "data" / "wyx17_fig1.parquet", ready.folder / TABLE):
        path.unlink()
    outcome = ready.makes_all()
    assert any("came from the future" in sentence for sentence in outcome.sentences), outcome.text
    assert sum(job.startswith("Running") for job in outcome.jobs) == 1, "what is there is kept"
    assert ready.same_results(made)
    again = ready.makes_all()
    assert "Nothing to be done" in again.text
    assert again.sentences == []


def test_an_unlinked_dataset_fails_its_own_jobs_and_all_else_is_made(tiny: Tiny, made: Tiny) -> None:
    (dataset, _) = create("dataset", "linked", tiny.folder / "mine")
    (tiny.folder / "mine/experiments").mkdir()
    trial = read_yaml(tiny.folder / "config/experiments/wyx17_fig1.yaml")
    trial |= {"datasets": [{"name": "linked", "rows": 100}], "epsilon": [1], "replicates": 3, "tile": 8}
    trial |= {"algorithms": {"dp-gd": {"label": "DP-GD", "algorithm": "dp_gd", "parameters": {"T": 5}}}}
    (tiny.folder / "mine/experiments/trial.yaml").write_text(json.dumps(trial))
    text = (tiny.folder / CONFIG).read_text().replace("[wyx17_fig1]", "[trial, wyx17_fig1]")
    (tiny.folder / CONFIG).write_text(f"extensions: [mine]\n{text}")
    kept = dataset.rename(tiny.folder / "kept.py")
    dataset.symlink_to("unplugged.py")
    outcome = tiny.snakemake("tables", config=CONFIG)
    assert outcome.code == 1
    assert "dprepro: The file mine/datasets/linked.py cannot be read (No such file or directory): put a" in outcome.text
    assert re.search(r"Failed: 1 of \d+ jobs failed", outcome.text)
    for name, path in made.files("tables/wyx17_fig1.csv").items():
        assert (tiny.results / name).read_bytes() == path.read_bytes()
    assert not (tiny.results / "tables/trial.csv").exists()
    dataset.unlink()
    kept.rename(dataset)
    again = tiny.snakemake("tables", config=CONFIG)
    assert again.code == 0, again.text
    assert (tiny.results / "tables/trial.csv").exists()
    assert not any("wyx17_fig1" in job for job in again.jobs)


def test_a_users_files_from_the_future_do_not_stop_the_report_and_keep_their_time(ready: Tiny) -> None:
    config = ready.folder / CONFIG
    audit = "audit: {algorithms: [dp_gd, dp_sgd], replicates: 200, settings: [{variant: certified, epsilon: [1]}]}\n"
    config.write_text(config.read_text() + audit)
    future = time.time() + 86400.0
    errata = ready.folder / "docs/fidelity.md"
    files = [errata, config, *(ready.folder / "config").rglob("*.*"), *(ready.folder / "workflow").rglob("*.*")]
    for path in files:
        os.utime(path, (future, future))
    made = ready.snakemake("report", config=CONFIG)
    assert made.code == 0, made.text
    assert "Nothing to be done" in ready.snakemake("report", config=CONFIG).text
    assert {path.stat().st_mtime for path in files} == {errata.stat().st_mtime}
    assert errata.stat().st_mtime > time.time() + 80000.0
    errata.write_text(errata.read_text() + "\nAnother remark.\n")
    os.utime(errata, (1.0, 1.0))
    assert ready.planned("report", config=CONFIG) == ["Writing the report"], "it is the content that counts"


@needs_mounts
def test_a_read_only_folder_of_results_is_refused_before_the_first_job(ready: Tiny) -> None:
    (ready.folder / TABLE).unlink()
    command = shlex.join(ready.command(TABLE, config=CONFIG))
    script = f"mount --bind results results && mount -o remount,bind,ro results && {command}"
    code, said = in_namespace(script, ready.folder, ready.environment)
    assert code == 2, said
    (sentence,) = [line for line in said.splitlines() if line.startswith("dprepro: ")]
    assert "Read-only file system. Choose a folder you may write to." in sentence
    assert "Traceback" not in said
    ready.makes_all()


@needs_mounts
def test_a_full_disk_is_named_and_with_more_space_the_run_goes_on(tiny: Tiny, made: Tiny) -> None:
    command = shlex.join(tiny.command(TABLE, config=CONFIG))
    (tiny.folder / "results").mkdir()
    script = f"""
        mount -t tmpfs -o size=176k tmpfs results
        {command} > full.txt 2>&1; echo "code $?" >> full.txt
        mount -o remount,size=50m results
        {command} > space.txt 2>&1; echo "code $?" >> space.txt
        cp -a results kept
    """
    _, said = in_namespace(script, tiny.folder, tiny.environment)
    full, space = ((tiny.folder / name).read_text() for name in ("full.txt", "space.txt"))
    assert full.endswith("code 1\n"), said
    assert "dprepro: No space is left on the disk of results/smoke: free some and run again" in full
    assert "Traceback" not in full
    assert space.endswith("code 0\n"), space
    (tiny.folder / "results").rmdir()
    (tiny.folder / "kept").rename(tiny.folder / "results")
    assert tiny.same_results(made)
