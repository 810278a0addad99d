"""What a memory manager counted: as text, and in the report."""

from typing import Any

import sample
from pagewalk import summary
from pagewalk.report import charts, data, figures, page


def managed() -> dict[str, Any]:
    document = sample.document()
    now = {"anonymous": 3 << 20, "file": 1 << 20, "shared": 0, "tables": 8192, "free": 4096}
    now["swapped"] = 2 << 20
    document["manager"] = {
        "replacement": "2q",
        "faults": {
            how: number
            for number, how in enumerate(
                ["minor", "write", "cache", "zero", "copy", "disk", "swap"], start=1
            )
        },
        "unexplained": 0,
        "work": {"traps": 28, "zeroed": 4, "copied": 5, "reads": 13, "writes": 2},
        "io_cycles": 15,
        "cycles": {"traps": 2800, "zeroed": 8000, "copied": 0},
        "page_sizes": [{"region": "heap", "pages": {"policy-asks-base": 28}}],
        "bytes": now,
        "over_time": [
            {
                "access": at,
                **now,
                "file": at << 12,
                "swapped": swapped << 20,
                "pages_by_size": {"4K": at, "2M": at // 70},
            }
            for at, swapped in ((5, 0), (70, 1), (900, 8))
        ],
    }
    document["memory"]["free_by_size"] = {"4K": 3, "2M": 2, "1G": 1}
    document["time"] = {
        "program_cycles": {"lo": 1000, "hi": 2000},
        "translation_cycles": {"lo": 0, "hi": 100},
        "cycles_per_access": {"lo": 0.0, "hi": 0.1},
        "share": {"lo": 0.0, "hi": 0.1},
        "kernel": {
            "cycles": 11_000,
            "by_work": {"traps": 2800, "zeroed": 8000, "switches": 200, "shootdowns": 0},
            "io_cycles": 500,
            "share": {"lo": 0.25, "hi": 0.5},
        },
    }
    return document


def test_the_text_tells_memory_by_kind_and_faults_by_how() -> None:
    text = summary.summary(managed())
    assert "Memory, 2q: 3 MiB anonymous" in text
    assert "1 minor, 2 write, 3 cache, 4 zero, 5 copy, 6 disk, 7 swap" in text
    assert "13 pages read and 2 written" in text
    assert "kernel: 11.0 k cycles, waiting for disks 500; 25.0 % to 50.0 % of all cycles" in text
    assert "Memory, " not in summary.summary(sample.document())


def test_the_report_shows_memory_over_time_faults_and_work() -> None:
    run = data.run(managed())
    assert run.memory is not None and run.faults is not None and run.work is not None
    assert [row["start"] for row in run.memory.rows][:3] == [5, 70, 900]
    assert set(run.memory.rows[0]) == {"start", "anonymous", "file", "tables", "in swap"}
    assert [row["in swap"] for row in run.memory.rows] == [0, 1, 8, 2]
    assert "Most in swap: 8 MiB, from access 900 on." in run.memory.sentence
    ended = managed()
    ended["memory"]["pages_by_size"] = {"4K": 2}
    sizes = figures.page_sizes(ended)
    # 900 pages of 4K and 12 of 2M, though at the end hardly anything is left.
    assert sizes is not None
    assert "from access 900 on: 3.52 MiB in pages of 4K, 24 MiB" in sizes.sentence
    assert run.memory.table is not None and run.memory.table.head[-1] == "In swap"
    drawn = charts.charts(run)["memory"].to_dict()
    areas, _, line = drawn["layer"]
    assert areas["mark"]["type"] == "area" and line["mark"]["type"] == "line"
    rows = [drawn["datasets"][layer["data"]["name"]] for layer in (areas, line)]
    assert all(row["kind"] != "in swap" for row in rows[0])
    assert [row["value"] for row in rows[1]] == [0, 1, 8, 2]
    assert run.faults.rows[-1][0] == "Read from swap"
    assert len(run.work.rows) == 5
    text = page.render(data.report([managed()]))
    assert "Memory over time" in text and "Read from swap" in text
    assert run.free is not None and run.kernel is not None and run.page_sizes is not None
    assert [row["size"] for row in run.free.rows] == ["4K", "2M", "1G"]
    assert "100 %" in run.free.sentence, "all of it but 12K"
    assert [row["work"] for row in run.kernel.rows] == [
        "zeroed",
        "traps",
        "waiting for disks",
        "switches",
    ]
    assert "of them wait for disks" not in run.kernel.sentence
    waiting = managed()
    waiting["time"]["kernel"] |= {"io_cycles": 99_000, "cycles": 11_000}
    scarce = data.run(waiting).kernel
    assert scarce is not None and scarce.table is not None
    assert [row["work"] for row in scarce.rows] == ["zeroed", "traps", "switches"]
    assert (
        "99.0 k of them wait for disks" in scarce.sentence and "the other 11.0 k" in scarce.sentence
    )
    assert scarce.table.rows[0][0] == "waiting for disks"
    assert run.page_sizes.rows[-2] == {"start": 900, "4K": 900 / 256, "2M": 24.0}
    assert {"memory", "page-sizes", "free", "kernel"} <= set(charts.charts(run))
    assert "Free memory by size" in text and "What the kernel took" in text
    assert [row[2] != "" for row in run.work.rows] == [True, True, True, False, False]
    without = managed()
    for point in (without["manager"]["bytes"], *without["manager"]["over_time"]):
        point["swapped"] = 0
    memory = data.run(without).memory
    assert memory is not None and "in swap" not in memory.rows[0]
    assert charts.memory(memory).to_dict()["mark"]["type"] == "area"
    plain = data.run(sample.document())
    assert plain.free is None and plain.kernel is None and plain.page_sizes is None
    assert plain.memory is None and plain.faults is None and plain.work is None
