"""Small spaces: numbers in results, programs that are confined, who talks to whom."""

import json
import xml.dom.minidom
from pathlib import Path
from subprocess import run

import pytest

from pagewalk import Machine, Trace, record, switches
from pagewalk._native import Error
from pagewalk.cli import main
from pagewalk.recording import Recording
from pagewalk.reproduce import Lab

PINGPONG = "generate:pingpong,itlb=8,dtlb=8,ipc=266,idle=1,bits=32,accesses=60k"
SMALL = "pentium4,os.small.slot=256M"


def cycles(document: dict) -> int:
    time = document["time"]
    translation = time["translation_cycles"]["hi"] + time["kernel"]["cycles"]
    return int(time["program_cycles"]["hi"] + translation)


def test_large_and_small_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, document = tmp_path / "both.html", tmp_path / "both.json"
    both = ["-m", "pentium4", "-m", SMALL]
    assert main(["run", PINGPONG, *both, "--html", str(page), "--json", str(document)]) == 0
    said = capsys.readouterr().out
    assert "ll.slot=256M" in said
    assert "8 slots of 256 MiB; 2 of 2 spaces had one" in said
    large, small = json.loads(document.read_text())
    assert large["space_switches"]["root_loads"] > 0
    assert small["space_switches"]["root_loads"] == 0
    # The first has code, jumps and reads, each under an entry; the second only replies.
    assert small["small_spaces"]["copies"] == 3 + 1
    assert large["trace_cache"]["emptied"] == large["space_switches"]["switches"]
    assert cycles(large) > 1.5 * cycles(small)
    assert "Address spaces" in page.read_text()


def test_lists_go_behind_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    machine = 'pentium4,os.small.members=["0","1"],os.small.area=1G'
    assert main(["run", PINGPONG, "-m", machine]) == 0
    assert "4 slots of 256 MiB; 2 of 2 spaces had one" in capsys.readouterr().out


def test_a_space_that_runs_alone_says_that_it_became_large(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "generate:uniform,bits=32,accesses=10k", "-m", SMALL]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["Spaces", "that", "became", "large", "1"] in rows


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 32-bit program that writes so many pages of a block that it has asked for."""
    folder = tmp_path_factory.mktemp("small")
    source = folder / "touch.c"
    source.write_text(
        "#include <stdlib.h>\n"
        "int main(int n, char **words) {\n"
        "    long pages = atol(words[1]), bytes = pages * 4096;\n"
        "    volatile char *block = malloc(bytes);\n"
        "    if (!block) return 3;\n"
        "    for (long at = 0; at < bytes; at += 4096) block[at] = 1;\n"
        "    return 0;\n"
        "}\n"
    )
    (folder / "bin").mkdir()
    compiled = folder / "bin" / "touch-pages"
    run(["i686-linux-gnu-gcc", "-O1", "-static", "-o", compiled, source], check=True)
    return compiled


def test_a_confined_program_runs_small(program: Path, tmp_path: Path) -> None:
    trace = record(
        ["touch-pages", "200"], tmp_path / "t.pwt", small=256 << 20, sysroot=program.parents[1]
    )
    machine = Machine("pentium4", ["os.small.slot=256M", 'os.small.members=["touch-pages"]'])
    results = machine.run(trace, check=True)
    spaces = results.data["small_spaces"]
    assert (spaces["small"], spaces["promoted"]) == (1, 0)
    assert spaces["copies"] >= 2  # Its code and data; the block, which lies behind its stack.
    # If the slot is smaller than the memory that the program has reserved, the space becomes large.
    few = Machine("pentium4", ["os.small.slot=256M"])
    wide = record([str(program), "200"], tmp_path / "w.pwt", small=1 << 30)
    outgrown = few.run(wide, check=True).data
    assert outgrown["small_spaces"]["promoted"] == 1
    assert outgrown["faults"]["first_touch"] == few_faults(wide)


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a parent that writes twenty pieces of 4 KB to its child, one after the other."""
    folder = tmp_path_factory.mktemp("talk")
    source = folder / "talk.c"
    source.write_text(
        "#include <unistd.h>\n"
        "#include <sys/wait.h>\n"
        "static char piece[4096];\n"
        "int main(void) {\n"
        "    int there[2], back[2];\n"
        "    if (pipe(there) || pipe(back)) return 1;\n"
        "    int child = fork();\n"
        "    for (int time = 0; time < 20; time++)\n"
        "        if (child) {\n"
        "            if (write(there[1], piece, 4096) != 4096 || read(back[0], piece, 1) != 1)\n"
        "                return 1;\n"
        "        } else if (read(there[0], piece, 4096) != 4096 || write(back[1], piece, 1) != 1)\n"
        "            return 1;\n"
        "    if (child) wait(NULL);\n"
        "    return 0;\n"
        "}\n"
    )
    compiled = folder / "talk"
    run(["i686-linux-gnu-gcc", "-O1", "-static", "-o", compiled, source], check=True)
    record([str(compiled)], folder / "talk.pwt", small=256 << 20, calls=True)
    return folder / "talk.pwt"


