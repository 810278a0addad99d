"""The data of a program is told apart: each mapping is a region, and each miss is its."""

import shutil
import subprocess

import pytest

from pagewalk import Machine, Results
from pagewalk.recording import Recording
from pagewalk.report import missmap

PROGRAM = r"""
#define _GNU_SOURCE
#include <sys/mman.h>

static volatile char *map(unsigned long bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* A table that is read at random, an array in order, and a mapping of few pages far apart. */
int main(void) {
    volatile char *table = map(64ul << 20), *array = map(8ul << 20), *sparse = map(256ul << 20);
    unsigned long at = 1;
    for (int i = 0; i < 30000; i++) {
        at = at * 6364136223846793005ul + 1442695040888963407ul;
        table[at >> 38]++;
    }
    for (unsigned long i = 0; i < 8ul << 20; i += 512) array[i]++;
    for (unsigned long i = 0; i < 256ul << 20; i += 1ul << 20) sparse[i]++;
    return 0;
}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    compiler = shutil.which("gcc") or pytest.fail("gcc is missing: `make test` installs it")
    folder = tmp_path_factory.mktemp("regions")
    (folder / "three.c").write_text(PROGRAM)
    subprocess.run([compiler, "-O1", "-o", folder / "three", folder / "three.c"], check=True)
    Recording([str(folder / "three")]).record(folder / "three.pwt")
    return Machine("epyc-9005").run(folder / "three.pwt", check=True)


def test_mappings_side_by_side_are_rows_of_their_own(results: Results) -> None:
    found = {
        region["bytes"] >> 20: region
        for region in results.data["regions"]
        if region["name"].startswith("anonymous") and region["bytes"] >= 8 << 20
    }
    assert sorted(found) == [8, 64, 256]
    assert len({region["name"] for region in found.values()}) == 3
    assert found[256]["pages"] == 256
    assert found[8]["pages"] == 2048
    assert found[64]["by_kind"]["load"] >= 30_000
    assert found[64]["misses"] > 20_000


def test_the_map_counts_what_the_regions_count(results: Results) -> None:
    by_region: dict[int, int] = {}
    for _, region, misses in results.data["map"]["owners"]:
        by_region[region] = by_region.get(region, 0) + misses
    regions = results.data["regions"]
    assert by_region == {
        index: region["misses"] for index, region in enumerate(regions) if region["misses"]
    }
    figure = missmap.miss_map(results.data)
    assert figure is not None
    ours = {
        region["name"]
        for region in regions
        if region["name"].startswith("anonymous") and region["bytes"] in (8 << 20, 64 << 20)
    }
    assert len(ours) == 2 and ours <= {row["region"] for row in figure.rows}
