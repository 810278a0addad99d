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
    """For each row a share between 0 and 1, drawn as a bar behind its last cell; empty: no bars."""
    keys: int = 1
    """The number of first columns that name a row; on a narrow page they become one column."""


class Card(NamedTuple):
    """An important number with a label."""

    label: str
    value: Value
    note: str


class Figure(NamedTuple):
    """A chart's data: its rows, what it shows in words, and the same numbers as a table."""

    title: str
    sentence: str
    rows: list[dict[str, Any]]
    table: Table | None = None
    """`None` if the page has one table for all of its figures."""
    axis: Sequence[tuple[float, str]] = ()
    """Places on the y axis and their labels, where it is not a plain scale."""
    edges: Sequence[float] = ()
    facets: Sequence[str] = ()
    """Names of the charts side by side in this figure, if it has several."""
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
    """The advice, in a sentence; empty if no curve was counted."""
    cards: list[Card]
    switches: Table | None
    """Why a processor went from one program to another, if there were several."""
    tlbs: Table
    memory: Figure | None
    """Memory by use, over time, if the machine has a manager that reports it."""
    page_sizes: Figure | None
    """Mapped memory by page size, over time, where there are several sizes."""
    wished: Table | None
    """Page sizes by region, requested and actual, with reasons, if sizes were requested."""
    wished_more: Table | None
    """Further rows, with fewer bytes, in a table of their own."""
    promotion: str
    """Charges and promotions of on-line promotion; empty if misses are not counted for it."""
    daemon: Figure | None
    """The work of the coalescing daemon over time, if there is one."""
    reservations: Figure | None
    """Reservations made, filled and broken over time, if the manager makes reservations."""
    free: Figure | None
    """Free memory by the size of its blocks."""
    kernel: Figure | None
    """The kernel's cycles by kind of work, if its work has prices."""
    faults: Table | None
    work: Table | None
    processors: Table | None
    """`None` if there is one processor."""
    nodes: Table | None
    """`None` if memory is one node."""
    mmu_cache: Table | None
    spec_tlb: Table | None
    """Predictions of SpecTLBs; `None` if there is no SpecTLB."""
    spaces: Table | None
    """Effects of switches between spaces; `None` if there was one space."""
    nested: Table | None
    caches: Table | None
    regions: Table
    regions_more: Table | None
    """Further regions, with fewer misses, in a table of their own."""
    functions: Table | None
    """`None` if the trace does not record which code an access is from."""
    sites: Table | None
    """`None` if no allocations were marked."""
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
    """One or more runs of one trace, and findings about all of them."""

    title: str
    subtitle: str
    facts: list[tuple[str, str]]
    notes: list[str]
    runs: list[Run]
    processes: Table | None
    """The processes, if the recording has several; otherwise `None`."""
    finding: str
    """The result of the comparison, in a sentence; empty for one run."""
    comparison: Table | None
    together: Figure | None
    version: str
    documents: "list[plain.Document]"


class ToDo(NamedTuple):
    """Something that a user should do."""

    title: str
    """The thing to change, and its new state."""
    what: str
    """The code to write; empty: none."""
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
    """Findings, in sentences at the top of the page."""
    more: Table | None = None
    """Further rows of `table`, in a table of their own."""
    to_do: Sequence[ToDo] = ()
    """Recommendations, above all figures."""
    code: Sequence[tuple[str, str]] = ()
    """The code of the recommendations: what it is for, and its lines."""
