"""What a release is made by: the comparison of interfaces, the changelog, the order of versions.

The wheel's audit is tried on the wheel of `test_wheel.py`.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import api  # noqa: E402
import artefacts  # noqa: E402
import release  # noqa: E402

PAGE = """
<pre class="rust item-decl"><code>{item}</code></pre>
<span id="structfield.size" class="structfield section-header"><code>size: <a>u64</a></code></span>
<h2 id="implementations">
<section id="impl-T" class="impl"><h3 class="code-header">impl&lt;M: Memory&gt; T&lt;M&gt;</h3>
<section id="method.new" class="method">
<h4 class="code-header">pub fn <a>new</a>() -&gt; T</h4>
<h2 id="trait-implementations">
<section id="impl-Clone" class="impl"><h3 class="code-header">impl Clone for T</h3>
<section id="method.clone" class="method trait-impl">
<h4 class="code-header">fn clone(&amp;self)</h4>
<h2 id="blanket-implementations">
<section id="impl-Any" class="impl"><h3 class="code-header">impl&lt;T&gt; Any for T</h3>
"""
METHODS = ["x::T: impl Clone for T", "x::T: impl<M: Memory> T<M>: pub fn new() -> T"]


@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        ("pub struct T { pub size: u64, }", ["x::T: pub struct T { pub size: u64, }"]),
        (
            "pub struct T { pub size: u64, /* private fields */ }",
            ["x::T: pub size: u64", "x::T: pub struct T"],
        ),
        (
            "pub trait T { // Required methods\n fn a();\n // Provided methods\n fn b() }",
            ["x::T: pub trait T { // Required methods fn a();"],
        ),
    ],
)
def test_lines_tell_what_can_be_added_to(item: str, wanted: list[str]) -> None:
    assert sorted(api.lines(PAGE.format(item=item), "x::T")) == sorted([*wanted, *METHODS])


@pytest.mark.parametrize(
    ("now", "version", "lowest"),
    [
        (["a", "b"], "0.1.2", None),
        (["a", "b", "c"], "0.1.2", "0.1.3"),
        (["a", "b", "c"], "0.1.3", None),
        (["a", "c"], "0.1.3", "0.2.0"),
        (["a"], "0.10.0", None),
    ],
)
def test_a_version_is_raised_for_what_has_changed(
    now: list[str], version: str, lowest: str | None
) -> None:
    said = api.judge(["pagewalk-x 0.1.2", "a", "b"], now, version)
    assert (said is None) == (lowest is None)
    assert lowest is None or (f"Cargo.toml to {lowest}," in said and "\n" not in said)


def test_a_stable_version_is_raised_by_the_rules_of_stable_ones() -> None:
    assert api.needed("1.2.3", False) == "1.3.0"
    assert api.needed("1.2.3", True) == "2.0.0"


def test_every_published_crate_has_a_listing() -> None:
    listings = list(api.LISTINGS.glob("*.txt"))
    assert {path.stem.removeprefix("pagewalk-") for path in listings} == set(artefacts.CRATES)
    for path in listings:
        assert path.read_text(encoding="utf-8").startswith(f"{path.stem} ")


def test_the_changelog_gets_its_section_once() -> None:
    text = "# Changelog\n\n## Unreleased\n\n* New.\n\n## 0.1.0 (2026-01-01)\n\n* Old.\n"
    once = release.changelog(text, "0.2.0", "2026-02-02")
    assert "## Unreleased\n\n## 0.2.0 (2026-02-02)\n\n* New.\n\n## 0.1.0" in once
    assert release.changelog(once, "0.2.0", "2026-03-03") == once
    with pytest.raises(SystemExit, match="write there what users will notice"):
        release.changelog(once, "0.3.0", "2026-03-03")
