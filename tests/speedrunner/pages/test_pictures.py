"""Pictures of worlds: their parts, tiles and descriptions. Whether they are pleasant is for people to see."""

from __future__ import annotations

import base64
from typing import Any
from xml.etree import ElementTree

import pytest

import envs
from envs import Task
from envs.crafter import Crafter
from speedrunner.pages.pictures import Picture, draw_babyai, draw_crafter, tile_image

EVIL = '<script>"&\u202e'


@pytest.fixture(scope="module")
def crafter() -> tuple[dict[str, Any], list[list[str]]]:
    """Snapshot and textures of a world's first moment."""
    env = envs.make("crafter")
    env.reset(Task("crafter", "default", 5))
    assert isinstance(env, Crafter)
    return env.snapshot() or {}, env.textures()


def grid(**changes: Any) -> dict[str, Any]:
    return {
        "width": 8, "height": 8, "agent_pos": [2, 3], "agent_dir": 0, "carrying": None, "objects": [],
    } | changes  # fmt: skip


def describe(picture: Picture) -> str:
    """Return what a screen reader says. The picture is well-formed and has no style attribute."""
    drawn = picture.draw()
    root = ElementTree.fromstring(drawn)
    assert " style=" not in drawn
    assert root.get("role") == "img"
    assert len(root) == len(picture.parts) == len(picture.places)
    return root.get("aria-label") or ""


class TestBabyAI:
    def test_the_label_says_what_is_where_and_what_is_carried(self) -> None:
        things = [
            {"type": "ball", "color": "red", "pos": [3, 4]},
            {"type": "door", "color": "blue", "pos": [7, 2], "open": False, "locked": True},
        ]
        picture = draw_babyai(grid(objects=things, agent_dir=3, carrying=["key", "blue"]))
        assert describe(picture) == (
            "A grid of 8 by 8 cells. The agent in column 2, row 3 looks north and carries a blue key."
        )
        assert picture.tiles == {
            *("wall-grey", "floor", "ball-red", "door-blue-locked", "floor.agent-3", "key-blue"),
        }


class TestCrafter:
    def test_the_label_says_what_is_faced_had_and_seen(self, crafter: tuple[dict[str, Any], Any]) -> None:
        seen = crafter[0] | {"window": ["grass,tree,out", "cow,player,water", "grass,grass,grass"]}
        seen |= {"facing": [1, 0], "facing_target": "water", "inventory": {"wood": 2}, "food": 4}
        textures = [["grass", "tree", "out"], ["grass.cow", "grass.player-right", "water"], ["grass"] * 3]
        picture = draw_crafter(seen, textures)
        assert describe(picture) == (
            "Crafter by day, step 0. The player stands, facing water in the east, with 2 wood; health 9, "
            "food 4, drink 9 and energy 9 of 9."
        )
        assert {"grass.cow", "grass.player-right", "health", "food", "wood"} <= picture.tiles

    def test_text_from_the_world_stays_text(self, crafter: tuple[dict[str, Any], Any]) -> None:
        picture = draw_crafter(crafter[0] | {"facing_target": EVIL, "inventory": {EVIL: 1}}, crafter[1])
        assert '<script>"&\\u202e in the' in describe(picture)


class TestTiles:
    @pytest.mark.parametrize(
        ("env", "name"),
        [
            *(("babyai", name) for name in ("floor", "wall-grey", "box-purple", "door-red-open.agent-2")),
            *(("crafter", name) for name in ("grass", "grass.cow", "out", "path.arrow-up", "iron_pickaxe")),
        ],
    )
    def test_a_tile_is_the_library_s_image(self, env: str, name: str) -> None:
        kind, _, content = tile_image(env, name).partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content).startswith(b"\x89PNG")
        assert len(content) < 2_000
