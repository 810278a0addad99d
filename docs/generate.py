"""Writes the reference of results, and their types in Python, from the structures in Rust.

```
 crates/results/src/ -------------------+                 +--> docs/reference/results
 crates/trace: Process, Switches -------+--> structures --+--> python/pagewalk/document.py
 what Python adds (ADDED) --------------+                 +--> python/pagewalk/plain.pyi
```

The structures are the JSON document, field by field, and their comments are its meanings, so that
Rust, Python and the handbook cannot differ: a test compares the output with the files.

`keys.py` writes the keys of machine files and the events of traces, which are made in the same way.

Run it as `make reference`, or `python docs/generate.py --check` to compare only.
"""

import keyword
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import keys
import rust

ROOT = Path(__file__).parents[1]
SOURCES = [
    *sorted(
        (ROOT / "crates/results/src").glob("*.rs"), key=lambda path: path.name.replace("lib", "mod")
    ),
    ROOT / "crates/trace/src/process.rs",
    ROOT / "crates/trace/src/switches.rs",
    *(ROOT / f"crates/smp/src/{name}.rs" for name in ("run", "board", "host")),
    *(ROOT / f"crates/locks/src/{name}.rs" for name in ("stats", "prices")),
]
TOP = "Results"
OTHERS = {
    "Stat": "pagewalk stat --json",
    "Advised": "pagewalk advise --json",
    "Managed": "pagewalk managers --json",
    "Hat": "pagewalk hat --json",
    "HatOnHost": "pagewalk hat --on host --json",
    "SkeletonMade": "pagewalk skeleton --json",
}
"""Documents of other commands, and what writes them."""
NAMED = ("TlbCounts", "CacheCounts")
"""Structures that lists hold by name."""

