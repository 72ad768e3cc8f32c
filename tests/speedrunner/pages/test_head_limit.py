"""The protocol for TCP ports, in a server of this process."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvicorn

from speedrunner.pages import head_limit
from tests.processes import HANGS_S

pytestmark = pytest.mark.process

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHost"
LARGE = b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 100_000


async def answer(scope, receive, send):
    await asyncio.sleep(0.6)  # longer than a head may take
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [(b"", []), (HALF, []), (LARGE, ["400"]), (2 * WHOLE + HALF, ["204", "204"])],
)
async def test_it_answers_whole_requests_and_drops_half_and_large_ones(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, statuses: list[str]
) -> None:
    monkeypatch.setattr(head_limit, "HEAD_S", 0.5)
    config = uvicorn.Config(answer, http=head_limit.HeadLimit, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(sent)
    async with asyncio.timeout(HANGS_S):
        received = await reader.read()
    assert [line.split()[1].decode() for line in received.splitlines() if line[:4] == b"HTTP"] == statuses
    writer.close()
    server.should_exit = True
    await serving
