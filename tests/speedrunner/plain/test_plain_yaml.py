"""YAML as plain data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from speedrunner.plain.plain_yaml import NotPlain, read_value, read_yaml, read_yaml_file, write_yaml
from tests.golden_tables import Golden, refusals

NOT_PLAIN: dict[str, str | bytes] = {
    "a list without its end": "[",
    "a zero byte": "\x00",
    "a text as a truth value": "a: !!bool x",
    "a list as a key": "[1]: 2",
    "a list that contains itself": "&a [*a]",
    "a mapping that contains itself": "a: &a {b: [*a]}",
    "an object of Python": "!!python/object/apply:os.system [ls]",
    "bytes that are not text": b"a: \xff",
}


def test_a_file_that_is_not_plain_data_is_refused_in_one_line(tmp_path: Path, golden: Golden) -> None:
    def read(content: str | bytes) -> None:
        file = tmp_path / "file.yaml"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        read_yaml_file(file)

    tries = [
        *((what, partial(read, content)) for what, content in NOT_PLAIN.items()),
        *((what, partial(read_yaml_file, tmp_path / what)) for what in ("none.yaml", ".")),
    ]
    golden("refused_yaml.txt", refusals(tries, NotPlain, HERE=tmp_path))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("", None),
        ("a: 1e-3\nb: 2.5E4\nc: -1e3", {"a": 0.001, "b": 25_000.0, "c": -1000.0}),
        ("[on, off, yes, 2026-02-30, 12:30, 010]", ["on", "off", "yes", "2026-02-30", "12:30", "010"]),
        ("[true, False, null, ~, 0, -3, 1_000]", [True, False, None, None, 0, -3, 1000]),
        ("- &a {x: 1}\n- {<<: *a, y: 2}\n- *a", [{"x": 1}, {"x": 1, "y": 2}, {"x": 1}]),
    ],
)
def test_a_text_is_read(text: str, content: Any) -> None:
    assert read_yaml(text) == content


@pytest.mark.parametrize("value", ["1e-3", "off", "2026-02-03", "007", "12:30", "a: b", "été", "", "null"])
def test_a_text_is_read_back_as_it_was_written(value: str) -> None:
    assert read_yaml(write_yaml({"a": [value], "b": [value]})) == {"a": [value], "b": [value]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("3", 3), ("-0.5", -0.5), ("1e-3", 0.001), ("true", True), ("null", None), ("", "")),
        *(("[walk, home]", ["walk", "home"]), ("{a: {b: 1}}", {"a": {"b": 1}}), ("'3'", "3")),
        *((text, text) for text in ("~/my runs", "a: b", "x #y", "1,2", "@a", "a.b:C", "été", "!x", "&a b")),
    ],
)
def test_a_value_of_a_command_needs_quotes_only_to_be_no_number(text: str, value: object) -> None:
    assert read_value(text) == value
