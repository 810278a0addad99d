"""Rounds in which commands take turns, so that a busy machine is as busy for all of them."""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Commands = Mapping[str, list[str]]


def parser(description: str, rounds: int) -> argparse.ArgumentParser:
    """The flags of a measurement, with the default of its rounds."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--rounds", type=int, default=rounds)
    found.add_argument("--only", action="append", help="a program; again for another one")
    found.add_argument("--json", type=Path, help="write the seconds of each round there")
    return found


def medians(
    options: argparse.Namespace,
    fronts: Commands,
    commands: Commands,
    seconds_of: Callable[[list[str]], float],
) -> dict[str, dict[str, float]]:
    """The median seconds of each chosen program in each way of running it.

    Args:
        options: The parsed flags of `parser`. With `--json` the file is written.
        fronts: What is put in front of a command, by how it runs.
        commands: The programs, by name.
        seconds_of: Runs a command and returns its time.
    """
    chosen = {name: commands[name] for name in options.only or commands}
    seconds: dict[str, dict[str, list[float]]] = {
        name: {way: [] for way in fronts} for name in chosen
    }
    for _ in range(options.rounds):
        for name, command in chosen.items():
            for way, front in fronts.items():
                seconds[name][way].append(seconds_of([*front, *command]))
    if options.json:
        options.json.write_text(json.dumps(seconds, indent=1) + "\n")
    print(f"{options.rounds} rounds; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return {
        name: {way: statistics.median(took) for way, took in row.items()}
        for name, row in seconds.items()
    }


def heading(title: str, names: list[str]) -> None:
    """Prints the head of a table with a column for each program."""
    print(f"| {title} |", " | ".join(names), "|")
    print("|---" * (1 + len(names)) + "|")


def row(title: str, cells: list[str]) -> None:
    """Prints a row of the table."""
    print(f"| {title} |", " | ".join(cells), "|")
