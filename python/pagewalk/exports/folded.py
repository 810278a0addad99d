"""Folded stacks: a line per stack, `outer;inner;... misses`."""

from typing import TYPE_CHECKING

from pagewalk import origins

if TYPE_CHECKING:
    from pagewalk import plain


def made(data: "plain.Document", by: str) -> bytes:
    """The stacks as lines."""
    return "".join(f"{line}\n" for line in origins.folded(data, by)).encode()
