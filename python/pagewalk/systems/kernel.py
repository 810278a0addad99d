"""Facts about a kernel for the recorder: addresses of functions, offsets of fields.

The kernel provides both: `/proc/kallsyms`, and its type information (BTF) in `/sys/kernel/btf`.
Linux's `include/uapi/linux/btf.h` describes that format.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagewalk._native import Error

_MAGIC = 0xEB9F
_HEAD = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_STRUCT, _UNION = 4, 5
_EXTRA = {1: 4, 3: 12, 14: 4, 17: 4}
"""The number of bytes after a type of the kinds INT, ARRAY, VAR and DECL_TAG."""
_EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
"""The number of bytes for each element of the kinds STRUCT, UNION, ENUM, FUNC_PROTO, DATASEC and
ENUM64.
"""

FUNCTIONS = {"switch_to": "__switch_to", "pgd_free": "pgd_free", "set_comm": "__set_task_comm"}
"""The functions whose entry the recorder records: the recorder's names and the kernel's names."""
FIELDS = {
    "mm": ("task_struct", "mm"),
    "active_mm": ("task_struct", "active_mm"),
    "pid": ("task_struct", "pid"),
    "tgid": ("task_struct", "tgid"),
    "comm": ("task_struct", "comm"),
    "pgd": ("mm_struct", "pgd"),
}
"""The recorder's names of fields, with the structures that contain these fields."""


@dataclass(frozen=True)
class _Known:
    name: str
    kind: int
    members: tuple[tuple[str, int, int], ...]
    """For each member: its name, the number of its type, and its position in bits."""


def facts(types: bytes, symbols: str) -> list[str]:
    """The recorder's arguments with facts about the kernel.

    Raises:
        Error: The kernel has no type information, or lacks a function or a field.
    """
    if not types:
        raise Error(
            "the kernel has no type information (/sys/kernel/btf/vmlinux): build it with "
            "CONFIG_DEBUG_INFO_BTF, or leave --kernel out"
        )
    addresses = dict(functions(symbols))
    missing = [name for name in FUNCTIONS.values() if name not in addresses]
    offsets = _offsets(types)
    missing += [".".join(field) for field in FIELDS.values() if field not in offsets]
    if missing:
        raise Error(
            f"the kernel has no {missing[0]}, which is needed to tell its programs apart: use a "
            "Linux from 5.10 on for x86-64"
        )
    said = {name: addresses[wanted] for name, wanted in FUNCTIONS.items()}
    places = dict(_all(symbols))
    # In versions from 6.2 to 6.14 it is the first member of a common structure.
    current = places.get("current_task", places.get("pcpu_hot", 0))
    said |= {"current": current} if current else {}
    said |= {name: offsets[field] for name, field in FIELDS.items()}
    return [f"{name}={value:#x}" for name, value in said.items()]


def functions(symbols: str) -> Iterator[tuple[str, int]]:
    """The functions in the text of `/proc/kallsyms`, without functions of modules."""
    for line in symbols.splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[1] in "tTwW":
            yield parts[2], int(parts[0], 16)


