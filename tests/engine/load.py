"""Servers under load, alone and recorded with calls: what is left of their throughput.

    python tests/engine/load.py [--seconds N] [--rounds N] [--json FILE]

Each round runs a server alone and then recorded, with the same client, which is never recorded.
The servers are redis (redis-benchmark) and one in Go (a client in Go with 16 connections). The
status is 1 if a recorded server keeps less than 40 % of the median throughput that it has alone.
Server, client and Pagewalk share the processors: the CPU time that each takes for a request, and
the share of the processors that is in use, show what bounds the throughput.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import kept  # noqa: E402

sys.path.remove(str(ROOT / "tests"))

LEAST = 0.4


TICKS = os.sysconf("SC_CLK_TCK")


class Outcome(NamedTuple):
    """What a run with a client came to."""

    per_second: float
    """Requests per second."""
    cpu: dict[str, float]
    """The microseconds of CPU time that server, Pagewalk and client take for a request."""
    busy: float
    """The share of the processors' time that the three used."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def throughput(
    server: list[str], client: Callable[[], float], front: list[str], folder: Path
) -> Outcome:
    """How the client's requests are answered while the server runs behind `front`."""
    socket = folder / "s"
    socket.unlink(missing_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*front, *server], stdout=log, stderr=log, cwd=folder)
    recorded: list[int] = []
    try:
        deadline = time.monotonic() + 120
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        recorded = children(process.pid) if front else []
        running = {"pagewalk": process.pid} if front else {}
        running["server"] = recorded[0] if front else process.pid
        before = {name: cpu_seconds(pid) for name, pid in running.items()}
        usage, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        per_second = client()
        wall, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = {name: cpu_seconds(pid) - before[name] for name, pid in running.items()}
        used["client"] = now.ru_utime + now.ru_stime - usage.ru_utime - usage.ru_stime
    finally:
        for pid in recorded:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        process.terminate()
        process.wait(timeout=300)
    processors = len(os.sched_getaffinity(0))
    cpu = {name: 1e6 * seconds / (per_second * wall) for name, seconds in used.items()}
    return Outcome(per_second, cpu, sum(used.values()) / (processors * wall))


def told(runs: dict[str, list[Outcome]]) -> dict[str, Any]:
    """What runs of a server, alone and recorded, came to: medians."""
    found: dict[str, Any] = {
        "runs": {way: [one._asdict() for one in of] for way, of in runs.items()}
    }
    for way, of in runs.items():
        found[way] = {
            "per_second": statistics.median(one.per_second for one in of),
            "busy": statistics.median(one.busy for one in of),
            "cpu": {name: statistics.median(one.cpu[name] for one in of) for name in of[0].cpu},
        }
    found["kept"] = found["recorded"]["per_second"] / found["alone"]["per_second"]
    return found


def line(server: str, found: dict[str, Any]) -> str:
    """What a server came to, in a line."""
    parts = []
    for way in ("alone", "recorded"):
        cpu = ", ".join(f"{name} {us:.1f}" for name, us in found[way]["cpu"].items())
        parts.append(
            f"{way} {found[way]['per_second']:.0f} requests/s ({cpu} us of CPU for each, "
            f"{100 * found[way]['busy']:.0f} % of the processors)"
        )
    return f"{server}: {'; '.join(parts)}; kept {found['kept']:.2f}"


def main() -> int:
    """Measures, prints, and judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="the length of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--options", default="--calls", help="the options of the recordings")
    options = parser.parse_args()
    found: dict[str, dict[str, list[Outcome]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "go.mod").write_text("module load\n")
        (folder / "main.go").write_bytes(Path(__file__).with_name("load.go").read_bytes())
        socket = str(folder / "s")

        def redis() -> float:
            count = int(6000 * options.seconds)
            command = ["redis-benchmark", "-s", socket, "-t", "get", "-n", str(count), "-c", "16"]
            done = subprocess.run([*command, "-q"], capture_output=True, text=True, check=True)
            return float(re.findall(r"([\d.]+) requests per second", done.stdout)[-1])

        def go() -> float:
            command = [str(folder / "load"), "ask", socket, str(options.seconds)]
            return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

        servers = {}
        if shutil.which("redis-server"):
            command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", ""]
            servers["redis"] = (command, redis)
        if shutil.which("go"):
            env = {**os.environ, "GOFLAGS": "-mod=mod"}
            subprocess.run(["go", "build", "-o", "load"], cwd=folder, env=env, check=True)
            servers["go"] = ([str(folder / "load"), "serve", socket], go)
        trace = str(folder / "t.pwt")
        record = [sys.executable, "-m", "pagewalk", "record", "-q", "--force", "-o", trace]
        for _ in range(options.rounds):
            for server, (command, client) in servers.items():
                one = found.setdefault(server, {"alone": [], "recorded": []})
                one["alone"].append(throughput(command, client, [], folder))
                front = [*record, *options.options.split(), "--"]
                one["recorded"].append(throughput(command, client, front, folder))
                pair = (round(one[way][-1].per_second) for way in ("alone", "recorded"))
                print(server, *pair, "requests/s, load", os.getloadavg()[0], flush=True)
    results = {server: told(runs) for server, runs in found.items()}
    for server, result in results.items():
        print(line(server, result))
    if options.json is not None:
        record = {"commit": kept.commit(), "machine": kept.machine(), "servers": results}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(any(result["kept"] < LEAST for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
