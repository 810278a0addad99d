"""A second model of G98's page sizes, written from the paper alone (sections 6.6 to 6.8).

Pages are a dictionary from their size and number; every rule is applied by looking at all base
pages that it is about. Memory is enough for everything. It makes its own traces: legal accesses
and memory calls of one process; none takes all rights away, as a page without rights is loaded or
is not, as one likes.
"""

import random
from pathlib import Path
from typing import NamedTuple

import drmemtrace

BASE = 4096
SIZES = [BASE << shift for shift in (0, 2, 4, 6, 8, 10, 12)]
NAMES = dict(zip(SIZES, ["4K", "16K", "64K", "256K", "1M", "4M", "16M"], strict=True))
ADVISED = 1 << 20
"""The largest size up to 2M: what madvise asks for."""
MMAP, MPROTECT, MUNMAP, MADVISE = 9, 10, 11, 28
DONTNEED, HUGEPAGE, NOHUGEPAGE, COLLAPSE = 4, 14, 15, 25
READ, WRITE = 1, 2
CODE = 0x40_0000
FIRST = 0x7000_0000_0000


class Step(NamedTuple):
    """An access, or a call with what it says: rights, or advice."""

    number: int | None
    start: int
    length: int = 8
    what: int = 0


class Program:
    """Random steps over one range, of which parts are mapped."""

    pages = 1600

    def __init__(self, seed: int, turns: int) -> None:
        self.chance = random.Random(seed)
        self.steps: list[Step] = []
        self.rights: dict[int, int] = {}
        self.begin = FIRST // BASE
        for _ in range(4):
            self.call(MMAP)
        for _ in range(turns):
            if self.chance.random() < 0.4:
                kinds = [MMAP, MPROTECT, MUNMAP, MADVISE]
                self.call(self.chance.choices(kinds, [12, 30, 18, 40])[0])
            for _ in range(self.chance.randrange(1, 12)):
                self.access()

    def call(self, number: int) -> None:
        chance = self.chance
        count = chance.choice([1, 3, 4, 16, 31, 64, 256, 300, 512, 700])
        first = chance.randrange(self.pages - count)
        if chance.random() < 0.5:
            first &= ~(count - 1) if count & (count - 1) == 0 else ~255
        pages = range(self.begin + first, self.begin + first + count)
        what = READ | WRITE
        if number == MPROTECT:
            what = chance.choice([READ, READ | WRITE, READ | WRITE])
        elif number == MADVISE:
            what = chance.choice([HUGEPAGE, HUGEPAGE, NOHUGEPAGE, COLLAPSE, COLLAPSE, DONTNEED])
        if number in (MPROTECT, MADVISE) and not all(page in self.rights for page in pages):
            return
        self.steps.append(Step(number, pages[0] * BASE, count * BASE, what))
        for page in pages:
            if number == MUNMAP:
                self.rights.pop(page, None)
            elif number != MADVISE:
                self.rights[page] = what

    def access(self) -> None:
        page = self.begin + self.chance.randrange(self.pages)
        rights = self.rights.get(page, 0)
        if rights:
            store = rights & WRITE and self.chance.random() < 0.5
            inside = self.chance.randrange(BASE - 8)
            self.steps.append(Step(None, page * BASE + inside, 8, WRITE if store else READ))

    def write(self, path: Path) -> None:
        """A trace of DynamoRIO."""
        file = bytearray(drmemtrace.start(0, 1)) + drmemtrace.time(1000)
        for step in self.steps:
            if step.number is None:
                access = drmemtrace.store if step.what == WRITE else drmemtrace.load
                file += drmemtrace.instruction(CODE) + access(step.start, step.length)
                continue
            given = [step.start, step.length]
            if step.number == MMAP:
                given += [step.what, 0x32, (1 << 64) - 1, 0]
            elif step.number != MUNMAP:
                given.append(step.what)
            result = step.start if step.number == MMAP else 0
            file += drmemtrace.call(step.number, given, result)
        path.write_bytes(file + drmemtrace.time(1001) + drmemtrace.end(0))


class Attributes(NamedTuple):
    """What must be equal all over a large page; a policy module is an attribute of its range.

    All is memory without a file, so that it makes no difference which call has mapped it.
    """

    rights: int
    wish: int = BASE


