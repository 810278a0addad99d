"""Twelve programs with and without `pagewalk place`: what they wanted and got under each knob.

    python tests/python/twelve.py FOLDER [PROGRAM ...]

Run as root and alone, for all programs or some by their names. Knobs are put back however it ends.
The table of docs/method/placing.md is from here.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from mapped import knobs

ROOT = Path(__file__).parents[2]
JAVA = """import java.util.*;
public class T { public static void main(String[] a) {
  HashMap<Integer, String> m = new HashMap<>();
  for (int i = 0; i < 1000000; i++) m.put(i, "v" + i);
  System.out.println(m.size());
} }
"""
GO = """package main
import "fmt"
func main() {
  m := make(map[int]string)
  for i := 0; i < 1000000; i++ { m[i] = fmt.Sprint(i) }
  fmt.Println(len(m))
}
"""
GRAPH = """import random
random.seed(1)
n = 300000
edges = [[random.randrange(n) for _ in range(4)] for _ in range(n)]
seen, todo = bytearray(n), [0]
while todo:
    at = todo.pop()
    if not seen[at]:
        seen[at] = 1
        todo += edges[at]
print(sum(seen))
"""
NODE = "let m = new Map(); for (let i = 0; i < 800000; i++) m.set(i, 'x' + i); console.log(m.size)"
REDIS = """redis-server --port 7399 --save '' --appendonly no --daemonize no >/dev/null & p=$!
for i in 1 2 3 4 5 6 7 8 9 10; do redis-cli -p 7399 ping >/dev/null 2>&1 && break; sleep 0.2; done
redis-benchmark -p 7399 -t set -n 150000 -r 400000 -d 200 -q >/dev/null
redis-cli -p 7399 shutdown nosave; wait $p"""


def programs(folder: Path) -> dict[str, list[str]]:
    """The programs by name, prepared in a folder."""
    for name in ("hash-join", "stencil"):
        source = ROOT / "workloads" / f"{name}.c"
        subprocess.run(["cc", "-O2", "-o", folder / name, source, "-lm"], check=True)
    (folder / "T.java").write_text(JAVA)
    (folder / "map.go").write_text(GO)
    subprocess.run(["go", "build", "-o", "map", "map.go"], cwd=folder, check=True)
    lines = "".join(f"{i * 2654435761 % 2**32:032x}\n" for i in range(600_000))
    (folder / "lines").write_text(lines)
    (folder / "few").write_text(lines[: 2 << 20])
    code = "".join(
        f"int f{i}(int x,int*y){{for(int i=0;i<x;i++)y[i]+=x*{i}+i%7;return y[x%13];}}\n"
        for i in range(400)
    )
    (folder / "big.c").write_text(code)
    python = str(Path(sys.executable).resolve())
    return {
        "hash join": ["./hash-join"],
        "sqlite3": ["sqlite3", ":memory:", f".read {ROOT / 'workloads' / 'join.sql'}"],
        "sort": ["sort", "-S", "200M", "lines"],
        "python3": [python, "-c", "d = {i: str(i) for i in range(700000)}; print(len(d))"],
        "node": ["node", "-e", NODE],
        "java": ["java", "-Xmx512m", "-Xms256m", "T.java"],
        "Go": ["./map"],
        "redis": ["sh", "-c", REDIS],
        "gcc": ["gcc", "-O2", "-c", "big.c", "-o", "big.o"],
        "xz": ["xz", "-6", "-k", "-c", "few"],
        "graph search": [python, "-c", GRAPH],
        "stencil": ["./stencil"],
    }


def run(command: list[str], folder: Path) -> tuple[float, int, bytes]:
    """Seconds, the status and the output of a program."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return time.perf_counter() - start, done.returncode, done.stdout


def main(folder: Path, names: list[str]) -> None:
    """Prints a row for each program and knob."""
    folder.mkdir(exist_ok=True)
    print("| program | enabled | status | in memory | wanted | got | reasons | seconds |")
    for name, command in programs(folder).items():
        if names and name not in names:
            continue
        if shutil.which(command[0]) is None and not command[0].startswith("./"):
            print(f"| {name} | not installed |")
            continue
        for value in ("always", "madvise", "never"):
            output = folder / "placed.json"
            place = [sys.executable, "-m", "pagewalk", "place", "data=2M", "--json", str(output)]
            with knobs({"enabled": value}):
                plain, status, text = run(command, folder)
                placed, other, same = run([*place, "--force", "-q", "--", *command], folder)
            document = json.loads(output.read_text())
            seen = max(document["regions_of"], key=lambda one: one["resident_bytes"])
            why: dict[str, int] = {}
            for region in seen["regions"]:
                for row in region["why"]:
                    why[row["reason"]] = why.get(row["reason"], 0) + row["bytes"]
            told = ", ".join(f"{key} {bytes_ / 2**20:.1f}" for key, bytes_ in sorted(why.items()))
            got = seen["wanted_bytes"] - seen["missing_bytes"]
            ended = f"{status}" if (status, text) == (other, same) else f"{status}, then {other}!"
            sizes = [seen["resident_bytes"], seen["wanted_bytes"], got]
            print(
                f"| {name} | {value} | {ended} | "
                + " | ".join(f"{size / 2**20:.0f}" for size in sizes)
                + f" | {told} | {plain:.2f}, {placed:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
