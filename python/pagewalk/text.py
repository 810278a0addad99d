"""Numbers as people read them: `1.83 G`, `12.3 %`, `0x7f00…`; and tables of aligned text."""

from collections.abc import Callable, Mapping, Sequence

_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def count(value: float) -> str:
    """A count: exact below ten thousand, else three digits and a decimal prefix."""
    if value == int(value) and abs(value) < 10_000:
        return f"{int(value)}"
    for size, prefix in _DECIMAL:
        if abs(value) >= size:
            return f"{_three_digits(value / size)} {prefix}"
    return _three_digits(value)


def size(value: int) -> str:
    """Bytes with a binary prefix."""
    for unit, prefix in _BINARY:
        if value >= unit:
            whole = value // unit
            return f"{whole if value == whole * unit else _three_digits(value / unit)} {prefix}"
    return f"{value} B"


def percent(value: float) -> str:
    """A share of one, as per cent; shares too small to show say so."""
    if value == 0:
        return "0 %"
    if abs(value) < 0.0001:
        return "<0.01 %"
    return f"{_three_digits(value * 100)} %" if abs(value) < 1 else f"{value * 100:.0f} %"


def ratio(value: float) -> str:
    """A plain ratio, with as many digits as say something."""
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return "<0.001"
    return _three_digits(value) if abs(value) >= 1 else f"{value:#.2g}"


def span(ends: Mapping[str, float], show: Callable[[float], str]) -> str:
    """The range from `lo` to `hi`: `0 to 12.3 %`; one number where its ends look alike."""
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


def table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Columns aligned under their heads: the first to the left, the others to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        (
            indent
            + "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
        ).rstrip()
        for line in lines
    )


def shorten(text: str, width: int) -> str:
    """At most `width` characters of `text`, the middle left out."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _three_digits(value: float) -> str:
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"
