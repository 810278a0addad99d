"""A command and its flags, each declared once.

```
 class Info(Command):                             pagewalk info TRACE --json --force --skip N ...
     name = "info"
     flags = (TRACE, json_of("the counts"), FORCE, WINDOW)     parser, in the order of the help
     def run(self, options): ...                               after what is checked of each flag
```

A flag declares how it is parsed, its help, whether it names a file that is written or read, and the
error if it does not apply. Flags are listed nowhere else. If an output exists already, the command
fails before the work begins. No output can overwrite an input.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from pagewalk.commands.parser import UsageError

Parser = argparse.ArgumentParser | argparse._ArgumentGroup
"""The argparse objects to which flags are added."""


class Flag:
    """A flag, or an argument without a flag.

    Args:
        names: Its names, as for `add_argument`.
        unless: The error if the flag does not apply, without the flag's name, such as `needs --by
            region`.
        how: Further arguments of `add_argument`, such as the help.
    """

    def __init__(self, *names: str, unless: str | None = None, **how: Any) -> None:
        self.names = names
        self.unless = unless
        self.how = how

    @property
    def name(self) -> str:
        """The longest name of the flag, such as `--max-accesses`."""
        return max(self.names, key=len)

    @property
    def dest(self) -> str:
        """The name of the flag's value among the parsed options."""
        return str(self.how.get("dest") or self.name.lstrip("-").replace("-", "_"))

    def add(self, parser: Parser) -> None:
        """Adds the flag to a parser."""
        parser.add_argument(*self.names, **self.how)

    def is_given(self, options: argparse.Namespace) -> bool:
        """Whether the user gave it a value other than the default."""
        return bool(getattr(options, self.dest) != options.parser.get_default(self.dest))

    def each(self) -> "Iterator[Flag]":
        """Yields the flag itself, in the same way as `Flags.each` yields flags."""
        yield self

    def check(self, options: argparse.Namespace) -> None:
        """Raises an error for an invalid value, before the work begins."""


class Input(Flag):
    """A flag that names an input: no output may be the same file."""

    def check(self, options: argparse.Namespace) -> None:
        """Raises an error if an output is this file."""
        given = getattr(options, self.dest)
        for path in given if isinstance(given, list) else [given]:
            for output in _outputs(options):
                if path and _is_same(path, getattr(options, output.dest)):
                    raise UsageError(
                        f"{output.name} {getattr(options, output.dest)}: is also the input; "
                        "choose another name for the output"
                    )


class Output(Flag):
    """A flag that names a file to write; `-` is standard output.

    Args:
        names: As for `Flag`.
        ends: How the name of the file must end.
        pipes: Whether it may be standard output.
        how: As for `Flag`.
    """

    def __init__(
        self, *names: str, ends: str | None = None, pipes: bool = True, **how: Any
    ) -> None:
        super().__init__(*names, **how)
        self.ends = ends
        self.pipes = pipes

    def check(self, options: argparse.Namespace) -> None:
        """Raises an error if the file cannot be written."""
        path = getattr(options, self.dest)
        if path == "-" and options.program is not None:
            raise UsageError(
                f"{self.name} -: standard output belongs to the program; give {self.name} a file"
            )
        if path is not None and path != "-":
            from pagewalk.output import refuse_existing

            refuse_existing(path, options.force)
        if path is not None and self.ends and (path == "-" or not path.endswith(self.ends)):
            raise UsageError(f"{self.name} {path}: the name of the file must end in {self.ends}")
        if path == "-" and not self.pipes:
            raise UsageError(
                f"{self.name} cannot write to standard output: give it the name of a file"
            )


class Table(Output):
    """`-o FILE`, `--output FILE`: `what`, in the format that the end of the file's name selects."""

    def __init__(self, what: str) -> None:
        text = (
            f"write {what} to FILE; the end of its name chooses the format: .parquet, .arrow, .csv "
            "and .json for all counts, .tex (LaTeX) and .md (Markdown) for a table to read, .svg, "
            ".pdf and .png for the charts"
        )
        super().__init__("-o", "--output", pipes=False, metavar="FILE", help=text)

    def check(self, options: argparse.Namespace) -> None:
        """Raises an error for an unknown format."""
        super().check(options)
        path = getattr(options, self.dest)
        if path is not None:
            from pagewalk.formats import end

            end(path)


class Flags:
    """Flags that belong together.

    Args:
        parts: The flags, in the order of the help.
        title: The heading of these flags in the help.
        description: The text below that heading.
        one_of: Whether at most one of them may be given.
        required: With `one_of`, whether one of them must be given.
        hidden: Whether the help shows only the heading.
        check: A function that raises an error if flags conflict, before the work begins.
    """

    def __init__(
        self,
        *parts: "Flag | Flags",
        title: str | None = None,
        description: str | None = None,
        one_of: bool = False,
        required: bool = False,
        hidden: bool = False,
        check: Callable[[argparse.Namespace], None] | None = None,
    ) -> None:
        self.parts = parts
        self.title = title
        self.description = description
        self.one_of = one_of
        self.required = required
        self.hidden = hidden
        self._check = check

    def add(self, parser: Parser) -> None:
        """Adds the flags to a parser."""
        if self.title is not None:
            parser = parser.add_argument_group(self.title, self.description)
        if self.one_of:
            parser = parser.add_mutually_exclusive_group(required=self.required)
        for part in self.parts:
            part.add(parser)
        if self.hidden and isinstance(parser, argparse._ArgumentGroup):
            for action in parser._group_actions:
                action.help = argparse.SUPPRESS

    def each(self) -> Iterator[Flag]:
        """The flags."""
        for part in self.parts:
            yield from part.each()

    def check(self, options: argparse.Namespace) -> None:
        """Raises an error for invalid values, and for flags that conflict."""
        for part in self.parts:
            part.check(options)
        if self._check is not None:
            self._check(options)


def refuse(options: argparse.Namespace, *flags: Flag | Flags) -> None:
    """Raises `UsageError` if one of these flags is given. None of them applies here."""
    for some in flags:
        for flag in some.each():
            if flag.unless is not None and flag.is_given(options):
                raise UsageError(f"{flag.name} {flag.unless}")


class Command:
    """A command: its name, its help, its flags, and what it does."""

    name: ClassVar[str]
    help: ClassVar[str]
    """A line for the list of commands."""
    description: ClassVar[str]
    """The text of the command's own help."""
    epilog: ClassVar[str | None] = None
    """The text below the flags: examples and more."""
    usage: ClassVar[str | None] = None
    """The usage line, for commands whose usage cannot be derived from their flags."""
    flags: ClassVar[Sequence[Flag | Flags]] = ()
    runs_program: ClassVar[bool] = False
    """Whether the command runs the program that is given after `--`."""

    def add(self, commands: "argparse._SubParsersAction[Any]") -> None:
        """Adds its parser."""
        self.fill(self.parser(commands), self.flags)

    def parser(self, commands: "argparse._SubParsersAction[Any]") -> argparse.ArgumentParser:
        """The command's parser, without flags."""
        parser: argparse.ArgumentParser = commands.add_parser(
            self.name,
            help=self.help,
            description=self.description,
            usage=self.usage,
            epilog=self.epilog,
        )
        return parser

    def fill(
        self, parser: argparse.ArgumentParser, flags: Sequence[Flag | Flags], **values: Any
    ) -> None:
        """Adds `flags` to the parser of the command, or of a subcommand.

        The latter also sets `values`.
        """
        for flag in flags:
            flag.add(parser)
        parser.set_defaults(run=self, flags=Flags(*flags), runs_program=self.runs_program, **values)

    def __call__(self, options: argparse.Namespace) -> int:
        """Checks the options, runs the command, and returns the exit status."""
        if options.program is not None and not self.runs_program:
            raise UsageError(
                f"this command runs no program: remove `-- {' '.join(options.program)}`"
            )
        options.flags.check(options)
        return self.run(options)

    def run(self, options: argparse.Namespace) -> int:
        """Does the command's work, and returns the exit status."""
        raise NotImplementedError


def shows_text(options: argparse.Namespace) -> bool:
    """Whether text is printed to standard output.

    Not with `--json -`, and not with `-q` and a file.
    """
    if getattr(options, "json", None) == "-":
        return False
    return not (
        options.quiet and any(getattr(options, output.dest) for output in _outputs(options))
    )


def _outputs(options: argparse.Namespace) -> list[Output]:
    return [flag for flag in options.flags.each() if isinstance(flag, Output)]


def _is_same(input_: str, output: object) -> bool:
    # `Path.is_file` raises an error for texts that cannot be paths, such as a long generator.
    if not isinstance(output, str) or not os.path.isfile(output):  # noqa: PTH113
        return False
    return os.path.isfile(input_) and os.path.samefile(input_, output)  # noqa: PTH113, PTH121
