"""Successful predictions of a SpecTLB per walk, by its size (B10 figures 6.3 and 6.4).

Parameters: `machine`, `set` (changes for every run), `programs` (by name), `accesses`, `warmup`,
`sizes` (columns: numbers of entries) and `policies`. There is a row per program and policy. With
two policies, a further row per program is the rate of the first divided by that of the second. The
placement is also the seed of random replacement.

The numbers of a run, which can be columns of the method `walks` too:

* `spec_attempts`, `spec_right`, `spec_wrong`: predictions, right predictions and wrong predictions
  per walk. Predictions in walks that faulted are not counted, because the thesis's simulator has
  no such walks;
* `spec_mistaken`: wrong predictions per prediction;
* `spec_dram`: references to memory per walk that a prediction overlapped; `spec_dram_share`: their
  share of all references to memory;
* `spec_cached`: the share of the accesses that missed the TLB which a cache served;
* `spec_devices`: predictions per 1000 walks that reached a page of a device;
* `nested_right`: the share of the host's walks that its SpecTLB predicted rightly;
* `critical`: references per walk that no right prediction of guest or host overlaps.
"""

from collections.abc import Callable
from typing import Any

from pagewalk.reproduce.lab import Lab, Results
from pagewalk.reproduce.table import Table
from pagewalk.sweeps import values


def measure(parameters: dict[str, Any], lab: Lab) -> Table:
    """Successful predictions per walk: one row per program and policy, one column per size."""
    given: list[int] | str = parameters["sizes"]
    sizes = [int(size) for size in values(given)] if isinstance(given, str) else given
    policies: list[str] = parameters["policies"]
    points = [(policy, size) for policy in policies for size in sizes]
    settings = [
        [
            *parameters.get("set", []),
            f"spec_tlb.entries={size}",
            f"spec_tlb.replacement={policy}",
            f"spec_tlb.seed={lab.placement or 1}",
        ]
        for policy, size in points
    ]
    table = Table([str(size) for size in sizes])
    for name, program in parameters["programs"].items():
        trace = lab.trace(program, parameters["accesses"], fetches=False)
        trace = lab.warmed(trace, parameters.get("warmup", 0))
        runs = lab.runs(trace, parameters["machine"], settings)
        rates = dict(zip(points, map(NUMBERS["spec_right"], runs), strict=True))
        for policy in policies:
            row = name if len(policies) == 1 else f"{name}, {policy}"
            table.rows[row] = [rates[policy, size] for size in sizes]
        if len(policies) == 2:
            pairs = [(rates[policies[0], size], rates[policies[1], size]) for size in sizes]
            row = f"{name}, {policies[0]} over {policies[1]}"
            table.rows[row] = [_per(one or 0, other or 0) for one, other in pairs]
    return table


def _per(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _walks(run: Results) -> int:
    return int(run["walks"]["walks"])


def _wrong(run: Results) -> int:
    wrong = run["spec_tlb"]["wrong"]
    return int(wrong["broken"] + wrong["chance"])


def _attempts(run: Results) -> int:
    return int(run["spec_tlb"]["right"]) + _wrong(run)


def _dram(run: Results) -> int:
    return int(run["spec_tlb"]["overlapped"].get("memory", 0))


def _dram_share(run: Results) -> float | None:
    outcomes = run["spec_tlb"]["outcomes"]
    return _per(_dram(run), sum(one["references"].get("memory", 0) for one in outcomes))


def _cached(run: Results) -> float | None:
    outcomes = run["spec_tlb"]["outcomes"]
    served = [places for one in outcomes for places in one["accesses"].values()]
    everything = sum(sum(places.values()) for places in served)
    return _per(everything - sum(places.get("memory", 0) for places in served), everything)


def _nested_right(run: Results) -> float | None:
    return _per(run["nested"]["spec_tlb"]["right"], run["nested"]["walks"])


NUMBERS: dict[str, Callable[[Results], float | None]] = {
    "spec_attempts": lambda run: _per(_attempts(run), _walks(run)),
    "spec_right": lambda run: _per(run["spec_tlb"]["right"], _walks(run)),
    "spec_wrong": lambda run: _per(_wrong(run), _walks(run)),
    "spec_mistaken": lambda run: _per(_wrong(run), _attempts(run)),
    "spec_dram": lambda run: _per(_dram(run), _walks(run)),
    "spec_dram_share": _dram_share,
    "spec_cached": _cached,
    "spec_devices": lambda run: _per(1000 * run["spec_tlb"]["devices_reached"], _walks(run)),
    "nested_right": _nested_right,
    "critical": lambda run: _per(run["nested"]["critical_references"], _walks(run)),
}
