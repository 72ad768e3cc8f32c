"""The actor's teacher on BabyAI. It decides thoughts and calls only from texts that the actor reads.

It takes the shortest path to a thing in view and searches for a thing that is not. `player` makes errors.

Its skill libraries have varied names and wordings and known uses. The skills' bodies never run. The actor
sees only a skill's tool and its reply, so the teacher plays the skill's actions (`actor_examples.episodes`).
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from envs import TextEnv
from speedrunner.methods import ActorSpec, Library, Policy, Skill, ToolCall, ToolSpec

THING = r"(\w+ (?:key|ball|box))"
LOOKS, WALKS = 3, 2
"""Search for a thing out of view: this many turns to look around, then this many steps to another place."""

Cell = tuple[int, int]

Work = Generator[tuple[str, ToolCall], str, None]
"""An agent's program: yields thoughts and calls, and receives the reply to each call."""


@dataclass(frozen=True)
class Seen:
    """A parsed observation. Cells are (steps to the right, steps ahead) relative to the actor.

    Attributes:
        carried: name of the carried thing.
        things: name, cell and line of each visible thing, in the order of the lines.
        walls: distance to the wall by direction (`forward`, `left`, `right`), for walls that are listed.
    """

    carried: str | None
    things: list[tuple[str, Cell, str]]
    walls: dict[str, int]

    @classmethod
    def read(cls, text: str) -> Seen:
        """Parse the observation at the end of a text."""
        things, walls, carried = [], {}, None
        for line in text.split("\n"):
            if found := re.fullmatch(rf"You carry an? {THING}", line):
                carried = found[1]
            elif found := re.fullmatch(r"a wall (\d+) steps? (\w+)", line):
                walls[found[2]] = int(found[1])
            elif found := re.fullmatch(rf"a {THING} ((?:\d+ steps? \w+(?: and )?)+)", line):
                away = {way: int(n) for n, way in re.findall(r"(\d+) steps? (\w+)", found[2])}
                cell = away.get("right", 0) - away.get("left", 0), away.get("forward", 0)
                things.append((found[1], cell, line))
        return cls(carried, things, walls)

    def free(self, cell: Cell) -> bool:
        """Return whether a cell looks free in this observation."""
        right, ahead = cell
        between = -self.walls.get("left", 99) < right < self.walls.get("right", 99)
        before = ahead < self.walls.get("forward", 99)
        return between and before and all(cell != at for _, at, _ in self.things)

    def action_towards(self, target: Cell) -> str | None:
        """Return the first action of a shortest path to face a cell; `None` if it is faced or unreachable."""
        start = (0, 0), (0, 1)
        queue, first = deque([start]), {start: ""}
        while queue:
            state = (x, y), (fx, fy) = queue.popleft()
            ahead = x + fx, y + fy
            if ahead == target:
                return first[state] or None
            moves: list[tuple[str, tuple[Cell, Cell]]] = []
            if self.free(ahead) and abs(x) + abs(y) < 12:
                moves.append(("go_forward", (ahead, (fx, fy))))
            moves += [("turn_left", ((x, y), (-fy, fx))), ("turn_right", ((x, y), (fy, -fx)))]
            for action, then in moves:
                if then not in first:
                    first[then] = first[state] or action
                    queue.append(then)
        return None


@dataclass(frozen=True)
class Goal:
    """One part of a mission."""

    verb: str
    thing: str

    def __str__(self) -> str:
        return f"{self.verb} the {self.thing}"


def goals(mission: str) -> list[Goal]:
    """Return the parts of a mission in the required order."""
    parts = [Goal(verb, thing) for verb, thing in re.findall(rf"(pick up|go to) (?:the|a) {THING}", mission)]
    return parts[::-1] if " after you " in mission else parts


@dataclass(frozen=True)
class SkillUse:
    """The use of a skill. The teacher knows it; the model has to infer it from the tool's text.

    Attributes:
        tool: the skill's tool.
        verb: the verb of the parts that it solves; empty if it solves the whole mission.
    """

    tool: ToolSpec
    verb: str = ""

    def part(self, goal: Goal) -> str:
        """Return the part of the mission that it solves; empty for the whole mission."""
        return str(goal) if self.verb else ""


