"""Random programs for `second_model`: several processes of several threads, that map, move and use
memory, as a trace of DynamoRIO."""

import random
from pathlib import Path
from typing import NamedTuple

import drmemtrace

BASE, LARGE = 4096, 2 << 20
READ, WRITE, EXECUTE = 1, 2, 4

FETCH, LOAD, STORE = range(3)
#: The right that each kind of access needs.
NEEDS = (EXECUTE, READ, WRITE)

MMAP, MPROTECT, MUNMAP, MREMAP, MADVISE = 9, 10, 11, 25, 28
PRIVATE_ANONYMOUS_FIXED = 0x32
MAYMOVE_FIXED = 3
DONTNEED = 4
#: Where the instruction of a load or a store is. Its fetch is not in the trace, as its size is 0.
PC = 0x40_0000


class Access(NamedTuple):
    space: int
    thread: int
    kind: int
    addr: int
    size: int


class Call(NamedTuple):
    """What a thread asks for: the rights are those of `MMAP` and `MPROTECT`."""

    space: int
    thread: int
    number: int
    start: int
    length: int
    rights: int = 0
    #: Where `MREMAP` moves it to, and its length there.
    to: int = 0
    new_length: int = 0


Step = Access | Call


class Process:
    """What a process has mapped."""

    def __init__(self, free: int) -> None:
        #: By page: a number of its mapping, and its rights.
        self.pages: dict[int, tuple[int, int]] = {}
        self.maps: list[tuple[int, int]] = []
        #: An address from which on nothing is mapped.
        self.free = free