ADDED = """
/// The native run of the recorded program (`--native`).
pub struct Native {
    /// Version of this document structure.
    pub schema: u32,
    /// The command that was run.
    pub command: Vec<String>,
    /// Wall time in seconds.
    pub wall_seconds: f64,
    /// Time in user mode in seconds.
    pub user_seconds: f64,
    /// Time in the kernel in seconds.
    pub system_seconds: f64,
    /// Page faults that waited for no disk; `None` in recordings of versions that did not count
    /// them.
    pub minor_faults: Option<u64>,
    /// Exit status.
    pub exit_status: u64,
    /// Peak of the program's resident bytes.
    pub resident_bytes_max: u64,
    /// Exit status of the recorded run.
    pub recorded_status: u64,
    /// Whether the native run got the same standard input as the recorded run.
    pub stdin: bool,
    /// Memory by page size at the peak, if it was sampled.
    pub peak: Option<Peak>,
    /// Milliseconds of the program's user time that translation takes; `None` if they cannot be
    /// computed.
    pub translation_ms: Option<Range<f64>>,
    /// The reason why `translation_ms` cannot be computed.
    pub no_ms: Option<String>,
}

/// Memory of a native run at its peak.
pub struct Peak {
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Resident bytes by page size.
    pub by_page_size: BTreeMap<String, u64>,
}

/// Advice on how to reduce the misses, from LRU curves of the whole run.
pub struct Advice {
    /// The advice in a sentence.
    pub sentence: String,
    /// The share of lookups that may miss, not counting first touches, with the number of entries
    /// that `entries` gives.
    pub misses_share: f64,
    /// Loads and stores of the whole run.
    pub lookups: u64,
    /// Entries that a fully associative LRU TLB needs to reach `misses_share`, by page size;
    /// `None`: more than 65536. An estimate if `one_in` is not 1.
    pub entries: BTreeMap<String, Option<u64>>,
    /// Sampling rate by page size: with N, the curve was computed from one page in N; 1: from all
    /// pages.
    pub one_in: BTreeMap<String, u64>,
}

/// Counts of a run and the cycles of each, as `pagewalk stat` shows them.
pub struct Stat {
    /// Version of this document structure.
    pub schema: u32,
    /// Version of Pagewalk that made the document.
    pub pagewalk: String,
    /// The trace that was run.
    pub trace: TraceSummary,
    /// The machine that ran the trace.
    pub machine: MachineSummary,
    /// Events of the program, of translation and of the kernel.
    pub events: Vec<StatEvent>,
    /// Cycles of all events together; `None` if the machine file leaves out latencies.
    pub cycles: Option<Range<f64>>,
    /// Milliseconds of the native run's user time that translation takes, if there was a native run
    /// and they can be computed.
    pub translation_ms: Option<Range<f64>>,
    /// What the run does not model.
    pub not_modelled: Vec<String>,
}

/// An event, how often it occurred, and its cycles.
pub struct StatEvent {
    /// Part that the event's cycles belong to: `program`, `translation` or `kernel`.
    pub part: String,
    /// Name of the event.
    pub name: String,
    /// How often the event occurred; `None` if only its cycles are known.
    pub count: Option<u64>,
    /// Cycles of the event; `None` if they belong to other events, or are not known.
    pub cycles: Option<Range<f64>>,
    /// The event's share of all cycles: the lower bound combines the event's lower bound with
    /// the upper bounds of the others, and the upper bound the reverse.
    pub share: Option<Range<f64>>,
}

/// Programs under every memory manager.
pub struct Managed {
    /// Version of this document structure.
    pub schema: u32,
    /// Version of Pagewalk that made the document.
    pub pagewalk: String,
    /// Name of the machine.
    pub machine: String,
    /// Title of the machine.
    pub title: String,
    /// Settings that changed the machine.
    pub settings: Vec<String>,
    /// Shares of memory that are free and that are wired before the runs (`--aged`); `None`: all
    /// memory is free.
    pub aged: Option<Vec<f64>>,
    /// Requested amount of memory (`--memory`); `None`: the machine's own.
    pub memory: Option<String>,
    /// The memory managers.
    pub kinds: Vec<ManagerKind>,
    /// A table per trace.
    pub traces: Vec<ManagedTrace>,
    /// Notes on the tables.
    pub notes: Vec<String>,
}

/// A memory manager.
pub struct ManagerKind {
    /// The manager's name in the tables.
    pub name: String,
    /// What the manager does, in a sentence.
    pub what: String,
    /// Settings that select the manager.
    pub settings: Vec<String>,
    /// Keys of a machine file that belong to the manager.
    pub keys: Vec<String>,
}

/// A trace under every memory manager.
pub struct ManagedTrace {
    /// The trace that was run.
    pub trace: TraceSummary,
    /// Settings that changed the machine, including memory.
    pub settings: Vec<String>,
    /// Peak of memory in use with base pages and the machine's own memory.
    pub base_peak_bytes: u64,
    /// Whether the machine file is for this computer's processor; `None` if it is not known.
    pub here: Option<bool>,
    /// What the best estimates are based on; `None` if the machine file has no latencies.
    pub how: Option<String>,
    /// A row per manager that ran.
    pub rows: Vec<ManagedRow>,
    /// Managers that could not run, with the reason.
    pub refused: BTreeMap<String, String>,
}

/// A run of a trace under one memory manager.
pub struct ManagedRow {
    /// The manager's name, as in `ManagerKind.name`.
    pub manager: String,
    /// Settings that select the manager.
    pub settings: Vec<String>,
    /// Mapped bytes by page size, at one point in time: the end of the program, or of the trace, at
    /// which the amount of mapped memory was largest.
    pub mapped_by_size: BTreeMap<String, u64>,
    /// Share of the mapped bytes in pages larger than 4K.
    pub large_share: f64,
    /// Pages loaded at faults, by the reason for their size.
    pub why: BTreeMap<String, u64>,
    /// Bytes of memory in pages, at the same point as `mapped_by_size`.
    pub memory_bytes: u64,
    /// `memory_bytes` minus that of the run with base pages; `None` if base pages did not run.
    pub bloat_bytes: Option<i64>,
    /// Bytes in swap, at the same point as `mapped_by_size`.
    pub swapped_bytes: u64,
    /// Lookups that missed every TLB, in the whole run.
    pub tlb_misses: u64,
    /// References of all walks.
    pub references: u64,
    /// Cycles of translation; `None` if the machine file has no latencies.
    pub translation_cycles: Option<Range<f64>>,
    /// The best estimate in the range `translation_cycles`, from an estimate of how many misses
    /// overlap.
    pub translation_best_cycles: Option<f64>,
    /// Cycles of the kernel's work; `None` if the machine has no prices for it.
    pub kernel_cycles: Option<u64>,
    /// Cycles of waiting for disks.
    pub io_cycles: u64,
    /// Page faults.
    pub faults: u64,
    /// The kernel's work by kind.
    pub work: BTreeMap<String, u64>,
    /// Runs of adjacent pages in adjacent frames, at the same point as `mapped_by_size`.
    pub runs: Vec<RunsOfLength>,
}

/// Loads on processors in virtual time, under several locking schemes.
pub struct Hat {
    /// Version of this document structure.
    pub schema: u32,
    /// Version of Pagewalk that made the document.
    pub pagewalk: String,
    /// Always `model`.
    pub on: String,
    /// Settings of the command.
    pub settings: serde_json::Value,
    /// The runs, one per combination of settings.
    pub runs: Vec<HatOutcome>,
    /// What is not modelled.
    pub not_modelled: Vec<String>,
}

/// Loads on threads of this host, under several locking schemes.
pub struct HatOnHost {
    /// Version of this document structure.
    pub schema: u32,
    /// Version of Pagewalk that made the document.
    pub pagewalk: String,
    /// Always `host`.
    pub on: String,
    /// Settings of the command.
    pub settings: serde_json::Value,
    /// The runs, one per combination of settings.
    pub runs: Vec<HostOutcome>,
    /// What is not modelled.
    pub not_modelled: Vec<String>,
}

/// A skeleton that was written: the memory-management requests of recorded processes.
pub struct SkeletonMade {
    /// Version of this document structure.
    pub schema: u32,
    /// Path of the file.
    pub path: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// The processes, in order of their numbers.
    pub processes: Vec<SkeletonProcess>,
    /// Files that the processes map.
    pub files: u64,
    /// Calls, first touches, forks and intervals of work of all processes.
    pub steps: u64,
    /// Instructions of all processes.
    pub instructions: u64,
    /// Warnings about the trace.
    pub warnings: Vec<String>,
}

/// A process of a skeleton.
pub struct SkeletonProcess {
    /// Program that the process ran last.
    pub name: String,
    /// Calls, first touches, forks and intervals of work.
    pub steps: u64,
}

/// Page sizes that a program should have, from runs by `pagewalk advise`.
pub struct Advised {
    /// Version of this document structure.
    pub schema: u32,
    /// Version of Pagewalk that made the document.
    pub pagewalk: String,
    /// The trace that was run.
    pub trace: TraceSummary,
    /// The machine, without requested page sizes.
    pub machine: MachineSummary,
    /// How much memory the advice may add at most, as a share of `base.memory_bytes`.
    pub memory_added_max: f64,
    /// Whether each region was run alone at each size (`--exact`).
    pub exact: bool,
    /// Number of runs of the trace, including the one with base pages.
    pub runs: u64,
    /// Whether the machine file is for this computer's processor; `None` if it is not known.
    pub here: Option<bool>,
    /// What the best estimates are based on; `None` if the machine file has no latencies.
    pub how: Option<String>,
    /// The run with base pages alone.
    pub base: PlacedRun,
    /// Regions that were tried, and regions that cannot have large pages on Linux; most misses
    /// first.
    pub regions: Vec<AdvisedRegion>,
    /// Number of regions that were not tried. A region is not tried if its group has fewer than 0.1
    /// % of the misses, if it lies in a region that was tried, or if it has no room for a page of
    /// the smallest size above the base page.
    pub regions_left_out: u64,
    /// Misses of the regions that were not tried, including first touches.
    pub misses_left_out: u64,
    /// Runs in which all tried regions have one page size, by that size. If there are more than two
    /// larger sizes and `exact` is false, only a middle one and the largest are run.
    pub uniform: BTreeMap<String, PlacedRun>,
    /// Sets of regions with page sizes that were run, in order of the memory that they add. Each
    /// set gains more than every other set that adds at most as much memory.
    pub sets: Vec<PlacedRun>,
    /// The advised set; `None`: base pages.
    pub best: Option<PlacedRun>,
    /// Notes on the lines in `write`.
    pub notes: Vec<String>,
}

/// Best estimate of translation's time, within `time.share`.
pub struct Estimate {
    /// Share of the time in user mode.
    pub share: f64,
    /// Milliseconds of the native run; `None` without a usable native run.
    pub ms: Option<f64>,
    /// What the estimate is based on.
    pub how: String,
    /// Whether the machine file is for this computer's processor; `None` if it is not known.
    pub here: Option<bool>,
}

/// A run with a set of place rules.
pub struct PlacedRun {
    /// The place rules of the run.
    pub rules: Vec<String>,
    /// Lookups that missed every TLB, not counting first touches.
    pub misses: u64,
    /// First touches of a page, which miss every TLB.
    pub cold_misses: u64,
    /// Peak of memory in use, including page tables.
    pub memory_bytes: u64,
    /// `memory_bytes` minus that of the run with base pages.
    pub memory_added_bytes: i64,
    /// Cycles of translation; `None` if the machine file has no latencies.
    pub translation_cycles: Option<Range<f64>>,
    /// Translation cycles saved, compared with base pages.
    pub gain_cycles: Option<Range<f64>>,
    /// Translation cycles saved, in milliseconds of the native run; `None` without a native run.
    pub gain_ms: Option<Range<f64>>,
    /// Share of the user time with base pages that is saved.
    pub gain_share: Option<Range<f64>>,
    /// The range of shares in which the gain is likely to be measured, computed from the time of
    /// the native run; `None` without a native run, or if the machine file is not calibrated.
    pub gain_likely: Option<Range<f64>>,
    /// The best estimate in the range `gain_share`, from an estimate of how many misses
    /// overlap.
    pub gain_best: Option<f64>,
    /// `gain_best` in milliseconds of the native run; `None` without a native run.
    pub gain_best_ms: Option<f64>,
    /// The predicted gain of CPU time, with page faults; `None` without a native run, if the
    /// machine file is not calibrated, or with pages that are larger than the base pages and are
    /// not of 2M.
    pub gain_of_cpu: Option<GainOfCpu>,
    /// Kernel cycles saved in faults, switches and shootdowns.
    pub kernel_gain_cycles: Option<f64>,
    /// Pages for which a size was requested, by the reason for their actual size.
    pub why: BTreeMap<String, u64>,
}

/// The predicted gain of CPU time, in user mode and in the kernel, as a share.
pub struct GainOfCpu {
    /// The lower end of the range in which the gain is likely to be measured.
    pub lo: f64,
    /// The upper end of the range in which the gain is likely to be measured.
    pub hi: f64,
    /// The best estimate: the middle of the range from `lo` to `hi`.
    pub best: f64,
    /// Milliseconds of the native run that translation contributes to `best`.
    pub translation_ms: f64,
    /// Milliseconds of the native run that page faults contribute to `best`.
    pub faults_ms: f64,
}

/// Counts of a group of regions in the run in which all groups had one page size.
pub struct RegionsAtSize {
    /// Lookups that missed every TLB, not counting first touches.
    pub misses: u64,
    /// First touches of a page.
    pub cold_misses: u64,
    /// Pages larger than base pages that were first touched in the group.
    pub large_pages: u64,
    /// Memory added compared with base pages, estimated from the touched pages.
    pub memory_added_bytes: i64,
    /// The cost that the group saves at this size, as a share of the whole cost with base pages.
    /// The cost is that of translation or, if `gain_of_cpu` is known, that of translation and page
    /// faults.
    pub saved_share: f64,
}

/// A region, and the page size that is advised for it.
pub struct AdvisedRegion {
    /// Name of the region in results.
    pub name: String,
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// How a place rule names the region.
    pub place: String,
    /// What backs the region, as in `RegionCounts`.
    pub backing: Option<String>,
    /// Lookups in the region that missed every TLB with base pages, not counting first touches.
    pub misses: u64,
    /// First touches of base pages in the region.
    pub cold_misses: u64,
    /// Number of the region's group. Regions of a group have equal length, allocation site and
    /// backing, and get one page size. `None` if the region cannot have large pages on Linux.
    pub group: Option<u64>,
    /// Counts of the group in runs in which all groups had one page size, by this size; empty with
    /// `exact`.
    pub together: BTreeMap<String, RegionsAtSize>,
    /// Runs in which only this region had a larger size, by that size; empty without `exact`, and
    /// if the region cannot have large pages on Linux.
    pub alone: BTreeMap<String, PlacedRun>,
    /// The advised size; `None`: base pages.
    pub size: Option<String>,
    /// The reason, in words.
    pub reason: String,
    /// What to write in the program to get the advised size, and where; `None` if no size is
    /// advised.
    pub write: Option<String>,
    /// A C function or C++ class that `write` uses, if it needs more than a call.
    pub code: Option<String>,
}
"""
EXTRA = {
    "Results": [
        ("native", "Option<Native>", "The native run of the recorded program, if there was one."),
        ("advice", "Option<Advice>", "Advice on how to reduce the misses, if it was requested."),
        (
            "estimate",
            "Option<Estimate>",
            "Best estimate of translation's time; `None` if the machine file has no latencies.",
        ),
    ],
    "TraceSummary": [("name", "String", "Name of the trace as given on the command line.")],
}

