"""YAML as plain data."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig, from_mapping, to_yaml
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
    "an alias": "a: &a {x: 1}\nb: *a",
    "a number without end": "a: " + "9" * 6000,
    "a long key that is set twice": "a" * 6000 + ": 1\n" + "a" * 6000 + ": 1",
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


LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
"""A text of 700 bytes that expands to 9^11 values."""

PIECES = (
    *("&a", "*a", "<<: *a\n", "<<: {a: 1}\n", "!!int '1'", "!!python/object:os.system x", "!!omap [a: 1]"),
    *("!!set {a}", "!!binary aaaa", "!!timestamp 2026-01-01", "? [1]\n: 2\n", "---\n", "...\n"),
    *("9" * 6000, "0x" + "f" * 6000, "1e" + "9" * 500, "x" * 10_000, ".nan", "-.inf", "%YAML 1.3\n"),
    *("\x85", "\u2028", "\ufeff", "[" * 60, "{" * 60, "'", '"', "|", ">", "#", "\t", "\0", "\ud800"),
    *("a: b: c", "- ", ": ", "\n\n", LAUGHS),
)


def mutate(text: str, draw: random.Random) -> str:
    """A text with up to four changes: pieces put in, parts cut out, repeated or moved."""
    for _ in range(draw.randint(1, 4)):
        first, last = sorted(draw.choices(range(len(text) + 1), k=2))
        match draw.randrange(5):
            case 0 | 1:
                text = text[:first] + draw.choice(PIECES) + text[first:]
            case 2:
                text = text[:first] + text[min(last, first + 20) :]
            case 3:
                text = text[:first] + text[first:last] * 2 + text[last:]
            case _:
                text = f"{text}\nunknown: {draw.choice(PIECES)}\n"
    return text


@pytest.mark.parametrize("part", range(8))
def test_a_mutated_configuration_is_read_or_refused_in_one_short_line(part: int) -> None:
    text = to_yaml(compose([]))
    for number in range(100):
        refusal = ""
        try:
            from_mapping(read_yaml(mutate(text, random.Random(100 * part + number))))
        except (NotPlain, InvalidConfig) as error:
            refusal = str(error)
        assert (len(refusal) < 3000, refusal.isprintable()) == (True, True), refusal
