"""The advice of `pagewalk advise`, as text and as a page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import here, text
from pagewalk.report.model import Cell, Figure, Sheet, Table, ToDo

if TYPE_CHECKING:
    from pagewalk import plain
    from pagewalk.report.charts import Chart

_TOGETHER = ["misses", "first touches", "large pages", "memory added", "saved"]
_HEAD = ["misses", "first touches", "memory added", "cycles gained", "ms gained"]


def summary(advised: "plain.Advised") -> str:
    """Text for a terminal: the advice, the lines of code to write, and the numbers behind it."""
    large = [alike for alike in groups(advised) if alike[0]["size"] is not None]
    small = [alike for alike in groups(advised) if alike[0]["size"] is None]
    parts = [text.paragraph(headline(advised), "", "  ")]
    if large:
        parts.append("\n".join(["What to write", *_lines(large)]))
    for code, names in codes(advised):
        shown = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
        parts.append(f"{text.paragraph('The code for ' + ', '.join(names), '', '  ')}\n\n{shown}")
    if small:
        parts.append("\n".join(["Left with base pages", *_lines(small)]))
    parts.append(_plain(sets(advised)))
    if not advised["exact"]:
        parts.append(_plain(together(advised), keys=2))
    parts.append(_plain(alone(advised), keys=2))
    notes = [text.paragraph(note, "  ", "  ") for note in (*left_out(advised), *advised["notes"])]
    return "\n\n".join([*parts, "\n".join(["Notes", *notes])])


def _lines(groups_: "Sequence[Sequence[plain.AdvisedRegion]]") -> list[str]:
    """Each group with its size, the reason, and the code to write, if any."""
    lines = []
    for alike in groups_:
        region = alike[0]
        said = f"{called(alike)}: {region['size'] or 'base pages'}; {region['reason']}"
        lines.append(text.paragraph(said, "  ", "  "))
        if region["write"] is not None:
            lines.append(text.paragraph(region["write"], "    ", "  "))
    return lines


def shown(advised: "plain.Advised") -> Table:
    """The table for people. It has each group or, with `exact`, each region at each size."""
    return alone(advised) if advised["exact"] else together(advised)


def charts(advised: "plain.Advised") -> "dict[str, Chart]":
    """The chart of gain and memory. No chart if no set was tried."""
    figure = _figure(advised)
    if not figure.rows:
        return {}
    return {"gain-by-memory": chart(figure, advised["base"]["translation_cycles"] is not None)}


def render(advised: "plain.Advised") -> str:
    """The page, as the text of an HTML file."""
    from pagewalk.report import page
    from pagewalk.report.data import trace_facts

    figure = _figure(advised)
    sheet = Sheet(
        title=f"{advised['trace']['name']}: which pages it should have",
        subtitle=f"{advised['machine']['title']}; each set was run",
        figures=[figure],
        table=shown(advised),
        facts=trace_facts(advised["trace"]),
        notes=[*left_out(advised), *advised["notes"]],
        version=advised["pagewalk"],
        document=dict(advised),
        finding=[headline(advised)],
        to_do=to_write(advised),
        code=[(f"The code for {', '.join(names)}", code) for code, names in codes(advised)],
    )
    cycles = advised["base"]["translation_cycles"] is not None
    return page.render_sheet(sheet, [[chart(figure, cycles)]])


def _figure(advised: "plain.Advised") -> Figure:
    """The gain over the added memory, with a point for each set of page sizes."""
    rows: list[dict[str, Any]] = [
        {
            "memory": run["memory_added_bytes"],
            "gain": run["gain_cycles"]["hi"] if run["gain_cycles"] else saved(advised, run),
            "rules": ", ".join(run["rules"]),
            "which": "advised" if run == advised["best"] else "tried",
        }
        for run in advised["sets"]
    ]
    if rows:
        # The axes of a chart with a single set would show nothing.
        base = {"memory": 0, "gain": 0, "rules": "", "which": "base pages"}
        rows.insert(0, base)
    cycles = advised["base"]["translation_cycles"] is not None
    sentence = "Each point is a set of page sizes: how much memory it adds, and " + (
        "how many cycles it saves if every walk is waited for." if cycles else "what it saves."
    )
    return Figure("Gain against memory", sentence, rows, sets(advised))


def to_write(advised: "plain.Advised") -> list[ToDo]:
    """The lines to write for each region, with reasons."""
    return [
        ToDo(
            f"{called(alike)}: {alike[0]['size'] or 'base pages'}",
            alike[0]["write"] or "",
            alike[0]["reason"],
        )
        for alike in groups(advised)
    ]


def groups(advised: "plain.Advised") -> "list[list[plain.AdvisedRegion]]":
    """The regions by group, most misses first. A region that cannot have large pages is alone."""
    found: dict[Any, list[plain.AdvisedRegion]] = {}
    for at, region in enumerate(advised["regions"]):
        key = ("alone", at) if region["group"] is None else region["group"]
        found.setdefault(key, []).append(region)
    return list(found.values())


def called(alike: "Sequence[plain.AdvisedRegion]") -> str:
    """The common name of a group's regions."""
    more = len(alike) - 1
    return alike[0]["name"] + (f" and {more} alike" if more else "")


