"""The documentation as a site: built without a warning, whole, and with nothing to load from the network."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import gallery
import pictures
import pytest
import reference
from chromium import Chromium, executable
from docstrings import as_markdown
from documentation import ROOT, WRITTEN, schema_keys
from PIL import Image
from support import assert_one_sentence, require

import dprepro
from dprepro import algorithms, datasets, losses
from dprepro.experiments import experiment_names
from dprepro.provenance import NO_CHECKOUT
from dprepro.report.summary import NOT_THE_DEFAULT

# Where an element names what the browser fetches by itself; links that a reader may follow are not among them.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"), ("object", "data")}


def build(folder: Path, results: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DPREPRO_DOCS_RESULTS": str(results or "")}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(built: tuple[Path, str]) -> Path:
    return built[0]


class Page(HTMLParser):
    """What a page loads, what it links to, its anchors and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value and (tag, name) in LOADED:
                self.loads.append(value)
            if value and (tag, name) == ("a", "href"):
                self.links.append(value)
            if value and name == "id":
                self.anchors.add(value)

    def handle_data(self, data: str) -> None:
        self.text += data


def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def foreign(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def test_it_is_built_without_a_warning(built):
    _, said = built
    assert "Documentation built" in said
    assert "WARNING" not in said


def test_every_written_page_is_there(site):
    wanted = {Path(page).relative_to("docs").with_suffix(".html") for page in WRITTEN if page.startswith("docs/")}
    assert wanted <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_pages_load_nothing_from_the_network(site):
    found = pages(site)
    assert sum(len(page.loads) for page in found.values()) > 100
    assert [(path.name, url) for path, page in found.items() for url in page.loads if foreign(url)] == []


def test_style_sheets_load_nothing_from_the_network(site):
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"' ]+", sheet.read_text(encoding="utf-8")) == []


def test_what_would_be_loaded_from_elsewhere_is_seen():
    page = Page(
        '<script src="https://example.org/x.js"></script><a href="https://example.org"><img src="//e.org/y.png">'
    )
    assert [foreign(url) for url in page.loads] == [True, True]


@pytest.mark.chromium
def test_a_browser_asks_for_files_of_the_site_only(site):
    program = executable()
    require("chromium", program is not None, "there is no Chromium here: install the package chromium")
    with Chromium(program) as browser:
        for name in ("index.html", "tutorial.html", "reference/python.html", "gallery.html"):
            browser.open(site / name)
            assert browser.run("[...document.images].every(one => one.complete && one.naturalWidth > 100)")
        assert [url for url in browser.requests if not url.startswith(site.as_uri())] == []


def test_every_link_within_the_site_leads_to_a_page_and_a_place_on_it(site):
    found = pages(site)
    broken = [
        (path.name, link)
        for path, page in found.items()
        if path.name != "404.html"
        for link in [*page.links, *page.loads]
        if not foreign(link) and not link.startswith(("mailto:", "data:")) and not leads_somewhere(path, link, found)
    ]
    assert broken == []


