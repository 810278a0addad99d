"""How QEMU is made: insertions into its sources, the source that is asked for, what may be linked.

Compiling QEMU is `make qemu`, which no test does.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "qemu"))

import build  # noqa: E402
import insert  # noqa: E402

SOURCE = """\
#include "osdep.h"

static int twice(int a);

static int
twice(int a)
{
    return a + a;
}

int once(int a)
{
    if (a) {
        return a + a;
    }
    return a;
}
"""


def change(place: str, fragment: str, text: str, function: str | None = None) -> insert.Insertion:
    return insert.Insertion("file.c", function, place, fragment, text)


def test_a_call_goes_into_the_function_that_is_named() -> None:
    changed = insert.inserted(
        SOURCE,
        [
            change("before", "return a + a;", "    first();", "twice"),
            change("before", "return a + a;", "    second();", "twice"),
            change("after", "if (a) {", "        third();", "once"),
            change("instead_of", "return a;", "return fourth(a);", "once"),
        ],
    )
    assert changed == SOURCE.replace(
        "{\n    return a + a;", "{\n    first();\n    second();\n    return a + a;"
    ).replace("if (a) {\n", "if (a) {\n        third();\n").replace(
        "return a;\n}", "return fourth(a);\n}"
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (change("before", "a + a;", ""), "file.c: `a + a;` should be there once, and is there 2"),
        (change("before", "return b;", "", "once"), "file.c, function once: `return b;` should"),
        (change("before", "return a;", "", "thrice"), "file.c: there is no function thrice"),
        (change("before", "return a;", "", "twice"), "is there 0 times"),
    ],
)  # fmt: skip
def test_a_place_that_is_not_there_once_is_refused(wrong: insert.Insertion, says: str) -> None:
    with pytest.raises(insert.NotFoundError) as refused:
        insert.inserted(SOURCE, [wrong])
    assert says in str(refused.value)


def test_insertions_equal_those_made_line_by_line() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        lines = [f"line {number}." for number in range(chance.randint(1, 20))]
        changes = []
        model = [[line] for line in lines]
        for number in range(chance.randint(0, 12)):
            at = chance.randrange(len(lines))
            place = chance.choice(["before", "after"])
            changes.append(change(place, f"line {at}.", f"new {number}"))
            where = model[at].index(lines[at])
            # What shares a place keeps its order.
            model[at].insert(where if place == "before" else len(model[at]), f"new {number}")
        wanted = "".join(f"{line}\n" for part in model for line in part)
        assert insert.inserted("".join(f"{line}\n" for line in lines), changes) == wanted


def test_a_tree_is_changed_again_from_what_it_was(tmp_path: Path) -> None:
    tree, pristine = tmp_path / "tree", tmp_path / "pristine"
    tree.mkdir()
    pristine.mkdir()
    file = tree / "file.c"
    file.write_text(SOURCE)
    first = change("before", "return a;", "    first();")
    insert.insert_all(tree, pristine, [first])
    once = file.read_text()
    assert once.count("first();") == 1
    insert.insert_all(tree, pristine, [first])
    assert file.read_text() == once
    with pytest.raises(insert.NotFoundError):
        insert.insert_all(tree, pristine, [first, change("before", "nowhere", "")])
    assert file.read_text() == once
    insert.insert_all(tree, pristine, [])
    assert file.read_text() == SOURCE
    with pytest.raises(insert.NotFoundError, match=r"none\.c"):
        insert.insert_all(tree, pristine, [insert.Insertion("none.c", None, "before", "a", "b")])


def test_tables_are_checked(tmp_path: Path) -> None:
    table = tmp_path / "insertions.toml"
    table.write_text('[[insertion]]\nfile = "a.c"\ninsert = ""\nbefore = "x"\nafter = "y"\n')
    with pytest.raises(ValueError, match=r"table 1 has the keys .*one of `before`"):
        insert.read(table)
    assert insert.read(ROOT / "qemu" / "insertions.toml")


def built(tmp_path: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    """`make qemu` with a cache of its own, in which nothing is built."""
    cache = tmp_path / "cache"
    named = {name: str(value) for name, value in variables.items()}
    surroundings = {**os.environ, "PAGEWALK_QEMU_CACHE": str(cache), **named}
    command = [sys.executable, str(ROOT / "qemu" / "build.py"), "--output", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) <= 2, done.stderr
    assert not (tmp_path / "out").exists()
    assert not list(cache.glob("work-*/tree"))
    return done


def test_a_source_of_another_hash_is_refused(tmp_path: Path) -> None:
    wanted = build.settings()["source"]
    folder = tmp_path / "mine"
    folder.mkdir()
    file = folder / wanted["file"]
    file.write_bytes(b"another version")
    found = hashlib.sha256(b"another version").hexdigest()
    for where, name in ((folder, file), (file, file), (file.as_uri(), file.as_uri())):
        said = built(tmp_path, PAGEWALK_QEMU_SOURCE=where).stderr
        assert f"{name} is not the source of QEMU" in said
        assert f"its SHA-256 is {found}, and should be {wanted['sha256']}" in said


def test_a_source_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    said = built(tmp_path, PAGEWALK_QEMU_SOURCE=tmp_path / "nowhere").stderr
    assert f"there is no {tmp_path / 'nowhere'}" in said
    said = built(tmp_path, PAGEWALK_QEMU_SOURCE=f"file://{tmp_path}/nowhere").stderr
    assert f"cannot fetch file://{tmp_path}/nowhere" in said


def test_a_missing_tool_is_named_with_its_package(tmp_path: Path) -> None:
    # The folder has all installed tools except ninja.
    few = tmp_path / "bin"
    few.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for path in Path(folder).glob("*"):
            if path.name != "ninja" and not (few / path.name).exists():
                (few / path.name).symlink_to(path)
    said = built(tmp_path, PATH=few).stderr
    assert "QEMU's build needs ninja: install ninja-build" in said


@pytest.mark.parametrize(("library", "package"), build.LIBRARIES.items())
def test_a_missing_library_is_named_with_its_package(
    tmp_path: Path, library: str, package: str
) -> None:
    # The compiler finds all libraries except one; for this one it prints only the bare name.
    few, compiler = tmp_path / "bin", shutil.which("cc")
    few.mkdir()
    answer = (
        f'case "$*" in -print-file-name={library}) echo {library};; *) exec {compiler} "$@";; esac'
    )
    (few / "cc").write_text(f"#!/bin/sh\n{answer}\n")
    (few / "cc").chmod(0o755)
    said = built(tmp_path, PATH=f"{few}:{os.environ['PATH']}").stderr
    assert f"QEMU's build links {library}, which is missing: install {package}" in said


def test_what_is_linked_must_have_a_licence_that_fits(tmp_path: Path) -> None:
    about = build.settings()
    map_file = tmp_path / "qemu.map"
    head = "Archive member included to satisfy reference by file (symbol)\n\n"
    known = "/usr/lib/libglib-2.0.a(gutf8.c.o)\n                              a.o (g_utf8)\n"
    map_file.write_text(head + known)
    said = build.audit(about, [map_file], [])
    assert said == "/usr/lib/libglib-2.0.a\tLGPL-2.1-or-later\n"
    map_file.write_text(head + known + "/usr/lib/libssl.a(ssl.o)\n")
    with pytest.raises(SystemExit, match=r"the linker used /usr/lib/libssl\.a"):
        build.audit(about, [map_file], [])
    map_file.write_text(head + known)
    crates = [build.Crate("good", "1.0.0", "MIT OR Apache-2.0", None)]
    assert build.audit(about, [map_file], crates).endswith("crate good 1.0.0\tMIT OR Apache-2.0\n")
    crates.append(build.Crate("bad", "1.0.0", "Apache-2.0", None))
    with pytest.raises(SystemExit, match=r"the crate bad is under `Apache-2\.0`"):
        build.audit(about, [map_file], crates)
