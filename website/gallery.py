"""The gallery: all figures with their captions, from a folder of results or from the pictures of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dprepro.errors import UserError
from dprepro.experiments import FINDINGS, read_yaml

PAGE = "gallery.md"
IMAGES = "images"
REPORT = "report"
# Pictures that no target of Snakemake makes, with the command that does.
BESIDE = {"performance": "make bench"}


@dataclass(frozen=True)
class Picture:
    """A figure: its file, its address on the site, a title and a text in Markdown."""

    file: Path
    address: str
    title: str
    text: str


@dataclass(frozen=True)
class Gallery:
    """Pictures with a sentence on where they come from."""

    origin: str
    pictures: tuple[Picture, ...]


def from_results(results: Path) -> Gallery:
    """Return every figure that a run has written, with its caption."""
    files = sorted(results.glob("figures/*.png"))
    if not files:
        raise UserError(
            f"{results} has no figures/*.png: give the folder of a run, or none for the pictures kept here."
        )
    pictures = (
        Picture(file, f"{IMAGES}/run/{file.name}", file.stem, _caption(file.with_suffix(".md"))) for file in files
    )
    return Gallery("The figures of one run, with the captions that it wrote.", tuple(pictures))


def from_images(root: Path) -> Gallery:
    """Return the pictures of docs/images, each with the command that makes it."""
    titles = {name: read_yaml(root / f"config/experiments/{name}.yaml")["title"] for name in _experiments(root)}
    pictures = tuple(
        Picture(file, f"{IMAGES}/{file.name}", titles.get(file.stem, file.stem), _how_made(file.stem, titles))
        for file in sorted((root / "docs" / IMAGES).glob("*.png"))
    )
    origin = (
        "A selection from the default run, kept in the repository. `make docs RESULTS=results` puts every figure of a "
        "run of your own here, with its caption."
    )
    return Gallery(origin, pictures)


def _caption(file: Path) -> str:
    """Return a caption as Markdown: <w,x> is no tag, and the star of w* no emphasis."""
    return re.sub(r"(?<!\*)\*(?!\*)", r"\\*", file.read_text(encoding="utf-8").replace("<", "&lt;"))


def page(gallery: Gallery) -> str:
    """Return the page in Markdown."""
    return "\n\n".join(["# Gallery", gallery.origin, *_sections(gallery)]) + "\n"


def _sections(gallery: Gallery) -> Iterator[str]:
    for picture in gallery.pictures:
        yield f"## {picture.file.stem}"
        yield f"[![{picture.title}]({picture.address})]({picture.address})"
        yield picture.text.strip()


def _experiments(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "config" / "experiments").glob("*.yaml"))


def _how_made(name: str, titles: dict[str, str]) -> str:
    """Say which command makes the picture of that name."""
    title = f"{titles[name]}. " if name in titles else ""
    command = BESIDE.get(name) or f"snakemake --cores 2 {_target(name, titles)}"
    return f"{title}Made by `{command}`."


def _target(name: str, titles: dict[str, str]) -> str:
    """Return the target that makes a picture; one of findings comes with the table of its paper."""
    for paper, figures in FINDINGS.items():
        if name in {f"{paper}_{figure}" for figure in figures}:
            return f"{paper}_table1"
    if name in titles or name == REPORT:
        return name
    raise UserError(f"docs/images/{name}.png is of no experiment: name it as the target that makes it.")
