"""The `dprepro` command. Exit codes: 0 done, 1 a run failed, 2 bad input."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dprepro
from dprepro.errors import SHORT_OF_MEMORY, TRUST, RunFailed, UserError
from dprepro.owner import end_with_owner


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; errors are one sentence on standard error."""
    _hold_blas_to_one_thread()
    end_with_owner()
    try:
        options = build_parser().parse_args(arguments)
        _use_extensions(options)
        options.command(options)
        sys.stdout.flush()
    except (UserError, RunFailed) as error:
        _say(str(error))
        return error.exit_code
    except MemoryError as error:
        _say(f"Out of memory ({str(error) or 'no more could be had'}): {SHORT_OF_MEMORY}.")
        return RunFailed.exit_code
    except KeyboardInterrupt:
        _say("interrupted; nothing half-written was left behind.")
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        from dprepro import extensions

        # A mistake in a file of the user's own is told as such; any other is one of this program.
        if not (sentence := extensions.blamed(error)):
            raise
        _say(sentence)
        return UserError.exit_code
    return 0


def _use_extensions(options: argparse.Namespace) -> None:
    """Bring the folders that were given into use, before those of the environment."""
    if given := getattr(options, "extensions", []):
        from dprepro import extensions

        extensions.use(given)


def _say(sentence: str) -> None:
    """Print a sentence on standard error; on a full disk, where a log takes nothing, the exit code has to do."""
    with contextlib.suppress(OSError):
        print(f"dprepro: {sentence}", file=sys.stderr, flush=True)


