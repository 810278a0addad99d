"""`pagewalk record`: run a program and write its trace."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Flags
from pagewalk.commands.flags import (
    FORCE,
    LEAVE_OUT,
    NATIVE,
    PROCESS,
    RECORDING,
    WINDOW,
    json_of,
    output,
)
from pagewalk.commands.kinds import number, size
from pagewalk.commands.parser import UsageError
from pagewalk.output import refuse_existing
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk.recording import Recording
    from pagewalk.systems.alone import KernelRecording
    from pagewalk.systems.recording import SystemRecording


def _check_system(options: argparse.Namespace) -> None:
    """Raises an error for flags of systems without `--system`, and of programs with it."""
    if not options.system:
        for flag in SYSTEM.each():
            if flag.is_given(options):
                raise UsageError(f"{flag.name} needs --system")
        return
    if options.leave_out is not None and not options.check:
        raise UsageError("--leave-out needs --check")
    others = [PROCESS, *RECORDING.each(), *NATIVE.each(), *_PROGRAMS.each()]
    for flag in others:
        if flag.name not in _WITH_SYSTEM and flag.is_given(options):
            raise UsageError(f"{flag.name} does not work with --system: leave it out")


_WITH_SYSTEM = {"--callbacks", "--end-with-window"}
"""The flags of recordings that have the same meaning for a whole system."""

MAX_BYTES = Flag(
    "--max-bytes",
    type=number,
    metavar="N",
    help="end the recording when the trace has N bytes (or some hundred KB more); the "
    "programs run on",
)
CALLS = Flag(
    "--calls",
    action="store_true",
    help="also record system calls on files and system calls that block, with their file or "
    "process, the number of bytes, and the times of their start and end",
)
NO_ARGUMENTS = Flag(
    "--no-arguments",
    dest="arguments",
    action="store_false",
    help="store only the names of the programs in the trace, not their arguments",
)

_PROGRAMS = Flags(
    MAX_BYTES,
    CALLS,
    Flag(
        "--pages",
        action="store_true",
        help="in native recordings (see --engine): also record which page sizes the kernel gives "
        "to the program (4K or 2M; as root all sizes, and frames), at intervals, when its "
        "memory grows, and at its end; `pagewalk info` shows them",
    ),
    NO_ARGUMENTS,
)
"""The flags of recordings of programs that are stored."""

SYSTEM = Flags(
    Flag(
        "--system",
        action="store_true",
        help="run the command in a small Linux and record the whole system: the kernel and all "
        "programs, with their page tables",
    ),
    Flag(
        "--kernel",
        metavar="FILE",
        help="the kernel of the system, a bzImage for x86-64 (default: the distribution's for "
        "clouds); or an ELF file with a PVH note, which is booted alone, with the command as the "
        "words of its command line",
    ),
    Flag(
        "--initrd",
        metavar="FILE",
        help="an initial file system, whose files are added to those of the system",
    ),
    Flag(
        "--memory",
        type=size,
        default=1 << 30,
        metavar="BYTES",
        help="the memory of the system (default: 1G)",
    ),
    Flag(
        "--cpus",
        type=number,
        default=1,
        metavar="N",
        help="the processors of the system (default: 1)",
    ),
    Flag(
        "--with",
        dest="more",
        action="append",
        default=[],
        metavar="PATH",
        help="a file or folder to add to the system, besides the command's libraries and the "
        "current folder; may be repeated",
    ),
    Flag(
        "--boot",
        action="store_true",
        help="record the system from the start of its machine on, not only while the command runs "
        "or from the kernel's first instruction on",
    ),
    Flag(
        "--check",
        action="store_true",
        help="afterwards, report each use of a translation that the kernel should have flushed; "
        "with such a use the exit status is 1",
    ),
    LEAVE_OUT,
    title="whole systems",
    check=_check_system,
)

EPILOG = """\
examples:
  pagewalk record -- ls -l                               writes ls.pwt
  pagewalk record -o ls.pwt --process ls -- sh -c 'ls | wc -l'      only ls, of three processes
  pagewalk record -o sum.pwt --skip 10M --max-accesses 5M -- python3 -c 'sum(range(10**6))'
  pagewalk record --native -o sum.pwt -- python3 -c 'sum(range(10**6))'

