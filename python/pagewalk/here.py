"""The processor of this computer, and the machine files that describe this processor.

A file written by `pagewalk calibrate` names its processor in a comment. `BUILT_IN` has the
processors of the built-in files: vendor, family and models as Linux reports them.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pagewalk.names import DEFAULT

CPUINFO = Path("/proc/cpuinfo")
_COMMENT = re.compile(r"^# processor: (?P<vendor>\S+) (?P<family>\S+) (?P<model>\S+)", re.MULTILINE)
BUILT_IN: dict[str, tuple[str, str, range]] = {
    # `arch/x86/kernel/cpu/amd.c`: Zen 5 is family 0x1a; of its models Turin and Turin Dense.
    "epyc-9005": ("AuthenticAMD", "26", range(0x20)),
    # `arch/x86/include/asm/intel-family.h`: INTEL_GRANITERAPIDS_X.
    "xeon-6900p": ("GenuineIntel", "6", range(0xAD, 0xAE)),
    # `arch/arm64/include/asm/cputype.h`: ARM_CPU_IMP_ARM, ARM_CPU_PART_NEOVERSE_N1.
    "neoverse-n1": ("0x41", "8", range(0xD0C, 0xD0D)),
    # Family 0x10: Barcelona, Shanghai.
    "opteron-2008": ("AuthenticAMD", "16", range(0x100)),
    "pentium4": ("GenuineIntel", "15", range(0x100)),
}
"""Vendor, family and models of the processors that built-in machines describe."""


class Processor(NamedTuple):
    """A processor: the data that identify its model."""

    vendor: str
    family: str
    model: int
    name: str

    def comment(self) -> str:
        """The processor as a comment of a machine file."""
        return f"# processor: {self.vendor} {self.family} {self.model} {self.name}".rstrip()


def processor(cpuinfo: Path = CPUINFO) -> Processor | None:
    """The processor of this computer; `None` if the system does not report it."""
    try:
        text = cpuinfo.read_text("utf-8", "replace")
    except OSError:
        return None

    def field(name: str) -> str | None:
        found = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
        return found[1].strip() if found else None

    vendor = field("vendor_id") or field("CPU implementer")
    family = field("cpu family") or field("CPU architecture")
    model = field("model") or field("CPU part")
    if vendor is None or family is None or model is None:
        return None
    try:
        number = int(model, 0)
    except ValueError:
        return None
    return Processor(vendor, family, number, field("model name") or "")


def is_of(name: str, here: Processor | None) -> bool | None:
    """Whether the machine (a built-in name or the path of a file) describes `here`.

    `None` if the machine's file does not say which processor it describes.
    """
    if here is None:
        return None
    known = BUILT_IN.get(name)
    if known is not None:
        vendor, family, models = known
        return (here.vendor, here.family) == (vendor, family) and here.model in models
    try:
        text = Path(name).read_text("utf-8", "replace")
    except OSError:
        return None
    found = _COMMENT.search(text)
    if found is None:
        return None
    return found["vendor"] == here.vendor and (found["family"], found["model"]) == (
        here.family,
        str(here.model),
    )


def fitting(built_in: Iterable[str], here: Processor | None, folder: Path) -> list[str]:
    """The machines with this computer's processor.

    Calibrated files in a folder come before built-in machines.
    """
    files = sorted(str(path) for path in folder.glob("*.toml"))
    return [name for name in (*files, *built_in) if is_of(name, here)]


def at_hand(folder: Path | None = None) -> str:
    """The machine file of this computer's processor, or the default one if none describes it.

    A calibrated file in `folder` is preferred to a built-in machine. If `folder` is absent, it is
    the current folder.
    """
    return next(iter(fitting(BUILT_IN, processor(), folder or Path())), DEFAULT)


def said(name: str, fits: bool | None) -> str:
    """The end of a sentence: the machine of the numbers.

    It also says whether the machine describes this computer (`is_of`).
    """
    if fits:
        return f"{name}, which has this computer's processor"
    if fits is None:
        return f"{name}; whether it describes this computer's processor is not known"
    return (
        f"{name}, which has another processor than this computer: pagewalk calibrate writes a file "
        "of this one"
    )
