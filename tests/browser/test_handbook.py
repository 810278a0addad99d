"""The search of the built handbook, as it works where its pages are opened as files."""

from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]

QUESTIONS = {
    "why does my program get no large page": "howto/no-large-page",
    "run a ChampSim trace": "start/champsim",
    "how many TLB entries does my program need": "howto/which-tlb",
    "which page table is the cheapest": "howto/which-page-table",
    "does one lock scale to eight processors": "howto/lock-scaling",
    "record from the call of a function on": "howto/record",
    "reproduce a figure of a paper": "howto/reproduce",
    "virtual machine nested paging": "machines/virtual-machines",
    "os.linux khugepaged keys": "reference/keys/linux",
    "walk references by level": "reference/results/walks",
    "mlock event": "reference/events",
    "where the time of a run goes": "method/speed",
}
"""What somebody searches for, and the page that answers it: one of the first five."""


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
        links = page.query_selector_all("#mkdocs-search-results h3 a")
        found = [str(link.get_attribute("href")) for link in links]
        assert any(place.endswith(f"{wanted}.html") for place in found[:5]), (question, found[:5])
    page.click("#mkdocs-search-results h3 a")
    assert page.url.startswith(site.as_uri()) and page.query_selector("h1")
    page.goto((site / "search.html").as_uri() + "?q=zzzzqqqq")
    page.wait_for_selector("#mkdocs-search-results > p")
    assert not errors
