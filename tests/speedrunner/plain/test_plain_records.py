"""Plain data, made into records."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pytest

from speedrunner.plain.plain_records import WrongData, keys_of, record, unknown_key
from tests.golden_tables import Golden, refusals


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


WRONG: list[Any] = [
    *(3, {}, {"wheels": {}}, {"wheels": [{"spokes": 3}, {"spokes": 0}]}, {"wheels": [{}]}),
    *(
        {"wheels": [{"spoks": 3}]},
        {"wheels": [], "bell": None},
        {"wheels": [], "bell": {"loud": float("inf")}},
    ),
    *({"wheels": [], "notes": {"a": [1]}}, {"wheels": [], "loud": 3}, {"wheels": [], 3: 4}),
    {"wheels": [{"spokes": 0}, {"kind": "top"}], "bell": 1},
]


def test_what_is_wrong_is_told_with_its_place_and_what_is_allowed(golden: Golden) -> None:
    tries = [(content, partial(record, Bicycle, content)) for content in WRONG]
    golden("records.txt", refusals(tries, WrongData))


def test_a_mapping_s_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(WrongData, match="Expected str"):
        record(Bicycle, {"wheels": [], "notes": {3: 1}})


def test_keys_are_those_of_the_records_within_too() -> None:
    assert keys_of(Bicycle) == ["wheels", "bell.loud", "notes"]
    assert unknown_key("bell.lod", "x y", keys_of(Bicycle)) == (
        "unknown key `bell.lod` (=x y). Did you mean `bell.loud`?"
    )
