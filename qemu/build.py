"""Builds QEMU with the recorder inside.

```
 source.toml, insertions.toml, pagewalk/, crates of the recorder, compilers --> key
 if cache/built/KEY does not exist:
   source   from PAGEWALK_QEMU_SOURCE, the cache or a mirror of Debian; its SHA-256 is checked
   tree     unpacked once; a file with insertions is written again only if its text changes
   library  cargo compiles the recorder into a static library
   build    configured once; ninja compiles what has changed
   map      every archive that the linker used must have a licence in source.toml
   built    stripped programs, by KEY
```

The cache is the folder `PAGEWALK_QEMU_CACHE`, or `pagewalk/qemu` in the user's cache folder.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NoReturn

import insert

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGE = ROOT / "python" / "pagewalk" / "qemu"
SOURCE_VARIABLE = "PAGEWALK_QEMU_SOURCE"
CACHE_VARIABLE = "PAGEWALK_QEMU_CACHE"
NEEDS = {
    "cc": "gcc",
    "make": "make",
    "ninja": "ninja-build",
    "pkg-config": "pkg-config",
    "strip": "binutils",
    "xz": "xz-utils",
}
"""Commands that the build runs, and Debian's packages that have them."""
LIBRARIES = {"libglib-2.0.a": "libglib2.0-dev", "libpcre2-8.a": "libpcre2-dev"}
"""Static libraries that it links, and Debian's packages that have them."""
KINDS = ("user", "system")
"""The kinds of programs; each kind is compiled in a folder of its own."""
ROMS = "pc-bios/optionrom"
"""The folder of the code that a machine runs before its kernel."""


def fail(what: str) -> NoReturn:
    """Ends the build with one line."""
    raise SystemExit(f"qemu/build.py: {what}")


def settings() -> dict[str, Any]:
    """What `source.toml` says."""
    return tomllib.loads((HERE / "source.toml").read_text(encoding="utf-8"))


def cache() -> Path:
    """The folder of sources and builds."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE_VARIABLE) or Path(home) / "pagewalk" / "qemu").absolute()


# --- sources ----------------------------------------------------------------------------------


def source(about: dict[str, Any]) -> Path:
    """The file of QEMU's sources; its SHA-256 has been checked."""
    given = os.environ.get(SOURCE_VARIABLE)
    kept: Path = cache() / "source" / about["file"]
    if given is None and kept.is_file() and digest(kept) == about["sha256"]:
        return kept
    if given is not None and "://" not in given:
        path = Path(given)
        path = path / about["file"] if path.is_dir() else path
        if not path.is_file():
            fail(f"there is no {path}; {SOURCE_VARIABLE} is to name it, its folder or its address")
        check(path, about, str(path))
        return path
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        fetched = Path(folder) / "file"
        address = given or f"{mirror(about)}/{about['pool']}/{about['file'].replace('+', '%2b')}"
        say(f"fetching {address}")
        if given:
            try:
                with urllib.request.urlopen(given, timeout=60) as reply, fetched.open("wb") as file:
                    shutil.copyfileobj(reply, file)
            except (OSError, ValueError) as error:
                fail(f"cannot fetch {given}: {getattr(error, 'reason', None) or error}")
        else:
            by_apt(address, fetched)
        check(fetched, about, address)
        fetched.replace(kept)
    return kept


def mirror(about: dict[str, Any]) -> str:
    """The mirror of Debian that apt is set up with."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(SITE)", "Identifier: Packages"]
    elsewhere = (
        f"set {SOURCE_VARIABLE} to {about['file']}, to the folder it is in, or to an address of it"
    )
    if shutil.which("apt-get") is None:
        fail(f"there is no apt here that could fetch QEMU's sources; {elsewhere}")
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = [line.split()[0].rstrip("/") for line in said.splitlines() if line.strip()]
    mirrors = [address for address in found if re.search(r"/debian$", address)]
    if not mirrors:
        fail(f"apt knows no mirror of Debian that could have QEMU's sources; {elsewhere}")
    return mirrors[0]


def by_apt(address: str, to: Path) -> None:
    """Fetches a file as apt does: with its transports, proxies and keys."""
    helper = "/usr/lib/apt/apt-helper"
    command = [helper, "-o", "APT::Sandbox::User=root", "download-file", address, str(to)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0 or not to.is_file():
        said = [line for line in (ran.stderr + ran.stdout).splitlines() if line.startswith("E:")]
        fail(
            f"cannot fetch {address} ({' '.join(said) or 'no answer'}). If a newer version has "
            f"replaced it on Debian's mirrors, set {SOURCE_VARIABLE} to a copy of it, or to its "
            "address in Debian's archive of all versions; qemu/README.md says more"
        )


def check(path: Path, about: dict[str, Any], name: str) -> None:
    """Refuses a file whose SHA-256 is not the expected one."""
    found = digest(path)
    if found != about["sha256"]:
        fail(
            f"{name} is not the source of QEMU {about['version']} that qemu/source.toml asks for: "
            f"its SHA-256 is {found}, and should be {about['sha256']}. Nothing was built"
        )


def digest(path: Path) -> str:
    """A file's SHA-256."""
    with path.open("rb") as file:
        hashed = hashlib.sha256()
        while block := file.read(1 << 20):
            hashed.update(block)
    return hashed.hexdigest()


