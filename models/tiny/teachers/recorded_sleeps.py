"""Records sleeps: short runs of SpeedRunner on BabyAI with programs as agents. Everything else is real.

About half of the runs start with an empty library, the others with a library that may lack some parts. About
one in ten has no code interpreter. Their worlds are in neither split. The same seed gives the same sleeps.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from envs import Split
from envs.babyai import TASKS
from models.tiny.actor_examples import WORLDS
from models.tiny.teachers.bot import Work, player
from models.tiny.teachers.scripted_inducer import draw_parts, make_policy, session
from serving import Usage
from serving.conversation import Completion, Conversation
from serving.model import Messages
from serving.model_configs import load_model_config
from serving.tokens.tools import checked_call
from speedrunner.config.compose import compose
from speedrunner.methods import Task, ToolSpec
from speedrunner.results import RunData
from speedrunner.runs.local_model import LocalModel, play_with
from speedrunner.runs.setup import set_up

SLEEPS = 4
"""Sleeps per run."""

CHARS = 8
"""Characters per token, to estimate token counts."""


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run.

    Attributes:
        seed: seed of its worlds and its agents' choices.
        batch: rollouts before each sleep.
        ability: ability of the actor in training episodes; see `bot.player`.
        parts: parts that its first library has; `None` for an empty library.
        interpreter: whether the inducer has a code interpreter.
        held_out: test episodes of the paper's split per evaluation, played with ability 1.
    """

    seed: str
    batch: int = 10
    ability: float = 0.8
    parts: frozenset[str] | None = None
    interpreter: bool = True
    held_out: int = 0

    @classmethod
    def drawn(cls, seed: str) -> RunSettings:
        """Draw the settings of a corpus run."""
        rng = random.Random(seed)
        batch = 10 if rng.random() < 0.6 else rng.randint(2, 9)
        ability = rng.uniform(0.25, 0.85)
        parts = frozenset(draw_parts(rng)) if rng.random() < 0.5 else None
        return cls(seed, batch, ability, parts, interpreter=rng.random() >= 0.1)

    @property
    def worlds(self) -> list[Task]:
        """Worlds of the training episodes."""
        rng = random.Random(f"worlds {self.seed}")
        return [Task("babyai", TASKS[0], index) for index in rng.sample(WORLDS, SLEEPS * self.batch)]


class _Programmed(Conversation):
    """An agent's conversation, answered by a program."""

    def __init__(self, work: Work, tools: list[ToolSpec], read: int) -> None:
        self._work, self._tools = work, {tool.name: tool for tool in tools}
        self._told: str | None = None
        self._read = read

    async def request_answer(self) -> Completion:
        thought, call = next(self._work) if self._told is None else self._work.send(self._told)
        reasoning, action = _tokens(thought), _tokens(str(call.arguments)) + 2
        usage = Usage(prompt=self._read, completion=reasoning + action, reasoning=reasoning)
        self._read += usage.completion
        made = checked_call(call, self._tools, "")
        return Completion(text="", reasoning=thought, call=made, problem=None, usage=usage, seconds=0.0)

    def tell(self, text: str) -> None:
        self._told = text
        self._read += _tokens(text)


class _Programs(LocalModel):
    """A model without a server: programs play the actor and the inducer of a run."""

    def __init__(self, settings: RunSettings) -> None:
        served = load_model_config("tiny")  # prompts quote its numbers
        super().__init__(msgspec.structs.replace(served, api="chat", base_url="http://localhost"))
        self._settings = settings

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        """See `Model`."""
        rng = random.Random(f"{self._settings.seed} {labels['episode']}")
        told, names = messages[-1]["content"], [tool.name for tool in tools]
        if role == "actor":
            work = player(told, names, rng, self._settings.ability if labels["phase"] == "train" else 1.0)
        else:
            work = session(told, names, rng)
        return _Programmed(work, tools, sum(_tokens(message["content"]) for message in messages))

    def count_tokens(self, text: str) -> int:
        """Return the estimated number of tokens; see `CHARS`."""
        return _tokens(text)


def _tokens(text: str) -> int:
    return -(-len(text) // CHARS)


async def play(settings: RunSettings, folder: Path) -> RunData:
    """Record a run in a new folder."""
    rollouts = SLEEPS * settings.batch
    overrides = {
        "run.rollouts": rollouts,
        "run.sleep_every": settings.batch,
        "run.eval_every": rollouts,
        "run.test_episodes": settings.held_out,
        "run.in_flight": 2,
        "run.dir": folder,
        "method.interpreter": "on" if settings.interpreter else "off",
    }
    setup = set_up(compose(["env=babyai", *(f"{key}={value}" for key, value in overrides.items())]))
    setup = replace(setup, split=Split(train=settings.worlds, test=setup.split.test))
    policy = None if settings.parts is None else make_policy(settings.parts)
    return await play_with(_Programs(settings), setup, policy)


def record(out: Path, runs: int, seed: int) -> None:
    """Record `runs` runs in `out`."""
    for number in range(runs):
        name = f"{seed}-{number:04d}"
        asyncio.run(play(RunSettings.drawn(name), out / name))
        print(f"{number + 1} of {runs} runs are in {out}", flush=True)