@dataclass
class Teacher:
    """Plays one episode.

    Args:
        mission: the episode's instruction.
        skills: useful skills among the actor's tools, best first.
    """

    mission: str
    skills: Sequence[SkillUse] = ()
    _unseen: int = 0
    _tried: set[tuple[str, str]] = field(default_factory=set)

    def turn(self, told: str) -> tuple[str, ToolCall]:
        """Return the thought and the call that answer the last text."""
        seen = Seen.read(told)
        goal, second = goals(self.mission)
        other = seen.carried not in (None, goal.thing)  # another thing is carried: it is dropped first
        goal = second if seen.carried == goal.thing else goal
        faced = any(name == goal.thing and cell == (0, 1) for name, cell, _ in seen.things)
        if not other and not faced and (use := self._skill(goal)) is not None:
            self._tried.add((use.tool.name, use.part(goal)))
            thought = f"use a skill: {use.part(goal) or 'all of it'}."
            return thought, ToolCall(use.tool.name, self._arguments(use, goal))
        if other:
            return f"drop the {seen.carried}.", ToolCall("drop" if seen.free((0, 1)) else "turn_right", {})
        return self.by_hand(seen, goal)

    def _skill(self, goal: Goal) -> SkillUse | None:
        """Return the best skill that was not tried for this part yet."""
        verbs = {use.verb for use in self.skills}
        for use in self.skills:
            fits = use.verb in ("", goal.verb) or (use.verb == "go to" and "pick up" not in verbs)
            if fits and (use.tool.name, use.part(goal)) not in self._tried:
                return use
        return None

    def _arguments(self, use: SkillUse, goal: Goal) -> dict[str, str]:
        names = list(use.tool.parameters["properties"])
        values = [goal.thing] if use.verb else [part.thing for part in goals(self.mission)]
        if not use.verb and len(names) == 1:
            values = [self.mission]
        return dict(zip(names, values, strict=bool(names)))

    def by_hand(self, seen: Seen, goal: Goal) -> tuple[str, ToolCall]:
        """Return the thought and the call for one part of the mission, using primitives only."""
        found = next((thing for thing in seen.things if thing[0] == goal.thing), None)
        if found is None:
            self._unseen = self._unseen % (LOOKS + WALKS) + 1
            walks = self._unseen > LOOKS and seen.free((0, 1))
            action = "go_forward" if walks else "turn_right"
            return f"{goal}. not in sight {self._unseen}.", ToolCall(action, {})
        self._unseen = 0
        _, cell, line = found
        at_once = "pick_up" if goal.verb == "pick up" else "go_forward"
        return f"{goal}. {line}.", ToolCall(seen.action_towards(cell) or at_once, {})


STRAY = ("go_forward", "go_forward", "go_forward", "turn_left", "turn_right", "pick_up")

SLIPS = 0.07
"""Share of skill calls with a shortened mission or a random thing as argument, if ability is below 1."""

SKILLS = tuple(
    SkillUse(ToolSpec(name, "", {"properties": {parameter: {"type": "string"}}}), verb)
    for name, parameter, verb in (
        ("solve_mission", "mission", ""),
        ("pick_up_thing", "thing", "pick up"),
        ("go_to_thing", "thing", "go to"),
    )
)
"""Skills that the scripted inducer writes, best first."""


def player(task: str, tools: Collection[str], rng: random.Random, ability: float) -> Work:
    """Play one episode of a recorded run: as the teacher, with a rate of errors.

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


WORDINGS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("wordings.yaml").read_text("utf-8"))


def draw_library(rng: random.Random, env: TextEnv) -> tuple[ActorSpec, list[SkillUse]]:
    """Draw a library: a mix of useful skills, sometimes with one useless skill.

    Returns:
        The specification of an actor with it, and the uses of its skills, best first.
    """
    kinds = [*rng.choice(WORDINGS["mixes"])]
    if not kinds or rng.random() < 0.25:
        kinds.append("useless")
    written = {kind: _function(rng, kind) for kind in kinds}
    names = [name for name, _ in written.values()]
    if len({*names}) < len(names):
        return draw_library(rng, env)
    shown = rng.sample(sorted(written), len(written))  # prompts list skills in the order of their last edits
    skills = tuple(
        Skill(name=written[kind][0], public=True, created=1, edited=place + 1)
        for place, kind in enumerate(shown)
    )
    module = "\n\n\n".join(source for _, source in written.values()) + "\n"
    library = Library(env.primitives).of(Policy(version=1, module=module, skills=skills))
    tools = {tool.name: tool for tool in library.tools()}
    return ActorSpec(library), [
        SkillUse(tools[written[kind][0]], verb="" if kind in ("whole", "both") else kind)
        for kind in ("whole", "both", "pick up", "go to")
        if kind in written
    ]


def _function(rng: random.Random, kind: str) -> tuple[str, str]:
    """Draw a skill's name and source."""
    words = WORDINGS[kind]
    name = "_".join(rng.choice(part) for part in words["names"])
    parameters = rng.choice(words["parameters"]).split()
    pieces = [rng.choice(part) for part in words["docs"]]
    doc = f"{pieces[0]} {''.join(pieces[1:])}".replace("  ", " ")
    signature = ", ".join(f"{parameter}: str" for parameter in parameters)
    return name, f'def {name}({signature}) -> str:\n    """{doc}"""\n    return go_forward()'
