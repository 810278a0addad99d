"""The report as plain data: every number, row and sentence, without HTML."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pagewalk import plain


class Value(NamedTuple):
    """A number as text and as an exact value, with its JSON pointer in the run's document."""

    text: str
    exact: float | None = None
    pointer: str | None = None
    few: bool = False
    """Whether the number was counted from so few events that it is not reliable."""


Cell = Value | str


class Table(NamedTuple):
    """A table. `numeric` says which columns contain numbers."""

    caption: str
    head: list[str]
    rows: list[list[Cell]]
    numeric: list[bool]
    bars: Sequence[float] = ()
    """For each row a share between 0 and 1, which is drawn as a bar behind its last cell. Empty: no
    bars.
    """
    keys: int = 1
    """The number of columns at the left that name a row. On a narrow page they become one
    column.
    """


class Card(NamedTuple):
    """An important number with a label."""

    label: str
    value: Value
    note: str


class Figure(NamedTuple):
    """A chart's data: its rows, a sentence about them, and the same numbers as a table."""

    title: str
    sentence: str
    rows: list[dict[str, Any]]
    table: Table | None = None
    """`None` if the page has one table for all of its figures."""
    axis: Sequence[tuple[float, str]] = ()
    """Positions on the y axis and their labels, if the axis is not a plain scale."""
    edges: Sequence[float] = ()
    facets: Sequence[str] = ()
    """The names of the charts in this figure, if it has several."""
    share: bool = False
    """Whether its values are shares."""


class Part(NamedTuple):
    """One table of a machine's file: its keys, and the source of its numbers."""

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
    """The advice, in a sentence. Empty if no curve was counted."""
    cards: list[Card]
    switches: Table | None
    """If there were several programs: why processors switched from one program to another."""
    tlbs: Table
    memory: Figure | None
    """Memory by use, over time, if the machine has a manager that reports it."""
    page_sizes: Figure | None
    """Mapped memory by page size, over time, if there are several sizes."""
    wished: Table | None
    """Page sizes by region, requested and actual, with reasons, if sizes were requested."""
    wished_more: Table | None
    """Further rows, with fewer bytes, in a table of their own."""
    promotion: str
    """Charges and promotions of on-line promotion. Empty if there is no on-line promotion."""
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
    """`None` if there is only one node of memory."""
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
    """`None` if the trace does not record which code makes an access."""
    sites: Table | None
    """`None` if allocations were not recorded."""
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
    """The report of one or more runs of one trace, with findings about all of them."""

    title: str
    subtitle: str
    facts: list[tuple[str, str]]
    notes: list[str]
    runs: list[Run]
    processes: Table | None
    """The processes, if the recording has several; otherwise `None`."""
    finding: str
    """The result of the comparison, in a sentence. Empty for one run."""
    comparison: Table | None
    together: Figure | None
    version: str
    documents: "list[plain.Document]"


class ToDo(NamedTuple):
    """Something that a user should do."""

    title: str
    """The thing to change, and its new state."""
    what: str
    """The code to write. Empty if there is none."""
    why: str


class Sheet(NamedTuple):
    """A page that consists of figures: curves, or a sweep over designs."""

    title: str
    subtitle: str
    figures: list[Figure]
    table: Table | None
    """The numbers of all figures, if the figures themselves have no tables."""
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
    """The code of the recommendations: its purpose, and its lines."""
