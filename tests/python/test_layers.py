"""No import points up: ARCHITECTURE.md has the edges between crates and the knots left."""

import re
import sys
from pathlib import Path

import layers
import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def block(name: str) -> dict[str, set[str]]:
    """The lines of a block of ARCHITECTURE.md: a name, a colon, and names."""
    [text] = re.findall(rf"```{name}\n(.*?)```", MAP, re.DOTALL)
    lines = [line.partition(":") for line in text.splitlines()]
    found: dict[str, set[str]] = {}
    for key, _, rest in lines:
        assert key not in found, f"ARCHITECTURE.md, {name}: {key} has two lines"
        found[key] = set(rest.split())
    return found


def test_crates_import_what_the_map_says() -> None:
    allowed, found = block("layers"), layers.crates(ROOT)
    assert allowed.keys() == found.keys(), "ARCHITECTURE.md, layers: one line for each crate"
    below: set[str] = set()
    for crate, imports in allowed.items():
        up = imports - below
        assert not up, f"ARCHITECTURE.md, layers: {crate} has {up}, which stand below it"
        below.add(crate)
    for crate in found:
        new, gone = found[crate] - allowed[crate], allowed[crate] - found[crate]
        assert not new, (
            f"crates/{crate}/Cargo.toml: {crate} imports {new}. If that is meant, it is a word in "
            "the layers of ARCHITECTURE.md"
        )
        assert not gone, f"ARCHITECTURE.md, layers: {crate} imports {gone} no more"


def graph(part: str) -> layers.Graph:
    if part == "pagewalk":
        return layers.package(ROOT / "python/pagewalk")
    return layers.rust(ROOT / "crates" / part / "src")


@pytest.mark.parametrize("part", [*layers.crates(ROOT), "pagewalk"])
def test_modules_import_each_other_in_the_knots_of_the_map_alone(part: str) -> None:
    knots = block("knots")
    known = {frozenset(names) for key, names in knots.items() if key.split()[0] == part}
    edges = graph(part)
    found = layers.knots(edges)
    for knot in found:
        inside = sorted(f"{one} imports {other}" for one in knot for other in edges[one] & knot)
        assert any(knot <= other for other in known), (
            f"{part}: modules import each other in a circle: {inside}. Move what both need down"
        )
    gone = [sorted(knot) for knot in known - found]
    assert not gone, f"ARCHITECTURE.md, knots: {part} has less of this now: {gone}"


@pytest.mark.parametrize(
    ("code", "imports"),
    [
        ("use crate::b;", {"b"}),
        ("use crate::{b::{self, X}, c::Y as Z};", {"b", "c"}),
        ("use super::{b::X};", {"b"}),
        ("fn f(x: crate::c::X) {}", {"c"}),
        ("// use crate::b;\nconst A: &str = \"crate::b\";", set()),
        ("use crate::{\n    a::Own,\n    b,\n};", {"b"}),
        ("#[cfg(test)]\nmod tests { use crate::b; }", set()),
        ("use other_crate::b;", set()),
        ("#[cfg(test)]\nmod tests;\nuse crate::b;", {"b"}),
    ],
)  # fmt: skip
def test_each_way_to_write_an_import_is_seen(tmp_path: Path, code: str, imports: set[str]) -> None:
    (tmp_path / "lib.rs").write_text("mod a; mod b; mod c;", encoding="utf-8")
    (tmp_path / "a.rs").write_text(code, encoding="utf-8")
    for name in ("b.rs", "c.rs"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert layers.rust(tmp_path)["a"] == imports


def test_a_file_for_tests_may_import_anything(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a; mod b; #[cfg(test)] mod c;", encoding="utf-8")
    (tmp_path / "a.rs").write_text("#[cfg(test)]\nmod tests;", encoding="utf-8")
    (tmp_path / "a").mkdir()
    for name in ("a/tests.rs", "b.rs", "c.rs"):
        (tmp_path / name).write_text("use crate::{a, b};", encoding="utf-8")
    assert layers.rust(tmp_path) == {"a": set(), "b": {"a"}}


def test_a_circle_is_found_and_named() -> None:
    assert layers.knots({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {
        frozenset("abc"),
    }
    assert layers.knots({"a": {"b"}, "b": set()}) == set()


def test_no_test_of_ours_is_left_out() -> None:
    """No library is compiled for tests that it has not: what it has must be run."""
    for manifest in (ROOT / "crates").glob("*/Cargo.toml"):
        of = tomllib.loads(manifest.read_text(encoding="utf-8")).get("lib", {})
        for source in (manifest.parent / "src").rglob("*.rs"):
            text = source.read_text(encoding="utf-8")
            is_tested = of.get("test", True) or "#[test]" not in text
            assert is_tested, f"{source} has tests, which `test = false` in {manifest} leaves out"
            fences = re.findall(r"^\s*//[/!] *```(.*)$", text, re.MULTILINE)[::2]
            code = {fence.strip() for fence in fences} & {"", "rust", "no_run", "should_panic"}
            is_run = of.get("doctest", True) or not code
            assert is_run, (
                f"{source} has examples, which `doctest = false` in {manifest} leaves out"
            )
