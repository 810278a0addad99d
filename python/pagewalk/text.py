"""Numbers as text for people: `1.83 G`, `12.3 %`, `0x7f00…`; and tables of aligned text."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagewalk import plain

_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_NUMBER_UNIT = re.compile(r"(\d) (?=(?:%|[kMGT]|[KMGT]iB|B)(?:\W|$))")
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def count(value: float) -> str:
    """A count: exact if it is below ten thousand; otherwise three digits and a decimal prefix."""
    if value == int(value) and abs(value) < 10_000:
        return f"{int(value)}"
    for size, prefix in _DECIMAL:
        if abs(value) >= size:
            return f"{_three_digits(value / size)} {prefix}"
    return _three_digits(value)


def size(value: int) -> str:
    """Bytes, or a difference of them, with a binary prefix."""
    if value < 0:
        return f"-{size(-value)}"
    for unit, prefix in _BINARY:
        if value >= unit:
            whole = value // unit
            return f"{whole if value == whole * unit else _three_digits(value / unit)} {prefix}"
    return f"{value} B"


def bytes_of(name: str) -> int:
    """The bytes of a page size by its name in results: `4K` is 4096."""
    return int(name[:-1]) << 10 * " KMGTPE".index(name[-1]) if name[-1] != "B" else int(name[:-1])


def percent(value: float) -> str:
    """A share in per cent. A share that is too small to be shown is "less than" a bound."""
    if value == 0:
        return "0 %"
    if abs(value) < 0.0001:
        return "<0.01 %"
    return f"{_three_digits(value * 100)} %" if abs(value) < 1 else f"{value * 100:.0f} %"


def ratio(value: float) -> str:
    """A plain ratio, with as many digits as are useful."""
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return "<0.001"
    return _three_digits(value) if abs(value) >= 1 else f"{value:#.2g}"


def span(ends: "plain.Range[float] | plain.Range[int]", show: Callable[[float], str]) -> str:
    """The range from `lo` to `hi`: `0 to 12.3 %`; one number if both are shown alike."""
    low, high = show(ends["lo"]), show(ends["hi"])
    if low == high:
        return high
    unit = high.partition(" ")[2]
    return f"{low.removesuffix(f' {unit}') if unit else low} to {high}"


def address(value: int) -> str:
    """An address, in hexadecimal."""
    return f"{value:#x}"


def plural(number: float, one: str, many: str | None = None) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def width() -> int:
    """The width of text in columns: that of the terminal, or 80 without a terminal."""
    import shutil

    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 160))


def paragraph(text: str, indent: str = "", hang: str = "") -> str:
    """`text` in lines that fit on the terminal.

    Each line begins with `indent`; all except the first continue with `hang`.
    """
    import textwrap

    whole = _NUMBER_UNIT.sub("\\1\0", text)
    lines = textwrap.wrap(
        whole,
        width(),
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    indent: str = "  ",
    keys: int = 1,
    lines_max: int | None = None,
) -> str:
    """Columns aligned under their heads: the first to the left, the others to the right.

    The head is recognised by its indent. If the columns do not fit, their heads are broken into
    several lines, then the first column is shortened, and then the remaining columns follow below.

    Args:
        head: A name per column.
        rows: The cells.
        indent: The text before each row.
        keys: Columns at the left that are repeated in each part below.
        lines_max: No further part is added once all parts together have this number of rows.
    """
    import textwrap

    room = width() - len(indent)
    heads = [[name] for name in head]
    cells = [max([0, *(len(row[at]) for row in rows)]) for at in range(len(head))]

    def widths() -> list[int]:
        return [max([cell, *map(len, lines)]) for cell, lines in zip(cells, heads, strict=True)]

    if _taken(widths()) > room:
        for at, name in enumerate(head[1:], 1):
            longest = max([1, *(len(word) for word in name.split())])
            heads[at] = textwrap.wrap(name, max(cells[at], longest), break_on_hyphens=False) or [""]
    over = _taken(widths()) - room
    if over > 0 and widths()[0] - over >= _FIRST_MIN:
        cells[0] = widths()[0] - over
        heads[0] = [shorten(heads[0][0], cells[0])]
    parts, all_widths = [], widths()
    groups = _groups(all_widths, room, keys)
    if lines_max is not None and rows:
        groups = groups[: max(1, lines_max // len(rows))]
    for columns in groups:
        lines = max(len(heads[at]) for at in columns)
        # Heads are aligned at their bottom, the first one at the left edge.
        stacked = [[""] * (lines - len(heads[at])) + heads[at] for at in columns]
        above = [
            _line([one[line] for one in stacked], all_widths, columns) for line in range(lines)
        ]
        parts += [f"{indent}{line}".rstrip() for line in above[:-1]]
        first, edge = stacked[0][-1], all_widths[columns[0]]
        parts.append(f"{first:{len(indent) + edge}}{above[-1][edge:]}".rstrip())
        for row in rows:
            shown = [shorten(row[at], all_widths[at]) for at in columns]
            parts.append(f"{indent}{_line(shown, all_widths, columns)}".rstrip())
    return "\n".join(parts)


_FIRST_MIN = 14
"""The number of letters that the first column keeps when it is shortened."""


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _groups(widths: Sequence[int], room: int, keys: int) -> list[list[int]]:
    """The columns of each part of a table, the first `keys` of them in all parts."""
    left = list(range(keys))
    groups: list[list[int]] = [[*left]]
    for at in range(keys, len(widths)):
        longer = [*groups[-1], at]
        if _taken([widths[column] for column in longer]) > room and len(groups[-1]) > keys:
            longer = [*left, at]
            groups.append(longer)
        groups[-1] = longer
    return groups


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[int]) -> str:
    return "  ".join(
        cell.ljust(widths[at]) if at == 0 else cell.rjust(widths[at])
        for cell, at in zip(cells, columns, strict=True)
    )


def shorten(text: str, width: int) -> str:
    """At most `width` characters of `text`. If it is longer, its middle is left out."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def command(words: Sequence[str], width: int) -> str:
    """At most `width` characters of a command line, always including the program's name."""
    line = " ".join(words)
    if words and len(line) > width:
        line = " ".join([words[0].rpartition("/")[2], *words[1:]])
    return shorten(line, width)


def _three_digits(value: float) -> str:
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"
