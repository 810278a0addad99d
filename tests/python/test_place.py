"""`pagewalk place`: programs have the pages that rules ask for, and otherwise run as ever."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from command import run_command
from mapped import THP, alone, compiled, knobs, needs_root, needs_thp, running

from pagewalk import _native
from pagewalk.commands.place import UNMET
from pagewalk.placing import journal, launch, rules
from pagewalk.placing.journal import Change
from pagewalk.placing.pages import LARGE
from pagewalk.placing.system import System

MIB = 1 << 20
SYSTEM = System()
pytestmark = [
    needs_thp,
    pytest.mark.skipif(not _native.may_trace(), reason="ptrace is forbidden here"),
    pytest.mark.skipif(SYSTEM.allowed(LARGE) == "never", reason="the knob forbids large pages"),
]


BARE = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
"""Takes all capabilities from a program that root starts."""
IS_ROOT = os.geteuid() == 0 and shutil.which("setpriv") is not None


KILLS = 40 if "PAGEWALK_TORTURE" in os.environ else 8
"""How often pagewalk is killed."""


MADVISE = pytest.mark.skipif(
    SYSTEM.allowed(LARGE) != "madvise", reason="the knob of large pages is not madvise"
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("place")
    return {"dynamic": compiled(folder), "static": compiled(folder, "-static")}


def placed(
    text: str, command: list[object], folder: Path, *options: str, **more: Any
) -> tuple[dict[str, Any], "subprocess.CompletedProcess[str]"]:
    """What `place --json` says of a program, and how it ended."""
    output = folder / "placed.json"
    output.unlink(missing_ok=True)
    done = run_command(
        ["place", text, "--json", output, *options, "--", *command], cwd=folder, **more
    )
    assert "Traceback" not in done.stderr, done.stderr
    return (json.loads(output.read_text()) if output.exists() else {}), done


@pytest.mark.parametrize("linked", ["dynamic", "static"])
@pytest.mark.parametrize(
    "expected",
    [
        ("mmap=2M", "plain:16", 16),
        ("mmap=2M", "unaligned:6", 4),
        ("mmap=2M", "moved:16", 14),
        ("mmap=2M", "arena:16", 14),
        ("heap=2M", "brk:16", 14),
        ("bss=2M", "bss", 4),
        ("stack=2M", "stack:6", 4),
        ("data=2M", "brk:16", 14),
        ("data=2M", "plain:16", 16),
    ],
)
def test_memory_of_each_kind_becomes_large(
    programs: dict[str, Path], linked: str, expected: tuple[str, str, int], tmp_path: Path
) -> None:
    text, word, least = expected
    command = [programs[linked], word, "exit:3"]
    found, done = placed(text, command, tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith(word.partition(":")[0])
    [rule] = found["rules"]
    assert rule["large_bytes"] >= least * MIB, (rule, done.stderr)
    assert rule["failed"] == 0 and rule["mappings"] >= 1
    # The launcher's counts equal the page sizes of the regions at the end.
    region = max(
        (one for one in found["regions_of"][0]["regions"] if rule["rule"] in one["by"]),
        key=lambda one: one["got"].get("2M", 0),
    )
    assert region["got"]["2M"] <= rule["large_bytes"]


def test_a_heap_gives_back_and_grows_again_with_zeros(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    for program in programs.values():
        _, done = placed("heap=2M", [program, "shrink", "brk:8", "exit:0"], tmp_path)
        assert done.returncode == 0, done.stderr


def test_small_mappings_that_the_kernel_joins_become_large(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    for command in ([programs["dynamic"]], [*BARE, programs["static"]] if IS_ROOT else None):
        if command is not None:
            found, done = placed("mmap=2M", [*command, "small:32", "exit:0"], tmp_path)
            assert done.returncode == 0
            assert found["rules"][0]["large_bytes"] >= 24 * MIB, (found, done.stderr)


@alone
def test_small_mappings_that_fill_up_again_become_large(tmp_path: Path) -> None:
    script = (
        "import mmap, os, re, time\n"
        "def large():\n"
        "    told = open('/proc/self/smaps_rollup').read()\n"
        "    return int(re.search('AnonHugePages: *([0-9]+)', told)[1]) >> 10\n"
        "def filled(mib):\n"
        "    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n"
        "    found = [mmap.mmap(-1, 1 << 20, flags=kind) for _ in range(mib)]\n"
        "    for one in found: one.write(b'1' * (1 << 20))\n"
        "    end = time.monotonic() + 20\n"
        "    while large() < mib // 2 and time.monotonic() < end: time.sleep(0.05)\n"
        "    return found\n"
        "first = filled(48); del first; time.sleep(0.5)\n"
        "second = filled(32); os._exit(0 if large() >= 16 else 3)\n"
    )
    found, done = placed("mmap=2M", [sys.executable, "-c", script], tmp_path)
    assert done.returncode == 0, (found, done.stderr)


def test_children_are_placed_and_end_as_ever(programs: dict[str, Path], tmp_path: Path) -> None:
    script = f"{programs['dynamic']} plain:8 exit:4; echo status $?; "
    script += f"exec {programs['static']} brk:8 exit:5"
    found, done = placed("data=2M", ["sh", "-c", script], tmp_path)
    assert done.returncode == 5 and "status 4" in done.stdout
    assert found["processes"] == 3 and found["rules"][0]["large_bytes"] >= 14 * MIB
    found, done = placed("mmap=2M", [programs["dynamic"], "fork:8", "exit:0"], tmp_path)
    assert done.returncode == 0 and found["rules"][0]["large_bytes"] == 8 * MIB


@needs_root
def test_rules_of_base_pages_take_large_ones_back(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    with knobs({"enabled": "always"}):
        found, _ = placed("mmap=4K", [programs["dynamic"], "plain:8", "exit:0"], tmp_path)
        assert found["rules"][0]["large_bytes"] == 0
        found, _ = placed("heap=4K", [programs["dynamic"], "brk:8", "exit:0"], tmp_path)
        assert found["rules"][0]["large_bytes"] == 0
        if SYSTEM.version() >= (6, 18):
            found, _ = placed(
                "heap=2M", [programs["dynamic"], "plain:8", "brk:8", "exit:0"], tmp_path, "--only"
            )
            regions = found["regions_of"][0]["regions"]
            plain = [one for one in regions if one["backing"] == "anonymous"]
            assert all("2M" not in one["got"] for one in plain), plain
            assert found["rules"][0]["large_bytes"] >= 6 * MIB


def test_a_program_that_forbids_itself_large_pages_is_told(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    command = [programs["dynamic"], "disable", "plain:8", "exit:0"]
    found, done = placed("mmap=2M", command, tmp_path, "--verify")
    assert found["rules"][0]["large_bytes"] == 0
    assert "prctl, 8 MiB: prctl(PR_SET_THP_DISABLE) switched large pages off" in done.stderr


@needs_root
def test_under_never_what_has_no_pages_is_told(programs: dict[str, Path], tmp_path: Path) -> None:
    command = [programs["dynamic"], "plain:8", "exit:0"]
    with knobs({"enabled": "never"}):
        found, done = placed("mmap=2M", command, tmp_path, "--verify")
    # What had filled up when blocks were looked for was collapsed, whatever the knob says.
    if found["rules"][0]["large_bytes"] < 8 * MIB:
        assert "knob, " in done.stderr and f"echo madvise > {THP}/enabled" in done.stderr


def test_a_place_file_of_another_layout_is_met_by_length(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "own.place"
    file.write_text(f"# by hand\nrange 0x4000801000..{0x4000801000 + 24 * MIB:#x} = 2M  # table\n")
    found, done = placed(str(file), [programs["dynamic"], "plain:24", "exit:0"], tmp_path)
    assert found["rules"][0]["by_length"] and found["rules"][0]["large_bytes"] == 24 * MIB
    assert "found by its length" in done.stderr


def test_a_range_is_met_by_its_address_where_the_layout_is_the_same(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    command = [programs["dynamic"], "plain:16", "exit:0"]
    _, done = placed("range 0x1000..0x2000=2M", command, tmp_path)
    place = int(done.stdout.split()[1], 16)
    text = f"range {place:#x}..{place + 4 * MIB:#x}=2M"
    found, done = placed(text, command, tmp_path)
    assert int(done.stdout.split()[1], 16) == place
    assert found["rules"][0]["resident_bytes"] == found["rules"][0]["large_bytes"] == 4 * MIB
    assert not found["rules"][0]["by_length"]


def test_a_rule_for_nothing_is_told_and_can_be_required(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    command = [programs["dynamic"], "plain:8", "exit:0"]
    _, done = placed("lib nosuch.so=2M, mmap=2M", command, tmp_path)
    assert done.returncode == 0
    assert (
        "warning: lib nosuch.so = 2M: no memory was mapped that this rule applies to" in done.stderr
    )
    _, done = placed("lib nosuch.so=2M", command, tmp_path, "--require")
    assert done.returncode == UNMET and "--require: lib nosuch.so = 2M" in done.stderr
    _, done = placed("mmap=2M", command, tmp_path, "--require")
    assert done.returncode == 0
    for words in (["unaligned:2"], ["unaligned:6"], ["against:8"]):
        _, done = placed("mmap=2M", [programs["dynamic"], *words, "exit:0"], tmp_path, "--require")
        assert done.returncode == UNMET, words
    # If the program itself has failed, its own message says so.
    _, done = placed("lib nosuch.so=2M", ["sh", "-c", "exit 9"], tmp_path, "--require")
    assert done.returncode == 9


ALIGNED = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int count, char **words) {
    size_t bytes = (size_t)atoi(words[1]) << 20;
    char *table = aligned_alloc(2 << 20, bytes);
    memset(table, 1, bytes);
    /* Somebody else's 8 KiB, which the kernel joins to the table. */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *beside = mmap(table + bytes, 8192, PROT_READ | PROT_WRITE, flags, -1, 0);
    memset(beside, 1, 8192);
    return count - 2;
}
"""