def left_out(advised: "plain.Advised") -> list[str]:
    """Notes: the machine of the numbers, and the share of misses in regions that were not tried."""
    base, count = advised["base"], advised["regions_left_out"]
    share = advised["misses_left_out"] / max(base["misses"] + base["cold_misses"], 1)
    less = text.percent(share)
    name = advised["machine"]["name"]
    whose = f"Cycles and times are for {here.said(name, advised['here'])}."
    how = [f"Best estimates: {advised['how']}."] if advised["how"] is not None else []
    return [whose, *how] + (
        [
            f"{count} regions with {less} of the misses were not tried: each has, with those that "
            "are like it, fewer than 0.1 % of them, or no room for a larger page."
        ]
        if count
        else []
    )


def codes(advised: "plain.Advised") -> list[tuple[str, list[str]]]:
    """The functions and classes to write, each with the regions for which it is used."""
    found: dict[str, list[str]] = {}
    for region in advised["regions"]:
        if region["code"] is not None:
            found.setdefault(region["code"], []).append(region["name"])
    return list(found.items())


def chart(figure: Figure, cycles: bool) -> "Chart":
    """Gain over memory added, a point per set."""
    import altair as alt

    from pagewalk.report.charts import SI, distinct, inline, legend, sized

    gained = "cycles gained" if cycles else "misses less"
    power = 20 if any(abs(row["memory"]) >= 1 << 20 for row in figure.rows) else 10
    added = f"{'MiB' if power == 20 else 'KiB'} added"
    rows = [{**row, "memory": row["memory"] / (1 << power)} for row in figure.rows]
    kinds = sorted({row["which"] for row in rows})
    return sized(
        alt.Chart(inline(rows))
        .mark_point(size=70, filled=True)
        .encode(
            x=alt.X("memory:Q").title(added).axis(grid=False, tickCount=5, labelOverlap=True),
            y=alt.Y("gain:Q").title(gained).axis(minExtent=44, labelExpr=SI),
            color=alt.Color("which:N").title(None).scale(domain=kinds).legend(legend(kinds)),
            shape=distinct("which", kinds)["shape"],
            tooltip=[
                alt.Tooltip("rules:N"),
                alt.Tooltip("memory:Q", title=added, format=".3g"),
                alt.Tooltip("gain:Q", title=gained, format=".4s"),
            ],
        ),
        240,
    )


def headline(advised: "plain.Advised") -> str:
    """The advice, in a sentence."""
    best, name = advised["best"], advised["trace"]["name"]
    sizes = [size for one in advised["regions"] for size in one["together"]]
    obtained = [at["large_pages"] for one in advised["regions"] for at in one["together"].values()]
    if best is None and sizes and not any(obtained):
        size = min(sizes, key=text.bytes_of)
        return (
            f"{name} on {advised['machine']['name']}: no page of {size} fits in any region where "
            f"the trace has it, so that none was tried. --spread {size} puts mappings at multiples "
            f"of {size}, as Linux does since 6.7 with those that are as large."
        )
    if best is None:
        return f"{name} on {advised['machine']['name']}: base pages are as good as any."
    large = [alike for alike in groups(advised) if alike[0]["size"] is not None]
    which = ", ".join(f"{alike[0]['size']} for {called(alike)}" for alike in large)
    whole = advised["base"]["misses"] + advised["base"]["cold_misses"]
    less = text.percent(saved(advised, best) / max(whole, 1))
    gain = f", {_cycles(best)} cycles" if best["gain_cycles"] else ""
    ms = f", {_ms(best)} ms" if best["gain_ms"] else ""
    if (cpu := best["gain_of_cpu"]) is not None:
        gain, ms = f", {_of_cpu(cpu)}", ""
    elif best["gain_best"] is not None and best["gain_share"] is not None:
        span = text.span(best["gain_share"], text.percent)
        gain += f", {span} of the time in user mode (best estimate {_best(best)}"
        if best["gain_likely"] is not None:
            gain += f", likely {_points(best['gain_likely'])}"
        gain += "; the most if every walk is waited for)"
    added = text.size(max(best["memory_added_bytes"], 0))
    return (
        f"{name} on {advised['machine']['name']}: {which}. That saves {less} of the misses{gain}"
        f"{ms} and adds {added} of memory."
    )


