"""What tests with a real engine share: one server for all that do not kill it, and short model configs."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from serving.admission import replicas_of
from serving.apis.completions import TokenConversation
from serving.conversation import Completion
from serving.deployment import Deployment, ServiceOptions, deploy
from serving.engine.endpoint import Endpoint
from serving.engine.metrics import read_counters, read_metrics
from serving.engine.server import VllmServer
from serving.meter import LedgerRow
from serving.model import Model
from serving.model_config import ModelConfig, Roles
from serving.tokens.tools import ToolSpec
from serving.usage import Counters, Usage
from tests.engine.watched_runs import Command
from tests.scripted_runs import in_process
from tests.tool_samples import TOOLS

CONTEXT = 8192
"""Tokens that the session's server takes."""


@pytest.fixture(scope="session")
def tiny_model_config(tiny_model_config: ModelConfig) -> ModelConfig:
    """The random model's config with a shorter context, since some tests fill it."""
    return msgspec.structs.replace(tiny_model_config, context=CONTEXT)


@pytest.fixture(scope="session")
def vllm_endpoint(
    tiny_model_config: ModelConfig, tiny_folder: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    """A real vLLM for the whole session; tests that kill servers start their own.

    It keeps its priority: else the tests of the other worker would leave it next to nothing. It has what the
    chat API needs besides.
    """
    flags = {"enable-auto-tool-choice": True, "tool-call-parser": str(tiny_model_config.tool_format)}
    options = msgspec.structs.replace(
        tiny_model_config.server, flags={**tiny_model_config.server.flags, **flags}
    )
    model_config = msgspec.structs.replace(tiny_model_config, server=options)
    server = VllmServer(model_config, tmp_path_factory.mktemp("vllm") / "server.log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving.engine.server.COMPUTE_NICENESS", 0)
        asyncio.run(server.start())
    try:
        yield server.endpoint
    finally:
        asyncio.run(server.stop())


@dataclass
class EngineServer:
    """The session's server as one test sees it, with a ledger of the test's own."""

    deployment: Deployment
    model: Model
    model_config: ModelConfig
    rows: list[LedgerRow]

    @property
    def endpoint(self) -> Endpoint:
        return self.deployment.endpoint


@pytest.fixture
async def engine_server(
    vllm_endpoint: Endpoint, tiny_model_config: ModelConfig, tmp_path: Path
) -> AsyncIterator[EngineServer]:
    rows: list[LedgerRow] = []
    options = ServiceOptions(url=str(vllm_endpoint))
    async with (
        deploy(tiny_model_config, options, log=tmp_path / "unused.log") as deployment,
        deployment.client(rows.append) as model,
    ):
        yield EngineServer(deployment, model, tiny_model_config, rows)


def thinking(model_config: ModelConfig, tokens: int) -> ModelConfig:
    """The model config with another budget for the actor's thinking, and short strings."""
    actor = msgspec.structs.replace(model_config.roles.actor, string_tokens=24, thinking_tokens=tokens)
    return msgspec.structs.replace(
        model_config, roles=msgspec.structs.replace(model_config.roles, actor=actor)
    )


async def play(talk: TokenConversation, turns: int, reply: str) -> list[Completion]:
    """Let the model answer so many times; each prompt begins with the one before and its answer."""
    answers = []
    for turn in range(turns):
        before = list(talk.transcript.ids)
        answers.append(await talk.ask())
        known = before + answers[-1].token_ids
        assert talk.transcript.ids[: len(known)] == known
        talk.tell(f"{reply} {turn}")
    return answers


async def play_side_by_side(
    model: Model, rows: list[LedgerRow], seed: str, turns: int, reply: str
) -> list[list[Completion]]:
    """Play six conversations with four tools each. Every call is valid, the ledger is the engine's, and each
    later turn gets all that could be cached."""
    thinks = model.model_config.roles.actor.thinking_tokens > 0
    model.replicas = replicas_of((await read_metrics(model.engine.endpoint)).caches(), admission=False)
    counted, seen = await read_counters(model.engine.endpoint), len(rows)
    rng, talks = random.Random(seed), []
    for number in range(6):
        said = [
            {"role": "system", "content": "Call a tool."},
            {"role": "user", "content": f"{seed} {number}"},
        ]
        talk = model.converse("actor", said, rng.sample([*TOOLS.values()], 4), {"episode": "test"})
        assert isinstance(talk, TokenConversation)
        talks.append(talk)
    played = await asyncio.gather(*(play(talk, turns, reply) for talk in talks))
    answers = [answer for conversation in played for answer in conversation]
    assert len(answers) == 6 * turns
    assert [str(answer.problem) for answer in answers if answer.problem] == []
    assert all(answer.call is not None for answer in answers)
    assert all(bool(answer.reasoning) == (answer.usage.reasoning > 0) == thinks for answer in answers)
    assert all(answer.usage.completion == len(answer.token_ids) for answer in answers)
    assert [row.status for row in rows[seen:]] == ["ok"] * len(answers)
    ledger = Counters.of(sum((row.usage for row in rows[seen:] if row.usage), Usage()))
    assert await read_counters(model.engine.endpoint) - counted == ledger
    cacheable = {row.request: row.cacheable for row in rows[seen:]}
    for _, *later in played:
        assert [answer.usage.cached for answer in later] == [cacheable[answer.request] for answer in later]
    return played


async def rendered(
    endpoint: Endpoint, model: str, messages: list[dict[str, str]], tools: list[ToolSpec], thinking: bool
) -> list[int]:
    """The token ids that the engine makes of messages and tools, as its chat API would send them."""
    body = {
        "model": model,
        "messages": messages,
        "tools": [tool.openai for tool in tools],
        "add_generation_prompt": True,
        "chat_template_kwargs": {"enable_thinking": thinking},
    }
    async with endpoint.client(60) as client:
        reply = await client.send("/tokenize", msgspec.json.encode(body))
    assert reply.status == 200, reply.text
    tokens: list[int] = reply.json()["tokens"]
    return tokens


def measure(*words: str) -> dict[str, Any]:
    """The one JSON object that a benchmark prints."""
    done = in_process("bench", *words, "--json")
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    measured: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (measured.get("met") is False)
    return measured


FIRST_PROMPTS = {
    "plain": [{"role": "system", "content": "Play."}, {"role": "user", "content": "Begin."}],
    "unicode and code": [
        {"role": "system", "content": "Spiele — 世界 🎲\n\n```python\nprint('<tool>')\n```"},
        {"role": "user", "content": "A  wall\tto the <left>;\n<function=x>\n<parameter=y>\n1 & 2"},
    ],
    "long": [{"role": "system", "content": "Rule. " * 300}, {"role": "user", "content": "a wall\n" * 200}],
}
"""Beginnings without a control token written out: to us that is ordinary text, to an engine it is not."""


def without_control_tokens(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Those of the tools in which no control token is written out either."""
    return [tool for tool in tools if "<|" not in str(tool.openai) and "tool_call>" not in str(tool.openai)]


async def check_first_prompts(model: Model) -> None:
    """Each first prompt is what the engine renders, token by token."""
    tools, budget = without_control_tokens(TOOLS.values()), model.model_config.roles.actor.thinking_tokens
    assert len(tools) > 3
    for beginning, prompt in FIRST_PROMPTS.items():
        talk = model.converse("actor", prompt, tools, {"episode": "test"})
        assert isinstance(talk, TokenConversation)
        name, endpoint = model.model_config.name, model.engine.endpoint
        assert talk.transcript.ids == await rendered(endpoint, name, prompt, tools, budget > 0), beginning


ShortModelConfig = Callable[..., str]
"""Writes a model config; see `short_model_config`."""


@pytest.fixture
def short_model_config(tiny_model_config: ModelConfig, tiny_folder: str, tmp_path: Path) -> ShortModelConfig:
    """Writes the random model's config with other limits (`max_calls`, `string_tokens`), and returns the
    override that chooses it. Untrained, the model ends no episode by itself."""

    def write(**limits: int) -> str:
        roles = {
            name: msgspec.structs.replace(tiny_model_config.role(name), **limits)
            for name in ("actor", "inducer")
        }
        short = msgspec.structs.replace(
            tiny_model_config, path=tiny_folder, recipe=None, roles=Roles(**roles)
        )
        file = tmp_path / "short.yaml"
        file.write_text(yaml.safe_dump(msgspec.to_builtins(short)))
        return f"model.name={file}"

    return write


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts runs; none outlives its test."""
    begun: list[Command] = []

    def start(*overrides: str) -> Command:
        begun.append(Command(tmp_path / "run", f"model.context={CONTEXT}", *overrides))
        return begun[-1]

    yield start
    for each in begun:
        each.process.kill()
        each.process.communicate()
