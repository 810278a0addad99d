"""`pagewalk record --system`: what goes into a guest, and a recording of one.

A recording needs the QEMU that `make qemu-system` builds, and packages that apt fetches; without
them its tests are skipped.
"""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from pagewalk import Error
from pagewalk.systems import guest, kernel, machine, payload
from pagewalk.systems.recording import SystemRecording

FULL = "PAGEWALK_TORTURE" in os.environ
SEED = int(os.environ.get("PAGEWALK_TORTURE_SEED", "66"))


def types(structures: dict[str, list[tuple[str, int, int]]]) -> bytes:
    """Type information as Linux has it: structures with names, types and bits of fields."""
    texts, body = bytearray(b"\0"), bytearray()

    def text(name: str) -> int:
        if not name:
            return 0
        texts.extend(name.encode() + b"\0")
        return len(texts) - len(name) - 1

    for name, members in structures.items():
        body += struct.pack("<III", text(name), 4 << 24 | len(members), 0)
        for field, kind, bits in members:
            body += struct.pack("<III", text(field), kind, bits)
    head = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(texts))
    return head + bytes(body) + bytes(texts)


TASK = [("", 2, 64), ("mm", 0, 128), ("active_mm", 0, 192), ("pid", 0, 256), ("tgid", 0, 288)]
KERNEL = types({"task_struct": TASK, "": [("comm", 0, 8)], "mm_struct": [("pgd", 0, 576)]})
SYMBOLS = """\
ffffffff81000000 T __switch_to
ffffffff81000040 t pgd_free
ffffffff81000080 T __set_task_comm
ffffffff82000000 D pgd_free_lock
ffffffffc0000000 t __switch_to	[a_module]
"""


def test_fields_and_functions_of_a_kernel() -> None:
    assert kernel.facts(KERNEL, SYMBOLS) == [
        "switch_to=0xffffffff81000000",
        "pgd_free=0xffffffff81000040",
        "set_comm=0xffffffff81000080",
        "mm=0x10",
        "active_mm=0x18",
        "pid=0x20",
        "tgid=0x24",
        # This member is in a structure without a name, one byte after its beginning.
        "comm=0x9",
        "pgd=0x48",
    ]


def test_a_kernel_that_does_not_tell_its_types_is_refused() -> None:
    with pytest.raises(Error, match="CONFIG_DEBUG_INFO_BTF"):
        kernel.facts(b"", SYMBOLS)
    with pytest.raises(Error, match="has no pgd_free"):
        kernel.facts(KERNEL, SYMBOLS.replace("pgd_free", "pgd_lost"))
    with pytest.raises(Error, match=r"has no mm_struct\.pgd"):
        kernel.facts(types({"task_struct": TASK, "": [("comm", 0, 8)]}), SYMBOLS)


def test_damaged_types_are_an_error() -> None:
    made = random.Random(66)
    for _ in range(2000):
        damaged = bytearray(KERNEL)
        for _ in range(made.randrange(1, 8)):
            damaged[made.randrange(len(damaged))] = made.randrange(256)
        try:
            kernel.facts(bytes(damaged[: made.randrange(len(damaged) + 1)]), SYMBOLS)
        except Error as error:
            assert "\n" not in str(error)


def test_the_programs_of_markers_run(tmp_path: Path) -> None:
    for number in (guest.BEGIN, guest.END, guest.PAUSE):
        program = tmp_path / str(number)
        program.write_bytes(guest.marker(number))
        program.chmod(0o755)
        assert subprocess.run([program], check=False).returncode == 0


def test_a_payload_has_what_the_command_needs(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "data").write_text("data")
    (folder / "link").symlink_to("data")
    script = folder / "script"
    script.write_text("#!/usr/bin/env sh\necho hello\n")
    script.chmod(0o755)
    more = tmp_path / "more"
    more.write_text("more")
    monkeypatch.chdir(folder)
    for name in ("one", "two"):
        payload.pack(["./script", "a b"], b"input", [str(more)], tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as tar:
        names = set(tar.getnames())
        run = tar.extractfile("pw/run")
        assert run is not None and f"{script} 'a b' </pw/stdin" in run.read().decode()
        link = tar.getmember(str(folder / "link").lstrip("/"))
        assert link.issym() and link.linkname == "data"
        assert all(member.uid == 0 for member in tar.getmembers())
    shell = shutil.which("sh")
    for path in (folder / "data", more, "/usr/bin/env", shell):
        assert str(path).lstrip("/") in names
    assert any("libc.so" in name for name in names)


def test_what_a_payload_cannot_have_is_one_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Error, match="no such program"):
        payload.pack(["no-such-program"], b"", [], tmp_path / "payload")
    with pytest.raises(Error, match="--with nowhere"):
        payload.pack(["sh"], b"", ["nowhere"], tmp_path / "payload")
    monkeypatch.setattr(payload, "MOST_BYTES", 1000)
    (tmp_path / "large").write_bytes(bytes(2000))
    with pytest.raises(Error, match="smaller folder"):
        payload.pack(["sh"], b"", [], tmp_path / "payload")


