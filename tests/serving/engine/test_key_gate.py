"""The gate in front of a server on a port: with the key everything passes, without it nothing."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import uvicorn

from serving.engine.key_gate import KeyGate, Receive, Scope, Send
from tests.processes import HANGS_S

KEY = "s3cret"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "passed"})


async def answer(monkeypatch: pytest.MonkeyPatch, kind: str, *headers: tuple[bytes, bytes]) -> list[Any]:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing of the request is read")

    await KeyGate(app)(
        {"type": kind, "path": "/health", "method": "OPTIONS", "headers": headers}, receive, send
    )
    return sent


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_the_key_opens(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    given = (b"authorization", f"Bearer {KEY}".encode())
    assert await answer(monkeypatch, kind, (b"host", b"x"), given) == [{"type": "passed"}]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer s3cre")],
        [(b"authorization", b"Bearer s3cret2")],
        [(b"authorization", b"Basic s3cret")],
        [(b"authorization", b"s3cret")],
        [(b"authorization", "Bearer s3crét".encode())],
        [(b"authorization", b"Bearer no"), (b"authorization", b"Bearer s3cret")],
        [(b"cookie", b"Bearer s3cret")],
    ],
)
async def test_nothing_else_does(monkeypatch: pytest.MonkeyPatch, headers: list[tuple[bytes, bytes]]) -> None:
    start, end = await answer(monkeypatch, "http", *headers)
    assert (start["status"], end) == (401, {"type": "http.response.body"})
    assert await answer(monkeypatch, "websocket", *headers) == [{"type": "websocket.close", "code": 1008}]
    assert await answer(monkeypatch, "some later kind", *headers) != [{"type": "passed"}]


async def test_the_servers_own_start_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answer(monkeypatch, "lifespan") == [{"type": "passed"}]


async def test_without_a_key_it_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with pytest.raises(KeyError):
        KeyGate(app)


MIB = 2**20
BODY = 300 * MIB
WITHIN = 32 * MIB
"""More than the kernel buffers for a socket that no one reads."""


async def counting(scope: Scope, receive: Receive, send: Send) -> None:
    """Read a body and answer with its length."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    headers = [(b"content-length", str(len(str(size))).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture(params=["h11", "httptools"])
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Serve an app behind the gate; yields its address."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    protocol: Literal["h11", "httptools"] = request.param
    server = uvicorn.Server(uvicorn.Config(KeyGate(counting), http=protocol, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=server.run, args=([listener],))
        serving.start()
        yield listener.getsockname()
        server.should_exit = True
        serving.join()


def whole_answer(client: socket.socket) -> bytes:
    """Read an answer to its end, in however many packets it comes."""
    with client.makefile("rb") as file:
        head = b"".join(iter(file.readline, b"\r\n"))
        (length,) = re.findall(rb"content-length: (\d+)", head, re.IGNORECASE)
        return head + file.read(int(length))


def upload(address: tuple[str, int], size: int, *headers: str) -> tuple[int, bytes]:
    """Send a body; how much of it was taken, and what was answered."""
    sent, answer = 0, b""
    with socket.create_connection(address, timeout=HANGS_S) as client:
        head = [f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {size}", *headers]
        client.sendall("\r\n".join([*head, "", ""]).encode())
        try:
            while sent < size:
                sent += client.send(b"x" * min(MIB, size - sent))
            answer = whole_answer(client)
        except ConnectionError:
            pass
    return sent, answer


def test_a_body_without_the_key_is_not_read(address: tuple[str, int]) -> None:
    sent, _ = upload(address, BODY)
    assert sent < WITHIN


def test_the_refusal_of_a_short_request_is_read_and_ends_the_connection(address: tuple[str, int]) -> None:
    _, answer = upload(address, 0)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer.lower()


def test_a_long_body_with_the_key_is_read(address: tuple[str, int]) -> None:
    sent, answer = upload(address, WITHIN, f"Authorization: Bearer {KEY}")
    assert sent == WITHIN
    assert answer.endswith(str(WITHIN).encode())
