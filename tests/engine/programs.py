"""Programs of Debian's packages, alone and recorded: the same output, and none in QEMU.

    python tests/engine/programs.py [--only NAME ...] [--again FILE] [--json FILE] [--write]

Each of `programs.toml` runs alone and recorded, in folders of its own with the same files. Its
status, its standard output and the files that it leaves must be equal. A line says how it went:
equal, other (they differ), qemu (recorded in QEMU), part (a process of it ran unrecorded), broken
(alone it does not end, or prints nothing), or missing (it is not installed). The status is 1 if any
differs, or if more than a twentieth fell back to QEMU. `--again` keeps the results of that file for
programs that are not run now; `--write` keeps the record in the tree, and the table of its page.
"""

import argparse
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import kept  # noqa: E402

sys.path.remove(str(ROOT / "tests"))

KEPT = ROOT / "experiments/host/programs.json"
"""The record that the tree has."""
PAGE = ROOT / "docs/method/recorded-programs.md"
"""The page that shows its table."""
WORDS = (f"{n * 7919 % 10007} word{n % 97} {'x' * (n % 13)}\n" for n in range(900))
TEXT = "".join(WORDS)
PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/games:" + os.environ["PATH"]
"""Programs of Debian's packages before others of the same names."""
REPEATABLE = {
    **os.environ,
    "PYTHONHASHSEED": "0",
    "PERL_HASH_SEED": "0",
    "LC_ALL": "C.UTF-8",
    "PATH": PATH,
}
RESULTS = ("equal", "part", "qemu", "other", "broken", "missing")


def listed() -> dict[str, Any]:
    """What there is in `programs.toml`."""
    return tomllib.loads(Path(__file__).with_name("programs.toml").read_text("utf-8"))


def run(
    command: list[str], before: str, files: dict[str, str], folder: Path, seconds: float
) -> tuple[Any, float, str]:
    """Status, output and files of a command; its time; and what it said."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    subprocess.run(["/bin/sh", "-c", before], cwd=folder, env=REPEATABLE, check=True)
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=REPEATABLE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return ("no end", b"", set()), seconds, ""
    finally:
        # A server that its script has left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    took = time.monotonic() - began
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    # The folders have different names.
    output = output.replace(str(folder).encode(), b"FOLDER")
    return (status, output, found - files.keys()), took, said.decode(errors="replace")


def package(program: str) -> str:
    """The name and version of the Debian package of a program; empty if it is of none."""
    path = os.path.realpath(shutil.which(program, path=PATH) or program)
    owner = ""
    # The files of a package may be known by their names from before /usr was one with /.
    for name in (path, path.removeprefix("/usr")):
        told = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False)
        owner = owner or told.stdout.partition(": ")[0]
    if not owner:
        return ""
    show = ["dpkg-query", "-W", "-f", "${Package} ${Version}", owner.partition(",")[0]]
    return subprocess.run(show, capture_output=True, text=True, check=False).stdout


def tried(program: dict[str, Any], files: dict[str, str], seconds: float) -> dict[str, Any]:
    """How a program went."""
    command = program.get("command") or ["/bin/sh", "-c", program["script"]]
    before = program.get("before", "")
    found = {"name": program["name"], "kind": program.get("kind", "")}
    if shutil.which(program["needs"], path=PATH) is None:
        return {**found, "result": "missing", "why": program["needs"]}
    found |= {"package": package(program["needs"])}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A server may run as another user.
        folder.chmod(0o755)
        alone, took, said = run(command, before, files, folder / "alone", seconds)
        if not alone[1]:
            return {**found, "result": "broken", "why": [alone[0], said[-400:]]}
        outcome, trace = folder / "outcome.json", folder / "t.pwt"
        front = [sys.executable, "-m", "pagewalk", "record", "-q", "--force", "-o", str(trace)]
        front += ["--json", str(outcome), "--"]
        recorded, longer, told = run(
            [*front, *command], before, files, folder / "recorded", 60 + 60 * seconds
        )
        document = json.loads(outcome.read_text()) if outcome.exists() else {}
    found |= {"status": alone[0], "alone_seconds": round(took, 2), "seconds": round(longer, 2)}
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


def counts(found: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many programs there are of each result."""
    return {result: sum(one["result"] == result for one in found) for result in RESULTS}


def record(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of a campaign."""
    return {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": kept.commit(),
        "machine": kept.machine(),
        "command": "python tests/engine/programs.py",
        "counts": counts(found),
        "programs": list(found),
    }


def tables(record: dict[str, Any]) -> dict[str, str]:
    """The table of the page."""
    rows = [
        [
            one["name"], one["package"] or "none", one["kind"], str(one["processes"]),
            f"{one['accesses'] / 1e6:.1f}", f"{one['alone_seconds']:.2f}",
            f"{one['seconds']:.1f}", "; ".join([one["result"], *one["why"]]),
        ]
        for one in record["programs"]
        if one["result"] != "missing"
    ]  # fmt: skip
    head = ("program", "package", "has", "processes", "million accesses", "s alone", "s recorded")
    return {"programs": kept.table((*head, "result"), rows)}


def line(one: dict[str, Any]) -> str:
    """How a program went, in a line."""
    times = f"{one.get('alone_seconds', 0):6.2f} s {one.get('seconds', 0):7.2f} s"
    processes = one.get("processes", "")
    return f"{one['result']:8} {one['name']:28} {processes:>4} {times}  {one['why'] or ''}"


def main() -> int:
    """Tries all, prints a line for each; the status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="the names of programs")
    parser.add_argument("--again", type=Path, help="a file of --json, for programs not run now")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--seconds", type=float, default=60, help="the most that one takes alone")
    parser.add_argument("--write", action="store_true", help="keep the record in the tree")
    options = parser.parse_args()
    known = json.loads(options.again.read_text())["programs"] if options.again else []
    found = {one["name"]: one for one in known}
    table = listed()
    names = [program["name"] for program in table["program"]]
    files = {**table["files"], "text": TEXT, "other": TEXT.replace("7", "8")}
    by_name = dict(zip(names, table["program"], strict=True))
    wanted = options.only if options.only is not None else [n for n in names if n not in found]
    for name in wanted:
        found[name] = tried(by_name[name], files, options.seconds)
        print(line(found[name]), flush=True)
        if options.json is not None:
            all_ = record([found[name] for name in names if name in found])
            options.json.write_text(json.dumps(all_, indent=1) + "\n")
    all_ = record([found[name] for name in names if name in found])
    print(all_["counts"])
    if options.write:
        KEPT.write_text(json.dumps(all_, indent=1) + "\n")
        PAGE.write_text(kept.shown(PAGE.read_text(), tables(all_)))
    ran = len(all_["programs"]) - all_["counts"]["missing"]
    return int(all_["counts"]["other"] > 0 or 20 * all_["counts"]["qemu"] > ran)


if __name__ == "__main__":
    sys.exit(main())
