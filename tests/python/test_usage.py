"""The same options everywhere, and what a mistake in a command line says."""

import argparse
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pagewalk import Machine, Trace
from pagewalk.cli import main
from pagewalk.commands import completion, manual
from pagewalk.commands.kinds import number
from pagewalk.commands.line import parser
from pagewalk.commands.parser import leaves

SPEC = "generate:uniform,size=8M,accesses=30k,seed=3"
SHELLS = {
    "bash": ["bash", "-n"],
    "zsh": ["zsh", "-n"],
    "fish": ["fish", "--no-execute"],
}


def options(command: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {flag: action for action in command._actions for flag in action.option_strings}


@pytest.mark.parametrize(
    ("text", "value"),
    [("50M", 50_000_000), ("134.3M", 134_300_000), ("1.5k", 1500), ("2.0", 2), ("1.5Ki", 1536)],
)
def test_counts_have_suffixes_and_decimals(text: str, value: int) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    "text", ["1.5", "0.0001k", "M", "1.M", ".5M", "1e6", "-1", "1,5M", "18446744073709551616"]
)
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        number(text)


def test_no_output_replaces_what_is_read(pagewalk, tmp_path: Path) -> None:
    trace, link, table = (tmp_path / name for name in ("a.pwt", "b.pwt", "a.csv"))
    made = ("generate", "uniform", "--size", "8M", "--accesses", "30k", "-o", trace)
    assert pagewalk(*made).returncode == 0
    assert pagewalk("export", "csv", trace, "-o", table).returncode == 0
    link.symlink_to(trace)
    before = [path.read_bytes() for path in (trace, table)]
    for command in (
        ("run", trace, "--html", trace),
        ("run", trace, "--json", link),
        ("export", "csv", trace, "-o", link),
        ("import", "csv", table, "-o", table),
        ("sweep", link, "--vary", "os.page_size=4K,2M", "--json", trace),
    ):
        done = pagewalk(*command, "--force")
        assert done.returncode == 2, command
        assert "is also the input" in done.stderr, command
    assert [path.read_bytes() for path in (trace, table)] == before


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["run", SPEC, "--memory", "80%"], "never evicts a page"),
        (["curve", SPEC, "--entries", "4294967296"], "fewer than 2^32"),
        (["run", SPEC, "b.pwt"], "run takes one trace; `pagewalk sweep` takes several"),
        (["curve", SPEC, "b.pwt", "c.pwt"], "takes one trace"),
        (["stat", SPEC, "b.pwt"], "takes one trace"),
        (["origins", "a.json", "b.json"], "origins takes RESULTS, and options"),
        (["diff", "a.json", "b.json", "c.json"], "diff takes A and B, and options"),
        (["hat", "4"], "hat takes no argument, and options"),
        (["hat", "--cpus", "banana"], "`banana` is not a count: write a number, such as 20"),
        (["sweep", SPEC, "-o", "t.xls", "--vary", "os.page_size=4K,2M"], "name it t.parquet"),
        (["curve", SPEC, "--page-sizes", ""], "no page sizes"),
        (
            ["export", "csv", SPEC, "-o", "none.csv", "--thread", "99"],
            "no access of this thread",
        ),
    ],
)
def test_what_nothing_can_come_of_is_refused(
    pagewalk, tmp_path: Path, command: list[str], complaint: str
) -> None:
    done = pagewalk(*command, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr and "bug" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_generator_takes_decimals_too() -> None:
    assert Trace("generate:uniform,accesses=134.3k").accesses == 134_300


def test_a_window_is_the_same_for_every_command_that_reads_a_trace() -> None:
    found = {leaf.prog: options(leaf) for leaf in leaves(parser())}
    readers = ["run", "sweep", "curve", "info", "export", "record", "import champsim", "import csv"]
    for command in readers:
        for flag in ("--skip", "--max-accesses", "--no-fetch"):
            assert flag in found[f"pagewalk {command}"], (command, flag)
    for command, known in found.items():
        assert "-q" in known, command
        writes_text = command.split()[1] not in ("completion", "manual")
        assert ("--json" in known) == writes_text, command
        assert ("-o" in known) == ("--output" in known), command


def test_options_of_other_formats_are_in_the_help_of_import_alone() -> None:
    found = {leaf.prog: leaf.format_help() for leaf in leaves(parser())}
    foreign = ("--cloudsuite", "--interleave", "--v2p", "--column", "--arch", "--fetches")
    for command in ("run", "sweep", "curve", "info", "export"):
        assert not any(flag in found[f"pagewalk {command}"] for flag in foreign), command
        assert set(foreign) <= set(options(next(
            leaf for leaf in leaves(parser()) if leaf.prog == f"pagewalk {command}"
        )))  # fmt: skip
    for flag in foreign:
        assert any(flag in text for name, text in found.items() if " import " in name), flag


def test_help_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for leaf in leaves(parser()):
        own = leaf.format_help().split("examples:")[0]
        assert max(map(len, own.splitlines())) <= 80, leaf.prog


@pytest.mark.parametrize(
    ("arguments", "usage", "words"),
    [
        (["run", SPEC, "--bogus"], "pagewalk run TRACE", "--bogus"),
        (["run", SPEC, "--maschine", "x"], "pagewalk run TRACE", "did you mean --machine?"),
        (["sweep", SPEC, "--vary", "x"], "pagewalk sweep TRACE", "--vary x"),
        (["export", "csv"], "pagewalk export FORMAT TRACE -o FILE", "required"),
        (["record", "ls", "-l"], "pagewalk record", "stands after `--`: pagewalk record -- ls -l"),
        (["record", "-o", "x.pwt", "gzip", "-9"], "pagewalk record", "record -- gzip -9"),
        (["run", "gzip"], "pagewalk run TRACE", "put it after `--`, as in `-- gzip`"),
        (["run"], "pagewalk run TRACE", "no trace to run"),
        (["machines", "-o", "x.toml"], "pagewalk machines [NAME]", "give its name"),
    ],
)
def test_a_mistake_shows_the_usage_of_its_command(
    arguments: list[str], usage: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"usage: {usage}")
    assert words in err.splitlines()[-1]
    assert len(err.splitlines()) <= 4


def test_a_trace_of_the_name_of_a_program_is_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Trace(SPEC).store("gzip")
    assert main(["run", "-m", "tlb-only", "gzip", "-q", "--json", "x.json"]) == 0


def test_quiet_says_nothing_where_results_go_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (
        ["run", SPEC, "-m", "r4700", "--set", "tlb.l1d.entries=48", "--json", "r.json"],
        ["generate", "uniform", "--accesses", "1.5k"],
        ["export", "csv", SPEC, "-o", "x.csv", "--max-accesses", "0.1k"],
        ["curve", SPEC, "--json", "c.json"],
        ["import", "csv", "x.csv", "-o", "x.pwt"],
    ):
        assert main([*command, "-q"]) == 0
        out, err = capsys.readouterr()
        assert out == "" and "note:" not in err and err.count("\n") == err.count("warning:")
    assert main(["info", "uniform.pwt", "-q"]) == 0
    assert "1500 accesses" in capsys.readouterr().out


def test_fetches_can_be_left_out_of_any_trace(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, data = Trace(recorded).info(), Trace(recorded, no_fetch=True).info()
    assert whole["accesses"]["fetch"] > 0
    assert data["accesses"] == {**whole["accesses"], "fetch": 0}
    gone = data["missing"]["instructions"] - whole["missing"]["instructions"]
    assert data["instructions"] + gone == whole["instructions"]
    assert main(["run", str(recorded), "--no-fetch", "-m", "epyc-9005", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["accesses"] == data["accesses"]
    assert "its fetches are left out" in run["trace"]["notes"]
    machine = Machine("epyc-9005").run(Trace(recorded, no_fetch=True))
    assert machine.data["trace"]["digest"] == run["trace"]["digest"] != Trace(recorded).digest


def test_export_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.parquet"
    assert main(["export", "parquet", SPEC, "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    size = out.stat().st_size
    assert document == {"path": str(out), "format": "parquet", "rows": 30_000, "bytes": size}


def test_the_file_of_a_machine_is_written(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    assert main(["machines", "opteron-2008", "-o", str(out)]) == 0
    assert Machine(out).description == Machine("opteron-2008").description


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_the_commands_and_the_shell_takes_it(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("sweep", "max-accesses", "opteron-2008"):
        assert word in script
    if shutil.which(SHELLS[shell][0]):
        file = tmp_path / "script"
        file.write_text(script)
        subprocess.run([*SHELLS[shell], file], check=True)


def test_bash_completes_commands_options_and_files(tmp_path: Path) -> None:
    (tmp_path / "join.pwt").write_text("")

    def complete(*words: str) -> set[str]:
        script = (
            f"source <(python3 -c 'print(open(\"{tmp_path}/script\").read())')\n"
            f"COMP_WORDS=({' '.join(repr(word) for word in words)})\n"
            f"COMP_CWORD={len(words) - 1}\n"
            "$(complete -p pagewalk | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return set(done.stdout.split())

    top = parser()
    completion._mark(top)
    import shtab

    (tmp_path / "script").write_text(shtab.complete(top, "bash"))
    assert {"run", "sweep", "record"} <= complete("pagewalk", "")
    assert "--max-accesses" in complete("pagewalk", "run", "--max")
    assert "join.pwt" in complete("pagewalk", "info", "jo")


def test_the_manual_has_every_command_and_option_and_no_warning(tmp_path: Path) -> None:
    page = manual.page(parser())
    for leaf in leaves(parser()):
        name = leaf.prog.partition(" ")[2]
        assert f".SH {name.upper()}" in page
        for flag, action in options(leaf).items():
            if action.help is not argparse.SUPPRESS and flag not in ("-h", "--help"):
                assert flag.replace("-", "\\-") in page, (name, flag)
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"],
            input=page, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_really_completes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", "fish"]) == 0
    script = tmp_path / "pagewalk.fish"
    script.write_text(capsys.readouterr().out)
    for typed, offered in (
        ("pagewalk sw", "sweep"), ("pagewalk run --max-a", "--max-accesses"),
        ("pagewalk machines r47", "r4700"), ("pagewalk import ch", "champsim"),
    ):  # fmt: skip
        command = f"source {script}; complete -C '{typed}'"
        done = subprocess.run(["fish", "-c", command], capture_output=True, text=True, check=True)
        assert offered in [line.split("\t")[0] for line in done.stdout.splitlines()], typed


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_really_completes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "_pagewalk").write_text(capsys.readouterr().out)
    # zsh completes only input that is typed at a terminal.
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment)
    try:
        setup = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D"
        os.write(terminal, f"{setup}; echo set''up\r".encode())
        assert _read(terminal, "setup\r")
        for typed, completed in (
            ("pagewalk sw\t", "pagewalk sweep"),
            ("pagewalk run --max-a\t", "pagewalk run --max-accesses"),
        ):
            os.write(terminal, typed.encode())
            assert _read(terminal, completed), typed
            os.write(terminal, b"\x15")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read(terminal: int, wanted: str) -> bool:
    """Whether `wanted` is printed within a minute."""
    seen, end = "", time.monotonic() + 60
    while wanted not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
    return wanted in seen


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["runn"], "there is no `runn`: choose one of record, attach, run, "),
        (["runn"], "; did you mean run?"),
        (["import", "champsm", "x"], "; did you mean champsim?"),
        (["run", SPEC, "--sort", "mises"], "; did you mean misses?"),
        (["run", SPEC, "--place", "missing.txt"], "--place missing.txt: there is no such file"),
        (["reproduce", "B10/fig9"], "names all; did you mean B10/fig"),
        (["info", "missing.pwt"], "missing.pwt: No such file or directory\n"),
        (["diff", "LICENSE-MIT", "LICENSE-MIT"], "`pagewalk run TRACE --json FILE` writes results"),
    ],
)
def test_a_word_that_is_nearly_right_is_guessed(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in " ".join(capsys.readouterr().err.split()) + "\n"
