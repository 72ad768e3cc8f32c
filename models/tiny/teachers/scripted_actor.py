"""Scripted BabyAI actors for recorded sleeps: the bot, with a given rate of errors."""

from __future__ import annotations

import random
from collections.abc import Collection

from models.tiny.teachers.bot import SkillUse, Teacher, goals
from models.tiny.teachers.scripted_inducer import Work
from speedrunner.methods import ToolCall, ToolSpec

STRAY = ("go_forward", "go_forward", "go_forward", "turn_left", "turn_right", "pick_up")

SLIPS = 0.07
"""Share of skill calls with a shortened mission or a random thing as argument, if ability is below 1."""


def _skill(name: str, parameter: str, *, whole: bool = False, verb: str = "") -> SkillUse:
    return SkillUse(ToolSpec(name, "", {"properties": {parameter: {"type": "string"}}}), whole, verb)


SKILLS = (
    _skill("solve_mission", "mission", whole=True),
    _skill("pick_up_thing", "thing", verb="pick up"),
    _skill("go_to_thing", "thing", verb="go to"),
)
"""Skills that the scripted inducer writes, best first."""


def player(task: str, tools: Collection[str], rng: random.Random, ability: float) -> Work:
    """Play one episode.

    Args:
        task: the first user message.
        tools: names of the available tools.
        ability: share of primitive calls that follow the bot, from 0 to 1. With 1, skill calls also get the
            right arguments.
    """
    mission, _, told = task.partition("\n\n")
    mission = mission.removeprefix("Your task: ")
    teacher = Teacher(mission, [skill for skill in SKILLS if skill.tool.name in tools])
    slips = SLIPS if ability < 1 else 0.0
    while True:
        thought, call = teacher.turn(told)
        if not call.arguments and rng.random() >= ability:
            call = ToolCall(rng.choice(STRAY), {})
        elif call.arguments and rng.random() < slips:
            wrong = {
                "mission": mission.split(",")[0].split(" after")[0],
                "thing": rng.choice(goals(mission)).thing,
            }
            call = ToolCall(call.name, {name: wrong[name] for name in call.arguments})
        told = yield thought, call
