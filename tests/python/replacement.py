"""Which page leaves memory: policies beside random choice, exact LRU and the optimum.

```
  python tests/python/replacement.py TRACE.pwt|generate:... [SHARE ...]
```

The page string of a trace, each page named once as long as nothing else is touched, goes through
the three models; the machine runs the trace with so much memory that as many pages have frames.
What is counted is pages that come into memory, the first time or again.
"""

import heapq
import random
import sys
from collections import OrderedDict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pagewalk import Machine, Trace

PAGE = 12
BARE = ("os.manager=base", "memory.size=64G", "swap.size=64G", "swap.io_cycles=1")


def pages(trace: Trace) -> list[int]:
    """The page string of a trace, without repetitions of the page before."""
    found: list[int] = []
    for batch in trace.batches():
        page = pc.shift_right(batch.column("addr"), pa.scalar(PAGE, pa.uint64()))
        if "process" in batch.schema.names:
            process = batch.column("process").cast(pa.uint64())
            page = pc.bit_wise_or(page, pc.shift_left(process, pa.scalar(52, pa.uint64())))
        found += page[:1].to_pylist()
        found += page[1:].filter(pc.not_equal(page[1:], page[:-1])).to_pylist()
    return found


def exact_lru(string: Sequence[int], frames: int) -> int:
    """Pages that come in where the least recently used one leaves."""
    held: OrderedDict[int, None] = OrderedDict()
    came = 0
    for page in string:
        if page in held:
            held.move_to_end(page)
            continue
        came += 1
        held[page] = None
        if len(held) > frames:
            held.popitem(last=False)
    return came


def at_random(string: Sequence[int], frames: int, seed: int = 1) -> int:
    """Pages that come in where any one leaves."""
    chance = random.Random(seed)
    held: list[int] = []
    place: dict[int, int] = {}
    came = 0
    for page in string:
        if page in place:
            continue
        came += 1
        if len(held) < frames:
            place[page] = len(held)
            held.append(page)
            continue
        at = chance.randrange(frames)
        del place[held[at]]
        held[at] = page
        place[page] = at
    return came


def optimum(string: Sequence[int], frames: int) -> int:
    """Pages that come in where the one leaves that is used last again (Belady 1966)."""
    never = len(string)
    after = [never] * len(string)
    coming: dict[int, int] = {}
    for at in range(len(string) - 1, -1, -1):
        after[at] = coming.get(string[at], never)
        coming[string[at]] = at
    next_use: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    came = 0
    for at, page in enumerate(string):
        if page not in next_use:
            came += 1
            if len(next_use) == frames:
                while True:
                    use, victim = heapq.heappop(farthest)
                    if next_use.get(victim) == -use:
                        del next_use[victim]
                        break
        next_use[page] = after[at]
        heapq.heappush(farthest, (-after[at], page))
    return came


def machine(trace: Trace, policy: str, frames: int) -> int:
    """Pages that came in, of a run whose pages have so many frames.

    Frames that are kept free (the min mark) are those that `frames` leaves; page tables have some.
    """
    every = 64 << 30
    settings = [*BARE, f"os.replacement={policy}"]
    tables = Machine("epyc-9005", settings).run(trace).data["memory"]["table_bytes"]
    kept = (every - tables - (frames << PAGE)) >> 10
    marks = f'os.marks={{min="{kept}K", low="{kept}K", high="{kept}K"}}'
    counts = Machine("epyc-9005", [*settings, marks]).run(trace).data["manager"]["faults"]
    return sum(int(counts[how]) for how in ("zero", "disk", "swap"))


def main(name: str, shares: Sequence[str]) -> None:
    """Prints a table."""
    trace = Trace(name, max_accesses=8_000_000)
    string = pages(trace)
    distinct = len(set(string))
    print(f"{name}: {distinct} pages")
    print("| frames | optimum | exact LRU | random | clock | lru | 2q |")
    print("|---|---|---|---|---|---|---|")
    for share in shares or ("75", "50", "25"):
        frames = distinct * int(share) // 100
        ours = [machine(trace, policy, frames) for policy in ("clock", "lru", "2q")]
        models = [optimum(string, frames), exact_lru(string, frames), at_random(string, frames)]
        print(f"| {share} % | " + " | ".join(str(number) for number in models + ours) + " |")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
