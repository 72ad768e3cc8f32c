"""BabyAI-Text: an agent's view of the grid, in words.

Follows the descriptions of the BabyAI-Text fork of MiniGrid 2.3.1, commit cf73dd148e51, joined as by the
BabyAI wrapper of balrog-ai/BALROG, commit af7d1f17e0de.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX, STATE_TO_IDX
from numpy.typing import NDArray

from envs.text_env import steps

UNSEEN, EMPTY, WALL, DOOR = (OBJECT_TO_IDX[name] for name in ("unseen", "empty", "wall", "door"))
DOOR_STATES = {number: name for name, number in STATE_TO_IDX.items()}


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
        offsets = []
        if column != own[0]:
            offsets.append(steps(abs(column - own[0]), "left" if column < own[0] else "right"))
        if row != own[1]:
            offsets.append(steps(own[1] - row, "forward"))
        lines.append(f"a {_name(view[column, row])} {' and '.join(offsets)}")
    return "\n".join(lines)


def _name(cell: NDArray[np.uint8]) -> str:
    kind, color, state = (int(number) for number in cell)
    words: list[Any] = [IDX_TO_COLOR[color], IDX_TO_OBJECT[kind]]
    if kind == DOOR:
        words.insert(0, DOOR_STATES[state])
    return " ".join(words)
