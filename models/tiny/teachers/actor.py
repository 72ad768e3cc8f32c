"""Scripted actors of BabyAI for the sleeps' records: with primitives as well as they are able to, and with
skills where there are some, the one for the whole mission before the others."""

from __future__ import annotations

import random
import re
from collections.abc import Collection

from models.tiny.teachers.inducer import Work
from serving.tokens.tools import ToolCall

STRAY = ("go_forward", "go_forward", "go_forward", "turn_left", "turn_right", "pick_up")


def player(task: str, tools: Collection[str], rng: random.Random, ability: float) -> Work:
    """Play one episode.

    Args:
        task: the first message.
        tools: names of those that there are.
        ability: share of primitives that are well chosen, from 0 to 1; with 1, no skill is forgotten or given
            a wrong argument either.
    """
    mission, _, said = task.partition("\n\n")
    mission = mission.removeprefix("Your task: ")
    parts = mission.split(" after you ")[::-1] if " after you " in mission else mission.split(", then ")
    first, last = (" ".join(part.split()[-2:]) for part in parts)
    slips = 0.05 if ability < 1 else 0.0
    routines, whole, turns = 0, "solve_mission" in tools, 0
    while True:
        target, routine = (
            (last, "go_to_thing") if f"You carry a {first}" in said else (first, "pick_up_thing")
        )
        seen = re.search(rf"a {target} (?:(\d) steps? (left|right)(?: and )?)?(?:(\d) steps? forward)?", said)
        goal = f"{'go to' if target == last else 'pick up'} the {target}."
        if whole and rng.random() >= slips:
            whole = False
            told = mission if rng.random() >= slips else mission.split(",")[0].split(" after")[0]
            said = yield f"{mission}.", ToolCall("solve_mission", {"mission": told})
        elif routine in tools and routines < 4 and (routines == 0 or seen) and rng.random() >= 2 * slips:
            routines += 1
            thing = target if rng.random() >= slips else rng.choice((first, last))
            said = yield goal, ToolCall(routine, {"thing": thing})
            routines -= said.startswith("You carry")
        else:
            turns = 0 if seen else turns + 1
            move = _move(said, seen, target == first, turns) if rng.random() < ability else rng.choice(STRAY)
            thought = f"{goal} {seen[0].strip() if seen else 'not in sight'}."
            said = yield thought, ToolCall(move, {})


def _move(said: str, seen: re.Match[str] | None, takes: bool, turns: int) -> str:
    """The next step towards what is seen, or to where it may be."""
    blocked = re.search(r"(?:key|ball|box|wall) 1 step forward", said)
    if "You carry" in said and takes:
        return "drop"
    if seen is None:
        return "go_forward" if turns % 5 == 4 and not blocked else "turn_right"
    side, way, ahead = seen[1], seen[2], int(seen[3] or 0)
    if not side and ahead == 1:
        return "pick_up" if takes else "turn_left"
    if ahead and not blocked:
        return "go_forward"
    return f"turn_{way or 'left'}"