class Irix:
    """Pages of every size, and what is known of each base page."""

    def __init__(self, places: list[tuple[int, int, int]]) -> None:
        self.places = places
        self.mapped: dict[int, Attributes] = {}
        # For each page, by its first base page: the number of base pages.
        self.loaded: dict[int, int] = {}
        self.decided: dict[tuple[str, str, str], int] = {}
        self.upgraded: dict[str, int] = {}

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            if step.number is None:
                self.touch(CODE // BASE)
                self.touch(step.start // BASE)
            else:
                self.call(step)

    def call(self, step: Step) -> None:
        first, count = step.start // BASE, step.length // BASE
        pages = range(first, first + count)
        if step.number in (MMAP, MUNMAP) or (step.number, step.what) == (MADVISE, DONTNEED):
            self.cut(pages)
            for page in [page for page in self.loaded if page in pages]:
                del self.loaded[page]
        if step.number == MPROTECT:
            self.change(pages, rights=step.what)
        elif step.number in (MMAP, MUNMAP):
            for page in pages:
                self.mapped.pop(page, None)
                if step.number == MMAP:
                    wishes = [s for start, end, s in self.places if start <= page * BASE < end]
                    self.mapped[page] = Attributes(step.what, *wishes)
        elif step.what in (HUGEPAGE, NOHUGEPAGE):
            self.change(pages, wish=ADVISED if step.what == HUGEPAGE else BASE)
        elif step.what == COLLAPSE:
            self.upgrade(pages)

    def change(self, pages: range, **what: int) -> None:
        """Changes attributes; where they are so already, no page is cut."""
        differs = [self.mapped[page]._replace(**what) != self.mapped[page] for page in pages]
        start = None
        for page, is_other in zip([*pages, pages.stop], [*differs, False], strict=True):
            if is_other and start is None:
                start = page
            elif not is_other and start is not None:
                self.cut(range(start, page))
                for one in range(start, page):
                    self.mapped[one] = self.mapped[one]._replace(**what)
                start = None

    # Looking.

    def page_at(self, page: int) -> range | None:
        """The base pages of the page that is loaded there."""
        for size in SIZES:
            count = size // BASE
            start = page // count * count
            if self.loaded.get(start) == count:
                return range(start, start + count)
        return None

    def pages_in(self, pages: range) -> list[range]:
        """The pages that are loaded in a range or reach into it."""
        found = {held for page in pages if (held := self.page_at(page)) is not None}
        return sorted(found, key=lambda held: held.start)

    def are_equal(self, pages: range) -> bool:
        first = self.mapped.get(pages[0])
        return first is not None and all(self.mapped.get(page) == first for page in pages)

    # Section 6.6.

    def touch(self, page: int) -> None:
        if self.page_at(page) is not None:
            return
        wish = self.mapped[page].wish if page in self.mapped else BASE
        why = None
        for size in reversed([size for size in SIZES if BASE < size <= wish]):
            block = around(page, size)
            reason = self.refuses(block)
            if reason is None:
                self.load(block)
                self.decide(wish, size, why or "obtained")
                return
            why = why or reason
        self.load(range(page, page + 1))
        self.decide(wish, BASE, why or "")

    def decide(self, wish: int, got: int, why: str) -> None:
        if wish == BASE:
            return
        key = NAMES[wish], NAMES[got], why
        self.decided[key] = self.decided.get(key, 0) + 1

    def refuses(self, block: range) -> str | None:
        if not self.are_equal(block):
            return "attributes"
        if any(len(held) != len(block) for held in self.pages_in(block)):
            return "other-size-present"
        if any(len(held) < len(block) for held in self.pages_in(other(block))):
            return "pair-rule"
        return None

    def load(self, block: range) -> None:
        """A larger page in the other half of a pair gets smaller: else one entry had two sizes."""
        for size in SIZES:
            half = other(around(block[0], size))
            if len(half) > len(block) and self.page_at(half[0]) == half:
                self.split(half, len(half) // 4)
        self.loaded[block[0]] = len(block)

    # Section 6.7.

    def split(self, held: range, count: int) -> None:
        del self.loaded[held[0]]
        for start in held[::count]:
            self.loaded[start] = count

    def cut(self, changed: range) -> None:
        """No page reaches across an end of what changes."""
        for end in (changed.start, changed.stop):
            held = self.page_at(end)
            if held is not None and held.start < end:
                self.downgrade(held, changed)

    def downgrade(self, held: range, changed: range) -> None:
        del self.loaded[held[0]]
        page = held.start
        while page < held.stop:
            # The largest size whose pair lies wholly in what changes, or wholly outside.
            counts = [size // BASE for size in SIZES if size // BASE < len(held)]
            fits = [c for c in counts if not straddles(around(page, 2 * c * BASE), changed)]
            count = max(fits, default=1)
            self.loaded[page] = count
            page += count
        half = other(held)
        if self.page_at(half[0]) == half:
            self.split(half, len(half) // 4)

    # Section 6.8.

    def upgrade(self, asked: range) -> None:
        count = ADVISED // BASE
        for start in range(asked.start // (2 * count) * 2 * count, asked.stop, 2 * count):
            ready = []
            for block in (range(start, start + count), range(start + count, start + 2 * count)):
                if block.start < asked.start or block.stop > asked.stop:
                    continue
                held = self.page_at(block[0])
                if held is not None and len(held) >= count:
                    continue
                if self.are_equal(block):
                    ready.append(block)
            if len(ready) == 1 and any(len(h) < count for h in self.pages_in(other(ready[0]))):
                continue
            for block in ready:
                for page in [page for page in self.loaded if page in block]:
                    del self.loaded[page]
            for block in ready:
                self.load(block)

    def by_size(self) -> dict[str, int]:
        """Pages that are loaded."""
        counts: dict[str, int] = {}
        for count in self.loaded.values():
            name = NAMES[count * BASE]
            counts[name] = counts.get(name, 0) + 1
        return counts


def around(page: int, size: int) -> range:
    """The aligned block of a size that holds a base page."""
    count = size // BASE
    return range(page // count * count, page // count * count + count)


def other(block: range) -> range:
    """The other page of the TLB's pair."""
    start = block.start ^ len(block)
    return range(start, start + len(block))


def straddles(block: range, changed: range) -> bool:
    inside = changed.start <= block.start and block.stop <= changed.stop
    apart = block.stop <= changed.start or changed.stop <= block.start
    return not inside and not apart
