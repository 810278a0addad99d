"""Twelve programs with large pages: what they wanted and got, and what was predicted and gained.

    python tests/kernel/twelve.py FOLDER [PART ...] [--programs NAME ...] [--small] [--again]

```
 calibrate  a machine file of this computer                              3 min   here.toml
 agree      wanted and got beside smaps, region by region, each knob     5 min   36 runs
 trace      the recording and the native run of each program             3 min   12 programs
 predict    the predicted gain of each program                          20 min   12 programs
 gain       the measured gain of each program                           25 min   12 programs
 buffers    how long advice takes for 128 regions that are alike         1 min
 cost       what placing costs a program that maps 10,000 times          3 min
 self       200 comparisons of a program with itself                     5 min
 kills      pagewalk killed 40 times, with knobs changed                 1 min
 record     what is done as one record, placing.json; with --write it and its tables are kept in the
            tree: experiments/host/placing.json, docs/method/placing.md
```

Without a part, all are run in this order. Run it as root and alone, but for `predict`, which other
work only slows: it makes intervals wide, and a machine file that is calibrated beside it is wrong.
Each piece leaves a file in FOLDER/results when it is done, so that a campaign that was stopped goes
on where it was; `--again` runs the given parts anew. Knobs are put back however it ends. `--small`
tries the script with less data and few rounds; its numbers mean nothing.
"""

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import knobs as kernel
import twelve_record as record
from programs import ROOT, SMALLER, Program, compiled, prepared

from pagewalk import _native, predictions
from pagewalk._native import Error, WorkError
from pagewalk.placing import compare, launch, mappings, rules, verify
from pagewalk.placing.compare import Limits
from pagewalk.placing.mappings import Mapping as Mapped
from pagewalk.placing.system import System, grown

JOURNAL = kernel.JOURNAL.with_name("pagewalk-place-knobs.json")
ENABLED = kernel.THP / "enabled"
SIZE = "2M"
RULE = f"data={SIZE}"
TOP_PAD = 64 << 20
"""Bytes by which the heap grows in recordings, as `place` has it grow by whole blocks: otherwise no
large page has room in the heap that the model sees."""
TRIES = 5
"""Looks at a process whose memory changes meanwhile, until one is at rest."""
PR_SET_THP_DISABLE = 41

NONE = predictions.Prediction(0, 0, 0, "user_seconds", "none")
"""Said of a program for which nothing can be predicted."""

Work = Callable[[], dict[str, Any]]


