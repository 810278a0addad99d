"""speedscope opens the profile that `pagewalk origins -o NAME.speedscope.json` writes."""

import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from pagewalk import Machine

VERSION = "1.25.0"


@pytest.fixture(scope="module")
def speedscope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of speedscope, as npm has it."""
    npm = shutil.which("npm") or pytest.skip("npm is missing, which has speedscope")
    folder = tmp_path_factory.mktemp("speedscope")
    command = [npm, "pack", "--silent", f"speedscope@{VERSION}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm cannot fetch speedscope: {done.stderr.strip()[-200:]}")
    shutil.unpack_archive(folder / done.stdout.strip(), folder)
    return folder / "package/dist/release/index.html"


@pytest.mark.browser
def test_speedscope_shows_the_profile(browser: Browser, speedscope: Path, tmp_path: Path) -> None:
    results = Machine("tlb-only").run("generate:uniform,accesses=20k,size=4M")
    path = tmp_path / "x.speedscope.json"
    results.export(path)
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(speedscope.as_uri())
    page.set_input_files("input[type=file]", path)
    page.wait_for_function(f"document.title.includes({results.machine.name!r})")
    assert "misses of every TLB, by function" in page.content()
    page.close()
    assert not errors
