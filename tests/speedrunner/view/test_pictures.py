"""What pictures of worlds show. Whether they are pleasant is for people to see."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

import envs
from envs import Task
from speedrunner.view.pictures import PICTURED, SYMBOLS, picture

EVIL = '<script>"&\u202e'


@pytest.fixture(scope="module")
def crafter() -> dict[str, Any]:
    """The first moment of a world."""
    env = envs.make("crafter")
    env.reset(Task("crafter", "default", 5))
    return env.snapshot() or {}


def grid(**changes: Any) -> dict[str, Any]:
    return {
        "width": 8, "height": 8, "agent_pos": [2, 3], "agent_dir": 0, "carrying": None, "objects": [],
    } | changes  # fmt: skip


def told(env: str, snapshot: dict[str, Any]) -> str:
    """What a screen reader says of a picture, which is well-formed and has all shapes that it refers to."""
    drawn = picture(env, snapshot)
    root = ElementTree.fromstring(drawn)
    shapes = set(re.findall(r'id="([\w-]+)"', SYMBOLS))
    assert set(re.findall(r'href="#([^"]*)"', drawn)) <= shapes
    assert " style=" not in drawn + SYMBOLS
    assert root.get("role") == "img"
    return root.get("aria-label") or ""


def used(drawn: str) -> list[str]:
    return re.findall(r'href="#w-([\w-]+)"', drawn)


def test_the_symbols_are_well_formed_and_hidden_from_readers() -> None:
    root = ElementTree.fromstring(SYMBOLS)
    assert root.get("aria-hidden") == "true"
    names = [each.get("id") for each in root]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", sorted(PICTURED))
def test_a_snapshot_of_each_environment_has_a_picture(name: str) -> None:
    env = envs.make(name)
    for index in range(3):
        env.reset(envs.splits(name).train[index])
        assert told(name, env.snapshot() or {})


class TestBabyAI:
    def test_it_says_what_is_where_and_what_is_carried(self) -> None:
        things = [
            {"type": "ball", "color": "red", "pos": [3, 4]},
            {"type": "door", "color": "blue", "pos": [7, 2], "open": False, "locked": True},
        ]
        seen = grid(objects=things, agent_dir=3, carrying=["key", "blue"])
        assert told("babyai", seen) == (
            "A grid of 8 by 8 cells. The agent in column 2, row 3 looks north and carries a blue key. There "
            "is a red ball in column 3, row 4 and a locked blue door in column 7, row 2."
        )
        assert used(picture("babyai", seen)) == ["ball", "door-locked", "agent", "key"]
        assert "rotate(270 25 35)" in picture("babyai", seen)

    def test_a_wall_parts_two_rooms(self) -> None:
        assert "M5.0 0v80M75.0 0v80M145.0 0v80" in picture("babyai", grid(width=15))

    def test_colors_of_equal_shapes_have_letters(self) -> None:
        balls = [{"type": "ball", "color": color, "pos": [1, 1]} for color in ("red", "green", "grey")]
        assert re.findall(r">(\w)</text>", picture("babyai", grid(objects=balls))) == ["R", "G"]

    def test_an_unknown_thing_is_its_first_letter(self) -> None:
        lamp = {"type": EVIL, "color": EVIL, "pos": [1, 1]}
        seen = grid(objects=[lamp], carrying=[EVIL, EVIL])
        assert '<script>"&\\u202e <script>"&\\u202e in column 1' in told("babyai", seen)
        assert ">&lt;</text>" in picture("babyai", seen)


class TestCrafter:
    def test_it_says_what_is_faced_had_and_seen(self, crafter: dict[str, Any]) -> None:
        seen = crafter | {"window": ["grass,tree,out", "cow,player,water", "grass,grass,grass"]}
        seen |= {"facing": [1, 0], "facing_target": "water", "inventory": {"wood": 2}, "food": 4}
        assert told("crafter", seen) == (
            "Crafter by day, step 0. The player stands, facing water in the east, with 2 wood; health 9, "
            "food 4, drink 9 and energy 9 of 9. In sight: grass, tree, cow and water."
        )
        assert used(picture("crafter", seen)) == [
            *("grass", "out", "grass", "water", "grass"),  # a run of equal ground is one
            *("tree", "cow", "player", "wood"),
        ]

    def test_night_sleep_and_death(self, crafter: dict[str, Any]) -> None:
        night = crafter | {"daylight": 0.0, "sleeping": True}
        assert told("crafter", night).startswith("Crafter by night, step 0. The player sleeps")
        assert 'opacity="0.6"' in picture("crafter", night)
        assert {"moon", "asleep"} <= set(used(picture("crafter", night)))
        assert "The player is dead" in told("crafter", crafter | {"health": 0})

    def test_a_full_inventory_and_what_nobody_knows(self, crafter: dict[str, Any]) -> None:
        tools = [f"{metal}_{tool}" for metal in ("wood", "stone", "iron") for tool in ("pickaxe", "sword")]
        items = ["sapling", "wood", "stone", "coal", "iron", "diamond", *tools, EVIL]
        seen = crafter | {"inventory": dict.fromkeys(items, 9), "facing_target": EVIL}
        seen["window"] = [f"{EVIL},grass,dragon", "grass,player,grass", "out,out,out"]
        assert "dragon" in told("crafter", seen)
        assert re.findall(r">(\D)</text>|>(&lt;)</text>", picture("crafter", seen)) == [
            ("", "&lt;"), ("D", ""), ("", "&lt;"),
        ]  # fmt: skip

    def test_it_is_small(self, crafter: dict[str, Any]) -> None:
        names = ("grass", "sand", "water", "tree", "coal", "path", "stone", "zombie", "lava")
        rows = [",".join(names[column % 9] for column in range(row, row + 9)) for row in range(9)]
        assert len(picture("crafter", crafter)) < 3_000
        assert len(picture("crafter", crafter | {"window": rows})) < 7_000  # where no two are equal
