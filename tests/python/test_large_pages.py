"""What is to be written for large pages: by what stands behind a region, and as code that runs."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pagewalk import large_pages
from pagewalk.large_pages import C_CODE, CPP_CODE, container_of, why_none, written

KNOBS = Path(large_pages.KNOBS)
SIZE = "2M"


def region(backing: str | None, **more: Any) -> dict[str, Any]:
    return {"name": "anonymous 1", "bytes": 64 << 20, "rights": "rw-", "backing": backing, **more}


def frame(function: str | None, file: str | None = None, line: int | None = None) -> dict[str, Any]:
    return {"object": "/bin/own", "offset": 16, "function": function, "file": file, "line": line}


def site(stack: list[dict[str, Any]], own: int | None) -> dict[str, Any]:
    return {"name": "own", "stack": stack, "own": own, "allocations": 2, "bytes": 5 << 20}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"backing": "anonymous"}, "before it is touched: madvise(p, 67108864, MADV_HUGEPAGE)"),
        ({"backing": None}, "before it is touched: madvise(p, 67108864, MADV_HUGEPAGE)"),
        (
            {"backing": "anonymous", "populated": "when-mapped"},
            "after the mmap of 67108864 bytes, madvise(p, 67108864, MADV_COLLAPSE)",
        ),
        (
            {"backing": "anonymous", "populated": "when-locked"},
            "between the mmap of 67108864 bytes and its mlock, madvise(p, 67108864, MADV_HUGEPAGE)",
        ),
        (
            {"backing": "shared-memory"},
            "once the mapping of 67108864 bytes is filled, madvise(p, 67108864, MADV_COLLAPSE)",
        ),
        ({"backing": "shared-memory"}, "unless /sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        ({"backing": "shared-memory"}, "MAP_HUGETLB takes pages of a pool"),
        ({"backing": "shared-memory", "name": "table (rw-)"}, "mounted with huge=advise"),
        ({"backing": "shared-memory", "name": "memfd:a (deleted) (rw-)"}, "shmem_enabled"),
        ({"backing": "heap"}, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
        ({"backing": "bss"}, "start of main: madvise(p, 67108864, MADV_HUGEPAGE)"),
        ({"backing": "stack"}, "write to the lowest byte that the stack will have, then madvise"),
        ({"backing": "thread-stack"}, "pthread_getattr_np"),
        (
            {"backing": "private-file", "name": "app (r-x)", "rights": "r-x"},
            "linking app: -Wl,-z,max-page-size=2097152; start of main: madvise(p, 67108864, "
            "MADV_COLLAPSE) (Linux 6.1), which takes a kernel with CONFIG_READ_ONLY_THP_FOR_FS",
        ),
        (
            {"backing": "private-file", "name": "table.bin (r--)", "rights": "r--"},
            "mmap table.bin where its place and the address are multiples of 2097152 (if it is a "
            "program or a library, link it with -Wl,-z,max-page-size=2097152), then madvise(p, "
            "67108864, MADV_COLLAPSE) (Linux 6.1), while nobody has the file open for writing",
        ),
    ],
)
def test_each_kind_of_memory_has_what_works_there(more: dict[str, Any], words: str) -> None:
    one = region(**more)
    assert why_none(one) is None
    assert words in written(one, SIZE, None).line


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"backing": "hugetlb"}, "has large pages already"),
        ({"backing": "shared-file"}, "Linux gives large pages to no shared mapping"),
        ({"backing": "private-file", "rights": "rw-"}, "to no private, writable mapping of a file"),
        ({"backing": "private-of-shared"}, "to no private mapping of shared memory"),
    ],
)
def test_what_nothing_makes_large_has_the_reason(more: dict[str, Any], words: str) -> None:
    assert words in (why_none(region(**more)) or "")


def test_a_mapping_that_the_program_asked_for_is_no_block_of_an_allocator() -> None:
    calls = site([frame("make", "make.c", 7)], 0)
    mapped = written(region("shared-memory", mapped_by_site=True), SIZE, calls)
    assert mapped.line.startswith("make.c:7: once the mapping") and mapped.code is None
    block = written(region("anonymous", mapped_by_site=False), SIZE, calls)
    assert block.line == (
        "make.c:7: p = aligned_alloc(2097152, 4194304), then madvise(p, 4194304, MADV_HUGEPAGE)"
    )
    assert block.code == C_CODE.replace("PAGE;", "2097152;", 1)


HEADERS = "/usr/include/c++/12/bits/"
VECTOR = [
    frame("__gnu_cxx::new_allocator<long>::allocate", f"{HEADERS}new_allocator.h", 137),
    frame(
        "std::allocator_traits<std::allocator<long> >::allocate", f"{HEADERS}alloc_traits.h", 464
    ),
    frame(
        "std::_Vector_base<long, std::allocator<long> >::_M_allocate", f"{HEADERS}stl_vector.h", 378
    ),
    frame("std::vector<long, std::allocator<long> >::resize", f"{HEADERS}stl_vector.h", 1011),
    frame("Table::fill", "/home/me/table.cpp", 12),
    frame("main", "/home/me/main.cpp", 3),
]


def test_the_users_own_line_is_named_with_the_librarys_behind_it() -> None:
    found = written(region("anonymous"), SIZE, site(VECTOR, 4))
    assert found.line == (
        "/home/me/table.cpp:12 (by new_allocator.h:137): a std::pmr::vector on LargePages"
    )
    assert found.code is not None and "std::pmr::vector<T> data(&large);" in found.code


def test_without_a_line_of_the_users_the_site_has_its_name() -> None:
    named = region("anonymous", name="reserve (libother.so)")
    found = written(named, SIZE, site([frame("reserve")], None))
    assert found.line.startswith("reserve (libother.so): p = aligned_alloc(")


@pytest.mark.parametrize(
    ("functions", "container"),
    [
        (["std::vector<int>::reserve", "main"], "vector"),
        (["std::_Vector_base<int>::_M_allocate", "main"], "vector"),
        (
            ["std::_Hashtable<int>::_M_rehash", "std::unordered_set<int>::reserve", "main"],
            "unordered_set",
        ),
        (["std::_Hashtable<int>::_M_rehash", "main"], "unordered_map"),
        (["std::_Rb_tree<int>::_M_insert", "std::map<int, int>::operator[]", "main"], "map"),
        (["std::__cxx11::basic_string<char>::_M_create", "main"], "string"),
        (["void std::vector<int>::emplace_back<int>", "main"], "vector"),
        (["operator new[]", "main"], None),
        (["Table::fill", "main"], None),
    ],
)
def test_the_container_that_allocates_is_known(functions: list[str], container: str | None) -> None:
    stack = [frame(function) for function in functions]
    assert container_of(site(stack, len(stack) - 1)) == container


def test_cpp_without_a_container_allocates_with_an_alignment() -> None:
    found = written(region("anonymous"), SIZE, site([frame("main", "main.cpp", 9)], 0))
    assert found.line.startswith(
        "main.cpp:9: p = ::operator new(4194304, std::align_val_t(2097152))"
    )


def run(tmp_path: Path, compiler: str, name: str, text: str, *options: str) -> str:
    """What a program of that text prints."""
    found = shutil.which(compiler) or pytest.fail(f"{compiler} is missing: see `make tools`")
    source, program = tmp_path / name, tmp_path / "program"
    source.write_text(text)
    subprocess.run([found, "-Wall", "-Werror", *options, "-o", program, source], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def test_the_c_that_is_shown_compiles_and_runs(tmp_path: Path) -> None:
    calls = site([frame("make", "make.c", 7)], 0)
    code = written(region("anonymous"), SIZE, calls).code
    text = f"""#include <stdio.h>
