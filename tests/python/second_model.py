"""A second model of TLBs, rights, page sizes, spaces and shootdowns, from the handbook alone.

TLBs are lists searched in order and page tables are dictionaries, so that it is slow and plainly
right. `second_program` makes the programs that run on it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from second_program import (
    BASE,
    EXECUTE,
    FETCH,
    LARGE,
    MMAP,
    MPROTECT,
    MREMAP,
    MUNMAP,
    NEEDS,
    READ,
    STORE,
    WRITE,
    Access,
    Call,
    Step,
)


class Tag(NamedTuple):
    """What a lookup compares: of a paired TLB, the number of the pair."""

    asid: int
    size: int
    number: int


class Entry(NamedTuple):
    tag: Tag
    #: The rights of its page, or of both pages of its pair; `None` where one has no frame.
    rights: tuple[int | None, ...]


class Array(NamedTuple):
    sizes: tuple[int, ...]
    ways: int
    sets: list[list[Entry]]


Arrays = Sequence[tuple[tuple[int, ...], int, int]]


class Tlb:
    """Arrays of sets, each a list whose last entry was used last."""

    def __init__(self, arrays: Arrays, pages: int = 1) -> None:
        self.arrays = [
            Array(sizes, ways, [[] for _ in range(entries // ways)])
            for sizes, entries, ways in arrays
        ]
        #: How many adjacent pages an entry maps.
        self.pages = pages
        self.hits, self.misses = [0, 0, 0], [0, 0, 0]
        self.denied = self.invalid = self.evictions = self.flushed = 0

    def lookup(self, asid: int, addr: int, kind: int) -> tuple[Entry | None, bool]:
        """The entry that serves, and whether one forbids it: what is at the address goes then."""
        for size in (BASE, LARGE):
            number, half = divmod(addr // size, self.pages)
            for array in (array for array in self.arrays if size in array.sizes):
                ways = array.sets[number % len(array.sets)]
                for entry in (way for way in ways if way.tag == (asid, size, number)):
                    rights = entry.rights[half]
                    if rights is None:
                        self.misses[kind] += 1
                        self.invalid += 1
                        return None, False
                    if rights & NEEDS[kind]:
                        ways.remove(entry)
                        ways.append(entry)
                        self.hits[kind] += 1
                        return entry, False
                    self.misses[kind] += 1
                    self.denied += 1
                    self.drop(asid, addr, addr + 1)
                    return None, True
        self.misses[kind] += 1
        return None, False

    def fill(self, new: Entry) -> None:
        array = next(array for array in self.arrays if new.tag.size in array.sizes)
        ways = array.sets[new.tag.number % len(array.sets)]
        same = [entry for entry in ways if entry.tag == new.tag]
        if same:
            ways.remove(same[0])
        elif len(ways) == array.ways:
            ways.pop(0)
            self.evictions += 1
        ways.append(new)

    def flush(self, asid: int, start: int, end: int) -> int:
        """Drops what `asid` has of these addresses, and counts it."""
        gone = self.drop(asid, start, end)
        self.flushed += gone
        return gone

    def drop(self, asid: int, start: int, end: int) -> int:

        def stays(entry: Entry) -> bool:
            of, size, number = entry.tag
            size *= self.pages
            return of != asid or size * (number + 1) <= start or size * number >= end

        gone = 0
        for ways in (ways for array in self.arrays for ways in array.sets):
            kept = [entry for entry in ways if stays(entry)]
            gone += len(ways) - len(kept)
            ways[:] = kept
        return gone


class Contexts:
    """Which tag each space has: `owners` by tag, on each processor or on all of them."""

    def __init__(self, policy: str, bits: int, processors: int) -> None:
        self.policy, self.tags = policy, 1 << bits if bits else 0
        self.shared = policy in ("lru", "generation")
        sets = 1 if self.shared else processors
        self.owners: list[dict[int, int]] = [{} for _ in range(sets)]
        #: By tag: when it was entered last.
        self.last: list[dict[int, int]] = [{} for _ in range(sets)]
        self.given = [0] * sets
        self.running: list[int | None] = [None] * processors
        #: Processors that have run a space since it has its tag.
        self.held: dict[tuple[int, int], set[int]] = {}
        self.now = 0

    def of(self, processor: int, space: int) -> int | None:
        """The tag under which a processor may have something of a space."""
        if not self.tags:
            return 0 if self.running[processor] == space else None
        at = 0 if self.shared else processor
        for tag, owner in self.owners[at].items():
            if owner == space and processor in self.held[at, tag]:
                return tag
        return None

    def enter(self, processor: int, space: int) -> tuple[int, list[tuple[int, int | None]]]:
        """The tag, and what is flushed first: processors, and a tag or everything."""
        everyone = range(len(self.running))
        self.running[processor] = space
        if not self.tags:
            return 0, [(processor, None)]
        at = 0 if self.shared else processor
        owners, last = self.owners[at], self.last[at]
        self.now += 1
        for tag, owner in owners.items():
            if owner == space:
                last[tag] = self.now
                self.held[at, tag].add(processor)
                return tag, []
        kept = {of for other, of in enumerate(self.running) if self.shared and other != processor}
        flushed: list[tuple[int, int | None]] = []
        if self.policy == "modulo":
            tag = space % self.tags
        elif self.policy == "generation":
            free = [tag for tag in range(self.given[at], self.tags) if tag not in owners]
            if not free:
                for old in [old for old, owner in owners.items() if owner not in kept]:
                    del owners[old]
                flushed = [(other, None) for other in everyone]
                free = [tag for tag in range(self.tags) if tag not in owners]
            tag = free[0]
            self.given[at] = tag + 1
        else:
            takes = [
                tag for tag in range(self.tags) if tag not in owners or owners[tag] not in kept
            ]
            tag = min(takes, key=lambda tag: last[tag] if tag in owners else -1)
        if tag in owners:
            flushed = [(other, tag) for other in sorted(self.held[at, tag])]
        owners[tag], last[tag] = space, self.now
        self.held[at, tag] = {processor}
        return tag, flushed


class Page:
    def __init__(self, rights: int, dirty: bool = False) -> None:
        self.rights, self.dirty = rights, dirty


class Space:
    def __init__(self) -> None:
        self.table: dict[tuple[int, int], Page] = {}
        # For each base page: the call that mapped it, and its present rights.
        self.mapped: dict[int, tuple[int, int]] = {}


class Costs(NamedTuple):
    send: int
    receive: int
    page: int
    space: int


class Layout(NamedTuple):
    """What differs between the machines."""

    processors: int = 1
    large: bool = False
    #: Software refills one level of paired entries; else hardware walks for two levels.
    paired: bool = False
    fetches: bool = False
    asid_bits: int = 12
    contexts: str = "modulo"


class Machine:
    """Processors with TLBs, and a system that maps pages at first touch."""

    costs = Costs(send=500, receive=1000, page=200, space=6600)

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        processors = range(layout.processors)
        self.tlbs = [self.build() for _ in processors]
        self.contexts = Contexts(layout.contexts, layout.asid_bits, layout.processors)
        self.shootdowns = [dict.fromkeys(SHOOTDOWNS, 0) for _ in processors]
        self.spaces: dict[int, Space] = {}
        self.tags = [0] * layout.processors
        self.here = 0
        self.contexts.enter(0, 0)
        self.walks = self.touches = self.faults = self.assists = self.crossings = 0
        self.switches = 0

    def build(self) -> dict[str, Tlb]:
        if self.layout.paired:
            return {"l1": Tlb([((BASE, LARGE), 8, 8)], pages=2)}
        tlbs = {
            "l1d": Tlb([((BASE,), 8, 4), ((LARGE,), 2, 2)]),
            "l2": Tlb([((BASE, LARGE), 32, 4)]),
        }
        if self.layout.fetches:
            tlbs["l1i"] = Tlb([((BASE, LARGE), 6, 3)])
        return tlbs

    def path(self, kind: int) -> list[Tlb]:
        """The TLBs that an access looks up, nearest first."""
        tlbs = self.tlbs[self.here]
        if self.layout.paired:
            return [tlbs["l1"]]
        return [tlbs["l1i" if kind == FETCH else "l1d"], tlbs["l2"]]

    def run(self, steps: list[Step]) -> None:
        for number, step in enumerate(steps):
            if isinstance(step, Access) and step.kind == FETCH and not self.layout.fetches:
                continue
            self.enter(step.thread % self.layout.processors, step.space)
            if isinstance(step, Access):
                self.access(step)
            else:
                self.change(step, number)

    def enter(self, processor: int, space: int) -> None:
        self.here = processor
        self.space = self.spaces.setdefault(space, Space())
        self.number = space
        if self.contexts.running[processor] == space:
            return
        self.switches += 1
        tag, flushed = self.contexts.enter(processor, space)
        for other, stale in flushed:
            for tlb in self.tlbs[other].values():
                tags = range(max(self.contexts.tags, 1)) if stale is None else [stale]
                for one in tags:
                    tlb.flush(one, 0, 1 << 64)
        self.tags[processor] = tag

    def change(self, call: Call, number: int) -> None:
        if call.number == MREMAP:
            self.remap(call, number)
            return
        start, end = call.start, call.start + call.length
        self.split(start)
        self.split(end)
        inside = self.inside(start, end)
        if call.number == MPROTECT:
            new = call.rights and call.rights | READ
            changed = [key for key in inside if self.space.table[key].rights & ~new]
            for key in inside:
                self.space.table[key].rights = new
        else:
            changed = inside
            for key in inside:
                del self.space.table[key]
        self.shoot(changed)
        mapped = self.space.mapped
        for page in range(start // BASE, end // BASE):
            if call.number == MUNMAP:
                mapped.pop(page, None)
            elif call.number == MMAP:
                mapped[page] = (number, call.rights)
            elif call.number == MPROTECT:
                mapped[page] = (mapped[page][0], call.rights)

    def remap(self, call: Call, number: int) -> None:
        """Pages move with their rights and dirty bits; what has no room in the new length goes."""
        mapped, (start, length) = self.space.mapped, (call.start, call.length)
        unmap = Call(call.space, call.thread, MUNMAP, 0, 0)
        kept = min(length, call.new_length)
        if kept < length:
            self.change(unmap._replace(start=start + kept, length=length - kept), number)
        of, rights = mapped[start // BASE]
        if call.to == start:
            for page in range((start + length) // BASE, (start + call.new_length) // BASE):
                mapped[page] = (of, rights)
            return
        self.change(unmap._replace(start=call.to, length=call.new_length), number)
        self.split(start)
        self.split(start + kept)
        distance = call.to - start
        moved = self.inside(start, start + kept)
        for key in moved:
            old = self.space.table.pop(key)
            size = key[0] if distance % key[0] == 0 else BASE
            first = (key[0] * key[1] + distance) // size
            for part in range(first, first + key[0] // size):
                self.space.table[size, part] = Page(old.rights, old.dirty)
        self.shoot(moved)
        for page in range(start // BASE, (start + kept) // BASE):
            mapped.pop(page)
        for page in range(call.to // BASE, (call.to + call.new_length) // BASE):
            mapped[page] = (of, rights)

    def inside(self, start: int, end: int) -> list[tuple[int, int]]:
        return [key for key in self.space.table if start <= key[0] * key[1] < end]

    def split(self, addr: int) -> None:
        """A large page that a change covers in part is made small first."""
        key = self.find(addr)
        if key and key[0] == LARGE and addr % LARGE:
            page = self.space.table.pop(key)
            for small in range(key[1] * 512, key[1] * 512 + 512):
                self.space.table[BASE, small] = Page(page.rights, page.dirty)
            self.shoot([key])

    def shoot(self, keys: list[tuple[int, int]]) -> None:
        if not keys:
            return
        start = min(size * number for size, number in keys)
        end = max(size * (number + 1) for size, number in keys)
        flush = min(len(keys) * self.costs.page, self.costs.space)
        asked = 0
        for number, tlbs in enumerate(self.tlbs):
            tag = self.contexts.of(number, self.number)
            if tag is None:
                continue
            counts = self.shootdowns[number]
            counts["entries"] += sum(tlb.flush(tag, start, end) for tlb in tlbs.values())
            if number != self.here:
                asked += 1
                counts["received"] += 1
                counts["receiver_cycles"] += self.costs.receive + flush
        counts = self.shootdowns[self.here]
        counts["made"] += 1
        counts["asked"] += asked
        wait = self.costs.send + self.costs.receive + flush
        counts["sender_cycles"] += flush + (wait if asked else 0)

    def find(self, addr: int) -> tuple[int, int] | None:
        keys = ((size, addr // size) for size in (BASE, LARGE))
        return next((key for key in keys if key in self.space.table), None)

    def access(self, access: Access) -> None:
        addr, last = access.addr, access.addr + access.size - 1
        while True:
            size = self.translate(addr, access.kind)
            addr = (addr // size + 1) * size
            if addr > last:
                return
            self.crossings += 1

    def translate(self, addr: int, kind: int) -> int:
        """The size of the page."""
        asid, path, denied = self.tags[self.here], self.path(kind), False
        for level, tlb in enumerate(path):
            entry, forbids = tlb.lookup(asid, addr, kind)
            denied |= forbids
            if entry:
                for nearer in path[:level]:
                    nearer.fill(entry)
                return entry.tag.size
        self.walks += 1
        store, needed, table = kind == STORE, NEEDS[kind], self.space.table
        key = self.find(addr)
        if key is None:
            key = self.choose(addr)
            _, rights = self.space.mapped.get(addr // BASE, (0, READ | WRITE | EXECUTE))
            rights |= needed
            table[key] = Page(rights and rights | READ)
            self.touches += 1
        page = table[key]
        if not page.rights & needed:
            page.rights |= needed | READ
            self.faults += 1
        if store and not page.dirty:
            page.dirty = True
            self.assists += denied or self.layout.paired
        for tlb in reversed(path):
            number = key[1] // tlb.pages
            pages = (table.get((key[0], number * tlb.pages + half)) for half in range(tlb.pages))
            tlb.fill(Entry(Tag(asid, key[0], number), tuple(map(self.seen, pages))))
        return key[0]

    def seen(self, page: Page | None) -> int | None:
        """What hardware is told: a clean page may not be stored to."""
        if page is None:
            return None
        return page.rights if page.dirty else page.rights & ~WRITE

    def choose(self, addr: int) -> tuple[int, int]:
        """A large page if all of it is one mapping with equal rights, and no small page there."""
        block, mapped = range(addr // LARGE * 512, addr // LARGE * 512 + 512), self.space.mapped
        one = len({mapped.get(page) for page in block}) == 1 and block[0] in mapped
        small = any((BASE, page) in self.space.table for page in block)
        if self.layout.large and one and not small:
            return LARGE, addr // LARGE
        return BASE, addr // BASE


SHOOTDOWNS = ("made", "asked", "received", "entries", "sender_cycles", "receiver_cycles")

HARDWARE = """
[tlb.l1d]
array = [
    { page_sizes = ["4K"], entries = 8, ways = 4, replacement = "lru" },
    { page_sizes = ["2M"], entries = 2, ways = "full", replacement = "lru" },
]
source = "none"
[tlb.l2]
entries = 32
ways = 4
page_sizes = ["4K", "2M"]
replacement = "lru"
latency_cycles = 7
source = "none"
[page_table]
format = "x86-64"
source = "none"
[walker]
kind = "hardware"
"""

INSTRUCTIONS = """
[tlb.l1i]
entries = 6
ways = 3
page_sizes = ["4K", "2M"]
replacement = "lru"
source = "none"
"""

SOFTWARE = """
[tlb.l1]
entries = 8
ways = "full"
paired = true
page_sizes = ["4K", "2M"]
replacement = "lru"
source = "none"
[page_table]
format = "{format}"
source = "none"
[walker]
kind = "software"
refill_cycles = 8
"""

MACHINE = """
title = "the second model's machine"
source = "none"
[core]
count = {processors}
asid_bits = {asid_bits}
contexts = "{contexts}"
fetches = {fetches}
cycles_per_instruction = 1.0
source = "none"
{translation}
enters = "l1d"
tracks_dirty = true
source = "none"
{instructions}
[cache.l1d]
size = "4K"
line = "64B"
ways = 4
replacement = "lru"
latency_cycles = 4
source = "none"
[memory]
size = "16G"
latency_cycles = 100
source = "none"
[os]
page_size = "{page_size}"
source = "none"
[os.costs]
shootdown_send_cycles = 500
shootdown_receive_cycles = 1000
flush_page_cycles = 200
flush_space_cycles = 6600
walk_cycles = 30
fault_cycles = 1000
switch_cycles = 2000
source = "none"
"""


def machine_file(layout: Layout, software_format: str) -> str:
    """The machine as a file; where software refills, with this format of page table."""
    software = SOFTWARE.format(format=software_format)
    return MACHINE.format(
        processors=layout.processors,
        asid_bits=layout.asid_bits,
        contexts=layout.contexts,
        fetches=str(layout.fetches).lower(),
        page_size="2M" if layout.large else "4K",
        translation=software if layout.paired else HARDWARE,
        instructions=INSTRUCTIONS if layout.fetches and not layout.paired else "",
    )
