"""Mutated Parquet files: our own error or a trace, whatever the library says.

A second in the tests; `PAGEWALK_FUZZ_SECONDS=60` for a minute. `PAGEWALK_FUZZ_SEED` starts at the
seed that a failure names.
"""

import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import pagewalk as library

ROWS = 500
TELLING = [b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\x7f", b"\xff" * 8]


def samples(path: Path) -> list[bytes]:
    """The same table, written in several ways."""
    table = pa.table(
        {
            "addr": pa.array(range(ROWS), pa.uint64()),
            "kind": pa.array([("fetch", "load", "store")[row % 3] for row in range(ROWS)]),
            "size": pa.array([8] * ROWS, pa.uint16()),
            "paddr": pa.array([row * 4096 if row % 7 else None for row in range(ROWS)]),
        }
    )
    found = []
    for options in (
        {},
        {"write_page_checksum": True},
        {"compression": "zstd", "row_group_size": 100},
        {"compression": "none", "use_dictionary": False},
    ):
        pq.write_table(table, path, **options)  # type: ignore[arg-type]
        found.append(path.read_bytes())
    return found


def mutated(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(out))
        match chance.randrange(3):
            case 0:
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                del out[at : at + chance.randrange(1, 20)]
            case _:
                value = chance.choice(TELLING)
                out[at : at + len(value)] = value
    return bytes(out)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    whole = samples(path)
    seed = int(os.environ.get("PAGEWALK_FUZZ_SEED", "0"))
    end = time.monotonic() + float(os.environ.get("PAGEWALK_FUZZ_SECONDS", "1"))
    accepted = runs = 0
    while time.monotonic() < end:
        chance = random.Random(seed)
        path.write_bytes(mutated(chance.choice(whole), chance))
        try:
            trace = library.Trace(path, format="parquet", keep_going=chance.random() < 0.5)
            accepted += trace.info()["accesses"]["load"] > 0
        except library.Error as error:
            assert "\n" not in str(error), f"PAGEWALK_FUZZ_SEED={seed}"
        except BaseException as error:
            raise AssertionError(f"PAGEWALK_FUZZ_SEED={seed}") from error
        seed, runs = seed + 1, runs + 1
    assert runs > 5 and accepted * 20 > runs, f"{accepted} of {runs} were accepted"
