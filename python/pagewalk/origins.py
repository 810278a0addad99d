"""Where misses come from: by region, allocation site, function, line, thread or page size.

The results have one row per combination of code, region, site, thread and page size. The misses by
one of these properties are sums over these rows, so they always add up to all misses of a run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from pagewalk import text
from pagewalk._native import Error
from pagewalk.names import KEYS

if TYPE_CHECKING:
    from pagewalk import plain

UNKNOWN = "not known"
"""The name for code and threads that the trace does not record."""


class Origin(NamedTuple):
    """Lookups that missed every TLB and come from one place."""

    name: str
    misses: int
    cold_misses: int
    """Misses of this origin that were first touches of a page."""
    share: float
    """Share of this origin in all misses of the run."""
    mostly: str
    """For code: the region or the site to whose data most of its misses belong. For data and other
    keys: the function that causes most of the misses.
    """
    mostly_share: float
    """The share of the misses that belong to `mostly`."""


Row = tuple[int | None, int, int | None, int | None, int, int, int]
"""Code, region, site, thread, size of the page in bytes, misses, and how many of them are first
touches.
"""


def by(data: "plain.Document", key: str, merge: bool = False) -> list[Origin]:
    """The misses of a results document by `key`, one of `KEYS`, most misses first.

    Args:
        data: The results document.
        key: The kind of origin.
        merge: Whether adjacent anonymous mappings are one region.

    Raises:
        Error: There is no such key, or the document has no origins (documents of sweeps have none).
    """
    named, other = _names(data, key, merge), _names(data, _other(key), merge)
    misses: Counter[str] = Counter()
    cold: Counter[str] = Counter()
    others: dict[str, Counter[str]] = {}
    for row in rows(data):
        name = named(row)
        misses[name] += row[5]
        cold[name] += row[6]
        others.setdefault(name, Counter())[other(row)] += row[5]
    total = max(1, sum(misses.values()))
    found = []
    for name, count in misses.items():
        mostly, most = others[name].most_common(1)[0]
        found.append(Origin(name, count, cold[name], count / total, mostly, most / max(1, count)))
    return sorted(found, key=lambda origin: (-origin.misses, origin.name))


def folded(data: "plain.Document", key: str = "function") -> list[str]:
    """The misses as folded stacks, as flame graphs take them: `outer;inner;... misses`.

    The call stack of a miss is not recorded. Its folded stack consists of the program or library,
    the function, functions that were inlined into it, the line if `key` is `line`, and the region
    or site. If `key` is `site`, it consists of the calls that led to the allocation, outermost
    first.

    Args:
        data: The results document.
        key: `function`, `line` or `site`.

    Raises:
        Error: There are no stacks by `key`, or the document has no origins.
    """
    lines = []
    for stack, misses in sorted(stacks(data, key).items()):
        # The format separates frames by semicolons, and stacks by ends of lines.
        frames = (" ".join(frame.split()).replace(";", ":") for frame in stack)
        lines.append(f"{';'.join(frames)} {misses}")
    return lines


def stacks(data: "plain.Document", key: str = "function") -> Counter[tuple[str, ...]]:
    """The misses by stack, outermost frame first, as `folded` writes them.

    Raises:
        Error: There are no stacks by `key`, or the document has no origins.
    """
    if key not in ("function", "line", "site"):
        raise Error(f"there are no folded stacks by {key}: choose function, line or site")
    named = _names(data, "site")
    found: Counter[tuple[str, ...]] = Counter()
    for row in rows(data):
        found[tuple(_frames(data, row, key, named(row)))] += row[5]
    return found


def code(data: "plain.Document", row: Row) -> tuple[str, str, str, int]:
    """Program or library, source file, innermost function and line of a row.

    A file that is not known is `???`, and its line 0. Code without symbols is named after its
    object file, because profilers merge functions whose file and name are equal.
    """
    if row[0] is None:
        return (UNKNOWN, "???", UNKNOWN, 0)
    place = _origins(data)["code"][row[0]]
    object_ = place["object"] or "code of no file"
    function = (_functions(place) or [f"{_base(object_)} (no symbols)"])[-1]
    names = [" ".join(name.split()) for name in (object_, place["file"] or "???", function)]
    return (names[0], names[1], names[2], place["line"] or 0)


def _frames(data: "plain.Document", row: Row, key: str, leaf: str) -> list[str]:
    if key == "site":
        if row[2] is None:
            return [leaf]
        return [_frame(place) for place in reversed(_origins(data)["sites"][row[2]]["stack"])]
    if row[0] is None:
        return [UNKNOWN, leaf]
    place = _origins(data)["code"][row[0]]
    frames = [_base(place["object"] or "code of no file"), *_functions(place)]
    if key == "line" and place["line"] is not None:
        frames.append(_at(place))
    return [*frames, leaf]


def _functions(place: "plain.CodePlace") -> list[str]:
    return [name for name in (place["function"], *place["inlined"]) if name]


def finding(data: "plain.Document") -> str:
    """A sentence: the code that causes most of the misses, and the data that it accesses."""
    functions, places = by(data, "function"), by(data, "site")
    if not functions or not places:
        return "No access misses every TLB."
    code, place = functions[0], places[0]
    found = (
        f"Most misses of every TLB are made by {code.name}, {text.percent(code.share)} of all, "
        f"mostly on {code.mostly}"
    )
    if place.name != code.mostly:
        found += f"; most misses on data are on {place.name}, {text.percent(place.share)}"
    return f"{found}."


def summary(data: "plain.Document", key: str, top: int, merge: bool = False) -> str:
    """The misses by `key` as a table for a terminal: the first `top` rows."""
    found = by(data, key, merge)
    rows = [
        (
            text.shorten(origin.name, 34),
            text.count(origin.misses),
            text.percent(origin.share),
            text.count(origin.cold_misses),
            text.shorten(origin.mostly, 23),
        )
        for origin in found[:top]
    ]
    if not rows:
        return f"Misses by {key}: none"
    head = (
        f"Misses by {key}",
        "misses",
        "share of misses",
        "first touches",
        f"mostly {_mostly(key)}",
    )
    more = found[top:]
    tail = ""
    if more:
        left = text.count(sum(origin.misses for origin in more))
        tail = f"\n  … and {text.plural(len(more), 'row')} more with {left} misses"
    return text.table(head, rows) + tail


def comparison(
    names: Sequence[str],
    documents: "Sequence[plain.Document]",
    key: str,
    top: int,
    merge: bool = False,
) -> str:
    """The misses of two results by `key` side by side, the biggest changes first."""
    ours, theirs = ({one.name: one.misses for one in by(data, key, merge)} for data in documents)
    changes = {name: theirs.get(name, 0) - ours.get(name, 0) for name in {**ours, **theirs}}
    order = sorted(changes, key=lambda name: (-abs(changes[name]), name))
    rows = [
        (
            text.shorten(name, 44),
            text.count(ours.get(name, 0)),
            text.count(theirs.get(name, 0)),
            f"{'+' if changes[name] > 0 else ''}{text.count(changes[name])}",
        )
        for name in order[:top]
    ]
    return text.table((f"Misses by {key}", *names, "change"), rows)


def notes(data: "plain.Document") -> list[str]:
    """Notes on the origins: why some code has no name, and other limits."""
    origins = _origins(data)
    found = list(origins["notes"])
    trace = data["trace"]
    if not trace["fetches"]:
        found.append("the trace has no fetches, so it is not known which code misses")
    elif trace["filter"] != "none":
        found.append("fetches were filtered out, so it is not known which code misses")
    return found


def _origins(data: "plain.Document") -> "plain.MissOrigins":
    found = data.get("origins")
    if found is None:
        raise Error(
            "these results do not record where misses come from: they are of a sweep or of an "
            "older version; make them with `pagewalk run --json FILE`"
        )
    return found


def rows(data: "plain.Document") -> list[Row]:
    """The rows of a document's origins.

    Raises:
        Error: The document has no origins (documents of sweeps have none).
    """
    return [cast("Row", tuple(row)) for row in _origins(data)["misses"]]


def _other(key: str) -> str:
    return "site" if key in ("function", "line") else "function"


def _mostly(key: str) -> str:
    return "on" if key in ("function", "line") else "by"


def _names(data: "plain.Document", key: str, merge: bool = False) -> Callable[[Row], str]:
    """A function that returns the name of a row for this `key`."""
    origins = _origins(data)
    if key == "region":
        regions = _region_names(data["regions"], merge)
        return lambda row: regions[row[1]]
    if key == "site":
        regions = _region_names(data["regions"], merge)
        return lambda row: regions[row[1]] if row[2] is None else origins["sites"][row[2]]["name"]
    if key in ("function", "line"):
        program = _program(data)
        shown = _function if key == "function" else _line
        places = [shown(place, program) for place in origins["code"]]
        return lambda row: UNKNOWN if row[0] is None else places[row[0]]
    if key == "thread":
        return lambda row: UNKNOWN if row[3] is None else f"thread {row[3]}"
    if key == "page-size":
        return lambda row: f"pages of {text.size(row[4])}"
    raise Error(f"misses are not counted by {key}: choose one of {', '.join(KEYS)}")


def region_name(region: "plain.RegionCounts") -> str:
    """A region's name, with a mark if no event of the trace maps the region."""
    return f"{region['name']} (inferred)" if region["inferred"] else str(region["name"])


