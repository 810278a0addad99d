"""The machine file of what was seen."""

import tempfile
from datetime import datetime, timezone
from pathlib import Path

from pagewalk.calibrate.seen import Seen, Spread
from pagewalk.machine import Machine

_WALK_ACCESSES = 100_000


def machine_file(seen: Seen, title: str) -> str:
    """The text of a machine file; its walks take what was timed, as far as one number can do it.

    What a walk takes besides its references is fitted: the machine runs the chase that was timed,
    and what is missing is `walker.refill_cycles`.
    """
    if not seen.walk or seen.l2_entries is None:
        return _text(seen, title, 0, "no walk was seen")
    # As far beyond the second level as where the walk was timed.
    nodes = int(2 * seen.l2_entries.hi)
    modelled = _walk_cycles(_text(seen, title, 0, "nothing yet"), nodes, "4K")
    timed = seen.walk["4K"].value * seen.ghz.value
    refill = max(0, round(timed - modelled))
    text = _text(seen, title, refill, "")
    notes = [
        f"walks of 4K: {_cycles(seen.walk['4K'], seen)} timed, {modelled + refill:.0f} modelled"
    ]
    if "2M" in seen.walk:
        again = _walk_cycles(text, nodes, "2M")
        notes.append(f"of 2M: {_cycles(seen.walk['2M'], seen)} timed, {again:.0f} modelled")
    return _text(seen, title, refill, "; ".join(notes))


def _walk_cycles(text: str, nodes: int, page_size: str) -> float:
    """Cycles of a walk beyond the TLBs' lookups, where `nodes` pages are visited at random."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "here.toml"
        file.write_text(text, encoding="utf-8")
        settings = [f"os.page_size={page_size}", "os.uniform=true", "os.populated=true"]
        machine = Machine(str(file), settings)
        spec = f"generate:chase,size={4 * nodes}K,node=4K,accesses={_WALK_ACCESSES}"
        data = machine.run(spec).data
    lookups = sum(
        tlb["lookups"] * data["machine"]["description"]["tlb"][tlb["name"]].get("latency_cycles", 0)
        for tlb in data["tlbs"]
    )
    walks = max(data["walks"]["walks"], 1)
    return float((data["time"]["translation_cycles"]["hi"] - lookups) / walks)


def _cycles(time: Spread, seen: Seen) -> str:
    ghz = seen.ghz.value
    return f"{time.value * ghz:.0f} cycles ({time.lo * ghz:.0f} to {time.hi * ghz:.0f})"


def _ns(time: Spread) -> str:
    return f"{time.value:.2f} ns ({time.lo:.2f} to {time.hi:.2f})"


def _text(seen: Seen, title: str, refill: int, walks: str) -> str:
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
        f'{flight.hi:.1f}, rounded up; asid_bits: not seen"',
    ]
    for side in ("i", "d"):
        own = "timed" if side == "d" else "not seen, taken as for data"
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
        f"refill_cycles = {refill}",
        f'source = "refill_cycles: fitted to the walks that were timed; {walks or "none"}; '
        'enters: an assumption"',
        "",
        "[mmu_cache]",
        'design = "utc"',
        "entries = 32",
        'source = "not seen: an assumption"',
    ]
    if seen.splinters:
        lines += [
            "",
            "[nested]",
            'page_size = "4K"',
            'source = "timed: memory of 2M pages misses the TLBs where memory of 4K pages does, so '
            'that something behind it keeps pieces"',
            "",
            "[nested.tlb]",
            "entries = 64",
            "",
            "[nested.mmu_cache]",
            'design = "utc"',
            "entries = 32",
            'source = "not seen: an assumption"',
        ]
    for level, (size, latency) in enumerate(seen.caches[:3], 1):
        names = ("l1i", "l1d") if level == 1 else (f"l{level}",)
        for name in names:
            own = "timed" if name != "l1i" else "not seen, taken as for data"
            lines += [
                "",
                f"[cache.{name}]",
                f'size = "{_whole(size) >> 10}K"',
                'line = "64B"',
                "ways = 8",
                f"latency_cycles = {cycles(latency)}",
                f'source = "size: {own}, up to {size >> 10}K at this latency; latency: '
                f'{_ns(latency)}; line, ways: assumptions"',
            ]
    lines += [
        "",
        "[memory]",
        'size = "64G"',
        "placement = 1",
        f"latency_cycles = {cycles(seen.memory)}",
        f'source = "latency: {_ns(seen.memory)}, beyond what translation takes; size, '
        'placement (frames in no order, as after some days): assumptions"',
        "",
        "[os]",
        'page_size = "4K"',
        'source = "set os.page_size=2M for memory of larger pages"',
        "",
        "# What the kernel takes; no key of a machine file stands for these.",
    ]
    lines += [f"# {name}: {_ns(cost)}" for name, cost in seen.costs.items()]
    lines += ["#", "# Not seen by timing:"]
    lines += [f"# {what}" for what in seen.unseen]
    return "\n".join(lines) + "\n"


def _whole(size: int) -> int:
    """The size in quarters of a power of two that comes first at or above `size`."""
    quarter = 1 << max(size.bit_length() - 3, 12)
    return -(-size // quarter) * quarter
