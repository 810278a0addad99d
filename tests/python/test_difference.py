import json
from pathlib import Path

import pytest

import sample
from pagewalk import Results, difference


def written(folder: Path, name: str, document: dict[str, object]) -> Path:
    Results(document).save(folder / name)
    return folder / name


def test_the_biggest_change_stands_first_and_few_events_last() -> None:
    a, b = sample.document(), sample.document()
    b["faults"]["first_touch"] = a["faults"]["first_touch"] * 8
    b["memory"]["table_bytes"] = a["memory"]["table_bytes"] // 2
    a["regions"][0]["misses"], b["regions"][0]["misses"] = 1, 90
    found = difference.changes(a, b)
    assert [one.measure for one in found] == [
        "first touches", "page tables, bytes", f"misses in {a['regions'][0]['name']}",
    ]  # fmt: skip
    assert [one.factor for one in found] == [8, 0.5, 90]
    assert difference.changes(a, a) == []


def test_what_was_different_to_begin_with_is_named_by_key() -> None:
    a, b = sample.document(), sample.document("other")
    b["machine"]["description"]["tlb"]["l2"]["array"][0]["entries"] = 4096
    del b["machine"]["description"]["os"]["page_size"]
    b["machine"]["description"]["tlb"]["l2"]["source"] = "another book"
    assert difference.setup(a, b) == [
        "machine: sample-server -> other",
        "tlb.l2.array.0.entries: 2048 -> 4096",
        "os.page_size: 4K -> absent",
    ]


def test_the_command_says_it_in_80_columns_and_as_json(pagewalk, tmp_path: Path) -> None:
    a = written(tmp_path, "before.json", sample.document())
    b = written(tmp_path, "after.json", sample.document("other-server", seed=3))
    done = pagewalk("diff", a, b, "--top", "3")
    assert done.returncode == 0, done.stderr
    assert "machine: sample-server -> other-server" in done.stdout
    assert "before" in done.stdout and "more (--top)" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    made = json.loads(pagewalk("diff", a, b, "--json").stdout)
    assert len(made["changes"]) > 3
    assert "Every measure is the same." in pagewalk("diff", a, a).stdout


@pytest.mark.parametrize("text", ["[]", "{", '{"schema": 7}', '{"schema": 2}'])
def test_what_is_no_result_is_refused(pagewalk, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    done = pagewalk("diff", tmp_path / "a.json", tmp_path / "a.json")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "a.json" in done.stderr and "bug" not in done.stderr
