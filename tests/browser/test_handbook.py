"""The search of the built handbook, as it works where its pages are opened as files."""

from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]

QUESTIONS = {
    "which data wants large pages": "Find which data wants large pages",
    "ChampSim trace": "From ChampSim",
    "mlock": "Events of a trace",
    "os.linux.khugepaged": "Memory managers",
    "what does encoding cost": "What encoding costs",
}
"""What is searched for, and a page that is among the first five."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def test_the_search_box_finds_pages_without_a_server(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    for question, wanted in QUESTIONS.items():
        page.goto((site / "howto" / "record.html").as_uri())
        page.fill("#rtd-search-form input", question)
        page.keyboard.press("Enter")
        page.wait_for_selector("#mkdocs-search-results h3")
        found = [one.inner_text() for one in page.query_selector_all("#mkdocs-search-results h3")]
        assert wanted in found[:5], question
    page.click("#mkdocs-search-results h3 a")
    assert page.url.startswith(site.as_uri()) and page.query_selector("h1")
    page.goto((site / "search.html").as_uri() + "?q=zzzzqqqq")
    page.wait_for_selector("#mkdocs-search-results > p")
    assert not errors
