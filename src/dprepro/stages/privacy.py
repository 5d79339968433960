"""Stage `privacy`: the table of all certificates and of all audits, each with a figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dprepro import escape, labels
from dprepro.errors import UserError
from dprepro.files import check_job, each_trusted, read_record, write_publication, write_table, write_text
from dprepro.origin import incomplete_lines
from dprepro.privacy.certificate import check_certified
from dprepro.sweeps import sweep_spec
from dprepro.tables import markdown_table
from dprepro.workflow import made_by


@dataclass(frozen=True)
class Certified:
    """Plans with certificates that can be trusted: of a single run, or of the points of a sweep."""

    digest: str
    job: Mapping[str, Any]
    plans: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
    single: bool


def audit_rows(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows of all audits."""
    return pd.DataFrame([row for record in records for row in record["rows"]])


def certificate_rows(certified: Iterable[Certified], audits: pd.DataFrame) -> pd.DataFrame:
    """Return one row per certificate, with the audited epsilon of the same algorithm, variant, epsilon and delta.

    Audits run on small data with letters of their own; a plan with unprotected events has no audit.
    """
    rows = []
    for job, plan, certificate, single in _each(certified):
        rows.append(
            {
                "algorithm": plan["algorithm"],
                "method": labels.formatted(job["label"], plan),
                "experiment": job["experiment"],
                "variant": plan["variant"],
                "n": plan["n"],
                "d": plan["d"],
                "dtype": job["dtype"],
                "epsilon_claimed": float(certificate["epsilon_claimed"]),
                "delta": certificate["delta"],
                "sigma": plan["sigma"],
                "epsilon_accounted": float(certificate["epsilon_accounted"]),
                "epsilon_lower": float(certificate["epsilon_lower"]),
                "delta_at_claimed_epsilon": certificate["delta_at_claimed_epsilon"],
                "noise_ratio": certificate["noise_ratio"],
                "probability_record_sampled": certificate["probability_record_sampled"],
                "epsilon_advanced_composition": certificate["epsilon_advanced_composition"],
                "conditions_met": all(condition["holds"] for condition in certificate["conditions"]),
                "accountant": certificate["accountant"],
                "constant_set_here": certificate["constant_set_here"],
                "verdict": certificate["verdict"],
                "single": single,
            }
        )
    if not rows:
        raise UserError("There is no certificate to list: every setting was refused; see the tables for the reasons.")
    frame = pd.DataFrame(rows).sort_values(["experiment", "method", "variant", "epsilon_claimed"], ignore_index=True)
    keys = ["algorithm", "variant", "epsilon_claimed", "delta"]
    proven = audits.groupby(keys, as_index=False)["epsilon_audited"].max()
    merged = frame.merge(proven, on=keys, how="left")
    # The points of sweeps have letters of their own, and a plan with unprotected events has no audit.
    merged.loc[~merged["single"] | (merged["epsilon_accounted"] == float("inf")), "epsilon_audited"] = float("nan")
    return merged.drop(columns="single")


def _each(
    certified: Iterable[Certified],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], bool]]:
    """Yield job, plan and certificate of every plan, and whether it is a single run."""
    for one in certified:
        for plan, certificate in one.plans:
            yield one.job, plan, certificate, one.single


def read_certified(path: Path) -> Certified:
    """Return the plans of a run or sweep; a `UserError` for one that cannot be trusted."""
    record = read_record(path, "job")
    single = "points" not in record
    check_job(path, record["job"] if single else sweep_spec(record))
    points = [point for point in record.get("points", [record]) if not point["refused"]]
    for point in points:
        check_certified(point, {**record["job"], **point.get("point", {})}, str(path))
    plans = [(point["plan"], point["certificate"]) for point in points]
    return Certified(record["digest"], record["job"], plans, single)


def read_audit(path: Path) -> dict[str, Any]:
    """Return an audit; a `UserError` for one that cannot be trusted."""
    record = read_record(path, "rows", "job", "provenance")
    check_job(path, record["job"])
    return record


def write_privacy(plans: Sequence[Path], audits: Sequence[Path], out: Path, gaps: list[str] | None = None) -> None:
    """Write certificates and audits into the folder `out` as .csv and .md, each with a figure.

    After a job has failed, plans and audits that cannot be trusted are left out and added to `gaps`.
    """
    from dprepro.figures import privacy, style

    planned = dict(each_trusted(plans, lambda path: (path, read_certified(path)), gaps))
    attacked = dict(each_trusted(audits, lambda path: (path, read_audit(path)), gaps))
    for what, found in (("plan", planned), ("audit", attacked)):
        if not found:
            raise UserError(f"No {what} can be trusted: remove them and run snakemake again.")
    audited = audit_rows(attacked.values())
    certified = certificate_rows(planned.values(), audited)
    origin = f"Made by {_made(next(iter(attacked.values())))}."
    made_from = {_place(path): one.digest for path, one in planned.items()}
    made_from |= {_place(path): record["digest"] for path, record in attacked.items()}
    incomplete = incomplete_lines({"incomplete": gaps or ()})
    for name, frame, title, draw in (
        ("certificates", certified, "Certificates: claimed and accounted epsilon of every run", privacy.certificates),
        ("audit", audited, "Audits: claimed, accounted and proven epsilon", privacy.audits),
    ):
        write_table(out / f"{name}.csv", frame, float_format="%.10g")
        parts = (markdown_table(frame, title), incomplete, f"{_NOTE} {origin}")
        write_text(out / f"{name}.md", escape.markdown("\n\n".join(filter(None, parts)) + "\n"))
        with style.applied():
            style.save(draw(frame), out / f"{name}.png")
        suffixes = ("csv", "md", "png", "pdf", "svg")
        facts = {"made_from": made_from, "made_by": made_by("privacy"), "incomplete": list(gaps or ())}
        write_publication(out / name, suffixes, **facts)


def _place(path: Path) -> str:
    """Return the place of the record of a result in the folder of results."""
    return "/".join(path.absolute().with_suffix(".json").parts[-3:])


_NOTE = (
    "Neighbours differ in one replaced record. Accounted epsilons are upper bounds; audited ones are lower bounds that "
    "hold with the stated confidence and are found on small data, the worst case where one is known, with the same "
    "mechanisms."
)


def _made(audit: Mapping[str, Any]) -> str:
    facts = audit["provenance"]
    return (
        f"commit {facts['commit'][:12]}, dprepro {facts['dprepro']}, NumPy {facts['numpy']}, Python {facts['python']}"
    )
