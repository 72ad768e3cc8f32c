"""The BabyAI level that BALROG plays, rebuilt on upstream MiniGrid, world for world.

BALROG's BabyAI tasks are the five action kinds of one level that upstream MiniGrid lacks: `MixedTrainLocal`
of the BabyAI-Text fork of MiniGrid 2.3.1, commit cf73dd148e51, which balrog-ai/BALROG uses at commit
af7d1f17e0de. The rest is minigrid 3.2.0 (Farama-Foundation/Minigrid),
`minigrid/envs/babyai/core/roomgrid_level.py` and `minigrid/core/roomgrid.py`. A seed gives the same world
here and there, so the order of all random draws is part of this module's contract.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import Any

from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from envs.babyai_text import describe

ROOM_SIZE = 8
DOOR_COLORS = ("yellow", "green", "blue", "purple")
HELD_OUT_PHRASES = ("yellow box", "red key", "red door", "green ball", "grey door")
"""Missions with these words never occur (the level's authors kept them for tests of generalisation)."""


class MixedLevel(RoomGridLevel):
    """One task of the mixed level: a single room, or for `open` two rooms with a locked door between them.

    Args:
        kind: `goto`, `pickup`, `open`, `putnext` or `pick_up_seq_go_to`.
        num_dists: objects beyond those that the mission needs.
    """

    def __init__(self, kind: str, num_dists: int) -> None:
        self.kind = kind
        self.num_dists = num_dists
        super().__init__(room_size=ROOM_SIZE, num_rows=1, num_cols=2 if kind == "open" else 1)

    def gen_obs(self) -> dict[str, Any]:
        """Return MiniGrid's observation with its description under `text`."""
        observation: dict[str, Any] = super().gen_obs()
        return observation | {"text": describe(observation["image"])}

    def _gen_grid(self, width: int, height: int) -> None:
        """Build worlds until one is accepted. Unlike upstream, this prints nothing about rejections."""
        while True:
            try:
                # gen_mission builds the rooms once more, as in the original, where each build draws a door's
                # place.
                RoomGrid._gen_grid(self, width, height)
                self.gen_mission()
                self.validate_instrs(self.instrs)
                break
            except (RejectSampling, RecursionError):  # RecursionError: upstream found no place for an object
                continue
        self.mission = self.instrs.surface(self)

    def gen_mission(self) -> None:
        """Draw worlds with a mission until all objects can be reached and the mission is allowed."""
        self._rand_elem([self.kind])  # the original draws its kind from a list of one
        while True:
            RoomGrid._gen_grid(self, self.width, self.height)
            self.instrs = self._draw_mission()
            mission = self.instrs.surface(self)
            if self.check_objs_reachable(raise_exc=False) and not any(p in mission for p in HELD_OUT_PHRASES):
                return

    def _draw_mission(self) -> Instr:
        if self.kind == "goto":
            return GoToInstr(_description(self._rand_elem(self._furnish(1))))
        if self.kind == "pickup":
            return PickupInstr(_description(self._rand_elem(self._furnish(1))))
        if self.kind == "open":
            return self._draw_open()
        first, second = self._draw_pair(self._furnish(2))
        if self.kind == "putnext":
            return PutNextInstr(first, second)
        pick_up, go_to = PickupInstr(first), GoToInstr(second)
        if self._rand_elem(["Before", "After"]) == "Before":
            return BeforeInstr(pick_up, go_to)
        return AfterInstr(go_to, pick_up)

    def _furnish(self, needed: int) -> list[WorldObj]:
        """Place the agent, then the objects, in the one room."""
        self.place_agent()
        return self.add_distractors(num_distractors=self.num_dists + needed, all_unique=False)

    def _draw_pair(self, objects: list[WorldObj]) -> tuple[ObjDesc, ObjDesc]:
        """Draw two objects; their descriptions are equal only if two objects match them."""
        first, second = self._rand_elem(objects), self._rand_elem(objects)
        alike = sum(_look(each) == _look(first) for each in objects)
        while alike < 2 and _look(second) == _look(first):
            second = self._rand_elem(objects)
        return _description(first), _description(second)

    def _draw_open(self) -> Instr:
        """Lock one of the two rooms, and put its key, the other objects and the agent into the other room."""
        color = self._rand_elem(DOOR_COLORS)
        while True:
            column, row = self._draw_room()
            side = self._rand_int(0, 4)
            locked_room = self.get_room(column, row)
            if locked_room.neighbors[side] is not None:
                break
        self.add_door(column, row, side, color, locked=True)

        while True:
            column, row = self._draw_room()
            if self.get_room(column, row) is not locked_room:
                break
        self.add_object(column, row, "key", color)
        self.add_distractors(column, row, num_distractors=self.num_dists, all_unique=False)

        while True:
            self.place_agent()
            if self.room_from_pos(*self.agent_pos) is not locked_room:
                break
        return OpenInstr(ObjDesc("door", self._rand_elem([None, color])))

    def _draw_room(self) -> tuple[int, int]:
        return self._rand_int(0, self.num_cols), self._rand_int(0, self.num_rows)


def _look(thing: WorldObj) -> tuple[str, str]:
    return thing.type, thing.color


def _description(thing: WorldObj) -> ObjDesc:
    return ObjDesc(*_look(thing))
