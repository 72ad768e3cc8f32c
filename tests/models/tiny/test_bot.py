"""The actor's teacher: what it does follows from what is told alone, and solves nearly everything."""

from __future__ import annotations

import pytest

from envs import Task
from envs.babyai import TASKS, BabyAI
from models.tiny.teachers.bot import SkillUse, Teacher
from serving.tokens.tools import ToolCall, ToolSpec


@pytest.mark.parametrize(
    ("told", "thought", "action"),
    [
        ("a red ball 1 step forward", "pick up the red ball. a red ball 1 step forward.", "pick_up"),
        ("a red ball 3 steps forward", "pick up the red ball. a red ball 3 steps forward.", "go_forward"),
        ("a red ball 2 steps left", "pick up the red ball. a red ball 2 steps left.", "turn_left"),
        ("a wall 1 step left", "pick up the red ball. not in sight 1.", "turn_right"),
        (
            "You carry a red ball\na blue key 1 step right",
            "go to the blue key. a blue key 1 step right.",
            "turn_right",
        ),
        ("You carry a grey box", "drop the grey box.", "drop"),
        ("You carry a grey box\na wall 1 step forward", "drop the grey box.", "turn_right"),
    ],
)
def test_it_says_what_it_goes_by_and_acts_on_it(told: str, thought: str, action: str) -> None:
    teacher = Teacher("pick up the red ball, then go to the blue key")
    assert teacher.turn(told) == (thought, ToolCall(action, {}))


def tool(name: str, *parameters: str) -> ToolSpec:
    properties = {each: {"type": "string"} for each in parameters}
    return ToolSpec(name, "", {"type": "object", "properties": properties, "required": [*parameters]})


def test_the_skill_for_all_comes_before_those_for_parts_and_these_before_primitives() -> None:
    mission = "pick up the red ball, then go to the blue key"
    skills = [
        SkillUse(tool("solve", "mission")),
        SkillUse(tool("fetch", "what"), verb="pick up"),
        SkillUse(tool("reach", "what"), verb="go to"),
    ]
    teacher = Teacher(mission, skills)
    assert teacher.turn("") == ("use a skill: all of it.", ToolCall("solve", {"mission": mission}))
    then = teacher.turn("Error: ValueError: no")
    assert then == ("use a skill: pick up the red ball.", ToolCall("fetch", {"what": "red ball"}))
    then = teacher.turn("You carry a red ball")
    assert then == ("use a skill: go to the blue key.", ToolCall("reach", {"what": "blue key"}))
    assert teacher.turn("You carry a red ball\na wall 3 steps left")[1] == ToolCall("turn_right", {})


def test_it_solves_worlds() -> None:
    env = BabyAI()
    solved = 0
    for index in range(200_000, 200_050):
        opening = env.reset(Task(env.name, TASKS[0], index))
        teacher, told = Teacher(opening.instruction), opening.observation
        while not env.done:
            told = env.call(teacher.turn(told)[1].name)
        solved += env.outcome().success
    assert solved >= 48
