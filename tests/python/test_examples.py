"""Every command that README, the handbook and the help show runs, as it is written there.

Commands of tutorials build on each other: `test_tutorials.py` follows these pages as a whole.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import drmemtrace
import pytest
import tutorial
from test_import import CHAMPSIM

from pagewalk import Machine, Trace, machines, skeleton
from pagewalk._native import Error
from pagewalk.commands.line import parser
from pagewalk.recording import Recording

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NOT_RUN = {
    # These take minutes: `make reproduce` runs all experiments, and test_reproduce.py a small one.
    "pagewalk reproduce",
    "pagewalk reproduce B10/fig4.14",
    "pagewalk reproduce E99 --html e99.html",
    # These commands need an idle machine, and judging a machine file takes minutes.
    # test_calibrate.py tests them as far as possible.
    "pagewalk calibrate -o here.toml",
    "pagewalk calibrate --judge here.toml",
    # This command takes a minute, as the handbook says.
    "pagewalk sweep generate:join,table=8G,accesses=50M -m experiments/B10/walks-only.toml"
    " --set os.populated=true --vary mmu_cache.design=uptc,sptc,utc,stc,tpc"
    " --vary mmu_cache.entries=1..60 -o join.parquet --html join.html",
}
OUTPUTS = re.compile(
    r" (?:-o|--output|--html|--json|--graph|--flame|--svg|--png|--pdf|>) *([\w.-]*\w)"
)
# This process represents a running server: `redis-server` of redis, or postgres' process 4711.
SERVER = re.compile(r"(?<=pagewalk attach )(?:\$\(pgrep -x redis-server\)|4711)")
SERVES = """
volatile long cells[4096];
__attribute__((noinline)) void exec_simple_query(void) {
    for (int i = 0; i < 4096; i++) cells[i] += i;
}
int main(void) { for (;;) exec_simple_query(); }
"""
PLACEHOLDER = re.compile(r"=[A-Z]+$")
SETTING = re.compile(r"--set[ \n]+([a-z_0-9.]+=[\w.-]+)")


def subparsers(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from subparsers(sub)


def helps() -> Iterator[tuple[str, str]]:
    """The help pages by the command that prints them."""
    for command in subparsers(parser()):
        yield f"{command.prog} --help", command.format_help()


def joined(lines: list[str]) -> Iterator[str]:
    """Lines in which one that ends in a backslash goes on in the next, blanks made one."""
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    yield from (" ".join(line.split()) for line in text.splitlines())


def in_page(page: Path) -> Iterator[str]:
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        for line in lines:
            if line.startswith("$ ") and "pagewalk" in line:
                yield re.sub(r"\s+# .*", "", line[2:])


def in_help(text: str) -> Iterator[str]:
    """Examples are indented by two; what stands three or more blanks to the right explains."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    for line in lines:
        if line.startswith("  pagewalk ") and "...]" not in line:
            yield re.split(r"\s{2,}", line.strip())[0]


def examples() -> list[tuple[str, str]]:
    alone = [page for page in PAGES if not tutorial.is_tutorial(page)]
    found = {" ".join(c.split()): str(p.relative_to(ROOT)) for p in alone for c in in_page(p)}
    found |= {" ".join(c.split()): name for name, text in helps() for c in in_help(text)}
    return [(command, where) for command, where in found.items() if command not in NOT_RUN]


