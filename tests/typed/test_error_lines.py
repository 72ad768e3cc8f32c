"""What somebody's code raised, in one line, and where."""

from __future__ import annotations

import json

import pytest

from typed.error_lines import in_one_line, place


class Reader:
    def read(self, text: str) -> object:
        return json.loads(text)


def test_the_first_line_of_a_text_is_told_with_its_class() -> None:
    assert in_one_line(KeyError("sand")) == "KeyError: 'sand'"
    assert in_one_line(RuntimeError("no roof\nno walls")) == "RuntimeError: no roof"
    assert in_one_line(RuntimeError()) == "RuntimeError: "


def test_the_place_is_the_innermost_line_or_that_of_a_class_s_file() -> None:
    with pytest.raises(ValueError) as raised:
        Reader().read("{")
    assert place(raised.value).startswith("decoder.py, line ")
    line = Reader.read.__code__.co_firstlineno + 1
    assert place(raised.value, Reader) == f"test_error_lines.py, line {line}, in read"
    assert place(raised.value, pytest.Item) == place(raised.value)


def test_what_was_never_raised_has_no_place() -> None:
    assert place(ValueError()) == ""
