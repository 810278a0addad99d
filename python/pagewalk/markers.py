"""Markers and page-size requests that a Python program can give while it is recorded.

Each is one system call that Linux does not know. Linux returns an error, so the call has no effect
when the program is not recorded. `include()` is the folder of the header for C programs.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_OPTION = 0x50574C4B


def marker(number: int = 0) -> None:
    """Executes the marker with this number.

    `--from-marker` and `--to-marker` refer to markers by their numbers.
    """
    _prctl()(_OPTION, 1, number, 0, 0)


def page_size(start: int, size: int, page_bytes: int) -> None:
    """Requests pages of `page_bytes` (a power of two) for `size` bytes from the address `start` on.

    Only memory managers with policies for page sizes use the request.
    """
    _prctl()(_OPTION, 2, start, size, page_bytes)


def include() -> "Path":
    """The folder of `pagewalk.h`, for a C compiler's `-I`."""
    from pathlib import Path

    return Path(__file__).parent / "include"


@cache
def _prctl() -> Any:
    """The system call behind markers and page-size requests."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return call