IDENTITIES = {
    "HitsAndMisses.lookups": "`hits + misses`",
    "HatOutcome.time": "the sum of its fields is `cpus * cycles`",
    "TlbCounts.lookups": "`hits + misses`; for a second-level TLB: the misses of the first-level "
    "TLBs in front of it",
    "Walks.walks": "misses of the last-level TLBs",
    "Walks.references": "sum of `by_level[].references`, including the host's",
    "LevelCounts.references": "sum of `served`",
    "RegionCounts.misses": "sum of the misses in the region's rows of `map.owners`; the sum over "
    "all regions is the number of misses of the last-level TLBs",
    "RegionCounts.lookups": "sum of `by_kind`; the sum over all regions is the number of lookups "
    "of first-level TLBs",
    "MissOrigins.misses": "the sum of the misses in a region's rows is the region's `misses`",
    "SiteCounts.misses": "sum of the misses in the site's rows of `origins.misses`",
    "Timeline.misses": "the sum over all bins is the number of misses of the last-level TLBs",
    "MemoryCounts.frames_used_bytes": "`mapped_bytes + table_bytes + aged_bytes`",
    "Faults.first_touch": "`walks.cold`, if the machine has a page table",
    "ShootdownCounts.received": "the sum over all processors is the sum of `asked`",
}


