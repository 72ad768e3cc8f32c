"""A model in service: reached, checked, metered, started again, and put away."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from serving.deployment import Deployment, ServiceOptions, deploy
from serving.engine.server import VllmServer
from serving.errors import InvalidModelConfig, ServerDied, ServerFailed
from serving.meter import READINESS, LedgerRow
from serving.model_config import ModelConfig
from serving.model_configs import load_model_config
from serving.options import running_endpoint
from serving.tokens.tokenizer import ChatTokenizer
from serving.usage import Counters, Prices, Usage
from tests.scripted_engine import ScriptedEngine, call, refuse, say
from tests.stand_in_server import HEALTHY

pytestmark = pytest.mark.process


Attach = Callable[..., AbstractAsyncContextManager[Deployment]]


class TestAttaching:
    """To a server that runs already."""

    @pytest.fixture
    def engine(self, tiny_tokenizer: ChatTokenizer) -> Iterator[ScriptedEngine]:
        with ScriptedEngine(tiny_tokenizer, lambda request: say("")) as engine:
            yield engine

    @pytest.fixture
    def attach(self, bare: ModelConfig, engine: ScriptedEngine, tmp_path: Path) -> Attach:
        @asynccontextmanager
        async def attach(**options: Any) -> AsyncIterator[Deployment]:
            chosen = ServiceOptions(**({"url": str(engine.endpoint)} | options))
            async with deploy(bare, chosen, log=tmp_path / "log") as deployment:
                yield deployment

        return attach

    async def test_a_real_request_shows_that_it_answers_and_stands_in_the_ledger(
        self, attach: Attach, tmp_path: Path
    ) -> None:
        rows: list[LedgerRow] = []
        async with attach() as deployment:
            assert deployment.server is None
            async with deployment.client(rows.append):
                reconciliation = await deployment.reconciliation()
        assert reconciliation is not None
        assert (reconciliation.ledger, reconciliation.engine) == (Counters(1, 0, 1), Counters(1, 0, 1))
        assert (reconciliation.unreported, reconciliation.ours, reconciliation.agrees) == (0, False, True)
        (row,) = rows
        assert (row.labels, row.status, row.usage) == ({"role": READINESS}, "ok", Usage(1, 0, 1, 0))
        assert not (tmp_path / "log").exists()

    async def test_clients_share_the_engine_and_each_has_its_own_ledger_and_prices(
        self, attach: Attach, bare: ModelConfig
    ) -> None:
        prices = Prices(uncached=7.0, cached=0.0, output=1.0)
        one: list[LedgerRow] = []
        two: list[LedgerRow] = []
        async with (
            attach() as deployment,
            deployment.client(one.append, prices=prices) as dear,
            deployment.client(two.append) as usual,
        ):
            assert dear.engine.meter.spent_usd == pytest.approx(8e-6)
            assert usual.engine.meter.spent_usd == pytest.approx(bare.prices.cost(Usage(1, 0, 1)))
            reconciliation = await deployment.reconciliation()
        assert (len(one), len(two)) == (1, 1)
        assert reconciliation is not None
        assert (reconciliation.ledger, reconciliation.agrees) == (Counters(2, 0, 2), True)

    @pytest.mark.parametrize(
        ("script", "options", "message"),
        [
            (say(""), {"url": "http://127.0.0.1:9"}, "nothing answers at http://127.0.0.1:9/v1"),
            (say(""), {"url": "unix:/nowhere/socket"}, "nothing answers at unix:/nowhere/socket"),
            (refuse(404, "no such model"), {}, "is up but does not answer: status 404: no such model"),
        ],
    )
    async def test_what_cannot_be_used_is_told(
        self, attach: Attach, engine: ScriptedEngine, script: Any, options: dict[str, str], message: str
    ) -> None:
        engine.script = lambda request: script
        with pytest.raises(ServerFailed) as error:
            async with attach(**options) as deployment, deployment.client(lambda row: None):
                pass
        assert message in str(error.value)
        assert "\n" not in str(error.value)

    async def test_the_key_comes_from_the_environment(
        self, attach: Attach, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.api_key = "sesame"

        async def refused(kind: type[Exception], message: str, name: str | None = "TOY_KEY") -> None:
            with pytest.raises(kind, match=message):
                async with attach(api_key_env=name):
                    pass

        await refused(ServerFailed, "requires an API key: set serving.api_key_env", None)
        await refused(InvalidModelConfig, "environment variable TOY_KEY with its API key is not set")
        monkeypatch.setenv("TOY_KEY", "open up")
        await refused(ServerFailed, "environment variable TOY_KEY contains no API key: a key is one word")
        monkeypatch.setenv("TOY_KEY", "open-up\n")
        await refused(ServerFailed, "refuses the API key")
        monkeypatch.setenv("TOY_KEY", "sesame")
        async with attach(api_key_env="TOY_KEY"):
            pass


async def test_a_hosted_model_is_neither_started_nor_asked_for_counters(
    tiny_model_config: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TOY_KEY", raising=False)
    with ScriptedEngine(tiny_tokenizer, [call("dig")], model="hosted", api_key="sesame") as engine:
        model_config = ModelConfig(
            name="hosted",
            tried="in tests",
            context=1000,
            roles=tiny_model_config.roles,
            prices=tiny_model_config.prices,
            base_url=str(engine.endpoint),
            api_key_env="TOY_KEY",
            api="chat",
        )
        with pytest.raises(
            InvalidModelConfig, match="'hosted': environment variable TOY_KEY with its API key"
        ):
            running_endpoint(model_config, ServiceOptions())
        monkeypatch.setenv("TOY_KEY", "sesame")
        rows: list[LedgerRow] = []
        async with (
            deploy(model_config, ServiceOptions(), log=tmp_path / "log") as deployment,
            deployment.client(rows.append) as model,
        ):
            assert rows == []
            assert await deployment.reconciliation() is None
            conversation = model.converse("actor", [{"role": "user", "content": "Dig."}], [], {})
            assert (await conversation.ask()).call is None  # there is no such tool
        assert [row.model for row in rows] == ["hosted"]


READS = 'self.rfile.read(int(self.headers["content-length"]))'
PRINTS = HEALTHY.replace(READS, f"print({READS}.decode(), flush=True)")
"""Prints each request, so that its log has them."""


class TestRecovery:
    """Of a server of ours, shown with a small stand-in for vLLM that takes the same flags."""

    @pytest.fixture
    async def service_of(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Callable[..., Any]]:
        made: list[Deployment] = []

        async def make(script: str = HEALTHY, gpus: int = 0) -> tuple[Deployment, VllmServer, list[str]]:
            file = tmp_path / "stand_in.py"
            file.write_text(script)
            said: list[str] = []
            model_config = msgspec.structs.replace(load_model_config("tiny-random"), gpus=gpus)
            monkeypatch.setattr("serving.engine.server.API_SERVER", (sys.executable, str(file)))
            server = VllmServer(model_config, tmp_path / "log")
            service = Deployment(model_config, ServiceOptions(), server.endpoint, server, say=said.append)
            made.append(service)
            await server.start()
            return service, server, said

        yield make
        for service in made:
            await service.close()
            assert service.server is not None
            service.server.kill()

    @staticmethod
    async def kill(server: VllmServer) -> None:
        """Kill it as a full memory would, and wait until it is gone."""
        assert server.pid is not None
        (process,) = psutil.Process(server.pid).children()
        os.kill(process.pid, signal.SIGKILL)
        while server.alive:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    async def test_the_death_of_ours_is_told_with_its_cause(self, service_of: Any) -> None:
        service, server, _ = await service_of()
        await service._require_alive()
        await self.kill(server)
        with pytest.raises(
            ServerDied,
            match=r"^the engine died: the server of model 'tiny-random' was killed by SIGKILL: .*; log: \S+$",
        ):
            await service._require_alive()

    async def test_one_that_hangs_is_ended_and_so_are_its_requests(self, service_of: Any) -> None:
        service, server, said = await service_of()
        await service.hung()
        assert not server.alive
        with pytest.raises(ServerDied):
            await service._require_alive()
        assert said == ["the engine hangs: requests run, and it shows no progress; it is stopped"]
