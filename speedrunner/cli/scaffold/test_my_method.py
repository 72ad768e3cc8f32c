"""A small run with a program as its model: the sleep must turn what the agent writes into a policy."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving.model import Messages
from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.cli.scaffold.my_method import MyMethod
from speedrunner.config.compose import compose
from speedrunner.methods import Policy
from speedrunner.runs.local_model import LocalModel, Program, ProgrammedConversation, play_with
from speedrunner.runs.setup import set_up

SKILL = 'def greet() -> str:\n    """Say hello."""\n    return "hello"\n'

SIZE = [
    *("run.rollouts=2", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=1"),
    "model.actor.max_calls=2",
]


def work(role: str) -> Program:
    """Yield each thought and call of an agent: the inducer writes a skill, the actor turns around."""
    if role == "inducer":
        yield "I write a skill.", ToolCall("write_skill", {"source": SKILL})
        yield "That is all.", ToolCall("finish", {})
    while True:
        yield "I look around.", ToolCall("turn_left", {})


class Scripted(LocalModel):
    """Answers each conversation with `work`."""

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> ProgrammedConversation:
        """See `Model`."""
        return ProgrammedConversation(work(role), tools, 1)


def test_it_begins_with_nothing() -> None:
    assert MyMethod().initial() == Policy(version=0)


def test_a_sleep_stores_the_skill_that_its_agent_writes(tmp_path: Path) -> None:
    given = [f"method={MyMethod.__module__}:MyMethod", f"run.dir={tmp_path}/run", *SIZE]
    setup = set_up(compose(given))
    run = asyncio.run(play_with(Scripted(setup.model_config), setup))
    assert [skill.name for skill in run.policies.load(1).skills] == ["greet"]