class Campaign:
    """Pieces of work, each with a file that says that it is done."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.small, self.again = folder, options.small, options.again
        self.results = folder / "results"
        self.results.mkdir(parents=True, exist_ok=True)
        self.seconds, self.writes = options.seconds, options.write
        self.programs = [
            one
            for one in prepared(folder, SMALLER if self.small else 1)
            if not options.programs or one.name in options.programs
        ]
        self.here = folder / "here.toml"

    def piece(self, name: str, work: Work) -> dict[str, Any]:
        """What `work` gave, now or in a campaign that was stopped."""
        file = self.results / f"{name}.json"
        if file.exists() and not self.again:
            found: dict[str, Any] = json.loads(file.read_text())
            return found
        print(f"{datetime.datetime.now():%H:%M:%S} {name} ...", end=" ", flush=True)
        before, start = os.getloadavg()[0], time.monotonic()
        found = work()
        found |= {
            "load": [round(before, 2), round(os.getloadavg()[0], 2)],
            "took_seconds": round(time.monotonic() - start, 1),
            "commit": record.kept.commit(),
            "small": self.small,
        }
        unfinished = file.with_suffix(".new")
        unfinished.write_text(json.dumps(found, indent=1) + "\n")
        unfinished.rename(file)
        print(found.get("said", "done"), flush=True)
        return found


@contextlib.contextmanager
def enabled(value: str) -> Iterator[None]:
    """The knob of large pages at a value, and back however this ends."""
    with kernel.kept(JOURNAL, [ENABLED, kernel.THP / "defrag"]):
        ENABLED.write_text(value)
        yield


def pagewalk(*words: object, folder: Path, **more: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a command of pagewalk, which must succeed."""
    command = [sys.executable, "-m", "pagewalk", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, cwd=folder, **more
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-2000:]}")
    return done


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of wall time, and of CPU time of the programs that were started."""
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return {"wall_seconds": time.monotonic() - start, "cpu_seconds": cpu}


# Wanted and got.


class Compared(launch.Watch):
    """Looks at processes as `place --verify` does, and at smaps before and behind each look."""

    def _look(self, pid: int, moment: str) -> None:
        for _ in range(TRIES):
            seen = self._seen(pid, moment)
            if seen is None:
                return
            if not seen["smaps"]["differ"]:
                break
        with self._lock:
            other = self.found.get(pid)
            if other is None or launch._replaces(seen, other):
                self.found[pid] = seen

    def _seen(self, pid: int, moment: str) -> dict[str, Any] | None:
        changed = grown(self.before, self.system.counters())
        try:
            before = mappings.read(pid)
            seen = verify.verify(
                pid, self.rules, system=self.system, grown=changed, disabled=0, moment=moment
            )
            after = mappings.read(pid)
        except (Error, WorkError, OSError, ValueError, IndexError):
            return None
        if seen["command"] == self._own:
            return None
        seen["smaps"] = agreement(seen["regions"], before, after)
        return seen


def agreement(
    regions: Sequence[Mapping[str, Any]], before: Sequence[Mapped], after: Sequence[Mapped]
) -> dict[str, Any]:
    """How many regions are as smaps counts them, and which are not.

    A program may run on between two looks: what is told has to lie between what smaps counted
    before and behind it. Of each region these agree: the bytes in large pages, all bytes in memory,
    and the bytes that were wanted, as those that are large and those with a reason.
    """
    first, last = ({one.start: one for one in all_} for all_ in (before, after))
    told = {one["start"]: one for one in regions}
    compared, differ = 0, []
    for start, one in first.items():
        other = last.get(start)
        if other is None or one.kind == mappings.HUGETLB or other.end != one.end:
            continue
        compared += 1
        region = told.get(start)
        large = region["got"].get("2M", 0) if region else 0
        ends = sorted((one.huge, other.huge))
        is_alike = ends[0] <= large <= ends[1]
        if region and one.kind in mappings.OWN:
            ends = sorted((one.resident, other.resident))
            is_alike &= ends[0] <= sum(region["got"].values()) <= ends[1]
        if region:
            lacking = sum(row["bytes"] for row in region["why"])
            is_alike &= 0 <= region["wanted_bytes"] - lacking <= large
        if not is_alike:
            smaps = {"large": [one.huge, other.huge], "memory": [one.resident, other.resident]}
            differ.append({"smaps": smaps, **(region or {"start": start, "got": {}})})
    return {"regions": compared, "differ": differ}


def ran(command: list[str], folder: Path) -> tuple[int, bytes]:
    """The status and the output of a program without `place`."""
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode, done.stdout


def agree(campaign: Campaign, program: Program, value: str) -> dict[str, Any]:
    """A program with a rule under a knob."""
    system = System()
    wanted = rules.read(RULE, system)
    with enabled(value):
        status, text = ran(program.command, campaign.folder)
        with tempfile.TemporaryFile() as output, outputs(campaign.folder, output):
            with Compared(wanted, system, None) as watch:
                outcome = launch.launch(program.command, wanted, look=watch.end)
            output.seek(0)
            is_same = (status, text) == (outcome["status"], output.read())
    documents = watch.documents
    if not documents:
        raise RuntimeError(f"{program.name} ended before anything was looked at")
    seen = documents[0]
    why: dict[str, int] = {}
    for region in seen["regions"]:
        for row in region["why"]:
            why[row["reason"]] = why.get(row["reason"], 0) + row["bytes"]
    differ = [one for document in documents for one in document["smaps"]["differ"]]
    row = {
        "program": program.name,
        "enabled": value,
        "ends_alike": is_same,
        "moment": seen["moment"],
        "resident_bytes": seen["resident_bytes"],
        "wanted_bytes": seen["wanted_bytes"],
        "got_bytes": seen["wanted_bytes"] - seen["missing_bytes"],
        "why": why,
        "processes": len(documents),
        "regions": sum(document["smaps"]["regions"] for document in documents),
        "differ": differ,
    }
    got, all_ = (row[name] / 2**20 for name in ("got_bytes", "wanted_bytes"))
    said = f"{got:.0f} of {all_:.0f} MiB; {row['regions']} regions, {len(differ)} differ"
    return {**row, "said": said + ("" if is_same else "; IT ENDS OTHERWISE")}


@contextlib.contextmanager
def outputs(folder: Path, output: Any) -> Iterator[None]:
    """Within it programs run in a folder, read nothing, and write to `output`."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        with compare.streams(None), contextlib.ExitStack() as stack:
            kept = os.dup(1)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 1)
            os.dup2(output.fileno(), 1)
            yield
    finally:
        os.chdir(here)


