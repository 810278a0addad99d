"""Finds words of our own in place of a term of the field, and fails on every new one.

```
 file --prose--> its text, without code --PATTERNS--> counts by file and pattern --+
 .ci/words.txt ---------------------------------------> counts that are allowed ----+--> complaints
```

Prose is a page of Markdown without its code, and the comments and strings of a source file. The
allowed counts are exact: more than allowed fails, and so does less, so that the list shrinks with
each text that is rewritten. `python3 .ci/words.py --write` writes the list again.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = Path(".ci/words.txt")
FILES = ("*.md", "crates/*/src/*.rs", "kernel/*.rs", "python/*.py")
GENERATED = (
    "docs/reference/results",
    "docs/reference/keys",
    "docs/reference/events.md",
    "python/pagewalk/document.py",
)
"""What `make reference` writes from doc comments of Rust."""
KEPT = r"(?:entr(?:y|ies)|frames?|lines?|mappings?|pages?|translations?)"
"""What hardware or an operating system keeps."""
COUNTED = (
    r"(?:access|bin|block|chunk|fault|frame|instruction|line|lookup|miss|page|process|record|round"
    r"|row|second|step|thread|turn|walk)"
)
"""What counts are per."""
PATTERNS = {
    "told": (r"\btold\b(?! (?:apart|otherwise))", "recorded, reported, passed or notified"),
    "goes": (
        rf"\b{KEPT}(?: that| which)? (?:go|goes|went|gone|leaves?|left)\b"
        r"(?! (?:on|out|over|through|to)\b)",
        "is evicted, is unmapped or is flushed",
    ),
    "pushed out": (r"\bpush(?:ed|es)? out\b", "evicted"),
    "held": (r"\b(?:accesses|lookups|walks)(?: that)?(?: are| were)? held\b", "hit"),
    "said": (r"\b(?:are|be|is|was|were) said\b", "predicted, given, written or reported"),
    "taken": (
        r"\b(?:descriptors?|objects?|spaces?|tables?)(?: above| below)? (?:are|is|was) taken\b",
        "locked: a lock is taken, what it guards is locked",
    ),
    "surely": (r"\bsurely\b", "guaranteed, as in a guaranteed hit"),
    "stretch": (r"\bstretch(?:es)?\b", "interval, range or segment"),
    "wished": (r"\bwish(?:ed|es)?\b", "requested"),
    "forget": (r"\bforg(?:ets?|ot|otten|etting)\b", "flush, invalidate or drop"),
    "hears": (r"\bhears?\b", "is notified of, or is called with"),
    "so many": (
        r"\bso (?:many|much|few)\b(?! (?:as to|that)\b)",
        "as many as, or the number with its noun, as in `N bytes`",
    ),
    "the same": (
        r"(?:\A|\0)[\s*]*the (?:other|same)\b",
        "the noun: a comment, a cell or a help text is read without the one before it",
    ),
    "nor": (r"\bn(?:ot|or)\b[^.;:\0]{1,120}?\bnor\b", "a list, or two sentences"),
    "of which": (r"\bof (?:which|whom)\b[^.;:\0]{1,120}?\bof (?:which|whom)\b", "two sentences"),
    "a for per": (
        rf"\b(?:accesses|bytes|cycles|instructions|misses|one|references|times) an? {COUNTED}\b",
        "per, as in bytes per page",
    ),
}
"""By name: a pattern over prose in lower case, whose blanks stand for line breaks too, and what to
write in its place."""

_PYTHON = re.compile(
    r'#([^\n]*)|[fr]*"""(.*?)"""|[fr]*"((?:\\.|[^"\\\n])*)"|[fr]*\'((?:\\.|[^\'\\\n])*)\'',
    re.DOTALL,
)
_RUST = re.compile(
    r'//[/!]?([^\n]*)|\br#*"(.*?)"#*|"((?:\\.|[^"\\])*)"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|\{[^{}\n]*\}", re.DOTALL)


def prose(path: Path, text: str) -> str:
    """The prose of a file in lower case, with its line breaks; NUL stands for code."""
    if path.suffix != ".md":
        parts, at = [], 0
        for found in (_PYTHON if path.suffix == ".py" else _RUST).finditer(text):
            parts += [_blanked(text[at : found.start()]), found[found.lastindex or 0]]
            at = found.end()
        text = "".join([*parts, _blanked(text[at:])])
    return _CODE.sub(lambda found: "`" + "\n" * found[0].count("\n"), text).lower()


def _blanked(code: str) -> str:
    return "\0" + "\n" * code.count("\n") if code.strip() else code


def findings(path: Path, text: str) -> Iterator[tuple[str, int, str]]:
    """Each match of a pattern in a file: the pattern's name, the line, the words that match."""
    words = prose(path, text)
    for name, (pattern, _) in PATTERNS.items():
        for found in re.finditer(pattern.replace(" ", r"\s+"), words):
            matched = found[0].lstrip("\0 \n*")
            line = words.count("\n", 0, found.end() - len(matched)) + 1
            yield name, line, " ".join(matched.split())


def complaints(
    found: Mapping[tuple[str, str], list[tuple[int, str]]], allowed: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """Complaints about counts that differ from the allowed ones."""
    for at in sorted({*found, *allowed}):
        (path, name), places, most = at, found.get(at, []), allowed.get(at, 0)
        if len(places) > most:
            also = f" ({most} of {len(places)} are allowed)" if most else ""
            for line, words in places:
                yield f"{path}:{line}: `{words}`: write {PATTERNS[name][1]}{also}"
        elif len(places) < most:
            yield (
                f"{ALLOWED}: allows {most} of `{name}` in {path}, which has {len(places)}: run "
                "`python3 .ci/words.py --write`"
            )


def main(arguments: list[str]) -> int:
    """Checks all files; the status is 1 if there is a complaint."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FILES]
    listed += [f":!{name}" for name in GENERATED]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name in names.splitlines():
        if (path := ROOT / name).is_file():
            for pattern, line, words in findings(path, path.read_text(encoding="utf-8")):
                found.setdefault((name, pattern), []).append((line, words))
    if arguments == ["--write"]:
        rows = [f"{len(found[path, name])}\t{name}\t{path}\n" for path, name in sorted(found)]
        (ROOT / ALLOWED).write_text("".join(rows), encoding="utf-8")
        return 0
    rows = (ROOT / ALLOWED).read_text(encoding="utf-8").splitlines()
    counts = (row.split("\t") for row in rows)
    wrong = list(complaints(found, {(path, name): int(count) for count, name, path in counts}))
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
