"""The native half: everything that touches accesses one by one.

Every function that can fail raises `Error`, with one line that says what is wrong, where, and
what to do; `WorkError` where the input was accepted and the work failed later.
"""

from collections.abc import Callable, Sequence
from os import PathLike

Progress = Callable[[int, int | None], object]
Pulled = tuple[bytes, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]
Columns = tuple[int, bytes, bytes, bytes, bytes, bytes, bytes | None, bytes | None]
Curve = tuple[str, int, int, int, bytes]
"""What is looked up, bytes of a page, lookups, cold misses, and the misses of 1, 2, 3, ... entries
as `u64` in native byte order."""
Sample = tuple[Curve, int, tuple[int, int] | None]
"""A curve of a sample of pages, one in how many pages that was at the end, and where not all
accesses were looked at: after how many, and one in how many."""

class Error(Exception): ...
class WorkError(Error): ...

class Batches:
    """The accesses of a trace in order, as columns."""

    has_paddr: bool
    has_process: bool
    def next(self) -> Columns | None:
        """The next accesses, or `None` at the end.

        Rows, then one buffer a column in native byte order: addr `u64`, size `u16`, kind `u8`
        (0 fetch, 1 load, 2 store), thread `u32`, instructions `u16`, paddr `u64` or `None`,
        process `u32` or `None`.
        """

def version() -> str: ...
def builtin_machines() -> list[tuple[str, str]]: ...

class Reading:
    """How a trace of another tool is read: a JSON document with the fields of Rust's `Options`."""

    def __init__(self, options: str) -> None: ...

def trace_header(trace: str, reading: Reading) -> tuple[str, int | None, str | None]:
    """Header as JSON, accesses if known, digest if known."""

def trace_batches(trace: str, reading: Reading) -> Batches: ...
def trace_info(trace: str, reading: Reading, progress: Progress | None) -> str: ...
def trace_switches(
    trace: str, reading: Reading, slots: int, everyone: int, progress: Progress | None
) -> str:
    """Who is switched to after whom, and groups; as JSON. Releases the GIL."""

def trace_curves(
    trace: str,
    reading: Reading,
    *,
    lookups: Sequence[str],
    page_sizes: Sequence[str],
    entries_max: int,
    progress: Progress | None,
) -> tuple[list[Curve], list[str]]:
    """Counts the LRU misses of every TLB size. Releases the GIL.

    A curve for each of `lookups` and each page size, and warnings about the trace.
    """

def sweep_trace(
    machines: Sequence[Machine],
    trace: str,
    reading: Reading,
    threads: int,
    progress: Progress | None,
) -> tuple[list[tuple[str | None, str | None]], list[str]]:
    """Runs a trace through all of `machines` in one pass. Releases the GIL.

    For each machine its results as JSON, without those that are as long as the trace, or why
    there are none; then warnings about the trace. `threads` 0: as many as there are cores.
    """

def store(trace: str, reading: Reading, output: str, force: bool, progress: Progress | None) -> str:
    """Writes all of `trace` to the trace `output`; a summary as JSON. Releases the GIL."""

def export_trace(
    format: str,  # noqa: A002
    trace: str,
    reading: Reading,
    output: str,
    *,
    thread: int | None,
    force: bool,
    progress: Progress | None,
) -> str:
    """Writes `trace` to `output` as `champsim` or `csv`; a summary as JSON. Releases the GIL."""

class Machine:
    """A machine that has been read and checked."""

    def __init__(self, name_or_path: str, settings: Sequence[str]) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def added(self) -> list[str]: ...
    @property
    def digest(self) -> str: ...
    @property
    def front(self) -> str: ...
    def description(self) -> str:
        """The description after the settings, as JSON."""

    def mmu_cache_arrays(self) -> str:
        """The arrays of its MMU cache with the bits they take, as JSON."""

    def run(
        self,
        trace: str,
        reading: Reading,
        check: bool,
        progress: Progress | None,
        names: bool,
        page_sizes: Sequence[str],
    ) -> tuple[str, list[str], list[Sample]]:
        """Runs a trace: results as JSON, warnings about it, a curve for each of `page_sizes`.

        Releases the GIL.
        """

    def run_live(
        self,
        recording: Recording,
        warmup: int,
        check: bool,
        progress: Progress | None,
        names: bool,
        page_sizes: Sequence[str],
    ) -> tuple[str, int, list[str], list[Sample]]:
        """Runs a program as it is recorded: results as JSON, exit status, notes, and curves.

        A curve for each of `page_sizes`. Releases the GIL.
        """