@pytest.fixture(scope="session")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples take: short ones under the names that they have there."""
    folder = tmp_path_factory.mktemp("materials")
    # All programs of the repository are linked, except the one that takes long.
    (folder / "workloads").mkdir()
    for file in (ROOT / "workloads").iterdir():
        (folder / "workloads" / file.name).symlink_to(file)
    (folder / "workloads" / "join.sql").unlink()
    (folder / "workloads" / "join.sql").write_text(
        "create table t as with recursive n(i) as (select 1 union all select i + 1 from n "
        "limit 200) select i, i * 7 % 200 as j from n;\n"
        "select count(*) from t a join t b on a.i = b.j;\n"
    )
    compiler = shutil.which("cc") or pytest.fail("cc is missing: `make test` installs it")
    source = ROOT / "workloads" / "hash-join.c"
    subprocess.run([compiler, "-O2", "-g", "-o", folder / "hash-join", source], check=True)
    with tarfile.open(folder / "big.tar", "w") as tar:
        tar.add(ROOT / "README.md", "README.md")
    (folder / "server.c").write_text(SERVES)
    subprocess.run([compiler, "-o", folder / "server", folder / "server.c"], check=True)
    Trace("generate:join,table=64M,accesses=50k").store(folder / "join.pwt")
    Trace("generate:uniform,accesses=50k").store(folder / "redis.pwt")
    # Examples that export need fetches, as a recorded program has them.
    Recording(["true"]).record(folder / "gzip.pwt")
    Recording(["true"], allocations=True).record(folder / "sites.pwt")
    Recording(["sh", "-c", "ls; date"]).record(folder / "make.pwt")
    skeleton(Trace(folder / "make.pwt")).write(folder / "make.skeleton")
    record = drmemtrace.instruction(0x1000) + drmemtrace.load(0x7000)
    (folder / "drmemtrace.app.1234.0000.dir" / "trace").mkdir(parents=True)
    (folder / "drmemtrace.app.1234.0000.dir" / "trace" / "app.1.trace").write_bytes(
        drmemtrace.start(1, 1) + drmemtrace.time(1) + record * 20 + drmemtrace.end(1)
    )
    # As a recording of a whole system: with physical addresses.
    physical = drmemtrace.marker(15, 0x9000) + drmemtrace.marker(17, 0x1000)
    (folder / "list.trace").write_bytes(
        drmemtrace.start(1, 1) + drmemtrace.time(1) + physical + record * 20 + drmemtrace.end(1)
    )
    Trace(folder / "list.trace").store(folder / "list.pwt")
    for name in ("600.perlbench_s-210B.champsimtrace", "server.champsimtrace"):
        (folder / name).write_bytes(CHAMPSIM)
        subprocess.run(["xz", folder / name], check=True)
    Trace(folder / "server.champsimtrace.xz").store(folder / "server.pwt")
    for name, size in (("before", "4K"), ("after", "2M")):
        made = Machine("epyc-9005", {"os.page_size": size}).run(folder / "join.pwt")
        made.save(folder / f"{name}.json")
    Machine("epyc-9005").run(folder / "gzip.pwt").save(folder / "results.json")
    shutil.copy(ROOT / "machines" / "epyc-9005.toml", folder / "here.toml")
    (folder / "join.place").write_text("region hash table = 1M\n")
    (folder / "table.place").write_text("mmap = 2M\n")
    (folder / "misses.csv").write_text("vaddr;kind\n0x1000;load\n8192;store\n")
    (folder / "headless.csv").write_text("0x1000,8\n0x2000,4\n")
    (folder / "pinatrace.out").write_text("0x4005d0: R 0x7f1000\n0x4005d4: W 0x7f2000\n#eof\n")
    (folder / "app.din").write_text("2 4005d0\n0 7f1000\n1 7f2000\n")
    (folder / "dram.trace").write_text("0x7f1000 R\n0x7f2000 W\n")
    (folder / "black.usimm").write_text("3 R 0x7f1000 0x4005d0\n0 W 0x7f2000\n")
    (folder / "samples.txt").write_text(
        "app 7 1.5: cpu/mem-loads/P: 7f1000 68100142 |OP LOAD|LVL L1 hit|\n"
    )
    return folder


@contextmanager
def with_server(command: str, materials: Path) -> Iterator[str]:
    """The command with the process of a server that runs meanwhile, if it attaches to one."""
    if not SERVER.search(command):
        yield command
        return
    with subprocess.Popen([materials / "server"]) as server:
        try:
            yield SERVER.sub(str(server.pid), command)
        finally:
            server.kill()


@pytest.mark.parametrize(("command", "where"), examples(), ids=lambda text: str(text)[:60])
def test_an_example_runs(command: str, where: str, materials: Path, tmp_path: Path) -> None:
    written = set(OUTPUTS.findall(command))
    for file in materials.iterdir():
        if file.name not in written:
            (shutil.copytree if file.is_dir() else shutil.copy)(file, tmp_path / file.name)
    for name in ("experiments", "machines"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with with_server(command, materials) as line:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            errors="replace", check=False, timeout=280,
        )  # fmt: skip
    assert done.returncode == 0, f"{where}: {done.stderr}"
    assert "error:" not in done.stderr, f"{where}: {done.stderr}"
    for file in written:
        # If there are several charts, each is written to its own file: `join-map.svg` for
        # `join.svg`.
        stem, _, ending = file.rpartition(".")
        found = [tmp_path / file, *tmp_path.glob(f"{stem}-*.{ending}")]
        assert any(one.exists() and one.stat().st_size for one in found), f"{where}: {file}"


def test_there_are_examples_of_all_commands() -> None:
    shown = " ".join(command for command, _ in examples()) + " ".join(NOT_RUN)
    top = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name in top.choices:
        assert f"pagewalk {name}" in shown, name


def test_every_setting_that_is_shown_is_one_of_a_machine() -> None:
    texts = [page.read_text() for page in PAGES] + [text for _, text in helps()]
    # Alone, or as in a line that it is shown in, whose settings are judged together.
    shown: dict[str, list[list[str]]] = {}
    for line in (line for text in texts for line in text.replace("\\\n", "").splitlines()):
        # A word in capitals stands for any value; `1G` is a value.
        together = [one for one in SETTING.findall(line) if not PLACEHOLDER.search(one)]
        for setting in together:
            shown.setdefault(setting, [[setting]]).append(together)
    assert shown
    for ways in shown.values():
        refusals = []
        for machine, settings in product(machines(), ways):
            try:
                Machine(machine.name, settings)
            except Error as error:
                refusals.append(str(error))
            else:
                break
        else:
            pytest.fail("\n".join(refusals))


def test_a_reader_of_csv_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = (
        f"set -o pipefail; {sys.executable} -m pagewalk export csv "
        "generate:uniform,accesses=2M -o - | head -2"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 2
    assert (done.returncode, done.stderr) == (141, "")
