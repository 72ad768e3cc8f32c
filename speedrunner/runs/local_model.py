"""Play runs with a model that computes its answers in this process: for programs as agents, and checks."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import msgspec

from serving.conversation import Completion, Conversation
from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.meter import Meter
from serving.model import BYTES_PER_TOKEN, Model
from serving.model_config import ModelConfig
from serving.tokens.tools import ToolCall, ToolSpec, checked_call
from serving.usage import Usage
from speedrunner.agents.actor import Actor
from speedrunner.runs.executor import Executor
from speedrunner.runs.open_run import open_new_run
from speedrunner.runs.plan import unfinished_steps
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load

CHARS = 8
"""Characters per token, to estimate token counts."""

Program = Generator[tuple[str, ToolCall], str, None]
"""An agent's program: yields thoughts and calls, and receives the reply to each call."""


class LocalModel(Model):
    """A model that sends no requests; subclasses implement `converse`."""

    def __init__(self, model_config: ModelConfig) -> None:
        hosted = msgspec.structs.replace(model_config, api="chat", base_url="http://localhost")
        meter = Meter(lambda row: None, model_config.prices)
        super().__init__(hosted, Engine(Endpoint("http://localhost"), model_config.name, meter), None)

    def count_tokens(self, text: str, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
        """Return the estimated number of tokens; see `CHARS`."""
        return estimate_tokens(text)


def estimate_tokens(text: str) -> int:
    """Return about as many tokens as a text has; see `CHARS`."""
    return -(-len(text) // CHARS)


class ProgrammedConversation(Conversation):
    """An agent's conversation, answered by a program.

    Args:
        read: tokens of its first prompt.
    """

    def __init__(self, work: Program, tools: list[ToolSpec], read: int) -> None:
        self._work, self._tools = work, {tool.name: tool for tool in tools}
        self._reply: str | None = None
        self._read = read

    async def request_answer(self) -> Completion:
        """See `Conversation`."""
        thought, call = next(self._work) if self._reply is None else self._work.send(self._reply)
        reasoning, action = estimate_tokens(thought), estimate_tokens(str(call.arguments)) + 2
        usage = Usage(prompt=self._read, completion=reasoning + action, reasoning=reasoning)
        self._read += usage.completion
        made = checked_call(call, self._tools, "")
        return Completion(text="", reasoning=thought, call=made, problem=None, usage=usage, seconds=0.0)

    def tell(self, text: str) -> None:
        """See `Conversation`."""
        self._reply = text
        self._read += estimate_tokens(text)


async def play_with(model: Model, setup: Setup, policy: Policy | None = None) -> RunData:
    """Play a whole new run in `run.dir` without output. `model` plays all roles.

    Args:
        policy: the first policy; `None`: the method's own.

    Raises `RunStopped`, `WorkerError`, `StorageError`, and the model's errors.
    """
    run = setup.config.run
    with open_new_run(setup, Path(run.dir), policy) as directory:
        model.note_tools = directory.append_tools
        async with setup.workers(run.in_flight, directory.files.worker_log) as pool:
            executor = Executor(directory, setup.method, Actor(setup.env, model, setup.config), pool)
            await executor.execute(unfinished_steps(setup.plan(), directory.read()))
    return load(run.dir)
