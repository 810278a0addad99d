"""A second model of TLBs, rights, page sizes and shootdowns, written from the handbook alone.

TLBs are lists searched in order and the page table is a dictionary, so that it is slow and
plainly right. It makes its own traces too: legal accesses and memory calls of one process.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import drmemtrace

BASE, LARGE = 4096, 2 << 20
READ, WRITE, EXECUTE = 1, 2, 4

MMAP, MPROTECT, MUNMAP, MADVISE = 9, 10, 11, 28
PRIVATE_ANONYMOUS_FIXED = 0x32
DONTNEED = 4


class Access(NamedTuple):
    thread: int
    store: bool
    addr: int
    size: int


class Call(NamedTuple):
    """What a thread asks for: the rights are those of `MMAP` and `MPROTECT`."""

    thread: int
    number: int
    start: int
    length: int
    rights: int = 0


Step = Access | Call


class Program:
    """Random threads over a few mappings: what they do, in the order in which they do it."""

    def __init__(self, seed: int, threads: int, turns: int) -> None:
        self.chance = random.Random(seed)
        self.steps: list[Step] = []
        self.rights: dict[int, int] = {}
        self.maps: list[tuple[int, int]] = []
        start = 0x7000_0000_0000
        for _ in range(5):
            pages = self.chance.choice([3, 8, 40, 512, 1024, 1536])
            aligned = -(start // BASE) % 512
            start += BASE * (self.chance.randrange(600) if self.chance.random() < 0.6 else aligned)
            self.maps.append((start // BASE, pages))
            self.call(0, MMAP, start // BASE, pages, READ | WRITE)
            start += pages * BASE
        for turn in range(turns):
            thread = turn if turn < threads else self.chance.randrange(threads)
            for _ in range(self.chance.randrange(1, 4)):
                if turn >= threads and self.chance.random() < 0.35:
                    self.change(thread)
                self.burst(thread)

    def call(self, thread: int, number: int, first: int, pages: int, rights: int = 0) -> None:
        self.steps.append(Call(thread, number, first * BASE, pages * BASE, rights))
        for page in range(first, first + pages):
            if number == MUNMAP:
                self.rights.pop(page, None)
            elif number != MADVISE:
                self.rights[page] = rights

    def change(self, thread: int) -> None:
        first, pages = self.chance.choice(self.maps)
        offset = self.chance.randrange(pages)
        first, pages = first + offset, pages - offset
        pages = min(pages, self.chance.choice([1, 1, 2, 5, 16, 512, 700]))
        whole = all(page in self.rights for page in range(first, first + pages))
        what = self.chance.choices([MPROTECT, MUNMAP, MADVISE, MMAP], [60, 15, 15, 10])[0]
        rights = READ | WRITE
        if what == MPROTECT:
            rights = self.chance.choice([READ, rights, rights, rights | EXECUTE, 0])
        if whole or what in (MUNMAP, MMAP):
            self.call(thread, what, first, pages, rights)

    def burst(self, thread: int) -> None:
        first, pages = self.chance.choice(self.maps)
        near = self.chance.randrange(pages)
        for _ in range(self.chance.randrange(1, 60)):
            far = self.chance.random() >= 0.8
            offset = self.chance.randrange(pages) if far else near + self.chance.randrange(12)
            page = first + offset % pages
            rights = self.rights.get(page, 0)
            if not rights:
                continue
            store = bool(rights & WRITE) and self.chance.random() < 0.3
            inside = self.chance.randrange(BASE)
            if inside > BASE - 8 and not self.rights.get(page + 1, 0) & (WRITE if store else READ):
                inside = BASE - 8
            self.steps.append(Access(thread, store, page * BASE + inside, 8))

    def write(self, folder: Path) -> None:
        """A trace of DynamoRIO with a file for each thread."""
        files: dict[int, bytearray] = {}
        stamp, last = 1000, -1
        for step in self.steps:
            file = files.setdefault(step.thread, bytearray(drmemtrace.start(step.thread, 1)))
            if step.thread != last:
                stamp, last = stamp + 1, step.thread
                file += drmemtrace.time(stamp)
            if isinstance(step, Access):
                access = drmemtrace.store if step.store else drmemtrace.load
                file += drmemtrace.instruction(0x40_0000) + access(step.addr, step.size)
                continue
            start, length, rights = step.start, step.length, step.rights
            given, result = [start, length], 0
            if step.number == MMAP:
                given += [rights, PRIVATE_ANONYMOUS_FIXED, (1 << 64) - 1, 0]
                result = start
            elif step.number != MUNMAP:
                given.append(DONTNEED if step.number == MADVISE else rights)
            file += drmemtrace.call(step.number, given, result)
        for thread, file in files.items():
            end = drmemtrace.time(stamp + 1) + drmemtrace.end(thread)
            (folder / f"thread{thread}.trace").write_bytes(file + end)


class Entry(NamedTuple):
    size: int
    number: int
    rights: int


class Array(NamedTuple):
    sizes: tuple[int, ...]
    ways: int
    sets: list[list[Entry]]


class Tlb:
    """Arrays of sets, each a list whose last entry was used last."""

    def __init__(self, arrays: Sequence[tuple[tuple[int, ...], int, int]]) -> None:
        self.arrays = [
            Array(sizes, ways, [[] for _ in range(entries // ways)])
            for sizes, entries, ways in arrays
        ]
        self.hits, self.misses = [0, 0], [0, 0]
        self.denied = self.evictions = self.flushed = 0

    def lookup(self, addr: int, store: bool) -> tuple[Entry | None, bool]:
        """The entry that serves, and whether one forbids it, which goes."""
        for size in (BASE, LARGE):
            for array in (array for array in self.arrays if size in array.sizes):
                ways = array.sets[addr // size % len(array.sets)]
                for entry in (way for way in ways if way[:2] == (size, addr // size)):
                    ways.remove(entry)
                    if entry.rights & (WRITE if store else READ):
                        ways.append(entry)
                        self.hits[store] += 1
                        return entry, False
                    self.misses[store] += 1
                    self.denied += 1
                    return None, True
        self.misses[store] += 1
        return None, False

    def fill(self, new: Entry) -> None:
        array = next(array for array in self.arrays if new.size in array.sizes)
        ways = array.sets[new.number % len(array.sets)]
        same = [entry for entry in ways if entry[:2] == new[:2]]
        if same:
            ways.remove(same[0])
        elif len(ways) == array.ways:
            ways.pop(0)
            self.evictions += 1
        ways.append(new)

    def flush(self, start: int, end: int) -> int:
        gone = 0
        for ways in (ways for array in self.arrays for ways in array.sets):
            kept = [e for e in ways if e.size * (e.number + 1) <= start or e.size * e.number >= end]
            gone += len(ways) - len(kept)
            ways[:] = kept
        self.flushed += gone
        return gone


class Page:
    def __init__(self, rights: int, dirty: bool = False) -> None:
        self.rights, self.dirty = rights, dirty


class Costs(NamedTuple):
    send: int
    receive: int
    page: int
    space: int


class Machine:
    """Processors with two levels of TLBs for data, and a system that maps pages at first touch."""

    first = (((BASE,), 8, 4), ((LARGE,), 2, 2))
    second = (((BASE, LARGE), 32, 4),)
    costs = Costs(send=500, receive=1000, page=200, space=6600)

    def __init__(self, processors: int, large: bool) -> None:
        self.large = large
        self.tlbs = [(Tlb(self.first), Tlb(self.second)) for _ in range(processors)]
        self.ran: set[int] = set()
        self.shootdowns = [dict.fromkeys(SHOOTDOWNS, 0) for _ in range(processors)]
        self.table: dict[tuple[int, int], Page] = {}
        # By base page: which call mapped it, and the rights that it has since.
        self.mapped: dict[int, tuple[int, int]] = {}
        self.walks = self.touches = self.faults = self.assists = self.crossings = 0

    def run(self, steps: list[Step]) -> None:
        for number, step in enumerate(steps):
            self.here = step.thread % len(self.tlbs)
            self.ran.add(self.here)
            if isinstance(step, Access):
                self.access(step)
            else:
                self.change(step, number)

    def change(self, call: Call, number: int) -> None:
        start, end = call.start, call.start + call.length
        self.split(start)
        self.split(end)
        inside = [key for key in self.table if start <= key[0] * key[1] < end]
        if call.number == MPROTECT:
            new = call.rights and call.rights | READ
            changed = [key for key in inside if self.table[key].rights & ~new]
            for key in inside:
                self.table[key].rights = new
        else:
            changed = inside
            for key in inside:
                del self.table[key]
        self.shoot(changed)
        for page in range(start // BASE, end // BASE):
            if call.number == MUNMAP:
                self.mapped.pop(page, None)
            elif call.number == MMAP:
                self.mapped[page] = (number, call.rights)
            elif call.number == MPROTECT:
                self.mapped[page] = (self.mapped[page][0], call.rights)

    def split(self, addr: int) -> None:
        """A large page that a change covers in part is made small first."""
        key = self.find(addr)
        if key and key[0] == LARGE and addr % LARGE:
            page = self.table.pop(key)
            for small in range(key[1] * 512, key[1] * 512 + 512):
                self.table[BASE, small] = Page(page.rights, page.dirty)
            self.shoot([key])

    def shoot(self, keys: list[tuple[int, int]]) -> None:
        if not keys:
            return
        start = min(size * number for size, number in keys)
        end = max(size * (number + 1) for size, number in keys)
        flush = min(len(keys) * self.costs.page, self.costs.space)
        for number in self.ran:
            counts = self.shootdowns[number]
            counts["entries"] += sum(tlb.flush(start, end) for tlb in self.tlbs[number])
            if number != self.here:
                counts["received"] += 1
                counts["receiver_cycles"] += self.costs.receive + flush
        asked = len(self.ran) - 1
        counts = self.shootdowns[self.here]
        counts["made"] += 1
        counts["asked"] += asked
        wait = self.costs.send + self.costs.receive + flush
        counts["sender_cycles"] += flush + (wait if asked else 0)

    def find(self, addr: int) -> tuple[int, int] | None:
        keys = ((size, addr // size) for size in (BASE, LARGE))
        return next((key for key in keys if key in self.table), None)

    def access(self, access: Access) -> None:
        addr, last = access.addr, access.addr + access.size - 1
        while True:
            size = self.translate(addr, access.store)
            addr = (addr // size + 1) * size
            if addr > last:
                return
            self.crossings += 1

    def translate(self, addr: int, store: bool) -> int:
        """The size of the page."""
        first, second = self.tlbs[self.here]
        entry, denied = first.lookup(addr, store)
        if entry:
            return entry.size
        entry, denied_too = second.lookup(addr, store)
        if entry:
            first.fill(entry)
            return entry.size
        self.walks += 1
        needed = WRITE if store else READ
        key = self.find(addr)
        if key is None:
            key = self.choose(addr)
            _, rights = self.mapped.get(addr // BASE, (0, READ | WRITE | EXECUTE))
            self.table[key] = Page(rights | needed | READ)
            self.touches += 1
        page = self.table[key]
        if not page.rights & needed:
            page.rights |= needed
            self.faults += 1
        if store and not page.dirty:
            page.dirty = True
            self.assists += denied or denied_too
        rights = page.rights if page.dirty else page.rights & ~WRITE
        second.fill(Entry(*key, rights))
        first.fill(Entry(*key, rights))
        return key[0]

    def choose(self, addr: int) -> tuple[int, int]:
        """A large page if all of it is one mapping with equal rights, and no small page there."""
        block = range(addr // LARGE * 512, addr // LARGE * 512 + 512)
        one = len({self.mapped.get(page) for page in block}) == 1 and block[0] in self.mapped
        if self.large and one and not any((BASE, page) in self.table for page in block):
            return LARGE, addr // LARGE
        return BASE, addr // BASE


SHOOTDOWNS = ("made", "asked", "received", "entries", "sender_cycles", "receiver_cycles")

MACHINE = """
title = "the second model's machine"
source = "none"
[core]
count = {processors}
asid_bits = 12
fetches = false
cycles_per_instruction = 1.0
source = "none"
[tlb.l1d]
array = [
    {{ page_sizes = ["4K"], entries = 8, ways = 4, replacement = "lru" }},
    {{ page_sizes = ["2M"], entries = 2, ways = "full", replacement = "lru" }},
]
source = "none"
[tlb.l2d]
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
enters = "l1d"
tracks_dirty = true
source = "none"
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
