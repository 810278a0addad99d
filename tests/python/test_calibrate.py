"""Calibration: curves of a made-up machine give that machine back; ranges are judged as said."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pagewalk import Machine, WorkError
from pagewalk.calibrate import judge, machine_file, see
from pagewalk.calibrate.judge import Case, Range
from pagewalk.calibrate.probe import SOURCE, Curve, build, parse

L1, L2, HIT, WALK_4K, WALK_2M = 64, 1536, 3.0, 20.0, 9.0
CACHES = ((32 << 10, 1.3), (1 << 20, 4.5), (24 << 20, 20.0), (1 << 60, 100.0))


def sizes() -> list[int]:
    found, step = [], 16.0
    while step <= 24576:
        found.append(int(step / 4 + 0.5) * 4)
        step *= 1.0905 if step < 8192 else 1.4142
    return found


def cache(size: float) -> float:
    return next(time for room, time in CACHES if size <= room)


def missing(pages: float, entries: int) -> float:
    return max(0.0, 1 - entries / pages)


def curves(splinters: bool = True, wobble: float = 0.0) -> dict[str, Curve]:
    """What the probe would have timed: three repeats, of which the least has no noise."""

    def noisy(time: float) -> list[float]:
        return [time * (1 + wobble), time, time * (1 + 3 * wobble)]

    def page(n: int, walk: float) -> list[float]:
        translation = (HIT if n > L1 else 0) + (walk if n > L2 else 0)
        return noisy(cache(64 * n) + translation)

    def line(n: int) -> list[float]:
        pages = max(n / 64, 1)
        extra = missing(pages, L1) * HIT + missing(pages, L2) * WALK_2M if splinters else 0
        return noisy(cache(64 * n) + extra)

    dense = [*sizes(), *(24576 * 2**step for step in range(1, 8))]
    huge = {n: page(n, WALK_2M) if splinters else noisy(cache(64 * n)) for n in sizes()}
    return {
        "page": {n: page(n, WALK_4K) for n in sizes()},
        "huge": huge,
        "line": {n: line(n) for n in dense},
        "independent": {1 << 28: noisy(14.0)},
        "add": {1: noisy(0.25), 6: noisy(0.0625)},
        "fault": {4096: noisy(800.0), 2 << 20: noisy(9e4)},
        "zero": {4096: noisy(100.0)},
        "copy": {4096: noisy(200.0)},
        "switch": {1: noisy(1500.0)},
        "mprotect": {1: noisy(900.0)},
    }


@pytest.mark.parametrize("wobble", [0.0, 0.1])
def test_a_machine_is_seen_in_its_curves(wobble: float) -> None:
    seen = see(curves(wobble=wobble))
    assert seen.ghz.value == 4.0 and seen.cycles_per_instruction.value == 0.25
    assert seen.l1_entries.value == L1 and seen.l1_entries.lo <= L1 <= seen.l1_entries.hi
    assert seen.l2_entries is not None and seen.l2_entries.value == L2
    assert seen.splinters
    assert seen.l2_hit.value == pytest.approx(HIT)
    assert seen.walk["4K"].value == pytest.approx(WALK_4K)
    assert seen.walk["2M"].value == pytest.approx(WALK_2M)
    assert [round(latency.value) for _, latency in seen.caches] == [1, 4, 20]
    for (size, _), (room, _) in zip(seen.caches, CACHES, strict=False):
        assert 0.6 * room < size <= room
    assert seen.memory.value == pytest.approx(100.0, abs=0.1)
    assert seen.misses_in_flight.lo <= (100 + HIT + WALK_2M) / 14 <= seen.misses_in_flight.hi + 1
    assert any("another thread" in what for what in seen.unseen)
    assert seen.costs["zeroing 4K"].value == 100.0


def test_pages_of_2m_that_are_whole_do_not_splinter() -> None:
    seen = see(curves(splinters=False))
    assert not seen.splinters and set(seen.walk) == {"4K"}
    assert any("2M" in what for what in seen.unseen)


def test_a_machine_that_is_too_busy_is_refused() -> None:
    flat = {n: [2.0, 2.0, 2.0] for n in sizes()}
    with pytest.raises(WorkError, match="too busy"):
        see(curves() | {"page": flat, "huge": flat})


@pytest.mark.parametrize("splinters", [True, False])
def test_the_file_is_a_machine_whose_walks_take_what_was_timed(
    tmp_path: Path, splinters: bool
) -> None:
    file = tmp_path / "here.toml"
    file.write_text(machine_file(see(curves(splinters)), "made up"))
    machine = Machine(str(file), ["os.populated=true"])
    nodes = 3158
    spec = f"generate:chase,size={4 * nodes}K,node=4K,accesses=100000"
    data: dict[str, Any] = machine.run(spec).data
    assert ("nested" in data["machine"]["description"]) == splinters
    lookups = sum(tlb["lookups"] for tlb in data["tlbs"] if tlb["level"] == 2)
    walks = data["time"]["translation_cycles"]["hi"] - 12 * lookups
    assert walks / data["walks"]["walks"] == pytest.approx(4 * WALK_4K, abs=1)
    text = file.read_text()
    assert "# zeroing 4K: 100.00 ns" in text and "# Not seen by timing:" in text


def test_the_probe_builds_and_times() -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        program = build(SOURCE, Path(folder))
        done = subprocess.run([program, "1", "64"], capture_output=True, text=True, check=True)
        build(judge.MICRO, Path(folder))
        timed = judge.time_all(Path(folder) / "micro", (1 << 20,))
    found = parse(done.stdout)
    assert {"page", "huge", "line", "independent", "add", "fault"} <= set(found)
    assert all(time > 0 for curve in found.values() for times in curve.values() for time in times)
    assert set(timed) == {(kind, page, 1 << 20) for kind in judge.KINDS for page in ("4K", "2M")}


def time(program: tuple[int, int], translation: tuple[int, int]) -> dict[str, Any]:
    (p_lo, p_hi), (t_lo, t_hi) = program, translation
    return {
        "program_cycles": {"lo": p_lo, "hi": p_hi},
        "translation_cycles": {"lo": t_lo, "hi": t_hi},
    }


def test_gains_are_predicted_from_both_runs_and_from_the_time_that_is_known() -> None:
    four, two = time((100, 900), (0, 100)), time((100, 900), (0, 20))
    steps = {"4K": 10.0, "2M": 10.0}
    times, alone = judge.predicted(four, two, steps, ghz=2.0)
    assert times == {"4K": Range(5, 50), "2M": Range(5, 46)}
    # Every data miss exposed, or none: 80 of 1000 cycles go, or 80 of 200.
    assert alone == Range(0, pytest.approx(0.4))
    # At 95 cycles at least 5 are translation, and at most the 10 that there are; 8 in 10 go.
    known = judge.informed(four, two, steps, 95.0)
    assert (known.lo, known.hi) == (pytest.approx(4 / 95), pytest.approx(8 / 95))
    # No slower than the model's most, no faster than its least.
    assert judge.informed(four, two, steps, 500.0).lo == pytest.approx(8 / 500)
    assert judge.informed(four, two, steps, 9.0) == Range(0, 0)


def test_a_wide_range_counts_as_outside_and_the_reason_is_said() -> None:
    def case(gain: float, alone: Range, informed: Range) -> Case:
        timed = {"4K": 100.0, "2M": 100 * (1 - gain)}
        times = {"4K": Range(50, 120), "2M": Range(20, 90)}
        return Case("chase", 1 << 20, timed, times, gain, alone, informed)

    cases = [
        case(0.15, Range(0, 0.19), Range(0.1, 0.12)),
        case(0.15, Range(0, 0.21), Range(0.14, 0.3)),
        case(0.05, Range(0.07, 0.1), Range(0.04, 0.06)),
        case(0.0, Range(0, 0), Range(0, 0)),
    ]
    assert [one.outside(one.alone) for one in cases] == [
        None,
        "the range is wider than 20 points",
        "less than the least",
        None,
    ]
    assert cases[0].outside(cases[0].informed) == "it gains more than the most"
    assert cases[0].time_outside("4K") is None
    assert cases[0].time_outside("2M") == "the range is wider than 3:1"
    score = judge.score(cases)
    assert score["alone"]["inside"] == 0.5 and score["informed"]["inside"] == 0.75
    assert score["no_gain_inside"] == 0.25
    assert score["no_gain_error"] == pytest.approx((0.15 + 0.15 + 0.05) / 4)
    assert judge.document(cases)["cases"][1]["outside"]["alone"].startswith("the range is wider")
