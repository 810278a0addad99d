"""The handbook as pages: built by the generator, every link of it leading somewhere."""

import inspect
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import pagewalk

ROOT = Path(__file__).parents[2]
# The limit is ten minutes for a reader who reads four words per second.
WORDS_MAX = 2400


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # The build is strict: it fails at a link or an anchor without a target, and at a page that is
    # in no menu.
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert "<h1" in built.read_text(), page.name


def test_a_page_is_read_in_ten_minutes() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        words = len(page.read_text().split())
        assert words <= WORDS_MAX, f"{page.name} has {words} words: split it by meaning"


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/python.html").read_text()
    for name in pagewalk.__all__:
        thing = getattr(pagewalk, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert re.search(rf"\b{name}\b", text), name
            assert inspect.getdoc(thing), name


def test_links_of_pages_outside_of_the_handbook_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), ROOT / "benches/records/README.md"):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
