"""YAML as plain data."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden_tables import Golden, refusals
from typed.plain_yaml import BYTES, FILE_BYTES, NotPlain, read_plain, read_plain_file

NO_PLAIN_DATA = {
    "a list without its end": "[",
    "a zero byte": "\x00",
    "a key that is set twice": "a: 1\nb: {c: 1, c: 2}",
    "a key that is set twice in a merged mapping": "a: {<<: {c: 1, c: 2}}",
    "a day that does not exist": "a: 2026-02-30",
    "a text as a date": "a: !!timestamp x",
    "a text as a truth value": "a: !!bool x",
    "an empty number": "a: !!int ''",
    "a list as a key": "[1]: 2",
    "an object of Python": "!!python/object/apply:os.system [ls]",
    "a zero byte in a value": 'a: {b: "c\\0"}',
    "too large a number": f"a: {{b: 0x{'f' * 5000}}}",
    "too many digits": "9" * 5000,
    "too many levels": "[" * 30_000,
    "a value that contains itself": "a: &a [*a]",
    "an anchor within an anchor": "a: &a [1]\nb: &b [*a, *a]\nc: [*b, *b]",
}


def written(folder: Path, content: str | bytes) -> Path:
    file = folder / "file.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_a_file_that_is_not_plain_data_is_refused_in_one_line(tmp_path: Path, golden: Golden) -> None:
    keys = "".join(f"k{number}: 1, " for number in range(200))
    contents: dict[str, str | bytes] = {
        **NO_PLAIN_DATA,
        "bytes that are not text": b"a: \xff",
        "aliases of many values": f"a: &a [{'1,' * 200}]\nb: [{'*a,' * 200}]",
        "aliases of many keys": f"a: &a {{{keys}}}\nb: {{<<: [{'*a,' * 200}]}}",
        "a long file": b"#" * (FILE_BYTES + 1),
    }
    os.mkfifo(tmp_path / "pipe")
    tries = [
        *(
            (what, partial(lambda content: read_plain_file(written(tmp_path, content)), content))
            for what, content in contents.items()
        ),
        *((what, partial(read_plain_file, tmp_path / what)) for what in ("pipe", "none.yaml", ".")),
    ]
    golden("plain_yaml/refused_files.txt", refusals(tries, NotPlain, HERE=tmp_path))


def test_a_recorded_text_that_is_not_plain_data_is_refused_in_one_line(golden: Golden) -> None:
    texts = {
        **NO_PLAIN_DATA,
        "an alias": "a: &a [1]\nb: *a",
        "an interpolation": "a: {b: ['${oc.env:HOME}']}",
        "a long text": "#" * (BYTES + 1),
    }
    golden(
        "plain_yaml/refused_texts.txt",
        refusals([(what, partial(read_plain, text)) for what, text in texts.items()], NotPlain),
    )


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("", None),
        ("a: 1e-3\nb: 2.5E4\nc: -1e3", {"a": 0.001, "b": 25_000.0, "c": -1000.0}),
        ("- &a {x: 1}\n- {<<: *a, y: 2}", [{"x": 1}, {"x": 1, "y": 2}]),
        ("- &a {x: 1}\n- *a\n- &b {y: 2}\n- *b", [{"x": 1}, {"x": 1}, {"y": 2}, {"y": 2}]),
        ("a: {b: &b {<<: {q: 1}, q: 2}}\nc: {<<: *b}", {"a": {"b": {"q": 2}}, "c": {"q": 2}}),
        ("a: ${run.seed}", {"a": "${run.seed}"}),
    ],
)
def test_a_file_is_read(tmp_path: Path, text: str, content: Any) -> None:
    (tmp_path / "link.yaml").symlink_to(written(tmp_path, text))
    assert read_plain_file(tmp_path / "link.yaml") == content


def test_a_recorded_text_keeps_a_text_that_looks_like_a_number() -> None:
    assert read_plain(yaml.safe_dump({"file": "1e-3"})) == {"file": "1e-3"}
