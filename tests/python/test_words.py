"""The linter of our own words finds each of them in prose, and nothing in code."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("words", ROOT / ".ci/words.py")
assert _SPEC is not None and _SPEC.loader is not None
words = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(words)

BAD = {
    "told": "What is told of a block.",
    "goes": "TLB entries that went because of a shootdown.",
    "pushed out": "The page is pushed out.",
    "held": "Lookups that are held.",
    "said": "The gain is what was said.",
    "taken": "Then the table above is taken.",
    "surely": "Accesses that surely hit.",
    "stretch": "A stretch of the curve.",
    "wished": "The page size that is wished for.",
    "forget": "Hardware forgets nothing.",
    "hears": "What else hears of a miss.",
    "so many": "An array with so many entries.",
    "the same": "The same, to be changed.",
    "nor": "It does not count, and no other nor one that began before.",
    "of which": "Pages of which two, of which one is large.",
    "a for per": "Bytes a page.",
}
FORMS = {
    "x.md": "A page.\n\n{}\n",
    "x.rs": "fn f() {{}}\n\n/// {}\nfn g() {{}}\n",
    "x.py": 'a = 1\n\nhelp = "{}"\n',
}


def found(name: str, text: str) -> list[tuple[str, int]]:
    return [(pattern, line) for pattern, line, _ in words.findings(Path(name), text)]


def test_every_pattern_has_a_sentence_here() -> None:
    assert BAD.keys() == words.PATTERNS.keys()


@pytest.mark.parametrize("file", FORMS)
@pytest.mark.parametrize("pattern", BAD)
def test_a_bad_sentence_is_found_in_its_line(pattern: str, file: str) -> None:
    if (pattern, file) != ("the same", "x.md"):
        assert found(file, FORMS[file].format(BAD[pattern])) == [(pattern, 3)]


def test_a_sentence_over_two_lines_of_a_comment_is_one() -> None:
    comment = "/// It is not there,\n///   nor anywhere else.\n/// Bytes a\n/// page.\n"
    assert found("x.rs", comment) == [("nor", 1), ("a for per", 3)]
    assert found("x.py", 'say(\n    "so "\n    f"many"\n)') == [("so many", 2)]


def test_code_is_no_prose() -> None:
    assert not found("x.rs", "let told = 1; // a `told` or\nlet q = '\"'; let told = '\"';")
    assert not found("x.rs", "/// ```text\n/// told\n/// ```\nfn told() {}")
    assert not found("x.py", 'told = f"{told} entries"')
    assert not found("x.md", "```\ntold\n```\nThe `told` of [it](told.md).")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with one page that has a word of our own, which is allowed."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".ci").mkdir()
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text("What is told.\n")
    assert words.main(["--write"]) == 0
    assert (tmp_path / ".ci/words.txt").read_text() == "1\ttold\ta.md\n"
    return tmp_path


def test_what_is_allowed_passes(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words.main([]) == 0, clone
    assert capsys.readouterr().out == ""


def test_a_new_word_fails_with_its_place_and_what_to_write(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "b.md").write_text("A page.\n\nSo it was told.\n")
    assert words.main([]) == 1
    assert capsys.readouterr().out == (
        "b.md:3: `told`: write recorded, reported, passed or notified\n"
    )


def test_an_allowance_that_is_too_large_fails(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "a.md").write_text("What is recorded.\n")
    assert words.main([]) == 1
    assert "allows 1 of `told` in a.md, which has 0: run" in capsys.readouterr().out
