"""Writes the reference of the keys of machine files and of the events of traces, from their types.

```
 crates/description/src: Description, and what its fields have --> docs/reference/keys/*.md
 crates/trace/src: Event, Call                                 --> docs/reference/events.md, from
                                                                   "## All events" on
```

A key of a machine file is a field, and its comment is what the key means. `make reference` writes
these pages with those of the results.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import rust

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
DESCRIPTION = sorted((ROOT / "crates" / "description" / "src").glob("*.rs"))
TRACE = [
    ROOT / "crates" / "trace" / "src" / f"{name}.rs" for name in ("event", "call", "translation")
]
EVENTS = "## All events\n"

PAGES = {
    "tlb": ("Keys of TLBs and of the core", "core tlb trace_cache spec_tlb range_tlb restseg"),
    "walk": ("Keys of page tables, walks and caches", "page_table walker mmu_cache cache nested"),
    "memory": ("Keys of memory", "memory swap"),
    "os": ("Keys of the operating system", "os"),
    "costs": ("Keys of flushes and of the kernel's costs", "os.flush os.costs"),
    "linux": ("Keys of the manager linux", "os.linux"),
    "managers": (
        "Keys of other memory managers",
        "os.ingens os.hawkeye os.ca os.ranger os.mosaic os.utopia os.reservations",
    ),
    "file": ("Keys of the file as a whole", "title source calibrated"),
}
"""Pages: title, and the tables that each has, with those below them unless they are elsewhere."""

TYPES = {
    "String": "text",
    "bool": "`true` or `false`",
    "f64": "number",
    "[f64; 2]": "two numbers",
    "NonZero<u32>": "number, 1 or more",
    "Version": 'text, such as `"6.18"`',
    "Bytes": 'size, such as `"48K"`',
    "PageSize": 'page size, such as `"2M"`',
    "Ways": 'number or `"full"`',
    "toml::Value": "any",
    "Hole": 'text, such as `"640K..1M"`',
    "Inject": "text, such as `skip-shootdown:3` for the third shootdown, or `fail-allocation:3`",
}

SOURCE = "Where the numbers of this table come from."
PRICES = "WorkCosts"
"""The structure whose fields the macro `work_costs!` makes: a price for each kind of work."""


@dataclass
class Key:
    """A key: its name, its type in Rust and what it means."""

    name: str
    kind: str
    meaning: str


@dataclass
class Table:
    """A table of a machine file: every path at which it can stand, and its keys."""

    name: str
    meaning: str
    keys: list[Key]
    paths: list[str] = field(default_factory=list)


def made() -> dict[Path, str]:
    """The pages and what should be in them."""
    tables = _tables()
    known = {key.name for key in tables[0].keys}
    named = {name for _, names in PAGES.values() for name in names.split() if "." not in name}
    assert named == known, f"PAGES differs by {named ^ known}"
    pages = {FOLDER / "keys" / f"{name}.md": _page(name, tables) for name in PAGES}
    pages[FOLDER / "events.md"] = _events()
    return pages


def _tables() -> list[Table]:
    """All tables, the file itself first, each once."""
    structures = rust.items(rust.STRUCT, DESCRIPTION)
    found: dict[str, Table] = {}

    def visit(name: str, path: str) -> None:
        item = structures[name]
        if name not in found:
            found[name] = Table(name, item.meaning, list(_keys(item.body)))
            if name == PRICES:
                found[name] = _prices()
        found[name].paths.append(path)
        for key in found[name].keys:
            below = f"{path}.{key.name}".lstrip(".")
            for inner in re.findall(r"\w+", key.kind):
                if inner in structures and inner not in TYPES:
                    visit(inner, f"[{below}]" if key.kind.startswith("Vec") else below)

    visit("Description", "")
    return list(found.values())


def _prices() -> Table:
    """The table of `PRICES`, read from the macro and from its list of kinds."""
    text = "\n".join(path.read_text() for path in DESCRIPTION)
    indent = r"[ \t]*"
    made = re.search(rf"{rust.COMMENT}{rust.ATTRIBUTES}{indent}pub struct {PRICES} ", text)
    listed = re.search(r"^work_costs! \{\n(.*?\n)\}", text, re.MULTILINE | re.DOTALL)
    assert made is not None and listed is not None
    kinds = re.findall(rf"{rust.COMMENT}{indent}(\w+)\n", listed[1])
    keys = [Key(name, "u32", rust.said(comment)) for comment, name in kinds]
    return Table(PRICES, rust.said(made[1]), [*keys, Key("source", "String", SOURCE)])


def _keys(body: str) -> Iterator[Key]:
    meaning = ""
    for comment, attributes, name, kind in rust.FIELD.findall(body + "\n"):
        renamed = rust.RENAME.search(attributes)
        # One without a comment means what the one above it does.
        meaning = rust.said(comment) or meaning
        yield Key(renamed[1] if renamed else name.removeprefix("r#"), kind, meaning)


def _page(page: str, tables: list[Table]) -> str:
    title, names = PAGES[page]
    lines = [f"# {title}", "", "This page lists every key of the tables below. [Keys of a machine "
             "file](../keys.md) says what most keys are for, and which keys are needed.",
             "", "This page is made from the types in Rust by `make reference`."]  # fmt: skip
    first, *others = tables
    top = [key for key in first.keys if key.name in names.split() and not _inner(key, others)]
    if top:
        lines += ["", "## Before all tables", "", *_rows(top, page, others)]
    for table in others:
        if _page_of(table) == page:
            lines += ["", f"## `[{table.paths[0]}]`", "", table.meaning + _also(table), ""]
            lines += _rows(table.keys, page, others)
    return "\n".join(lines) + "\n"


def _page_of(table: Table) -> str:
    """The page with the longest path that leads to the table."""
    path = table.paths[0].strip("[]")
    places = [(name, page) for page, (_, names) in PAGES.items() for name in names.split()]
    return max(place for place in places if f"{path}.".startswith(f"{place[0]}."))[1]


def _also(table: Table) -> str:
    """Other places at which the same keys can stand."""
    others = ", ".join(f"`[{path}]`" for path in table.paths[1:])
    return f" The keys of this table can also be in {others}." if others else ""


def _anchor(table: Table) -> str:
    return re.sub(r"[^\w-]", "", table.paths[0]).lower()


def _inner(key: Key, tables: list[Table]) -> Table | None:
    names = re.findall(r"\w+", key.kind)
    return next((table for table in tables if table.name in names), None)


def _rows(keys: list[Key], page: str, tables: list[Table]) -> Iterator[str]:
    yield "| key | value | meaning |"
    yield "|---|---|---|"
    for key in keys:
        meaning = key.meaning.replace("|", "\\|")
        yield f"| `{key.name}` | {_value(key, page, tables)} | {meaning} |"


def _value(key: Key, page: str, tables: list[Table]) -> str:
    """The form of the key's value."""
    kind = key.kind.replace("super::", "")
    for wrapper in ("Option", "Box"):
        kind = re.sub(rf"^{wrapper}<(.*)>$", r"\1", kind)
    listed = re.fullmatch(r"Vec<(.*)>", kind)
    if listed:
        return f"list of: {_value(Key(key.name, listed[1], ''), page, tables)}"
    by_name = re.fullmatch(r"BTreeMap<\w+, (.*)>", kind)
    if by_name:
        return f"for each name: {_value(Key(key.name, by_name[1], ''), page, tables)}"
    table = _inner(Key(key.name, kind, ""), tables)
    if table is not None:
        other = _page_of(table)
        return f"[table]({'' if other == page else f'{other}.md'}#{_anchor(table)})"
    if kind in TYPES:
        return TYPES[kind]
    if re.fullmatch(r"[uif]\d+|usize", kind):
        return "number"
    return _choices(kind) or kind