@dataclass
class Field:
    """A field of the document."""

    name: str
    kind: str
    meaning: str


@dataclass
class Structure:
    """An object of the document."""

    name: str
    meaning: str
    fields: list[Field] = field(default_factory=list)


def structures() -> dict[str, Structure]:
    """The structures that results have, the document itself first."""
    text = "\n".join([*(path.read_text() for path in SOURCES), ADDED])
    bodies = {name: (rust.said(said), body) for said, _, name, body in rust.STRUCT.findall(text)}
    made: dict[str, Structure] = {}

    def fields(name: str) -> list[Field]:
        found = []
        for meaning, attributes, called, kind in rust.FIELD.findall(bodies[name][1] + "\n"):
            if "serde(skip)" in attributes:
                continue
            if "flatten" in attributes:
                found += fields(kind.split("::")[-1])
            else:
                found.append(Field(called, kind, rust.said(meaning)))
        return found + [Field(*extra) for extra in EXTRA.get(name, [])]

    def add(name: str) -> None:
        if name in made or name not in bodies:
            return
        made[name] = Structure(name, bodies[name][0], fields(name))
        for one in made[name].fields:
            for part in re.findall(r"\w+", one.kind):
                add(part)

    for name in (TOP, *OTHERS):
        add(name)
    return made


