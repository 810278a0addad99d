"""Calibration: curves of a made-up machine give that machine back; ranges are judged as said."""

import itertools
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from pagewalk import Error, Machine, WorkError
from pagewalk.calibrate import Spread, fit, judge, machine_file, see
from pagewalk.calibrate.costs import faults
from pagewalk.calibrate.judge import Case, Range
from pagewalk.calibrate.machine_file import _text
from pagewalk.calibrate.probe import SOURCE, Curve, build, parse
from pagewalk.commands.calibrate import _limits

ROOT = Path(__file__).parents[2]

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


def test_the_prices_of_faults_are_seen() -> None:
    found = curves()
    timed = {"unmap": {4096: [50.0], 2 << 20: [1e4]}, "program": {0: [2000.0], 4096: [3500.0]}}
    # A nanosecond has 4 cycles. A fault inside a program takes longer than one of many successive
    # faults.
    expected = ["fault_4k_cycles = [3400, 6200]", "fault_2m_cycles = 400000"]
    assert faults(see(found | timed)) == expected
    timed["program"][4096] = [2100.0]
    assert faults(see(found | timed))[0] == "fault_4k_cycles = [600, 3400]"
    assert faults(see(found)) == []


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
    assert seen.far == {} and seen.walks_in_flight is None
    assert any("another thread" in what for what in seen.unseen)
    assert seen.costs["zeroing 4K"].value == 100.0


def test_far_loads_are_seen_and_can_be_written_as_json() -> None:
    far = {
        "far": {32 << 20: [130.0, 120.0, 125.0]},
        "far-huge": {32 << 20: [100.0, 101.0, 99.0]},
        "apart": {32 << 20: [20.0, 20.0, 20.0]},
        "apart-huge": {32 << 20: [15.0, 15.0, 15.0]},
    }
    seen = see(curves() | far)
    assert seen.far["4K"][32 << 20].value == 125 and seen.far["2M"][32 << 20].value == 100
    # The least count here: 120 - 99 for loads that wait, 20 - 15 for those that do not.
    assert seen.walks_in_flight is not None
    assert seen.walks_in_flight.value == pytest.approx(21 / 5)
    assert json.loads(json.dumps(asdict(seen)))["far"]["4K"][str(32 << 20)]["value"] == 125


def test_pages_of_2m_that_are_whole_do_not_splinter() -> None:
    seen = see(curves(splinters=False))
    assert not seen.splinters and set(seen.walk) == {"4K"}
    assert any("2M" in what for what in seen.unseen)


def test_a_machine_that_is_too_busy_is_refused() -> None:
    flat = {n: [2.0, 2.0, 2.0] for n in sizes()}
    with pytest.raises(WorkError, match="other programs disturb it"):
        see(curves() | {"page": flat, "huge": flat})


