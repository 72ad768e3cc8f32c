"""Prompts as a model reads them: tools and messages of every role, for an environment and a state of a run.

They are composed by the methods' own code from records of a small run. Three texts come from recorded play,
so that no simulator starts: the openings of Crafter and ScienceWorld.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import envs
from envs import Opening, Outcome, Task, TextEnv
from serving import ModelConfig, Prices, Role, Roles
from serving.conversation import Conversation
from serving.model import Messages
from serving.tokens.tools import ToolCall, ToolSpec
from serving.usage import Usage
from speedrunner.agents.actor import Actor, ActorSpec
from speedrunner.agents.loop import Clock, Toolbox, plain_messages
from speedrunner.config.compose import compose
from speedrunner.config.schema import LibraryConfig
from speedrunner.library.library import Library
from speedrunner.methods import Method
from speedrunner.methods.ace import ACE, Item, Playbook
from speedrunner.methods.asi import ASI
from speedrunner.methods.method_base import SleepTools
from speedrunner.methods.opo import OPO
from speedrunner.methods.prose import Prose
from speedrunner.methods.react import ReAct
from speedrunner.methods.speedrunner.speedrunner_method import SpeedRunner
from speedrunner.methods.voyager.programs import Program
from speedrunner.methods.voyager.rollout import MethodState, Objectives, Retrieve, Rollout, programming
from speedrunner.runs.local_model import LocalModel
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.history import History
from speedrunner.store.records import (
    AgentRecord,
    CallNode,
    Edit,
    Labels,
    Message,
    Policy,
    SleepRecord,
    Termination,
    Trajectory,
    Turn,
)
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.sleep_journal import SleepJournal

MODEL_CONFIG = ModelConfig(
    name="samples",
    tried="It composes prompts.",
    context=131_072,
    api="chat",
    base_url="http://localhost",
    roles=Roles(Role(string_tokens=1_024), Role(string_tokens=8_192)),
    prices=Prices(0, 0, 0),
)

NAMES = ("babyai", "crafter", "scienceworld")

OPENINGS = {
    "babyai": Opening(
        "go to the green box after you pick up the purple ball",
        "a wall 5 steps forward\na wall 1 step left\na purple ball 2 steps right and 2 steps forward\n"
        "a green box 3 steps right and 1 step forward",
    ),
    "crafter": Opening(
        "Survive, and unlock as many of the 22 achievements as you can.",
        "<<OBSERVATION_BEGIN>>\nYour status:\n- health: 9/9\n- food: 9/9\n- drink: 9/9\n- energy: 9/9\n"
        "You have nothing in your inventory.\nYou see:\n- grass 1 step west\n"
        "- tree 2 steps north and 3 steps east\n- sand 4 steps north and 4 steps east\n"
        "You face grass at your front.\n<<OBSERVATION_END>>",
    ),
    "scienceworld": Opening(
        "Your task is to find a(n) animal. First, focus on the thing. Then, move it to the red box in the "
        "workshop.",
        "This room is called the living room. In it, you see: \n\tthe agent\n\ta substance called air\n"
        "\ta couch. On the couch is: a white pillow.\n\ta picture\nYou also see:\n"
        "\tA door to the hallway (that is closed) ",
    ),
}
"""Recorded openings. An environment that is not here opens its first world."""


class Asked(Exception):
    """A role was asked: what it would read."""

    def __init__(self, role: str, messages: Messages, tools: list[ToolSpec]) -> None:
        super().__init__(role)
        self.prompt = Prompt(tools, messages)


@dataclass(frozen=True)
class Prompt:
    """What a model reads before its first answer."""

    tools: list[ToolSpec]
    messages: Messages

    @property
    def text(self) -> str:
        """All of it."""
        tools = "\n".join(msgspec.json.encode(tool.openai).decode() for tool in self.tools)
        parts = [("tools", tools), *((each["role"], each["content"]) for each in self.messages)]
        return "\n".join(f"=== {title}\n{text}" for title, text in parts)

    @property
    def golden(self) -> str:
        """The same as a golden file has it."""
        return f"[{len(self.text)} characters]\n{self.text}\n"


class Recorder(LocalModel):
    """A model that answers nothing: whoever asks it gets what it would read, as `Asked`."""

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        raise Asked(role, messages, tools)

    def count_tokens(self, text: str, bytes_per_token: float = 4.0) -> int:
        return len(text) // 4


@dataclass
class _VoyagerEpisode:
    """A rollout of Voyager that has come as far as a question."""

    env: TextEnv
    observation: str
    clock: Clock = field(default_factory=lambda: Clock(1970))
    actions: int = 250

    async def execute(self, call: ToolCall) -> None: ...

    async def run_agent(
        self, role: str, messages: list[Message], toolbox: Toolbox, calls: int
    ) -> Termination:
        raise Asked(role, plain_messages(messages), toolbox.specs)


@dataclass
class Samples:
    """The prompts of one environment.

    Args:
        folder: an empty one, for the records of a small run.
    """

    env: TextEnv
    folder: Path

    def __post_init__(self) -> None:
        worlds = {"crafter": "default", "scienceworld": "find-animal"}
        task = Task(self.env.name, worlds.get(self.env.name, "pick_up_seq_go_to"), 7)
        self.task = task if self.env.name in OPENINGS else self.env.splits().train[0]
        known = OPENINGS.get(self.env.name)
        self.opening = known or self.env.reset(self.task)
        self.free = next(each.name for each in self.env.primitives if not each.signature.parameters)
        self.actor = Actor(self.env, Recorder(MODEL_CONFIG), compose([]))
        with RunDirectory.open_for_writing(self.folder / "run") as run:
            run.write_config(f"env:\n  name: {self.env.name}\n")
            run.write_policy(Policy(version=0))
            played = [self._episode(number, solved=number in (1, 2)) for number in range(4)]
            played[3].termination = Termination.CONTEXT_OVERFLOW
            for number, episode in enumerate(played):
                episode.policy = number // 2
                run.append_trajectory("train", episode.policy, episode)
                run.append_episode(summarize_episode(episode, "train", 0))
            run.write_sleep(_sleep())
            self.history = History(run.read())
            run.write_policy(Policy(version=1))
        with RunDirectory.open_for_writing(self.folder.with_name(f"{self.folder.name}_next")) as run:
            run.write_config(f"env:\n  name: {self.env.name}\n  description: full\n")
            run.carry_history(load(self.folder / "run"), 1)
            newest = self._episode(0, solved=True)
            run.append_trajectory("train", 0, newest)
            run.append_episode(summarize_episode(newest, "train", 0))
            self.carried = History(run.read())

    def library(self, skills: int) -> Library:
        """A fake library; every fourth skill is a private helper."""
        names = [f"routine_{number:03d}" for number in range(skills)]
        sources = [self._skill(names, number) for number in range(skills)]
        library = Library(self.env.primitives)
        for start in range(0, skills, 20):  # one edit has a limited length
            library = library.write("\n\n\n".join(sources[start : start + 20]), sleep=1)
        for name in names[3::4]:
            library = library.set_visibility(name, public=False, sleep=1)
        return library

    def policy(self, skills: int) -> Policy:
        """The same as a policy."""
        return self.library(skills).policy(Policy(version=1))

    def acting(self, spec: ActorSpec, wording: int = 0) -> Prompt:
        """What an actor reads."""
        messages = spec.messages(self.env, self.opening, wording)
        return Prompt(spec.list_tools(self.env), plain_messages(messages))

    def inducing(self, skills: int, *, sleep: int = 1, carried: bool = False, **options: Any) -> Prompt:
        """What SpeedRunner's inducer reads; `carried`: in a run with the history of an earlier run."""
        kind, tools = options.pop("kind", SpeedRunner), self._tools(sleep)
        tools.wording = options.pop("wording", 0)
        history = self.carried if carried else self.history
        return self._ask(kind(**options).sleep(self.policy(skills), history, tools))

    def asked(self, method: Method, policy: Policy) -> Prompt:
        """What the first role of another method's sleep reads."""
        return self._ask(method.sleep(policy, self.history, self._tools(2)))

    def _ask(self, asking: Coroutine[Any, Any, object]) -> Prompt:
        try:
            asyncio.run(asking)
        except Asked as asked:
            return asked.prompt
        raise AssertionError("no role was asked")

    def curator(self, playbook: Playbook, *, add_only: bool = False) -> Prompt:
        """What ACE's curator reads."""
        lessons = "The routine failed without a lamp. Look for a lamp before you start it."
        return self._ask(ACE(add_only=add_only)._curate(playbook, lessons, self._tools(2)))

    def curriculum(self) -> Prompt:
        """What Voyager's curriculum reads."""
        return self._voyager(lambda rollout: rollout._propose())

    def critic(self) -> Prompt:
        """What Voyager's critic reads."""
        seen = self.opening.observation
        return self._voyager(lambda rollout: rollout._judge(seen, seen))

    def programmer(self, skills: int, retrieve: Retrieve = 5) -> Prompt:
        """What Voyager's actor reads in training."""
        aim = Opening("do routine 5", self.opening.observation)
        left = "1970 answers of all roles together and 1750 actions"
        spec = programming(self.library(skills), self.env, retrieve, 4, aim.instruction, left)
        return Prompt(spec.list_tools(self.env), plain_messages(spec.messages(self.env, aim)))

    def _voyager(self, ask: Any) -> Prompt:
        episode: Any = _VoyagerEpisode(self.env, self.opening.observation)
        rollout = Rollout(episode, Library(self.env.primitives), Objectives(["eat"], ["fly"]), 4, 5)
        rollout._objective = "collect one sapling"
        rollout._kept = MethodState(["look around"], [], [Program("look around", "")])
        return self._ask(ask(rollout))

    def _tools(self, sleep: int) -> SleepTools:
        journal = SleepJournal(self.folder / "journal.jsonl", sleep, 1)
        return SleepTools(ReAct(), self.actor, sleep, Labels(episode=f"sleep/{sleep:04d}"), journal)

    def _skill(self, names: list[str], number: int) -> str:
        helper = f"    {names[number - 1]}(thing)\n" if number % 4 == 0 and number else ""
        return (
            f"def {names[number]}(thing: str, tries: int = 10) -> str:\n"
            f'    """Do routine {number} with a thing, at most so many times.\n\n'
            '    Returns how many times it was done and what was seen last.\n    """\n'
            f'{helper}    seen = ""\n'
            f"    for count in range(tries):\n        seen = str({self.free}())\n"
            "        if thing in seen:\n"
            '            return f"Done after {count + 1} times: {seen}"\n'
            '    return f"Stopped after {tries} times. Last seen: {seen}"'
        )

    def _episode(self, number: int, *, solved: bool) -> Trajectory:
        first = ActorSpec(self.library(2)).messages(self.env, self.opening)
        moves = [CallNode(self.free, "primitive", {}, "A hall.", actions=1) for _ in range(2)]
        thing, error = {"thing": "lamp"}, "ValueError: no lamp (in routine_000, line 8)"
        failed = CallNode("routine_000", "skill", thing, error=error, actions=1, calls=moves[:1])
        result = "Done after 2 times: A hall."
        done = CallNode("routine_001", "skill", thing, result, actions=2, calls=moves)
        reply = Message("tool", f"Error: {error}\n\nLast observation:\nA hall.")
        return Trajectory(
            episode=f"train/{number:04d}",
            task=self.task,
            policy=0,
            attempt=1,
            turns=[_turn(first, failed), _turn([reply], done)],
            termination=Termination.SUCCESS if solved else Termination.CALL_LIMIT,
            outcome=Outcome(float(solved), solved, {}),
            seconds=1.5,
        )


