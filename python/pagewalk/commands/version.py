"""`pagewalk version`: Pagewalk's version, and the plugins and QEMUs that recording would use."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from pagewalk import _native
from pagewalk.commands import arguments
from pagewalk.commands.command import Command
from pagewalk.commands.flags import FORCE, json_of
from pagewalk.terminal import say

EMULATORS = ("qemu-x86_64", "qemu-i386", "qemu-arm", "qemu-aarch64", "qemu-riscv64")


class Version(Command):
    """Prints Pagewalk's version, and the plugins and QEMUs that recording would use."""

    name = "version"
    help = "print the version, and which plugins and QEMUs were found"
    description = (
        "Print the version, the recorder's plugins, and the QEMUs in which programs are recorded."
    )
    epilog = "example:\n  pagewalk version"
    flags = (
        json_of("the versions"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Prints the versions and the paths."""
        found = versions()
        if options.json is not None:
            arguments.write_output(options.json, json.dumps(found, indent=1) + "\n", options.force)
            return 0
        say(f"pagewalk {found['pagewalk']} (Python {found['python']})")
        say(f"plugins: {', '.join(found['plugins']) or 'none: run `make build`'}")
        for name, path in found["emulators"].items():
            say(f"{name}: {path or 'none: run `make qemu`'}")
        return 0


def versions() -> dict[str, Any]:
    """The version, the plugins by file name, and the emulators by path."""
    import platform

    from pagewalk.recording import PLUGINS, QEMUS

    folder = Path(os.environ.get("PAGEWALK_QEMU_DIR") or QEMUS)

    def path(name: str) -> str | None:
        return str(folder / name) if (folder / name).is_file() else None

    return {
        "pagewalk": _native.version(),
        "python": platform.python_version(),
        "plugins": sorted(file.name for file in Path(PLUGINS).glob("*.so")),
        "emulators": {name: path(name) for name in EMULATORS},
    }
