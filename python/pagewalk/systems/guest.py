"""The guest's initial file system: busybox, modules for its disk, markers and a script.

```
 /pw/init     mounts, loads modules, waits for random numbers, pauses for a snapshot
              loads virtio_blk, unpacks the payload, pauses for a snapshot
 /pw/run      of the payload: begins the recording, runs the command, ends it, writes its output
```

A marker is a long NOP that the recorder in QEMU recognises. The programs of the markers execute
only this NOP.
"""

import lzma
import re
from pathlib import Path

from pagewalk._native import Error
from pagewalk.systems.packages import Packages

BEGIN, END, PAUSE = 1, 2, 3
"""The numbers of the markers. The recorder contains them too (`crates/recorder/src/machine.rs`)."""

INIT = """\
#!/pw/busybox sh
/pw/busybox mkdir -p /proc /sys /dev /tmp /root /etc /pw/bin /pw/out
/pw/busybox --install -s /pw/bin
export PATH=/pw/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mount -t tmpfs tmpfs /tmp
for module in $(cat /pw/modules/first); do insmod /pw/modules/$module; done
how=restored
for word in $(cat /proc/cmdline); do
    case $word in pagewalk=*) how=${word#pagewalk=} ;; esac
done
disk() {
    for module in $(cat /pw/modules/last); do insmod /pw/modules/$module; done
}
if [ $how = facts ]; then
    disk
    cp /proc/kallsyms /pw/out/symbols
    cp /sys/kernel/btf/vmlinux /pw/out/types 2>/dev/null
    tar cf /dev/vdb -C /pw/out . && sync
    poweroff -f
fi
# Without a source of random numbers, Linux makes its own when a program first asks for them. That
# takes 500 million instructions, which would be in the recording.
[ $how = boot ] || head -c 1 /dev/random >/dev/null
[ $how = boot ] || /pw/pause
disk
tar xf /dev/vda -C /
[ $how = boot ] || /pw/pause
. /pw/run
"""


def marker_bytes(number: int) -> bytes:
    """A marker's instruction: nop [rax + rax + 0x505700NN]."""
    return bytes([0x0F, 0x1F, 0x84, 0x00, number, 0x00, 0x57, 0x50])


def marker(number: int) -> bytes:
    """A program for Linux that executes a marker and ends."""
    code = marker_bytes(number)
    code += bytes([0xB8, 60, 0, 0, 0, 0x31, 0xFF, 0x0F, 0x05])  # exit(0)
    base, start = 0x400000, 64 + 56

    def number_of(value: int, size: int) -> bytes:
        return value.to_bytes(size, "little")

    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += number_of(2, 2) + number_of(62, 2) + number_of(1, 4) + number_of(base + start, 8)
    head += number_of(64, 8) + bytes(8) + bytes(4) + number_of(64, 2) + number_of(56, 2)
    head += number_of(1, 2) + bytes(6)
    segment = number_of(1, 4) + number_of(5, 4) + bytes(8) + 2 * number_of(base, 8)
    segment += 2 * number_of(start + len(code), 8) + number_of(4096, 8)
    return head + segment + code


def initial(packages: Packages) -> bytes:
    """The initial file system as an archive in cpio's format `newc`.

    Raises:
        Error: A module that the disk needs is missing or compressed in an unknown way.
    """
    files: dict[str, tuple[int, bytes]] = {
        "dev": (0o040755, b""),
        "dev/console": (0o020600, b""),
        "pw": (0o040755, b""),
        "pw/modules": (0o040755, b""),
        "pw/busybox": (0o100755, packages.busybox.read_bytes()),
        "pw/init": (0o100755, INIT.encode()),
        "pw/begin": (0o100755, marker(BEGIN)),
        "pw/end": (0o100755, marker(END)),
        "pw/pause": (0o100755, marker(PAUSE)),
    }
    modules = _modules(packages.modules)
    for name, content in modules.items():
        files[f"pw/modules/{name}"] = (0o100644, content)
    # After a snapshot is restored, the disk may be another one. So its driver is loaded only then.
    last = [name for name in modules if name == "virtio_blk.ko"]
    first = [name for name in modules if name not in last]
    files["pw/modules/first"] = (0o100644, "\n".join(first).encode())
    files["pw/modules/last"] = (0o100644, "\n".join(last).encode())
    return _archive(files)


def _modules(folder: Path | None) -> dict[str, bytes]:
    """The modules for a virtio disk, each after the modules that it needs.

    Empty if all are built into the kernel.
    """
    if folder is None:
        return {}
    found = {path.name.split(".")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name not in found or f"{name}.ko" in ordered:
            return
        content = _content(found[name])
        needs = re.search(rb"depends=([^\0]*)\0", content)
        for needed in (needs[1].decode() if needs else "").split(","):
            add(needed.replace("-", "_"))
        ordered[f"{name}.ko"] = content

    for name in ("virtio_pci", "virtio_blk"):
        add(name)
    return ordered


def _content(path: Path) -> bytes:
    if path.suffix == ".ko":
        return path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    raise Error(f"{path} is compressed in an unknown way: decompress the kernel's modules")


def _archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    written = bytearray()
    for inode, (name, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        device = (5, 1) if mode & 0o170000 == 0o020000 else (0, 0)
        terminated = name.encode() + b"\0"
        numbers = [inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(terminated), 0]
        written += b"070701" + b"".join(b"%08X" % number for number in numbers) + terminated
        written += b"\0" * (-len(written) % 4) + content
        written += b"\0" * (-len(written) % 4)
    return bytes(written)
