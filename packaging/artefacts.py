"""Builds what a release consists of, so that equal sources give equal bytes.

```
 git -----maturin----> pagewalk-VERSION.tar.gz              the source distribution
                          | unpacked anew for each wheel, compiled under target/artefacts
                          +--backend--> ...x86_64.whl       records and analyses
                          +--backend--> ...aarch64.whl      analyses
                          +--qemu/sources.py--> pagewalk-VERSION-sources.tar
 crates/* --cargo package--> pagewalk-NAME-VERSION.crate
```

No folder of this machine and no date gets into a file: compilers map the folders to fixed names,
and what has a date has that of the last commit.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NoReturn

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute() / "artefacts"
CRATES = ("addr", "physmem", "pagetable", "hat", "vm", "mmu")
"""The crates that others can use, each after those that it or its tests depend on."""
WHEELS = {"x86_64": "records and analyses", "aarch64": "analyses"}
"""The processors that there are wheels for."""
PLATFORM = "manylinux_2_34"
"""The glibc that a wheel needs. maturin refuses a native half that needs a newer one."""


def fail(what: str) -> NoReturn:
    """Ends the work with one line."""
    raise SystemExit(f"packaging: {what}")


def run(*command: object, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """The output of a command. Its errors are shown to the user and end the work."""
    words = [str(word) for word in command]
    ran = subprocess.run(words, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        print(ran.stdout, file=sys.stderr, end="")
        fail(f"`{' '.join(words)}` failed with status {ran.returncode}; what it said is above")
    return ran.stdout


def say(what: str) -> None:
    """One line of progress."""
    print(f"packaging: {what}", file=sys.stderr, flush=True)


def version() -> str:
    """The version of the package and of all crates."""
    with (ROOT / "Cargo.toml").open("rb") as file:
        said: str = tomllib.load(file)["workspace"]["package"]["version"]
    return said


def date() -> int:
    """Seconds from 1970 to the last commit."""
    return int(run("git", "log", "-1", "--format=%ct"))


def environment(tree: Path, processor: str) -> dict[str, str]:
    """The variables of a build of `tree` for a processor."""
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo").absolute()
    maps = [f"{cargo}=/cargo", f"{tree}=/pagewalk"]
    own = {
        "SOURCE_DATE_EPOCH": str(date()),
        "CARGO_TARGET_DIR": str(BUILD / processor),
        "CARGO_INCREMENTAL": "0",
        "RUSTFLAGS": " ".join(f"--remap-path-prefix={each}" for each in maps),
        "CFLAGS": " ".join(f"-ffile-prefix-map={each}" for each in maps),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    arguments = f"{os.environ.get('MATURIN_PEP517_ARGS', '')} --compatibility {PLATFORM}"
    if processor != "x86_64":
        target, compiler = f"{processor}-unknown-linux-gnu", f"{processor}-linux-gnu-gcc"
        # The Python that runs this is none of that processor; its name is all that is needed.
        arguments += f" --target {target} --interpreter python3.10"
        name = target.replace("-", "_")
        own |= {
            "CARGO_BUILD_TARGET": target,
            f"CARGO_TARGET_{name.upper()}_LINKER": compiler,
            f"CC_{name}": compiler,
        }
    return {**os.environ, **own, "MATURIN_PEP517_ARGS": arguments}


def unpacked(sdist: Path, processor: str) -> Path:
    """The tree of a source distribution, in one place for each processor."""
    folder = BUILD / f"tree-{processor}"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    # All dates in a source distribution are one, and cargo would take each file for one that it has
    # compiled.
    for path in folder.rglob("*"):
        os.utime(path)
    [tree] = folder.iterdir()
    return tree


def wheel(sdist: Path, processor: str, to: Path) -> Path:
    """Builds the wheel for a processor, from the source distribution alone."""
    say(f"building the wheel for {processor}, which {WHEELS[processor]}")
    tree = unpacked(sdist, processor)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(*command, "--wheel-dir", to, tree, env=environment(tree, processor))
    [built] = to.glob(f"*{processor}.whl")
    return built


def sources(sdist: Path, to: Path) -> None:
    """Writes the source of the QEMU programs in the wheel for x86-64."""
    tree = unpacked(sdist, "x86_64")
    run(sys.executable, "qemu/sources.py", to, cwd=tree, env=environment(tree, "x86_64"))


def crates(to: Path) -> None:
    """Packs the crates, and compiles each from its package with the others' packages."""
    say("packing the crates")
    names = [word for name in CRATES for word in ("--package", f"pagewalk-{name}")]
    environ = {**environment(ROOT, "x86_64"), "CARGO_TARGET_DIR": str(BUILD / "crates")}
    run("cargo", "package", "--quiet", "--locked", "--allow-dirty", *names, env=environ)
    for name in CRATES:
        shutil.copy(BUILD / "crates" / "package" / f"pagewalk-{name}-{version()}.crate", to)


def build(to: Path, processors: list[str]) -> None:
    """Writes the source distribution, the wheels and the source of QEMU into a folder."""
    to.mkdir(exist_ok=True)
    for path in to.glob("pagewalk-*"):
        path.unlink()
    run(sys.executable, "-m", "maturin", "sdist", "--out", to)
    sdist = to / f"pagewalk-{version()}.tar.gz"
    for processor in processors:
        wheel(sdist, processor, to)
    sources(sdist, to)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder for what is built")
    build(parser.parse_args().folder.absolute(), ["x86_64"])