def _hold_blas_to_one_thread() -> None:
    """Ask for one BLAS thread in this process; only possible while NumPy is not loaded yet.

    Parallelism comes from jobs: two BLAS threads on a busy machine are many times slower than one, and results
    would depend on their number.
    """
    if "numpy" not in sys.modules:
        for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ[variable] = "1"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command with all its verbs."""
    parser = argparse.ArgumentParser(
        prog="dprepro",
        description="Reproduce papers on differentially private optimization, privacy checked.",
    )
    parser.add_argument("--version", action="version", version=f"dprepro {dprepro.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_list(commands)
    _add_solve(commands)
    _add_account(commands)
    _add_audit(commands)
    _add_new(commands)
    _add_doctor(commands)
    _add_selftest(commands)
    _add_status(commands)
    _add_compare(commands)
    _add_verify(commands)
    _add_stages(commands)
    return parser


def _add(commands: Any, name: str, command: Callable[[argparse.Namespace], None], summary: str) -> Any:
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(command=command)
    return parser


def _add_extensions(parser: Any) -> None:
    """Add the option of every command that looks for algorithms, datasets, losses or experiments by name."""
    said = f"a folder with files of your own; may be given again, and adds to DPREPRO_EXTENSIONS; {TRUST}"
    parser.add_argument("--extensions", action="append", type=Path, default=[], metavar="FOLDER", help=said)


def _add_list(commands: Any) -> None:
    parser = _add(commands, "list", _list, "list algorithms, datasets, losses, experiments or targets")
    _add_extensions(parser)
    parser.add_argument("what", choices=("algorithms", "datasets", "losses", "experiments", "targets"))


def _add_solve(commands: Any) -> None:
    parser = _add(commands, "solve", _solve, "run one algorithm on your own data (CSV, npz or parquet)")
    parser.add_argument("algorithm", help="see: dprepro list algorithms")
    parser.add_argument("--data", type=Path, required=True, help=".csv, .npz (arrays X and y) or .parquet")
    parser.add_argument("--target", help="label column of a CSV or parquet file (default: y, else the last column)")
    parser.add_argument("--epsilon", type=_number, required=True, help="claimed epsilon; inf for no noise")
    parser.add_argument("--delta", type=_number, required=True, help="claimed delta")
    parser.add_argument("--variant", default="certified", help="published, certified or practical (default: certified)")
    _add_loss(parser)
    parser.add_argument("--regularizer", type=_number, default=0.0, help="l2 strength (default: 0)")
    parser.add_argument("--l1", type=_number, default=0.0, help="l1 strength (default: 0)")
    parser.add_argument("--constraint", help="for example l2_ball:1.0")
    parser.add_argument("--row-norm", type=_number, default=1.0, help="declared bound on row norms (default: 1)")
    parser.add_argument("--label-bound", type=_number, default=1.0, help="declared bound on |y| in regression")
    parser.add_argument("--replicates", type=int, default=1, help="independent repetitions (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of all randomness (default: 0)")
    parser.add_argument("--device", default="auto", help="auto, cpu or gpu")
    parser.add_argument("--dtype", default="float64", help="float64 or float32 (default: float64)")
    parser.add_argument("--set", action="append", default=[], metavar="LETTER=VALUE", help="override, e.g. T=10")
    parser.add_argument("--out", type=Path, help="write w and trajectory to this .npz and the certificate to .json")
    parser.add_argument("--force", action="store_true", help="let --out overwrite files, but never the data")
    _add_extensions(parser)


def _add_loss(parser: Any) -> None:
    said = "such as huber:0.5, see: dprepro list losses (default: logistic)"
    parser.add_argument("--loss", default="logistic", help=said)


def _add_account(commands: Any) -> None:
    parser = _add(commands, "account", _account, "print the plan of an algorithm and what is accounted for it")
    parser.add_argument("algorithm", help="see: dprepro list algorithms")
    parser.add_argument("--n", type=int, required=True, help="number of records")
    parser.add_argument("--d", type=int, required=True, help="number of features")
    parser.add_argument("--epsilon", type=_number, required=True, help="claimed epsilon; inf for no noise")
    parser.add_argument("--delta", type=_number, required=True, help="claimed delta")
    parser.add_argument("--variant", default="published", help="published, certified or practical (default: published)")
    _add_loss(parser)
    parser.add_argument("--regularizer", type=_number, help="l2 strength (default: 0.01, 0 if none is taken)")
    parser.add_argument("--constraint", help="for example l2_ball:1.0")
    parser.add_argument("--set", action="append", default=[], metavar="LETTER=VALUE", help="override, e.g. T=10")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_extensions(parser)


def _add_audit(commands: Any) -> None:
    parser = _add(commands, "audit", _audit, "attack an algorithm and print the epsilon that can be proven")
    parser.add_argument("algorithm", help="see: dprepro list algorithms")
    parser.add_argument("--epsilon", type=_number, default=1.0, help="claimed epsilon (default: 1)")
    parser.add_argument("--delta", type=_number, default=1e-5, help="claimed delta (default: 1e-5)")
    parser.add_argument("--variant", default="certified", help="published, certified or practical (default: certified)")
    parser.add_argument("--replicates", type=int, default=20_000, help="runs on each side (default: 20000)")
    parser.add_argument("--seed", type=int, default=0, help="of all randomness (default: 0)")
    parser.add_argument("--device", default="auto", help="auto, cpu or gpu")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_extensions(parser)


def _add_new(commands: Any) -> None:
    parser = _add(commands, "new", _new, "write the first version of an extension of your own, with tests")
    parser.add_argument("kind", choices=("algorithm", "dataset", "loss", "experiment"))
    parser.add_argument("name", help="small letters, digits and underscores")
    parser.add_argument("--path", type=Path, default=Path("extensions"), help="your folder (default: extensions)")


def _add_doctor(commands: Any) -> None:
    _add(commands, "doctor", _doctor, "show versions, backend, data sources and threads")


def _add_selftest(commands: Any) -> None:
    parser = _add(commands, "selftest", _selftest, "check this machine against known answers, in a minute and offline")
    parser.add_argument("--device", default="auto", help="auto, cpu or gpu; gpu must then be there and agree")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_status(commands: Any) -> None:
    parser = _add(commands, "status", _status, "say what is done, what runs and what is left; works during a run")
    parser.add_argument("--configfile", type=Path, nargs="+", default=[], help="as given to snakemake")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_compare(commands: Any) -> None:
    parser = _add(
        commands, "compare", _compare, "say which numbers of two results folders differ beyond their intervals"
    )
    parser.add_argument("a", type=Path, help="a folder of results")
    parser.add_argument("b", type=Path, help="another one, of the same configuration")
    parser.add_argument("--tolerance", type=_number, default=1e-6, help="relative rounding allowed (default: 1e-6)")
    parser.add_argument(
        "--each", action="store_true", help="hold each comparison to 5 percent alone, not all of them together"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_verify(commands: Any) -> None:
    parser = _add(commands, "verify", _verify, "check that results are as they were written and belong together")
    parser.add_argument("folder", type=Path, help="a folder of results")
    parser.add_argument("--rerun", type=_count, default=0, metavar="K", help="repeat K random jobs and compare")
    parser.add_argument("--seed", type=int, help="of the choice of these jobs (default: another one each time)")
    _add_extensions(parser)


def _add_stages(commands: Any) -> None:
    """Add the verbs that the workflow's rules call."""
    parser = _add(commands, "check-device", _stage_check_device, "workflow: say why the asked device cannot be used")
    parser.add_argument("--configured", required=True, help="the device of the configuration")

    parser = _add(commands, "dataset", _stage_dataset, "workflow: prepare a dataset")
    parser.add_argument("--spec", type=_spec, required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "certify", _stage_certify, "workflow: plan a job and certify its privacy")
    parser.add_argument("--spec", type=_spec, required=True)
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "run", _stage_run, "workflow: execute a certified plan")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", help="digest of the sources, if known")

    parser = _add(commands, "optimum", _stage_optimum, "workflow: find the non-private optimum")
    parser.add_argument("--spec", type=_spec, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "optima", _stage_optima, "workflow: find the minimum at each point of a sweep")
    parser.add_argument("--spec", type=_spec, required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "sweep", _stage_sweep, "workflow: run one method along the axes of a problem")
    parser.add_argument("--spec", type=_spec, required=True)
    parser.add_argument("--optima", type=Path, help="the minima of the points, if the metric needs them")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", required=True, help="digest of the sources")

    parser = _add(commands, "collect-sweeps", _stage_collect_sweeps, "workflow: gather sweeps into one table")
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--claims", type=json.loads, required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "collect-parts", _stage_collect_parts, "workflow: gather the rows of a paper's table")
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--paper", required=True)
    parser.add_argument("--title", required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "collect", _stage_collect, "workflow: gather runs into one table")
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--optima", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "audit-stage", _stage_audit, "workflow: audit one algorithm in all settings")
    parser.add_argument("--spec", type=_spec, required=True)
    parser.add_argument("--out", type=Path, required=True)

    parser = _add(commands, "privacy", _stage_privacy, "workflow: write the tables of certificates and audits")
    parser.add_argument("--plans", type=Path, nargs="+", required=True)
    parser.add_argument("--audits", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True, help="path of certificates.csv; the rest stands beside it")

    parser = _add(commands, "findings", _stage_findings, "workflow: hold a paper's claims against computations")
    parser.add_argument("paper")
    parser.add_argument("--out", type=Path, required=True, help="path of the .csv; .md stands beside it")
    parser.add_argument("--data", type=Path, help="path of a .parquet for what the figures of the findings show")

    parser = _add(commands, "figure", _stage_figure, "workflow: draw a figure from collected tables")
    parser.add_argument("target")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="path of the .png; .pdf, .svg, .md stand beside it")

    parser = _add(commands, "table", _stage_table, "workflow: write a table from collected tables")
    parser.add_argument("target")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="path of the .csv; .md and .tex stand beside it")

    parser = _add(commands, "salvage", _stage_salvage, "workflow: make what is possible after a job has failed")
    parser.add_argument("--spec", type=Path, required=True)

    parser = _add(commands, "report", _stage_report, "workflow: write all results as one page of HTML")
    parser.add_argument("--spec", type=_spec, required=True, help="experiments, findings and audits")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--errata", type=Path, required=True, help="docs/fidelity.md")
    parser.add_argument("--out", type=Path, required=True, help="path of the .html")