PLAIN = {
    "String": "str", "&'static str": "str", "trace::Arch": "str", "Arch": "str",
    "trace::Filter": "str", "bool": "bool", "f64": "float", "serde_json::Value": "dict[str, Any]",
}  # fmt: skip


def python(kind: str) -> str:
    """A type of Rust as one of Python."""
    kind = kind.strip()
    if kind in PLAIN:
        return PLAIN[kind]
    if re.fullmatch(r"u\d+|i\d+|usize", kind):
        return "int"
    if kind == "T":
        return "T"
    if kind.startswith("("):
        return "list[int | None]" if "Option" in kind else "list[int]"
    outer, _, inner = kind.partition("<")
    inner = inner.removesuffix(">")
    if outer == "Vec":
        return f"Named[{python(inner)}]" if inner in NAMED else f"list[{python(inner)}]"
    if outer == "Option":
        return f"{python(inner)} | None"
    if outer == "BTreeMap":
        return f"dict[str, {python(inner.partition(',')[2])}]"
    name = outer.split("::")[-1]
    return f"{name}[{python(inner)}]" if inner else name


def module(found: dict[str, Structure]) -> str:
    """The Python module of the types."""
    lines = [
        '"""The results document with types: `make reference` writes it from the Rust structures.',
        "",
        "A record reads from the plain data of the document, which stays as it is.",
        '"""',
        "",
        "from typing import Any, Generic, TypeVar",
        "",
        "from pagewalk.records import Named, Record",
        "",
        'T = TypeVar("T")',
    ]
    for one in _needed_first(found):
        generic = any(python(entry.kind) == "T" for entry in one.fields)
        name = "Document" if one.name == TOP else one.name
        bases = "Record, Generic[T]" if generic else "Record"
        lines += ["", "", f"class {name}({bases}):", *_doc(one.meaning)]
        for entry in one.fields:
            name = f"{entry.name}_" if keyword.iskeyword(entry.name) else entry.name
            lines += ["", f"    {name}: {python(entry.kind)}", *_doc(entry.meaning)]
    return "\n".join(lines) + "\n"


