"""Programs of Debian's packages, alone and recorded: the same output, and none in QEMU.

    python tests/engine/programs.py [--only NAME ...] [--json FILE]

Each of `programs.toml` runs alone and recorded, in folders of its own with the same files. Its
status, its standard output and the files that it leaves must be equal. A line says how it went:
equal, other (they differ), qemu (recorded in QEMU), part (a process of it ran unrecorded), or
missing (it is not installed). The status is 1 if any differs, or if more than a twentieth fell back
to QEMU.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tomllib

WORDS = (f"{n * 7919 % 10007} word{n % 97} {'x' * (n % 13)}\n" for n in range(900))
TEXT = "".join(WORDS)
PATH = os.environ["PATH"] + ":/usr/sbin:/usr/games"
REPEATABLE = {
    **os.environ,
    "PYTHONHASHSEED": "0",
    "PERL_HASH_SEED": "0",
    "LC_ALL": "C.UTF-8",
    "PATH": PATH,
}
RESULTS = ("equal", "part", "qemu", "other", "missing")


def run(
    command: list[str], files: dict[str, str], folder: Path, seconds: float
) -> tuple[Any, float, str]:
    """Status, output and files of a command; its time; and what it said."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=REPEATABLE,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return ("no end", b"", set()), seconds, ""
    took = time.monotonic() - began
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    # The folders have different names.
    output = done.stdout.replace(str(folder).encode(), b"FOLDER")
    return (status, output, found - files.keys()), took, done.stderr.decode(errors="replace")


def tried(program: dict[str, Any], files: dict[str, str], seconds: float) -> dict[str, Any]:
    """How a program went."""
    command = program.get("command") or ["/bin/sh", "-c", program["script"]]
    found = {"name": program["name"], "kind": program.get("kind", "")}
    if shutil.which(program["needs"], path=PATH) is None:
        return {**found, "result": "missing", "why": program["needs"]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A server may run as another user.
        folder.chmod(0o755)
        alone, took, said = run(command, files, folder / "alone", seconds)
        outcome, trace = folder / "outcome.json", folder / "t.pwt"
        front = [sys.executable, "-m", "pagewalk", "record", "-q", "--force", "-o", str(trace)]
        front += ["--json", str(outcome), "--"]
        recorded, longer, told = run(
            [*front, *command], files, folder / "recorded", 60 + 60 * seconds
        )
        document = json.loads(outcome.read_text()) if outcome.exists() else {}
    found |= {"status": alone[0], "alone_seconds": took, "seconds": longer}
    if document:
        found |= {key: document[key] for key in ("engine", "accesses", "notes", "lost")}
        found["processes"] = len(document["processes"])
    if alone != recorded or not document:
        parts = (*alone, said, *recorded, told)
        return {**found, "result": "other", "why": [str(part)[-400:] for part in parts]}
    if document["engine"] != "native":
        return {**found, "result": "qemu", "why": document["notes"]}
    missing = [note for note in document["notes"] if "unrecorded" in note] + document["lost"]
    return {**found, "result": "part" if missing else "equal", "why": missing}


def main() -> int:
    """Tries all, prints a line for each; the status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="the names of programs")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--seconds", type=float, default=60, help="the most that one takes alone")
    options = parser.parse_args()
    table = tomllib.loads(Path(__file__).with_name("programs.toml").read_text("utf-8"))
    files = {**table["files"], "text": TEXT, "other": TEXT.replace("7", "8")}
    found: list[dict[str, Any]] = []
    for program in table["program"]:
        if options.only and program["name"] not in options.only:
            continue
        one = tried(program, files, options.seconds)
        found.append(one)
        times = f"{one.get('alone_seconds', 0):6.2f} s {one.get('seconds', 0):7.2f} s"
        processes = one.get("processes", "")
        print(f"{one['result']:8} {one['name']:28} {processes:>4} {times}  {one['why'] or ''}")
        sys.stdout.flush()
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    counts = {result: sum(one["result"] == result for one in found) for result in RESULTS}
    print(counts)
    ran = len(found) - counts["missing"]
    return int(counts["other"] > 0 or 20 * counts["qemu"] > ran)


if __name__ == "__main__":
    sys.exit(main())
