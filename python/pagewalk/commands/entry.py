"""The command line: parses the arguments, runs one subcommand, returns an exit status.

The exit status is 0 if the work was done, 1 if it failed, 2 if the request was wrong, and 128 plus
the signal's number if a signal ended the work (130 for Ctrl-C). `record` and a live `run` return
the exit status of the recorded program.
"""

import argparse
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pagewalk import _native
from pagewalk.commands.line import COMMANDS, parser
from pagewalk.commands.parser import UsageError
from pagewalk.terminal import say


def main(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit status; no traceback reaches the user."""
    if sys.stdout is None:
        sys.stdout = _Closed()
    with _stopped_by_signals():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    options = argparse.Namespace()
    try:
        # The words after `--` are the command line of another program.
        own, program = _split(arguments)
        first = own[:1]
        known = COMMANDS.keys() & first
        # If the line has no command, or an unknown one, the help of all commands is needed.
        options = parser(known if known or first == ["--version"] else COMMANDS).parse_args(own)
        options.program = program
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except _Stopped as stop:
        return _complain(_STOPS[stop.signal], 128 + stop.signal)
    except KeyboardInterrupt:
        return _complain("interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of our output has closed the pipe. This is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except _native.WorkError as error:
        return _complain(_of_place(str(error), options), 1)
    except UsageError as error:
        options.parser.print_usage()
        return _complain(str(error), 2)
    except _native.Error as error:
        return _complain(_of_place(str(error), options), 2)
    except MemoryError:
        return _complain("out of memory", 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", 1)
    except BaseException as error:
        if os.environ.get("PAGEWALK_TRACEBACK"):
            raise
        return _complain(
            f"this is a bug in pagewalk, not in what you asked: {type(error).__name__}: "
            f"{' '.join(str(error).split())} (PAGEWALK_TRACEBACK=1 shows where; please report it)",
            1,
        )


_STOPS = {signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal hung up"}
"""Signals that end the work as Ctrl-C does, each with its message."""


class _Stopped(KeyboardInterrupt):
    """Raised when a signal of `_STOPS` is received."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Makes `_STOPS` raise `_Stopped`, so that partial files are removed and children end.

    A signal that is ignored (by `nohup`, for example) stays ignored. Only the main thread can set
    handlers. In other threads this does nothing.
    """

    def stop(number: int, _: object) -> None:
        raise _Stopped(number)

    changed = []
    try:
        with suppress(ValueError):
            for number in _STOPS:
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, stop)
                    changed.append(number)
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _of_place(complaint: str, options: argparse.Namespace) -> str:
    """A message about a rule, after the name of the rule's file or `--place`."""
    place = vars(options).get("place")
    if not place:
        return complaint
    setting = r"^(?:--set os\.place=.*?: )?os\.place: "
    if os.path.isfile(place):  # noqa: PTH113
        return re.sub(setting + r"(?=line \d)", lambda _: f"{place}: ", complaint, flags=re.S)
    line = "" if "\n" in place else "(?:line 1: )?"
    given = "; ".join(place.splitlines())
    return re.sub(setting + line, lambda _: f"--place {given}: ", complaint, flags=re.S)


class _Closed(io.TextIOBase):
    """Replaces a standard output that was closed before the command started.

    Writing to it raises an error.
    """

    def write(self, _: str) -> int:
        raise OSError(errno.EBADF, "standard output is closed; redirect it to a file")


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    if "--" not in arguments:
        return list(arguments), None
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def _complain(message: str, status: int) -> int:
    if sys.stderr is not None:
        # The number of the system's error is left out, since its text says the same.
        message = re.sub(r" \(os error \d+\)", "", message)
        # Nothing can be written to a terminal that has hung up.
        with suppress(OSError):
            say(f"pagewalk: error: {message}", sys.stderr)
    return status