def plain(found: dict[str, Structure]) -> str:
    """The types of the document itself, as dictionaries and lists: for type checkers alone."""
    lines = [
        '"""The results document as it is, dictionaries and lists: `make reference` writes it.',
        "",
        "It is for type checkers: reports take documents as these types, so that a field that was",
        "renamed in Rust is an error in each of them. `pagewalk.document` says what fields mean.",
        '"""',
        "",
        "from typing import Any, Generic, TypedDict, TypeVar",
        "",
        'T = TypeVar("T")',
    ]
    for one in _needed_first(found):
        types = {entry.name: python(entry.kind).replace("Named[", "list[") for entry in one.fields}
        name = "Document" if one.name == TOP else one.name
        if any(keyword.iskeyword(key) for key in types):
            # The syntax of a class has no such field.
            body = "".join(f'        "{key}": {kind},\n' for key, kind in types.items())
            lines += ["", f"{name} = TypedDict(", f'    "{name}",', "    {", body + "    },", ")"]
            continue
        bases = "TypedDict, Generic[T]" if "T" in types.values() else "TypedDict"
        lines += ["", f"class {name}({bases}):"]
        lines += [f"    {key}: {kind}" for key, kind in types.items()]
    return "\n".join(lines) + "\n"


def _needed_first(found: dict[str, Structure]) -> list[Structure]:
    """The structures, each after those that its fields have."""
    order: dict[str, Structure] = {}

    def visit(one: Structure) -> None:
        for entry in one.fields:
            for part in re.findall(r"\w+", entry.kind):
                if part in found and part not in order:
                    visit(found[part])
        order[one.name] = one

    for name in (TOP, *OTHERS):
        visit(found[name])
    return list(order.values())


def _doc(meaning: str) -> list[str]:
    if len(meaning) + 10 <= 100:
        return [f'    """{meaning}"""']
    # The first sentence stands by itself, or as much of it as fits into a line.
    head, dot, tail = meaning.partition(". ")
    if dot and len(head) < 90:
        rest = textwrap.wrap(tail, 96, break_on_hyphens=False)
        return [f'    """{head}.', "", *(f"    {line}" for line in rest), '    """']
    first, *rest = textwrap.wrap(meaning, 93, break_on_hyphens=False)
    return [f'    """{first}', *(f"    {line}" for line in rest), '    """']


UNITS = {
    "bytes": "start bytes bytes_min offset anonymous file shared tables free reserved swapped"
    " resident_bytes_max by_page_size mapped_by_size table_bytes_peak GroupCounts.current"
    " GroupCounts.peak swap_current",
    "ns": "nanoseconds control_nanoseconds",
    "cycles": "time cycles_per_access by_work SwitchCycles.mean SwitchCycles.worst",
    "cycles per operation": "wait_cycles_per_operation",
    "operations": "operations",
    "operations per million cycles": "throughput",
    "ratio": "control_scaling scaling predicted",
    "share": "share misses_share contended_share memory_added_max gain_share gain_likely gain_best"
    " large_share saved_share GainOfCpu.lo GainOfCpu.hi GainOfCpu.best Managed.aged",
    "instructions": "instructions quantum_instructions handler_instructions",
    "micro-ops": "uops",
    "accesses": "page_crossings from ManagerCounts.unexplained protection",
    "fetches": "fetches delivered",
    "pages": "pages base_pages pages_by_size moved placed unplaced first_touch first_touches"
    " returned why large_pages nr_hugepages free_hugepages resv_hugepages surplus_hugepages"
    " PoolCounts.asked PoolCounts.taken pgsteal pswpin pswpout sampled hot recovered exchanged"
    " folios_split pages_filled cache_pages one_in PromotionsOfSize.promoted"
    " MigrationCounts.refused",
    "frames": "lent marks_cleared PageBlockCounts.stolen",
    "references": "references cold_references walk_references references_per_walk served"
    " critical_references overlapped filter_reads tag_reads",
    "lookups": "lookups hits misses local_misses remote_misses cold_misses l1_misses denied"
    " invalid table_hits nested_misses tlb_misses misses_left_out threshold_misses charged"
    " tag_hits filtered RegionCounts.by_kind",
    "walks": "walks cold splintered none none_faulted",
    "entries": "entries flushed evictions needed held entries_purged ptes",
    "lines": "filter_lines tag_lines lines_built lines_delivered lines_emptied reads read_misses"
    " writes write_misses writebacks CacheFlushes.looked CacheFlushes.lines CacheFlushes.written",
    "ways": "ways",
    "faults": "faults minor_faults bus_errors",
    "blocks": "free_by_size by_type claimed CompactionCounts.blocks DeviceCounts.blocks"
    " ChosenBlocks.filled bins prezeroed KhugepagedCounts.results RangerCounts.promoted",
    "ranges": "ranges",
    "mappings": "PoolCounts.mapped PoolCounts.refused",
    "regions": "regions_left_out",
    "runs": "runs",
    "rounds": "judged_rounds",
    "spaces": "spaces small cache_spaces SmallSpaceCounts.promoted",
    "slots": "slots",
    "files": "files",
    "steps": "steps",
    "threads": "threads",
    "processors": "cpus",
    "tenths": "distances",
    "number": "processors schema number pid parent access thread line site own instruction level in"
    " exit_status recorded_status owners group space",
}
"""Units of fields whose last word is none, by the field's name, or by structure and name."""


