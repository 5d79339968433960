"""The gallery: all figures with their captions, from a folder of results or from the pictures of the repository."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dprepro.errors import UserError
from dprepro.experiments import FINDINGS, read_yaml

PAGE = "gallery.md"
IMAGES = "images"
CAPTIONS = "captions.json"
REPORT = "report"
# Pictures that no target of Snakemake makes, with the command that does.
BESIDE = {"performance": "make bench"}
# The figures of the privacy tables, which have no caption of their own.
PRIVACY = {
    "certificates": "Claimed against accounted epsilon of every run.",
    "audit": "What attacks prove, beside the accounted and the claimed epsilon.",
}


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
    pictures = (
        Picture(file, f"{IMAGES}/run/{file.name}", file.stem, _folded(caption(file))) for file in figures(results)
    )
    return Gallery("The figures of one run, with the captions that it wrote.", tuple(pictures))


def figures(results: Path) -> list[Path]:
    """Return the files of all figures of a run, those of the privacy tables last."""
    found = sorted(results.glob("figures/*.png"))
    if not found:
        raise UserError(
            f"{results} has no figures/*.png: give the folder of a run, or none for the pictures kept here."
        )
    return [*found, *(file for name in PRIVACY if (file := results / "privacy" / f"{name}.png").exists())]


def caption(file: Path) -> str:
    """Return the caption that a run wrote beside a figure."""
    return PRIVACY.get(file.stem) or file.with_suffix(".md").read_text(encoding="utf-8").strip()


def from_images(root: Path) -> Gallery:
    """Return the pictures of docs/images, each with its caption and the command that makes it."""
    folder = root / "docs" / IMAGES
    if not (folder / CAPTIONS).exists():
        raise UserError(f"The folder docs/{IMAGES} has no {CAPTIONS}: run make reproduce and make pictures.")
    kept = json.loads((folder / CAPTIONS).read_text(encoding="utf-8"))
    titles = {name: read_yaml(root / f"config/experiments/{name}.yaml")["title"] for name in _experiments(root)}
    pictures = tuple(
        Picture(
            file,
            f"{IMAGES}/{file.name}",
            titles.get(file.stem, file.stem),
            "\n\n".join([_folded(kept["captions"].get(file.stem, "")), _how_made(file.stem, titles)]),
        )
        for file in sorted(folder.glob("*.png"))
    )
    origin = (
        f"All figures of the default run of commit {kept['commit']}, in fewer colours, with the captions that it "
        "wrote; beside them the report of that run and what `make bench` drew. `make docs RESULTS=results` puts the "
        "figures of a run of your own here."
    )
    return Gallery(origin, pictures)


def _folded(text: str) -> str:
    """Return a caption as Markdown, folded after a paragraph: <w,x> is no tag, and the star of w* no emphasis."""
    first, _, rest = re.sub(r"(?<!\*)\*(?!\*)", r"\\*", text.replace("<", "&lt;")).partition("\n\n")
    if not rest:
        return first
    return f"{first}\n\n<details markdown>\n<summary>The rest of the caption</summary>\n\n{rest}\n\n</details>"


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
    command = BESIDE.get(name) or f"snakemake --cores 2 {_target(name, titles)}"
    return f"Made by `{command}`."


def _target(name: str, titles: dict[str, str]) -> str:
    """Return the target that makes a picture; one of findings comes with the table of its paper."""
    for paper, drawn in FINDINGS.items():
        if name in {f"{paper}_{figure}" for figure in drawn}:
            return f"{paper}_table1"
    if name in PRIVACY:
        return "privacy"
    if name in titles or name == REPORT:
        return name
    raise UserError(f"docs/images/{name}.png is of no experiment: name it as the target that makes it.")
