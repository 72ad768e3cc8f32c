"""The server object with a real vLLM: what stops, kills and restarts it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serving.engine.endpoint import Endpoint, attach
from serving.engine.http import HttpResponse
from serving.engine.metrics import read_counters, read_metrics
from serving.engine.server import VllmServer
from serving.model_configs import load_model_config
from serving.usage import Counters
from serving.weights import prepare
from tests.processes import all_end, tree

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> str:
    return prepare(load_model_config("tiny-random"), print)


async def complete(endpoint: Endpoint) -> HttpResponse:
    async with endpoint.client(60) as client:
        body = {"model": "tiny-random", "prompt": [5] * 70, "max_tokens": 4, "ignore_eos": True}
        return await client.post("/v1/completions", msgspec.json.encode(body))


async def test_a_killed_engine_core_ends_the_server_and_a_restart_serves_again(
    model: str, tmp_path: Path
) -> None:
    server = VllmServer(load_model_config("tiny-random"), model, tmp_path / "log")
    try:
        await server.start()
        await attach(server.endpoint, "tiny-random")
        before = await read_counters(server.endpoint)
        assert (await complete(server.endpoint)).status == 200
        assert (await complete(server.endpoint)).status == 200
        assert await read_counters(server.endpoint) - before == Counters(prompt=140, cached=64, generated=8)
        caches = (await read_metrics(server.endpoint)).caches()
        assert [cache.block_size for cache in caches] == [32]

        processes = tree(server.pid)
        (core,) = [process for process in processes if "EngineCore" in process.name()]
        core.kill()
        assert all_end(processes)
        assert not server.alive
        assert "EngineDeadError" in server.failure()

        await server.stop()
        await server.start()
        assert (await complete(server.endpoint)).status == 200
        processes = tree(server.pid)
        (core,) = [process for process in processes if "EngineCore" in process.name()]
        processes[1].kill()  # the API server alone: vLLM's engine would live on
        assert all_end([core])
    finally:
        await server.stop()
    assert all_end(processes)