def _turn(messages: list[Message], node: CallNode) -> Turn:
    usage, call = Usage(100, 60, 20, 5), ToolCall(node.name, node.arguments)
    return Turn(messages, "", usage, 0.5, reasoning="A routine fits.", call=call, executed=node)


def _sleep() -> SleepRecord:
    """A sleep of an inducer that its context cut off."""
    return SleepRecord(
        sleep=1,
        rollouts=2,
        attempt=1,
        agents=[AgentRecord("inducer", [], Termination.CONTEXT_OVERFLOW)],
        edits=[Edit("write", "routine_000"), Edit("write", "fly", error="line 3: fly_up is not defined")],
        seconds=2.0,
        error="the context of the inducer overflowed after 41 calls; the edits accepted before that are kept",
    )


def all_prompts(name: str, folder: Path) -> dict[str, str]:
    """Golden file -> its content, for one environment.

    All environments have the prompts that differ between environments, one has those that differ otherwise.
    """
    made = Samples(envs.make(name), folder)
    full = Samples(envs.make(name, description="full"), folder / "full")
    prompts = {
        "actor": made.acting(ActorSpec(Library(made.env.primitives))),
        "actor_full_description": full.acting(ActorSpec(Library(made.env.primitives))),
        "inducer": made.inducing(0),
    }
    if name == "babyai":
        prompts |= _prompts_of_actors(made) | _prompts_of_inducers(made) | _prompts_of_other_methods(made)
    if made.env.goals:
        every = Samples(envs.make(name, view="all"), folder / "all")
        prompts |= {
            "actor_all_cells": every.acting(ActorSpec(Library(made.env.primitives))),
            "voyager_programmer": made.programmer(0),
            "voyager_programmer_12_skills": made.programmer(12),
            "voyager_programmer_retrieve_all": made.programmer(12, "all"),
            "voyager_curriculum": made.curriculum(),
            "voyager_critic": made.critic(),
        }
    return {f"{name}/{key}.txt": prompt.golden for key, prompt in prompts.items()}