#include <string.h>
{code}
int main(void) {{
    char *p = allocate_large(5000000);
    memset(p, 7, 5000000);
    printf("%d %d\\n", (int)((unsigned long)p % 2097152), p[4999999]);
    free(p);
}}
"""
    assert run(tmp_path, "gcc", "a.c", text, "-std=gnu11") == "0 7\n"


@pytest.mark.parametrize(
    ("function", "types", "use"),
    [
        ("std::vector<long>::resize", ("vector<T>", "vector<long>"), "data.resize(1 << 20);"),
        (
            "std::unordered_map<int, int>::operator[]",
            ("unordered_map<...>", "unordered_map<int, int>"),
            "for (int i = 0; i < 100000; i++) data[i] = i;",
        ),
        (
            "std::__cxx11::basic_string<char>::_M_create",
            ("string", "string"),
            "data.resize(1 << 22);",
        ),
        ("std::deque<int>::push_back", ("deque<...>", "deque<int>"), "data.resize(1 << 20);"),
    ],
)
def test_the_cpp_that_is_shown_compiles_and_runs(
    tmp_path: Path, function: str, types: tuple[str, str], use: str
) -> None:
    calls = site([frame(function, f"{HEADERS}a.h", 3), frame("main", "main.cpp", 9)], 1)
    code = written(region("anonymous"), SIZE, calls).code
    assert code is not None
    declared, used = code.split("\n\nLargePages large;")
    name = types[0].partition("<")[0]
    text = f"""#include <deque>