# --- what a build depends on --------------------------------------------------------------------


@dataclass(frozen=True)
class Crate:
    """One crate of the recorder's library."""

    name: str
    version: str
    licence: str
    folder: Path | None
    """The folder of the crate, if it is one of ours."""


def crates(about: dict[str, Any]) -> list[Crate]:
    """The crates that are linked into the recorder's library."""
    command = ["cargo", "tree", "--quiet", "--locked", "--edges", "normal", "--prefix", "none"]
    command += ["--format", "{p}|{l}", *features(about["recorder"])]
    said = run(command, "cargo does not tell the recorder's crates", cwd=ROOT)
    found = {}
    for line in said.splitlines():
        package, licence = line.removesuffix(" (*)").split("|")
        name, version, *rest = package.split()
        folder = Path(rest[-1].strip("()")) if rest and rest[-1].startswith("(/") else None
        found[name] = Crate(name, version.removeprefix("v"), licence, folder)
    return sorted(found.values(), key=lambda crate: crate.name)


def features(recorder: dict[str, Any]) -> list[str]:
    """The arguments for cargo that select the crate and the kind of build."""
    package = ["--package", recorder["package"], "--no-default-features"]
    return [*package, "--features", ",".join(recorder["features"])]


def key(about: dict[str, Any], parts: list[Crate]) -> str:
    """The key of a build: a digest of everything that goes into it."""
    hashed = hashlib.sha256()
    folders = [HERE, *(crate.folder for crate in parts if crate.folder)]
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md":
                hashed.update(f"{path.relative_to(ROOT)} {digest(path)}\n".encode())
    for crate in parts:
        hashed.update(f"{crate.name} {crate.version}\n".encode())
    for command in (["cc", "--version"], ["ld", "--version"], ["rustc", "--version"]):
        if shutil.which(command[0]):
            hashed.update(run(command, "").encode())
    if shutil.which("pkg-config"):
        command = ["pkg-config", "--modversion", "glib-2.0"]
        hashed.update(subprocess.run(command, capture_output=True, check=False).stdout)
    for name, value in sorted(os.environ.items()):
        if name.startswith("CARGO_PROFILE_RELEASE_") or name == "RUSTFLAGS":
            hashed.update(f"{name}={value}\n".encode())
    hashed.update(about["source"]["sha256"].encode())
    return hashed.hexdigest()[:20]


# --- the build --------------------------------------------------------------------------------


def needs() -> None:
    """Ends the build if something that it needs is missing."""
    missing = {command: package for command, package in NEEDS.items() if not shutil.which(command)}
    if missing:
        names = ", ".join(missing)
        fail(f"QEMU's build needs {names}: install {', '.join(missing.values())}, then try again")
    for library, package in LIBRARIES.items():
        said = run(["cc", f"-print-file-name={library}"], "").strip()
        if said == library:
            fail(
                f"QEMU's build links {library}, which is missing: install {package}, then try again"
            )


def unpacked(about: dict[str, Any], file: Path, to: Path) -> Path:
    """The folder of QEMU's sources as they were released."""
    tree = to / "tree"
    if (to / "unpacked").is_file():
        return tree
    say(f"unpacking {file.name}")
    shutil.rmtree(tree, ignore_errors=True)
    without = [f"--exclude=*/{name}" for name in about["without"]]
    tree.mkdir(parents=True)
    command = ["tar", "-xf", str(file), "-C", str(tree), "--strip-components=1", *without]
    run(command, f"cannot unpack {file}")
    (to / "unpacked").touch()
    return tree


