"""What tests with a real engine share: one server for all that do not kill it, and short model cards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml

from serving.conversation import Completion
from serving.deployment import Deployment, ServiceOptions, deploy
from serving.engine.endpoint import Endpoint
from serving.engine.server import VllmServer
from serving.meter import LedgerRow
from serving.model import Model
from serving.model_card import ModelCard, Roles
from serving.routes.tokens import TokenConversation


@pytest.fixture(scope="session")
def vllm_endpoint(
    tiny_card: ModelCard, tiny_folder: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    """A real vLLM for the whole session; tests that kill servers start their own.

    It keeps its priority: else the tests of the other worker would leave it next to nothing. It has what the
    routes of messages need besides.
    """
    flags = {"enable-auto-tool-choice": True, "tool-call-parser": str(tiny_card.tool_format)}
    options = msgspec.structs.replace(tiny_card.server, flags={**tiny_card.server.flags, **flags})
    card = msgspec.structs.replace(tiny_card, server=options)
    server = VllmServer(card, tiny_folder, tmp_path_factory.mktemp("vllm") / "server.log")
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
    card: ModelCard
    rows: list[LedgerRow]

    @property
    def endpoint(self) -> Endpoint:
        return self.deployment.endpoint


@pytest.fixture
async def engine_server(
    vllm_endpoint: Endpoint, tiny_card: ModelCard, tmp_path: Path
) -> AsyncIterator[EngineServer]:
    rows: list[LedgerRow] = []
    options = ServiceOptions(url=str(vllm_endpoint))
    async with (
        deploy(tiny_card, options, log=tmp_path / "unused.log") as deployment,
        deployment.client(rows.append) as model,
    ):
        yield EngineServer(deployment, model, tiny_card, rows)


def thinking(card: ModelCard, tokens: int) -> ModelCard:
    """The card with another budget for the actor's thinking, and short strings."""
    actor = msgspec.structs.replace(card.roles.actor, string_tokens=24, thinking_tokens=tokens)
    return msgspec.structs.replace(card, roles=msgspec.structs.replace(card.roles, actor=actor))


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


ShortCard = Callable[..., str]
"""Writes a card; see `short_card`."""


@pytest.fixture
def short_card(tiny_card: ModelCard, tiny_folder: str, tmp_path: Path) -> ShortCard:
    """Writes the random model's card with other limits (`max_calls`, `string_tokens`), and returns the
    override that chooses it. Untrained, the model ends no episode by itself."""

    def write(**limits: int) -> str:
        roles = {
            name: msgspec.structs.replace(tiny_card.role(name), **limits) for name in ("actor", "inducer")
        }
        short = msgspec.structs.replace(tiny_card, path=tiny_folder, recipe=None, roles=Roles(**roles))
        file = tmp_path / "short.yaml"
        file.write_text(yaml.safe_dump(msgspec.to_builtins(short)))
        return f"model.card={file}"

    return write