The program keeps its own input, output and exit status. The trace contains all processes that it
starts; `pagewalk info` lists them. Linux programs for x86-64, i386, arm, aarch64 and riscv64 can be
recorded.
"""


class Record(Command):
    """Runs a program and writes its trace."""

    name = "record"
    help = "run a program and record its accesses"
    description = (
        "Run a program and record every instruction fetch, load and store of every thread, and "
        "every system call for memory management. Programs for x86-64 are recorded in their own "
        "processes, and others in QEMU."
    )
    usage = "pagewalk record [options] -- COMMAND [ARGUMENT ...]"
    epilog = EPILOG
    runs_program = True
    flags = (
        output("the trace to write (default: PROGRAM.pwt)"),
        PROCESS,
        WINDOW,
        RECORDING,
        _PROGRAMS,
        NATIVE,
        SYSTEM,
        json_of("a summary of the recording"),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Records a program, prints what was recorded, and returns the program's exit status."""
        if options.system:
            return self._system(options)
        command = arguments.program(options)
        output = options.output or f"{os.path.basename(command[0])}.pwt"  # noqa: PTH119
        refuse_existing(output, options.force)
        with arguments.progress(options, "recording") as progress:
            recording = arguments.recording(options, command)
            outcome = recording.record(
                output,
                options.force,
                progress,
                native=options.native,
                native_prepare=options.native_prepare,
            )
        if options.json is not None:
            arguments.write_output(
                options.json, json.dumps(outcome, indent=1) + "\n", options.force
            )
        # Standard output belongs to the program: the report goes to standard error.
        arguments.warn([*outcome["lost"], *warnings(outcome["accesses"], recording)])
        for line in () if options.quiet else describe(outcome):
            say(f"pagewalk: {line}", sys.stderr)
        status: int = outcome["exit_status"]
        return status

    def _system(self, options: argparse.Namespace) -> int:
        """Records a whole system that runs the command, or a kernel alone."""
        recording = _system_recording(options)
        output = options.output or f"{recording.name}.pwt"
        refuse_existing(output, options.force)
        with arguments.progress(options, "recording") as progress:
            outcome = recording.record(output, options.force, progress)
        sys.stdout.buffer.write(outcome.pop("stdout"))
        sys.stdout.buffer.flush()
        sys.stderr.buffer.write(outcome.pop("stderr"))
        sys.stderr.buffer.flush()
        if options.check:
            outcome["flushes"] = self._checked(options, output)
        if options.json is not None:
            arguments.write_output(
                options.json, json.dumps(outcome, indent=1) + "\n", options.force
            )
        found = ["no access was recorded"] if outcome["accesses"] == 0 else []
        arguments.warn([*outcome["lost"], *found])
        for line in () if options.quiet else describe(outcome):
            say(f"pagewalk: {line}", sys.stderr)
        if options.check:
            from pagewalk.flushes import lines

            say("\n".join(lines(outcome["flushes"])), sys.stderr)
            if outcome["flushes"]["uses"]:
                return 1
        status: int = outcome["exit_status"]
        return status

    def _checked(self, options: argparse.Namespace, output: str) -> dict[str, Any]:
        """The flushes that are missing in a recording."""
        from pagewalk.flushes import check
        from pagewalk.trace import Trace

        with arguments.progress(options, "checking") as progress:
            return check(Trace(output), options.leave_out, progress)


def _system_recording(options: argparse.Namespace) -> "SystemRecording | KernelRecording":
    """The system, or the kernel, that the flags describe."""
    from pagewalk.systems.alone import KernelRecording, is_elf
    from pagewalk.systems.recording import SystemRecording

    kept = ("initrd", "memory", "cpus", "boot", "skip", "max_accesses", "ends", "callbacks")
    common: dict[str, Any] = {name: getattr(options, name) for name in kept}
    common["fetches"] = not options.no_fetch
    if options.kernel is None or not is_elf(options.kernel):
        command = arguments.program(options)
        return SystemRecording(command, kernel=options.kernel, more=options.more, **common)
    if options.more:
        raise UsageError(f"--with: {options.kernel} is booted alone: leave --with out")
    words = [str(word) for word in options.program or ()]
    return KernelRecording(Path(options.kernel), words, **common)


def warnings(accesses: int, recording: "Recording") -> list[str]:
    """Warnings about a recording that may not contain what the user wanted."""
    found = []
    if accesses == 0 and recording.skip:
        found.append(
            f"no access was recorded: the programs made fewer than the {recording.skip} accesses "
            "that --skip leaves out"
        )
    elif accesses == 0:
        found.append("no access was recorded")
    if not recording.follow and _is_script(recording.command[0]):
        found.append(
            f"{recording.name} is a script: with --no-follow its interpreter alone is recorded, "
            "and not the programs that it executes"
        )
    return found


def _is_script(command: str) -> bool:
    import shutil

    program = shutil.which(command)
    if program is None:
        return False
    with open(program, "rb") as file:  # noqa: PTH123
        return file.read(2) == b"#!"


def describe(outcome: dict[str, Any]) -> list[str]:
    """One line about the trace, one about its processes if there are several, then the notes."""
    from pagewalk import text

    accesses, size, processes = outcome["accesses"], outcome["bytes"], outcome["processes"]
    each = f", {size / accesses:.2f} B per access" if accesses else ""
    lines = [
        f"{outcome['path']}: {text.plural(accesses, 'access', 'accesses')} in "
        f"{text.size(size)}{each}"
    ]
    if len(processes) > 1:
        largest = max(processes, key=lambda process: process["accesses"])
        lines.append(
            f"{text.plural(len(processes), 'process', 'processes')}, the largest {largest['name']} "
            f"({largest['pid']}) with {text.percent(largest['accesses'] / max(accesses, 1))} of "
            "the accesses"
        )
    lines += [f"note: {note}" for note in outcome["notes"]]
    run = outcome.get("native")
    if run is not None:
        from pagewalk import natively
        from pagewalk.report import values

        # A later run reports the milliseconds of translation. If it will not be able to, the reason
        # is known now.
        shown = natively.told(None, run, run["part"])
        if run["part"] is None and run["exit_status"] == run["recorded_status"]:
            shown["no_ms"] = None
        lines += values.native_lines(shown)
    return lines
