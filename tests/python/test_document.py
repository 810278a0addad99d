"""Results with types: as the Rust structures have them, and as a notebook shows them."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sample
from pagewalk import Machine, Results, Trace, record, sweep
from pagewalk.document import Document
from pagewalk.records import Named, Record, _fields

ROOT = Path(__file__).parents[2]
SPEC = "generate:join,table=64M,accesses=30k"


def generator() -> Any:
    path = ROOT / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


def test_the_reference_and_the_types_are_those_of_the_structures() -> None:
    for path, text in generator().made().items():
        assert path.read_text() == text, f"{path.name}: run `make reference`"


def fields_of(data: dict[str, Any], record: Record, place: str = "") -> None:
    """Every field of the plain data has a type, and its value is that of the record."""
    for key, value in data.items():
        name = f"{key}_" if key == "from" else key
        assert name in _fields(type(record)), f"{place}{key} is in no structure"
        found = getattr(record, name)
        if isinstance(found, Record):
            fields_of(value, found, f"{place}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for one, of in zip(value, found, strict=True):
                fields_of(one, of, f"{place}{key}[].")
        elif isinstance(found, dict) and isinstance(next(iter(found.values()), None), Record):
            for size, of in found.items():
                fields_of(value[size], of, f"{place}{key}[].")
        else:
            plain = list(found) if isinstance(found, Named) else found
            assert plain == value, f"{place}{key}"


@pytest.mark.parametrize(
    ("machine", "settings"),
    [
        ("epyc-9005", {}),
        ("r4700", {}),
        ("tlb-only", {}),
        ("epyc-9005", {"nested.page_size": "2M"}),
        ("epyc-9005", {"core.count": 2}),
    ],
)
def test_every_field_of_real_results_has_a_type(machine: str, settings: dict[str, Any]) -> None:
    results = Machine(machine, settings).run(SPEC)
    fields_of(results.data, results)


@pytest.mark.parametrize(
    ("machine", "settings"), [("epyc-9005", {}), ("epyc-9005", {"nested.page_size": "2M"})]
)
def test_the_identities_that_the_reference_names_hold(
    machine: str, settings: dict[str, Any]
) -> None:
    found = Machine(machine, settings).run(SPEC)
    last = max(tlb.level for tlb in found.tlbs)
    missed = sum(tlb.misses for tlb in found.tlbs if tlb.level == last)
    assert all(tlb.lookups == tlb.hits + tlb.misses for tlb in found.tlbs)
    assert missed == found.walks.walks == sum(region.misses for region in found.regions)
    assert missed == sum(found.timeline.misses)
    host = found.nested.references if found.nested else 0
    assert found.walks.references == host + sum(one.references for one in found.walks.by_level)
    assert all(one.references == sum(one.served.values()) for one in found.walks.by_level)
    for index, region in enumerate(found.regions):
        by_kind = region.by_kind
        assert region.lookups == by_kind.fetch + by_kind.load + by_kind.store
        assert region.misses == sum(n for _, owner, n in found.map.owners if owner == index)
    first = sum(tlb.lookups for tlb in found.tlbs if tlb.level == 1)
    assert first == sum(region.lookups for region in found.regions)
    memory = found.memory
    assert memory.frames_used_bytes == memory.mapped_bytes + memory.table_bytes
    assert found.faults.first_touch == found.walks.cold
    assert found.shootdowns.received == found.shootdowns.asked


def test_fields_of_processes_and_mixes_have_types(recorded: Path) -> None:
    for trace in (recorded, f"mix:quantum=1k,[{SPEC}],[{SPEC}]"):
        results = Machine("epyc-9005").run(trace)
        fields_of(results.data, results)


def test_results_are_read_by_name() -> None:
    results = Results(sample.document())
    tlb = results.tlbs["l1d"]
    assert tlb.misses == sample.document()["tlbs"][1]["misses"] == results.tlbs[1].misses
    assert tlb.by_kind.load.misses == tlb.misses
    assert results.time is not None and results.time.share.hi > 0
    assert results.native is None and results.processors == []
    assert results.tlbs.keys() == ["l1i", "l1d", "l2"]
    assert {"tlbs", "walks", "to_arrow"} <= set(dir(results))
    with pytest.raises(KeyError, match="the names are l1i, l1d, l2"):
        results.tlbs["l9"]
    with pytest.raises(AttributeError, match="no field `tlb`"):
        _ = results.tlb
    assert isinstance(results, Document)


def test_a_small_typed_script_passes_mypy(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pagewalk\n"
        f"results = pagewalk.Machine('epyc-9005').run('{SPEC}')\n"
        "misses: int = results.tlbs['l1d'].misses\n"
        "share: float | None = results.time.share.hi if results.time else None\n"
        "served: dict[str, int] = results.walks.by_level[0].served\n"
    )
    check = [sys.executable, "-m", "mypy", "--strict", str(script)]
    environment = {"MYPYPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(check, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout
    script.write_text(script.read_text() + "wrong: str = results.tlbs['l1d'].misses\n")
    done = subprocess.run(check, capture_output=True, text=True, check=False, env=environment)
    assert "Incompatible types in assignment" in done.stdout


def test_a_notebook_is_shown_everything_as_html(tmp_path: Path) -> None:
    trace, machine = Trace(SPEC), Machine("epyc-9005")
    results = machine.run(trace, progress=True)
    designs = sweep(trace, "opteron-2008", vary={"tlb.l2d.entries": "2^8..2^9"})
    shown = [thing._repr_html_() for thing in (trace, machine, results, designs)]
    for html, word in zip(shown, ("Accesses", "mmu_cache", "l1d", "tlb.l2d.entries"), strict=True):
        assert word in html and "<table>" in html
        assert "<script" not in html and "http" not in html
    hostile = json.loads(json.dumps(sample.document()))
    hostile["trace"]["name"] = "<script>alert(1)</script>"
    assert "<script" not in Results(hostile)._repr_html_()
    assert designs.num_rows == len(designs) == 2
    designs.html(tmp_path / "sweep.html")


def test_charts_are_pictures_that_need_no_network() -> None:
    results = Machine("epyc-9005").run(SPEC)
    for chart in results.charts().values():
        bundle = chart._repr_mimebundle_(None, None)
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        assert bundle["image/svg+xml"].startswith("<svg")


def test_a_program_is_recorded_from_python(program: Path, tmp_path: Path) -> None:
    trace = record([str(program)], tmp_path / "t.pwt", max_accesses=10_000)
    assert trace.accesses == 10_000
    assert "touch" in trace._repr_html_()


def test_every_pointer_of_a_report_names_fields() -> None:
    """Pointers into the document are texts, which no type checker reads."""
    known = {field.name for one in generator().structures().values() for field in one.fields}
    unknown, found = [], 0
    for path in sorted((ROOT / "python" / "pagewalk" / "report").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"(?:/[a-z][a-z0-9_]+)+/?", text):
                names = text.strip("/").split("/")
                found += 1
                unknown += [f"{path.name}: {text}" for name in names if name not in known]
    assert found > 50
    assert not unknown
