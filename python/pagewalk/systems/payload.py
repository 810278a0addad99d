"""The command of a guest and the files that it needs. They are a tar that the guest unpacks.

```
 program   --> itself, its interpreter if it is a script, the libraries that `ldd` names
           --> PREFIX/lib/NAME*, PREFIX/libexec/NAME*, PREFIX/share/NAME*: installed with it
 folder    --> the current folder, in which it runs
 --with    --> further files and folders
```

All files keep their paths. Equal files give a tar with equal bytes.
"""

import io
import os
import re
import shlex
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from pagewalk import text
from pagewalk._native import Error

MOST_BYTES = 384 << 20
"""The maximum size of a payload in bytes. The guest unpacks it into its memory."""
_EXTENSIONS = {"site-packages", "dist-packages"}
"""Folders of software that was installed apart from the distribution. `--with` must name the parts
of it that a command needs.
"""
_LIBRARY = re.compile(r"\s*(?:(\S+) => )?(/\S+) \(0x")
_MISSING = re.compile(r"\s*(\S+) => not found")

RUN = """\
mkdir -p /pw/out
export HOME=/root LANG=C.UTF-8 PATH={path}
cd {folder}
/pw/begin
{command} </pw/stdin >/pw/out/stdout 2>/pw/out/stderr
status=$?
/pw/end
export PATH=/pw/bin
echo $status >/pw/out/status
tar cf /dev/vdb -C /pw/out .
poweroff -f
"""
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/pw/bin"


def pack(command: Sequence[str], stdin: bytes, more: Iterable[str], to: Path) -> None:
    """Writes the payload for `command` to the file `to`.

    Raises:
        Error: The program or one of its libraries is missing, or the files are too large together.
    """
    program = _found(command[0])
    folder = Path.cwd()
    files: set[Path] = set()
    _add_program(program, files)
    for one in _installed_with(program):
        _add_tree(one, files, _EXTENSIONS)
    _add_tree(folder, files)
    for name in more:
        path = Path(os.path.abspath(name))  # noqa: PTH100
        if not path.exists():
            raise Error(f"--with {name}: there is no such file or folder")
        _add_tree(path, files)
    _add_libraries(files)
    size = sum(path.stat().st_size for path in files if path.is_file() and not path.is_symlink())
    if size > MOST_BYTES:
        raise Error(
            f"the command with its libraries and the folder {folder} has {text.size(size)}, but a "
            f"guest can have at most {text.size(MOST_BYTES)}: run it in a smaller folder"
        )
    line = " ".join(shlex.quote(word) for word in [str(program), *command[1:]])
    script = RUN.format(path=_PATH, folder=shlex.quote(str(folder)), command=line)
    with tarfile.open(to, "w", format=tarfile.GNU_FORMAT) as tar:
        _add_bytes(tar, "pw/run", script.encode())
        _add_bytes(tar, "pw/stdin", stdin)
        for path in sorted(files):
            _add(tar, path)
    # A disk consists of sectors.
    os.truncate(to, -(-to.stat().st_size // 4096) * 4096)


def _found(name: str) -> Path:
    where = shutil.which(name)
    if where is None:
        raise Error(f"{name}: no such program; look at its spelling, or give its path")
    return Path(os.path.abspath(where))  # noqa: PTH100


def _add_program(path: Path, files: set[Path], depth: int = 0) -> None:
    _add_file(path, files)
    with path.open("rb") as file:
        head = file.read(256)
    if head[:2] == b"#!" and depth < 4:
        words = head[2:].split(b"\n")[0].split()
        if words:
            _add_program(_found(os.fsdecode(words[0])), files, depth + 1)
        if len(words) > 1 and Path(os.fsdecode(words[0])).name == "env":
            _add_program(_found(os.fsdecode(words[1])), files, depth + 1)


def _add_file(path: Path, files: set[Path]) -> None:
    """Adds a file. If it is a link, also adds its target."""
    files.add(path)
    for _ in range(16):
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()
        path = Path(os.path.normpath(path))
        files.add(path)


def _add_tree(path: Path, files: set[Path], without: Collection[str] = ()) -> None:
    if not path.is_dir():
        return _add_file(path, files)
    total = 0
    for at, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name not in without]
        for name in [*names, *folders]:
            one = Path(at) / name
            mode = one.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
                files.add(one)
                total += one.lstat().st_size
        if total > MOST_BYTES:
            raise Error(
                f"{path} has more than {text.size(MOST_BYTES)}, the most that a guest can have: run"
                " the command in a smaller folder"
            )
    files.add(path)
    return None


def _installed_with(program: Path) -> list[Path]:
    """The folders that were installed together with the program."""
    found = []
    for path in {program, program.resolve()}:
        prefix, name = path.parent.parent, path.name
        if path.parent.name not in ("bin", "sbin") or len(name) < 3:
            continue
        for kind in ("lib", "libexec", "share"):
            found += [one for one in prefix.glob(f"{kind}/{name}*") if one.is_dir()]
    return sorted(found)


def _add_libraries(files: set[Path]) -> None:
    """Adds the libraries of all programs and libraries among `files`."""
    # Each file is examined under only one of its names.
    existing = [path for path in sorted(files, reverse=True) if path.is_file()]
    inodes = {(path.stat().st_ino, path.stat().st_dev): path for path in existing}
    binaries = [path for path in sorted(inodes.values()) if _is_elf(path)]
    missing = None
    for at in range(0, len(binaries), 64):
        some = binaries[at : at + 64]
        line = ["ldd", *map(str, some)]
        said = subprocess.run(line, capture_output=True, text=True, check=False).stdout
        of = str(some[0])
        for row in said.splitlines():
            if row.endswith(":") and not row.startswith("\t"):
                of = row[:-1]
            if found := _LIBRARY.match(row):
                _add_file(Path(found[2]), files)
            elif (found := _MISSING.match(row)) and missing is None:
                missing = (of, found[1])
    if missing and missing[0] == str(binaries[0]):
        raise Error(f"{missing[0]}: its library {missing[1]} is missing: install it")


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o755
    tar.addfile(info, io.BytesIO(content))


def _add(tar: tarfile.TarFile, path: Path) -> None:
    try:
        info = tar.gettarinfo(str(path), str(path).lstrip("/"))
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}") from error
    # The guest has only one user, who owns all files.
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    # A folder in the path may be a link on this system, but it is not a link in the guest.
    if info.isreg():
        with path.open("rb") as file:
            tar.addfile(info, file)
    else:
        tar.addfile(info)
