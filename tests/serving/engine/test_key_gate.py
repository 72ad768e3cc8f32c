"""The gate in front of a server on a port: with the key everything passes, without it nothing."""

from __future__ import annotations

from typing import Any

import pytest

from serving.engine.key_gate import KeyGate, Receive, Scope, Send

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