def unit(structure: str, name: str, kind: str) -> str:
    """The unit of a field with numbers: from its name, from `UNITS`, or `times`."""
    if kind.startswith("str"):
        return ""
    last = name.rpartition("_")[2]
    if last in ("bytes", "cycles", "seconds", "ms", "ns", "accesses", "bits"):
        return last
    if not re.search(r"\b(int|float)\b", kind):
        return ""
    units = {each: unit for unit, names in UNITS.items() for each in names.split()}
    return units.get(f"{structure}.{name}", units.get(name, "times"))


PAGES = {
    "run": (
        "Results of a run",
        "The document that `pagewalk run --json` writes, with the run's trace and machine.",
        "Results TraceSummary Process Program LiveSummary Switches MachineSummary",
    ),
    "tlbs": (
        "Results: TLBs",
        "Counts of the TLBs, and of the structures that are looked up together with them.",
        "TlbCounts HitsAndMisses SizeCounts BlockCounts ByKind RangeTlbCounts SpecTlbCounts"
        " SpecOutcome SpaceSwitches SmallSpaceCounts SwitchCycles TraceCacheCounts",
    ),
    "walks": (
        "Results: walks and caches",
        "The references of page-table walks, and the caches that served them.",
        "Walks LevelCounts MmuCacheCounts MmuCacheArray MmuCacheLevel NestedCounts RestSegCounts"
        " CacheCounts CacheTraffic CacheFlushes",
    ),
    "regions": (
        "Results: regions, code and history",
        "The misses by region of the address space, by place in the code, and over time.",
        "RegionCounts MissOrigins CodePlace SiteCounts Timeline MissMap",
    ),
    "time": (
        "Results: time and advice",
        "The cycles of the counted events, the native run, and advice on how to save cycles.",
        "Time Range KernelTime Estimate Native Peak Advice",
    ),
    "manager": (
        "Results: the memory manager",
        "What the operating system did: faults, page sizes and the reasons for them, daemons.",
        "Faults ManagerCounts SizeReasons SizeDecision DaemonCounts LevelPasses DaemonSample"
        " DeviceCounts PromotionCounts PromotionsOfSize ReservationCounts ReservationsOfSize"
        " ChangedSetting EndOfProgram RunsOfLength RegionSizes",
    ),
    "linux": (
        "Results: Linux",
        "Further counts of the managers `linux`, `ingens`, `hawkeye` and `translation-ranger`.",
        "LinuxCounts KhugepagedCounts CompactionCounts PageBlockCounts PoolCounts GroupCounts "
        "ChosenBlocks RangerCounts",
    ),
    "memory": (
        "Results: memory and processors",
        "How memory was used, nodes of memory, and what each processor did.",
        "MemoryCounts KindBytes MemorySample ReservationSample NumaCounts NodeCounts"
        " MigrationCounts ShootdownCounts ProcessorCounts",
    ),
    "stat": (
        "Document of pagewalk stat",
        "The document that `pagewalk stat --json` writes.",
        "Stat StatEvent",
    ),
    "advise": (
        "Document of pagewalk advise",
        "The document that `pagewalk advise --json` writes.",
        "Advised PlacedRun GainOfCpu AdvisedRegion RegionsAtSize",
    ),
    "managers": (
        "Document of pagewalk managers",
        "The document that `pagewalk managers --json` writes.",
        "Managed ManagerKind ManagedTrace ManagedRow",
    ),
    "hat": (
        "Documents of pagewalk hat",
        "The documents that `pagewalk hat --json` writes, for virtual time and for this host.",
        "Hat HatOutcome TimeUse LockShare Histogram ShootCounts ContextUse HatOnHost HostOutcome"
        " HostPrices",
    ),
    "skeleton": (
        "Document of pagewalk skeleton",
        "The document that `pagewalk skeleton --json` writes.",
        "SkeletonMade SkeletonProcess",
    ),
}
"""Pages of the reference: title, what it is about, and its structures."""
PLACE = {name: key for key, (_, _, names) in PAGES.items() for name in names.split()}
"""On which page each structure is."""


