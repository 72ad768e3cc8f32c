"""A run whose models are programs: what is recorded, what an inducer makes of it, what that is worth.

The actor before the sleep plays as a weak model could; the inducer works as a competent programmer would; the
actor of held-out tasks calls the skill that fits. The actor's answers are made in this process; the inducer's
come from a scripted engine, as tokens, and are read as any model's. Environment, workers, executor, sandbox,
tools and records are real.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from serving.conversation import Completion, Conversation
from serving.engine.client import Engine
from serving.meter import Meter
from serving.model import Messages, Model
from serving.model_config import ModelConfig, Role, Roles
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec, checked_call
from serving.usage import Usage
from speedrunner.config.compose import compose
from speedrunner.config.schema import to_yaml
from speedrunner.runs.direct import play_steps
from speedrunner.runs.plan import Evaluate, unfinished_steps
from speedrunner.runs.setup import set_up
from speedrunner.store.records import Trajectory
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.scripted_engine import Answer, Request, ScriptedEngine, call

WEAK_CALLS, SKILLED_CALLS = 400, 3
"""Requests of one episode, where the environment allows as many: while it is recorded, and held out."""

CONTEXT = 131_072
"""Tokens of the inducer's context, as `qwen3.5-27b` has them on one GPU."""

Tools = dict[str, ToolSpec]
"""An actor's, by name."""

Player = Callable[[list[str], Tools], ToolCall]
"""An actor: what it was told, its task first, and its tools -> its next call."""

Session = Generator[ToolCall, str, None]
"""An inducer's work: yields its calls and is sent what they were answered with."""


@dataclass(frozen=True)
class Study:
    """What is played.

    Attributes:
        env: the settings that choose the environment.
        rollouts: that are recorded before the one sleep.
        weak: the actor that has no skills.
        session: the inducer's.
        user: the actor that has some.
    """

    env: Sequence[str]
    rollouts: int
    weak: Player
    session: Callable[[], Session]
    user: Player


def use(name: str, /, **arguments: object) -> ToolCall:
    """A call."""
    return ToolCall(name, arguments)


class _Played(Conversation):
    """An actor's conversation with a program."""

    def __init__(self, player: Player, told: list[str], tools: Tools) -> None:
        self._player, self._told, self._tools = player, told, tools

    async def ask(self) -> Completion:
        made = checked_call(self._player(self._told, self._tools), self._tools, "")
        usage = Usage(prompt=1, completion=1)
        return Completion(text="", reasoning="", call=made, problem=None, usage=usage, seconds=0.0)

    def tell(self, text: str) -> None:
        self._told.append(text)


class _Models(Model):
    """The study's programs as one model; all but the actor's answers come from its engine."""

    def __init__(
        self, study: Study, model_config: ModelConfig, engine: Engine, tokenizer: ChatTokenizer
    ) -> None:
        super().__init__(model_config, engine, tokenizer)
        self._study = study

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        if role != "actor":
            return super().converse(role, messages, tools, labels)
        player = self._study.weak if labels["phase"] == "train" else self._study.user
        return _Played(player, [messages[-1]["content"]], {tool.name: tool for tool in tools})


def _answers(study: Study) -> Callable[[Request], Answer]:
    """The inducer's side of the engine."""
    sessions: list[Session] = []

    def answer(request: Request) -> Answer:
        if request.turn == 0:
            sessions.append(study.session())
            made = next(sessions[-1])
        else:
            said = reply(request.last)
            try:
                assert "Traceback" not in said
                made = sessions[-1].send(said)
            except Exception as error:
                error.add_note(said)
                raise
        return call(made.name, **made.arguments)

    return answer


def reply(told: str) -> str:
    """A tool's reply without its frame and the line on what is left."""
    return told.removeprefix("<tool_response>\n").rpartition("\n\n(")[0]


async def play(study: Study, model_config: ModelConfig, tokenizer: ChatTokenizer, folder: Path) -> RunData:
    """Record the rollouts, sleep, and play the held-out tasks.

    Args:
        model_config: of the bundled model; its context and its budgets are replaced.
    """
    keys = ("run.rollouts", "run.sleep_every", "run.eval_every")
    size = [f"{key}={study.rollouts}" for key in keys]
    setup = set_up(compose([*study.env, *size, "run.in_flight=2", f"run.dir={folder}"]))
    steps = [step for step in setup.plan() if not (isinstance(step, Evaluate) and step.policy == 0)]
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ScriptedEngine(tokenizer, _answers(study), model=model_config.name))
        directory = stack.enter_context(RunDirectory.open_for_writing(folder))
        engine = Engine(
            server.endpoint, model_config.name, Meter(directory.append_request, model_config.prices)
        )
        stack.push_async_callback(engine.close)
        directory.write_config(to_yaml(setup.config))
        directory.write_policy(setup.initial_policy())
        pool = await stack.enter_async_context(
            setup.workers(setup.config.run.in_flight, directory.files.worker_log)
        )
        for calls, part in ((WEAK_CALLS, steps[:-1]), (SKILLED_CALLS, steps[-1:])):
            roles = Roles(Role(string_tokens=1024, max_calls=calls), Role(string_tokens=8192))
            used = msgspec.structs.replace(model_config, context=CONTEXT, roles=roles)
            models = _Models(study, used, engine, tokenizer)
            await play_steps(setup, directory, models, pool, unfinished_steps(part, directory.read()))
    return load(folder)


def session_text(data: RunData) -> str:
    """The inducer's calls and what they were answered with."""
    ((agent,),) = (sleep.agents for sleep in data.sleeps)
    told = [reply(turn.messages[-1].content) for turn in agent.turns[1:]]
    told.append(str(agent.turns[-1].executed and agent.turns[-1].executed.result))
    lines = []
    for number, (turn, said) in enumerate(zip(agent.turns, told, strict=True), start=1):
        assert turn.call is not None, turn.error
        arguments = turn.call.arguments
        short = ", ".join(f"{k}={v!r}" for k, v in arguments.items() if "\n" not in str(v))
        lines += [f"=== {number}. {turn.call.name}({short})"]
        lines += [str(value) for value in arguments.values() if "\n" in str(value)]
        lines += ["--- told", said, ""]
    return "\n".join(lines)


def held_out(data: RunData) -> list[Trajectory]:
    """The evaluation's episodes, in the order of the split."""
    return sorted(data.evaluations(), key=lambda each: each.episode)