@pytest.mark.parametrize(("host", "splinters"), [(None, False), ("4K", True)])
def test_what_no_knee_shows_is_fitted(
    host: str | None, splinters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far loads as one machine takes them: of all that are tried, that one is found."""
    monkeypatch.setattr(fit, "_ACCESSES", 10_000)
    monkeypatch.setattr(fit, "_WARMUP", 60_000)
    monkeypatch.setattr(fit, "CACHE_TIMES", (0.5, 1, 4))
    seen = see(curves(splinters))
    # These caches are small enough that a short run fills them.
    seen.caches[1:] = [(256 << 10, Spread(4, 4, 4)), (512 << 10, Spread(20, 20, 20))]
    ghz, last = seen.ghz.value, 512 << 10
    truth = fit.Fit(host, 4 * last, 500, 30, 0, (0, 0), ())
    file = _text(seen, "the truth", truth, "")
    seen.far = {"4K": {}, "2M": {}}
    for page, size in itertools.product(("4K", "2M"), (4 << 20, 64 << 20)):
        rest, memory, walks = fit._counted(file, page, size, 500)
        time = (rest + 500 * memory + 30 * walks) / ghz
        seen.far[page][size] = Spread(time, time, time)
    found = fit.fit(seen, lambda trial: _text(seen, "found", trial, ""), lambda _: None)
    assert found is not None
    assert (found.host, found.last_cache) == (host, 4 * last)
    assert found.memory_cycles == pytest.approx(500, rel=0.01)
    assert found.refill_cycles == pytest.approx(30, rel=0.2)
    assert found.error < 0.01
    assert all(abs(error) < 0.01 for error in found.gain_errors)
    written = tmp_path / "here.toml"
    monkeypatch.setitem(machine_file.__globals__, "fit", lambda *_: found)
    written.write_text(machine_file(seen, "made up"))
    data = Machine(str(written)).description
    assert data["memory"]["latency_cycles"] == pytest.approx(500, rel=0.01)
    assert ("nested" in data) == (host is not None)
    limits = _limits(str(written))
    assert (
        limits.ghz == pytest.approx(ghz, abs=0.01)
        and limits.error < 0.01
        and limits.gain_errors[0] <= 0
    )
    text = written.read_text()
    assert "# zeroing 4K: 100.00 ns" in text and "# Not seen by timing:" in text


def test_the_kernels_prices_are_differences_of_what_was_timed(tmp_path: Path) -> None:
    """At 4 GHz; 1000 ns for a fault that lacks its translation alone, 86 of them its entry."""
    own = {
        "minor": {4096: [1000.0]},
        "fault": {4096: [1800.0]},
        "zero": {4096: [500.0]},
        "unmap": {4096: [186.0]},
        "entry": {1: [86.0]},
        "call": {1: [100.0]},
        "region": {1: [150.0]},
        "object": {1: [30.0]},
        "mprotect": {1: [900.0], 2: [1700.0]},
    }
    seen = see(curves() | own)
    written = tmp_path / "here.toml"
    written.write_text(_text(seen, "made up", fit.Fit(None, 24 << 20, 400, 0, 0, (0, 0), ()), ""))
    costs = Machine(str(written)).description["os"]["costs"]
    work = costs["work"]
    looks = (work["region_lookups"], work["object_lookups"])
    assert looks == (4 * (150 - 100), 4 * 30)
    assert work["mappings"] == work["descriptors"] > 0
    assert work["traps"] == 3656 - sum(looks) - work["mappings"]
    assert (work["calls"], work["zeroed"], work["copied"]) == (400, 2000, 800)
    assert (work["frames_taken"], work["frames_given"]) == (4 * (1800 - 1000 - 500), 400)
    assert (work["table_reads"], work["table_writes"]) == (172, 172)
    assert (costs["fault_cycles"], costs["switch_cycles"]) == (7200, 4 * 1500 - 800)
    # The rest of an mprotect that another processor hears of, without a flush.
    assert costs["shootdown_send_cycles"] + costs["shootdown_receive_cycles"] == 3200 - 200
    without = see(curves())
    text = _text(without, "made up", fit.Fit(None, 24 << 20, 400, 0, 0, (0, 0), ()), "")
    assert "[os.costs]" not in text, "what was not timed is not made up"


def test_a_file_that_was_not_calibrated_cannot_be_judged(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text((ROOT / "machines" / "epyc-9005.toml").read_text())
    with pytest.raises(Error, match=r"has no \[calibrated\]: write the file again"):
        _limits(str(file))
    with pytest.raises(Error, match="cannot be read"):
        _limits(str(tmp_path / "none.toml"))


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
    assert {"minor", "unmap", "entry", "call", "region", "object"} <= set(found)
    assert {"page", "huge", "line", "independent", "add", "fault", "far", "apart-huge"} <= set(
        found
    )
    assert all(time > 0 for curve in found.values() for times in curve.values() for time in times)
    assert set(timed) == {(kind, page, 1 << 20) for kind in judge.KINDS for page in ("4K", "2M")}


def test_gains_are_predicted_from_both_runs_and_from_the_time_that_is_known() -> None:
    four, two = judge.Parts(20, 180, 100), judge.Parts(20, 180, 20)
    limits = judge.Limits(ghz=2.0, misses=5, walks=2, error=0.1, gain_errors=(-0.01, 0.02))
    times, alone = judge.predicted(four, two, limits)
    # Without overlap, an iteration takes 300 and 220 cycles. With five misses at once it takes 40 +
    # 20 and 40 + 4, or 40 + 50 and 40 + 10.
    assert (times["4K"].lo, times["4K"].hi) == (pytest.approx(27), pytest.approx(165))
    assert (times["2M"].lo, times["2M"].hi) == (pytest.approx(19.8), pytest.approx(121))
    assert alone.lo == pytest.approx(1 - 220 / 300 - 0.01)
    assert alone.hi == pytest.approx(1 - 50 / 90 + 0.02)
    # 90 cycles: five at once if walks overlap in pairs, 3.33 at once if they overlap as well.
    known = judge.informed(four, two, limits, 90.0)
    assert known.lo == pytest.approx(1 - 220 / 300 - 0.01)
    assert known.hi == pytest.approx(alone.hi)
    # The measured time is longer than the model's time without overlap, so nothing overlaps.
    assert judge.informed(four, two, limits, 900.0).hi == pytest.approx(1 - 220 / 300 + 0.02)
    # The number of instructions is a lower bound of the time.
    assert judge.Parts(20, 0, 10).cycles(5, 5) == 20


def test_parts_are_of_the_results_of_a_run() -> None:
    run = {
        "machine": {"description": {"core": {"cycles_per_instruction": 0.5}}},
        "instructions": 400,
        "time": {"program_cycles": {"hi": 1000}, "translation_cycles": {"hi": 300}},
    }
    assert judge.Parts.of(run, 100) == judge.Parts(2.0, 8.0, 3.0)


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