@pytest.mark.parametrize("kernel", ["monolithic", "microkernel"])
def test_a_recording_gets_a_kernel(talk: Path, kernel: str) -> None:
    program = Machine(SMALL.partition(",")[0]).run(Trace(talk), check=True).data
    trace = Trace(talk, kernel=kernel)
    large = Machine("pentium4").run(trace, check=True).data
    small = Machine("pentium4", ["os.small.slot=256M"]).run(trace, check=True).data
    assert any("are modelled, not recorded" in note for note in large["trace"]["notes"])
    assert large["instructions"] > program["instructions"] + 80 * 1500
    between = program["space_switches"]["switches"]
    assert between >= 40
    if kernel == "monolithic":
        assert large["space_switches"]["switches"] == between
    else:
        # Each call that does not wait, and each switch, makes a switch to Linux and back.
        assert large["space_switches"]["switches"] >= 2 * between + 40
        names = {process["programs"][-1]["command"][0] for process in processes(large)}
        assert "linux" in names
        only = ["os.small.slot=256M", 'os.small.members=["linux"]']
        linux = Machine("pentium4", only).run(trace, check=True).data
        assert linux["small_spaces"]["small"] == 1
        assert linux["space_switches"]["root_loads"] == between
    assert small["space_switches"]["root_loads"] == 0
    assert small["space_switches"]["switches"] == large["space_switches"]["switches"]


def processes(results: dict) -> list[dict]:
    found: list[dict] = results["trace"]["processes"]
    return found


def test_a_kernel_is_asked_for_as_it_can_be(talk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(talk), "-m", "pentium4", "--kernel", "exokernel"]) == 2
    assert "choose one of monolithic, microkernel" in capsys.readouterr().err
    assert main(["run", "--kernel", "monolithic", "-m", "pentium4", "--", "true"]) == 2
    assert "--kernel is for traces" in capsys.readouterr().err
    generated = ["generate:pingpong,ipc=266,bits=32,accesses=20k", "--kernel", "monolithic"]
    assert main(["run", *generated, "-m", "pentium4"]) != 0
    assert "leave --kernel out" in capsys.readouterr().err


def test_packages_are_downloaded_only_if_that_is_asked_for(tmp_path: Path) -> None:
    lab = Lab(Path(__file__).parents[2] / "experiments", tmp_path)
    with pytest.raises(Error, match="for i386 are missing: give --install"):
        lab.trace("cat-wc", 1000)
    assert lab.program("fastcgi@20").command[-1].count(" 20'") == 1


def test_what_is_executed_is_looked_for_in_the_folder_first(tmp_path: Path, program: Path) -> None:
    source = tmp_path / "goes-on.c"
    source.write_text(
        "#include <unistd.h>\n"
        'int main(void) { return execl("/bin/touch-pages", "touch-pages", "20", (char *)0); }\n'
    )
    (tmp_path / "bin").mkdir()
    compiled = ["i686-linux-gnu-gcc", "-O1", "-static", "-o", tmp_path / "bin/goes-on", source]
    run(compiled, check=True)
    (tmp_path / "bin/touch-pages").write_bytes(program.read_bytes())
    (tmp_path / "bin/touch-pages").chmod(0o755)
    # By its name; and what it executes by an absolute path. This system has neither.
    assert not Path("/bin/touch-pages").exists()
    trace = record(["goes-on"], tmp_path / "t.pwt", small=256 << 20, sysroot=tmp_path)
    (process,) = processes(Machine("pentium4").run(trace).data)
    names = [one["command"][0] for one in process["programs"]]
    assert [Path(name).name for name in names] == ["goes-on", "touch-pages"]


def few_faults(trace: Trace) -> int:
    """First touches in a space that is large from the beginning."""
    return int(Machine("pentium4").run(trace).data["faults"]["first_touch"])


def test_the_guest_has_no_more_addresses(program: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="status 3"):
        record([str(program), "60000"], tmp_path / "t.pwt", small=256 << 20)


def test_what_cannot_be_confined_is_refused(program: Path, tmp_path: Path) -> None:
    def refused(*command: str, small: int | None = 256 << 20, sysroot: Path | None = None) -> str:
        with pytest.raises(Error) as error:
            Recording(list(command), small=small, sysroot=sysroot).native()
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "64 bits" in refused("/bin/ls")
    assert "power of two" in refused(str(program), small=3 << 20)
    high = tmp_path / "high"
    link = ["-static", "-Wl,-Ttext-segment=0x20000000", "-o", high]
    source = program.parents[1] / "touch.c"
    run(["i686-linux-gnu-gcc", "-O1", *link, source], check=True)
    beyond = refused(str(high))
    assert "a slot of 256 MiB ends at 0x10000000: give it --small 1024M" in beyond
    assert f"{high} is linked up to 0x200" in beyond
    assert "no such program" in refused("ls", sysroot=program.parents[1])
    assert "no such folder" in refused("ls", sysroot=tmp_path / "none")


def test_who_is_switched_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = switches.switches(Trace("generate:pingpong,linux=2,bits=32,accesses=50k"))
    counts = {(one, other): count for one, other, count in found["pairs"]}
    # Two calls a turn, by the server: eight switches a round, of which none is from 0 to 1.
    assert set(counts) == {(0, 2), (2, 0), (1, 2), (2, 1)}
    assert found["switches"] == sum(counts.values())
    assert max(counts.values()) - min(counts.values()) <= 2
    drawn = tmp_path / "graph.svg"
    assert main(["info", PINGPONG, "--switches", "--graph", str(drawn)]) == 0
    said = capsys.readouterr().out
    assert "Switches from" in said and 'os.small.groups=[["0", "1"]]' in said
    paths = xml.dom.minidom.parse(str(drawn)).getElementsByTagName("path")
    assert len(paths) == 1 + 2  # The arrow's tip, and one each way.
    assert main(["info", PINGPONG, "--graph", str(drawn)]) == 2


def test_without_calls_an_order_that_calls_make_is_not_known() -> None:
    blocking = {"notes": ["programs run in the order `blocking`, which is so"]}
    [said] = switches.warnings({"header": blocking, "events": {"fork": 9}})
    assert "--calls" in said and "mix:order=stamps" in said
    assert switches.warnings({"header": blocking, "events": {"call": 1}}) == []
    assert switches.warnings({"header": {"notes": []}, "events": {}}) == []