# Predicted and gained.


def trace(campaign: Campaign, program: Program) -> dict[str, Any]:
    """A program's recording, and its native run."""
    # The heap lies in the recording as it does where it is placed.
    more = {**os.environ, "GLIBC_TUNABLES": f"glibc.malloc.top_pad={TOP_PAD}"}
    file = campaign.folder / f"{program.file_name}.pwt"
    marks = [] if program.is_static else ["--allocations"]
    words = ["record", *marks, "--native", "--force", "-o", file, "--", *program.command]
    with enabled("madvise"):
        took = timed(lambda: pagewalk(*words, folder=campaign.folder, env=more))
    return {**took, "said": f"{took['wall_seconds']:.1f} s, {file.stat().st_size >> 20} MiB"}


def predict(campaign: Campaign, program: Program) -> dict[str, Any]:
    """What is predicted for a program, and the place file with which it is to be gained."""
    folder, name = campaign.folder, program.file_name
    file, place, advised = (folder / f"{name}.{end}" for end in ("pwt", "place", "advised.json"))
    found: dict[str, Any] = {"program": program.name}
    found["run"] = timed(lambda: pagewalk("run", file, "-m", campaign.here, folder=folder))
    command = ["advise", file, "-m", campaign.here, "--force", "-o", place, "--json", advised]
    found["advise"] = timed(lambda: pagewalk(*command, folder=folder))
    document = json.loads(advised.read_text())
    found["regions"], found["passes"] = len(document["regions"]), document["runs"]
    predicted = predictions.read(place.read_text())
    # Regions of a group are counted together.
    pages = {
        one["group"]: one["together"][SIZE]["large_pages"]
        for one in document["regions"]
        if one["size"] == SIZE
    }
    if predicted is not None and not is_met(campaign, program, place, sum(pages.values())):
        found["unmet"] = place.read_text()
        predicted = None
    found["by"] = "advice"
    if predicted is None:
        # Nothing is worth its memory, or its regions are not found again: all data is placed.
        found["by"] = RULE
        all_ = document["uniform"].get(SIZE) or document["base"]
        predicted = predictions.of(all_, str(campaign.here)) or NONE
        place.write_text(f"{predicted.line()}\n{RULE.replace('=', ' = ')}\n")
    said = (
        f"by {found['by']}: {100 * predicted.lo:.1f} to {100 * predicted.hi:.1f} % of "
        f"{predictions.TIMES[predicted.time]}, best estimate {100 * predicted.best:.1f} %"
    )
    return {**found, "predicted": predicted._asdict(), "said": said}


def gain(campaign: Campaign, program: Program) -> dict[str, Any]:
    """What a program gains: with the place file of `predict`, and by the knob alone."""
    folder, name = campaign.folder, program.file_name
    found = campaign.piece(f"predict-{name}", partial(predict, campaign, program))
    predicted, place = predictions.Prediction(**found["predicted"]), folder / f"{name}.place"
    json_ = folder / f"{name}.gained.json"
    limits = ["--rounds", 4] if campaign.small else ["--seconds", campaign.seconds]
    command = ["place", place, "--compare", *limits, "--force", "--json", json_, "--"]
    with enabled("madvise"):
        pagewalk(*command, *program.command, folder=folder)
    gained = json.loads(json_.read_text())
    keys = ("rounds", "seconds", "ended", "without", "placed", "gain", "rules_got")
    measured = {
        "program": program.name,
        "placed": {key: gained[key] for key in keys},
        "always": always(campaign, program),
    }
    share = gained["gain"][predicted.time]["share"]
    said = (
        f"{found['said']}; gained {100 * share['median']:.1f} % ({100 * share['lo']:.1f} to "
        f"{100 * share['hi']:.1f}) in {gained['rounds']} rounds"
    )
    return {**measured, "said": said}