def _choices(kind: str) -> str | None:
    """The values of an enumeration, each as it is written, with its meaning."""
    item = rust.items(rust.ENUM, DESCRIPTION).get(kind)
    if item is None:
        return None
    said = []
    for comment, attributes, name, inside, _ in rust.VARIANT.findall(item.body + "\n"):
        renamed = rust.RENAME.search(attributes)
        written = renamed[1] if renamed else rust.kebab(name)
        if "lowercase" in item.attributes and not renamed:
            written = name.lower()
        if "snake_case" in item.attributes and not renamed:
            written = written.replace("-", "_")
        meaning = rust.said(comment).rstrip(".")
        said.append(f"`{written}{' N' if inside else ''}`: {meaning[:1].lower()}{meaning[1:]}")
    return "; ".join(said)


def _events() -> str:
    """The page of events: what is there up to the heading, then every event."""
    path = FOLDER / "events.md"
    lines = [path.read_text().partition(EVENTS)[0] + EVENTS]
    event = rust.items(rust.ENUM, TRACE)["Event"]
    lines += [event.meaning, "", "| event | fields | meaning |", "|---|---|---|"]
    for comment, _, name, _, fields in rust.VARIANT.findall(event.body + "\n"):
        named = re.findall(r"(?<![\w:])(\w+): ", re.sub(r"#\[[^\n]*\]", "", fields))
        listed = ", ".join(f"`{one}`" for one in named)
        # Comments name other events as in Rust; the page names them as its table does.
        meaning = re.sub(
            r"`([A-Z][a-z]+)`", lambda found: f"`{rust.kebab(found[1])}`", rust.said(comment)
        )
        lines.append(f"| `{rust.kebab(name)}` | {listed} | {meaning} |")
    call = rust.items(rust.STRUCT, TRACE)["Call"]
    lines += ["", "## Fields of a call", "", call.meaning, "", "| field | meaning |", "|---|---|"]
    lines += [f"| `{key.name}` | {key.meaning} |" for key in _keys(call.body)]
    found = rust.items(rust.STRUCT, TRACE)["Translation"]
    lines += ["", "## Fields of a translation", "", found.meaning, ""]
    lines += ["| field | meaning |", "|---|---|"]
    lines += [f"| `{key.name}` | {key.meaning} |" for key in _keys(found.body)]
    return "\n".join(lines) + "\n"
