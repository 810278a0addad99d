"""Options: declared once in Python, and passed to the native module as one document.

```
 class Recording(Options):         Recording(["ls"], skip=10)     .fields()
     command: Sequence[str]        .skip -> 10                      |  JSON
     skip: int = 0                                       a Rust structure with these fields
```

A class of options is like a frozen dataclass whose fields after the first are given by name. The
module `dataclasses` is not used: importing it takes longer than importing all parts of Pagewalk
that record.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Any:
        """Tells type checkers what `Options` does."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True)
class Options:
    """Fields with types and defaults; those without a default must be given."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the fields of a class, in their order."""
        return tuple(cls.__annotations__)

    def __init__(self, *first: Any, **given: Any) -> None:
        what, names = type(self).__name__, self.names()
        if len(first) > 1:
            raise TypeError(
                f"{what}: only `{names[0]}` may be given by position; give the others by name"
            )
        given.update(zip(names, first, strict=False))
        for name in given:
            if name not in names:
                raise TypeError(
                    f"{what} has no argument `{name}`; its arguments are {', '.join(names)}"
                )
        for name in names:
            if name not in given and not hasattr(type(self), name):
                raise TypeError(f"{what}: the argument `{name}` is missing")
        vars(self).update(given)

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(
            f"{name} cannot be changed after it was made: make another {type(self).__name__}"
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.fields().items())})"

    def fields(self) -> dict[str, Any]:
        """The values of the fields, by name."""
        return {name: getattr(self, name) for name in self.names()}


def native_path(path: str | os.PathLike[str]) -> dict[str, list[int]]:
    """A path or an argument as an `OsString` of Rust."""
    return {"Unix": list(os.fsencode(path))}
