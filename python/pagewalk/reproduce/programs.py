"""Programs to record: our own programs, which are built from C on demand, and installed programs.

```
 [heapsort]  source = "heapsort.c" --cc--> CACHE/bin/heapsort-1f3a --record--> CACHE/traces/...
 [gnugo]     package = "gnugo"     --its version is part of the trace's name--^
```
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagewalk._native import Error, WorkError
from pagewalk.reproduce import inputs, sysroot
from pagewalk.reproduce.experiment import read_toml

KEYS = {
    "what", "source", "arguments", "package", "command", "inputs", "stdin", "skip", "accesses",
    "i386", "small", "calls", "tools",
}  # fmt: skip
COMPILE = ("-std=gnu11", "-O2", "-static")


@dataclass(frozen=True)
class Program:
    """A program as `programs.toml` describes it.

    Attributes:
        name: Its name there.
        what: What it is and does.
        source: A source file in `workloads/`, or nothing.
        package: The Debian package that contains it, or nothing.
        command: The command, without its first word if there is a source. `{name}` stands for the
            path of an input.
        inputs: The inputs that are made before it runs. Each has a name, a function of the module
            `inputs`, and its parameters.
        stdin: The input that it reads as its standard input, or nothing.
        skip: The number of accesses that are skipped, so that the program's start is not recorded.
        accesses: The number of accesses after which all of its memory was touched. No recording is
            shorter.
        i386: The Debian packages for i386 that contain it, which are unpacked into a separate
            folder; or none.
        small: The size in bytes of the address range to which it is confined (in MiB in the file),
            or `None`.
        calls: Whether its file calls and blocking calls are recorded.
        tools: Other files that a command of 32-bit programs needs. Each has a name, and a source
            file in `workloads/`.
    """

    name: str
    what: str
    source: str
    package: str
    command: tuple[str, ...]
    inputs: dict[str, dict[str, Any]]
    stdin: str
    skip: int
    accesses: int
    i386: tuple[str, ...] = field(default=(), repr=False)
    small: int | None = field(default=None, repr=False)
    calls: bool = field(default=False, repr=False)
    tools: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def given(self, value: str) -> "Program":
        """This program with `value` in place of `{value}` in its command."""
        words = tuple(word.replace("{value}", value) for word in self.command)
        return replace(self, name=f"{self.name}@{value}", command=words)

    @property
    def confined(self) -> list[object]:
        """The settings of the recording of a 32-bit program, as a part of its trace's name.

        Otherwise empty.
        """
        return [self.i386, self.small, self.calls, "one processor"] if self.i386 else []

    def root(self, folder: Path, install: bool) -> Path | None:
        """The folder into which its 32-bit packages are unpacked, if it has any.

        Raises:
            Error: The packages are missing and may not be downloaded.
            WorkError: The packages cannot be downloaded.
        """
        return sysroot.unpacked(folder, self.i386, install)[0] if self.i386 else None

    def ready(self, folder: Path, sources: Path, install: bool) -> tuple[list[str], str, str]:
        """The program's command line, the path of its standard input, and its version.

        Builds the program and makes its inputs in `folder`, if they do not exist yet.

        Raises:
            Error: The program is not installed.
            WorkError: The program cannot be built.
        """
        values = {name: str(_make(folder, maker)) for name, maker in self.inputs.items()}
        for name, source in self.tools:
            values[name] = str(_tool(folder, sources / source))
        stdin = values.get(self.stdin, os.devnull)
        words = [word.format(**values) for word in self.command]
        if self.source:
            binary, version = _build(folder, sources / self.source)
            return [str(binary), *words], stdin, version
        if self.i386:
            return words, stdin, f"i386 {sysroot.unpacked(folder, self.i386, install)[1]}"
        found = shutil.which(words[0])
        if found is None and self.package and install:
            _install(self.package)
            found = shutil.which(words[0])
        if found is None:
            remedy = (
                f": `apt-get install {self.package}`, or give --install" if self.package else ""
            )
            raise Error(f"{self.name} is not installed{remedy}")
        return [found, *words[1:]], stdin, _version(self.package, found)


def load(path: Path) -> dict[str, Program]:
    """The programs that a `programs.toml` describes.

    Raises:
        Error: The description of a program is invalid.
    """
    programs = {}
    for name, entry in read_toml(path).items():
        if unknown := set(entry) - KEYS:
            raise Error(f"{path}: {name}: unknown key {', '.join(sorted(unknown))}: remove it")
        if ("source" in entry) == ("command" in entry):
            raise Error(f"{path}: {name}: give exactly one of `source` and `command`")
        programs[name] = Program(
            name=name,
            what=entry.get("what", ""),
            source=entry.get("source", ""),
            package=entry.get("package", ""),
            command=tuple(entry.get("command", entry.get("arguments", []))),
            inputs=entry.get("inputs", {}),
            stdin=entry.get("stdin", ""),
            skip=entry.get("skip", 0),
            accesses=entry.get("accesses", 0),
            i386=tuple(entry.get("i386", [])),
            small=(entry["small"] << 20) if "small" in entry else None,
            calls=entry.get("calls", False),
            tools=tuple(entry.get("tools", {}).items()),
        )
    return programs


def digest(*parts: object) -> str:
    """A short name that is computed from the contents `parts`."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def kept(path: Path, make: Callable[[Path], None]) -> Path:
    """`path`. If the file does not exist yet, it is made under another name and then renamed.

    If several processes request it, one makes it and the others wait.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.with_name(f".{path.name}.lock")):
        if not path.exists():
            part = path.with_name(f".{os.getpid()}.{path.name}")
            try:
                make(part)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
    return path


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Holds a lock file, so that only one process runs the block.

    The file is removed at the end.
    """
    while True:
        with lock.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # The process that held the lock before has removed the lock file.
            try:
                is_there = os.path.samestat(os.fstat(file.fileno()), lock.stat())
            except FileNotFoundError:
                is_there = False
            if is_there:
                try:
                    yield
                finally:
                    lock.unlink()
                return


