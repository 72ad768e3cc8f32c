"""What people are told of a value that is not what it should be."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal

import msgspec
import pytest

from typed.typed_values import convert_value, format_value, in_words, suggest

LONG = f"'{'x' * 37}...{'x' * 38}'"
"""A text of many x, shortened to 80 characters."""


class Point(msgspec.Struct):
    x: int


def test_a_value_of_its_type_is_returned_and_an_int_stands_for_a_float() -> None:
    assert convert_value("a", Literal["a", "b"]) == "a"
    assert (convert_value(3, float), type(convert_value(3, float))) == (3.0, float)
    assert convert_value(object, inspect.Parameter.empty) is object


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        (True, int, "must be int, not True"),
        (1.0, int, "must be int, not 1.0"),
        ("c", Literal["a", "b"], "must be a or b, not 'c'"),
        (1, str | None, "must be str or None, not 1"),
        (3, list[int], "must be a list, not 3"),
        ("x" * 1000, int, f"must be int, not {LONG}"),
    ],
)
def test_another_value_is_refused_in_words(value: object, annotation: Any, text: str) -> None:
    with pytest.raises(ValueError, match="must be") as error:
        convert_value(value, annotation)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[int, msgspec.Meta(ge=1, le=9)] | None, "int >= 1 and <= 9 or None"),
        (Annotated[float, msgspec.Meta(gt=0)], "float > 0"),
        (Annotated[str, msgspec.Meta(min_length=1)], "non-empty str"),
        (dict[str, int], "a mapping"),
        (Point, "a mapping"),
    ],
)
def test_bounds_and_records_have_words_too(annotation: Any, words: str) -> None:
    assert in_words(annotation) == words


def test_the_nearest_known_word_is_suggested() -> None:
    assert suggest("rolouts", ["rollouts", "seed"]) == " (did you mean rollouts?)"
    assert suggest("xyz", ["rollouts", "seed"]) == ""
    assert format_value({"a": "x" * 100}) == f"{{'a': {LONG}}}"