@MADVISE
def test_what_lies_beside_an_aligned_table_is_not_missing(tmp_path: Path) -> None:
    source = tmp_path / "aligned.c"
    source.write_text(ALIGNED)
    program = tmp_path / "aligned"
    subprocess.run(["cc", "-O1", "-o", program, source], check=True)
    found, done = placed("mmap=2M", [program, "64"], tmp_path, "--require")
    [rule] = found["rules"]
    assert rule["large_bytes"] == 64 * MIB < rule["resident_bytes"], rule
    assert rule["missing_bytes"] == 0 and done.returncode == 0, (rule, done.stderr)
    # The two ends of another table have room for a large page.
    found, done = placed("mmap=2M", [compiled(tmp_path), "unaligned:6", "exit:0"], tmp_path)
    assert found["rules"][0]["missing_bytes"] == 2 * MIB


def test_a_program_ends_as_without_it(programs: dict[str, Path], tmp_path: Path) -> None:
    for command, status in (
        (["sh", "-c", "exit 7"], 7),
        ([programs["dynamic"], "abort"], 128 + signal.SIGABRT),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "trap 'exit 6' USR1; kill -USR1 $$; exit 1"], 6),
        (["sh", "-c", "head -c 100000 /dev/zero | head -c 1 >/dev/null; exit 0"], 0),
    ):
        _, done = placed("data=2M", command, tmp_path)
        assert done.returncode == status, (command, done)
    _, done = placed("data=2M", ["cat"], tmp_path, input="what is read\n")
    assert done.stdout == "what is read\n"


