"""Writes a machine file from measurements."""

from collections.abc import Callable
from datetime import datetime, timezone

from pagewalk import here
from pagewalk.calibrate.costs import costs, faults
from pagewalk.calibrate.fit import Fit, fit
from pagewalk.calibrate.seen import Seen, Spread


def machine_file(seen: Seen, title: str, progress: Callable[[str], None] = lambda _: None) -> str:
    """The text of a machine file, from measured numbers and from the numbers of `fit`."""
    fitted = fit(seen, lambda trial: _text(seen, title, trial, ""), progress)
    if fitted is not None:
        points = ", ".join(
            f"{page} over {size >> 20} MiB: {timed:.0f} and {ours:.0f}"
            for page, size, timed, ours in fitted.points
        )
        return _text(seen, title, fitted, f"cycles of a load timed and fitted: {points}")
    last = seen.caches[-1][0] if seen.caches else 0
    host = "4K" if seen.splinters else None
    memory = seen.memory.value * seen.ghz.value
    return _text(seen, title, Fit(host, last, memory, 0, 0, (0, 0), ()), "no far loads were timed")


def _ns(time: Spread) -> str:
    return f"{time.value:.2f} ns ({time.lo:.2f} to {time.hi:.2f})"


def _text(seen: Seen, title: str, fitted: Fit, how: str) -> str:
    ghz = seen.ghz.value

    def cycles(time: Spread) -> int:
        return max(1, round(time.value * ghz))

    day = datetime.now(timezone.utc).date().isoformat()
    cpi, flight = seen.cycles_per_instruction, seen.misses_in_flight
    misses = max(1, round(flight.hi + 0.5))
    lines = [
        f'title = "{title}"',
        f'source = "pagewalk calibrate, {day}: timing alone; brackets are spreads"',
        "",
        "[core]",
        f"cycles_per_instruction = {cpi.value:.2f}",
        f"misses_in_flight = {misses}",
        f'source = "clock: {ghz:.2f} GHz ({seen.ghz.lo:.2f} to {seen.ghz.hi:.2f}), dependent '
        f"additions; cycles_per_instruction: independent additions, {cpi.lo:.2f} to {cpi.hi:.2f}; "
        f"misses_in_flight: dependent over independent loads, {flight.lo:.1f} to "
        f'{flight.hi:.1f}, rounded up; asid_bits: not measured"',
    ]
    for side in ("i", "d"):
        own = "timed" if side == "d" else "not measured, taken as for data"
        entries = seen.l1_entries
        lines += [
            "",
            f"[tlb.l1{side}]",
            f"entries = {int(entries.value)}",
            'ways = "full"',
            'replacement = "lru"',
            f'source = "entries: {own}, {entries.lo:.0f} to {entries.hi:.0f}; ways, policy: '
            'assumptions"',
        ]
    if seen.l2_entries is not None:
        entries = seen.l2_entries
        lines += [
            "",
            "[tlb.l2]",
            f"entries = {int(entries.value)}",
            'ways = "full"',
            'replacement = "lru"',
            f"latency_cycles = {cycles(seen.l2_hit)}",
            f'source = "entries: timed, {entries.lo:.0f} to {entries.hi:.0f}; latency: '
            f'{_ns(seen.l2_hit)}; ways, policy, one for both sides: assumptions"',
        ]
    lines += [
        "",
        "[page_table]",
        'format = "x86-64"',
        'source = "an assumption: four levels"',
        "",
        "[walker]",
        'enters = "l1d"',
        f"refill_cycles = {round(fitted.refill_cycles)}",
        f'source = "refill_cycles: fitted; {how}; enters: an assumption"',
        "",
        "[mmu_cache]",
        'design = "utc"',
        "entries = 32",
        'source = "not measured: an assumption"',
    ]
    if fitted.host is not None:
        lines += [
            "",
            "[nested]",
            f'page_size = "{fitted.host}"',
            'source = "fitted to random loads; memory of 2M pages '
            + ("misses" if seen.splinters else "does not miss")
            + ' the TLBs where memory of 4K pages does"',
            "",
            "[nested.tlb]",
            "entries = 64",
            "",
            "[nested.mmu_cache]",
            'design = "utc"',
            "entries = 32",
            'source = "not measured: an assumption"',
        ]
    caches = [*seen.caches[:-1], *((fitted.last_cache, latency) for _, latency in seen.caches[-1:])]
    for level, (size, latency) in enumerate(caches[:3], 1):
        names = ("l1i", "l1d") if level == 1 else (f"l{level}",)
        for name in names:
            own = "timed" if name != "l1i" else "not measured, taken as for data"
            if level == len(seen.caches):
                own = f"fitted ({seen.caches[-1][0] >> 10}K was measured)"
            lines += [
                "",
                f"[cache.{name}]",
                f'size = "{_whole(size) >> 10}K"',
                'line = "64B"',
                "ways = 8",
                f"latency_cycles = {cycles(latency)}",
                f'source = "size: {own}, up to {size >> 10}K; latency: '
                f'{_ns(latency)}; line, ways: assumptions"',
            ]
    lines += [
        "",
        "[memory]",
        'size = "64G"',
        "placement = 1",
        f"latency_cycles = {max(1, round(fitted.memory_cycles))}",
        f'source = "latency: fitted to random loads; {_ns(seen.memory)} in adjacent lines; size, '
        'placement (frames in no order, as after some days): assumptions"',
        "",
        "[os]",
        'page_size = "4K"',
        'source = "set os.page_size=2M for memory of larger pages"',
        *costs(seen),
        "",
        *_beyond(seen, fitted),
        "",
        "# What the kernel takes, as it was timed.",
    ]
    lines += [f"# {name}: {_ns(cost)}" for name, cost in seen.costs.items()]
    lines += ["#", "# Not seen by timing:"]
    lines += [f"# {what}" for what in seen.unseen]
    processor = here.processor()
    lines += ["#", processor.comment()] if processor is not None else []
    return "\n".join(lines) + "\n"


def _beyond(seen: Seen, fitted: Fit) -> list[str]:
    """The lines of the table `[calibrated]`, which simulations do not use."""
    low, high = fitted.gain_errors
    flight = seen.walks_in_flight
    walks = "walks_in_flight: not seen"
    if flight is not None:
        walks = f"walks_in_flight: timed, {flight.lo:.1f} to {flight.hi:.1f}"
    return [
        "[calibrated]",
        f"ghz = {seen.ghz.value:.2f}",
        *([] if flight is None else [f"walks_in_flight = {flight.value:.1f}"]),
        *faults(seen),
        f"time_error = {fitted.error:.3f}",
        f"gain_errors = [{low:.3f}, {high:.3f}]",
        f'source = "ghz: {seen.ghz.lo:.2f} to {seen.ghz.hi:.2f}, dependent additions; {walks}; '
        f'faults: timed, with unmapping; errors: of the far loads that were timed against the fit"',
    ]


def _whole(size: int) -> int:
    """The smallest whole number of quarters of a power of two that is at least `size`."""
    quarter = 1 << max(size.bit_length() - 3, 12)
    return -(-size // quarter) * quarter