def _make(folder: Path, maker: dict[str, Any]) -> Path:
    parameters = dict(maker)
    kind = parameters.pop("kind", None)
    make = inputs.MAKERS.get(kind)
    if make is None:
        raise Error(f"there is no input `{kind}`: choose one of {', '.join(inputs.MAKERS)}")
    suffix = parameters.pop("suffix", "")
    path = folder / "inputs" / f"{kind}-{digest(kind, sorted(parameters.items()))}{suffix}"
    return kept(path, lambda part: make(part, **parameters))


def _build(folder: Path, source: Path) -> tuple[Path, str]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Error("there is no C compiler: `apt-get install gcc`")
    version = digest(source.read_text(encoding="utf-8"), COMPILE, _version("gcc", compiler))
    binary = kept(
        folder / "bin" / f"{source.stem}-{version}", lambda part: _compile(compiler, source, part)
    )
    return binary, f"workloads/{source.name} {version}"


def _tool(folder: Path, source: Path) -> Path:
    """The 32-bit program that is built from `source`, under the given name."""
    compiler = shutil.which("i686-linux-gnu-gcc")
    if compiler is None:
        raise Error("there is no i686-linux-gnu-gcc: `apt-get install gcc-i686-linux-gnu`")
    version = digest(source.read_text(encoding="utf-8"), COMPILE, _version("", compiler))
    place = folder / "tools" / version / source.stem
    return kept(place, lambda part: _compile(compiler, source, part))


def _compile(compiler: str, source: Path, part: Path) -> None:
    command = [compiler, *COMPILE, "-o", str(part), str(source), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkError(f"{source} cannot be built: {done.stderr.strip().splitlines()[-1]}")


def _version(package: str, path: str) -> str:
    """The installed version of `package`. If dpkg does not know it, a digest of the binary."""
    if package and shutil.which("dpkg-query"):
        asked = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if asked.returncode == 0 and asked.stdout:
            return f"{package} {asked.stdout}"
    contents = hashlib.sha256(Path(path).resolve().read_bytes()).hexdigest()[:12]
    return f"{Path(path).name} {contents}"


def _install(package: str) -> None:
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    if os.geteuid() != 0:
        command.insert(0, "sudo")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Error(f"{package} cannot be installed: there is no {command[0]}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise WorkError(f"{package} cannot be installed: {''.join(last)}")