def _offsets(types: bytes) -> dict[tuple[str, str], int]:
    """The offset in bytes of each of `FIELDS` that exists."""
    known = _parsed(types)
    wanted = {structure for structure, _ in FIELDS.values()}
    found: dict[tuple[str, str], int] = {}

    def look(structure: str, members: tuple[tuple[str, int, int], ...], base: int) -> None:
        for name, kind, bits in members:
            if name:
                found.setdefault((structure, name), (base + bits) // 8)
            elif kind < len(known) and known[kind].kind in (_STRUCT, _UNION):
                look(structure, known[kind].members, base + bits)

    for one in known:
        if one.kind == _STRUCT and one.name in wanted and one.members:
            look(one.name, one.members, 0)
    return found


def _parsed(types: bytes) -> list[_Known]:
    damaged = "the kernel's type information (BTF) is damaged"
    try:
        magic, _, _, length, at, size, strings, strings_size = _HEAD.unpack_from(types)
        if magic != _MAGIC:
            raise Error(damaged)
        texts = types[length + strings : length + strings + strings_size]
        body = types[length + at : length + at + size]

        def text(offset: int) -> str:
            return texts[offset : texts.index(b"\0", offset)].decode(errors="replace")

        known, place = [_Known("", 0, ())], 0
        while place < len(body):
            name, info, _ = _TYPE.unpack_from(body, place)
            place += _TYPE.size
            kind, count = info >> 24 & 31, info & 0xFFFF
            members = []
            if kind in (_STRUCT, _UNION):
                for index in range(count):
                    of, type_, bits = _MEMBER.unpack_from(body, place + index * _MEMBER.size)
                    members.append((text(of), type_, bits & 0xFFFFFF if info >> 31 else bits))
            place += _EXTRA.get(kind, 0) + _EACH.get(kind, 0) * count
            known.append(_Known(text(name), kind, tuple(members)))
    except (struct.error, ValueError) as error:
        raise Error(damaged) from error
    return known


REGIONS = (
    ("direct map", 0xFFFF888000000000, 64 << 40, 3),
    ("vmalloc", 0xFFFFC90000000000, 32 << 40, 3),
    ("page descriptors", 0xFFFFEA0000000000, 1 << 40, 3),
    ("entry area", 0xFFFFFE0000000000, 512 << 30, 7),
    ("modules", 0xFFFFFFFFA0000000, 1520 << 20, 7),
    ("fixed mappings", 0xFFFFFFFFFF000000, 0x600000, 3),
)
"""The name, address, size in bytes and rights of the regions in Linux's half of the addresses.

These are Linux's regions for page tables with four levels, without randomisation
(`Documentation/arch/x86/x86_64/mm.rst`).
"""
_ENTRY = struct.Struct("<IBBHQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TEXT_AT = 0x1000


def image(symbols: str) -> tuple[int, int, int, int]:
    """The kernel's code and data: start address, size in bytes, rights, offset in `symbol_file`."""
    places = dict(_all(symbols))
    start, end = places.get("_text", 0), places.get("_end", 0)
    return start, max(end - start, 0), 7, _TEXT_AT


def _all(symbols: str) -> Iterator[tuple[str, int]]:
    for line in symbols.splitlines():
        parts = line.split()
        if len(parts) == 3:
            yield parts[2], int(parts[0], 16)


def symbol_file(symbols: str, to: Path) -> None:
    """Writes a file with the symbols of the kernel's functions, in place of a vmlinux.

    It has a segment for the kernel's image, without the contents of the image.
    """
    start, size, _, _ = image(symbols)
    found = sorted((place, name) for name, place in functions(symbols) if 0 <= place - start < size)
    names, table = bytearray(b"\0"), bytearray(_ENTRY.size)
    for index, (place, name) in enumerate(found):
        after = next((at for at, _ in found[index + 1 : index + 50] if at > place), place)
        table += _ENTRY.pack(len(names), 0x12, 0, 1, place, after - place)
        names += name.encode() + b"\0"
    identity = hashlib.sha1(symbols.encode()).digest()
    note = struct.pack("<III", 4, len(identity), 3) + b"GNU\0" + identity
    titles = b"\0.text\0.symtab\0.strtab\0.note.gnu.build-id\0.shstrtab\0"
    at = _TEXT_AT + size
    places = {}
    for title, content in (("sym", table), ("str", names), ("note", note), ("titles", titles)):
        places[title] = (at, content)
        at += -(-len(content) // 8) * 8

    def section(
        title: bytes, kind: int, of: str, *, link: int = 0, info: int = 0, each: int = 0
    ) -> bytes:
        offset, content = places[of]
        name = titles.index(title)
        align = 4 if of == "note" else 8
        return _SECTION.pack(name, kind, 0, 0, offset, len(content), link, info, align, each)

    sections = bytes(_SECTION.size)
    sections += _SECTION.pack(titles.index(b".text"), 1, 6, start, _TEXT_AT, size, 0, 0, 16, 0)
    sections += section(b".symtab", 2, "sym", link=3, info=1, each=_ENTRY.size)
    sections += section(b".strtab", 3, "str")
    sections += section(b".note", 7, "note")
    sections += section(b".shstrtab", 3, "titles")
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, start, 64, at, 0, 64, 56, 1, 64, 6, 5)
    head += struct.pack("<IIQQQQQQ", 1, 5, _TEXT_AT, start, start, size, size, 0x1000)
    with to.open("wb") as file:
        file.write(head)
        for offset, content in places.values():
            file.seek(offset)
            file.write(content)
        file.seek(at)
        file.write(sections)
