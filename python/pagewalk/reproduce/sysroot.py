"""Programs of another architecture, unpacked into a folder of their own.

```
 CACHE/apt-i386/          lists and archives of an apt that knows this architecture alone
 CACHE/roots/i386-1f3a/   what `dpkg-deb -x` makes of the packages and of all they depend on
```

Nothing is installed. The system's own packages and lists do not change, and the rights of root are
not needed.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pagewalk._native import Error, WorkError

ARCHITECTURE = "i386"


def unpacked(folder: Path, packages: Sequence[str], install: bool) -> tuple[Path, str]:
    """The folder with `packages` and the packages on which they depend, and the versions of all.

    Raises:
        Error: The packages are missing and may not be downloaded, or this system has no apt.
        WorkError: The packages cannot be downloaded or unpacked.
    """
    from pagewalk.reproduce.programs import digest

    root = folder / "roots" / f"{ARCHITECTURE}-{digest(sorted(packages))}"
    versions = root / "versions"
    if not versions.exists():
        if not install:
            raise Error(
                f"{', '.join(packages)} for {ARCHITECTURE} are missing: give --install to download "
                "them into the cache"
            )
        part = root.with_name(f".{os.getpid()}.{root.name}")
        try:
            part.mkdir(parents=True)
            archives = _downloaded(folder / f"apt-{ARCHITECTURE}", packages)
            for archive in archives:
                _done(["dpkg-deb", "-x", str(archive), str(part)])
            names = sorted(archive.stem for archive in archives)
            (part / "versions").write_text("\n".join(names) + "\n", encoding="utf-8")
            part.rename(root)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return root, digest(versions.read_text(encoding="utf-8"))


def _downloaded(apt: Path, packages: Sequence[str]) -> list[Path]:
    """The archives of `packages` and of all that they depend on."""
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise Error(
            f"this system has no {' and no '.join(missing)}, with which the 32-bit programs are "
            "installed"
        )
    for place in ("state/lists/partial", "cache/archives/partial"):
        (apt / place).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    (apt / "apt.conf").write_text(
        "#clear APT::Architectures;\n#clear APT::Update::Post-Invoke;\n#clear DPkg::Post-Invoke;\n"
        f'APT::Architecture "{ARCHITECTURE}";\nAPT::Architectures "{ARCHITECTURE}";\n'
        f'Dir::State "{apt}/state";\nDir::State::status "{apt}/status";\n'
        f'Dir::Cache "{apt}/cache";\nAPT::Install-Recommends "false";\n'
        'APT::Keep-Downloaded-Packages "true";\nAPT::Sandbox::User "";\n',
        encoding="utf-8",
    )
    environment = {"APT_CONFIG": str(apt / "apt.conf")}
    # If the lists cannot be downloaded again, lists from an earlier download may exist.
    _run(["apt-get", "update", "-qq"], environment)
    asked = ["apt-get", "install", "-y", "-qq", *packages]
    _done([*asked, "--download-only"], environment)
    # The cache may contain archives of other packages. Only those that these packages need are
    # used.
    planned = _done([*asked, "--simulate"], environment)
    wanted = {line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")}
    archives = sorted((apt / "cache" / "archives").glob("*.deb"))
    return [archive for archive in archives if archive.name.partition("_")[0] in wanted]


def _run(command: list[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    surroundings = {**os.environ, **environment, "LC_ALL": "C"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings)


def _done(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = _run(command, environment or {})
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it failed").splitlines()[-1]
        raise WorkError(f"{' '.join(command[:2])}: {last}")
    return done.stdout
