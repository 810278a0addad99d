"""Settings of a machine's memory: its size, and its aging.

The size is in bytes, or a share of what a program needs.

```
 --memory 64M   -----------------------------------------> memory.size
 --memory 80%   --> base alone, with the machine's memory --> its peak, times 80 %
                                            with --aged, that is the size of the free memory
```
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import _native, text
from pagewalk.machine import Machine
from pagewalk.machine import aged as aged_setting

if TYPE_CHECKING:
    from pagewalk.progress import Progress
    from pagewalk.trace import Trace

STEP = 2 << 20
"""The size of memory is a multiple of this number: a page of 2M."""
KEPT = ("base_page", "replacement", "devices", "mosaic", "utopia")
"""The keys of a machine's `os` that stay in a run of `base`; keys of other managers are dropped."""


def memory_settings(
    trace: "Trace | str | os.PathLike[str]",
    machine: str | os.PathLike[str],
    *,
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    aged: tuple[float, float] | None = None,
    memory: str | None = None,
    progress: "Progress | None" = None,
) -> list[str]:
    """The settings that give a machine the memory that is requested for `trace`.

    For a share, the trace is first run under the manager `base`, on the same machine and settings.

    Args:
        trace: A trace, or a value that `Trace` accepts. If `memory` is a share, it must not be a
            pipe, because it is read twice.
        machine: As for `Machine`.
        set: Other settings to change, as for `Machine`.
        aged: Start with memory in the state after long use: the shares that are free and wired.
        memory: Size of memory: bytes (`64M`), or a share (`80%`) of the peak that `base` uses
            with the machine's own memory. With `aged`, this is the size of the free memory. If
            absent, the machine's own size.
        progress: Called with the number of accesses done and of all accesses of the run of `base`.

    Raises:
        Error: There is no such trace or machine, or a setting or `memory` is wrong.
        WorkError: The trace is damaged, or `base` cannot run it.
    """
    settings = [f"{k}={v}" for k, v in set.items()] if isinstance(set, Mapping) else list(set)
    share = share_of(memory)
    if share is None:
        return sized(settings, memory, aged)
    from pagewalk.trace import Trace

    trace = trace if isinstance(trace, Trace) else Trace(trace)
    if trace.is_pipe:
        raise _native.Error(
            f"memory is `{memory}` of what the manager base uses, so the trace must be read twice, "
            "but a pipe can be read only once: write a size such as 64M, or import the pipe with "
            "`pagewalk import` first"
        )
    results = base_alone(os.fspath(machine), settings).run(trace, progress=progress, names=False)
    peak = results.data["memory"]["frames_peak_bytes"]
    return shared(Machine(machine, settings), settings, share, peak, aged)


def base_alone(machine: str, settings: list[str]) -> Machine:
    """The machine with base pages alone, managed by `base`."""
    described = Machine(machine, settings).description.get("os", {})
    kept = {key: value for key, value in described.items() if key in KEPT}
    if "base_page" in kept:
        kept["page_size"] = kept["base_page"]
    return Machine(machine, [*settings, f"os={_toml({'manager': 'base', **kept})}"])


def share_of(memory: str | None) -> float | None:
    """The share that is requested. `None` if a size is requested, or nothing."""
    if memory is None or not memory.endswith("%"):
        if memory is not None and not _is_size(memory):
            raise _native.Error(
                f"memory is `{memory}`: write a size such as 64M, or a share such as 80%"
            )
        return None
    try:
        share = float(memory[:-1]) / 100
    except ValueError:
        share = 0.0
    if not 0 < share < float("inf"):
        raise _native.Error(
            f"memory is `{memory}`: write a size such as 64M, or a share such as 80%"
        )
    return share


def sized(
    settings: Sequence[str], memory: str | None, aged: tuple[float, float] | None
) -> list[str]:
    """The settings for a size, or for the machine's own memory."""
    _given_once(settings, memory, aged)
    size = [] if memory is None else [f"memory.size={memory}"]
    return size + ([aged_setting(*aged)] if aged else [])


def shared(
    machine: Machine,
    settings: Sequence[str],
    share: float,
    peak: int,
    aged: tuple[float, float] | None,
) -> list[str]:
    """The settings for a share of `peak`, the largest number of bytes that base pages use."""
    _given_once(settings, None, aged)
    free = aged[0] if aged else 1.0
    if free <= 0:
        raise _native.Error(
            "--aged: the free share is 0, so the program would have no memory: give a larger "
            "free share, as in 0.5,0.1"
        )
    found = [f"memory.size={_up(share * peak / free)}"]
    if not machine.description.get("swap", {}).get("size"):
        found.append(f"swap.size={_up(2 * peak)}")
    return found + ([aged_setting(*aged)] if aged else [])


def _given_once(
    settings: Sequence[str], memory: str | None, aged: tuple[float, float] | None
) -> None:
    keys = {setting.partition("=")[0].strip() for setting in settings}
    for key, asked in (("memory.size", memory), ("memory.aged", aged)):
        if asked is not None and key in keys:
            name = key.partition(".")[2] if key == "memory.aged" else "memory"
            raise _native.Error(f"{key} is given twice, as a setting and as {name}: leave one out")


def _is_size(memory: str) -> bool:
    try:
        return memory.isdecimal() or text.bytes_of(memory) >= 0
    except (ValueError, IndexError):
        return False


def _up(size: float) -> str:
    return f"{-(-int(size) // STEP) * STEP >> 10}K"


def _toml(value: Any) -> str:
    """A value in TOML, in one line."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_toml(of)}" for key, of in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
