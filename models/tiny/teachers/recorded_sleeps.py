"""Records sleeps: short runs of SpeedRunner on BabyAI with programs as agents. Everything else is real.

About half of the runs start with an empty library, the others with a library that may lack some parts. About
one in ten has no code interpreter. Their worlds are in neither split. The same seed gives the same sleeps.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from pathlib import Path

from envs import Split
from envs.babyai import TASKS
from models.tiny.actor_examples import WORLDS
from models.tiny.teachers.bot import player
from models.tiny.teachers.scripted_inducer import draw_parts, make_policy, session
from serving.conversation import Conversation
from serving.model import Messages
from serving.model_configs import load_model_config
from speedrunner.config.compose import compose
from speedrunner.methods import Task, ToolSpec
from speedrunner.results import RunData
from speedrunner.runs.local_model import LocalModel, ProgrammedConversation, estimate_tokens, play_with
from speedrunner.runs.setup import set_up

SLEEPS = 4
"""Sleeps per run."""


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


class _Programs(LocalModel):
    """A model without a server: programs play the actor and the inducer of a run."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(load_model_config("tiny"))  # prompts quote its numbers
        self._settings = settings

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        """See `Model`."""
        self.note_tools({"role": role, **labels}, tools)
        rng = random.Random(f"{self._settings.seed} {labels['episode']}")
        told, names = messages[-1]["content"], [tool.name for tool in tools]
        if role == "actor":
            work = player(told, names, rng, self._settings.ability if labels["phase"] == "train" else 1.0)
        else:
            work = session(told, names, rng)
        read = sum(estimate_tokens(message["content"]) for message in messages)
        return ProgrammedConversation(work, tools, read)


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
    worlds = random.Random(f"worlds {settings.seed}").sample(WORLDS, rollouts)
    train = [Task("babyai", TASKS[0], index) for index in worlds]
    setup = replace(setup, split=Split(train=train, test=setup.split.test))
    policy = None if settings.parts is None else make_policy(settings.parts)
    return await play_with(_Programs(settings), setup, policy)


def record(out: Path, runs: int, seed: int) -> None:
    """Record `runs` runs in `out`."""
    for number in range(runs):
        name = f"{seed}-{number:04d}"
        asyncio.run(play(RunSettings.drawn(name), out / name))
        print(f"{number + 1} of {runs} runs are in {out}", flush=True)
