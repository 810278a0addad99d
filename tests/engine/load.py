"""Servers under load, alone and recorded with calls: what is left of their throughput.

    python tests/engine/load.py [--seconds N] [--rounds N] [--json FILE]

Each round runs a server alone and then recorded, with the same client, which is never recorded.
The servers are redis (redis-benchmark) and one in Go (a client in Go with 16 connections). The
status is 1 if a recorded server keeps less than 40 % of the median throughput that it has alone.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LEAST = 0.4


def throughput(
    server: list[str], client: Callable[[], float], front: list[str], folder: Path
) -> float:
    """Requests per second of a client, while the server runs behind `front`."""
    socket = folder / "s"
    socket.unlink(missing_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*front, *server], stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return client()
    finally:
        # Its own child if it is recorded.
        subprocess.run(["pkill", "-TERM", "-P", str(process.pid)], check=False)
        process.terminate()
        process.wait(timeout=300)


def main() -> int:
    """Measures, prints, and judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="the length of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--options", default="--calls", help="the options of the recordings")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
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
            env = {**os.environ, "HOME": name, "GOFLAGS": "-mod=mod"}
            subprocess.run(["go", "build", "-o", "load"], cwd=folder, env=env, check=True)
            servers["go"] = ([str(folder / "load"), "serve", socket], go)
            subprocess.run(["chmod", "-R", "u+w", name], check=True)
        trace = str(folder / "t.pwt")
        record = [sys.executable, "-m", "pagewalk", "record", "-q", "--force", "-o", trace]
        for _ in range(options.rounds):
            for server, (command, client) in servers.items():
                one = found.setdefault(server, {"alone": [], "recorded": []})
                one["alone"].append(throughput(command, client, [], folder))
                front = [*record, *options.options.split(), "--"]
                one["recorded"].append(throughput(command, client, front, folder))
                print(server, one["alone"][-1], one["recorded"][-1], os.getloadavg()[0], flush=True)
    shares = {
        server: statistics.median(one["recorded"]) / statistics.median(one["alone"])
        for server, one in found.items()
    }
    print({server: round(share, 3) for server, share in shares.items()})
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(share < LEAST for share in shares.values()))


if __name__ == "__main__":
    sys.exit(main())
