"""The predicted gain of CPU time: translation, and the page faults that pages of 2M save."""

from typing import Any

import pytest

from pagewalk import estimates, fault_gains
from pagewalk.page_size_costs import Costs
from pagewalk.page_size_groups import Part
from pagewalk.report.placed import _of_cpu

GHZ = 2.0
SMALL, LARGE, KERNEL = (1000, 3000), 100_000, 0.25


def results(
    pages: int, *, mebibytes: int = 8, walks: float = 0, page: str = "4K"
) -> dict[str, Any]:
    """Results of a program of a million instructions, whose walks take `walks` cycles."""
    spans = {"program_cycles": 1e6, "translation_cycles": walks}
    prices = {"ghz": GHZ, "fault_4k_cycles": list(SMALL), "fault_2m_cycles": LARGE}
    return {
        "instructions": 1_000_000,
        "walks": {"cold": pages},
        "memory": {"frames_peak_bytes": mebibytes << 20},
        "time": {name: {"lo": 0, "hi": most} for name, most in spans.items()},
        "machine": {
            "description": {
                "core": {"cycles_per_instruction": 1, "misses_in_flight": 1},
                "os": {"page_size": page},
                "calibrated": {**prices, "walks_in_flight": 1},
            }
        },
    }


def native(faults: int | None, user: float = 0.001) -> dict[str, Any]:
    return {
        "minor_faults": faults,
        "user_seconds": user,
        "system_seconds": KERNEL * user,
        "translation_ms": {"lo": 0, "hi": 1},
    }


def saved(base: dict[str, Any], placed: dict[str, Any], faults: int) -> tuple[float, float]:
    """Seconds of faults that `placed` saves if the native run of `base` has so many faults."""
    prices = fault_gains.Prices.of({**base, "native": native(faults)})
    assert prices is not None
    return fault_gains.seconds(base, placed, prices)


def cycles(found: tuple[float, float]) -> list[float]:
    return [pytest.approx(end * GHZ * 1e9) for end in found]


def test_faults_of_base_pages_are_saved_and_large_pages_are_zeroed() -> None:
    # 8 MiB in four pages; a hundred base pages stay as they are.
    base, placed = results(2048 + 100), results(4 + 100)
    found = saved(base, placed, 2148)
    assert cycles(found) == [2048 * price - 4 * LARGE for price in SMALL]


def test_memory_that_is_added_is_zeroed_too() -> None:
    # Two of the four pages of 2M are touched in half of their pages alone.
    base, placed = results(1536, mebibytes=6), results(4, mebibytes=8)
    found = saved(base, placed, 1536)
    assert cycles(found) == [1536 * price - 4 * LARGE for price in SMALL]


@pytest.mark.parametrize(("faults", "each"), [(512, 0.5), (3072, 1.5), (2048 * 9, 2.0)])
def test_the_program_counts_the_faults_of_a_page_within_limits(faults: int, each: float) -> None:
    found = saved(results(2048), results(4), faults)
    assert cycles(found) == [2048 * each * price - 4 * LARGE for price in SMALL]


def test_nothing_is_predicted_without_the_numbers_for_it() -> None:
    base = results(2048)
    del base["machine"]["description"]["calibrated"]["fault_2m_cycles"]
    for lacking, faults in (
        (base, 2048),
        (results(2048), None),
        (results(0), 9),
        (results(2048, page="64K"), 9),
    ):
        assert fault_gains.Prices.of({**lacking, "native": native(faults)}) is None
    assert fault_gains.Prices.of(results(2048)) is None
    assert estimates.of_cpu(results(2048), results(4)) is None


def test_the_gain_of_cpu_time_is_that_of_translation_and_of_faults() -> None:
    # A native run of 2 M cycles in user mode, of which walks take half: with nothing at once.
    base = {**results(2048, walks=1e6), "native": native(2048)}
    found = estimates.of_cpu(base, results(4, walks=4e5))
    assert found is not None
    # Of 2.5 M cycles: the walks that are left out, 0.6 M, and the faults at both prices.
    low, high = ((6e5 + 2048 * price - 4 * LARGE) / 2.5e6 for price in SMALL)
    assert found["lo"] == pytest.approx(low - estimates.REPEATS_TO)
    assert found["hi"] == pytest.approx(high + estimates.REPEATS_TO)
    assert found["best"] == pytest.approx((low + high) / 2)
    assert found["translation_ms"] == pytest.approx(0.3)
    assert found["faults_ms"] == pytest.approx((2048 * 2000 - 4 * LARGE) / GHZ / 1e6)
    assert _of_cpu({"lo": 0.1, "hi": 0.2, "best": 0.15, "translation_ms": 0.3, "faults_ms": 0}) == (
        "10.0 to 20.0 % of the CPU time (best estimate 15.0 %: 0.30 ms in translation)"
    )


def run(cpu: dict[str, float] | None, walks: float) -> dict[str, Any]:
    """A `PlacedRun` whose walks take `walks` cycles."""
    return {"translation_cycles": {"lo": 0, "hi": walks}, "gain_of_cpu": cpu}


NO_GAIN = {"translation_ms": 0.0, "faults_ms": 0.0}


def test_page_faults_count_where_their_time_is_known() -> None:
    # Walks take 0.5 ms of the native run; 2,048 faults take 2.048 ms, at 2,000 cycles each.
    base = {**results(2048, walks=1e6), "native": native(2048)}
    costs = Costs(base, run(NO_GAIN, 1e6))
    assert costs.base == pytest.approx(0.0005 + 0.002048)
    assert costs.of(run(NO_GAIN, 1e6)) == pytest.approx(costs.base)
    half = run({"translation_ms": 0.25, "faults_ms": 1.0}, 5e5)
    assert costs.of(half) == pytest.approx(0.00025 + 0.001048)
    # A group whose pages are touched once gains by its faults, and nothing by translation.
    before, after = Part(512, 512, 2 << 20, 0, 0), Part(1, 1, 2 << 20, 1, 0)
    found = costs.saved(0, before, after)
    assert found == pytest.approx((512 * 2000 - LARGE) / GHZ / 1e9)
    assert costs.share(found) == pytest.approx(found / costs.base)
    # A quarter of the cycles of translation is a quarter of its seconds.
    none = Part(0, 0, 0, 0, 0)
    assert costs.saved(1.25e5, none, none) == pytest.approx(0.000125)


def test_without_a_native_run_only_translation_counts() -> None:
    costs = Costs(results(2048, walks=1e6), run(None, 1e6))
    assert (costs.base, costs.of_what) == (5e5, "the translation")
    assert costs.of(run(None, 4e5)) == 2e5
    before, after = Part(512, 512, 2 << 20, 0, 0), Part(1, 1, 2 << 20, 1, 0)
    assert costs.saved(100, before, after) == 100
