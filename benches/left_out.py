"""Whether the hashes of counts notice a count that is left out.

    python3 benches/left_out.py SCRATCH [--seed N] [--count N]

Draws counting lines by the seed from the memory managers and the layers below, and
compiles them once in `SCRATCH`, a copy of what git knows, each so that an environment variable
leaves it out:

    self.work.calls += 1;
    { let more = 1; if !addr::left_out(7) { self.work.calls += more } };

Then the hashes are compared with `benches/hashes.txt` with one of them left out after the other;
the first hash that differs is enough, and so is a run that fails. A count is what outlives its
function, a field or an entry of a map: sums in local variables are not drawn, nor what only locks
and checks count.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("managers/src", "vm/src", "hat/src", "physmem/src")
NO_RESULTS = ("vm/src/check.rs", "hat/src/locking/")
SECONDS_MAX = 1200
SWITCH = """
/// Which count is left out.
pub static LEFT_OUT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(u32::MAX);
/// Whether it is this one.
pub fn left_out(number: u32) -> bool {
    LEFT_OUT.load(core::sync::atomic::Ordering::Relaxed) == number
}
"""
READ = """
    let number = std::env::var("LEFT_OUT").ok().and_then(|text| text.parse().ok());
    addr::LEFT_OUT.store(number.unwrap_or(u32::MAX), std::sync::atomic::Ordering::Relaxed);
"""
OPENS, CLOSES = "([{", ")]}"


def parts(line: str) -> tuple[str, str, str, str] | None:
    """What is before a count, the count, what is added, what is behind; if all is in the line."""
    if line.lstrip().startswith("//") or "$" in line or line.count(" += ") != 1:
        return None
    left, right = line.split(" += ")
    depth, start = 0, 0
    for at in range(len(left) - 1, -1, -1):
        depth += (left[at] in CLOSES) - (left[at] in OPENS)
        if depth < 0 or (depth == 0 and (left[at] in ";,|" or left[at - 1 : at + 1] == "=>")):
            start = at + 1
            break
    depth, end = 0, len(right)
    for at, char in enumerate(right):
        depth += (char in OPENS) - (char in CLOSES)
        if depth < 0 or (depth == 0 and char in ";,"):
            end = at
            break
    count = left[start:]
    if depth > 0 or re.fullmatch(r"\s*\w+", count):
        return None
    return left[:start], count, right[:end], right[end:]


def counting(root: Path) -> list[tuple[Path, int]]:
    """The files and lines that count."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / "crates" / folder).rglob("*.rs")):
            if not any(name in str(path) for name in NO_RESULTS):
                text = path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
                lines = enumerate(text.splitlines())
                found += [(path, number) for number, line in lines if parts(line)]
    return found


def main() -> None:
    """Draws, compiles and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument(
        "--try",
        type=int,
        nargs="+",
        metavar="NUMBER",
        dest="tried",
        help="lines to leave out, by their place among those drawn; all if absent",
    )
    parser.add_argument("--profile", default="release", help="cargo's profile")
    asked = parser.parse_args()
    scratch = asked.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    known = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in known.stdout.splitlines():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, scratch / name)
    all_ = counting(scratch)
    drawn = sorted(random.Random(asked.seed).sample(all_, asked.count))
    print(f"seed {asked.seed}: {len(drawn)} of {len(all_)} lines that count", flush=True)
    for number, (path, line) in enumerate(drawn):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        before, count, more, behind = parts(lines[line]) or ("", "", "", "")
        lines[line] = (
            f"{before} {{ let more = {more.rstrip()}; "
            f"if !addr::left_out({number}) {{ {count} += more }} }}{behind}"
        )
        lines[line] = lines[line].rstrip("\n") + "\n"
        path.write_text("".join(lines), encoding="utf-8")
    switch = scratch / "crates/addr/src/lib.rs"
    switch.write_text(switch.read_text(encoding="utf-8") + SWITCH, encoding="utf-8")
    bench = scratch / "benches/src/main.rs"
    text = bench.read_text(encoding="utf-8")
    bench.write_text(text.replace("fn main() -> ExitCode {", "fn main() -> ExitCode {" + READ))
    build = ["cargo", "build", "--profile", asked.profile]
    build += ["-p", "bench", "-p", "python", "--bin", "bench"]
    subprocess.run([*build, "--config", "profile.release.lto='off'"], cwd=scratch, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", scratch / "target"))
    folder = "debug" if asked.profile == "dev" else asked.profile
    command = [
        str(target / folder / "bench"),
        "--hashes",
        str(ROOT / "benches/hashes.txt"),
        "--first",
    ]
    tried = range(len(drawn)) if asked.tried is None else asked.tried
    changed = 0
    for number in [-1, *tried]:
        env = {**os.environ, "LEFT_OUT": str(number)}
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
            status, said = done.returncode, (done.stdout + done.stderr).splitlines()
        except subprocess.TimeoutExpired:
            status, said = 1, ["no end"]
        if number < 0:
            if status:
                sys.exit("without leaving anything out the hashes differ: " + "\n".join(said))
            continue
        path, line = drawn[number]
        changed += status != 0
        where = f"{path.relative_to(scratch)}:{line + 1}"
        print(f"{'changed' if status else 'THE SAME'}  {where}  {said[0][:90]}", flush=True)
    print(f"{changed} of {len(tried)} change a hash")


if __name__ == "__main__":
    main()
