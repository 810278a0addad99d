"""Misses for other tools, each opened by the reader of its format; speedscope in tests/browser."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from pagewalk import Error, Results, origins

HOSTILE = '<b>&";=(1)\n*fn;'
"""A name with what the formats use for themselves."""


@pytest.fixture(scope="module")
def results(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a recorded program; its first region and first code have a hostile name."""
    from command import run_command

    path = tmp_path_factory.mktemp("exports") / "results.json"
    done = run_command(["run", recorded, "-m", "tlb-only", "--json", path])
    assert done.returncode == 0, done.stderr
    data = json.loads(path.read_text())
    data["regions"][0]["name"] = HOSTILE
    data["origins"]["code"][0]["function"] = HOSTILE
    path.write_text(json.dumps(data))
    return path


def _exported(pagewalk, results: Path, path: Path, *more: str) -> Path:
    done = pagewalk("origins", results, "-o", path, *more)
    assert done.returncode == 0, done.stderr
    return path


def test_callgrind_annotate_reads_the_misses_of_each_function(pagewalk, results, tmp_path) -> None:
    path = _exported(pagewalk, results, tmp_path / "callgrind.out.misses")
    command = ["callgrind_annotate", "--threshold=100", "--show-percs=no", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # It takes functions of one file and name for one, whichever object they are in.
    row = r"^\s*([\d,]+)\s+[\d,.]+\s+(\S+?):(.+?) \[.+\]$"
    theirs = Counter[tuple[str, str]]()
    for misses, file, function in re.findall(row, done.stdout, re.MULTILINE):
        theirs[file, function] += int(misses.replace(",", ""))
    data = Results.load(results).data
    ours = Counter[tuple[str, str]]()
    for each in origins.rows(data):
        _, file, function, _ = origins.code(data, each)
        ours[file, function] += each[5]
    assert theirs == +ours
    total = f"{sum(ours.values()):,}"
    assert re.search(rf"^\s*{total}\s.*PROGRAM TOTALS$", done.stdout, re.MULTILINE)


def test_perfettos_schema_reads_the_misses_of_each_region(pagewalk, results, tmp_path) -> None:
    trace = Trace.FromString(
        _exported(pagewalk, results, tmp_path / "x.perfetto-trace").read_bytes()
    )
    data = Results.load(results).data
    tracks = {
        p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.track_descriptor.uuid
    }
    values: dict[int, list[tuple[int, float]]] = {}
    for packet in trace.packet:
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.type == TrackEvent.TYPE_COUNTER
            assert event.track_uuid in tracks, "a track is described before it is used"
            step = (packet.timestamp, event.double_counter_value)
            values.setdefault(event.track_uuid, []).append(step)
    bins = {"misses of every TLB": data["timeline"]["bin_accesses"]}
    found = Counter[str]()
    for track, steps in values.items():
        name = tracks[track].name
        found[name] += _sum(steps, bins.get(name, data["map"]["bin_accesses"]))
    # Regions may be called alike.
    misses = Counter[str]()
    for region in data["regions"]:
        misses[origins.region_name(region)] += region["misses"]
    for name, count in (+misses).items():
        assert found[name] == pytest.approx(count), name
    assert found["misses of every TLB"] == sum(misses.values())


def _sum(steps: list[tuple[int, float]], bin_: int) -> float:
    """What a counter adds up to, if each value stands for every bin up to the next step."""
    ends = [*(time for time, _ in steps[1:]), steps[-1][0] + bin_]
    spans = [(end - time) // bin_ for (time, _), end in zip(steps, ends, strict=True)]
    return sum(value * bins for (_, value), bins in zip(steps, spans, strict=True))


def test_folded_lines_are_stacks_and_their_misses(pagewalk, results, tmp_path) -> None:
    path = _exported(pagewalk, results, tmp_path / "x.folded", "--by", "line")
    lines = path.read_text().splitlines()
    assert all(re.fullmatch(r"[^;]+(;[^;]+)* \d+", line) for line in lines)
    total = sum(row[5] for row in origins.rows(Results.load(results).data))
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == total


def test_a_name_without_a_format_is_refused_before_anything_is_read(pagewalk, tmp_path) -> None:
    done = pagewalk("origins", tmp_path / "absent.json", "-o", tmp_path / "x.svg")
    assert done.returncode == 2
    assert ".speedscope.json" in done.stderr and "x.svg" in done.stderr
    done = pagewalk(
        "origins", tmp_path / "absent.json", "-o", tmp_path / "x.folded", "--by", "thread"
    )
    assert done.returncode == 2 and "--by" in done.stderr


def test_a_file_is_kept_unless_forced(results, tmp_path) -> None:
    path = tmp_path / "x.folded"
    path.write_text("mine")
    found = Results.load(results)
    with pytest.raises(Error, match="exists"):
        found.export(path)
    assert path.read_text() == "mine"
    found.export(path, by="site", force=True)
    assert path.read_text() != "mine"
