"""Creates machines, traces and recordings from a command's arguments, and writes its outputs."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pagewalk.commands.flags import PHYSICAL, PROCESS, READING, WARMED_WINDOW
from pagewalk.commands.parser import UsageError
from pagewalk.progress import ProgressLine
from pagewalk.terminal import say

if TYPE_CHECKING:
    from pagewalk import plain
    from pagewalk.formats import Made
    from pagewalk.machine import Machine
    from pagewalk.recording import Recording
    from pagewalk.report.charts import Chart
    from pagewalk.trace import Trace


def settings(options: argparse.Namespace) -> list[str]:
    """The settings of `--set` and `--place`, which are the same for every trace."""
    given: list[str] = list(options.set)
    if vars(options).get("place") is not None:
        given.append(f"os.place={place_rules(options.place)}")
    return given


def machine(name: str, options: argparse.Namespace, trace: "Trace | None" = None) -> "Machine":
    """The machine with this `name`: NAME, or NAME,KEY=VALUE,... with its own settings.

    Its memory has the size and the state that `--aged` and `--memory` request for `trace`, or for a
    live program if `trace` is `None`.
    """
    from pagewalk import memory_share
    from pagewalk.machine import Machine

    given = settings(options)
    if "=" in name and not os.path.exists(name):  # noqa: PTH110
        name, *own = _parts(name)
        given += own
    if options.memory is None and options.aged is None:
        return Machine(name, given)
    if trace is not None:
        about = f"what base uses for {trace.name}"
        share = memory_share.share_of(options.memory)
        if (
            share is not None
            and share < 1
            and "manager" not in Machine(name, given).description["os"]
        ):
            raise UsageError(
                f"--memory {options.memory}: the operating system of {name} never evicts a "
                "page: choose a manager that does, for example with --set os.manager=base"
            )
        with progress(options, about) if share is not None else nullcontext() as told:
            given += memory_share.memory_settings(
                trace, name, set=given, aged=options.aged, memory=options.memory, progress=told
            )
    elif memory_share.share_of(options.memory) is not None:
        raise UsageError(
            f"--memory {options.memory}: a share is of the trace's memory use under "
            "the manager base, which is not known for a live program: write a size such as 64M, or "
            "record the program with `pagewalk record` first"
        )
    else:
        given += memory_share.sized(given, options.memory, options.aged)
    return Machine(name, given)


def _parts(text: str) -> list[str]:
    """The parts of `text` between commas; commas in brackets, braces and quotes do not count."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote or letter in "\"'":
            quote = "" if letter == quote else quote or letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        if letter == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def place_rules(place: str, option: str = "--place ") -> str:
    """The rules that are given to an option, either as text or as the name of a file."""
    from pathlib import Path

    path = Path(place)
    if place.strip() and path.is_dir():
        raise UsageError(
            f"{option}{place} is a folder: give a file of rules, or write rules, as in data=64K"
        )
    if "=" not in place and place.strip() and not path.is_file():
        raise UsageError(
            f"{option}{place}: there is no such file; if a rule is meant, write it as in data=64K"
        )
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else place
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{option}{place}: byte {error.start} is not UTF-8 text: give a file of rules, one per "
            "line, as in data=64K"
        ) from error
    except OSError as error:
        raise UsageError(f"{option}{place} cannot be read: {error.strerror}") from error


def progress(options: argparse.Namespace, doing: str, unit: str = "accesses") -> ProgressLine:
    """A progress line for the work `doing`. With `-q` it shows nothing."""
    return ProgressLine(doing, unit, quiet=options.quiet)


def write_pictures(
    options: argparse.Namespace, charts: "Mapping[str, Chart]", width: int | None = None
) -> None:
    """Writes the requested charts to files, and prints the names unless `-q` is given.

    Args:
        options: The options, with `svg`, `pdf`, `png` and `force`.
        charts: By name.
        width: As for `formats.write`.
    """
    for kind in ("svg", "pdf", "png"):
        path = getattr(options, kind)
        if path is None:
            continue
        from pagewalk.report import pictures

        specifications = {name: chart.to_dict() for name, chart in charts.items()}
        written = pictures.write(specifications, kind, path, options.force, width)
        note(options, [f"written: {', '.join(written)}"])


