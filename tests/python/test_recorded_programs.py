"""The campaign of programs recorded natively: how it judges, its record, the page's table."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def script(name: str) -> ModuleType:
    """A script of tests/engine: tests/kernel has others of the same names."""
    path = Path(__file__).parents[1] / "engine" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"engine_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


load, programs = script("load"), script("programs")


@pytest.mark.parametrize(
    ("does", "result"),
    [
        ("cat text; exit 3", "equal"),
        ("echo $$", "other"),
        ("true", "broken"),
        ("cat text > left; echo $$ >> left; echo a", "equal"),
        ("cat text > $$; echo a", "other"),
    ],
)
def test_a_program_must_do_what_it_does_alone(does: str, result: str) -> None:
    one = {"name": "a", "needs": "sh", "before": "echo a > text", "script": does}
    found = programs.tried(one, {}, 60)
    assert found["result"] == result, found
    assert programs.line(found).startswith(result)


def test_a_program_that_is_not_installed_is_missing() -> None:
    found = programs.tried({"name": "a", "needs": "no-such-program", "script": ""}, {}, 60)
    assert found["result"] == "missing" and programs.counts([found])["missing"] == 1


def test_the_page_shows_the_record_that_is_kept() -> None:
    found = json.loads(programs.KEPT.read_text())
    assert found["machine"]["processor"] and len(found["commit"]) == 40 and found["date"]
    page = programs.PAGE.read_text()
    assert programs.kept.shown(page, programs.tables(found)) == page
    ran: list[dict[str, Any]] = found["programs"]
    assert [one["name"] for one in ran] == [one["name"] for one in programs.listed()["program"]]
    assert programs.counts(ran) == found["counts"]
    # The properties that the handbook states for natively recorded programs.
    assert len(ran) >= 60 and sum(bool(one["kind"]) for one in ran) >= 20
    assert found["counts"]["other"] == 0 and 20 * found["counts"]["qemu"] <= len(ran)


def test_a_server_s_throughput_is_told_with_what_bounds_it() -> None:
    alone = load.Outcome(100.0, {"server": 4.0, "client": 8.0}, 0.6)
    recorded = load.Outcome(50.0, {"pagewalk": 15.0, "server": 15.0, "client": 9.0}, 0.97)
    found = load.told({"alone": [alone] * 3, "recorded": [recorded] * 3})
    assert found["kept"] == 0.5
    assert load.line("a", found) == (
        "a: alone 100 requests/s (server 4.0, client 8.0 us of CPU for each, 60 % of the "
        "processors); recorded 50 requests/s (pagewalk 15.0, server 15.0, client 9.0 us of CPU "
        "for each, 97 % of the processors); kept 0.50"
    )
