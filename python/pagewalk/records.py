"""Records: objects whose attributes are the fields of a plain document, with types.

```
 {"tlbs": [{"name": "l1d", "misses": 7}]}   .tlbs["l1d"].misses   -> 7
```

A field's type is its annotation. If the document lacks a field, its value is `None` if its type
permits that, and an empty list if it is a list.
"""

import types
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints, overload

R = TypeVar("R")


class Record:
    """An object of a document."""

    def __init__(self, data: Any, of: tuple[Any, ...] = ()) -> None:
        self.data: Any = data
        self._of = of

    def __getattr__(self, name: str) -> Any:
        kind = None if name.startswith("_") else _fields(type(self)).get(name)
        if kind is None:
            raise AttributeError(
                f"no field `{name}`; the fields are {', '.join(_fields(type(self)))}"
            )
        kind = self._of[0] if isinstance(kind, TypeVar) and self._of else kind
        # A field whose name is a keyword of Python has an underscore after its name here.
        key = name.removesuffix("_")
        if key in self.data:
            return _wrapped(self.data[key], kind)
        return _wrapped([], kind) if get_origin(kind) in (list, Named) else None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_fields(type(self))]

    def __repr__(self) -> str:
        plain = {k: v for k, v in self.data.items() if not isinstance(v, dict | list)}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in plain.items())})"


class Named(Sequence[R], Generic[R]):
    """A sequence of records. A record is found by its index or by its `name`."""

    def __init__(self, records: Sequence[R]) -> None:
        self._records = list(records)

    @overload
    def __getitem__(self, at: int | str) -> R: ...
    @overload
    def __getitem__(self, at: slice) -> "Named[R]": ...
    def __getitem__(self, at: int | str | slice) -> "R | Named[R]":
        if isinstance(at, slice):
            return Named(self._records[at])
        if isinstance(at, int):
            return self._records[at]
        for record, name in zip(self._records, self.keys(), strict=True):
            if name == at:
                return record
        raise KeyError(f"no record `{at}`; the names are {', '.join(self.keys())}")

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[R]:
        return iter(self._records)

    def __repr__(self) -> str:
        return repr(self._records)

    def keys(self) -> list[str]:
        """The names."""
        return [str(record.data["name"]) for record in self._records if isinstance(record, Record)]

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()


_KNOWN: dict[str, dict[str, Any]] = {}
"""The fields of each class of records, by the name of the class. They are kept because finding
types takes time.
"""


def _fields(record: type[Record]) -> dict[str, Any]:
    name = record.__qualname__
    if name not in _KNOWN:
        hints = get_type_hints(record)
        _KNOWN[name] = {key: kind for key, kind in hints.items() if not key.startswith("_")}
    return _KNOWN[name]


def _wrapped(value: Any, kind: Any) -> Any:
    """`value` converted to its type: records, or lists and dictionaries of records."""
    origin, inner = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin in (types.UnionType, Union):
        return _wrapped(value, next(one for one in inner if one is not type(None)))
    if origin is list:
        return [_wrapped(one, inner[0]) for one in value]
    if origin is Named:
        return Named([_wrapped(one, inner[0]) for one in value])
    if origin is dict:
        return {key: _wrapped(one, inner[1]) for key, one in value.items()}
    record = origin or kind
    if isinstance(record, type) and issubclass(record, Record):
        return record(value, inner)
    return value
