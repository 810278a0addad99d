"""Reads what the reference is made from out of Rust sources: types, their comments, fields.

Sources are formatted by rustfmt, so that an item ends with a brace in the first column.
"""

import re
from dataclasses import dataclass
from pathlib import Path

COMMENT = r"((?:[ \t]*///[^\n]*\n)*)"
ATTRIBUTES = r"((?:[ \t]*#\[(?:[^\n]*|[^\]]*)\]\n)*)"
STRUCT = re.compile(COMMENT + ATTRIBUTES + r"pub struct (\w+)(?:<T>)? \{\n(.*?)\n\}", re.S)
ENUM = re.compile(COMMENT + ATTRIBUTES + r"pub enum (\w+) \{\n(.*?)\n\}", re.S)
FIELD = re.compile(COMMENT + ATTRIBUTES + r"[ \t]*pub (\w+): ([^\n]+),\n")
VARIANT = re.compile(
    COMMENT + ATTRIBUTES + r" {4}(\w+)(?:\(([^\n]*)\)|( \{ [^\n]* \}| \{\n.*?\n {4}\}))?,\n", re.S
)
RENAME = re.compile(r'rename = "([^"]+)"')
RENAME_ALL = re.compile(r'rename_all = "([^"]+)"')


@dataclass
class Item:
    """A structure or an enumeration: what its comment says, its attributes and its text."""

    name: str
    meaning: str
    attributes: str
    body: str


def items(kind: re.Pattern[str], paths: list[Path]) -> dict[str, Item]:
    """All structures (`STRUCT`) or enumerations (`ENUM`) of these files."""
    text = "\n".join(path.read_text() for path in paths)
    return {
        name: Item(name, said(comment), attributes, body)
        for comment, attributes, name, body in kind.findall(text)
    }


def said(comment: str) -> str:
    """A comment's text, in one line and without links of rustdoc."""
    lines = [line.strip().removeprefix("///").strip() for line in comment.splitlines()]
    text = " ".join(line for line in lines if line)
    return re.sub(r"\[`(?:\w+::)*(\w+)`\]", r"`\1`", text)


def kebab(name: str) -> str:
    """A variant's name as it is written: `ContextSwitch` as `context-switch`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
