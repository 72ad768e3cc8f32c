"""Addresses of servers, as people write them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint, attach
from serving.errors import ServerFailed
from tests.golden_tables import Golden, table
from tests.processes import HANGS_S


@pytest.mark.parametrize(
    ("text", "base_url"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://node7:8000/v1/", "http://node7:8000/v1"),
        ("https://[::1]:8000/v1", "https://[::1]:8000/v1"),
    ],
)
def test_a_url_with_or_without_v1(text: str, base_url: str) -> None:
    endpoint = Endpoint.parse(text, api_key="k")
    assert endpoint == Endpoint(base_url, api_key="k")
    assert str(endpoint) == base_url


@pytest.mark.parametrize("text", ["unix:/run/a.sock", "unix:///run/a.sock"])
def test_a_socket(text: str) -> None:
    endpoint = Endpoint.parse(text)
    assert endpoint.socket == Path("/run/a.sock")
    assert str(endpoint) == "unix:/run/a.sock"


@pytest.mark.parametrize(
    "text",
    ["", "localhost:8000", "unix:", "unix:relative.sock", "ftp://h/v1", "http://", "http://h:99999/v1",
     "http://h:x/v1", "http://h/v2", "http://h/v1?a=b", "/run/a.sock"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_two_forms(text: str) -> None:
    with pytest.raises(
        ServerFailed, match=r"is not the address of a server; write http://.* or unix:/"
    ) as caught:
        Endpoint.parse(text)
    assert repr(text) in str(caught.value)


TWO_MODELS = '{"data": [{"id": "a", "max_model_len": 900}, {"id": "b"}]}'


@contextlib.asynccontextmanager
async def answering(folder: Path, status: int, body: str) -> AsyncIterator[Endpoint]:
    """A server on a Unix socket that gives every request the same answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, folder / "s")
    async with server:
        yield Endpoint.on_socket(folder / "s")


async def test_attaching_to_anything_else_says_what_is_wrong(tmp_path: Path, golden: Golden) -> None:
    async def problem(endpoint: Endpoint) -> str:
        with pytest.raises(ServerFailed) as caught:
            await attach(endpoint, "tiny-random")
        return str(caught.value)

    nothing = Endpoint.parse(f"unix:{tmp_path}/none.sock")
    assert not await nothing.healthy()
    problems = {"nothing": await problem(nothing)}
    for status, body in ((401, ""), (500, ""), (200, "<html>"), (200, "[]"), (200, TWO_MODELS)):
        async with answering(tmp_path, status, body) as endpoint:
            assert await endpoint.healthy() == (status == 200)
            problems[f"status {status} {body}"] = await problem(endpoint)
    golden("unfit_servers.txt", table(problems, HERE=tmp_path))


async def test_a_server_that_has_ended_is_told_from_one_that_is_too_busy_to_answer(tmp_path: Path) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with await asyncio.start_unix_server(hold, tmp_path / "busy"):
        assert await Endpoint.on_socket(tmp_path / "busy").health(0.01) is None
    assert await Endpoint.on_socket(tmp_path / "busy").health(HANGS_S) == 0
