"""Instructions of the kernel's messages, faults and calls, on both architectures.

E99's operations are in the last rows: a task that is created, gets a page and ends, and pages that
are protected one by one and at once. Beside them stand the instructions of the same operations in
the simulator: of the kernel's path of `crates/machine/src/kernel_path.rs`, and one for each
reference and each word that is initialised, on a page table of the same format.

    .venv/bin/python benches/kernel.py [--write]

QEMU counts them (`-icount shift=0`), so that they do not depend on the machine. A test compares
them with the newest record. Who changes a path writes one, and the table of kernel/README.md:
`--write`.
"""

import argparse
import datetime
import json
import re
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from pagewalk.page_table import EXECUTE, READ, USER, WRITE, PageTable, Work

ROOT = Path(__file__).resolve().parent.parent
ARCHS = ("x86_64", "riscv64")
FORMATS = {"x86_64": "x86-64", "riscv64": "sv39"}
PAGE = 4096
# As in kernel/user/bench.rs.
PAGES, CODE, AT = 128, 0x40_0000, 0x1000_0000
READ_ONLY = READ | EXECUTE | USER
ALL = READ_ONLY | WRITE


def load_runner() -> ModuleType:
    """The program `kernel/run` as a module."""
    loader = SourceFileLoader("kernel_run", str(ROOT / "kernel/run"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def counted(runner: ModuleType, kernel: Path, arch: str) -> dict[str, int]:
    """The instructions of each path, by its name."""
    command = runner.qemu(arch, kernel, 1, "processors=1 run=1", count=True)
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    if ran.returncode != runner.WELL[arch]:
        raise SystemExit(f"the kernel has not ended well: {ran.stdout}")
    lines = re.findall(r"^instructions ([a-z0-9-]+) (\d+)", ran.stdout, re.MULTILINE)
    return {name: int(number) for name, number in lines}


def instructions(*works: Work) -> int:
    """The instructions of operations, with those of their references."""
    words = (work.reads + work.writes + work.initialised_bytes // 8 for work in works)
    return sum(work.instructions for work in works) + sum(words)


def simulated(arch: str) -> dict[str, int]:
    """The instructions of E99's operations in the simulator, by the names of their paths."""
    settings: dict[str, object] = {
        "page_table.format": FORMATS[arch],
        "page_table.remembers_leaf": "false",
    }
    bench = PageTable("r4700", settings)
    server, _ = bench.create()
    bench.map(server, [CODE])
    # Hardware walks the table: the touch is for nothing.
    for _ in range(2):
        task, created = bench.create()
        handed = bench.hand(server, task, [CODE], ALL)
        found = {"task": instructions(created, handed, bench.destroy(task))}
    addresses = [AT + page * PAGE for page in range(PAGES)]
    client, _ = bench.create()
    bench.map(client, [CODE])
    bench.map(server, addresses)
    bench.hand(server, client, addresses, ALL)
    for name, size in (("prot1", PAGE), ("protn", PAGES * PAGE)):
        ranges = [(at, size) for at in range(AT, AT + PAGES * PAGE, size)]
        restricted = bench.restrict(server, ranges, READ_ONLY)
        found[name] = instructions(restricted, bench.hand(server, client, addresses, ALL)) // PAGES
    return found


COLUMNS = {
    "path": "path",
    "x86_64": "x86-64",
    "riscv64": "riscv64",
    "simulated-x86_64": "simulated x86-64",
    "simulated-riscv64": "simulated riscv64",
}
"""The table's columns: the names in a record, and in the table."""
README = ROOT / "kernel/README.md"
BEGIN, END = "<!-- written by benches/kernel.py --write -->\n", "\n<!-- end -->"


def table_of(rows: list[dict[str, Any]]) -> str:
    """The rows as a table of Markdown."""
    rule = [":--", *["--:"] * (len(COLUMNS) - 1)]
    body = [[_cell(row[name]) for name in COLUMNS] for row in rows]
    lines = [list(COLUMNS.values()), rule, *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(value: str | int | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,}"


def in_readme() -> str:
    """The table of the README."""
    return README.read_text().partition(BEGIN)[2].partition(END)[0]


def output(*command: str) -> str:
    """What a command says."""
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def main() -> None:
    """Prints the table, and writes the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="write a record, and the table of kernel/README.md"
    )
    chosen = parser.parse_args()
    runner = load_runner()
    by_arch = {arch: counted(runner, runner.build(arch), arch) for arch in ARCHS}
    first, second = (by_arch[arch] for arch in ARCHS)
    beside = {f"simulated-{arch}": simulated(arch) for arch in ARCHS}
    rows = [
        {"path": path, "x86_64": first[path], "riscv64": second[path]}
        | {name: numbers.get(path) for name, numbers in beside.items()}
        for path in first
    ]
    print(table_of(rows))
    if not chosen.write:
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(before + BEGIN + table_of(rows) + END + rest.partition(END)[2])
    version = output("qemu-system-x86_64", "--version").split()[3]
    record = {
        "date": today,
        "commit": output("git", "rev-parse", "HEAD"),
        "machine": {
            "processor": "any: instructions of the guest, by QEMU's -icount shift=0",
            "system": "any",
            "qemu": version,
        },
        "command": "benches/kernel.py --write",
        "units": {
            "path": "what user mode does once",
            "x86_64": "instructions of user mode and kernel, scheme embedded, opt-level 1",
            "riscv64": "instructions of user mode and kernel, scheme embedded, opt-level 1",
            "simulated-x86_64": "instructions of the simulator's kernel, with those of references",
            "simulated-riscv64": "instructions of the simulator's kernel, with those of references",
        },
        "how": "the mean of 32 to 64 rounds in user mode, of the time-stamp counter (x86-64) and "
        "of instret (riscv64); ipc-*: to and fro; map-touch-unmap: three calls and a fault; task: "
        "E99's tasking benchmark; prot1, protn: E99's mapping benchmarks, per page of 128",
        "rows": rows,
    }
    to = ROOT / f"benches/records/{today}-kernel.json"
    to.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