def _spec(text: str) -> Any:
    """Return the specification of a job: JSON as it stands, or the name of a file that the workflow wrote."""
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"not valid JSON ({error})") from None
    from dprepro.files import read_record, unsealed

    return unsealed(read_record(text))


def _gaps(options: argparse.Namespace) -> list[str] | None:
    """Return what is missing from the inputs of a stage that is run after a job has failed; else None."""
    gaps: list[str] | None = getattr(options, "gaps", None)
    return gaps


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 0")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _list(options: argparse.Namespace) -> None:
    for line in {
        "algorithms": _algorithm_lines,
        "datasets": _dataset_lines,
        "losses": _loss_lines,
        "experiments": _experiment_lines,
        "targets": _target_lines,
    }[options.what]():
        print(line)


def _line_or_reason(name: str, line: Callable[[str], str], kind: type[UserError]) -> str:
    """Return the line of a name or, for an error of this kind, such as a file that is not available, the reason."""
    try:
        return line(name)
    except kind as reason:
        return f"{name:<22} not available: {reason}"


def _algorithm_lines() -> list[str]:
    from dprepro.algorithms import get_algorithm, names, own
    from dprepro.extensions import Unavailable

    mine = own()

    def line(name: str) -> str:
        algorithm = get_algorithm(name)
        return (
            f"{algorithm.name:<12} {algorithm.paper:<6} {algorithm.title:<12} "
            f"letters: {', '.join(algorithm.letters)}; needs: {', '.join(sorted(algorithm.needs))}"
            f"{_own_mark(mine, algorithm.name)}"
        )

    lines = [_line_or_reason(name, line, Unavailable) for name in names()]
    wrapped = "jl_<name>    ABG23  the JL method around any that needs no set; letters: k, rank, clip and those of NAME"
    return [*lines, wrapped, *_peer_lines()]


