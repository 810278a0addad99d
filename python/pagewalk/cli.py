"""The start of the `pagewalk` command.

It prints the version itself; `commands.entry` does all else.

Importing the parser of the command line takes longer than printing the version. So this module
imports nothing that the version does not need.
"""

import sys

from pagewalk import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Runs the command line and returns its exit status; no traceback reaches the user."""
    given = sys.argv[1:] if arguments is None else arguments
    if list(given) == ["--version"] and sys.stdout is not None:
        try:
            print(f"pagewalk {__version__}", flush=True)
            return 0
        except (OSError, KeyboardInterrupt):
            # The error occurs again below, where the code knows how a command reports errors.
            pass
    from pagewalk.commands import entry

    return entry.main(given)