def python(requirements: list[str], to: Path) -> Path:
    """A Python environment with Meson in it."""
    folder = to / "python"
    stamp = folder / "requirements"
    wanted = "\n".join([sys.version, *requirements])
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(folder)], "cannot make a Python environment")
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements]
        run(install, f"cannot install {' '.join(requirements)}")
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def prepare(tree: Path, pristine: Path) -> None:
    """Inserts our calls and copies our files into QEMU's tree."""
    table = HERE / "insertions.toml"
    try:
        insert.insert_all(tree, pristine, insert.read(table))
    except (insert.NotFoundError, ValueError) as error:
        fail(f"our calls do not fit this source of QEMU: {error}")
    ours = tree / "pagewalk"
    ours.mkdir(exist_ok=True)
    files = {path.name for path in (HERE / "pagewalk").glob("*") if path.is_file()}
    for path in ours.iterdir():
        if path.name not in files and path.suffix != ".a":
            path.unlink()
    for name in files:
        replace(HERE / "pagewalk" / name, ours / name)


def replace(new: Path, old: Path) -> bool:
    """Copies a file if it differs, so that nothing is compiled again needlessly."""
    if old.is_file() and old.read_bytes() == new.read_bytes():
        return False
    beside = old.with_name(f".{old.name}.{os.getpid()}")
    shutil.copy(new, beside)
    beside.replace(old)
    return True


def library(recorder: dict[str, Any], tree: Path) -> None:
    """Compiles the recorder into QEMU's tree; if it has changed, all programs are linked again."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
    command = ["cargo", "build", "--quiet", "--locked", "--release", *features(recorder)]
    ran = subprocess.run(command, cwd=ROOT, check=False)
    if ran.returncode != 0:
        fail("cargo could not compile the recorder; what it said is above")
    name = recorder["library"]
    if replace(target / "release" / name, tree / "pagewalk" / name):
        for kind in KINDS:
            for path in (tree.parent / kind).glob("qemu-*"):
                if path.is_file():
                    path.unlink()


def compiled(about: dict[str, Any], kind: str, to: Path) -> Path:
    """Configures and compiles QEMU's programs of a kind, `user` or `system`."""
    folder = to / kind
    folder.mkdir(exist_ok=True)
    log = folder / "build.log"
    suffix = "linux-user" if kind == "user" else "softmmu"
    targets = ",".join(f"{name}-{suffix}" for name in about[kind])
    command = ["../tree/configure", f"--python={python(about['python'], to)}"]
    command += [f"--target-list={targets}", *about["options"], *about.get(f"{kind}_options", [])]
    # The linker writes what it took beside each program.
    command += ["--extra-ldflags=-Wl,-Map=%.map"]
    # A program names no folder of this machine, so that two builds have equal bytes.
    command += [f"--extra-cflags=-ffile-prefix-map={to}=qemu"]
    stamp = folder / "configured"
    if not stamp.is_file() or stamp.read_text() != " ".join(command):
        say("configuring QEMU")
        logged(command, folder, log)
        stamp.write_text(" ".join(command))
    say("compiling QEMU, which takes some minutes the first time")
    jobs = str(len(os.sched_getaffinity(0)))
    programs = [program(kind, name) for name in about[kind]]
    logged(["ninja", "-j", jobs, *programs], folder, log)
    roms = about.get(f"{kind}_roms", [])
    if roms:
        logged(["make", "-C", ROMS, *roms], folder, log)
    return folder


def program(kind: str, name: str) -> str:
    """The file name of one of QEMU's programs."""
    return f"qemu-{name}" if kind == "user" else f"qemu-system-{name}"


def logged(command: list[str], folder: Path, log: Path) -> None:
    """Runs a command with its output in a file; an error shows the end of that file."""
    with log.open("w") as file:
        ran = subprocess.run(command, cwd=folder, stdout=file, stderr=file, check=False)
    if ran.returncode != 0:
        end = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-12:]
        print("\n".join(end), file=sys.stderr)
        fail(f"{Path(command[0]).name} failed; all that it said is in {log}")


# --- what was linked --------------------------------------------------------------------------


