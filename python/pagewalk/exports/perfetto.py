"""Perfetto's format: the misses of each region as a counter over time.

```
 Trace   packet: track_descriptor {uuid name counter}     one per region, and three of all misses
         packet: timestamp, track_event {track, value}    where a counter changes
```

A nanosecond of Perfetto's time is one access of the trace, as a trace has no clock. A time bin of
the results is a step of the counter, whose value is the misses in that bin. If an address bin holds
the end of one region and the beginning of the next, its misses are divided between the two in the
proportion of their misses in the whole run. Source: `protos/perfetto/trace/trace_packet.proto` of
Perfetto 59 and what it imports, whose field numbers are below.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pagewalk import origins
from pagewalk._native import Error

if TYPE_CHECKING:
    from pagewalk import plain

_TRACE_PACKET = 1
_TIMESTAMP, _SEQUENCE, _EVENT, _DESCRIPTOR = 8, 10, 11, 60
_UUID, _NAME, _PROCESS, _PARENT, _COUNTER = 1, 2, 3, 5, 8
_PID, _PROCESS_NAME = 1, 6
_UNIT_NAME = 6
_TYPE, _TRACK, _DOUBLE_VALUE = 9, 11, 44
_TYPE_COUNTER = 4
_ALL = 1
"""The track that contains all other tracks."""


def made(data: "plain.Document", by: str) -> bytes:
    """The counters as a trace. `by` has no effect."""
    del by
    if "map" not in data or "timeline" not in data:
        raise Error(
            "these results have no misses over time: make them with `pagewalk run --json FILE`"
        )
    name = f"{data['trace']['name']} on {data['machine']['name']}"
    process = _whole(_PID, 1) + _bytes(_PROCESS_NAME, name.encode())
    packets = [_packet(_bytes(_DESCRIPTOR, _whole(_UUID, _ALL) + _bytes(_PROCESS, process)))]
    for at, (counter, values) in enumerate(_counters(data)):
        track = _ALL + 1 + at
        described = (
            _whole(_UUID, track)
            + _bytes(_NAME, counter.encode())
            + _whole(_PARENT, _ALL)
            + _bytes(_COUNTER, _bytes(_UNIT_NAME, b"misses"))
        )
        packets.append(_packet(_bytes(_DESCRIPTOR, described)))
        packets += (_step(track, time, value) for time, value in _steps(values))
    return b"".join(packets)


def _counters(data: "plain.Document") -> Iterable[tuple[str, Mapping[int, float]]]:
    """Each counter's name, and its values by the access at which a time bin begins."""
    line = data["timeline"]
    bin_ = line["bin_accesses"]
    for key, name in (
        ("misses", "misses of every TLB"),
        ("l1_misses", "misses of the first level"),
        ("cold_misses", "first touches"),
    ):
        values: list[int] = line[key]  # type: ignore[literal-required]
        yield name, {at * bin_: float(value) for at, value in enumerate(values)}
    for number, cells in sorted(_of_regions(data).items()):
        yield origins.region_name(data["regions"][number]), cells


def _of_regions(data: "plain.Document") -> dict[int, dict[int, float]]:
    """The misses of each region, by the number of the access at which a time bin begins."""
    grid = data["map"]
    shares: dict[int, list[tuple[int, float]]] = {}
    owned: defaultdict[int, int] = defaultdict(int)
    for granule, _, misses in grid["owners"]:
        owned[granule] += misses
    for granule, region, misses in grid["owners"]:
        shares.setdefault(granule, []).append((region, misses / max(1, owned[granule])))
    found: dict[int, dict[int, float]] = {}
    for time, granule, misses in grid["cells"]:
        for region, share in shares.get(granule, ()):
            cells = found.setdefault(region, defaultdict(float))
            cells[time * grid["bin_accesses"]] += misses * share
    for cells in found.values():
        # A bin without misses has no cell.
        for time in list(cells):
            cells.setdefault(time + grid["bin_accesses"], 0.0)
    return found


def _steps(values: Mapping[int, float]) -> Iterable[tuple[int, float]]:
    """The values that differ from the one before, in the order of time."""
    last = None
    for time, value in sorted(values.items()):
        if value != last:
            yield time, value
            last = value


def _step(track: int, time: int, value: float) -> bytes:
    event = (
        _whole(_TYPE, _TYPE_COUNTER)
        + _whole(_TRACK, track)
        + _varint(_DOUBLE_VALUE << 3 | 1)
        + struct.pack("<d", value)
    )
    return _packet(_whole(_TIMESTAMP, time) + _bytes(_EVENT, event))


# --- protocol buffers: a field is its number and kind, then its value ----------------------------


def _packet(content: bytes) -> bytes:
    return _bytes(_TRACE_PACKET, content + _whole(_SEQUENCE, 1))


def _whole(field: int, value: int) -> bytes:
    """A field that is a whole number."""
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    """A field that is a text or a message."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """A number as bytes with seven bits each, the lowest bits first.

    The top bit of a byte says that more bytes follow.
    """
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
