"""A browser without a network, and reports for it to load."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

import sample
from pagewalk import Results
from pagewalk.report import render

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail("chromium is missing: `make test` installs it")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def one_machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of one run."""
    return _written(tmp_path_factory, [Results(sample.document())])


@pytest.fixture(scope="session")
def two_machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two runs."""
    return _written(
        tmp_path_factory, [Results(sample.document()), Results(sample.document("other", 2))]
    )


def _written(tmp_path_factory: pytest.TempPathFactory, results: list[Results]) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(results), encoding="utf-8")
    return path
