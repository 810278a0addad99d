"""The report as plain data: every number, row and sentence, before any HTML."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pagewalk import plain


class Value(NamedTuple):
    """A number: as shown, exactly, and its JSON pointer in the run's document if it has one."""

    text: str
    exact: float | None = None
    pointer: str | None = None
    few: bool = False
    """Whether it was counted from so few events that it says little."""


Cell = Value | str


class Table(NamedTuple):
    """A table; `numeric` says which columns are numbers."""

    caption: str
    head: list[str]
    rows: list[list[Cell]]
    numeric: list[bool]
    bars: Sequence[float] = ()
    """A share of one for each row, drawn behind its last cell; empty: none."""
    keys: int = 1
    """How many of the first columns name a row; where a page is narrow they are one column."""


class Card(NamedTuple):
    """A number that matters, with a word on it."""

    label: str
    value: Value
    note: str


class Figure(NamedTuple):
    """A chart's data: its rows, what it shows in words, and the same numbers as a table."""

    title: str
    sentence: str
    rows: list[dict[str, Any]]
    table: Table | None = None
    """None where the page has one table for all of its figures."""
    axis: Sequence[tuple[float, str]] = ()
    """Places on the y axis and their labels, where it is not a plain scale."""
    edges: Sequence[float] = ()
    facets: Sequence[str] = ()
    """Names of the charts that it has beside each other, where it has several."""
    share: bool = False
    """Whether its values are shares of one."""


class Part(NamedTuple):
    """One table of a machine's file: its keys, and where their numbers come from."""

    name: str
    facts: list[tuple[str, str]]
    source: str


class Run(NamedTuple):
    """One run: a trace on a machine."""

    anchor: str
    name: str
    title: str
    settings: list[str]
    headline: str
    advice: str
    """What to do about it, in a sentence; empty where no curve was counted."""
    cards: list[Card]
    switches: Table | None
    """Why a processor went from one program to another, if there were several."""
    tlbs: Table
    memory: Figure | None
    """Memory by what it is used for, over time, if the machine has a manager that tells."""
    page_sizes: Figure | None
    """Mapped memory by page size, over time, where there are several sizes."""
    wished: Table | None
    """Page sizes by region, wished and got, and why, where sizes were wished for."""
    wished_more: Table | None
    """The rows of fewer bytes, apart so that the first ones stay in sight."""
    promotion: str
    """What on-line promotion charged and made; empty where misses are not counted for it."""
    daemon: Figure | None
    """What the daemon that coalesces free memory did, over time, if there is one."""
    reservations: Figure | None
    """Reservations made, filled and broken over time, where the manager has such."""
    free: Figure | None
    """Free memory by the size of its blocks."""
    kernel: Figure | None
    """The kernel's cycles by what was done, where its work has prices."""
    faults: Table | None
    work: Table | None
    processors: Table | None
    """None where there is one processor."""
    nodes: Table | None
    """None where memory is one node."""
    mmu_cache: Table | None
    spec_tlb: Table | None
    """None where nothing predicts where walks end."""
    spaces: Table | None
    """What going from one space to another did; none where there was one."""
    nested: Table | None
    caches: Table | None
    regions: Table
    regions_more: Table | None
    """Regions of fewer misses than the first ones, apart so that these stay in sight."""
    functions: Table | None
    """None where the trace does not tell what code an access is of."""
    sites: Table | None
    """None where no allocations were marked."""
    origin_notes: list[str]
    """Why some functions have no names."""
    timeline: Figure | None
    map: Figure | None
    serving: Figure | None
    parts: list[Part]
    source: str
    not_modelled: list[str]
    digest: str
    checked: bool


class Report(NamedTuple):
    """One or more runs of one trace, and what can be said of all."""

    title: str
    subtitle: str
    facts: list[tuple[str, str]]
    notes: list[str]
    runs: list[Run]
    processes: Table | None
    """The processes of a recording of several."""
    finding: str
    """What the comparison says, in a sentence; empty for one run."""
    comparison: Table | None
    together: Figure | None
    version: str
    documents: "list[plain.Document]"


class ToDo(NamedTuple):
    """Something that a user should do."""

    title: str
    """What it is about, and what it should be."""
    what: str
    """What to write; empty: nothing."""
    why: str


class Sheet(NamedTuple):
    """Figures that stand on a page by themselves: curves, or a sweep over designs."""

    title: str
    subtitle: str
    figures: list[Figure]
    table: Table | None
    """The numbers of all figures, where these have no tables of their own."""
    facts: list[tuple[str, str]]
    notes: list[str]
    version: str
    document: dict[str, Any]
    finding: Sequence[str] = ()
    """What was found, in sentences above all else."""
    more: Table | None = None
    """Further rows of `table`, apart so that its first ones stay in sight."""
    to_do: Sequence[ToDo] = ()
    """What a user should do, above all figures."""
    code: Sequence[tuple[str, str]] = ()
    """What is to be written for that: what it is for, and its lines."""
