"""The prompts word for word, as golden files, so that no change of wording or whitespace goes unseen.

After an intended change, `python -m tests.speedrunner.agents.test_prompts` writes them anew.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import msgspec
import pytest
from jinja2 import UndefinedError

import envs
from envs import Opening, Task, TextEnv
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.actor import SUBMIT_ANSWER, ActorSpec
from speedrunner.agents.reading import headline, slept_lines
from speedrunner.agents.texts import render
from speedrunner.library.library import Library
from speedrunner.library.text import source_text
from speedrunner.methods.speedrunner.draft import Draft
from speedrunner.methods.speedrunner.interpreter import Interpreter
from speedrunner.methods.speedrunner.method import finish
from speedrunner.methods.texts import skill_rules, world
from speedrunner.methods.voyager.rollout import Objectives, programming
from speedrunner.store.records import (
    AgentRecord,
    Edit,
    Ending,
    Message,
    Policy,
    SleepRecord,
    Trajectory,
    Turn,
)

GOLDEN = Path(__file__).parents[2] / "data" / "prompts"
ENV = envs.make("babyai")
SKILLS = (
    'def go_to(thing: str) -> str:\n    """Walk to a thing.\n\n    Returns what was seen last."""\n'
    "    return go_forward()",
    'def seen(text: str) -> bool:\n    """Whether a thing is in sight."""\n    return text != ""',
)


FINISHED = Turn([], "", Usage(), 0.1, call=ToolCall("finish", {"summary": "One skill\nto walk."}))
SLEPT = SleepRecord(
    sleep=1,
    rollouts=10,
    attempt=1,
    agents=[AgentRecord("inducer", [FINISHED], Ending.SUBMITTED)],
    edits=[Edit("write", "go_to"), Edit("write", "fly", error="there is no primitive 'fly'")],
    seconds=1.0,
)


def library() -> Library:
    written = Library(ENV.primitives)
    for number, source in enumerate(SKILLS):
        written = written.write(source, public=number == 0, sleep=1)
    return written


def opening() -> Opening:
    return ENV.reset(Task("babyai", "pick_up_seq_go_to", 7))


def actor(spec: ActorSpec) -> list[Message]:
    return spec.messages(ENV, opening())


def episode(number: int) -> str:
    task = Task("babyai", "pick_up_seq_go_to", number)
    played = Trajectory(
        episode=f"train/{number:04d}",
        task=task,
        policy=0,
        attempt=1,
        turns=[],
        ending=Ending.SUCCESS if number % 2 else Ending.FAILURE,
        outcome=envs.Outcome(float(number % 2), bool(number % 2), {}),
    )
    return headline(msgspec.to_builtins(played))


ACTOR, INDUCER = "speedrunner.agents", "speedrunner.methods.speedrunner"


def inducer_system(
    goal: str = "goal_oriented", *, split: bool = True, interpreter: bool = True, env: TextEnv = ENV
) -> str:
    return render(
        INDUCER,
        "system",
        goal=render(INDUCER, goal, interpreter=interpreter),
        world=world(env),
        rules=skill_rules(env, 8192),
        split=split,
        interpreter=interpreter,
        memory_mb=1024,
        wall_s="60",
        output_chars=8000,
    )


def inducer_user(
    *,
    skills: bool = True,
    source: bool = True,
    interpreter: bool = True,
    texts: int = 1,
    left_out: int = 1,
    earlier: bool = True,
) -> str:
    used = library() if skills else Library(ENV.primitives)
    return render(
        INDUCER,
        "user",
        sleep=2,
        batch=[episode(10), episode(11)],
        history=12,
        interpreter=interpreter,
        texts=[episode(11)] * texts,
        left_out=[episode(10)] * left_out,
        earlier=list(slept_lines(msgspec.to_builtins(SLEPT))) if earlier else [],
        library=used,
        source=source_text(used) if source else "",
        split=True,
        calls=100,
        context=131_072,
    )


def inducer_tools() -> list[str]:
    draft = Draft(Library(ENV.primitives), 1, [])
    tools = [Interpreter.execute_code, *draft.tools(all_public=False), finish]
    return [inspect.getdoc(tool) or "" for tool in tools]


def method_prompt(name: str, env: TextEnv = ENV, **state: object) -> str:
    """A prompt of `opo`, `asi` or Voyager, with what every state has."""
    package = "speedrunner.methods.voyager" if name.split("/")[0] in VOYAGER else "speedrunner.methods"
    given = {"env": env, "world": world(env), "rules": skill_rules(env, 8192), "string_tokens": 8192}
    return render(package, name, **given, **state)


CRAFTER = envs.make("crafter")
VOYAGER = ("curriculum", "critic", "actor")
REACHED = Objectives(["leave the start"], ["fly"])


def other_methods(env: TextEnv = ENV, crafter: TextEnv = CRAFTER) -> dict[str, str]:
    """The prompts of online prompt optimisation, Agent Skill Induction and Voyager."""
    missing = [goal for goal in crafter.goals if goal not in crafter.description]
    seen = {"observation": "A wall.", "before": "A door.", "after": "A wall."}
    return {
        "opo_system": method_prompt("opo/system", env, submit=SUBMIT_ANSWER),
        "opo_user": method_prompt(
            "opo/user", notes="Boxes are heavy.", texts=[episode(11)], left_out=[episode(10)]
        ),
        "asi_system": method_prompt("asi/system", env),
        "asi_user": method_prompt(
            "asi/user", library=library(), headline=episode(11), opening="Dig.", turns=["[2]"], left_out=1
        ),
        "voyager_curriculum_system": method_prompt("curriculum/system", crafter, missing=missing),
        "voyager_curriculum_user": method_prompt("curriculum/user", **seen, now=REACHED, past=Objectives()),
        "voyager_actor_notes": programming(library(), crafter).notes,
        "voyager_actor_reply": method_prompt("actor/reply", **seen, reply="None", critique="Walk on."),
        "voyager_critic_system": method_prompt("critic/system", crafter),
        "voyager_critic_user": method_prompt(
            "critic/user", **seen, objective="leave the start", source="def go(): ...", said="None"
        ),
    }


def prompts() -> dict[str, str]:
    """File name -> what should stand in it."""
    bare, skilled = actor(ActorSpec(Library(ENV.primitives))), actor(ActorSpec(library(), "Boxes are heavy."))
    return {
        "actor_system": bare[0].content,
        "actor_system_with_skills_and_notes": skilled[0].content,
        "actor_system_that_submits": render(
            ACTOR, "system", description="Dig.", has_skills=False, submits=True, notes=""
        ),
        "actor_user": bare[1].content,
        "inducer_system": inducer_system(),
        "inducer_user": inducer_user(skills=True),
        "inducer_user_with_an_empty_library": inducer_user(skills=False, earlier=False),
        "inducer_user_with_a_long_library": inducer_user(source=False),
        "inducer_system_asi_style": inducer_system("asi_style"),
        "inducer_system_without_private_skills": inducer_system(split=False),
        "inducer_system_without_an_interpreter": inducer_system(interpreter=False),
        "inducer_user_without_an_interpreter": inducer_user(interpreter=False),
        **other_methods(),
    }


@pytest.mark.parametrize("name", prompts())
def test_a_prompt_reads_as_its_golden_file(name: str) -> None:
    assert prompts()[name] + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_there_is_a_golden_file_for_each_prompt_and_none_besides() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(prompts())


@pytest.mark.parametrize("name", prompts())
def test_no_trailing_or_doubled_blanks(name: str) -> None:
    text = re.sub(r"```python\n.*\n```", "...", prompts()[name], flags=re.DOTALL)
    assert text == text.strip()
    assert not re.search(r"[ \t]\n|\n\n\n", text)


@pytest.mark.parametrize(("texts", "left_out"), [(2, 0), (0, 2), (2, 2)])
def test_nor_where_episodes_are_in_the_prompt(texts: int, left_out: int) -> None:
    text = inducer_user(source=False, interpreter=False, texts=texts, left_out=left_out)
    assert "\n\n\n" not in text
    assert text.count("train/0011") == texts
    assert text.count("train/0010") == left_out


def sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.?!:;])\s+|\n", text)
    return [part.strip(" -.").lower() for part in parts if len(part.strip(" -.")) > 15]


@pytest.mark.parametrize("skills", [False, True])
def test_the_actor_is_told_nothing_twice(skills: bool) -> None:
    used = library() if skills else Library(ENV.primitives)
    said = [message.content for message in actor(ActorSpec(used))] + [tool.doc for tool in used.tools()]
    everything = sentences("\n".join(said))
    assert [each for each in set(everything) if everything.count(each) > 1] == []


def test_the_inducer_is_told_nothing_twice() -> None:
    said = [inducer_system(), inducer_user(skills=True), *inducer_tools()]
    everything = sentences("\n".join(said))
    assert [each for each in set(everything) if everything.count(each) > 1] == []


def test_skills_are_not_documented_in_the_actors_prompt_but_in_its_tools() -> None:
    assert "go_to" not in actor(ActorSpec(library()))[0].content


def test_the_system_message_is_the_same_for_every_task() -> None:
    other = ActorSpec(library()).messages(ENV, Opening("another", "world"))
    assert other[0] == actor(ActorSpec(library()))[0]


def test_what_an_environment_says_is_not_taken_for_a_template() -> None:
    text = render(ACTOR, "user", instruction="{{ 1 + 1 }} <b>&amp;", observation="{% if x %}")
    assert text == "Your task: {{ 1 + 1 }} <b>&amp;\n\n{% if x %}"


def test_a_variable_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="observation"):
        render(ACTOR, "user", instruction="dig")


def test_the_inducer_is_told_every_primitive_as_skills_call_it() -> None:
    listed = [line[2:] for line in inducer_system().splitlines() if line.startswith("- ")]
    for primitive in ENV.primitives:
        assert f"{primitive.name}{primitive.signature}: {primitive.doc}" in listed
        assert isinstance(primitive.signature, inspect.Signature)


def test_a_policy_of_notes_alone_shows_them() -> None:
    spec = ActorSpec(Library(ENV.primitives), Policy(version=0, notes="Walls hurt.").notes)
    assert actor(spec)[0].content.endswith("\n\nWalls hurt.")


GIVEN_AWAY = {
    "babyai": (
        *("order", "first", "then,", "after", "before", "sequence", "pars", "pick up", "go to", "put"),
        *("next to", "count", "128", "behind", "step", "lock", "door", "at a time"),
    ),
    "crafter": (
        *("lava", "ripe", "heal you", "recover", "food", "energy", "diagonal", "nearby", "at most", "walk"),
        *("sand", "zombie", "tree", "64"),
    ),
    "scienceworld": (
        *("anode", "terminal", "circuit", "wrong", "focus", "ambiguous", "cancel", "wire", "workshop"),
        *("door", "box", "tells you", "heat", "time"),
    ),
}
"""What the paper's agents had to find out: environment -> what its description must not mention. Of Crafter
the names of the achievements are told (Appendix D.5)."""

HINTS = (
    *("order of", "which order", "parse", "pattern", "regular expression", "candidate", "the instruction in"),
    *("mission", "explor", "progress", "circuit", "ambigu", "categor", "canonical", "inventory"),
)
"""What no prompt of an inducer may suggest, whatever the environment."""


def _primitives(name: str) -> list[str]:
    """Those whose names are no words that any prompt may need."""
    return [each.name for each in envs.make(name).primitives if "_" in each.name]


class TestNothingIsGivenAway:
    """What the paper reports as findings is for actor and inducer to find."""

    @pytest.mark.parametrize("name", GIVEN_AWAY)
    def test_a_description_as_in_the_paper_tells_no_rules(self, name: str) -> None:
        rules, _, rest = envs.make(name).description.lower().partition("achievements:\n")
        rules += rest.partition("\n\n")[2]
        assert [each for each in GIVEN_AWAY[name] if each in rules] == []

    @pytest.mark.parametrize("name", GIVEN_AWAY)
    def test_a_full_one_does(self, name: str) -> None:
        full = envs.make(name, description="full").description.lower()
        assert sum(each in full for each in GIVEN_AWAY[name]) > 10

    def test_tools_are_documented_without_what_a_task_asks_for(self) -> None:
        docs = "\n".join(each.doc for name in GIVEN_AWAY for each in envs.make(name).primitives).lower()
        hints = ("anode", "terminal 1", "wire", "thermometer", "ripe", "mission", "first")
        assert [each for each in hints if each in docs] == []

    @pytest.mark.parametrize("interpreter", [True, False])
    @pytest.mark.parametrize("goal", ["goal_oriented", "asi_style"])
    def test_an_inducer_is_told_how_to_work_and_not_what_to_find(self, goal: str, interpreter: bool) -> None:
        env = envs.make("tests.toy_env:Corridor")
        said = "\n".join([inducer_system(goal, interpreter=interpreter, env=env), *inducer_tools()]).lower()
        assert [each for each in HINTS if each in said] == []

    def test_other_methods_prompts_hold_what_their_environment_says_and_nothing_of_another_one(self) -> None:
        toy = envs.make("tests.toy_env:Racetrack")
        said = "\n".join(other_methods(toy, toy).values()).lower()
        names = {name for each in GIVEN_AWAY for name in (each, *_primitives(each))} - {"look", "go_to"}
        assert [each for each in (*HINTS, *sorted(names)) if re.search(rf"\b{each}", said)] == []

    @pytest.mark.parametrize("name", GIVEN_AWAY)
    def test_but_what_a_skill_can_read_is_said(self, name: str) -> None:
        env = envs.make(name)
        assert env.skills_read
        assert f"what primitives return. {env.skills_read} Once" in inducer_system(env=env)


if __name__ == "__main__":
    for name, text in prompts().items():
        (GOLDEN / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
    sys.exit(0)
