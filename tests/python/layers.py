"""Which part of the source tree imports which: crates, their modules, modules of the package.

```
 Cargo.toml        [dependencies]  --> crate   --> crates
 crates/*/src      crate:: super:: --> module  --> modules of that crate
 python/pagewalk   import, from    --> module  --> modules of the package
```

A module here is one that lies right below the root of its crate, with all that is below it: a
file or a folder.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import tomllib

Graph = dict[str, set[str]]
"""What each imports."""

NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(\#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^\n]{1,9}?|[^\\'\n])'""",
    re.DOTALL,
)
PATH = re.compile(r"(?<![\w:])(?:crate|super)\s*::")
NAME = re.compile(r"\s*(\w+|\*)")
JOIN, OPEN, CLOSE, NEXT = (re.compile(r"\s*" + text) for text in (r"::", r"\{", r",?\s*\}", r","))
RENAME = re.compile(r"\s+as\s+\w+")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")


def crates(root: Path) -> Graph:
    """The crates of the workspace, by the names of their folders."""
    manifests = {
        path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))
        for path in root.glob("crates/*/Cargo.toml")
    }
    folders = {manifest["package"]["name"]: name for name, manifest in manifests.items()}
    folders |= {name.removeprefix("pagewalk-"): folder for name, folder in folders.items()}
    return {
        name: {folders[one] for one in manifest.get("dependencies", {}) if one in folders}
        for name, manifest in manifests.items()
    }


def rust(source: Path) -> Graph:
    """The modules of a crate, whose folder is `source`, without those compiled for tests."""
    files = {_module(source, path): path for path in source.rglob("*.rs")}
    codes = {module: NO_CODE.sub(" ", path.read_text("utf-8")) for module, path in files.items()}
    tests = {(*module, name) for module, code in codes.items() for name in TESTS.findall(code)}
    codes = {
        module: TESTS.sub(" ", code).split("#[cfg(test)]")[0]
        for module, code in codes.items()
        if not any(module[: len(test)] == test for test in tests)
    }
    graph: Graph = {module[0]: set() for module in codes if module}
    for module, code in codes.items():
        for found in PATH.finditer(code):
            paths, _ = _paths(code, found.start(), ())
            for names in paths:
                target = _absolute(module, names)
                if module and target and target[0] in graph and target[0] != module[0]:
                    graph[module[0]].add(target[0])
    return graph


def _module(source: Path, path: Path) -> tuple[str, ...]:
    parts = path.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def _absolute(module: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    if names[0] == "crate":
        return names[1:]
    while names and names[0] == "super":
        module, names = module[:-1], names[1:]
    return module + names


def _paths(code: str, at: int, before: tuple[str, ...]) -> tuple[list[tuple[str, ...]], int]:
    """The paths of a `use` that begin at `at`, each behind `before`; and where they end."""
    while name := NAME.match(code, at):
        before, at = (*before, name[1]), name.end()
        if not (join := JOIN.match(code, at)):
            break
        at = join.end()
        if group := OPEN.match(code, at):
            found, at = [], group.end()
            while not (end := CLOSE.match(code, at)):
                if comma := NEXT.match(code, at):
                    at = comma.end()
                    continue
                more, after = _paths(code, at, before)
                if after == at:
                    break
                found += more
                at = renamed.end() if (renamed := RENAME.match(code, after)) else after
            return found, end.end() if end else at
    return [before], at


def package(root: Path) -> Graph:
    """The modules of the Python package whose folder is `root`."""
    files = {_dotted(root, path): path for path in root.rglob("*.py")}
    graph: Graph = {name[1]: set() for name in files if len(name) > 1}
    for name, path in files.items():
        inside = name if path.name == "__init__.py" else name[:-1]
        for target in _imports(ast.parse(path.read_text(encoding="utf-8")), inside):
            if len(name) > 1 < len(target) and target[0] == root.name and target[1] in graph:
                graph[name[1]] |= {target[1]} - {name[1]}
    return graph


def _dotted(root: Path, path: Path) -> tuple[str, ...]:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _imports(tree: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(name.name.split(".")) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else ()
            module = tuple(node.module.split(".")) if node.module else ()
            yield from ((*above, *module, name.name) for name in node.names)


def knots(graph: Graph) -> set[frozenset[str]]:
    """The largest sets in which each imports each other, if only by way of others."""
    reach = {one: _reached(graph, one) for one in graph}
    circles = {frozenset(other for other in reach[one] if one in reach[other]) for one in graph}
    return {circle for circle in circles if len(circle) > 1}


def _reached(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    ahead: Iterable[str] = [start]
    while ahead := {below for one in ahead for below in graph[one]} - seen:
        seen |= ahead
    return seen
