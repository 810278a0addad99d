"""Inputs for the programs that are recorded.

They are made from a seed, with the same bytes everywhere.
"""

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def text(path: Path, bytes_: int, seed: int = 1) -> None:
    """Words of an invented language, whose frequencies differ as in a real language."""
    path.write_text("".join(_words(bytes_, random.Random(seed))), encoding="ascii")


def c_source(path: Path, functions: int, seed: int = 1) -> None:
    """A C file of functions over integers and arrays that call one another."""
    rng = random.Random(seed)
    lines = ["struct item { int key; long weight; struct item *next; };"]
    for index in range(functions):
        lines.append(f"static long f{index}(struct item *item, int *table, int n) {{")
        lines.append(f"    long sum = {rng.randrange(1000)};")
        lines.append("    for (int i = 0; i < n; i++) {")
        for _ in range(rng.randrange(3, 9)):
            lines.append(f"        {_statement(rng, index)}")
        lines.append("    }")
        lines.append("    while (item) { sum += item->weight * item->key; item = item->next; }")
        lines.append("    return sum;\n}")
    lines.append("long all(struct item *item, int *table, int n) { return ")
    lines.append(" + ".join(f"f{index}(item, table, n)" for index in range(functions)) + "; }")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def xml(path: Path, records: int, seed: int = 1) -> None:
    """A document of records with attributes and nested elements."""
    rng = random.Random(seed)
    vocabulary = _vocabulary(rng)
    with path.open("w", encoding="ascii") as file:
        file.write('<?xml version="1.0"?>\n<catalogue>\n')
        for index in range(records):
            words = rng.choices(vocabulary, k=rng.randrange(5, 30))
            file.write(f'<record id="r{index}" shelf="{rng.randrange(500)}">')
            file.write(f"<name>{' '.join(words[:3])}</name><note>{' '.join(words[3:])}</note>")
            refs = rng.randrange(4)
            file.write("".join(f'<see ref="r{rng.randrange(records)}"/>' for _ in range(refs)))
            file.write("</record>\n")
        file.write("</catalogue>\n")


def graph(path: Path, nodes: int, seed: int = 1) -> None:
    """A directed graph in DOT: a tree with some additional edges."""
    rng = random.Random(seed)
    lines = ["digraph g {"]
    lines += [f"  n{rng.randrange(max(node // 2, 1))} -> n{node};" for node in range(1, nodes)]
    extra = nodes // 6
    lines += [f"  n{rng.randrange(nodes)} -> n{rng.randrange(nodes)};" for _ in range(extra)]
    path.write_text("\n".join([*lines, "}"]) + "\n", encoding="ascii")


def linear_program(path: Path, rows: int, columns: int, seed: int = 1) -> None:
    """A transport problem with random costs, in CPLEX LP format."""
    rng = random.Random(seed)
    cells = [(i, j) for i in range(rows) for j in range(columns)]
    lines = [
        "Minimize",
        " cost: " + "\n + ".join(f"{rng.randint(1, 99)} x{i}_{j}" for i, j in cells),
    ]
    lines.append("Subject To")
    for i in range(rows):
        lines.append(" + ".join(f"x{i}_{j}" for j in range(columns)) + f" <= {40 * columns}")
    for j in range(columns):
        demand = rng.randint(10, 30 * rows)
        lines.append(" + ".join(f"x{i}_{j}" for i in range(rows)) + f" >= {demand}")
    path.write_text("\n".join([*lines, "End"]) + "\n", encoding="ascii")


def clauses(path: Path, variables: int, ratio: float = 4.2, seed: int = 1) -> None:
    """A random 3-SAT problem in DIMACS.

    It is hardest if there are 4.27 times as many clauses as variables.
    """
    rng = random.Random(seed)
    count = int(variables * ratio)
    lines = [f"p cnf {variables} {count}"]
    for _ in range(count):
        chosen = rng.sample(range(1, variables + 1), 3)
        lines.append(" ".join(str(v if rng.random() < 0.5 else -v) for v in chosen) + " 0")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def picture(path: Path, side: int, seed: int = 1) -> None:
    """A square colour picture in PPM: smooth, with some noise."""
    rng = random.Random(seed)
    noise = rng.randbytes(4096)
    rows = bytearray(f"P6\n{side} {side}\n255\n".encode())
    for y in range(side):
        for x in range(side):
            grain = noise[(x * 31 + y * 17) % 4096] >> 4
            rows += bytes(((x + grain) & 255, (y + grain) & 255, (x ^ y) & 255))
    path.write_bytes(rows)


def stock(path: Path, rows: int, seed: int = 1) -> None:
    """An SQLite database with a table of stock, 560 bytes per row."""
    rng = random.Random(seed)
    texts = ["".join(rng.choices(LETTERS, k=530)) for _ in range(64)]
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("CREATE TABLE stock(id INTEGER PRIMARY KEY, quantity INTEGER, data TEXT)")
        values = ((row, row * 7919 % 100, texts[row % 64]) for row in range(1, rows + 1))
        database.executemany("INSERT INTO stock VALUES (?, ?, ?)", values)
    database.close()


def script(path: Path, lines: list[str]) -> None:
    """A text that is given in the description itself: the commands of a program."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


MAKERS: dict[str, Callable[..., None]] = {
    "text": text,
    "c": c_source,
    "xml": xml,
    "graph": graph,
    "lp": linear_program,
    "cnf": clauses,
    "picture": picture,
    "script": script,
    "stock": stock,
}


def _words(bytes_: int, rng: random.Random) -> Iterator[str]:
    """Words and line breaks. In total they have `bytes_` bytes or a few more."""
    vocabulary = _vocabulary(rng)
    weights = [1 / (rank + 1) for rank in range(len(vocabulary))]
    made = 0
    while made < bytes_:
        line = " ".join(rng.choices(vocabulary, weights, k=12)) + "\n"
        made += len(line)
        yield line


def _vocabulary(rng: random.Random) -> list[str]:
    return [
        "".join(rng.choices(LETTERS, range(26, 0, -1), k=rng.randrange(1, 11))) for _ in range(4000)
    ]


def _statement(rng: random.Random, index: int) -> str:
    a, b = rng.randrange(1, 64), rng.randrange(1, 9)
    choices = [
        f"sum += table[(i * {a}) % n] >> {b % 8};",
        f"if (sum & {a}) table[i] = (int)(sum * {b}); else table[i] ^= {a};",
        f"switch (table[i] & 7) {{ case {b % 8}: sum -= {a}; break; default: sum ^= i; }}",
        f"for (int k = i; k < i + {b} && k < n; k++) sum += table[k] * {a}L;",
    ]
    if index:
        choices.append(f"if (i == {a}) sum += f{rng.randrange(index)}(item, table, i / {b + 1});")
    return rng.choice(choices)