def is_met(campaign: Campaign, program: Program, place: Path, pages: int) -> bool:
    """Whether each rule of a place file finds memory in the program, which has at least half of the
    large pages that the model says."""
    json_ = campaign.folder / "met.json"
    with enabled("madvise"):
        command = ["place", place, "--force", "--json", json_, "--", *program.command]
        pagewalk(*command, folder=campaign.folder)
    rules_ = json.loads(json_.read_text())["rules"]
    large = sum(one["large_bytes"] for one in rules_)
    return all(one["mappings"] for one in rules_) and large >= pages * (2 << 20) / 2


def always(campaign: Campaign, program: Program) -> dict[str, Any]:
    """What a program gains by `enabled=always` alone, beside itself without large pages."""
    library = ctypes.CDLL(None)

    def run(disabled: int) -> compare.Sample:
        # What this process is forbidden, programs that it starts are forbidden too.
        library.prctl(PR_SET_THP_DISABLE, disabled, 0, 0, 0)
        try:
            with compare.streams(None):
                return compare.sampled(lambda: launch.untraced(program.command, []), None)
        finally:
            library.prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)

    limits = Limits(rounds_max=4) if campaign.small else Limits(seconds_max=campaign.seconds)
    here = Path.cwd()
    os.chdir(campaign.folder)
    try:
        with enabled("always"):
            found = compare.document(
                compare.compare(lambda: run(1), lambda: run(0), limits, seed=0)
            )
    finally:
        os.chdir(here)
    return {key: found[key] for key in ("rounds", "ended", "without", "placed", "gain")}


def buffers(campaign: Campaign, count: int) -> dict[str, Any]:
    """How long advice takes for so many regions that are alike, beside a run."""
    folder, trace = campaign.folder, campaign.folder / f"buffers-{count}.pwt"
    machine = ["-m", "epyc-9005", "--spread", "2M"]
    pagewalk("record", "--force", "-o", trace, "--", "./buffers", count, folder=folder)
    found: dict[str, Any] = {"buffers": count}
    found["run"] = timed(lambda: pagewalk("run", trace, *machine, folder=folder))
    json_ = folder / "buffers.json"
    advise = ["advise", trace, *machine, "--force", "--json", json_]
    found["advise"] = timed(lambda: pagewalk(*advise, folder=folder))
    document = json.loads(json_.read_text())
    found["regions"], found["passes"] = len(document["regions"]), document["runs"]
    ratio = found["advise"]["cpu_seconds"] / found["run"]["cpu_seconds"]
    said = f"{found['advise']['wall_seconds']:.1f} s, {ratio:.2f} times the CPU time of a run"
    return {**found, "ratio": ratio, "said": said}


# What it costs, and whether intervals hold.


def cost(campaign: Campaign, kilobytes: int) -> dict[str, Any]:
    """What placing costs a program that maps 10,000 times."""
    folder = campaign.folder
    program = folder / "mapped"
    source = ROOT / "tests/python/mapped.c"
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, source], check=True)
    json_ = folder / "cost.json"
    limits = ["--rounds", 4 if campaign.small else 60, "--seconds", 4 * campaign.seconds]
    command = ["place", "mmap=2M", "--compare", *limits, "--within", "0.5%", "--force"]
    command += ["--json", json_, "--", program, f"many:{kilobytes}", "exit:0"]
    with enabled("madvise"):
        pagewalk(*command, folder=folder)
    found = json.loads(json_.read_text())
    share = found["gain"]["cpu_seconds"]["share"]
    costs = {"lo": -share["hi"], "median": -share["median"], "hi": -share["lo"]}
    samples = found["samples"]
    least = {side: min(one["cpu_seconds"] for one in samples[side]) for side in samples}
    row = {"kilobytes": kilobytes, "rounds": found["rounds"], "cost": costs, "least": least}
    said = " to ".join(f"{100 * costs[end]:.1f}" for end in ("lo", "hi"))
    ratio = 100 * (least["placed"] / least["without"] - 1)
    return {**row, "said": f"{said} % of the CPU time; fastest runs: {ratio:.1f} %"}