def test_flags_that_do_not_go_together(pagewalk, tmp_path: Path) -> None:
    for flags, told in (
        (["--cpus", "2"], "--cpus needs --system"),
        (["--with", "x"], "--with needs --system"),
        (["--system", "--process", "ls"], "--process does not work with --system"),
        (["--system", "--calls"], "--calls does not work with --system"),
        (["--system", "--native"], "--native does not work with --system"),
        (["--system", "--pages"], "--pages does not work with --system"),
        (["--system", "--no-arguments"], "--no-arguments does not work with --system"),
        (["--system", "--memory", "1M"], "--memory"),
        (["--system", "--cpus", "99"], "--cpus 99"),
    ):
        done = pagewalk("record", *flags, "-o", tmp_path / "t.pwt", "--", "ls")
        assert done.returncode == 2 and told in done.stderr, done.stderr
        assert done.stderr.splitlines()[-1].startswith("pagewalk: error: ")


def test_snapshots_that_were_not_used_for_long_are_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(9):
        path = machine.snapshot(str(number))
        path.write_bytes(b"")
        os.utime(path, (number, number))
    kept = {path.name for path in machine.snapshots().iterdir()}
    assert "8" in kept and "0" not in kept and len(kept) <= machine.KEPT + 1


@pytest.fixture(scope="module")
def built() -> None:
    """Skips a test where the QEMU for whole systems is not built."""
    try:
        machine.qemu()
    except Error as error:
        pytest.skip(str(error))


def test_a_command_in_a_system(built, pagewalk, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "data").write_text("of a file\n")
    command = ["sh", "-c", "cat; cat data; echo wrong >&2; exit 3"]
    traces = [tmp_path / "one.pwt", tmp_path / "two.pwt"]
    outcomes = []
    for trace in traces:
        told = trace.with_suffix(".json")
        done = pagewalk(
            "record", "--system", "-o", trace, "--json", told, "--", *command,
            cwd=folder, input="of standard input\n",
        )  # fmt: skip
        assert done.returncode == 3, done.stderr
        assert done.stdout == "of standard input\nof a file\n"
        assert done.stderr.startswith("wrong\n")
        outcomes.append(json.loads(told.read_text()))
    # One processor counts its instructions.
    assert outcomes[0]["digest"] == outcomes[1]["digest"]
    names = {process["name"] for process in outcomes[0]["processes"]}
    assert {"sh", "cat"} <= names
    info = json.loads(pagewalk("info", traces[0], "--json").stdout)
    assert info["events"]["translation"] > 100
    assert info["events"]["task"] > 1


def test_a_system_ends_with_its_window(built, pagewalk, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    window = ["--skip", "100k", "--max-accesses", "200k", "--no-fetch", "--end-with-window"]
    command = ["sh", "-c", "echo begun; while :; do :; done"]
    done = pagewalk("record", "--system", *window, "-o", trace, "--", *command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    accesses = json.loads(pagewalk("info", trace, "--json").stdout)["accesses"]
    assert sum(accesses.values()) == 200_000 and accesses["fetch"] == 0


CHECKED = {
    # The command runs programs and uses files and pipes; then it uses large pages and all other
    # features of page tables.
    "boot": (True, 1, ["true"]),
    "one processor": (False, 1, ["{pages}", "3", "{seed}", "/tmp/pages"]),
    "two processors": (
        False,
        2,
        ["sh", "-c", "{pages} 3 {seed} /tmp/one & {pages} 3 {seed} /tmp/two; wait"],
    ),
}


@pytest.mark.skipif(not FULL, reason="`make torture` runs it")
@pytest.mark.parametrize("name", CHECKED)
def test_translations_equal_those_of_qemus_tlb(built, name: str, tmp_path, monkeypatch) -> None:
    boot, cpus, command = CHECKED[name]
    pages = tmp_path / "pages"
    source = Path(__file__).parent / "pages.c"
    subprocess.run(["gcc", "-O2", "-static", "-o", pages, source], check=True)
    monkeypatch.chdir(tmp_path)
    line = [word.format(pages=pages, seed=SEED) for word in command]
    recording = SystemRecording(line, boot=boot, cpus=cpus, check=True)
    outcome = recording.record(tmp_path / "t.pwt")
    assert outcome["exit_status"] == 0, outcome["stdout"] + outcome["stderr"]
    print("\n".join(outcome["notes"]))
    [told] = [note for note in outcome["notes"] if "compared with QEMU's TLB" in note]
    checked, differ = (int(word) for word in re.findall(r"\d+", told))
    assert checked > 10_000_000 and differ == 0
