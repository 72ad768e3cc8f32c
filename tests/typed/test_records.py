"""Plain data, made into records."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from typed.records import WrongData, keys_of, record, unknown_key


class Wheel(msgspec.Struct):
    spokes: Annotated[int, msgspec.Meta(ge=1)]
    kind: Literal["front", "back"] = "front"


class Bell(msgspec.Struct, frozen=True):
    loud: float = 1.0


class Bicycle(msgspec.Struct):
    wheels: list[Wheel]
    bell: Bell = Bell()
    notes: dict[str, int | str] = {}


def test_records_lists_and_mappings_are_made() -> None:
    content = {
        "wheels": [{"spokes": 3}, {"spokes": 4, "kind": "back"}],
        "bell": {"loud": 2},
        "notes": {"a": 1},
    }
    assert record(Bicycle, content) == Bicycle([Wheel(3), Wheel(4, "back")], Bell(2.0), {"a": 1})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (3, "all of it must be a mapping, not 3"),
        ({}, "wheels is not set"),
        ({"wheels": {}}, "wheels must be a list, not {}"),
        ({"wheels": [{"spokes": 3}, {"spokes": 0}]}, "wheels[1].spokes must be int >= 1, not 0"),
        ({"wheels": [{}]}, "wheels[0].spokes is not set"),
        (
            {"wheels": [{"spoks": 3}]},
            "(1) there is no wheels[0].spoks (did you mean wheels[0].spokes?), given as 3;"
            " there are wheels[0].spokes, wheels[0].kind; (2) wheels[0].spokes is not set",
        ),
        ({"wheels": [], "bell": None}, "bell must be a mapping, not null"),
        ({"wheels": [], "bell": {"loud": float("inf")}}, "bell.loud must be finite, not Infinity"),
        ({"wheels": [], "notes": {"a": [1]}}, "notes.a must be int or str, not [1]"),
        (
            {"wheels": [], "loud": 3},
            "there is no loud (did you mean bell.loud?), given as 3; there are wheels, bell, notes",
        ),
        (
            {"wheels": [{"spokes": 0}, {"kind": "top"}], "bell": 1},
            "(1) wheels[0].spokes must be int >= 1, not 0; (2) wheels[1].spokes is not set;"
            " (3) wheels[1].kind must be front or back, not top; (4) bell must be a mapping, not 1",
        ),
        ({"wheels": [], 3: 4}, "there is no 3, given as 4; there are wheels, bell, notes"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_what_is_allowed(content: Any, text: str) -> None:
    with pytest.raises(WrongData) as error:
        record(Bicycle, content)
    assert str(error.value) == text


def test_a_mapping_s_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(WrongData, match="Expected str"):
        record(Bicycle, {"wheels": [], "notes": {3: 1}})


def test_keys_are_those_of_the_records_within_too() -> None:
    assert keys_of(Bicycle) == ["wheels", "bell.loud", "notes"]
    assert unknown_key("bell.lod", "x y", keys_of(Bicycle)) == (
        "there is no bell.lod (did you mean bell.loud?), given as x y; there are bell.loud"
    )