def saved(advised: "plain.Advised", run: "plain.PlacedRun") -> int:
    """The number of misses that a run saves compared with base pages, including first touches."""
    base = advised["base"]
    return int(base["misses"] + base["cold_misses"] - run["misses"] - run["cold_misses"])


def together(advised: "plain.Advised") -> Table:
    """The counts of each group in the runs in which all groups had the same size."""
    rows = []
    for alike in groups(advised):
        for size, at in sorted(alike[0]["together"].items(), key=lambda one: text.bytes_of(one[0])):
            cells = [
                text.count(at["misses"]),
                text.count(at["cold_misses"]),
                text.count(at["large_pages"]),
                text.size(at["memory_added_bytes"]),
                text.percent(at["saved_share"]),
            ]
            rows.append([called(alike), size, *cells])
    cells_: list[list[Cell]] = [list(row) for row in rows]
    return Table(
        "What each counts where all have one page size; saved: of the cost of base pages",
        ["Regions, all at one size", "pages", *_TOGETHER],
        cells_,
        [False, True, *[True] * len(_TOGETHER)],
    )


def alone(advised: "plain.Advised") -> Table:
    """Each region alone at each size, below the run with base pages; then all at one size."""
    rows = [["base pages", "", *_cells(advised["base"])]]
    for region in advised["regions"]:
        name = region["name"]
        rows += [[name, size, *_cells(run)] for size, run in _by_size(region["alone"])]
    rows += [["all of these", size, *_cells(run)] for size, run in _by_size(advised["uniform"])]
    cells: list[list[Cell]] = [list(row) for row in rows]
    return Table(
        "Runs with one region at a page size",
        ["One region alone" if advised["exact"] else "Runs", "pages", *_HEAD],
        cells,
        [False, True, *[True] * len(_HEAD)],
    )


def sets(advised: "plain.Advised") -> Table:
    """A table of the sets that gain more than every set that needs no more memory."""
    group_of = {region["place"]: at for at, alike in enumerate(groups(advised)) for region in alike}
    names = [called(alike) for alike in groups(advised)]

    def named(rules: Sequence[str]) -> str:
        parted = (rule.rpartition(" = ") for rule in rules)
        found = dict.fromkeys((size, group_of[place]) for place, _, size in parted)
        return ", ".join(f"{size} {names[at]}" for size, at in found)

    cells: list[list[Cell]] = [
        [
            ("* " if run == advised["best"] else "") + named(run["rules"]),
            *_cells(run),
        ]
        for run in advised["sets"]
    ]
    return Table(
        "Sets of page sizes by memory; * is advised",
        ["Sets (*: advised)", *_HEAD],
        cells,
        [False, *[True] * len(_HEAD)],
    )


def _by_size(runs: "Mapping[str, plain.PlacedRun]") -> list[tuple[str, Any]]:
    return sorted(runs.items(), key=lambda one: text.bytes_of(one[0]))


def _cells(run: "plain.PlacedRun") -> list[str]:
    return [
        text.count(run["misses"]),
        text.count(run["cold_misses"]),
        text.size(run["memory_added_bytes"]),
        _cycles(run),
        _ms(run),
    ]


def _cycles(run: "plain.PlacedRun") -> str:
    return text.span(run["gain_cycles"], text.count) if run["gain_cycles"] else ""


def _best(run: "plain.PlacedRun") -> str:
    """The best estimate of a run's gain."""
    share, ms = run["gain_best"], run["gain_best_ms"]
    if share is None:
        return ""
    return text.percent(share) + (f", {text.ratio(ms)} ms" if ms is not None else "")


def _points(likely: "plain.Range[float]") -> str:
    """A range of shares as text. Shares may be negative."""
    return f"{100 * likely['lo']:.1f} to {100 * likely['hi']:.1f} %"


def _of_cpu(gain: "plain.GainOfCpu") -> str:
    """The gain of CPU time, and its parts."""
    parts = [
        f"{text.ratio(ms)} ms in {name}"
        for ms, name in (
            (gain["translation_ms"], "translation"),
            (gain["faults_ms"], "page faults"),
        )
        if abs(ms) >= 0.01
    ]
    said = f": {' and '.join(parts)}" if parts else ""
    return (
        f"{100 * gain['lo']:.1f} to {100 * gain['hi']:.1f} % of the CPU time (best estimate "
        f"{100 * gain['best']:.1f} %{said})"
    )


def _ms(run: "plain.PlacedRun") -> str:
    return text.span(run["gain_ms"], text.ratio) if run["gain_ms"] else ""


def _plain(table: Table, keys: int = 1) -> str:
    rows: Sequence[Sequence[str]] = [
        [cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows
    ]
    return text.table(table.head, rows, keys=keys) if rows else f"{table.head[0]}: none"
