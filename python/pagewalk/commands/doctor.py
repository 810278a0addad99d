"""`pagewalk doctor`: what this computer can record, place, verify and measure."""

import argparse
import json
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pagewalk import _native, here, text
from pagewalk.commands import arguments
from pagewalk.commands.command import Command
from pagewalk.commands.flags import FORCE, json_of
from pagewalk.commands.version import versions
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk doctor
  pagewalk doctor --json

The status is 1 if no program can be recorded here, else 0.
"""


class Check(NamedTuple):
    """The result of one check of the computer."""

    can: str
    """The subject of the check, as in `record x86_64 programs`."""
    works: bool
    says: str
    """The finding, in words."""
    remedy: str | None = None
    """Advice if the check failed. `None` if it succeeded, or if there is no advice."""


class Doctor(Command):
    """Shows what this computer can record, place, verify and measure."""

    name = "doctor"
    help = "report what this computer can record, place, verify and measure"
    description = (
        "Look at the installation, the kernel and the processor, and say which commands work "
        "here. For each command that does not work, say what is missing and what to do."
    )
    epilog = EPILOG
    flags = (json_of("what was found"), FORCE)

    def run(self, options: argparse.Namespace) -> int:
        """Runs the checks, and prints a line for each."""
        found = list(checks())
        if options.json is not None:
            document = json.dumps([check._asdict() for check in found], indent=1) + "\n"
            arguments.write_output(options.json, document, options.force)
        else:
            say(shown(found))
        return 0 if any(check.works for check in found if check.can.startswith("record")) else 1


def shown(found: list[Check]) -> str:
    """The checks as lines. Failed checks have advice."""
    width = max(len(check.can) for check in found) + 2
    lines = []
    for check in found:
        mark = "yes" if check.works else "no "
        said = text.paragraph(check.says, " " * (5 + width)).lstrip()
        lines.append(f"{mark}  {check.can:{width}}{said}")
        if check.remedy is not None:
            lines.append(text.paragraph(check.remedy, " " * (5 + width)))
    missing = sum(not check.works for check in found)
    head = (
        f"All {len(found)} work here."
        if not missing
        else f"{missing} of {len(found)} do not work here."
    )
    return "\n".join([head, "", *lines])


def checks() -> Iterator[Check]:
    """Runs the checks, one after the other."""
    yield from _recording()
    yield _calibrating()
    yield from _placing()
    yield _verifying()
    yield _counting()


def _install(target: str) -> str:
    """The advice if a part of Pagewalk is missing. `make TARGET` builds this part."""
    return f"run `make {target}`, or install a wheel of Pagewalk, which has it"


def _recording() -> Iterator[Check]:
    installed = versions()
    natively = _natively()
    emulated = [_emulated(name, path) for name, path in installed["emulators"].items()]
    for arch, check in emulated:
        can = f"record {arch} programs"
        if arch != "x86_64":
            yield check._replace(can=can)
        elif natively.works or not check.works:
            says = "natively" if natively.works else f"{natively.says}, and {check.says}"
            yield Check(can, natively.works, says, natively.remedy)
        else:
            yield Check(can, True, f"in QEMU, because {natively.says}")
    yield natively
    yield from (
        check._replace(can="record --engine qemu") for arch, check in emulated if arch == "x86_64"
    )
    machine = platform.machine()
    plugin = f"pagewalk-allocations-{machine}.so"
    has = plugin in installed["plugins"]
    yield Check(
        "record --allocations",
        has,
        plugin if has else f"{plugin} is missing",
        None if has else _install("build"),
    )


def _emulated(name: str, path: str | None) -> tuple[str, Check]:
    """Checks whether the QEMU for an instruction set exists."""
    remedy = None if path else _install("qemu")
    check = Check(name, path is not None, path or f"{name} is missing", remedy)
    return name.removeprefix("qemu-"), check


def _natively() -> Check:
    from pagewalk.placing import launch
    from pagewalk.recording import PLUGINS

    can = "record --engine native"
    if platform.machine() != "x86_64":
        return Check(can, False, f"the engine is for x86-64, and this is {platform.machine()}")
    if not (Path(PLUGINS) / "pagewalk-engine").is_file():
        return Check(can, False, "pagewalk-engine is missing", _install("build"))
    if not _native.may_trace():
        return Check(can, False, "ptrace is forbidden here", launch.FORBIDDEN)
    return Check(can, True, "the engine and ptrace are there")


def _calibrating() -> Check:
    can = "predictions for this computer"
    fitting = here.fitting(here.BUILT_IN, here.processor(), Path())
    if fitting:
        return Check(can, True, f"the machine {fitting[0]} is of this processor")
    compiler = "" if shutil.which("cc") else "; it needs a C compiler, which is missing here"
    remedy = f"`pagewalk calibrate -o here.toml` writes one{compiler}"
    return Check(can, False, "no machine file describes this computer's processor", remedy)


def _placing() -> Iterator[Check]:
    from pagewalk.placing import launch
    from pagewalk.placing.system import System

    system = System().still()
    enabled = system.enabled()
    can = "large pages of 2M"
    if enabled is None:
        yield Check(can, False, "this kernel has no transparent huge pages")
    elif enabled.value == "never":
        yield Check(can, False, f"{enabled.path} is never", f"as root: {enabled.line('madvise')}")
    else:
        yield Check(can, True, f"{enabled.path} is {enabled.value}")
    traces = _native.may_trace()
    yield Check(
        "place -- COMMAND",
        traces,
        "ptrace is available" if traces else "ptrace is forbidden here",
        None if traces else launch.FORBIDDEN,
    )
    root = os.geteuid() == 0
    yield Check(
        "place --system",
        root,
        "this user is root, so pools of huge pages and system settings can be changed"
        if root
        else "only root can change pools of huge pages and system settings",
        None if root else "run the command as root, with sudo",
    )


def _verifying() -> Check:
    from pagewalk.placing import pages

    can = "verify, block by block"
    try:
        pages.present(os.getpid(), 0, (1 << 47) - pages.BASE)
    except pages.UnsupportedError:
        return Check(
            can,
            False,
            "no PAGEMAP_SCAN (Linux 6.7): verify counts large pages by smaps, region by region",
        )
    except OSError as error:
        return Check(can, False, f"/proc/self/pagemap: {error.strerror}")
    return Check(can, True, "PAGEMAP_SCAN is there")


def _counting() -> Check:
    from pagewalk.placing import counters

    found, why = counters.of_walks()
    return Check("counters of page walks", found is not None, why or "perf_event_open is there")