def itself(campaign: Campaign, batch: int) -> dict[str, Any]:
    """Twenty comparisons of a program with itself: whether their intervals exclude zero."""
    command = [str(compiled(campaign.folder, "hash-join")), "8", "400000"]

    def run() -> compare.Sample:
        with compare.streams(None):
            return compare.sampled(lambda: launch.untraced(command, []), None)

    shares = []
    for turn in range(2 if campaign.small else 20):
        limits = Limits(rounds_max=12)
        found = compare.document(compare.compare(run, run, limits, seed=1000 * batch + turn))
        shares.append(found["gain"][compare.JUDGED]["share"])
    excluded = sum(not one["lo"] <= 0 <= one["hi"] for one in shares)
    return {
        "comparisons": len(shares), "excluded": excluded, "shares": shares,
        "said": f"{excluded} of {len(shares)} exclude zero",
    }  # fmt: skip


def kills(campaign: Campaign) -> dict[str, Any]:
    """The tests that kill pagewalk, forty times each."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "killed"]
    done = subprocess.run(
        [*command, "tests/python/test_place.py"], cwd=ROOT, capture_output=True, text=True,
        check=False, env={**os.environ, "PAGEWALK_TORTURE": "1"},
    )  # fmt: skip
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
    return {"status": done.returncode, "said": last}


def calibrated(campaign: Campaign) -> dict[str, Any]:
    """A machine file of this computer."""
    took = timed(
        lambda: pagewalk("calibrate", "-o", campaign.here, "--force", folder=campaign.folder)
    )
    return {**took, "file": campaign.here.read_text(), "said": campaign.here.name}


PARTS = (
    "calibrate",
    "agree",
    "trace",
    "predict",
    "gain",
    "buffers",
    "cost",
    "self",
    "kills",
    "record",
)


def pieces(campaign: Campaign, name: str) -> Iterator[tuple[str, Work]]:
    """The pieces of a part, each with its name."""
    there = [one for one in campaign.programs if one.is_there]
    small = campaign.small
    each: dict[str, Iterable[tuple[str, Work]]] = {
        "calibrate": [("calibrate", partial(calibrated, campaign))],
        "agree": (
            (f"agree-{one.file_name}-{value}", partial(agree, campaign, one, value))
            for one in there
            for value in record.VALUES
        ),
        "trace": ((f"trace-{one.file_name}", partial(trace, campaign, one)) for one in there),
        "predict": ((f"predict-{one.file_name}", partial(predict, campaign, one)) for one in there),
        "gain": ((f"gain-{one.file_name}", partial(gain, campaign, one)) for one in there),
        "buffers": ((f"buffers-{many}", partial(buffers, campaign, many)) for many in (8, 128)),
        "cost": ((f"cost-{size}", partial(cost, campaign, size)) for size in (16, 64, 256)),
        "self": (
            (f"self-{batch}", partial(itself, campaign, batch))
            for batch in range(1 if small else 10)
        ),
        "kills": [("kills", partial(kills, campaign))],
    }
    yield from each[name]


def recorded(campaign: Campaign) -> None:
    """The record of what is done, its tables, and how it is judged."""
    found = record.of(campaign.results, [one.file_name for one in campaign.programs])
    file = campaign.folder / "placing.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    print("", *record.tables(found).values(), record.told(found), file, sep="\n")
    if campaign.writes:
        record.write(found)


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--programs", nargs="+", default=[])
    parser.add_argument("--seconds", type=int, default=60, help="of each comparison")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the record in the tree")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    if wrong := [one for one in options.parts if one not in PARTS]:
        parser.error(f"no part {wrong[0]}: there are {', '.join(PARTS)}")
    if not _native.may_trace():
        raise kernel.RefusedError("ptrace is forbidden here")
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options.folder, options)
    missing = [one.name for one in campaign.programs if not one.is_there]
    if missing:
        print(f"not installed, and left out: {', '.join(missing)}")
    failed = 0
    for name in options.parts or PARTS:
        if name == "record":
            recorded(campaign)
            continue
        for piece, work in pieces(campaign, name):
            try:
                campaign.piece(piece, work)
            except (RuntimeError, Error, WorkError) as error:
                # The others are measured all the same; the next call tries this one again.
                print(f"FAILED: {error}", flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(kernel.run(main))