class PageTable:
    """A machine's page table by itself; what each operation did comes as JSON.

    Addresses and lengths are bytes; `rights` has the bits read 1, write 2, execute 4, user 8.
    """

    def __init__(self, machine: Machine, metered: bool) -> None: ...
    def create(self) -> tuple[int, str]: ...
    def destroy(self, space: int) -> str: ...
    def map(self, space: int, addresses: Sequence[int]) -> str: ...
    def hand(self, spaces: tuple[int, int], addresses: Sequence[int], rights: int) -> str: ...
    def restrict(self, space: int, ranges: Sequence[tuple[int, int]], rights: int) -> str: ...
    def unmap(self, space: int, ranges: Sequence[tuple[int, int]]) -> str: ...
    def protect(self, space: int, ranges: Sequence[tuple[int, int]], rights: int) -> str: ...
    def walk(self, space: int, addresses: Sequence[int]) -> str: ...
    def footprint(self) -> tuple[int, int]:
        """Bytes of tables in use, and of frames taken for them."""

def place_rules(
    text: str,
) -> list[tuple[int, str, str, int, tuple[int, int], int, bool, bool]]:
    """The rules of a place file, the most special first.

    Of each: the line, the word, a name, the line of a site, a range, the page size in bytes,
    whether it waits, whether it names nodes of memory.
    """

def may_trace() -> bool:
    """Whether programs that this process starts may be traced by it."""

def launch(
    command: Sequence[str],
    rules: Sequence[tuple[str, str, tuple[int, int], bool]],
    environment: Sequence[tuple[str, str, str | None]],
    *,
    inherit: bool,
    only: bool,
    fixed: bool,
    look: Callable[[int], object] | None,
) -> str:
    """Runs a program with rules to its end and its children's; JSON. Releases the GIL."""

def collapse(pid: int, ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Makes ranges of a process large: an error number for each, or 0. Releases the GIL."""

def thp_disabled(pid: int) -> int:
    """What PR_GET_THP_DISABLE tells a process: 0, 1, or 3. It is stopped for a moment."""

def world(name: str) -> list[tuple[str, int]]:
    """The numbers of a small world, `fig2` to `fig4` of G98, each with its name."""

def small_clients(
    *,
    machine: Machine,
    clients: int,
    ring: int,
    large: int,
    slot_bytes: int,
    entries: int,
    calls: int,
    stay: int,
    revoke: str,
    schedule: str,
    seed: int,
) -> str:
    """Clients in small spaces, more than slots, at a machine's prices; JSON. Releases the GIL."""

def hat_run(plan: str) -> str:
    """One load in virtual time; the outcome as JSON. Releases the GIL.

    `plan` is a JSON document with the fields of Rust's `Plan`.
    """

def hat_run_on_host(plan: str) -> str:
    """One load on this host beside its control; the outcome as JSON. Releases the GIL.

    `plan` is a JSON document with the fields of Rust's `HostPlan`.
    """

def skeleton(path: str, reading: Reading, *, progress: Progress | None) -> tuple[str, str]:
    """The skeleton of a trace as text, and its counts as JSON. Releases the GIL."""

def hat_names() -> tuple[list[list[str]], int]:
    """Schemes, loads, page tables, kinds of shootdown and of lock; the most processors."""

class Recording:
    """What to record of which program: a JSON document with the fields of Rust's `Options`."""

    def __init__(self, options: str) -> None: ...

def record_system(
    system: str, output: str | PathLike[str], force: bool, progress: Progress | None
) -> str:
    """Records a whole system, a JSON document with the fields of Rust's `System`: JSON."""

def trace_is_system(trace: str, reading: Reading) -> bool:
    """Whether a trace is the complete recording of a whole system."""

def check_flushes(
    trace: str, reading: Reading, leave_out: str | None, progress: Progress | None
) -> str:
    """The uses of translations whose flush is overdue, as JSON. Releases the GIL."""

def record(
    recording: Recording, output: str | PathLike[str], force: bool, progress: Progress | None
) -> str:
    """Records a program; the outcome as JSON. Releases the GIL."""
