"""The native module: all work that processes accesses one by one.

Every function that can fail raises `Error`, with one line that says what is wrong, where, and what
to do. It raises `WorkError` if the input was accepted and the work failed later.
"""

from collections.abc import Callable, Sequence
from os import PathLike

Progress = Callable[[int, int | None], object]
Pulled = tuple[bytes, bytes | None, bytes | None, bytes | None, bytes | None, bytes | None]
Columns = tuple[int, bytes, bytes, bytes, bytes, bytes, bytes | None, bytes | None]
Curve = tuple[str, int, int, int, bytes]
"""The kind of lookups, the page size in bytes, the number of lookups, the cold misses, and the
misses with 1, 2, 3, ... entries as `u64` in native byte order.
"""
Sample = tuple[Curve, int, tuple[int, int] | None]
"""A curve of a sample of pages, and `n` if one in `n` pages was in the sample at the end. If not
all accesses were looked up: after how many accesses this began, and which share (one in how many)
was looked up from then on.
"""

class Error(Exception): ...
class WorkError(Error): ...

class Batches:
    """The accesses of a trace in their order, as columns."""

    has_paddr: bool
    has_process: bool
    def next(self) -> Columns | None:
        """The next accesses, or `None` at the end.

        The number of rows, and then one buffer for each column in native byte order: addr `u64`,
        size `u16`, kind `u8` (0 fetch, 1 load, 2 store), thread `u32`, instructions `u16`, paddr
        `u64` or `None`, process `u32` or `None`.
        """

    def warnings(self) -> list[str]:
        """The warnings of the trace; they are complete after the last accesses."""

def version() -> str: ...
def builtin_machines() -> list[tuple[str, str]]: ...

class Reading:
    """How a trace of another tool is read: a JSON document with the fields of Rust's `Options`."""

    def __init__(self, options: str) -> None: ...

def trace_header(trace: str, reading: Reading) -> tuple[str, int | None, str | None]:
    """The header as JSON, the number of accesses if known, and the digest if known."""

def trace_batches(trace: str, reading: Reading) -> Batches: ...
def trace_info(trace: str, reading: Reading, progress: Progress | None) -> str: ...
def trace_switches(
    trace: str, reading: Reading, slots: int, everyone: int, progress: Progress | None
) -> str:
    """Which space is switched to after which, and groups, as JSON. Releases the GIL."""

def trace_curves(
    trace: str,
    reading: Reading,
    *,
    lookups: Sequence[str],
    page_sizes: Sequence[str],
    entries_max: int,
    progress: Progress | None,
) -> tuple[list[Curve], list[str]]:
    """Counts the misses of LRU TLBs of every size. Releases the GIL.

    A curve for each of `lookups` and each page size, and warnings about the trace.
    """

def sweep_trace(
    machines: Sequence[Machine],
    trace: str,
    reading: Reading,
    threads: int,
    progress: Progress | None,
) -> tuple[list[tuple[str | None, str | None]], list[str]]:
    """Simulates a trace on all of `machines` in one pass. Releases the GIL.

    For each machine its results as JSON, without those that are as long as the trace, or why
    there are none; then warnings about the trace. `threads` 0: as many as there are cores.
    """

def store(trace: str, reading: Reading, output: str, force: bool, progress: Progress | None) -> str:
    """Writes all of `trace` to the trace `output`. Returns a summary as JSON. Releases the GIL."""

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
    """Writes `trace` to `output` as `champsim` or `csv`. Returns a summary. Releases the GIL."""

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
        """The arrays of its MMU cache with their sizes in bits, as JSON."""

    def run(
        self,
        trace: str,
        reading: Reading,
        check: bool,
        progress: Progress | None,
        names: bool,
        page_sizes: Sequence[str],
    ) -> tuple[str, list[str], list[Sample]]:
        """Simulates a trace. Returns results as JSON, warnings, and a curve per page size.

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
        """Simulates a program while it is recorded.

        Returns results as JSON, the exit status, notes, and a curve for each of `page_sizes`.
        Releases the GIL.
        """

class PageTable:
    """A machine's page table alone. Each operation returns its work as JSON.

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
        """Bytes of tables in use, and bytes of the frames that are allocated for them."""

def place_rules(
    text: str,
) -> list[tuple[int, str, str, int, tuple[int, int], int, bool, bool]]:
    """The rules of a place file, the most specific first.

    Each rule has: the number of its line, its first word, a name, the line of a site, a range, the
    page size in bytes, whether faults wait for a page, and whether it names nodes of memory.
    """

def may_trace() -> bool:
    """Whether this process may trace the programs that it starts."""

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
    """Runs a program with rules until its children have ended too. Releases the GIL."""

def collapse(pid: int, ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Collapses ranges of a process. Returns an error number or 0 for each. Releases the GIL."""

def thp_disabled(pid: int) -> int:
    """The result of PR_GET_THP_DISABLE in a process: 0, 1, or 3. Stops the process for a moment."""

def world(name: str) -> list[tuple[str, int]]:
    """The numbers of a small example, `fig2` to `fig4` of G98, each with its name."""

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
    """Runs more clients in small spaces than there are slots. Returns JSON. Releases the GIL."""

def hat_run(plan: str) -> str:
    """Runs one load in virtual time. Returns the outcome as JSON. Releases the GIL.

    `plan` is a JSON document with the fields of Rust's `Plan`.
    """

def hat_run_on_host(plan: str) -> str:
    """Runs one load and its control on this host. Returns the outcome as JSON. Releases the GIL.

    `plan` is a JSON document with the fields of Rust's `HostPlan`.
    """

def skeleton(path: str, reading: Reading, *, progress: Progress | None) -> tuple[str, str]:
    """The skeleton of a trace as text, and its counts as JSON. Releases the GIL."""

def hat_names() -> tuple[list[list[str]], int]:
    """Schemes, loads, page tables, kinds of shootdowns and of locks; the maximum of processors."""

class Recording:
    """The program to record, and how: a JSON document with the fields of Rust's `Options`."""

    def __init__(self, options: str) -> None: ...

def attach(
    recording: Recording,
    process: tuple[int, float | None, list[str]],
    output: str | PathLike[str],
    force: bool,
    progress: Progress | None,
) -> str:
    """Records a part of a running program. Returns the outcome as JSON. Releases the GIL.

    `process` has its number, the maximum of seconds, and the command that starts the operator.
    """

def operate() -> None:
    """Does the work of the operator that `attach` has started."""

def record_system(
    system: str, output: str | PathLike[str], force: bool, progress: Progress | None
) -> str:
    """Records a whole system. `system` is JSON with the fields of Rust's `System`. Returns JSON."""

def trace_is_system(trace: str, reading: Reading) -> bool:
    """Whether a trace is the complete recording of a whole system."""

def check_flushes(
    trace: str, reading: Reading, leave_out: str | None, progress: Progress | None
) -> str:
    """The uses of translations whose flush is overdue, as JSON. Releases the GIL."""

def record(
    recording: Recording, output: str | PathLike[str], force: bool, progress: Progress | None
) -> str:
    """Records a program. Returns the outcome as JSON. Releases the GIL."""
