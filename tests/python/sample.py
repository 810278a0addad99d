"""Results documents of schema 2 that no machine made, for tests of what shows them."""

import math
import random
from typing import Any

PAGE = 4096
BINS = 128


def document(name: str = "sample-server", seed: int = 1, walks: bool = True) -> dict[str, Any]:
    """A whole document whose numbers agree with each other."""
    chance = random.Random(seed)
    scale = 1 + 2 * (seed - 1)
    bin_accesses = 1 << 20
    accesses = BINS * bin_accesses - 300_000
    shares = [
        ("gzip (r-x)", 0x5555_5555_4000, 68 * PAGE, "r-x", 0.002),
        ("gzip (rw-)", 0x5555_5577_1000, 12 * PAGE, "rw-", 0.03),
        ("bss of gzip", 0x5555_5577_D000, 180 * PAGE, "rw-", 0.55),
        ("heap", 0x5555_5583_1000, 33 * PAGE, "rw-", 0.05),
        ("libc.so.6 (r-x)", 0x7FFF_F7DD_6000, 343 * PAGE, "r-x", 0.02),
        ("libc.so.6 (rw-)", 0x7FFF_F7F7_D000, 2 * PAGE, "rw-", 0.008),
        ("anonymous 1", 0x7FFF_F7F9_0000, 13 * PAGE, "rw-", 0.04),
        ('anonymous <2> & "quoted"', 0x7FFF_F000_0000, 16_384 * PAGE, "rw-", 0.28),
        ("stack", 0x7FFF_FFFD_E000, 33 * PAGE, "rw-", 0.02),
    ]
    cells = []
    owners: dict[tuple[int, int], int] = {}
    by_address = sorted(range(len(shares)), key=lambda index: shares[index][1])
    timeline: dict[str, Any] = {"bin_accesses": bin_accesses}
    timeline |= {"l1_misses": [], "misses": [], "cold_misses": []}
    granule = 64 * 1024
    per_region = dict.fromkeys((share[0] for share in shares), 0)
    for time in range(BINS):
        wave = 1 + 0.6 * math.sin(time / 9) + (2.5 if 40 <= time < 52 else 0)
        total = 0
        for region, start, length, _, share in shares:
            granules = max(1, length // granule)
            for index in sorted({chance.randrange(granules) for _ in range(min(6, granules))}):
                misses = int(wave * share * scale * chance.uniform(200, 900)) + 1
                cells.append([time, start // granule + index, misses])
                owner = next(at for at, one in enumerate(by_address) if shares[one][0] == region)
                key = (start // granule + index, owner)
                owners[key] = owners.get(key, 0) + misses
                per_region[region] += misses
                total += misses
        cold = int(total * (0.7 if time < 6 else 0.02))
        timeline["misses"].append(total)
        timeline["cold_misses"].append(cold)
        timeline["l1_misses"].append(total * 9 + chance.randrange(5000))
    missed, cold = sum(timeline["misses"]), sum(timeline["cold_misses"])
    l1_missed = sum(timeline["l1_misses"])
    kinds = {"fetch": accesses // 4, "load": accesses // 2}
    kinds["store"] = accesses - sum(kinds.values())
    references = {4: missed, 3: missed, 2: missed, 1: missed + cold}
    served = {
        level: {
            "l1d": int(number * (0.9 if level > 2 else 0.4)),
            "l2": int(number * (0.08 if level > 2 else 0.3)),
            "l3": int(number * (0.015 if level > 2 else 0.2)),
        }
        for level, number in references.items()
    }
    for level, number in references.items():
        served[level]["memory"] = number - sum(served[level].values())
    all_references = sum(references.values()) if walks else 0
    hi = round(l1_missed * 7 + missed * 40)
    program, stalls = accesses, accesses // 3

    def tlb(name: str, level: int, lookups: int, misses: int, serves: list[str]) -> dict[str, Any]:
        counts = {"lookups": lookups, "hits": lookups - misses, "misses": misses}
        none = {"lookups": 0, "hits": 0, "misses": 0}
        return {
            "name": name,
            "level": level,
            "serves": serves,
            "entries": 64 if level == 1 else 2048,
            "ways": [64 if level == 1 else 16],
            "replacement": ["lru"],
            **counts,
            "cold_misses": cold if "load" in serves else 0,
            "evictions": max(0, misses - 64),
            "flushed": 0,
            "by_kind": {
                kind: counts if kind == serves[0] else none for kind in ("fetch", "load", "store")
            },
            "by_page_size": {"4K": {"hits": lookups - misses, "misses": misses}},
        }

    fetch_missed = l1_missed // 10
    data_missed = l1_missed - fetch_missed
    return {
        "schema": 2,
        "pagewalk": "0.1.0",
        "trace": {
            "name": "gzip.pwt",
            "digest": "3b" * 32,
            "producer": "pagewalk record 0.1.0",
            "command": ["gzip", "-9", "-k", "</script><b>.tar"],
            "arch": "x86_64",
            "fetches": True,
            "filter": "none",
            "notes": ["the layout of the address space is QEMU's, not Linux's"],
        },
        "machine": {
            "name": name,
            "title": "A server core that is only a sample",
            "source": "tests/python/sample.py",
            "digest": "a7" * 32,
            "settings": ["tlb.l2.entries=2048"],
            "description": {
                "title": "A server core that is only a sample",
                "source": "tests/python/sample.py",
                "core": {"fetches": True, "asid_bits": 12, "source": "made up"},
                "tlb": {
                    "l1i": {"entries": 64, "ways": "full", "source": "made up"},
                    "l1d": {"entries": 64, "ways": "full", "source": "made up"},
                    "l2": {
                        "array": [{"entries": 2048, "ways": 16, "page_sizes": ["4K", "2M"]}],
                        "latency_cycles": 7,
                        "source": "a manual with a rather long title, revision 3, section 2.12",
                    },
                },
                "cache": {"l1d": {"size": "48K", "ways": 12, "latency_cycles": 4, "source": ""}},
                "os": {"page_size": "4K", "source": ""},
            },
        },
        "accesses": kinds,
        "instructions": accesses * 2,
        "threads": 1,
        "page_crossings": 1234,
        "tlbs": [
            tlb("l1i", 1, kinds["fetch"], fetch_missed, ["fetch"]),
            tlb("l1d", 1, kinds["load"] + kinds["store"], data_missed, ["load", "store"]),
            tlb("l2", 2, l1_missed, missed, ["fetch", "load", "store"]),
        ],
        "walks": {
            "walks": missed if walks else 0,
            "cold": cold if walks else 0,
            "references": all_references,
            "cold_references": cold * 5 if walks else 0,
            "references_per_walk": [[4, missed - cold]] if walks else [],
            "by_level": [
                {"level": level, "references": number, "served": served[level]}
                for level, number in references.items()
            ]
            if walks
            else [],
        },
        "caches": [
            {
                "name": cache,
                "size_bytes": size,
                "line_bytes": 64,
                "ways": ways,
                "replacement": "lru",
                "program": {
                    "reads": accesses // 2 // shrink,
                    "read_misses": accesses // 2 // shrink // 12,
                    "writes": accesses // 4 // shrink,
                    "write_misses": accesses // 4 // shrink // 15,
                },
                "walker": {
                    "reads": all_references // shrink,
                    "read_misses": all_references // shrink // 3,
                    "writes": 0,
                    "write_misses": 0,
                },
                "writebacks": accesses // 900 // shrink,
            }
            for cache, size, ways, shrink in (
                ("l1d", 48 << 10, 12, 1),
                ("l2", 1 << 20, 16, 12),
                ("l3", 32 << 20, 16, 100),
            )
        ]
        if walks
        else [],
        "faults": {"first_touch": cold, "returned": 0, "protection": 0},
        "memory": {
            "frames_total_bytes": 1 << 40,
            "frames_peak_bytes": (cold + 44) * PAGE,
            "mapped_bytes": cold * PAGE,
            "aged_bytes": 0,
            "table_bytes": 44 * PAGE,
            "table_used_bytes": 44 * PAGE,
            "pages_by_size": {"4K": cold},
        },
        "regions": [
            {
                "name": region,
                "start": start,
                "bytes": length,
                "rights": rights,
                "inferred": region == "anonymous 1",
                "pages": length // PAGE,
                "lookups": max(int(accesses * share), 1),
                "by_kind": {"fetch": 0, "load": int(accesses * share), "store": 0},
                "l1_misses": per_region[region] * 9,
                "misses": per_region[region],
                "cold_misses": per_region[region] // 50,
                "walk_references": per_region[region] * 4 if walks else 0,
                "walk_cycles": per_region[region] * 40 if walks else None,
            }
            for region, start, length, rights, share in sorted(shares, key=lambda one: one[1])
        ],
        "timeline": timeline,
        "map": {
            "bin_accesses": bin_accesses,
            "granule_bytes": granule,
            "cells": cells,
            "owners": [[granule, owner, misses] for (granule, owner), misses in owners.items()],
        },
        "time": {
            "program_cycles": {"lo": program - stalls, "hi": program},
            "translation_cycles": {"lo": 0, "hi": hi},
            "cycles_per_access": {"lo": 0.0, "hi": hi / accesses},
            "share": {"lo": 0.0, "hi": hi / (hi + program - stalls)},
        }
        if walks
        else None,
        "not_modelled": ["the kernel's own accesses", "prefetching"],
        "checked": False,
    }
