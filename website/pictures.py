"""Take the figures of the default run into docs/images, for the README and the gallery: `make pictures`.

All of them come from one run of one commit. The report is photographed where Chromium is installed.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gallery
from PIL import Image

from dprepro.errors import UserError
from dprepro.experiments import load_config, load_experiments
from dprepro.files import write_bytes, write_json
from dprepro.provenance import NO_CHECKOUT
from dprepro.report.summary import NOT_THE_DEFAULT

IMAGES = Path("docs") / gallery.IMAGES
# Text and lines lose nothing in so many colours, and files become a third of their size.
COLOURS = 128
REPORT_SIZE = 1280, 1100
_COMMIT = re.compile(r"\bcommit (\w+)( \(modified\))?")


def take(results: Path) -> list[Path]:
    """Write the figures of a run and their captions into docs/images; return the files."""
    files = [file for file in gallery.figures(results) if file.stem in wanted()]
    missing = sorted(wanted() - {file.stem for file in files})
    if missing or not (results / "report.html").exists():
        told = f"figure {', '.join(missing)}" if missing else "report.html"
        raise UserError(f"The folder {results} has no {told}: run snakemake with the default config first.")
    if NOT_THE_DEFAULT in (results / "report.html").read_text(encoding="utf-8"):
        raise UserError(f"The folder {results} has not the default settings: run snakemake without another config.")
    captions = {file.stem: gallery.caption(file) for file in files}
    commit = _commit(captions)
    for file in files:
        _write(IMAGES / file.name, Image.open(file))
    write_json(IMAGES / gallery.CAPTIONS, {"commit": commit, "captions": captions})
    return files


def wanted() -> set[str]:
    """Return the names of the figures that the default configuration asks for."""
    names = {experiment.name for experiment in load_experiments(load_config([]))}
    findings = {f"{paper}_{figure}" for paper, drawn in gallery.FINDINGS.items() for figure in drawn}
    return names | findings | set(gallery.PRIVACY)


def _commit(captions: dict[str, str]) -> str:
    """Return the one commit that made all figures."""
    made = {name: set(_COMMIT.findall(text)) for name, text in captions.items() if name not in gallery.PRIVACY}
    if silent := sorted(name for name, commits in made.items() if not commits or NO_CHECKOUT in captions[name]):
        raise UserError(f"The caption of {', '.join(silent)} names no commit: run in a git checkout.")
    commits = set().union(*made.values())
    if len(commits) > 1 or any(changed for _, changed in commits):
        told = ", ".join(sorted(commit + changed for commit, changed in commits))
        raise UserError(f"The figures were made by {told}: remove results and run one commit without changes.")
    return next(iter(commits))[0]


def _write(path: Path, picture: Image.Image) -> None:
    fewer = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    content = io.BytesIO()
    fewer.save(content, "PNG", optimize=True)
    write_bytes(path, content.getvalue())


def photograph(page: Path) -> bool:
    """Write the beginning of the report as a picture; return whether there is a Chromium to show it."""
    if (program := shutil.which("chromium")) is None:
        return False
    with tempfile.TemporaryDirectory() as scratch:
        shot = Path(scratch) / "report.png"
        size = "{},{}".format(*REPORT_SIZE)
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")
        places = (f"--user-data-dir={scratch}/profile", f"--window-size={size}", f"--screenshot={shot}")
        subprocess.run([program, *flags, *places, page.resolve().as_uri()], check=True, capture_output=True)
        _write(IMAGES / f"{gallery.REPORT}.png", Image.open(shot))
    return True


def main() -> int:
    """Take the pictures and say which."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"), help="the folder of the run")
    results = parser.parse_args().results
    try:
        files = take(results)
    except UserError as error:
        print(f"dprepro: {error}", file=sys.stderr)
        return UserError.exit_code
    print(f"{len(files)} figures into {IMAGES}")
    if not photograph(results / "report.html"):
        print("The report was not photographed: there is no Chromium here.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
