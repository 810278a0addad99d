"""Moves memory of a running process into large pages, block by block, with MADV_COLLAPSE.

The kernel moves the pages of a 2M block into one page. It copies the pages that are in memory and
fills the rest with zeros, so only blocks with a page in memory count. This works with all settings
of the knobs, but not if the process has set MADV_NOHUGEPAGE.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

from pagewalk import _native
from pagewalk._native import Error, WorkError
from pagewalk.placing import mappings, pages, rules
from pagewalk.placing.pages import LARGE, Range
from pagewalk.placing.rules import Rule

MEANS = {
    errno.EINVAL: "this kind of memory can have no large pages (a private file, a thread's stack, "
    "MADV_NOHUGEPAGE)",
    errno.ENOMEM: "no block of 2M is free, or a memory group has no room for one",
    errno.EBUSY: "a memory group has no room for a block of 2M",
    errno.EAGAIN: "pages of the block are in use by the kernel at the moment: try again",
}
"""The meanings of the errors of MADV_COLLAPSE."""


def collapse(pid: int, rules_: Sequence[Rule]) -> dict[str, Any]:
    """Collapses those blocks of a process to which rules apply. Returns the outcome of each rule.

    Raises:
        Error: The process does not exist, or a rule requests another size than 2M.
        WorkError: Neither advice for the process nor tracing is permitted.
    """
    found = []
    for rule, mapped, blocks in _blocks(pid, rules_):
        results = _collapsed(pid, blocks)
        failed = [number for number in results if number]
        found.append(
            {
                "rule": rule.title,
                "mappings": mapped,
                "blocks": len(blocks),
                "failed": len(failed),
                "error": MEANS.get(failed[0], os.strerror(failed[0])) if failed else None,
            }
        )
    return {"pid": pid, "rules": found}


def dry(pid: int, rules_: Sequence[Rule]) -> str:
    """The calls that `collapse` would make."""
    lines = [f"# process {pid}: nothing was changed"]
    for rule, _, blocks in _blocks(pid, rules_):
        joined = list(_joined(blocks))
        lines += [
            f"process_madvise({pid}, {{{start:#x}, {end - start}}}, MADV_COLLAPSE)  # {rule.title}"
            for start, end in joined
        ] or [f"# {rule.title}: no block of it has base pages"]
    return "\n".join(lines)


def _joined(blocks: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    at: tuple[int, int] | None = None
    for start, end in blocks:
        if at is not None and at[1] == start:
            at = at[0], end
            continue
        if at is not None:
            yield at
        at = start, end
    if at is not None:
        yield at


def _blocks(pid: int, rules_: Sequence[Rule]) -> list[tuple[Rule, int, list[tuple[int, int]]]]:
    """For each rule: the number of its mappings, and the blocks in them that have base pages."""
    other = next((rule for rule in rules_ if rule.size != LARGE), None)
    if other is not None:
        raise Error(
            f"{other.title}: a running process can be given only pages of 2M (MADV_COLLAPSE)"
        )
    all_ = mappings.of_a_program(pid)
    matched = rules.matched(rules_, all_)
    blocks: dict[Rule, list[tuple[int, int]]] = {rule: [] for rule in rules_}
    mapped = dict.fromkeys(rules_, 0)
    for one in all_:
        for start, end, rule in matched.get(one.start, ()):
            mapped[rule] += 1
            first, last = -(-start // LARGE) * LARGE, end // LARGE * LARGE
            if first >= last or one.resident == 0:
                continue
            try:
                ranges = pages.present(pid, first, last)
            except pages.UnsupportedError:
                ranges = pages.words(pid, first, last)
            except OSError as error:
                raise Error(f"process {pid} cannot be examined: {error.strerror}") from error
            blocks[rule] += _small(ranges)
    return [(rule, mapped[rule], blocks[rule]) for rule in rules_]


def _small(ranges: Sequence[Range]) -> list[tuple[int, int]]:
    """Blocks that contain base pages."""
    found = dict.fromkeys(
        at
        for start, end, huge in ranges
        if not huge
        for at in range(start // LARGE, -(-end // LARGE))
    )
    return [(at * LARGE, at * LARGE + LARGE) for at in found]


def _collapsed(pid: int, blocks: list[tuple[int, int]]) -> list[int]:
    try:
        return _native.collapse(pid, blocks) if blocks else []
    except OSError as error:
        if error.errno == errno.EACCES:
            raise WorkError(
                f"process {pid} filters its system calls (seccomp), and its filter may end it when "
                "pagewalk makes it call madvise: run pagewalk as root, or with CAP_SYS_NICE"
            ) from error
        if error.errno == errno.ESRCH:
            raise Error(f"there is no process {pid}: it has ended") from error
        raise WorkError(
            f"process {pid} allows neither advice (CAP_SYS_NICE) nor ptrace: "
            f"{error.strerror}; run pagewalk as root"
        ) from error
