"""`place --compare`: intervals that hold, a real gain, what cannot be compared, counters."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import pytest
from command import run_command

from pagewalk import Error, Machine, _native, advise, estimates, here, managers, predictions
from pagewalk.cli import main
from pagewalk.machine import machines
from pagewalk.page_sizes import place_file
from pagewalk.placing import compare, counters, launch, show
from pagewalk.placing.compare import Limits, Sample
from pagewalk.report import managed, placed
from pagewalk.summary import summary

SPEC = "generate:uniform,accesses=60k,size=64M"
TABLE = r"""
#include <stdlib.h>

int main(void) {
    unsigned count = 1 << 23, random = 1;
    unsigned *table = malloc(count * sizeof *table);
    unsigned long sum = 0;
    for (unsigned at = 0; at < count; at++) table[at] = at;
    for (int round = 0; round < 6000000; round++) {
        random = random * 1664525 + 1013904223;
        sum += table[random >> 9];
    }
    return sum == 1;
}
"""


def sample(seconds: float, status: int = 0, counts: dict[str, int] | None = None) -> Sample:
    return Sample(seconds, seconds, 0.0, 10, 0, 1 << 20, status, counts or {}, 0.0)


def noisy(chance: random.Random, kind: str) -> tuple[Callable[[], Sample], Callable[[], float]]:
    """A program of about 50 ms on a machine with other work, and its clock."""
    state = {"now": 0.0, "level": 0.0}

    def run() -> Sample:
        state["level"] = 0.9 * state["level"] + chance.gauss(0, 0.01)
        if kind == "bimodal":
            seconds = 0.05 * chance.choice([1, 1, 1.1]) * (1 + chance.gauss(0, 0.004))
        elif kind == "quiet":
            seconds = 0.05 * (1 + abs(chance.gauss(0, 0.002)))
        else:
            late = chance.uniform(1, 2) if chance.random() < 0.1 else 1.0
            seconds = 0.05 * (1 + state["level"] + abs(chance.gauss(0, 0.03))) * late
        state["now"] += seconds
        return sample(seconds)

    return run, lambda: state["now"]


@pytest.mark.parametrize("kind", ["quiet", "noisy", "bimodal"])
def test_of_200_comparisons_with_itself_at_most_14_exclude_zero(kind: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    excluded = 0
    for _ in range(200):
        run, clock = noisy(chance, kind)
        found = compare.compare(run, run, Limits(), seed=chance.randrange(1 << 30), clock=clock)
        share = compare.document(found)["gain"][compare.JUDGED]["share"]
        excluded += not share["lo"] <= 0 <= share["hi"]
    assert excluded <= 14


def test_an_interval_is_that_of_the_sign_test() -> None:
    for count in range(6, 40):
        low, high = compare.interval(range(count))
        # On either side, the number of values that the binomial distribution allows is left out.
        assert low + high == count - 1
        missed = 2 * sum(comb(count, k) for k in range(int(low) + 1)) / 2**count
        wider = 2 * sum(comb(count, k) for k in range(int(low) + 2)) / 2**count
        assert missed <= 0.05 < wider, count
    assert compare.interval([3, 1, 2]) == (1, 3)


def test_a_difference_is_found_and_its_interval_ends_the_comparison() -> None:
    chance = random.Random(1)
    quiet = lambda base: lambda: sample(base * (1 + chance.gauss(0, 0.001)))  # noqa: E731
    found = compare.compare(quiet(0.05), quiet(0.04), Limits(), seed=2, clock=lambda: 0.0)
    document = compare.document(found)
    share = document["gain"]["cpu_seconds"]["share"]
    assert len(found.without) == compare.ROUNDS_MIN and "narrower than 1 %" in found.ended
    assert 0.19 < share["lo"] <= share["median"] <= share["hi"] < 0.21
    assert share["hi"] - share["lo"] <= 0.01


def test_limits_end_a_comparison() -> None:
    chance, now = random.Random(3), [0.0]

    def run() -> Sample:
        now[0] += 1
        return sample(chance.uniform(0.05, 0.1))

    found = compare.compare(run, run, Limits(rounds_max=11), seed=0, clock=lambda: 0.0)
    assert len(found.without) == 11 and found.ended == "11 rounds"
    found = compare.compare(run, run, Limits(seconds_max=5), seed=0, clock=lambda: now[0])
    assert len(found.without) == compare.ROUNDS_MIN and found.ended == "5 seconds"


def test_which_runs_first_is_by_chance() -> None:
    order: list[str] = []
    chance = random.Random(5)

    def run(name: str) -> Callable[[], Sample]:
        def once() -> Sample:
            order.append(name)
            return sample(chance.uniform(0.05, 0.1))

        return once

    compare.compare(run("a"), run("b"), Limits(rounds_max=40), seed=4, clock=lambda: 0.0)
    rounds = ["".join(order[at : at + 2]) for at in range(2, len(order), 2)]
    assert set(rounds) == {"ab", "ba"}
    assert 8 < rounds.count("ab") < 32


@pytest.mark.parametrize(
    ("without", "placed", "words"),
    [
        ([0, 1], [0], "status 0 in one run and 1 in the next, so that runs cannot be compared"),
        ([0, 0], [139], "with status 0 without the rules and 139 with them, so that runs cannot"),
        ([0, 3], [3], "cannot be compared"),
    ],
)
def test_what_does_not_end_alike_is_refused(
    without: list[int], placed: list[int], words: str
) -> None:
    def run(statuses: list[int]) -> Callable[[], Sample]:
        left = iter([*statuses, *[statuses[-1]] * 99])
        return lambda: sample(0.05, next(left))

    with pytest.raises(Error, match=words):
        compare.compare(run(without), run(placed), Limits(), seed=0)


def test_what_takes_a_millisecond_is_refused() -> None:
    with pytest.raises(Error, match=r"takes 1\.0 ms of CPU time, which is mostly its start: give"):
        compare.compare(lambda: sample(0.001), lambda: sample(0.001), Limits(), seed=0)


class StandIn:
    """Counters of a machine that has some: the n-th run counts n thousand walks."""

    def __init__(self) -> None:
        self.runs = 0

    def start(self) -> None:
        self.runs += 1

    def stop(self) -> dict[str, int]:
        return {"dtlb_load_misses": 1000 * self.runs, "itlb_misses": 1}


def test_counters_are_read_around_each_run() -> None:
    used = dict.fromkeys(("user_seconds", "system_seconds"), 0.0)
    used |= dict.fromkeys(("minor_faults", "major_faults", "resident_bytes_max"), 0)
    stand_in = StandIn()
    runs = [compare.sampled(lambda: {"status": 0, "usage": used}, stand_in) for _ in range(3)]
    assert [run.counts["dtlb_load_misses"] for run in runs] == [1000, 2000, 3000]
    found = compare.document(compare.Compared(runs, runs[::-1], 1.0, "3 rounds"))
    assert found["without"]["counts"] == {"dtlb_load_misses": 2000, "itlb_misses": 1}
    text = {"command": ["p"], "predicted": None, "counters_missing": None}
    assert "TLB misses counted: 2001 without, 2001 with" in show.compared({**found, **text})


def test_the_kernels_own_counters_count_the_program_alone() -> None:
    """Page faults stand for walks, which this machine may not count."""
    perf = counters.Perf([counters.FAULTS], kernel=True)
    found = []
    for megabytes in (0, 64):
        try:
            perf.start()
        except OSError as error:
            pytest.skip(f"perf_event_open: {error}")
        source = f"x = bytearray({megabytes} << 20)"
        # Faults of the parent itself are not counted.
        bytearray(32 << 20)
        outcome = launch.untraced([sys.executable, "-S", "-c", source], [])
        counted = perf.stop()["page_faults"]
        usage = outcome["usage"]
        assert counted == pytest.approx(usage["minor_faults"] + usage["major_faults"], rel=0.1)
        found.append(counted)
    assert found[1] > found[0]


def test_without_counters_the_reason_is_said() -> None:
    found, why = counters.of_walks()
    assert (found is None) == (why is not None)
    assert why is None or "no walks were counted" in why


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("compare") / "table"
    source = program.with_suffix(".c")
    source.write_text(TABLE)
    subprocess.run(["cc", "-O2", "-o", program, source], check=True)
    return program


@pytest.mark.skipif(not _native.may_trace(), reason="ptrace is forbidden here")
def test_the_command_says_what_was_gained(table: Path, tmp_path: Path) -> None:
    place = tmp_path / "table.place"
    predicted = predictions.Prediction(0.0, 0.999, 0.2, "user_seconds", "a machine")
    place.write_text(f"{predicted.line()}\nmmap = 2M\n")
    out = tmp_path / "compared.json"
    place.write_text(f"{place.read_text()}lib none = 2M\n")
    options = ["--compare", "--rounds", 8, "--json", out]
    done = run_command(["place", place, *options, "--", table])
    assert done.returncode == 0 and not done.stdout, done.stderr
    found = json.loads(out.read_text())
    assert found["rounds"] == 8 and found["rules"] == ["mmap = 2M", "lib none = 2M"]
    assert done.stderr.count("lib none = 2M: no memory was mapped that this rule applies to") == 1
    got = {one["rule"]: one["large_bytes"] for one in found["rules_got"]}
    assert got["mmap = 2M"] > 24 << 20 and got["lib none = 2M"] == 0
    assert found["without"]["minor_faults"] > 7000 > found["placed"]["minor_faults"] + 5000
    assert found["predicted"]["machine"] == "a machine"
    assert "Predicted for a machine: 0.0 to 99.9 %" in " ".join(done.stderr.split())
    for time in compare.TIMES:
        gain = found["gain"][time]["seconds"]
        assert gain["lo"] <= gain["median"] <= gain["hi"]
    # With 512 times fewer faults the kernel has less to do, however busy this machine is.
    assert found["gain"]["system_seconds"]["seconds"]["median"] > 0


@pytest.mark.skipif(not _native.may_trace(), reason="ptrace is forbidden here")
@pytest.mark.parametrize(
    ("options", "command", "words"),
    [
        (["--compare"], ["true"], "which is mostly its start"),
        (["--compare"], ["/nonexistent"], "/nonexistent"),
        (["--compare", "--dry-run"], ["true"], "--compare runs a program many times: leave --dry"),
        (["--rounds", "3"], ["true"], "--rounds needs --compare: give both"),
        (
            ["--compare", "--within", "3"],
            ["true"],
            "`3` is not a share of the time: write a percentage",
        ),
        (["--compare", "--prepare", "exit 5"], ["true"], "--prepare: `exit 5` ended with status 5"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    options: list[str], command: list[str], words: str
) -> None:
    done = run_command(["place", "mmap=2M", *options, "--", *command])
    [line] = [line for line in done.stderr.splitlines() if line.startswith("pagewalk: error: ")]
    assert done.returncode in (1, 2) and words in line


@pytest.mark.skipif(not _native.may_trace(), reason="ptrace is forbidden here")
def test_a_prediction_for_another_processor_is_told(table: Path, tmp_path: Path) -> None:
    name = next(name for name in here.BUILT_IN if not here.is_of(name, here.processor()))
    place = tmp_path / "other.place"
    place.write_text(
        f"{predictions.Prediction(0.0, 0.5, 0.2, 'user_seconds', name).line()}\nmmap = 2M\n"
    )
    done = run_command(["place", place, "--compare", "--rounds", 2, "--", table])
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "note: the prediction is for" in line]
    assert f"{name}, which has another processor than this computer: pagewalk calibrate" in line


def test_a_program_that_cannot_be_repeated_is_named(tmp_path: Path) -> None:
    if not _native.may_trace():
        pytest.skip("ptrace is forbidden here")
    work = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
    once = f"test -e {tmp_path}/there && exit 3; touch {tmp_path}/there; {work}"
    command = ["place", "mmap=2M", "--compare"]
    done = run_command([*command, "--", "sh", "-c", once])
    assert done.returncode == 2 and "runs cannot be compared; with --prepare" in done.stderr
    prepared = ["--prepare", f"rm -f {tmp_path}/there", "--rounds", 2]
    done = run_command([*command, *prepared, "--", "sh", "-c", once])
    assert done.returncode == 0, done.stderr


def test_predictions_are_written_and_read() -> None:
    for time in predictions.TIMES:
        written = predictions.Prediction(0.0, 0.25, 0.125, time, "my machine.toml")
        assert predictions.read(f"# a\n{written.line()}\nheap = 2M\n") == written
    assert predictions.read("heap = 2M\n") is None
    assert predictions.read("# predicted: -.-. to 3 % of the time in user mode\n") is None
    of_none = "# predicted: 1 to 3 % of the time, best estimate 2 %, for a\n"
    assert predictions.read(of_none) is None
    advised = advise(SPEC, "epyc-9005")
    found = predictions.read(place_file(advised))
    assert found is not None and found.machine == "epyc-9005"
    best = advised.data["best"]
    assert found.lo <= found.best <= found.hi and best["gain_best"] is not None
    assert best["gain_share"]["lo"] <= best["gain_best"] <= best["gain_share"]["hi"]


def test_estimates_lie_in_their_ranges() -> None:
    for machine in ("epyc-9005", "xeon-6900p", "neoverse-n1"):
        found = Machine(machine).run(SPEC).data
        estimate, share = found["estimate"], found["time"]["share"]
        assert share["lo"] <= estimate["share"] <= share["hi"]
        assert 0 < estimate["share"] < 1 and "halfway" in estimate["how"]
    assert Machine("tlb-only").run(SPEC).data["estimate"] is None


def test_the_native_time_decides_how_much_overlaps() -> None:
    """A model whose cycles are known: the time gives back what was put in."""
    core = {"cycles_per_instruction": 1.0, "misses_in_flight": 20}
    calibrated = {"ghz": 2.0, "walks_in_flight": 4.0}
    document: dict[str, Any] = {
        "instructions": 1000,
        "time": {"program_cycles": {"hi": 41000}, "translation_cycles": {"hi": 20000}},
        "machine": {"description": {"core": core, "calibrated": calibrated}},
    }
    work = estimates.Work.of(document)
    assert work is not None
    for at_once in (1.0, 2.0, 3.5, 10.0):
        cycles = work.cycles(at_once, min(at_once, 4.0))
        native = {"user_seconds": cycles / 2e9, "translation_ms": {"lo": 0, "hi": 1}}
        found = estimates.overlap({**document, "native": native})
        assert found is not None and found.at_once == pytest.approx(at_once, rel=1e-6)
        assert "native run" in found.how
    half = {**document["time"], "translation_cycles": {"hi": 10000}}
    placed = {**document, "time": half}
    gain = estimates.gain({**document, "native": native}, placed)
    assert gain == pytest.approx(2500 / (4100 + 5000))


def test_what_is_likely_lies_between_the_least_and_the_most_overlap() -> None:
    core = {"cycles_per_instruction": 1.0, "misses_in_flight": 10}
    document: dict[str, Any] = {
        "instructions": 1000,
        "time": {"program_cycles": {"hi": 41000}, "translation_cycles": {"hi": 20000}},
        "machine": {
            "description": {"core": core, "calibrated": {"ghz": 2.0, "walks_in_flight": 4.0}}
        },
    }
    half = {**document["time"], "translation_cycles": {"hi": 10000}}
    placed = {**document, "time": half}
    assert estimates.likely(document, placed) is None
    timed = 41000 / 3 + 20000 / 3
    document["native"] = {"user_seconds": timed / 2e9, "translation_ms": {"lo": 0, "hi": 1}}
    # With three at once nothing else takes time; with all ten walks overlap as far as was timed.
    low, high = 2500 / timed, 10000 / 3 / timed
    found, best = estimates.likely(document, placed), estimates.gain(document, placed)
    assert found is not None and best == pytest.approx((low + high) / 2)
    assert found["lo"] == pytest.approx(low - estimates.REPEATS_TO)
    assert found["hi"] == pytest.approx(high + estimates.REPEATS_TO)
    # A program whose time is longer than the time without overlap gains a smaller share of its
    # time.
    slow = {**document["native"], "user_seconds": 10 * 61000 / 2e9}
    less = estimates.likely({**document, "native": slow}, placed)
    assert less is not None and less["hi"] == pytest.approx(10000 / 610000 + estimates.REPEATS_TO)


CPUS = {
    "turin": (
        "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
    ),
    "genoa": (
        "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
    ),
    "n1": "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n",
    "none": "processor\t: 0\n",
}


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [("turin", ["epyc-9005"]), ("genoa", []), ("n1", ["neoverse-n1"]), ("none", [])],
)
def test_the_machine_of_this_processor_is_found(
    cpu: str, expected: list[str], tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(CPUS[cpu])
    processor = here.processor(cpuinfo)
    names = [machine.name for machine in machines()]
    assert here.fitting(names, processor, tmp_path) == expected
    assert here.is_of("origin-2000", processor) is None
    assert set(here.BUILT_IN) <= set(names)
    if processor is not None:
        # A file that calibrate has written on this machine is preferred; a file of another machine
        # is ignored.
        own, other = tmp_path / "own.toml", tmp_path / "other.toml"
        own.write_text(f"title = 'x'\n{processor.comment()}\n")
        other.write_text("# processor: AuthenticAMD 99 1 another\n")
        assert here.fitting(names, processor, tmp_path) == [str(own), *expected]
        assert here.is_of(str(other), processor) is False


def test_machines_here_says_to_calibrate_where_none_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    real = here.processor
    for cpu, status in (("turin", 0), ("genoa", 1)):
        processor_file = tmp_path / cpu
        processor_file.write_text(CPUS[cpu])
        found = real(processor_file)
        monkeypatch.setattr(here, "processor", lambda found=found: found)
        assert main(["machines", "--here"]) == status
    said = capsys.readouterr()
    assert said.out == "epyc-9005\n"
    assert "no machine file describes this computer (AMD EPYC, family 25, model 17)" in said.err
    assert "pagewalk calibrate -o here.toml" in said.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--measure"], "put it after `--`, as in `--measure -- ./join`"),
        (["--", "true"], "runs a program after `--` only with --measure"),
        (["--rounds", "3"], "--rounds needs --measure: give both"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", SPEC, "-m", "epyc-9005", *options]) == 2
    assert words in capsys.readouterr().err


def test_managers_have_a_best_estimate_in_each_range() -> None:
    [table] = managers(SPEC).data["traces"]
    assert "halfway" in table["how"]
    for row in table["rows"]:
        cycles = row["translation_cycles"]
        assert cycles["lo"] <= row["translation_best_cycles"] <= cycles["hi"]
    shown = managed.summary(managers(SPEC).data)
    assert "best" in shown and "Cycles are for epyc-9005" in shown


def test_text_has_the_estimate_and_whose_machine_it_is_for() -> None:
    shown = " ".join(summary(Machine("epyc-9005").run(SPEC).data).split())
    assert "best estimate" in shown and "for epyc-9005" in shown
    advice = " ".join(placed.summary(advise(SPEC, "epyc-9005").data).split())
    assert "(best estimate" in advice and "Cycles and times are for epyc-9005" in advice
    for fits, words in (
        (True, "has this computer's"),
        (False, "has another"),
        (None, "is not known"),
    ):
        assert words in here.said("x", fits)