def pages(found: dict[str, Structure]) -> dict[Path, str]:
    """The pages of the handbook: an index, and a page for each document or part of it."""
    assert set(PLACE) == set(found), f"PAGES differs by {set(PLACE) ^ set(found)}"
    folder = ROOT / "docs" / "reference"
    made = {folder / "results" / f"{key}.md": page(key, found) for key in PAGES}
    made[folder / "results.md"] = index()
    return made


def index() -> str:
    """The page that says what is on which page."""
    lines = [
        "# Results, field by field",
        "",
        "These pages list the fields of the document that `pagewalk run --json` writes and",
        "`Results.data` holds, and of the documents of other commands. Fields are attributes in",
        'Python under the same names, with types: `results.tlbs["l1d"].misses`. Counts are exact.',
        "The unit `times` marks a count of occurrences, `number` an index or identifier, and",
        "`share` a value from 0 to 1. *Identity* says what the field, or a sum of it,",
        "equals after every run.",
        "",
        "| page | what it has | structures |",
        "|---|---|---|",
    ]
    for key, (title, about, names) in PAGES.items():
        listed = ", ".join(
            f"[`{name}`](results/{key}.md#{_anchor(name)})" for name in names.split()
        )
        lines.append(f"| [{title}](results/{key}.md) | {about} | {listed} |")
    lines += ["", "These pages are generated from the structures in Rust by `make reference`."]
    return "\n".join(lines) + "\n"


def page(key: str, found: dict[str, Structure]) -> str:
    """A page of the reference."""
    title, about, names = PAGES[key]
    explained = "[All documents](../results.md) explains the units and identities."
    lines = [f"# {title}", "", f"{about} {explained}"]
    for one in (found[name] for name in names.split()):
        written = f" `{OTHERS[one.name]}` writes this document." if one.name in OTHERS else ""
        lines += ["", f"## {_heading(one.name)}", "", one.meaning + written, ""]
        lines += ["| field | type | unit | meaning | identity |", "|---|---|---|---|---|"]
        for entry in one.fields:
            kind = python(entry.kind).replace("|", "or")
            identity = IDENTITIES.get(f"{one.name}.{entry.name}", "")
            meaning = entry.meaning.replace("|", "\\|")
            shown = _linked(kind, key)
            row = [f"`{entry.name}`", shown, unit(one.name, entry.name, kind), meaning, identity]
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _heading(name: str) -> str:
    return "The document" if name == TOP else name


def _anchor(name: str) -> str:
    return _heading(name).lower().replace(" ", "-")


def _linked(kind: str, key: str) -> str:
    """A type, which leads to where its structure is."""
    inner = next((part for part in re.findall(r"\w+", kind) if part in PLACE), None)
    if inner is None:
        return f"`{kind}`"
    other = "" if PLACE[inner] == key else f"{PLACE[inner]}.md"
    return f"[`{kind}`]({other}#{_anchor(inner)})"


def made() -> dict[Path, str]:
    """The files and what should be in them."""
    found = structures()
    return {
        **pages(found),
        **keys.made(),
        ROOT / "python/pagewalk/document.py": module(found),
        ROOT / "python/pagewalk/plain.pyi": plain(found),
    }


def main() -> int:
    """Writes the files, or compares them."""
    stale = [path for path, text in made().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what `make reference` writes")
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made()[path])
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
