"""Stage `privacy`: the table of all certificates and of all audits, each with a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dprepro import digests, escape, labels
from dprepro.errors import UserError
from dprepro.files import read_record, write_publication, write_table, write_text
from dprepro.origin import incomplete_lines
from dprepro.privacy.certificate import check_certificate
from dprepro.tables import markdown_table


def audit_rows(files: Sequence[Path]) -> pd.DataFrame:
    """Return the rows of all audits."""
    return pd.DataFrame([row for path in files for row in read_record(path, "rows")["rows"]])


def certificate_rows(plans: Sequence[Path], audits: pd.DataFrame) -> pd.DataFrame:
    """Return one row per certificate, with the audited epsilon of the same algorithm, variant, epsilon and delta.

    Audits run on small worst-case data with letters of their own; a plan with unprotected events has no audit.
    """
    rows = []
    for job, plan, certificate, single in _certified(plans):
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


def _certified(files: Sequence[Path]) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]]:
    """Yield job, plan and certificate of every plan, those of sweeps point by point, and whether it is a single run."""
    for path in files:
        record = read_record(path, "job")
        for point in record.get("points", [record]):
            if not point["refused"]:
                check_certificate(point["certificate"], point["plan"], str(path))
                yield record["job"], point["plan"], point["certificate"], "points" not in record


def write_privacy(plans: Sequence[Path], audits: Sequence[Path], out: Path, gaps: Sequence[str] = ()) -> None:
    """Write certificates and audits into the folder `out` as .csv and .md, each with a figure."""
    from dprepro.figures import privacy, style

    audited = audit_rows(audits)
    certified = certificate_rows(plans, audited)
    origin = f"Made by {_made(audits)}."
    made_from = {"plans": _digests(plans), "audits": _digests(audits)}
    incomplete = incomplete_lines({"incomplete": gaps})
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
        write_publication(out / name, suffixes, made_from=made_from, incomplete=list(gaps))


def _digests(files: Sequence[Path]) -> dict[str, str]:
    """Return the digest of each file, by the names of its folder and its own."""
    return {f"{path.parent.name}/{path.stem}": digests.check(path) for path in files}


_NOTE = (
    "Neighbours differ in one replaced record. Accounted epsilons are upper bounds; audited ones are lower bounds that "
    "hold with the stated confidence and are found on small worst-case data with the same mechanisms."
)


def _made(audits: Sequence[Path]) -> str:
    facts = read_record(audits[0], "provenance")["provenance"]
    return (
        f"commit {facts['commit'][:12]}, dprepro {facts['dprepro']}, NumPy {facts['numpy']}, Python {facts['python']}"
    )