class Program:
    """Random threads over a few mappings: what they do, in the order in which they do it.

    Thread t is of process t modulo the processes, and space p is that of process p.
    """

    def __init__(self, seed: int, threads: int, turns: int, processes: int = 1) -> None:
        self.chance = random.Random(seed)
        self.steps: list[Step] = []
        self.processes = [Process(0x7000_0000_0000) for _ in range(processes)]
        for thread in range(processes):
            self.at(thread)
            for _ in range(5):
                pages = self.chance.choice([3, 8, 40, 512, 1024, 1536])
                first = self.room(pages)
                rights = self.chance.choice([READ | WRITE, READ | WRITE, READ | WRITE | EXECUTE])
                self.call(MMAP, first, pages, rights)
                self.process.maps.append((first, pages))
            first = self.room(20)
            self.call(MMAP, first, 20, READ | EXECUTE)
            self.process.maps.append((first, 20))
        for turn in range(turns):
            self.at(turn if turn < threads else self.chance.randrange(threads))
            for _ in range(self.chance.randrange(1, 4)):
                if turn >= threads and self.chance.random() < 0.35:
                    self.change()
                self.burst()

    def at(self, thread: int) -> None:
        """This thread runs."""
        self.thread, self.space = thread, thread % len(self.processes)
        self.process = self.processes[self.space]

    def room(self, pages: int) -> int:
        """A page from which on nothing is mapped, aligned or not."""
        process = self.process
        aligned = -(process.free // BASE) % 512
        gap = self.chance.randrange(600) if self.chance.random() < 0.6 else aligned
        first = process.free // BASE + gap
        process.free = (first + pages) * BASE
        return first

    def call(self, number: int, first: int, pages: int, rights: int = 0) -> None:
        self.steps.append(Call(self.space, self.thread, number, first * BASE, pages * BASE, rights))
        mapped = self.process.pages
        for page in range(first, first + pages):
            if number == MUNMAP:
                mapped.pop(page, None)
            elif number == MMAP:
                mapped[page] = (len(self.steps), rights)
            elif number == MPROTECT:
                mapped[page] = (mapped[page][0], rights)

    def move(self, first: int, pages: int) -> None:
        """Moves what is one mapping, and makes it longer or shorter."""
        mapped = self.process.pages
        rights = mapped[first][1]
        new_pages = max(1, pages + self.chance.choice([0, 0, 0, 3, -1, -pages // 2, 512]))
        behind = range(first + pages, first + new_pages)
        if self.chance.random() < 0.3 and not any(page in mapped for page in behind):
            to = first
        elif self.chance.random() < 0.3:
            # Over something else.
            to, others = self.chance.choice(self.process.maps)
            to += self.chance.randrange(others)
            if to < first + max(pages, new_pages) and first < to + new_pages:
                return
        else:
            to = self.room(new_pages)
        start, length = first * BASE, pages * BASE
        step = Call(self.space, self.thread, MREMAP, start, length, 0, to * BASE, new_pages * BASE)
        self.steps.append(step)
        of = mapped[first] if to == first else (len(self.steps), rights)
        for page in range(first, first + pages):
            del mapped[page]
        for page in range(to, to + new_pages):
            mapped[page] = of
        self.process.maps.append((to, new_pages))

    def change(self) -> None:
        first, pages = self.chance.choice(self.process.maps)
        offset = self.chance.randrange(pages)
        first, pages = first + offset, pages - offset
        pages = min(pages, self.chance.choice([1, 1, 2, 5, 16, 512, 700, 1024]))
        mapped = {self.process.pages.get(page) for page in range(first, first + pages)}
        calls = {MPROTECT: 50, MUNMAP: 12, MADVISE: 13, MMAP: 10, MREMAP: 15}
        number = self.chance.choices(list(calls), list(calls.values()))[0]
        if number == MREMAP:
            if len(mapped) == 1 and None not in mapped:
                self.move(first, pages)
            return
        rights = READ | WRITE
        if number == MPROTECT:
            rights = self.chance.choice([READ, rights, rights, READ | EXECUTE, rights | EXECUTE, 0])
        if None not in mapped or number in (MUNMAP, MMAP):
            self.call(number, first, pages, rights)

    def burst(self) -> None:
        first, pages = self.chance.choice(self.process.maps)
        near = self.chance.randrange(pages)
        for _ in range(self.chance.randrange(1, 60)):
            far = self.chance.random() >= 0.8
            offset = self.chance.randrange(pages) if far else near + self.chance.randrange(12)
            page = first + offset % pages
            kinds = [kind for kind in (FETCH, LOAD, LOAD, STORE) if self.allows(page, kind)]
            if not kinds:
                continue
            kind = self.chance.choice(kinds)
            inside = self.chance.randrange(BASE)
            if inside > BASE - 8 and not self.allows(page + 1, kind):
                inside = BASE - 8
            self.steps.append(Access(self.space, self.thread, kind, page * BASE + inside, 8))

    def allows(self, page: int, kind: int) -> bool:
        _, rights = self.process.pages.get(page, (0, 0))
        return bool(rights & NEEDS[kind])

    def write(self, folder: Path) -> None:
        """A trace of DynamoRIO with a file for each thread."""
        files: dict[int, bytearray] = {}
        stamp, last = 1000, -1
        for step in self.steps:
            begin = drmemtrace.start(step.thread + 1, step.space + 1)
            file = files.setdefault(step.thread, bytearray(begin))
            if step.thread != last:
                stamp, last = stamp + 1, step.thread
                file += drmemtrace.time(stamp)
            if isinstance(step, Call):
                file += called(step)
            elif step.kind == FETCH:
                file += drmemtrace.instruction(step.addr, step.size)
            else:
                access = drmemtrace.store if step.kind == STORE else drmemtrace.load
                file += drmemtrace.record(10, 0, PC) + access(step.addr, step.size)
        for thread, file in files.items():
            (folder / f"thread{thread}.trace").write_bytes(file + drmemtrace.end(thread + 1))


def called(step: Call) -> bytes:
    """The system call as it is recorded."""
    given, result = [step.start, step.length], 0
    if step.number == MMAP:
        given += [step.rights, PRIVATE_ANONYMOUS_FIXED, (1 << 64) - 1, 0]
        result = step.start
    elif step.number == MREMAP:
        given += [step.new_length, MAYMOVE_FIXED, step.to]
        result = step.to
    elif step.number != MUNMAP:
        given.append(DONTNEED if step.number == MADVISE else step.rights)
    return drmemtrace.call(step.number, given, result)
