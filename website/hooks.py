"""What MkDocs calls while it builds the site: pages made from the code and from results join the written ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import gallery
import reference
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from dprepro.errors import UserError

# The folder of results whose figures the gallery shows; without it those of docs/images.
RESULTS = "DPREPRO_DOCS_RESULTS"


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, made from the code, and the gallery with its pictures."""
    root = Path(config.config_file_path).parent
    made = _gallery(root)
    for path, text in {**reference.pages(root), gallery.PAGE: gallery.page(made)}.items():
        files.append(File.generated(config, path, content=text))
    known = {file.src_uri for file in files}
    for picture in made.pictures:
        if picture.address not in known:
            files.append(File.generated(config, picture.address, abs_src_path=str(picture.file.resolve())))
    return files


def _gallery(root: Path) -> gallery.Gallery:
    folder = os.environ.get(RESULTS)
    try:
        return gallery.from_results(Path(folder)) if folder else gallery.from_images(root)
    except UserError as error:
        raise PluginError(str(error)) from None


def on_page_content(html: str, **_: Any) -> str:
    """Show a bar between backticks in a table without the backslash that it is written with, as GitHub does."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)
