"""A simple player of BabyAI, as a script for an actor and as skills: it walks straight to what it sees."""

from __future__ import annotations

import re

from tests.scripted_engine import Answer, Request, call


def next_step(thing: str, observation: str) -> str:
    """Choose the action that leads to a thing such as "red ball"; "" when it is right ahead."""
    seen = re.search(
        rf"{thing} (?:(\d+) steps? (left|right))?(?: and )?(?:(\d+) steps? forward)?", observation
    )
    blocked = re.search(r"(wall|box|ball|key) 1 step forward", observation) is not None
    if seen is None or (seen[1] is None and seen[3] is None):
        return "turn_right" if blocked else "go_forward"
    ahead = int(seen[3] or 0)
    if seen[1] is None:
        return "" if ahead == 1 else "go_forward"
    return "go_forward" if ahead > 0 and not blocked else f"turn_{seen[2]}"


def play(request: Request) -> Answer:
    """The next call of an actor whose mission is to pick up one thing and to go to another."""
    mission = request.task.partition("\n")[0]
    first, then = (
        re.search(rf"{what} (?:the|a) (\w+ \w+)", mission)[1]  # type: ignore[index]
        for what in ("pick up", "go to")
    )
    carries = f"You carry a {first}" in request.last
    target = then if carries else first
    step = next_step(target, request.last)
    if not carries and step == "":
        return call("pick_up")
    return call("approach", thing=target) if "approach" in request.tools else call(step or "go_forward")