def _region_names(regions: "Sequence[plain.RegionCounts]", merge: bool) -> list[str]:
    names = [region_name(region) for region in regions]
    if not merge:
        return names
    joined = names.copy()
    for at in range(1, len(regions)):
        before, region = regions[at - 1], regions[at]
        adjoins = before["start"] + before["bytes"] == region["start"]
        if adjoins and all(_is_anonymous(one) for one in (before, region)):
            first = joined[at - 1].partition(" to ")[0]
            whole = f"{first} to {names[at]}"
            joined[:at] = [whole if name == joined[at - 1] else name for name in joined[:at]]
            joined[at] = whole
    return joined


def _is_anonymous(region: "plain.RegionCounts") -> bool:
    return region.get("site") is not None or region["name"].startswith("anonymous ")


def _program(data: "plain.Document") -> str | None:
    """The path of the program itself. Functions in it are shown without the file name."""
    objects = Counter[str]()
    for place in _origins(data)["code"]:
        if place["object"] and ".so" not in _base(place["object"]):
            objects[place["object"]] += 1
    return objects.most_common(1)[0][0] if objects else None


def _function(place: "plain.CodePlace", program: str | None) -> str:
    if place["object"] is None:
        return f"code of no file at {text.address(place['offset'] & ~0xFFF)}"
    name = place["function"]
    if name is None:
        return f"{_base(place['object'])} (no symbols)"
    return str(name) if place["object"] == program else f"{name} ({_base(place['object'])})"


def _line(place: "plain.CodePlace", program: str | None) -> str:
    if place["line"] is None:
        return _function(place, program)
    function = (_functions(place) or ["?"])[-1]
    return f"{_at(place)} {function}"


def _frame(place: "plain.CodePlace") -> str:
    functions = _functions(place)
    if place["line"] is not None:
        return f"{(functions or ['?'])[-1]} ({_at(place)})"
    name = functions[-1] if functions else text.address(place["offset"])
    return f"{name} ({_base(place['object'] or 'code of no file')})"


def _at(place: "plain.CodePlace") -> str:
    """The source file and the line of a place in code, if they are known."""
    return f"{_base(place['file'] or '')}:{place['line']}"


def _base(path: str) -> str:
    return path.rpartition("/")[2]
