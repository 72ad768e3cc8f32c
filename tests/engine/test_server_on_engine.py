"""The server object with a real vLLM: what stops, kills and restarts it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import psutil
import pytest

from serving.engine.endpoint import Endpoint, attach
from serving.engine.http import HttpResponse
from serving.engine.metrics import read_counters, read_metrics
from serving.engine.server import VllmServer
from serving.errors import ServerFailed
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


async def test_on_a_port_only_loopback_listens_and_the_key_is_needed(model: str, tmp_path: Path) -> None:
    port = 20000 + psutil.Process().pid % 10000
    server = VllmServer(load_model_config("tiny-random"), model, tmp_path / "log", port=port)
    await server.start()
    try:
        processes = tree(server.pid)
        listening = [
            connection.laddr.ip
            for process in processes
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert set(listening) == {"127.0.0.1"}
        assert (await complete(server.endpoint)).status == 200
        stranger = Endpoint.parse(f"http://127.0.0.1:{port}/v1")
        assert (await complete(stranger)).status == 401
        assert await answers_on_all_apis(server.endpoint, stranger) == {401}
        assert await answer_to_a_websocket(port, "/v1/realtime") == 403
        assert not await stranger.healthy()
        await read_counters(server.endpoint)
        with pytest.raises(ServerFailed, match="requires an API key"):
            await attach(stranger, "tiny-random")
        with pytest.raises(ServerFailed, match=f"port {port}"):
            await VllmServer(load_model_config("tiny-random"), model, tmp_path / "log2", port=port).start()
    finally:
        await server.stop()
    assert all_end(processes)


async def answers_on_all_apis(endpoint: Endpoint, stranger: Endpoint) -> set[int]:
    """What a stranger is told on every route that the server lists, and on some that it does not."""
    routes = (await endpoint.get("/openapi.json")).json()["paths"]
    assert {"/v1/completions", "/invocations", "/tokenize", "/metrics", "/health"} <= set(routes)
    unlisted = ("/", "/docs", "/redoc", "/openapi.json", "/metrics/", "//invocations", "/v1", "/no/such")
    statuses = set()
    async with stranger.client(60) as client:
        for path in (*routes, *unlisted):
            for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"):
                body = b'{"model": "tiny-random", "prompt": "a", "max_tokens": 1}'
                headers = {"Authorization": "Bearer wrong"} if method == "PUT" else None
                response = await client.request(method, path, body, headers)
                statuses.add(response.status)
    return statuses


async def answer_to_a_websocket(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)
