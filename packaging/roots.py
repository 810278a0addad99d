"""Tries the wheel for x86-64 in clean systems, from the artefacts alone.

```
 debootstrap --> target/roots/SUITE      python3, venv, pipx; no compiler, no apt records
                     | copied for each trial, and removed after it
 dist/ --pip download--> target/roots/SUITE.wheels      what the wheel depends on, pip, uv
                     |
       unshare: own mounts, processes and no network --> chroot --> trial.sh, as an ordinary user
```

The trial's output is kept as `trial-SUITE.log` beside the artefacts. Needs root, for debootstrap
and chroot.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import artefacts

ROOTS = artefacts.BUILD.parent / "roots"
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
"""Debian 12 and Debian 13, with their Pythons."""
ENTER = """\
set -eu
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/dev/shm"
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys" || true
# A disk that is soon full, and a home that nobody can write to.
mkdir -p "$1/full" "$1/readonly"
mount -t tmpfs -o size=64k,mode=1777 tmpfs "$1/full"
mount -t tmpfs -o ro tmpfs "$1/readonly"
exec chroot --userspec=1000:1000 "$1" \\
    /usr/bin/env -i HOME=/home/tester PATH=/usr/bin:/bin LANG=C.UTF-8 bash /artefacts/trial.sh
"""


def root(suite: str) -> Path:
    """The clean system, which is made once."""
    made = ROOTS / suite
    if made.is_dir():
        return made
    artefacts.say(f"making a clean root of {suite}")
    ROOTS.mkdir(parents=True, exist_ok=True)
    beside = ROOTS / f".{suite}"
    shutil.rmtree(beside, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv,pipx"]
    # From debootstrap's own mirror of Debian.
    artefacts.run(*command, suite, beside)
    shutil.rmtree(beside / "var/lib/apt/lists")
    beside.rename(made)
    return made


def wheels(suite: str, dist: Path) -> Path:
    """The wheel, what it depends on, and what installs it."""
    [own] = dist.glob("pagewalk-*x86_64.whl")
    folder = ROOTS / f"{suite}.wheels"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("pagewalk-*"):
        path.unlink()
    platforms = [f"manylinux_2_{glibc}_x86_64" for glibc in range(5, 37)]
    platforms += ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--python-version", SUITES[suite], "--dest", str(folder)]
    command += [word for each in platforms for word in ("--platform", each)]
    # pipx of Debian 13 has pip install a newer pip.
    artefacts.run(*command, own, "pip", "uv")
    return folder


def trial(suite: str, dist: Path) -> None:
    """Tries the wheel in a suite; ends the work if something fails."""
    clean, house = root(suite), wheels(suite, dist)
    artefacts.say(f"trying the wheel in {suite}")
    tried = ROOTS / f"{suite}.tried"
    shutil.rmtree(tried, ignore_errors=True)
    artefacts.run("cp", "-a", "--reflink=auto", clean, tried)
    shutil.copytree(house, tried / "artefacts")
    shutil.copy(artefacts.ROOT / "packaging" / "trial.sh", tried / "artefacts")
    (tried / "home/tester").mkdir()
    os.chown(tried / "home/tester", 1000, 1000)
    log = dist / f"trial-{suite}.log"
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    with log.open("wb") as file:
        ran = subprocess.run(
            [*command, "bash", "-c", ENTER, "bash", str(tried)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            check=False,
        )
    if ran.returncode != 0:
        end = log.read_text(errors="replace").splitlines()[-3:]
        artefacts.fail(f"the trial in {suite} failed; {log} ends with: {' / '.join(end)}")
    shutil.rmtree(tried)


def trials(dist: Path) -> None:
    """Tries the wheel in all suites."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        artefacts.fail(
            "clean roots need root and debootstrap: run as root, and install debootstrap"
        )
    for suite in SUITES:
        trial(suite, dist)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, help="the folder of the artefacts")
    trials(parser.parse_args().dist.absolute())
