"""`pagewalk`, run as a user runs it."""

import subprocess
import sys
from collections.abc import Sequence


def run_command(
    arguments: Sequence[object], **options: object
) -> "subprocess.CompletedProcess[str]":
    """Runs `pagewalk` with these arguments and keeps what it prints."""
    return subprocess.run(
        [sys.executable, "-m", "pagewalk", *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,  # type: ignore[call-overload]
    )
