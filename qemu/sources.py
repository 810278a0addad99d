"""Writes the complete corresponding source of the QEMU programs in a wheel, as the GPL demands.

```
 linked: archives --dpkg--> packages --apt--> source packages    the C library, GLib, GCC's library
         crates ----------------cargo-------> .crate files
         Rust's standard library --rustup---> rust-src
 QEMU's source, and Pagewalk's own source distribution with our files and the scripts
                                |
                       pagewalk-VERSION-sources.tar
```

Packages come from the mirrors that apt uses. The `deb-src` lines are in a configuration of this
script; the system's is not changed.
"""

import argparse
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import build

ABOUT = """\
The source of the QEMU programs in Pagewalk's wheel, which are under the GPL, version 2.

    {qemu}
        QEMU. qemu/build.py in Pagewalk's source changes and compiles it; `make qemu` runs that.
    {pagewalk}
        Pagewalk: our files and calls in QEMU (qemu/), the recorder (crates/recorder).
    packages/
        The distribution's source packages of the libraries that are linked statically.
    crates/, rust/
        The recorder's crates of others, and Rust's standard library.

What was linked, with licences:

{linked}"""


def packages(archives: list[str]) -> set[tuple[str, str]]:
    """The source packages of archives, with their versions, as dpkg knows them."""
    if shutil.which("dpkg-query") is None:
        build.fail("the sources of what is linked are found by dpkg, which is not here")
    found = set()
    for archive in archives:
        said = build.run(["dpkg-query", "-S", archive], f"{archive} belongs to no package")
        name = said.split(": ")[0]
        shown = ["dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", name]
        source, version = build.run(shown, f"dpkg does not know {name}").split()
        found.add((source, version))
    return found


def fetch(wanted: set[tuple[str, str]], to: Path) -> None:
    """Downloads source packages by apt, without a change to the system's settings."""
    to.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        private = Path(folder)
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            (private / name).mkdir(parents=True)
        lists = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
        for path in lists:
            if path.is_file() and path.suffix in (".list", ".sources"):
                text = path.read_text(encoding="utf-8")
                text = re.sub(r"(?m)^deb\s", "deb-src ", text)
                text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", text)
                (private / "parts" / path.name).write_text(text, encoding="utf-8")
        settings = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": private / "parts",
            "Dir::State::lists": private / "lists",
            "Dir::Cache": private / "cache",
            "APT::Sandbox::User": "root",
        }
        options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        # Who has no source packages among the system's other mirrors is of no interest.
        subprocess.run(["apt-get", *options, "update"], capture_output=True, check=False)
        names = [f"{source}={version}" for source, version in sorted(wanted)]
        command = ["apt-get", *options, "source", "--download-only", *names]
        build.run(command, f"apt cannot fetch the sources {' '.join(names)}", cwd=to)


def crates(parts: list[build.Crate], to: Path) -> None:
    """Copies the crates that cargo has downloaded."""
    to.mkdir()
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    for crate in parts:
        if crate.folder is None:
            name = f"{crate.name}-{crate.version}.crate"
            found = sorted((home / "registry" / "cache").glob(f"*/{name}"))
            if not found:
                build.fail(f"cargo has not kept {name}: run `cargo fetch`, then try again")
            shutil.copy(found[0], to / name)


def standard_library(to: Path) -> None:
    """Copies the source of Rust's standard library, with its crates."""
    root = build.run(["rustc", "--print", "sysroot"], "rustc does not tell where it is").strip()
    library = Path(root) / "lib/rustlib/src/rust/library"
    if not library.is_dir() and shutil.which("rustup"):
        build.run(["rustup", "component", "add", "rust-src"], "rustup cannot add rust-src")
    if not library.is_dir():
        build.fail(f"the source of Rust's standard library is not in {library}: install rust-src")
    shutil.copytree(library, to / "library")
    manifest = str(to / "library" / "Cargo.toml")
    # Its manifest uses what cargo allows the standard library alone.
    command = ["env", "RUSTC_BOOTSTRAP=1", "cargo", "vendor", "--quiet", "--locked"]
    command += ["--manifest-path", manifest, str(to / "vendor")]
    build.run(command, "cargo cannot fetch the crates of Rust's standard library")
    for path in (to / "vendor").glob("windows*"):
        shutil.rmtree(path)


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without its owner and date, so that equal sources are equal bytes."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def collect(sdist: Path, output: Path) -> Path:
    """Writes the archive beside the wheel."""
    about = build.settings()
    parts = build.crates(about)
    [built] = build.build(["user"]).values()
    linked = (built / "linked").read_text(encoding="utf-8")
    archives = [line.split("\t")[0] for line in linked.splitlines() if line.startswith("/")]
    qemu = build.source(about["source"])
    name = sdist.name.removesuffix(".tar.gz") + "-sources"
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / name
        top.mkdir()
        shutil.copy(qemu, top / about["source"]["file"])
        shutil.copy(sdist, top)
        fetch(packages(archives), top / "packages")
        if parts:
            crates(parts, top / "crates")
            standard_library(top / "rust")
        text = ABOUT.format(qemu=about["source"]["file"], pagewalk=sdist.name, linked=linked)
        (top / "README").write_text(text, encoding="utf-8")
        file = output / f"{name}.tar"
        with tarfile.open(file, "w") as archive:
            archive.add(top, name, filter=plain)
    return file


def main() -> None:
    """Collects the sources for the one source distribution in a folder."""
    parser = argparse.ArgumentParser(description="Write the source of the QEMUs in a wheel.")
    parser.add_argument("folder", type=Path, help="where the source distribution and the wheel are")
    folder = parser.parse_args().folder
    found = sorted(folder.glob("pagewalk-*.tar.gz"))
    if len(found) != 1:
        build.fail(f"{folder} should have one pagewalk-VERSION.tar.gz, and has {len(found)}")
    build.say(f"wrote {collect(found[0], folder)}")


if __name__ == "__main__":
    main()
