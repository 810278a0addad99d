"""Knobs of the running kernel: a test changes them, and they are written back however it ends.

```
 test --starts--> watcher, in a session of its own
   |                 |  waits until the test's end of a pipe is closed: by the test, or by its death
   +-- writes knobs  |
   +-- ends ---------+-- writes back what the knobs were, removes the journal
```

What the knobs were lies in a journal until it is written back. Should the watcher be killed as
well, the next test begins by writing back what the journal has. The watcher holds a lock, which
keeps a second test away.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

THP = Path("/sys/kernel/mm/transparent_hugepage")
JOURNAL = Path("/run/pagewalk-kernel-knobs.json")
ALL = (
    THP / "enabled",
    THP / "defrag",
    THP / "use_zero_page",
    THP / "shmem_enabled",
    *sorted(THP.glob("hugepages-*kB/enabled")),
    THP / "khugepaged/scan_sleep_millisecs",
    # The kernel raises it where large pages are enabled.
    Path("/proc/sys/vm/min_free_kbytes"),
)
"""What may be changed, in the order in which it is written back."""


class RefusedError(Exception):
    """The knobs cannot be changed: the message says why, and what to do."""


def value_of(path: Path) -> str:
    """What a knob is set to: of several words the one in brackets."""
    text = path.read_text().strip()
    chosen = [word for word in text.split() if word.startswith("[")]
    return chosen[0].strip("[]") if chosen else text


def write_back(journal: Path) -> bool:
    """Writes back what the journal has, and removes it; whether every knob could be written."""
    if not journal.exists():
        return True
    is_whole = True
    for path, value in json.loads(journal.read_text()).items():
        try:
            Path(path).write_text(value)
        except OSError as error:
            is_whole = False
            print(f"{path} was {value} and cannot be written: {error}", file=sys.stderr)
    journal.unlink()
    return is_whole


@contextmanager
def kept(journal: Path = JOURNAL, knobs: Sequence[Path] = ALL) -> Iterator[None]:
    """Knobs may be changed inside. They are written back at its end, or when the process ends."""
    if not os.access(knobs[0], os.W_OK):
        raise RefusedError(
            f"{knobs[0]} cannot be written: this needs root, and a kernel with large pages"
        )
    lock = os.open(journal.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise RefusedError(f"another test changes the knobs: {journal} is its journal") from None
    # A journal that nobody has locked is of a test that was killed together with its watcher.
    write_back(journal)
    unfinished = journal.with_suffix(".new")
    unfinished.write_text(
        json.dumps({str(path): value_of(path) for path in knobs if path.exists()})
    )
    unfinished.rename(journal)
    watcher = subprocess.Popen(
        [sys.executable, __file__, journal],
        stdin=subprocess.PIPE, pass_fds=[lock], start_new_session=True,
    )  # fmt: skip
    os.close(lock)
    try:
        yield
    finally:
        # Its standard input is a pipe, as asked for above.
        watcher.communicate()
    if watcher.returncode != 0:
        raise RefusedError("a knob of the kernel is not as it was: see above")


def run(main: Callable[[], int]) -> int:
    """A test's exit status; SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return main()
    except RefusedError as why:
        print(why, file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return 1


def watch(journal: Path) -> int:
    """Writes the journal back when standard input ends."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.stdin.buffer.read()
    return 0 if write_back(journal) else 1


if __name__ == "__main__":
    sys.exit(watch(Path(sys.argv[1])))
