"""What all tests share: the tiny model, and one real server for every engine test that does not kill it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.cards import ModelCard, load_card, prepare
from serving.deployment import Deployment, ServiceOptions, deploy
from serving.engine.endpoint import Endpoint
from serving.engine.server import VllmServer
from serving.meter import LedgerRow
from serving.model import Model
from serving.tokens.tokenizer import ChatTokenizer

# Started in the background, a test run ignores these signals, and so would every process that it starts.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def tiny_card() -> ModelCard:
    return load_card("tiny")


@pytest.fixture(scope="session")
def tiny_folder(tiny_card: ModelCard) -> str:
    """The bundled model, built on first use."""
    return prepare(tiny_card, lambda line: None)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_folder: str) -> ChatTokenizer:
    return ChatTokenizer(tiny_folder)


@pytest.fixture(scope="session")
def vllm_endpoint(
    tiny_card: ModelCard, tiny_folder: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    """A real vLLM for the whole session; tests that kill servers start their own."""
    server = VllmServer(tiny_card, tiny_folder, tmp_path_factory.mktemp("vllm") / "server.log")
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