def leads_somewhere(page: Path, link: str, found: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    known = found.get(target)
    return target.is_file() and (not parts.fragment or known is None or unquote(parts.fragment) in known.anchors)


def test_a_link_to_nowhere_is_seen(site):
    found = pages(site)
    for link, leads in (("tutorial.html#install", True), ("tutorial.html#nowhere", False), ("nowhere.html", False)):
        assert leads_somewhere(site / "index.html", link, found) is leads


# --- the reference ----------------------------------------------------------------------------------------------


def page_of(site: Path, name: str) -> Page:
    return Page((site / "reference" / name).read_text(encoding="utf-8"))


def test_the_python_reference_has_every_public_name(site):
    assert {f"dprepro.{name}" for name in dprepro.__all__} <= page_of(site, "python.html").anchors


def test_docstrings_are_shown_as_they_are_written(site):
    assert "Minimise 1/n sum_i loss(<w, x_i>, y_i) + regularizer privately" in page_of(site, "python.html").text
    assert as_markdown("a*b*c, <w, x_i> and `x|y`") == r"a\*b\*c, &lt;w, x\_i> and `x|y`"


def test_the_reference_of_commands_has_every_verb_with_every_option(site):
    text = page_of(site, "command-line.html").text
    verbs = reference.verbs()
    assert {"list", "solve", "account", "audit", "doctor", "selftest", "status", "compare", "sweep"} <= set(verbs)
    for name, parser in verbs.items():
        section = text.partition(f"dprepro {name}¶")[2].partition("¶")[0]
        for action in parser._actions:
            for option in set(action.option_strings) - {"-h", "--help"}:
                assert option in section, f"dprepro {name} {option}"


def test_a_default_of_zero_is_shown_and_a_bar_in_a_table_has_no_backslash(site):
    text = page_of(site, "command-line.html").text
    assert re.search(r"--seed SEED\s+of all randomness \(default: 0\)\s+0\s", text)
    assert "algorithms|datasets|losses|experiments|targets" in text


def test_the_catalogue_has_every_algorithm_with_its_letters_every_dataset_loss_and_experiment(site):
    page = page_of(site, "catalogue.html")
    assert {*algorithms.names(), *datasets.names()} <= page.anchors
    for name in algorithms.names():
        section = page.text.partition(f"\n{name}¶")[2].partition("¶")[0]
        for letter, facts in algorithms.get_algorithm(name).letters.items():
            assert re.search(rf"^{letter}$", section, re.MULTILINE), f"{name}: {letter}"
            assert facts.meaning in section
    for name in [*losses.names(), *experiment_names(ROOT / "config")]:
        assert re.search(rf"^{name}$", page.text, re.MULTILINE)
    assert "parameter: width = 1; r^2 / 2 for |r| <= width" in page.text


@pytest.mark.parametrize("name", reference.SCHEMAS)
def test_the_reference_of_the_configuration_has_every_key_of_every_schema(name, site):
    schema = json.loads((ROOT / f"config/schema/{name}.schema.json").read_text(encoding="utf-8"))
    text = page_of(site, "configuration.html").text.partition(f"\n{name.capitalize()}¶")[2].partition("¶")[0]
    shown = {path.rpartition(".")[2] for path in re.findall(r"^([\w.\[\]]+)$", text, re.MULTILINE)}
    assert schema_keys(schema) - shown == set()


# --- the gallery ------------------------------------------------------------------------------------------------


def picture(path: Path) -> None:
    """Write a PNG of one grey pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def test_without_results_the_pictures_of_the_repository_are_shown_with_caption_and_command(site):
    page = Page((site / "gallery.html").read_text(encoding="utf-8"))
    kept = sorted((ROOT / "docs/images").glob("*.png"))
    assert {f"images/{file.name}" for file in kept} <= set(page.loads)
    made = page.text.count("Made by snakemake --cores 2 ") + page.text.count("Made by make bench")
    assert made == len(kept) > 30
    section = page.text.partition("klt25_gap¶")[2].partition("¶")[0]
    assert "Made by snakemake --cores 2 klt25_table1." in section
    assert "KLT25. Goldstein norms, the population's against a sample's (Proposition 5.1)." in section


def test_the_repository_keeps_every_figure_of_the_default_run_with_the_caption_of_one_commit(monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = ROOT / "docs/images"
    kept = json.loads((folder / gallery.CAPTIONS).read_text(encoding="utf-8"))
    assert set(kept["captions"]) == pictures.wanted()
    assert {file.stem for file in folder.glob("*.png")} == {*pictures.wanted(), gallery.REPORT, *gallery.BESIDE}
    assert pictures._commit(kept["captions"]) == kept["commit"]


@pytest.fixture
def run_of_all(tmp_path, monkeypatch) -> Path:
    """A folder like that of a default run, with pictures of one pixel, in a checkout that is a scratch folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "docs/images").mkdir(parents=True)
    results = tmp_path / "results"
    for name in pictures.wanted():
        folder = results / ("privacy" if name in gallery.PRIVACY else "figures")
        folder.mkdir(parents=True, exist_ok=True)
        picture(folder / f"{name}.png")
        (folder / f"{name}.md").write_text(f"**{name}.** Made by commit abc1234, dprepro 0.1.0.\n", encoding="utf-8")
    (results / "report.html").write_text("The report.", encoding="utf-8")
    return results