def test_threads_signals_and_a_stopped_program_work(tmp_path: Path) -> None:
    script = """
import mmap, os, signal, subprocess, threading, time
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
def work():
    for _ in range(60):
        part = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        part[0] = part[3 << 20] = 1
        part.close()
threads = [threading.Thread(target=work) for _ in range(4)]
[one.start() for one in threads]
[one.join() for one in threads]
signal.setitimer(signal.ITIMER_REAL, 0)
child = subprocess.Popen(["sleep", "0.05"])
os.kill(child.pid, signal.SIGSTOP)
assert os.waitpid(child.pid, os.WUNTRACED)[1] == 0x137f
time.sleep(0.1)
os.kill(child.pid, signal.SIGCONT)
assert child.wait() == 0
print("ticks", len(ticks) > 0)
"""
    found, done = placed("mmap=2M", [sys.executable, "-c", script], tmp_path)
    assert done.stdout == "ticks True\n", done
    assert found["rules"][0]["mappings"] >= 240


def test_a_stopped_and_killed_launcher_leaves_nothing(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pagewalk", "place", "data=2M", "--"]
    command += [str(programs["dynamic"]), "brk:16", "plain:16", "many:64"]
    for turn in range(KILLS):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        time.sleep(0.1 + 0.06 * (turn * 8 / KILLS))
        process.kill()
        process.communicate(timeout=60)
        deadline = time.monotonic() + 10
        while _in_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert _in_session(process.pid) == []


@needs_root
@pytest.mark.skipif(not (THP / "hugepages-64kB").exists(), reason="no pages of 64K")
def test_knobs_and_pools_are_as_before_after_pagewalk_was_killed(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    before, changed = system_state(), 0
    command = [sys.executable, "-m", "pagewalk", "place", "stack=64K, heap=2M", "--system"]
    command += ["--pool", "2M=4", "--", str(programs["dynamic"]), "brk:4"]
    for turn in range(KILLS):
        # The program waits for input that never arrives.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        if turn % 2:
            # At all moments of its start, and behind that.
            deadline = time.monotonic() + 1.2 * turn / KILLS
        while system_state() == before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.002 * (turn % 8))
        process.kill()
        changed += system_state() != before
        process.communicate(timeout=60)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and (
            _in_session(process.pid) or journal_file().exists() or system_state() != before
        ):
            time.sleep(0.02)
        assert (system_state(), _in_session(process.pid)) == (before, [])
        assert not journal_file().exists()
    assert changed >= KILLS // 4


def journal_file() -> Path:
    return journal.FOLDER / "place.json"


def system_state() -> list[str]:
    files = [
        THP / "enabled",
        *THP.glob("hugepages-*kB/enabled"),
        *Path("/sys/kernel/mm/hugepages").glob("*/nr_hugepages"),
    ]
    return [file.read_text() for file in sorted(files)]


def _in_session(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if folder.name.isdecimal() and int(fields[3]) == session and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def test_a_signal_for_pagewalk_is_the_programs(tmp_path: Path) -> None:
    script = "trap 'echo got; exit 8' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "pagewalk", "place", "data=2M", "--", "sh", "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert output == "got\n" and process.returncode == 8


def test_variables_do_not_reach_children(tmp_path: Path) -> None:
    script = "import os, subprocess; print(os.environ['A'], os.environ['B'], flush=True); "
    script += "subprocess.run(['sh', '-c', 'echo \"${A-unset} $B $C\"'])"
    set_ = [("A", "1", None), ("B", "old:new", "old")]
    for inherit, child in ((False, "unset old 3"), (True, "1 old:new 3")):
        code = (
            "from pagewalk import _native; _native.launch("
            f"{[sys.executable, '-c', script]!r}, [], {set_!r}, inherit={inherit}, only=False, "
            "fixed=False, look=None)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True, env={**os.environ, "B": "old", "C": "3"},
        )  # fmt: skip
        assert done.stdout == f"1 old:new\n{child}\n"


def test_a_caller_may_have_other_children() -> None:
    code = (
        "import subprocess\n"
        "other = subprocess.Popen(['sleep', '60'])\n"
        "from pagewalk.placing import launch\n"
        "print(launch.launch(['sh', '-c', 'sleep 0.1 & exit 3'], [])['status'])\n"
        "other.kill(); print(other.wait())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.stdout == "3\n-9\n", done


def test_without_ptrace_what_can_be_done_is_done_and_the_rest_said(tmp_path: Path) -> None:
    script = "import os; print(os.environ.get('GLIBC_TUNABLES'))"
    command = [sys.executable, "-c", script]
    found, done = placed("heap=2M, stack=2M", command, tmp_path, "--no-ptrace")
    assert done.returncode == 0
    if "glibc" in launch.allocators(sys.executable):
        assert "glibc.malloc.hugetlb=1" in done.stdout
    assert "stack = 2M: needs ptrace" in done.stderr
    assert [rule["rule"] for rule in found["rules"]] == ["stack = 2M", "heap = 2M"] or [
        rule["rule"] for rule in found["rules"]
    ] == ["heap = 2M", "stack = 2M"]


@pytest.mark.parametrize(
    ("inside", "found", "variable"),
    [
        (b"ld-linux-x86-64.so.2", ["glibc"], "GLIBC_TUNABLES"),
        (b"libjemalloc.so.2\0ld-linux", ["jemalloc", "glibc"], "MALLOC_CONF"),
        (b"<jemalloc>: ", ["jemalloc"], "JE_MALLOC_CONF"),
        (b"libmimalloc.so.2", ["mimalloc"], "MIMALLOC_ALLOW_THP"),
        (b"JLI_Launch", ["JVM"], "JDK_JAVA_OPTIONS"),
        (b"libtcmalloc_minimal.so.4", ["tcmalloc"], None),
        (b"\xff Go buildinf:ld-linux", ["Go"], None),
    ],
)
def test_an_allocator_is_known_by_its_own_bytes_or_its_librarys_name(
    inside: bytes, found: list[str], variable: str | None, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(60) + inside + bytes(60))
    assert launch.allocators(str(program)) == found
    wanted = rules.read("heap=2M", SYSTEM)
    set_ = launch.variables(str(program), wanted, {})
    assert variable in [one.name for one in set_] or (variable is None and not set_)
    said = launch.unplaced(wanted, set_, str(program))
    if variable is None:
        assert f"the program's allocator ({found[0]}) has no setting for large pages" in said[0]


def test_where_ptrace_is_forbidden_the_program_runs_and_it_is_said(tmp_path: Path) -> None:
    code = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
# ptrace fails with EPERM, as in a container that forbids it.
steps = [0x20, 0, 0, 0, 0x15, 0, 1, 101, 6, 0, 0, 0x50001, 6, 0, 0, 0x7fff0000]
kept = ctypes.create_string_buffer(struct.pack("<" + "HBBI" * 4, *steps))
program = struct.pack("<H6xQ", 4, ctypes.addressof(kept))
assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "pagewalk", *sys.argv[1:]])
"""
    bare = [sys.executable, "-c", code]
    for words in (["place", "heap=2M, stack=2M"], ["verify"]):
        command = [*bare, *words, "--", "sh", "-c", "exit 6"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 6 and "ptrace is forbidden here" in done.stderr, done
    command = [*bare, "place", "heap=2M, stack=2M", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "stack = 2M: needs ptrace" in done.stderr, done


def test_a_dry_run_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    done = run_command(
        ["place", "heap=2M, text=2M, stack=4K", "--only", "--dry-run", "--", "touch", mark]
    )
    assert done.returncode == 0 and not mark.exists()
    for line in ("PTRACE_O_EXITKILL", "MADV_HUGEPAGE)  # heap = 2M", "MADV_NOHUGEPAGE)  # stack"):
        assert line in done.stdout
    assert "PR_THP_DISABLE_EXCEPT_ADVISED" in done.stdout


def test_a_program_with_a_filter_of_its_own_is_left_alone(tmp_path: Path) -> None:
    script = """
import ctypes, mmap, struct
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
# The filter ends the process if it calls madvise.
steps = [0x20, 0, 0, 0, 0x15, 0, 1, 28, 6, 0, 0, 0, 6, 0, 0, 0x7fff0000]
filter_ = struct.pack("<" + "HBBI" * 4, *steps)
kept = ctypes.create_string_buffer(filter_)
program = struct.pack("<H6xQ", 4, ctypes.addressof(kept))
assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
part = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
part[0] = 1
print("lives")
"""
    found, done = placed("mmap=2M", [sys.executable, "-c", script], tmp_path)
    assert done.returncode == 0 and done.stdout == "lives\n", done
    assert any("filters its own system calls" in note for note in found["notes"])


def test_a_child_that_nobody_may_trace_is_traced_all_the_same(tmp_path: Path) -> None:
    script = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
# clone(CLONE_UNTRACED | SIGCHLD): a child with the filter and without its launcher.
pid = libc.syscall(56, 0x00800000 | 17, 0, 0, 0, 0)
if pid == 0:
    mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    _, done = placed("mmap=2M", [sys.executable, "-c", script], tmp_path)
    assert done.stdout == "5\n", done


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv")
def test_a_setuid_program_is_refused_by_name() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        refuses_by_name(folder)


def refuses_by_name(folder: Path) -> None:
    own = folder / "setuid-id"
    shutil.copy(shutil.which("id") or "/usr/bin/id", own)
    own.chmod(0o4755)
    # The test needs another user who can read the folders that it uses.
    look = [f"--{one}-caps=+dac_read_search" for one in ("inh", "ambient")]
    nobody = ["setpriv", "--reuid=65534", "--clear-groups", *look]
    nobody += [sys.executable, "-m", "pagewalk", "place", "heap=2M", "--"]

    def ended(*command: object) -> "subprocess.CompletedProcess[str]":
        words = [*nobody, *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")

    done = ended(own)
    assert done.returncode == 2 and f"{own}: runs with another user's rights" in done.stderr
    done = ended("sh", "-c", f"{own} || echo refused")
    assert done.stdout == "refused\n" and "was not executed" in done.stderr, done
    assert f"{own} runs with another user's rights" in done.stderr
    # Others run, without rights.
    done = ended("id", "-u")
    assert done.returncode == 0 and done.stdout == "65534\n"


@MADVISE
def test_a_process_that_runs_is_collapsed(programs: dict[str, Path], tmp_path: Path) -> None:
    with running(programs["dynamic"], ["plain:16"], tmp_path) as (pid, _):
        done = run_command(["place", "mmap=2M", "-p", pid, "--dry-run"])
        assert "MADV_COLLAPSE)  # mmap = 2M" in done.stdout
        done = run_command(["place", "mmap=2M", "-p", pid, "--verify"])
        assert done.returncode == 0 and "mmap = 2M: 16 MiB made large" in done.stderr, done
        again = run_command(["place", "mmap=2M", "-p", pid])
        assert "no block of 2M had base pages in it" in again.stderr
    with running(programs["dynamic"], ["against:4"], tmp_path) as (pid, _):
        done = run_command(["place", "mmap=2M", "-p", pid, "--require"])
        assert done.returncode == UNMET
        assert "4 MiB not: this kind of memory can have no large pages" in done.stderr


@MADVISE
@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv")
def test_a_process_is_collapsed_without_rights_by_calls_of_its_own(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*BARE, programs["dynamic"], "plain:8", "thread:1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    for _ in range(2):
        process.stdout.readline()
    done = subprocess.run(
        [*BARE, sys.executable, "-m", "pagewalk", "place", "mmap=2M", "-p", str(process.pid)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "mmap = 2M: 8 MiB made large" in done.stderr, done
    # The program waits for its input, and ends when the input ends.
    process.communicate("", timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["place"], "give the page size of some memory"),
        (["place", "heap=2M"], "give a process with -p PID, or a program after `--`"),
        (["place", "heap=64K", "--", "true"], "a setting of the whole system, not of a program"),
        (["place", "heap=1G", "--", "true"], "give --system as root"),
        (["place", "heap=8M", "--", "true"], "this kernel has no pages of 8M"),
        (["place", "heap=2M", "--pool", "2M=4", "--", "true"], "with --system"),
        (["place", "heap=2M", "--system", "--pool", "2M", "--", "true"], "as in 2M=64"),
        (["place", "site a.c:1=2M", "--", "true"], "known only in recordings"),
        (["place", "heap=4K", "-p", "1"], "can be given only pages of 2M"),
        (["place", "heap=2M", "-p", "999999999"], "there is no process 999999999"),
        (["place", "heap=2M", "--only", "-p", "1"], "--only is for a program after `--`"),
        (["place", "heap=2M", "--", "nosuch-program"], "no such program"),
        (["place", "heap=2M", "--", "/"], "is a directory, not a program"),
        (["place", "region anonymous 7=2M", "--", "true"], "has no name in a running program"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    if "heap=64K" in arguments and 64 << 10 not in SYSTEM.sizes():
        pytest.skip("no pages of 64K")
    if "heap=1G" in arguments and 1 << 30 not in SYSTEM.pools():
        pytest.skip("no pool of 1G")
    done = run_command(arguments, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


class TestJournal:
    """Knobs of the whole system, in a folder that stands for `/`."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        if os.geteuid() != 0:
            pytest.skip("the journal is root's own")
        thp = tmp_path / str(THP).lstrip("/")
        for size in (64, 2048):
            (thp / f"hugepages-{size}kB").mkdir(parents=True)
            (thp / f"hugepages-{size}kB" / "enabled").write_text("always inherit madvise [never]")
        (thp / "enabled").write_text("always [madvise] never")
        return tmp_path

    def values(self, root: Path) -> list[str]:
        system = System(root)
        knobs_ = [system.knob(f"{THP}/hugepages-{size}kB/enabled") for size in (64, 2048)]
        return [knob.value for knob in knobs_ if knob is not None]

    @property
    def changes(self) -> list[Change]:
        return [
            Change(f"{THP}/hugepages-64kB/enabled", "madvise"),
            Change(f"{THP}/hugepages-2048kB/enabled", "inherit"),
        ]

    def test_they_are_put_back_at_the_end(self, root: Path) -> None:
        with journal.changed(self.changes, root / "run", System(root)):
            assert self.values(root) == ["madvise", "inherit"]
            state = (root / "run" / "place.json").stat()
            assert state.st_mode & 0o777 == 0o600
        assert self.values(root) == ["never", "never"]
        assert not (root / "run" / "place.json").exists()

    @pytest.mark.parametrize("turn", range(3))
    def test_they_are_put_back_when_pagewalk_is_killed(self, root: Path, turn: int) -> None:
        code = (
            "import sys, time; from pathlib import Path; from pagewalk.placing import journal\n"
            "from pagewalk.placing.system import System\n"
            f"root = Path({str(root)!r})\n"
            f"changes = [journal.Change(*one) for one in {list(map(tuple, self.changes))!r}]\n"
            "with journal.changed(changes, root / 'run', System(root)):\n"
            "    print('changed', flush=True); time.sleep(60)\n"
        )
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "changed\n"
        assert self.values(root) == ["madvise", "inherit"]
        time.sleep(0.05 * turn)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while (root / "run" / "place.json").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.values(root) == ["never", "never"]
        assert not (root / "run" / "place.json").exists()

    def write(self, root: Path, knobs_: list[list[str]], pid: int = 2**22 + 1) -> Path:
        path = root / "run" / "place.json"
        path.parent.mkdir(mode=0o700)
        path.write_text(json.dumps({"pid": pid, "start": 1, "knobs": knobs_}))
        path.chmod(0o600)
        return path

    def test_the_next_call_restores_what_nobody_did(self, root: Path) -> None:
        knob = f"{THP}/hugepages-64kB/enabled"
        (root / knob.lstrip("/")).write_text("always inherit [madvise] never")
        self.write(root, [[knob, "never", "madvise"]])
        assert journal.restore(root / "run", System(root)) == [f"{knob} = never"]
        assert self.values(root) == ["never", "never"]

    def test_killed_while_it_writes_its_journal_it_leaves_none(self, root: Path) -> None:
        code = (
            "import os; from pathlib import Path; from pagewalk.placing import journal\n"
            "from pagewalk.placing.system import System\n"
            "journal.json.dump = lambda *_: os.kill(os.getpid(), 9)\n"
            f"root = Path({str(root)!r})\n"
            f"changes = [journal.Change(*one) for one in {list(map(tuple, self.changes))!r}]\n"
            "with journal.changed(changes, root / 'run', System(root)):\n"
            "    pass\n"
        )
        done = subprocess.run([sys.executable, "-c", code], check=False)
        assert done.returncode == -signal.SIGKILL
        assert self.values(root) == ["never", "never"]
        assert journal.restore(root / "run", System(root)) == []
        with journal.changed(self.changes, root / "run", System(root)):
            assert self.values(root) != ["never", "never"]
        assert self.values(root) == ["never", "never"]

    def test_a_knob_that_somebody_else_has_changed_is_left(self, root: Path) -> None:
        knob = f"{THP}/hugepages-64kB/enabled"
        (root / knob.lstrip("/")).write_text("[always] inherit madvise never")
        self.write(root, [[knob, "never", "madvise"]])
        assert journal.restore(root / "run", System(root)) == []
        assert self.values(root) == ["always", "never"]

    @pytest.mark.parametrize(
        "knobs_",
        [
            [["/etc/passwd", "always", "never"]],
            [[f"{THP}/hugepages-64kB/../enabled", "always", "never"]],
            [[f"{THP}/hugepages-64kB/enabled", "rm -rf", "never"]],
            [["/proc/sys/kernel/core_pattern", "|sh", "x"]],
            [[f"{THP}/hugepages-64kB/enabled"]],
        ],
    )
    def test_a_journal_may_name_listed_knobs_and_values_alone(
        self, root: Path, knobs_: list[list[str]]
    ) -> None:
        self.write(root, knobs_)
        with pytest.raises(_native.WorkError, match="has never written"):
            journal.restore(root / "run", System(root))

    def test_a_journal_that_is_not_roots_own_is_refused(self, root: Path) -> None:
        path = self.write(root, [])
        path.chmod(0o666)
        with pytest.raises(_native.WorkError, match="root must own this file"):
            journal.restore(root / "run", System(root))
        path.unlink()
        path.symlink_to("/etc/passwd")
        with pytest.raises(_native.WorkError, match="not a journal"):
            journal.restore(root / "run", System(root))

    def test_a_pagewalk_that_still_runs_keeps_others_away(self, root: Path) -> None:
        with journal.changed(self.changes, root / "run", System(root)):
            code = (
                "from pathlib import Path; from pagewalk.placing import journal\n"
                "from pagewalk.placing.system import System\n"
                f"journal.restore(Path({str(root / 'run')!r}), System({str(root)!r}))\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False
            )
            assert "still runs" in done.stderr
        assert self.values(root) == ["never", "never"]


def test_sizes_below_2m_are_one_at_a_time() -> None:
    def plan(text: str) -> list[Change]:
        return journal.plan(rules.read(text, SYSTEM, small=True), {}, SYSTEM)

    if not {16 << 10, 64 << 10} <= set(SYSTEM.sizes()):
        pytest.skip("no such sizes")
    alone = {one.path.split("-")[1].split("/")[0]: one.value for one in plan("heap=64K")}
    assert alone["64kB"] == "madvise" and alone["2048kB"] == "never" and "16kB" not in alone
    assert [one.value for one in plan("heap=64K, mmap=2M")] == ["always"]
    with pytest.raises(_native.Error, match="only one of them"):
        plan("heap=64K, mmap=16K")


@needs_root
@pytest.mark.skipif(not (THP / "hugepages-64kB").exists(), reason="no pages of 64K")
def test_root_gives_smaller_sizes_and_pools_and_puts_all_back(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    state = system_state
    before = state()
    found, done = placed(
        "mmap=64K", [programs["dynamic"], "plain:8", "exit:3"], tmp_path, "--system"
    )
    assert done.returncode == 3 and state() == before
    assert found["rules"][0]["large_bytes"] >= 7 * MIB, (found, done.stderr)
    script = "import os; x = bytearray(b'1' * (16 << 20)); os._exit(0)"
    found, done = placed(
        "heap=2M", [sys.executable, "-c", script], tmp_path, "--system", "--pool", "2M=24"
    )
    assert state() == before
    if done.returncode == 0 and "glibc" in launch.allocators(sys.executable):
        assert found["rules"][0]["large_bytes"] >= 8 * MIB, (found, done.stderr)


def test_a_script_without_an_interpreter_runs_as_shells_run_it(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "got $1"\nexit 4\n')
    script.chmod(0o755)
    for command in (["place", "heap=2M"], ["verify"]):
        done = run_command([*command, "--", script, "it"])
        assert (done.returncode, done.stdout) == (4, "got it\n"), done.stderr
    other = tmp_path / "binary"
    other.write_bytes(b"\xca\xfe\0\0\n")
    other.chmod(0o755)
    done = run_command(["place", "heap=2M", "--", other])
    assert done.returncode != 0 and "pagewalk: error: " in done.stderr


def test_a_rule_that_matches_nothing_is_told_once() -> None:
    done = run_command(["place", "heap=2M, lib none=2M", "--", "true"])
    assert done.stderr.count("lib none = 2M") == 1, done.stderr


def test_one_rule_may_fail_where_others_fall_back(programs: dict[str, Path]) -> None:
    command = ["--", programs["dynamic"], "plain:16"]
    for text, status in (
        ("mmap=2M fail", 0),
        ("mmap=2M, lib none=2M", 0),
        ("mmap=2M, lib none=2M fail", UNMET),
        ("lib none=2M  fail # here", UNMET),
    ):
        done = run_command(["place", text, *command])
        assert done.returncode == status, (text, done.stderr)
        assert ("error: lib none = 2M fail: smaller pages" in done.stderr) == (status == UNMET)
    done = run_command(["place", "mmap=2M sideways", *command])
    assert done.returncode == 2 and "the word `sideways`" in done.stderr


def test_the_word_fail_is_for_one_rule() -> None:
    found = rules.read("heap = 2M fail # a, b = 1 fail\nstack=2M,bss = 2M fail", SYSTEM)
    assert {(one.what, one.line, one.must) for one in found} == {
        ("heap", 1, True),
        ("stack", 2, False),
        ("bss", 2, True),
    }
