"""The twelve programs that page sizes are tried on: what each needs, and its command.

Programs of Debian are taken as they are installed; small ones of our own are in workloads/. Each
runs for some tenths of a second, ends with the same status each time, and prints the same.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

JAVA = """import java.util.*;
public class T { public static void main(String[] a) {
  int n = Integer.parseInt(a[0]);
  HashMap<Integer, String> m = new HashMap<>();
  for (int i = 0; i < n; i++) m.put(i * 40503, "v" + i);
  long sum = 0;
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < n; i++) sum += m.get((int) ((i * 7919L % n) * 40503)).length();
  System.out.println(m.size() + " " + sum);
} }
"""
GO = """package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	m := make(map[int]string)
	for i := 0; i < n; i++ {
		m[i*40503] = strconv.Itoa(i)
	}
	sum := 0
	for round := 0; round < 2; round++ {
		for i := 0; i < n; i++ {
			sum += len(m[i*7919%n*40503])
		}
	}
	fmt.Println(len(m), sum)
}
"""
PYTHON = """import sys
n = int(sys.argv[1])
d = {i * 40503: str(i) for i in range(n)}
total = 0
for i in range(n): total += len(d[i * 7919 % n * 40503])
print(len(d), total)
"""
NODE = """const n = Number(process.argv[2]), m = new Map();
for (let i = 0; i < n; i++) m.set(i * 40503, 'x' + i);
let sum = 0;
for (let i = 0; i < n; i++) sum += m.get(i * 7919 % n * 40503).length;
console.log(m.size, sum);
"""
REDIS = """rm -f redis.sock
redis-server --port 0 --unixsocket redis.sock --save '' --appendonly no --daemonize no >/dev/null &
server=$!
while [ ! -S redis.sock ]; do sleep 0.05; done
redis-cli -s redis.sock --eval keys.lua
redis-cli -s redis.sock shutdown nosave
wait $server
"""
LUA = """local n, sum = COUNT, 0
for i = 0, n - 1 do redis.call('SET', 'key:' .. i * 40503, string.rep('x', 120) .. i) end
for i = 0, 2 * n - 1 do sum = sum + #redis.call('GET', 'key:' .. i * 7919 % n * 40503) end
return sum
"""
SMALLER = 8
"""By how much the programs' data is smaller where only the script is tried."""


class Program(NamedTuple):
    """A program that can be run in the folder where its files are."""

    name: str
    command: list[str]
    is_static: bool = False
    """Whether no library can be loaded into it, so that its allocations cannot be marked."""

    @property
    def is_there(self) -> bool:
        """Whether it is installed."""
        return shutil.which(self.command[0]) is not None or self.command[0].startswith("./")

    @property
    def file_name(self) -> str:
        """Its name without spaces."""
        return self.name.replace(" ", "-")


def prepared(folder: Path, smaller: int = 1) -> list[Program]:
    """The twelve programs, with their files in a folder; their data is `smaller` times smaller."""
    python = str(Path(sys.executable).resolve())
    n = lambda count: str(count // smaller)  # noqa: E731
    programs = [
        Program("hash join", ["./hash-join", n(64), n(8_000_000)]),
        Program("sqlite3", ["sqlite3", ":memory:", ".read join.sql"]),
        Program("sort", ["sort", "-S", "200M", "--parallel=1", "lines"]),
        Program("python3", [python, "-S", "dict.py", n(700_000)]),
        Program("node", ["node", "map.js", n(500_000)]),
        Program("java", ["java", "-Xmx512m", "-Xms256m", "-XX:+UseSerialGC", "T", n(500_000)]),
        Program("Go", ["./map", n(700_000)], is_static=True),
        Program("redis", ["sh", "redis.sh"]),
        Program("gcc", ["gcc", "-O2", "-c", "big.c", "-o", "big.o"]),
        Program("xz", ["xz", "-6", "-k", "-c", "few"]),
        Program("graph search", ["./graph-search", n(2 << 20), "8", "2"]),
        Program("stencil", ["./stencil", "6", "1024", n(1024), "1", "30"]),
    ]
    made = folder / f"made-{smaller}"
    if not made.exists():
        for make in _MAKERS:
            make(folder, smaller)
        made.touch()
    return programs


def compiled(folder: Path, name: str) -> Path:
    """A program of workloads/."""
    source = ROOT / "workloads" / f"{name}.c"
    subprocess.run(["cc", "-O2", "-g", "-o", folder / name, source, "-lm"], check=True)
    return folder / name


def _of_workloads(folder: Path, smaller: int) -> None:
    for name in ("hash-join", "graph-search", "stencil", "buffers"):
        compiled(folder, name)
    rows = (ROOT / "workloads" / "join.sql").read_text()
    if smaller == 1:
        rows = rows.replace("24000", "96000").replace("36000", "144000")
    (folder / "join.sql").write_text(rows)


def _of_languages(folder: Path, smaller: int) -> None:
    del smaller
    for name, text in (("T.java", JAVA), ("map.go", GO), ("dict.py", PYTHON), ("map.js", NODE)):
        (folder / name).write_text(text)
    if shutil.which("javac"):
        subprocess.run(["javac", "T.java"], cwd=folder, check=True)
    if shutil.which("go"):
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": str(folder / "go-cache")}
        command = ["go", "build", "-o", "map", "map.go"]
        subprocess.run(command, cwd=folder, check=True, env=environment)


def _texts(folder: Path, smaller: int) -> None:
    count = 600_000 // smaller
    lines = "".join(f"{i * 2654435761 % 2**32:032x}\n" for i in range(count))
    (folder / "lines").write_text(lines)
    (folder / "few").write_text(lines[: (1 << 20) // smaller])
    code = "".join(
        f"int f{i}(int x,int*y){{for(int i=0;i<x;i++)y[i]+=x*{i}+i%7;return y[x%13];}}\n"
        for i in range(120 // smaller)
    )
    (folder / "big.c").write_text(code)
    (folder / "keys.lua").write_text(LUA.replace("COUNT", str(150_000 // smaller)))
    (folder / "redis.sh").write_text(REDIS)


_MAKERS: tuple[Callable[[Path, int], None], ...] = (_of_workloads, _of_languages, _texts)