def _peer_lines() -> list[str]:
    from dprepro import peers

    adapters = [peers.adapter(name) for name in peers.names()]
    return [
        f"{peer.name:<12} {peer.paper:<6} the library of that name, {_whether_installed(peer.name)}; "
        f"letters: {', '.join(peer.letters)}; needs: {', '.join(sorted(peer.needs))}"
        for peer in adapters
    ]


def _whether_installed(name: str) -> str:
    from dprepro import peers

    return "not installed (dprepro[peers])" if peers.missing(name) else "installed"


def _own_mark(mine: Mapping[str, Path], name: str) -> str:
    """Return what marks the line of an own file's."""
    from dprepro import extensions

    return f" (own: {extensions.shown(mine[name])})" if name in mine else ""


def _dataset_lines() -> list[str]:
    from dprepro.datasets import info, names, own
    from dprepro.extensions import Unavailable

    mine = own()

    def line(name: str) -> str:
        f = info(name)
        return f"{f.name:<22} {f.rows or 'any':>7} x {f.features or 'any':<4} {f.title}{_own_mark(mine, f.name)}"

    return [_line_or_reason(name, line, Unavailable) for name in names()]


def _loss_lines() -> list[str]:
    from dprepro.extensions import Unavailable
    from dprepro.losses import facts, get_loss, names, own

    mine = own()
    lines = [
        _line_or_reason(name, lambda name: f"{name:<20} {facts(get_loss(name))}{_own_mark(mine, name)}", Unavailable)
        for name in names()
    ]
    return [*lines, "moreau:BETA:LOSS     convex, smooth; the Moreau envelope of a convex loss made of straight lines"]


def _experiment_lines() -> list[str]:
    from dprepro import extensions
    from dprepro.experiments import experiment_files, read_yaml

    mine = extensions.found(extensions.EXPERIMENTS)
    files = experiment_files()

    def line(name: str) -> str:
        spec = read_yaml(files[name])
        return f"{name:<14} {spec.get('paper', ''):<6} {spec.get('title', '')}{_own_mark(mine, name)}"

    return [_line_or_reason(name, line, UserError) for name in files]


def _target_lines() -> list[str]:
    from dprepro.experiments import TARGETS, experiment_names

    return [*experiment_names(), *TARGETS]


def _solve(options: argparse.Namespace) -> None:
    from dprepro.api import solve
    from dprepro.userdata import check_out, overrides_from, read_table, report, write_solution

    check_out(options.out, options.data, force=options.force)
    X, y, notes = read_table(options.data, options.target)
    solution = solve(
        options.algorithm,
        X,
        y,
        loss=options.loss,
        regularizer={"l1": options.l1, "l2": options.regularizer},
        constraint=options.constraint,
        epsilon=options.epsilon,
        delta=options.delta,
        variant=options.variant,
        replicates=options.replicates,
        seed=options.seed,
        device=options.device,
        dtype=options.dtype,
        row_norm=options.row_norm,
        label_bound=options.label_bound,
        **overrides_from(options.set, options.algorithm),
    )
    if options.out:
        # Something may have been put there while the solver was at work.
        check_out(options.out, options.data, force=options.force)
        write_solution(solution, options.out)
    print(report(solution, notes, options.out))
    if solution.failures:
        raise RunFailed(
            f"{solution.failures} of {options.replicates} replicates ended worse than w = 0 or not finite: "
            "a smaller eta, more data or a larger epsilon may help."
        )


def _account(options: argparse.Namespace) -> None:
    from dprepro.files import jsonable
    from dprepro.userdata import account_record, account_report

    record = account_record(options)
    print(json.dumps(jsonable(record), indent=2) if options.json else account_report(record))