def test_pictures_of_a_run_are_taken_with_their_captions_and_no_others(run_of_all):
    picture(run_of_all / "figures/own.png")
    pictures.take(run_of_all)
    kept = json.loads(Path("docs/images/captions.json").read_text(encoding="utf-8"))
    assert kept["commit"] == "abc1234"
    assert kept["captions"]["wyx17_fig1"] == "**wyx17_fig1.** Made by commit abc1234, dprepro 0.1.0."
    assert {file.stem for file in Path("docs/images").glob("*.png")} == set(kept["captions"]) == pictures.wanted()
    assert Image.open("docs/images/wyx17_fig1.png").convert("RGB").getpixel((0, 0)) == (128, 128, 128)


def refused(results: Path) -> str:
    with pytest.raises(dprepro.UserError) as told:
        pictures.take(results)
    assert_one_sentence(str(told.value))
    assert list(Path("docs/images").iterdir()) == []
    return str(told.value)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("figures/wyx17_fig1.md", "Made by commit abc1234 (modified), dprepro", "abc1234, abc1234 (modified): remove"),
        ("figures/wyx17_fig1.md", "Made by commit def, dprepro", "were made by abc1234, def: remove results"),
        ("figures/wyx17_fig1.md", "Made by hand.", "The caption of wyx17_fig1 names no commit"),
        (
            "figures/wyx17_fig1.md",
            f"Made by commit {NO_CHECKOUT}, dprepro",
            "The caption of wyx17_fig1 names no commit",
        ),
        ("report.html", f"So {NOT_THE_DEFAULT}.", "has not the default settings"),
    ],
    ids=["changed", "two commits", "no commit", "no checkout", "another scale"],
)
def test_pictures_of_anything_but_one_default_run_are_refused(file, text, said, run_of_all):
    (run_of_all / file).write_text(text, encoding="utf-8")
    assert said in refused(run_of_all)


@pytest.mark.parametrize("file", ["figures/klt25_gap.png", "privacy/audit.png", "report.html"])
def test_pictures_of_an_unfinished_run_are_refused(file, run_of_all):
    (run_of_all / file).unlink()
    assert f"has no {'report.html' if file == 'report.html' else 'figure ' + Path(file).stem}: " in refused(run_of_all)


def test_with_a_folder_of_results_every_figure_of_it_is_shown_with_its_caption(tmp_path):
    figures = tmp_path / "results" / "figures"
    figures.mkdir(parents=True)
    for name in ("wyx17_fig1", "klt25_gap"):
        picture(figures / f"{name}.png")
        (figures / f"{name}.md").write_text(f"**{name}.** F(w*) of y<w,x>, and F(w*) again.\n", encoding="utf-8")
    done = build(tmp_path / "site", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    page = Page((tmp_path / "site/gallery.html").read_text(encoding="utf-8"))
    assert {"images/run/wyx17_fig1.png", "images/run/klt25_gap.png"} <= set(page.loads)
    assert (tmp_path / "site/images/run/klt25_gap.png").read_bytes() == (figures / "klt25_gap.png").read_bytes()
    assert "klt25_gap. F(w*) of y<w,x>, and F(w*) again." in page.text


def test_a_folder_without_figures_is_refused_in_a_sentence(tmp_path):
    done = build(tmp_path / "site", tmp_path)
    assert done.returncode != 0
    assert "has no figures/*.png: give the folder of a run" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_picture_of_no_target_is_refused():
    with pytest.raises(dprepro.UserError, match=r"docs/images/sunset\.png is of no experiment"):
        gallery._target("sunset", {"wyx17_fig1": "Figure 1"})
