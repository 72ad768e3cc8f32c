"""An OpenEnv server within this process, and clients on its network: our own, and raw ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

import envs
from envs import InvalidOption, Task
from envs.openenv_connection import NoServer, OpenEnvFailed
from speedrunner.skill_server import openenv_server
from speedrunner.skill_server.openenv_server import LARGEST_MESSAGE, QUEUED, make_application
from tests.processes import HANGS_S
from tests.speedrunner.skill_server.samples import SlowWorker, make_game
from tests.speedrunner.skill_server.test_http_sessions import Pool

TOKEN = "token-of-the-test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
RESET = {"type": "reset", "data": {"index": 2}}

Client = TestClient[Any, Any]


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
async def client(pool: Pool) -> AsyncIterator[Client]:
    """A client of a server with two sessions."""
    app = make_application(make_game(), pool, TOKEN, 2)  # type: ignore[arg-type]
    async with TestClient(TestServer(app)) as started:
        yield started


async def ask(socket: Any, message: Any) -> Any:
    await socket.send_json(message)
    return await socket.receive_json(timeout=HANGS_S)


async def until_returned(pool: Pool) -> None:
    async with asyncio.timeout(HANGS_S):
        while pool.lender.returned < pool.lender.lent:  # noqa: ASYNC110 - the server reports no end
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("headers", [BEARER, {"Authorization": aiohttp.encode_basic_auth("user", TOKEN)}])
async def test_a_client_plays_with_the_token_as_a_header_or_as_a_password(
    client: Client, pool: Pool, headers: dict[str, str]
) -> None:
    async with client.ws_connect("/ws", headers=headers) as socket:
        await ask(socket, RESET)
        last = await ask(socket, {"type": "step", "data": {"message": "walk 2"}})
        assert (last["data"]["reward"], last["data"]["done"]) == (1.0, True)
        await socket.send_json({"type": "close"})
        assert (await socket.receive(timeout=HANGS_S)).type is aiohttp.WSMsgType.CLOSE
    await until_returned(pool)


@pytest.mark.parametrize("path", ["/ws", "/health", "/metadata", "/nowhere"])
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer x",
        "Basic x",
        "Basic eDp5",
        f"Basic {TOKEN}",
        f"Digest {TOKEN}",
        "Bearer \u00e9",
    ],
)
async def test_without_the_token_nothing_is_answered(client: Client, path: str, header: str | None) -> None:
    answer = await client.get(path, headers={} if header is None else {"Authorization": header})
    assert answer.status == 401
    assert "send the server's token as a password" in await answer.text()


async def test_requests_that_a_browser_sends_for_another_site_are_refused(client: Client) -> None:
    assert (await client.get("/ws", headers={**BEARER, "Host": "example.org"})).status == 421
    assert (await client.get("/ws", headers={**BEARER, "Origin": "http://example.org"})).status == 403


async def test_the_server_describes_itself(client: Client) -> None:
    found = {}
    for path in ("/health", "/metadata", "/schema", "/openapi.json"):
        async with client.get(path, headers=BEARER) as answer:
            found[path] = await answer.json()
    assert found["/health"] == {"status": "healthy"}
    assert found["/metadata"]["description"].startswith("You are in a corridor.")
    assert set(found["/schema"]) == {"action", "observation", "state"}
    assert list(found["/openapi.json"]["paths"]) == ["/health", "/metadata", "/schema"]
    for body, number in (
        (b'{"id": 7}', 7),
        (b"[]", None),
        (b"nonsense", None),
        (b'"\xff"', None),
        (b"[" * 10**5, None),
    ):
        async with client.post("/mcp", data=body, headers=BEARER) as answer:
            refused = await answer.json()
        assert (refused["id"], refused["error"]["code"]) == (number, -32601)


async def test_there_are_at_most_as_many_sessions_as_allowed(client: Client, pool: Pool) -> None:
    async with (
        client.ws_connect("/ws", headers=BEARER) as one,
        client.ws_connect("/ws", headers=BEARER) as other,
    ):
        await ask(one, RESET)
        await ask(other, RESET)
        async with client.ws_connect("/ws", headers=BEARER) as third:
            refused = await third.receive_json(timeout=HANGS_S)
            assert refused["data"]["code"] == "CAPACITY_REACHED"
            assert "all 2 sessions are in use" in refused["data"]["message"]
    await until_returned(pool)
    async with client.ws_connect("/ws", headers=BEARER) as again:
        assert (await ask(again, RESET))["type"] == "observation"


async def test_a_client_that_leaves_during_a_step_ends_it(client: Client, pool: Pool) -> None:
    pool.lender._slow = True
    async with client.ws_connect("/ws", headers=BEARER) as socket:
        await ask(socket, RESET)
        await socket.send_json({"type": "step", "data": {"message": "walk"}})
        worker = pool.lender.worker
        assert isinstance(worker, SlowWorker)
        async with asyncio.timeout(HANGS_S):
            await worker.called.wait()
    await until_returned(pool)


async def test_pings_do_not_keep_a_session_without_messages(
    client: Client, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.ws_connect("/ws", headers=BEARER, autoping=False) as socket:
        await ask(socket, RESET)
        monkeypatch.setattr(openenv_server, "IDLE_S", 0.2)
        await socket.send_json({"type": "state"})
        kind = aiohttp.WSMsgType.PONG
        async with asyncio.timeout(HANGS_S):
            while kind in (aiohttp.WSMsgType.PONG, aiohttp.WSMsgType.TEXT):
                await socket.ping()
                kind = (await socket.receive()).type
        assert kind is aiohttp.WSMsgType.CLOSE
    await until_returned(pool)


async def test_messages_are_answered_in_order_and_few_may_wait(client: Client, pool: Pool) -> None:
    async with client.ws_connect("/ws", headers=BEARER) as socket:
        await socket.send_json(RESET)
        for steps in ("1", "0"):
            await socket.send_json({"type": "step", "data": {"message": f"walk {steps}"}})
        answers = [await socket.receive_json(timeout=HANGS_S) for _ in range(3)]
        texts = [each["data"]["observation"]["text"] for each in answers[1:]]
        assert texts == ["You are at field 1. The flag is at field 2."] * 2
    pool.lender._slow = True
    async with client.ws_connect("/ws", headers=BEARER) as socket:
        await ask(socket, RESET)
        for _ in range(QUEUED + 2):
            await socket.send_json({"type": "step", "data": {"message": "walk"}})
        assert (await socket.receive(timeout=HANGS_S)).type is aiohttp.WSMsgType.CLOSE
    await until_returned(pool)


@pytest.mark.parametrize("message", ["x" * (LARGEST_MESSAGE + 1), b"{}"])
async def test_a_large_or_binary_message_ends_the_session(
    client: Client, pool: Pool, message: str | bytes
) -> None:
    async with client.ws_connect("/ws", headers=BEARER) as socket:
        await ask(socket, RESET)
        await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
        assert (await socket.receive(timeout=HANGS_S)).type is aiohttp.WSMsgType.CLOSE
    await until_returned(pool)


async def test_our_own_client_plays_to_success(client: Client, tmp_path: Path) -> None:
    url, file = str(client.make_url("")), tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    def play() -> None:
        env = envs.make("openenv", url=url, observation="text", token_file=str(file))
        opening = env.reset(Task("openenv", "default", 1))
        assert "The flag is at field 4." in opening.observation
        assert env.call("act", text="walk 3") == "You are at field 3. The flag is at field 4."
        assert not env.outcome().success
        env.call("act", text="walk 1")
        assert (env.outcome().success, env.done) == (True, True)
        env.reset(Task("openenv", "default", 2))
        env.close()
        with pytest.raises(NoServer, match="401"):
            envs.make("openenv", url=url).reset(Task("openenv", "default", 1))

    await asyncio.to_thread(play)


async def test_our_own_client_reports_that_all_sessions_are_in_use(client: Client, tmp_path: Path) -> None:
    url, file = str(client.make_url("")), tmp_path / "token"
    file.write_text(TOKEN)

    def play() -> None:
        made = [envs.make("openenv", url=url, observation="text", token_file=str(file)) for _ in range(3)]
        for each in made[:2]:
            each.reset(Task("openenv", "default", 1))
        with pytest.raises(OpenEnvFailed, match="all 2 sessions are in use"):
            made[2].reset(Task("openenv", "default", 1))
        for each in made:
            each.close()

    await asyncio.to_thread(play)


def test_a_token_in_the_address_is_refused() -> None:
    with pytest.raises(InvalidOption, match="must not contain a password"):
        envs.make("openenv", url="http://user:secret@127.0.0.1:8000")


@pytest.mark.parametrize("content", ["", "two words", "\u00e9"])
def test_a_token_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(InvalidOption, match="option 'token_file' of openenv"):
        envs.make("openenv", token_file=str(file))
