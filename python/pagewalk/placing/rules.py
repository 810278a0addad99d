"""Place files for programs on Linux: the part of the grammar that Linux supports.

docs/reference/place-file.md has the grammar. Simulated memory managers support all of it. A program
on Linux can have only the page sizes of this kernel, and its faults never wait for a large page.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pagewalk import _native
from pagewalk._native import Error
from pagewalk.placing import mappings
from pagewalk.placing.mappings import Mapping
from pagewalk.placing.pages import BASE, LARGE
from pagewalk.placing.system import System

_DATA = (mappings.ANONYMOUS, mappings.BSS, mappings.HEAP)
_MMAP = (mappings.ANONYMOUS, mappings.SHARED)
_FILES = (mappings.PRIVATE_FILE, mappings.SHARED_FILE)
_FAIL = re.compile(r"(=\s*\S+)\s+fail(?=\s*$)")


class Rule(NamedTuple):
    """A rule of a place file."""

    line: int
    what: str
    """The first word: `data`, `lib`, `range`, ..."""
    name: str
    """The name of the library. Empty for other rules."""
    range: tuple[int, int]
    """The first byte and the end of the range. Zeros for other rules."""
    size: int
    """The page size in bytes."""
    must: bool = False
    """Whether the command fails if a page is smaller than requested (the word `fail` after the
    size).
    """

    @property
    def title(self) -> str:
        """The rule as it is written."""
        what = self.what
        if self.name:
            what += f" {self.name}"
        if self.what == "range":
            what += f" {self.range[0]:#x}..{self.range[1]:#x}"
        return f"{what} = {shown(self.size)}{' fail' if self.must else ''}"

    def part(self, one: Mapping) -> tuple[int, int] | None:
        """The addresses of the part of a mapping to which the rule applies."""
        if self.what == "range":
            start, end = max(one.start, self.range[0]), min(one.end, self.range[1])
            return (start, end) if start < end else None
        return (one.start, one.end) if self._is_for(one) else None

    def _is_for(self, one: Mapping) -> bool:
        match self.what:
            case "data":
                writable = one.kind in _FILES and "w" in one.rights
                return writable or one.kind in (*_DATA, mappings.SHARED)
            case "mmap":
                return one.kind in _MMAP
            case "heap" | "stack" | "bss":
                return one.kind == self.what
            case "text":
                return one.kind in _FILES and "w" not in one.rights
            case _:
                return self.what == "lib" and one.kind in _FILES and one.file == self.name


def shown(size: int) -> str:
    """A page size as rules write it: `2M`."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def read(
    written: str, system: System, *, where: str = "", pools: bool = False, small: bool = False
) -> list[Rule]:
    """The rules of a text, the most specific first.

    Args:
        written: The rules.
        system: The kernel. Rules can request only its page sizes.
        where: The name of the rules' file, for errors; if it is empty, errors show the rules.
        pools: Whether pages of pools are available, which needs root.
        small: Whether sizes below 2M are available, which needs root.

    Raises:
        Error: A rule is malformed, or requests something that this kernel does not support.
    """
    where = where or "; ".join(written.splitlines())
    plain, others = _without_fail(written)
    try:
        parsed = _native.place_rules(plain)
        may_fall_back = _native.place_rules(others)
    except Error as error:
        raise Error(f"{where}: {error}") from error
    known = system.sizes()
    reachable = {BASE, LARGE} if LARGE in known else {BASE}
    reachable |= set(system.pools()) if pools else set()
    reachable |= set(known) if small else set()
    rules = []
    for line, what, name, source, range_, size, waits, nodes in parsed:
        must = (line, what, name, source, range_, size, waits, nodes) not in may_fall_back
        rule = Rule(line, what, name, range_, size, must)
        if why := _refused(rule, (source, waits, nodes), reachable, system):
            raise Error(f"{where}: line {line}: {why}")
        # The name of a region shows its kind, except for mappings without a name.
        if what == "region":
            word = name.split(" ")[0]
            rule = rule._replace(what=word if word in ("heap", "stack", "bss") else "lib")
            if rule.what != "lib":
                rule = rule._replace(name="")
        rules.append(rule)
    if not rules:
        raise Error(f"{where or 'the text'} contains no rules: write one, as in heap=2M")
    return rules


def _without_fail(written: str) -> tuple[str, str]:
    """Two texts: all rules without the word `fail`, and only the rules that had no `fail`.

    Both texts keep the line numbers.
    """
    plain, others = [], []
    for line in written.splitlines():
        rules, hash_, comment = line.partition("#")
        parts = rules.split(",")
        kept = [_FAIL.sub(r"\1", part) for part in parts]
        plain.append(",".join(kept) + hash_ + comment)
        others.append(",".join(one for one, part in zip(kept, parts, strict=True) if one == part))
    return "\n".join(plain), "\n".join(others)


def _refused(
    rule: Rule, written: tuple[int, bool, bool], reachable: set[int], system: System
) -> str | None:
    """Why a rule cannot be met on this system. `None` if it can be met.

    `written` is the line of its site, whether it waits, and whether it names nodes of memory.
    """
    source, waits, nodes = written
    if rule.what == "site":
        return (
            f"site {rule.name}:{source} is known only in recordings; write `range A..B`, as "
            "`pagewalk advise -o` does, or `mmap`, or the line that `pagewalk advise` names into "
            "the source"
        )
    if rule.what == "region" and rule.name.startswith(("anonymous", "thread stack", "[")):
        return f"region {rule.name} has no name in a running program: write `range A..B` or mmap"
    if waits:
        return "Linux never waits for a page in a fault: leave `wait` out"
    if nodes:
        return "pagewalk does not place memory on nodes: leave them out, and use numactl"
    known = system.sizes()
    if rule.size in reachable:
        return None
    have = ", ".join(shown(size) for size in sorted(reachable))
    if rule.size in known:
        return (
            f"pages of {shown(rule.size)} are a setting of the whole system, not of a program: "
            f"give --system as root, or write one of {have}"
        )
    if rule.size in system.pools():
        return (
            f"pages of {shown(rule.size)} come from a pool: give --system as root, or write one "
            f"of {have}"
        )
    return f"this kernel has no pages of {shown(rule.size)}: write one of {have}"


def matched(
    rules: Sequence[Rule], all_: Sequence[Mapping]
) -> dict[int, list[tuple[int, int, Rule]]]:
    """For each mapping, by its start: the addresses of the parts to which rules apply.

    If there is no mapping at the addresses of a range, the range is from a recording with another
    layout. It then stands for all mappings with its length.
    """
    found: dict[int, list[tuple[int, int, Rule]]] = {}
    by_address = {
        rule for rule in rules if rule.what == "range" and any(rule.part(one) for one in all_)
    }
    for one in all_:
        parts: list[tuple[int, int, Rule]] = []
        # The most general rules come first, so that later rules replace them.
        for rule in reversed(rules):
            part = rule.part(one)
            length = rule.range[1] - rule.range[0]
            if rule.what == "range" and rule not in by_address and length == one.bytes:
                part = one.start, one.end
            if part is not None:
                parts = [*_without(parts, part), (*part, rule)]
        if parts:
            found[one.start] = sorted(parts)
    return found


def _without(
    parts: list[tuple[int, int, Rule]], hole: tuple[int, int]
) -> list[tuple[int, int, Rule]]:
    """The parts without the addresses in a hole."""
    left = []
    for start, end, rule in parts:
        if start < hole[0]:
            left.append((start, min(end, hole[0]), rule))
        if end > hole[1]:
            left.append((max(start, hole[1]), end, rule))
    return [one for one in left if one[0] < one[1]]