NOTES = Policy(version=1, notes="Look around before you act.\nA reply of None is no error.")
ITEMS = [
    Item(1, "strategy", "Look around before you act.", 3, 1),
    Item(4, "fact", "A reply of None is no error."),
]
PLAYBOOK = Policy(version=1, method=msgspec.to_builtins(Playbook(ITEMS, 5)))


def _prompts_of_actors(made: Samples) -> dict[str, Prompt]:
    return {
        "actor_12_skills": made.acting(ActorSpec(made.library(12))),
        "actor_search": made.acting(ActorSpec(made.library(12)).with_part(LibraryConfig(shown="search"))),
        **{f"actor_wording_{n}": made.acting(ActorSpec(made.library(12)), n) for n in (1, 2, 3)},
        "actor_notes": made.acting(OPO().agent(NOTES, made.task, made.env)),
        "actor_playbook": made.acting(ACE().agent(PLAYBOOK, made.task, made.env)),
    }


def _prompts_of_inducers(made: Samples) -> dict[str, Prompt]:
    return {
        "inducer_listed_skills": made.inducing(150),
        **{f"inducer_wording_{n}": made.inducing(12, wording=n) for n in (1, 2, 3)},
        "inducer_after_overflow": made.inducing(12, sleep=2),
        "inducer_no_interpreter": made.inducing(0, interpreter="off"),
        "inducer_no_interpreter_12_skills": made.inducing(12, interpreter="off"),
        "inducer_asi_style": made.inducing(12, prompt="asi_style"),
        "inducer_carried_history": made.inducing(12, carried=True),
        "inducer_no_interpreter_carried_history": made.inducing(12, carried=True, interpreter="off"),
        "inducer_detail": made.inducing(12, sees="detail"),
        "inducer_all_public": made.inducing(12, visibility="all_public"),
        "inducer_prose": made.inducing(0, kind=Prose),
    }


def _prompts_of_other_methods(made: Samples) -> dict[str, Prompt]:
    return {
        "optimizer": made.asked(OPO(), Policy(version=0)),
        "optimizer_notes": made.asked(OPO(), NOTES),
        "ace_reflector": made.asked(ACE(), ACE().initial()),
        "ace_reflector_playbook": made.asked(ACE(), PLAYBOOK),
        "ace_curator": made.curator(Playbook(ITEMS, 5)),
        "ace_curator_add_only": made.curator(Playbook(ITEMS, 5), add_only=True),
        "asi": made.asked(ASI(), Policy(version=0)),
        "asi_12_skills": made.asked(ASI(), made.policy(12)),
        "asi_free": made.asked(ASI(style="free"), made.policy(12)),
    }
