"""The sessions of clients over HTTP, within this process: their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from speedrunner.skill_server import http_sessions
from speedrunner.skill_server.http_sessions import PATH, HttpSessions
from speedrunner.skill_server.player import IDLE_S
from tests.processes import HANGS_S
from tests.speedrunner.skill_server.samples import INITIALIZE, Lender, make_game

TOKEN = "token of the test"


class Pool:
    """A pool of workers in this process."""

    def __init__(self) -> None:
        self.lender = Lender()
        self.worker = self.lender.lend


@asynccontextmanager
async def browse(pool: Pool) -> AsyncIterator[tuple[httpx2.AsyncClient, HttpSessions]]:
    """A web client of a server with at most one session, and the server."""
    async with asyncio.TaskGroup() as tasks:
        sessions = HttpSessions(make_game(), pool, tasks, TOKEN, 1)  # type: ignore[arg-type]
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Accept": "application/json, text/event-stream",
        }
        transport = httpx2.ASGITransport(sessions)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers, timeout=HANGS_S
        ) as client:
            yield client, sessions


async def begin(client: httpx2.AsyncClient) -> dict[str, str]:
    """Begin a session with an episode. Return the header that names the session."""
    answer = await client.post(PATH, json=INITIALIZE)
    assert answer.status_code == 200
    session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await client.post(PATH, json=ready, headers=session)).status_code == 202
    call = {"name": "start_episode", "arguments": {}}
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    answer = await client.post(PATH, json=message, headers=session)
    assert "Walk to the flag." in answer.text
    return session


async def until_returned(pool: Pool) -> None:
    async with asyncio.timeout(HANGS_S):
        while pool.lender.returned < pool.lender.lent:  # noqa: ASYNC110 - the server reports no end
            await asyncio.sleep(0.01)


async def test_a_session_without_requests_ends_with_its_episode() -> None:
    pool = Pool()
    async with browse(pool) as (client, sessions):
        session = await begin(client)
        (transport,) = sessions._open.values()
        idle = transport.idle_scope
        assert idle is not None
        assert idle.deadline <= anyio.current_time() + IDLE_S
        idle.deadline = anyio.current_time()  # as if this time were over
        await until_returned(pool)
        answer = await client.post(PATH, json=INITIALIZE, headers=session)
        assert answer.status_code == 404
        assert (await client.delete(PATH, headers=await begin(client))).status_code == 200


async def test_a_session_that_its_client_ends_takes_its_episode_with_it() -> None:
    pool = Pool()
    async with browse(pool) as (client, _):
        session = await begin(client)
        assert (await client.delete(PATH, headers=session)).status_code == 200
        await until_returned(pool)
        assert (await client.delete(PATH, headers=await begin(client))).status_code == 200


async def test_a_client_opens_no_stream_which_would_keep_its_session_from_ending() -> None:
    pool = Pool()
    async with browse(pool) as (client, sessions):
        session = await begin(client)
        async with asyncio.timeout(HANGS_S):
            answer = await client.get(PATH, headers=session)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST, DELETE")
        (transport,) = sessions._open.values()
        assert transport.idle_scope is not None
        assert transport.idle_scope.deadline <= anyio.current_time() + IDLE_S
        assert (await client.delete(PATH, headers=session)).status_code == 200


async def test_a_session_that_fails_at_once_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no player today")

    async with browse(Pool()) as (client, _):
        with monkeypatch.context() as patch:
            patch.setattr(http_sessions, "Player", fail)
            async with asyncio.timeout(HANGS_S):
                assert (await client.post(PATH, json=INITIALIZE)).status_code == 404
        assert "no player today" in caplog.text
        assert (await client.delete(PATH, headers=await begin(client))).status_code == 200
