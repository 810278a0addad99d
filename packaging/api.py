"""Compares the public interface of the crates with that of their last release, by SemVer.

```
 cargo doc --> a page per item --> a line per declaration, method and implementation
                                         |
 api/pagewalk-NAME.txt, of the last release: version, lines
                                         |
         a line is gone    breaking:    0.1.2 -> 0.2.0     1.2.3 -> 2.0.0
         a line is new     compatible:  0.1.2 -> 0.1.3     1.2.3 -> 1.3.0
```

An item that cannot be extended without breaking its users is one line: an enumeration with its
variants, a structure all of whose fields are public, a trait with the methods that it requires. Not
compared are auto traits, such as `Send`, the layout of types, and what functions do.
"""

import argparse
import html
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import artefacts

LISTINGS = artefacts.ROOT / "packaging" / "api"
PARTS = re.compile(
    r'<h2 id="(?P<section>[^"]+)"'
    r'|<pre class="rust item-decl"><code>(?P<item>.*?)</code></pre>'
    r'|<span id="structfield\.[^"]*".*?<code>(?P<field>.*?)</code>'
    r'|<section id="[^"]*" class="(?P<kind>[^"]*)">.*?'
    r'<h[34] class="code-header">(?P<head>.*?)</h[34]>'
    r"|<code>(?P<use>pub use .*?)</code>",
    re.DOTALL,
)
"""The parts of a rustdoc page that are read."""
SECTIONS_OF_OTHERS = (
    "required-methods",
    "implementors",
    "synthetic-implementations",
    "blanket-implementations",
)
"""Sections whose contents are in another line, on another page, or not an item's own."""


def text(marked: str) -> str:
    """The text of a piece of a page, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", marked)).split())


def lines(page: str, path: str) -> Iterator[str]:
    """The lines of an item, from its page."""
    section, owner, is_open = "", "", False
    for part in PARTS.finditer(page):
        if part["section"]:
            section = part["section"]
        elif part["item"]:
            item = text(part["item"].partition("// Provided")[0])
            is_open = "/* private fields */" in item
            if is_open:
                item = item.partition("{")[0].strip()
            yield f"{path}: {f'macro {path}' if item.startswith('macro_rules!') else item}"
        elif part["field"]:
            if is_open:
                yield f"{path}: pub {text(part['field'])}"
        elif part["use"]:
            yield f"{path}: {text(part['use'])}"
        elif section not in SECTIONS_OF_OTHERS:
            if part["kind"] == "impl":
                owner = text(part["head"])
                if section != "implementations":
                    yield f"{path}: {owner}"
            elif part["kind"] == "method":
                of = f"{owner}: " if section == "implementations" else ""
                yield f"{path}: {of}{text(part['head'])}"


def listing(crate: str, pages: Path) -> list[str]:
    """The lines of a crate, in order."""
    found: set[str] = set()
    for page in sorted((pages / crate).rglob("*.html")):
        name = page.stem.rpartition(".")[2]
        path = "::".join(
            [*page.parent.relative_to(pages).parts, *([] if name == "index" else [name])]
        )
        found.update(lines(page.read_text(encoding="utf-8"), path))
    return sorted(found)


def needed(released: str, is_breaking: bool) -> str:
    """The lowest version that may follow a released one."""
    major, minor, patch = map(int, released.split("."))
    if major == 0:
        return f"0.{minor + 1}.0" if is_breaking else f"0.{minor}.{patch + 1}"
    return f"{major + 1}.0.0" if is_breaking else f"{major}.{minor + 1}.0"


def judge(released: list[str], now: list[str], version: str) -> str | None:
    """Why a crate may not have this version with these lines, in one line; `None` if it may."""
    package, _, before = released[0].partition(" ")
    gone = sorted(set(released[1:]) - set(now))
    new = sorted(set(now) - set(released[1:]))
    if not gone and not new:
        return None
    lowest = needed(before, bool(gone))
    if [int(part) for part in version.split(".")] >= [int(part) for part in lowest.split(".")]:
        return None
    what, first = ("gone or changed", gone[0]) if gone else ("new", new[0])
    return (
        f"{package}: {len(gone or new)} lines of the interface are {what} since {before}, such as "
        f"`{first}`: set the version in Cargo.toml to {lowest}, or, while {before} is not "
        "published, run `make api WRITE=1`"
    )


def document() -> Path:
    """Builds the crates' pages; a warning is an error."""
    packages = [word for name in artefacts.CRATES for word in ("--package", f"pagewalk-{name}")]
    flags = {**os.environ, "RUSTDOCFLAGS": "-D warnings"}
    artefacts.run("cargo", "doc", "--quiet", "--no-deps", *packages, env=flags)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
    return artefacts.ROOT / target / "doc"


def main(is_written: bool) -> None:
    """Compares all crates with their listings, or writes these."""
    pages, version = document(), artefacts.version()
    wrong = []
    for name in artefacts.CRATES:
        file = LISTINGS / f"pagewalk-{name}.txt"
        now = listing(name, pages)
        if is_written:
            LISTINGS.mkdir(exist_ok=True)
            file.write_text("\n".join([f"pagewalk-{name} {version}", *now, ""]), encoding="utf-8")
            continue
        said = judge(file.read_text(encoding="utf-8").splitlines(), now, version)
        wrong += [said] if said else []
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the listings of this version")
    main(parser.parse_args().write)
