r"""Whole systems to record. A system is a Linux that boots, runs one command, and ends.

```
 packages   the distribution's kernel, busybox and firmware, fetched once
    |
 guest      initial file system: busybox, modules, markers, the script that runs in the guest
    |
 kernel     what the recorder is to know of the kernel: its type information and symbols
    |
 machine    QEMU's command line and monitor; snapshots in the cache
    |
 payload    the command with its libraries and folder, as a tar for the guest
    |
 recording  all of it in order: boot, snapshot, payload, snapshot, record, output and status
 alone      in place of all this: a kernel without Linux, from its ELF file to the machine's end
```
"""
