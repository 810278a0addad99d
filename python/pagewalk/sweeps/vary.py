"""The keys that vary in a sweep, each with its values."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from pagewalk._native import Error

VALUES_MAX = 100_000

_RANGE = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")
_POWERS = re.compile(r"2\^(\d+)\.\.2\^(\d+)")


def values(text: str) -> list[str]:
    """The values that `text` names, separated by commas.

    `1..64` stands for the whole numbers from 1 to 64, `1..64:3` for every third of these from 1 on,
    and `2^0..2^10` for the powers of two from 1 to 1024. Anything else is a value as for `--set`.

    Raises:
        Error: There is no value, or a range is empty or too long.
    """
    found: list[str] = []
    for part in text.split(","):
        found += _values_of(part.strip())
    return list(dict.fromkeys(found))


def combinations(vary: Mapping[str, "str | Iterable[object]"]) -> list[dict[str, str]]:
    """Every combination of the values of all keys. The last key varies fastest.

    Raises:
        Error: There are no values for a key, or too many combinations.
    """
    choices: dict[str, Sequence[str]] = {}
    for key, given in vary.items():
        choices[key] = values(given) if isinstance(given, str) else [_text(one) for one in given]
        if not choices[key]:
            raise Error(f"{key}: no values: give one or more")
    count = 1
    for key, several in choices.items():
        count *= len(several)
        if count > VALUES_MAX:
            raise Error(f"{key}: more than {VALUES_MAX} designs: vary fewer keys at a time")
    return [
        dict(zip(choices, several, strict=True)) for several in itertools.product(*choices.values())
    ]


def _values_of(part: str) -> list[str]:
    if not part:
        raise Error("an empty value: write KEY=VALUE,VALUE,... or a range such as 1..64")
    if powers := _POWERS.fullmatch(part):
        first, last = (int(power) for power in powers.groups())
        found = [str(1 << power) for power in range(first, min(last, 63) + 1)]
    elif numbers := _RANGE.fullmatch(part):
        first, last, step = (int(number or 1) for number in numbers.groups())
        if step == 0:
            raise Error(f"{part}: the step is 0: give 1 or more")
        if last - first > VALUES_MAX * step:
            raise Error(f"{part}: more than {VALUES_MAX} values: give a shorter range")
        found = [str(number) for number in range(first, last + 1, step)]
    else:
        return [part]
    if not found:
        raise Error(f"{part}: the range is empty, as its end is below its start")
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
