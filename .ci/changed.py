"""Runs the unit tests of the crates that differ from main, and of all crates above them.

```
 files that differ from where the branch left main --> crates
                                                        those that depend on them --> their tests
```

The whole workspace is compiled as `make test` does it, in the same two parts, so that both share
what is compiled.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OF_ALL = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml")
"""What every crate depends on."""
BUILT_IN = {"machines": "machine"}
"""Folders whose files are built into a crate."""


def said(*command: str) -> str:
    """What a command prints; empty if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def differing() -> list[str]:
    """The files that differ from where this branch left main, and those that git does not know.

    Where there is no main to compare with, every crate counts as one that differs.
    """
    bases = (said("git", "merge-base", "HEAD", branch) for branch in ("origin/main", "main"))
    base = next((found for found in bases if found), "").strip()
    if not base:
        print("no branch main here: all crates are tested", flush=True)
        return list(OF_ALL)
    changed = said("git", "diff", "--name-only", base)
    return (changed + said("git", "ls-files", "--others", "--exclude-standard")).splitlines()


def crates(files: list[str], packages: list[dict[str, Any]]) -> set[str]:
    """The crates that have one of these files, or depend on one that does."""
    folders = {
        str(Path(package["manifest_path"]).parent.relative_to(ROOT)): package["name"]
        for package in packages
    } | BUILT_IN
    if any(file in OF_ALL for file in files):
        return {package["name"] for package in packages}
    found = {name for at, name in folders.items() for file in files if file.startswith(f"{at}/")}
    below = {
        package["name"]: {one["name"] for one in package["dependencies"] if one.get("path")}
        for package in packages
    }
    while above := {name for name, uses in below.items() if uses & found} - found:
        found |= above
    return found


def parts() -> list[list[str]]:
    """Options of cargo for the crates of each part in which the Makefile compiles tests."""
    [line] = re.findall(r"^APART := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    apart = line.split()
    return [
        ["--workspace", *(f"--exclude={name}" for name in apart)],
        [f"--package={name}" for name in apart],
    ]


def programs(packages: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The test programs of all crates, compiled, by the name of their crate."""
    lines = []
    for part in parts():
        command = ["cargo", "test", *part, "--lib", "--bins", "--no-run", "--quiet"]
        done = subprocess.run(
            [*command, "--message-format=json-render-diagnostics"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.returncode)
        lines += done.stdout.splitlines()
    names = {package["id"]: package["name"] for package in packages}
    found: dict[str, list[str]] = {}
    for line in lines:
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            found.setdefault(names[message["package_id"]], []).append(message["executable"])
    return found


def main() -> None:
    """Runs the tests of the crates, up to the first crate whose tests fail."""
    listed = said("cargo", "metadata", "--no-deps", "--format-version", "1")
    if not listed:
        sys.exit("`cargo metadata` fails here: run it to see why")
    packages = json.loads(listed)["packages"]
    folders = {package["name"]: Path(package["manifest_path"]).parent for package in packages}
    asked = crates(differing(), packages)
    if not asked:
        print("no crate differs from main")
        return
    for name, executables in sorted(programs(packages).items()):
        for executable in executables if name in asked else []:
            print(f"unit tests of {name}", flush=True)
            done = subprocess.run([executable, "--quiet"], cwd=folders[name], check=False)
            if done.returncode:
                sys.exit(done.returncode)


if __name__ == "__main__":
    main()
