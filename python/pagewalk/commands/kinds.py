"""The kinds of values of flags, as functions for argparse."""

import argparse
import re

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?:([kKMGTP])(i?)B?)?")
COUNT_END = 1 << 64
"""Counts must be smaller than this number."""
_POWER = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def number(text: str) -> int:
    """A count: `50M` is fifty million, `134.3M` 134300000, `1Ki` 1024."""
    found = _NUMBER.fullmatch(text.replace("_", ""))
    if not found:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a count: write a number, such as 20, 50M or 1.5G"
        )
    digits, prefix, binary = found.groups()
    base = 1024 if binary else 1000
    power: int = _POWER[prefix] if prefix else 0
    from decimal import Decimal

    value = Decimal(digits) * base**power
    if value != int(value):
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number")
    if value >= COUNT_END:
        raise argparse.ArgumentTypeError(
            f"`{text}` is too large: write a number below 2^64, such as 1G"
        )
    return int(value)


def positive(text: str) -> int:
    """A count of 1 or more."""
    found = number(text)
    if found == 0:
        raise argparse.ArgumentTypeError("must be 1 or more, not 0")
    return found


SAMPLE_MIN = 1000
"""The fewest accesses of a window of a sample."""


def sample(text: str) -> tuple[int, int]:
    """Windows and their period in accesses, `1M/100M`."""
    window, slash, period = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(
            f"`{text}`: write WINDOW/PERIOD, two numbers of accesses, as in 1M/100M"
        )
    found = number(window), number(period)
    if found[0] < SAMPLE_MIN or found[1] < 2 * found[0]:
        raise argparse.ArgumentTypeError(
            f"`{text}`: give a window of at least {SAMPLE_MIN} accesses, and a period that is at "
            "least twice as long, as in 1M/100M"
        )
    return found


def size(text_: str) -> int:
    """Bytes: `256M` is 256 MiB."""
    from pagewalk import text

    try:
        found = int(text_) if text_.isdecimal() else text.bytes_of(text_)
    except (ValueError, IndexError):
        found = -1
    if found < 0:
        raise argparse.ArgumentTypeError(
            f"`{text_}` is not a size: write bytes with a unit, as in 256M"
        )
    return found


def shares(text: str) -> tuple[float, float]:
    """Two shares of memory, as in `0.5,0.1`: the free share and the wired share."""
    free, comma, wired = text.partition(",")
    try:
        found = float(free), float(wired)
    except ValueError:
        found = (-1.0, -1.0)
    if not comma or min(found) < 0 or sum(found) > 1:
        raise argparse.ArgumentTypeError(
            f"`{text}`: write the free and the wired share of memory, as in 0.5,0.1; their sum is "
            "at most 1"
        )
    return found


def column(text: str) -> tuple[str, str]:
    """`addr=NAME`: a column of Pagewalk, and its name in the table."""
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise argparse.ArgumentTypeError(
            f"`{text}`: write a column of Pagewalk and its name in the table, as in addr=vaddr"
        )
    return ours, theirs


def names(text: str) -> list[str]:
    """Names separated by commas, each once."""
    found = [part for part in text.split(",") if part]
    if not found:
        raise argparse.ArgumentTypeError(
            f"`{text}` contains no name: write one or more, separated by commas"
        )
    return list(dict.fromkeys(found))


def counts(text: str) -> list[int]:
    """Counts separated by commas, each once."""
    return list(dict.fromkeys(number(part) for part in names(text)))