def linked(map_file: Path) -> set[Path]:
    """The archives outside of QEMU's own build that the linker used, from its map."""
    archives = set()
    for line in map_file.read_text(errors="replace").splitlines():
        found = re.match(r"(/\S+\.a)\(", line)
        if found:
            archives.add(Path(os.path.realpath(found[1])))
    return archives


def audit(about: dict[str, Any], maps: list[Path], parts: list[Crate]) -> str:
    """One line per linked library and crate, with its licence.

    Ends the build if a licence is unknown, or is not compatible with QEMU's.
    """
    archives = {archive for each in maps for archive in linked(each)}
    lines = []
    for archive in sorted(archives):
        name = archive.name
        if name == about["recorder"]["library"]:
            continue
        licences = [about["linked"][each] for each in about["linked"] if fnmatch(name, each)]
        if not licences:
            fail(
                f"the linker used {archive}, which has no licence in qemu/source.toml: find out "
                "whether its licence is compatible with GPL-2.0, then add it under [linked]"
            )
        lines.append(f"{archive}\t{licences[0]}")
    for crate in parts:
        # GPL-2.0 is not compatible with Apache-2.0: a crate must offer another licence.
        if not re.search(r"\b(MIT|BSD|Zlib|Unlicense|GPL-2.0-or-later)\b", crate.licence):
            fail(f"the crate {crate.name} is under `{crate.licence}`: not compatible with GPL-2.0")
        lines.append(f"crate {crate.name} {crate.version}\t{crate.licence}")
    return "\n".join(lines) + "\n"


# --- the command ------------------------------------------------------------------------------


def run(command: list[str], otherwise: str, cwd: Path | None = None) -> str:
    """The output of a command; ends the build with `otherwise` if the command fails."""
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        said = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
        fail(f"{otherwise}: {said[-1] if said else f'it ended with {ran.returncode}'}")
    return ran.stdout


def say(what: str) -> None:
    """One line of progress."""
    print(f"QEMU: {what}", file=sys.stderr, flush=True)


def build(kinds: list[str]) -> dict[str, Path]:
    """Builds the programs that are not built yet; returns the folder of each kind."""
    about = settings()
    parts = crates(about)
    name = key(about, parts)
    built = cache() / "built" / name

    def missing() -> list[str]:
        return [kind for kind in kinds if not (built / kind / "linked").is_file()]

    if missing():
        needs()
        file = source(about["source"])
        options = repr([about["source"], about["build"]]).encode()
        work = cache() / f"work-{hashlib.sha256(options).hexdigest()[:12]}"
        work.mkdir(parents=True, exist_ok=True)
        with (work / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have built them while this one waited.
            kinds_missing = missing()
            if not kinds_missing:
                return {kind: built / kind for kind in kinds}
            tree = unpacked(about["source"], file, work)
            prepare(tree, work / "pristine")
            library(about["recorder"], tree)
            for kind in kinds_missing:
                finish(about, kind, compiled(about["build"], kind, work), built / kind, parts)
    return {kind: built / kind for kind in kinds}


def finish(about: dict[str, Any], kind: str, folder: Path, to: Path, parts: list[Crate]) -> None:
    """Checks the linked archives, and stores stripped programs in the cache."""
    programs = [program(kind, name) for name in about["build"][kind]]
    # The recorder of programs is no part of the programs for whole systems.
    parts = parts if kind == "user" else []
    said = audit(about, [folder / f"{each}.map" for each in programs], parts)
    to.mkdir(parents=True, exist_ok=True)
    for each in programs:
        run(["strip", "-o", str(to / each), str(folder / each)], f"cannot strip {each}")
    for rom in about["build"].get(f"{kind}_roms", []):
        shutil.copy(folder / ROMS / rom, to)
    for licence in ("LICENSE", "COPYING", "COPYING.LIB"):
        shutil.copy(folder.parent / "tree" / licence, to)
    (to / "linked").write_text(said)


def main() -> None:
    """Builds programs, and puts them into the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", action="store_true", help="build qemu-system-x86_64 instead")
    parser.add_argument("--output", type=Path, default=PACKAGE, help="the folder for the programs")
    arguments = parser.parse_args()
    for kind, folder in build(["system" if arguments.system else "user"]).items():
        # No wheel contains programs for whole systems.
        output = arguments.output if kind == "user" else arguments.output / kind
        output.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            replace(path, output / path.name)


if __name__ == "__main__":
    main()
