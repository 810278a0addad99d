"""Instructions of the kernel's messages, faults and calls, on both architectures.

    .venv/bin/python benches/kernel.py [--json FILE]

QEMU counts them (`-icount shift=0`), so that they do not depend on the machine. A test compares
them with the newest record. Who changes a path writes one: `--json
benches/records/DATE-kernel.json`.
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

ROOT = Path(__file__).resolve().parent.parent
ARCHS = ("x86_64", "riscv64")


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
    parser.add_argument("--json", type=Path, help="the file to which the record is written")
    chosen = parser.parse_args()
    runner = load_runner()
    by_arch = {arch: counted(runner, runner.build(arch), arch) for arch in ARCHS}
    first, second = (by_arch[arch] for arch in ARCHS)
    rows = [{"path": path, "x86_64": first[path], "riscv64": second[path]} for path in first]
    for row in rows:
        print(f"{row['path']:20} {row['x86_64']:10,} {row['riscv64']:10,}")
    if chosen.json is None:
        return
    version = output("qemu-system-x86_64", "--version").split()[3]
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": output("git", "rev-parse", "HEAD"),
        "machine": {
            "processor": "any: instructions of the guest, by QEMU's -icount shift=0",
            "system": "any",
            "qemu": version,
        },
        "command": "benches/kernel.py",
        "units": {
            "path": "what user mode does once",
            "x86_64": "instructions of user mode and kernel, scheme embedded, opt-level 1",
            "riscv64": "instructions of user mode and kernel, scheme embedded, opt-level 1",
        },
        "how": "the mean of 32 to 64 rounds in user mode, of the time-stamp counter (x86-64) and "
        "of instret (riscv64); ipc-*: to and fro; map-touch-unmap: three calls and a fault",
        "rows": rows,
    }
    chosen.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