def _audit(options: argparse.Namespace) -> None:
    from dprepro.algorithms import get_algorithm
    from dprepro.files import jsonable
    from dprepro.privacy.audit import audit

    row = audit(
        get_algorithm(options.algorithm),
        variant=options.variant,
        epsilon=options.epsilon,
        delta=options.delta,
        replicates=options.replicates,
        seed=options.seed,
        device=options.device,
    )
    if options.json:
        print(json.dumps(jsonable(row), indent=2))
        return
    for key, value in row.items():
        print(f"{key:<24} {value:.6g}" if isinstance(value, float) else f"{key:<24} {value}")


def _new(options: argparse.Namespace) -> None:
    from dprepro.new import create, next_steps

    for line in next_steps(options.kind, options.path, create(options.kind, options.name, options.path)):
        print(line)


def _doctor(options: argparse.Namespace) -> None:
    from dprepro.doctor import diagnose

    for line in diagnose():
        print(line)


def _selftest(options: argparse.Namespace) -> None:
    try:
        from dprepro.selftest import print_selftest
    except ImportError as error:
        raise RunFailed(f"A package that dprepro needs cannot be imported ({error}): install dprepro again.") from None
    print_selftest(options.device, options.json)


def _status(options: argparse.Namespace) -> None:
    from dprepro.status import print_status

    print_status(options.configfile, options.json)


def _compare(options: argparse.Namespace) -> None:
    from dprepro.comparison import print_comparison

    print_comparison(options.a, options.b, tolerance=options.tolerance, each=options.each, in_json=options.json)


def _verify(options: argparse.Namespace) -> None:
    from dprepro.verification import print_verified

    print_verified(options.folder, options.rerun, options.seed)


def _stage_check_device(options: argparse.Namespace) -> None:
    from dprepro.arrays import get_backend

    get_backend(configured=options.configured)


def _stage_dataset(options: argparse.Namespace) -> None:
    from dprepro.stages.dataset import prepare

    prepare(options.spec, options.out)


def _stage_certify(options: argparse.Namespace) -> None:
    from dprepro.stages.certify import certify_job

    certify_job(options.spec, options.facts, options.out)


def _stage_run(options: argparse.Namespace) -> None:
    from dprepro.stages.run import run_job

    run_job(options.plan, options.data, options.out, options.sources)


def _stage_optimum(options: argparse.Namespace) -> None:
    from dprepro.stages.optimum import solve_exactly

    solve_exactly(options.spec, options.data, options.out)


def _stage_optima(options: argparse.Namespace) -> None:
    from dprepro.stages.optima import solve_points

    solve_points(options.spec, options.out)


def _stage_sweep(options: argparse.Namespace) -> None:
    from dprepro.stages.sweep import run_sweep

    run_sweep(options.spec, options.optima, options.out, options.sources)


def _stage_collect_sweeps(options: argparse.Namespace) -> None:
    from dprepro.stages.collect import collect_sweeps

    collect_sweeps(options.runs, options.claims, options.out, _gaps(options))


def _stage_collect_parts(options: argparse.Namespace) -> None:
    from dprepro.stages.collect import collect_parts

    collect_parts(options.data, options.paper, options.title, options.out, _gaps(options))


def _stage_collect(options: argparse.Namespace) -> None:
    from dprepro.stages.collect import collect

    collect(options.runs, {path.stem: path for path in options.optima}, options.out, _gaps(options))


def _stage_audit(options: argparse.Namespace) -> None:
    from dprepro.stages.audit import audit_algorithm

    audit_algorithm(options.spec, options.out)


def _stage_privacy(options: argparse.Namespace) -> None:
    from dprepro.stages.privacy import write_privacy

    write_privacy(options.plans, options.audits, options.out.parent, _gaps(options))


def _stage_findings(options: argparse.Namespace) -> None:
    from dprepro.stages.findings import write_findings

    write_findings(options.paper, options.out, options.data)


def _stage_figure(options: argparse.Namespace) -> None:
    from dprepro.figures import draw

    draw(options.target, options.data, options.out)


def _stage_table(options: argparse.Namespace) -> None:
    from dprepro.tables import write

    write(options.target, options.data, options.out)


def _stage_report(options: argparse.Namespace) -> None:
    from dprepro.stages.report import write_report

    write_report(options.spec, options.results, options.errata, options.out, _gaps(options) or ())


def _stage_salvage(options: argparse.Namespace) -> None:
    from dprepro.salvage import salvage_file

    salvage_file(options.spec)