def write_table(options: argparse.Namespace, made: "Made", width: int | None = None) -> None:
    """Writes the file of `-o` (`formats.write`), and prints the names unless `-q` is given."""
    if options.output is not None:
        from pagewalk.formats import write

        written = write(options.output, made, options.force, width)
        note(options, [f"written: {', '.join(written)}"])


def write_output(path: str, text: str, force: bool) -> None:
    """Writes `text` to a file, or to standard output if the name is `-`."""
    if path == "-":
        sys.stdout.write(text)
    else:
        from pagewalk.output import write_text

        write_text(path, text, force)


def program(options: argparse.Namespace) -> list[str]:
    """The program after `--`.

    Raises:
        UsageError: There is none.
    """
    command: Sequence[Any] | None = options.program
    if not command:
        raise UsageError("no program to run: put it after `--`, as in `-- gzip -9 -k big.tar`")
    return [str(part) for part in command]


def origins_text(options: argparse.Namespace, documents: "Sequence[plain.Document]") -> str:
    """The tables that `--by` requests, for each document. Prints notes if they are incomplete."""
    from pagewalk import origins

    if {"function", "line", "site"} & set(options.by):
        warn([line for document in documents for line in origins.notes(document)])
    parts = []
    for document in documents:
        if len(documents) > 1:
            parts.append(f"On {document['machine']['name']}")
        for key in options.by:
            merge = options.merge and key == "region"
            parts.append(origins.summary(document, key, vars(options).get("top") or 20, merge))
    return "\n\n".join(parts)


def recording(options: argparse.Namespace, command: Sequence[str]) -> "Recording":
    """A recording of `command`. Each field has the value of the option with the same name."""
    from pagewalk.recording import Recording

    given = {name: value for name, value in vars(options).items() if name in Recording.names()}
    # The option `--fetches` is for reading files of other tools; it does not apply here.
    given["fetches"] = not options.no_fetch
    # The accesses that warm up the machine are recorded before the accesses that are counted.
    if options.max_accesses is not None:
        given["max_accesses"] += vars(options).get("warmup", 0)
    return Recording(command, **given)


def trace(options: argparse.Namespace, source: str) -> "Trace":
    """The trace `source`, read in the way that the command's flags request."""
    from pagewalk.trace import Trace

    flags = (*READING.each(), *WARMED_WINDOW.each(), PROCESS, PHYSICAL)
    given = {
        flag.dest: value for flag in flags if (value := vars(options).get(flag.dest)) is not None
    }
    if given.pop("cloudsuite", False):
        if given.get("format") not in (None, "champsim", "cloudsuite"):
            raise UsageError(
                f"--cloudsuite is for ChampSim traces: leave it out with --format {given['format']}"
            )
        given["format"] = "cloudsuite"
    if "columns" in given:
        given["columns"] = dict(given["columns"])
    return Trace(source, **given)


def no_program_as_trace(trace: str) -> None:
    """Raises `UsageError` if `trace` is a program, which must be given after `--`."""
    import shutil

    found = shutil.which(trace)
    if found is None or (os.path.exists(trace) and not _is_program(trace)):  # noqa: PTH110
        return
    raise UsageError(f"{trace} is a program, not a trace: put it after `--`, as in `-- {trace}`")


def _is_program(path: str) -> bool:
    if not os.path.isfile(path):  # noqa: PTH113
        return False
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read(4) in (b"\x7fELF", b"#!/b", b"#!/u")


def note(options: argparse.Namespace, notes: Sequence[str]) -> None:
    """Prints notes to standard error, each once; prints nothing with `-q`."""
    for line in () if options.quiet else dict.fromkeys(notes):
        say(f"pagewalk: note: {line}", sys.stderr)


def warn(warnings: Sequence[str]) -> None:
    """Prints warnings about a trace to standard error, each once."""
    for warning in dict.fromkeys(warnings):
        say(f"pagewalk: warning: {warning}", sys.stderr)
