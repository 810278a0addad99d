"""`pagewalk generate`: write a synthetic trace."""

import argparse
from typing import Any


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    commands.add_parser("generate")