#include <iostream>
#include <string>
#include <unordered_map>
#include <vector>
{declared}
int main() {{
LargePages large;{used.replace(*types)}
{use}
std::cout << data.size() << "\\n";
}}
"""
    size = int(run(tmp_path, "g++", "a.cpp", text, "-std=c++17"))
    assert size >= 100_000, name


def test_the_class_is_compiled_where_no_container_is_known(tmp_path: Path) -> None:
    text = re.sub(r"\bPAGE\b", "2097152", CPP_CODE) + "int main() { LargePages large; }\n"
    assert run(tmp_path, "g++", "a.cpp", text, "-std=c++17") == ""


def knobs() -> tuple[str, ...]:
    """What the system's settings are: a word each, in brackets where there are several."""
    files = (
        "enabled",
        "shmem_enabled",
        "hugepages-2048kB/enabled",
        "hugepages-2048kB/shmem_enabled",
    )
    try:
        texts = [(KNOBS / file).read_text("ascii") for file in files]
    except OSError:
        return ()
    return tuple(found[1] if (found := re.search(r"\[(.*)\]", text)) else "" for text in texts)


def test_the_rules_are_those_of_the_kernel_that_runs(tmp_path: Path) -> None:
    before = knobs()
    if before[:2] not in (("madvise", "never"), ("always", "never")) or before[2] == "never":
        pytest.skip(f"the rules are for enabled=madvise and shmem_enabled=never, not {before}")
    source = Path(__file__).with_name("large_pages.c")
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: see `make tools`")
    program = tmp_path / "large_pages"
    subprocess.run([compiler, "-O1", "-pthread", "-o", program, source], check=True)
    ran = subprocess.run(
        [program, tmp_path / "file"], check=True, capture_output=True, text=True
    ).stdout
    if knobs() != before:
        pytest.skip("the settings of the system have changed meanwhile")
    found = {tuple(line.split()[:2]): int(line.split()[2]) for line in ran.splitlines()}
    if not found["anonymous", "hugepage"]:
        pytest.skip("this system has no large pages to give")
    for name, request in (
        ("anonymous", "hugepage"),
        ("bss", "hugepage"),
        ("shared-memory", "collapse"),
        ("segment", "collapse"),
        ("memfd", "collapse"),
        ("populated", "collapse"),
        ("locked-later", "hugepage"),
        ("thread-stack", "hugepage"),
    ):
        # The kernel may merge adjacent mappings, which can then have large pages too.
        assert found[name, request] >= 16, (name, request, ran)
    assert found["stack", "hugepage"] >= 2, ran
    for name, request in (
        ("shared-memory", "hugepage"),
        ("private-of-shared", "collapse"),
        ("private-file", "collapse"),
    ):
        assert found[name, request] == 0, (name, request, ran)
    if before[0] == "madvise":
        assert found["populated", "hugepage"] == 0, ran
