"""The BabyAI level that BALROG plays, rebuilt on upstream MiniGrid, world for world and word for word.

BALROG's `pick_up_seq_go_to` is one action kind of a level that upstream MiniGrid lacks: `MixedTrainLocal` of
the BabyAI-Text fork of MiniGrid 2.3.1, commit cf73dd148e51, which balrog-ai/BALROG uses at commit
af7d1f17e0de. The rest is minigrid 3.2.0 (Farama-Foundation/Minigrid),
`minigrid/envs/babyai/core/roomgrid_level.py` and `minigrid/core/roomgrid.py`. A seed gives the same world
here and there, so the order of all random draws is part of this module's contract. The view in words follows
that fork's descriptions, joined as by BALROG's BabyAI wrapper.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX
from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    PickupInstr,
)
from numpy.typing import NDArray

from envs.text_env import describe_offset, steps

ROOM_SIZE = 8
HELD_OUT_PHRASES = ("yellow box", "red key", "red door", "green ball", "grey door")
"""Missions with these words never occur (the level's authors kept them for tests of generalisation)."""

UNSEEN, EMPTY, WALL = (OBJECT_TO_IDX[name] for name in ("unseen", "empty", "wall"))


class MixedLevel(RoomGridLevel):
    """The task `pick_up_seq_go_to` of the mixed level: a single room.

    Args:
        num_dists: objects beyond the two that the mission needs.
    """

    def __init__(self, num_dists: int) -> None:
        self.num_dists = num_dists
        super().__init__(room_size=ROOM_SIZE, num_rows=1, num_cols=1)

    def gen_obs(self) -> dict[str, Any]:
        """Return MiniGrid's observation with its description under `text`."""
        observation: dict[str, Any] = super().gen_obs()
        return observation | {"text": describe(observation["image"])}

    def _gen_grid(self, width: int, height: int) -> None:
        """Build worlds until one is accepted. Unlike upstream, this prints nothing about rejections."""
        while True:
            try:
                self.gen_mission()
                self.validate_instrs(self.instrs)
                break
            except (RejectSampling, RecursionError):  # RecursionError: upstream found no place for an object
                continue
        self.mission = self.instrs.surface(self)

    def gen_mission(self) -> None:
        """Draw worlds with a mission until all objects can be reached and the mission is allowed."""
        self._rand_elem(["pick_up_seq_go_to"])  # the original draws its kind from a list of one
        while True:
            RoomGrid._gen_grid(self, self.width, self.height)
            self.instrs = self._draw_mission()
            mission = self.instrs.surface(self)
            if self.check_objs_reachable(raise_exc=False) and not any(p in mission for p in HELD_OUT_PHRASES):
                return

    def _draw_mission(self) -> Instr:
        """Place the agent and the objects, and draw two of them."""
        self.place_agent()
        objects = self.add_distractors(num_distractors=self.num_dists + 2, all_unique=False)
        first, second = self._draw_pair(objects)
        pick_up, go_to = PickupInstr(first), GoToInstr(second)
        if self._rand_elem(["Before", "After"]) == "Before":
            return BeforeInstr(pick_up, go_to)
        return AfterInstr(go_to, pick_up)

    def _draw_pair(self, objects: list[WorldObj]) -> tuple[ObjDesc, ObjDesc]:
        """Draw two objects; their descriptions are equal only if two objects match them."""
        first, second = self._rand_elem(objects), self._rand_elem(objects)
        alike = sum(_look(thing) == _look(first) for thing in objects)
        while alike < 2 and _look(second) == _look(first):
            second = self._rand_elem(objects)
        return ObjDesc(*_look(first)), ObjDesc(*_look(second))


def _look(thing: WorldObj) -> tuple[str, str]:
    return thing.type, thing.color


def describe(view: NDArray[np.uint8]) -> str:
    """Describe what the agent carries and sees, one thing per line, as BALROG's BabyAI-Text does.

    Args:
        view: MiniGrid's encoded view, `view[column, row] = (type, color, state)`. The agent is in the middle
            of the last row and looks towards row 0; its own cell has what it carries.
    """
    columns, rows, _ = view.shape
    own = columns // 2, rows - 1
    lines = []
    if view[own][0] != EMPTY:
        lines.append(f"You carry a {_name(view[own])}")

    ahead = view[own[0], own[1] - 1 :: -1, 0]
    left = view[own[0] - 1 :: -1, own[1], 0]
    right = view[own[0] + 1 :, own[1], 0]
    for direction, cells in (("forward", ahead), ("left", left), ("right", right)):
        occupied = np.flatnonzero((cells != UNSEEN) & (cells != EMPTY))
        if occupied.size and cells[occupied[0]] == WALL:
            lines.append(f"a wall {steps(int(occupied[0]) + 1, direction)}")

    for column, row in np.ndindex(columns, rows):
        if (column, row) == own or view[column, row, 0] in (UNSEEN, EMPTY, WALL):
            continue
        offset = describe_offset((column - own[0], "right", "left"), (own[1] - row, "forward", ""))
        lines.append(f"a {_name(view[column, row])} {offset}")
    return "\n".join(lines)


def _name(cell: NDArray[np.uint8]) -> str:
    kind, color, _ = (int(number) for number in cell)
    return f"{IDX_TO_COLOR[color]} {IDX_TO_OBJECT[kind]}"
