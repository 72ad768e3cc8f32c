"""ScienceWorld's picture: rooms, doors, objects and the agent."""

from __future__ import annotations

import re
from typing import Any

from speedrunner.pages.rooms import draw_rooms

EVIL = '<script>"&\u202e'


def house(**changes: Any) -> dict[str, Any]:
    return {
        "room": "kitchen",
        "rooms": {"hall": ["picture"], "kitchen": ["sink", "bowl (apple)"], "garden": []},
        "doors": [["kitchen", "hall", True], ["garden", "kitchen", False]],
        "inventory": ["orange"],
    } | changes


def test_each_room_is_a_box_with_its_objects_and_each_door_a_line() -> None:
    picture = draw_rooms(house())
    drawn = picture.draw()
    assert re.findall(r'class="name">([^<]+)<', drawn) == ["kitchen", "garden", "hall"]
    assert drawn.count("<rect") == 3
    assert (drawn.count('<path class="open"'), drawn.count('<path class="closed"')) == (1, 1)
    assert "In the kitchen: sink and bowl (apple)." in drawn
    assert "The agent carries orange." in drawn


def test_only_the_agent_s_room_is_marked() -> None:
    boxes = [part for part in draw_rooms(house()).parts if "<rect" in part]
    assert [("here" in box, "<circle" in box) for box in boxes].count((True, True)) == 1
    assert draw_rooms(house()).label == (
        "3 rooms. The agent is in the kitchen and carries orange. There: sink and bowl (apple). "
        "Open doors: kitchen and hall."
    )


def test_rooms_keep_their_places_when_the_agent_moves_and_doors_open() -> None:
    moved = house(room="hall", doors=[["kitchen", "hall", True], ["garden", "kitchen", True]])
    assert draw_rooms(house()).places == draw_rooms(moved).places


def test_boxes_do_not_overlap() -> None:
    rooms = {f"room {number}": [] for number in range(12)}
    doors = [["room 0", f"room {number}", False] for number in range(1, 9)]
    places = draw_rooms(house(rooms=rooms, doors=doors, room="room 3")).places[1:-1]
    assert len(set(places)) == 12


def test_names_of_objects_stay_text() -> None:
    drawn = draw_rooms(house(rooms={"kitchen": [EVIL]}, doors=[], inventory=[EVIL])).draw()
    assert "<script>" not in drawn
    assert "\u202e" not in drawn
