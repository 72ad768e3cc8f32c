"""Requests to real servers on loopback, and what those send back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from gzip import compress
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace

import pytest

from serving.engine.http_client import KEEPALIVE_S, HttpClient, HttpError
from tests.processes import timers, until

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def echoing_server(folder: Path, answer: Answer) -> AsyncIterator[list[int]]:
    """A server on the socket `s` in a folder; gives the numbers of the connections that requests came on."""
    used: list[int] = []
    numbers = itertools.count()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(numbers)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                used.append(number)
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                await answer(head + await reader.readexactly(length), writer)
        except asyncio.IncompleteReadError:
            used.append(-1)  # the client is gone
        finally:
            writer.close()

    async with await asyncio.start_unix_server(connected, folder / "s", limit=2**24):
        yield used


def client_of(folder: Path, timeout_s: float = 60.0, api_key: str | None = None) -> HttpClient:
    return HttpClient("http://localhost", folder / "s", api_key, timeout_s)


def response(content: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def echo(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(response(request.partition(b"\r\n\r\n")[2]))


async def test_a_body_of_many_megabytes_goes_and_comes_whole_on_one_connection(tmp_path: Path) -> None:
    content = b"0123456789" * 300_000
    async with echoing_server(tmp_path, echo) as used, client_of(tmp_path) as client:
        for _ in range(3):
            reply = await client.send("/v1/completions", content)
            assert (reply.status, reply.reason, reply.content) == (200, "OK", content)
        assert used == [0, 0, 0]


async def test_the_time_limit_of_an_answer_ends_with_it(tmp_path: Path) -> None:
    async def silent(*_: object) -> None:
        request.cancel()

    async with echoing_server(tmp_path, echo), client_of(tmp_path) as client:
        await client.send("/")
        assert timers() == []
    async with echoing_server(tmp_path, silent), client_of(tmp_path) as client:
        request = asyncio.create_task(client.send("/"))
        await asyncio.wait([request])
        assert timers() == []


async def test_an_answer_that_comes_late_a_second_time_is_no_answer_to_the_next_request(
    tmp_path: Path,
) -> None:
    again = asyncio.Event()

    async def twice(request: bytes, writer: asyncio.StreamWriter) -> None:
        content = response(request.partition(b"\r\n\r\n")[2])
        writer.write(content)
        if not again.is_set():
            await again.wait()
            writer.write(content)
            await writer.drain()
            sent.set()

    sent = asyncio.Event()
    async with echoing_server(tmp_path, twice) as used, client_of(tmp_path) as client:
        assert (await client.send("/", b"first")).content == b"first"
        again.set()
        await sent.wait()
        for _ in range(10):  # the client reads it
            await asyncio.sleep(0)
        assert (await client.send("/", b"second")).content == b"second"
        assert used.count(0) == 1


async def test_the_key_is_sent_and_a_redirect_is_not_followed(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def redirect(request: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(request)
        writer.write(response(b"", "307 Temporary Redirect", "Location: /elsewhere\r\n"))

    async with echoing_server(tmp_path, redirect), client_of(tmp_path, api_key="sesame") as client:
        reply = await client.send("/here")
    assert (reply.status, reply.headers["location"]) == (307, "/elsewhere")
    (request,) = seen
    assert request.startswith(b"GET /here HTTP/1.1")
    assert b"Authorization: Bearer sesame" in request


async def test_a_cancelled_request_closes_its_connection(tmp_path: Path) -> None:
    """At which vLLM aborts it."""
    gone = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        sent.set()
        await reader.read()
        gone.set()
        writer.close()

    sent = asyncio.Event()
    async with await asyncio.start_unix_server(connected, tmp_path / "s"), client_of(tmp_path) as client:
        request = asyncio.create_task(client.send("/"))
        await sent.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await gone.wait()


async def test_a_server_s_words_do_not_have_the_key(tmp_path: Path) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        assert b"Bearer sesame/opens" in request
        writer.write(response(rb"your key sesame/opens, sesame\/opens", "401 sesame/opens"))

    async with echoing_server(tmp_path, answer), client_of(tmp_path, api_key="sesame/opens") as client:
        reply = await client.send("/")
        assert reply.content == b"your key (the API key), (the API key)"
        assert reply.reason == "(the API key)"


async def test_a_broken_answer_s_words_do_not_have_the_key(tmp_path: Path) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"sesame-opens\r\n\r\n")

    async with echoing_server(tmp_path, answer), client_of(tmp_path, api_key="sesame-opens") as client:
        with pytest.raises(HttpError) as caught:
            await client.send("/")
    assert "sesame" not in "".join(format_exception(caught.value))


@pytest.mark.parametrize("header", ["Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n"])
async def test_a_compressed_answer_is_not_read(tmp_path: Path, header: str) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        assert b"Accept-Encoding: identity" in request
        writer.write(response(compress(b"x" * 10_000_000), more=header))

    async with echoing_server(tmp_path, answer), client_of(tmp_path) as client:
        with pytest.raises(HttpError, match="compressed"):
            await client.send("/")


async def test_an_answer_without_an_end_is_left(tmp_path: Path) -> None:
    async def flood(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"100000\r\n" + bytes(2**20) + b"\r\n")
                await writer.drain()

    async with echoing_server(tmp_path, flood), client_of(tmp_path) as client:
        with pytest.raises(HttpError, match="more than 134,217,728 bytes") as error:
            await client.send("/v1/models")
    assert error.value.failure == "unusable"


async def test_a_header_that_cannot_be_written_is_not_quoted(tmp_path: Path) -> None:
    async with echoing_server(tmp_path, echo) as used, client_of(tmp_path, api_key="sesa\nme") as client:
        with pytest.raises(HttpError) as caught:
            await client.send("/")
        assert caught.value.failure == "not sendable"
        assert "sesa" not in str(caught.value)
        assert used in ([], [-1])


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
async def test_a_host_that_cannot_be_looked_up_is_not_sendable(host: str) -> None:
    async with HttpClient(f"http://{host}:80", None, None, 60.0) as client:
        with pytest.raises(HttpError) as caught:
            await client.send("/")
    assert caught.value.failure == "not sendable"


async def test_connections_of_a_peak_are_closed_when_they_were_idle_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("serving.engine.http_client.time", now)
    async with echoing_server(tmp_path, echo) as used, client_of(tmp_path) as client:
        await asyncio.gather(*(client.send("/") for _ in range(3)))
        now.monotonic = lambda: KEEPALIVE_S - 1
        await client.send("/")
        now.monotonic = lambda: KEEPALIVE_S
        await client.send("/")
        await until(lambda: used.count(-1) == 2)
        assert len(client._idle) == 1


async def test_a_connection_that_cannot_be_used_again_is_closed(tmp_path: Path) -> None:
    async def last(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(LAST["it says so"])

    async with echoing_server(tmp_path, last) as used, client_of(tmp_path) as client:
        await client.send("/")
        await until(lambda: -1 in used)


async def test_a_request_that_ends_after_the_client_leaves_no_connection(tmp_path: Path) -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def late(request: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await closed.wait()
        await echo(request, writer)

    async with echoing_server(tmp_path, late) as used, client_of(tmp_path) as client:
        request = asyncio.create_task(client.send("/", b"late"))
        await arrived.wait()
        await client.close()
        closed.set()
        assert (await request).content == b"late"
        await until(lambda: -1 in used)


async def test_a_reset_does_not_end_an_answer_without_a_length(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        listening.setblocking(False)
        async with client_of(tmp_path) as client:
            request = asyncio.create_task(client.send("/"))
            server, _ = await loop.sock_accept(listening)
            await loop.sock_recv(server, 1)
            await loop.sock_sendall(server, LAST["it gives no length"])
            server.close()  # with unread bytes, which resets the connection
            with pytest.raises(HttpError, match="the connection ended before the answer did"):
                await request


ANSWERS = {
    "several chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\n{\r\n\r\n1\r\n}\r\n0\r\nA: b\r\n\r\n",
    "nothing but a status": b"HTTP/1.1 204 No Content\r\n\r\n",
    "an answer after another status": b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + response(b"{}"),
    "names in any case": b"HTTP/1.1 200 OK\r\ncontent-LENGTH:2\r\n\r\n{}",
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_answer_ends_where_its_head_says_and_the_connection_serves_the_next(
    case: str, tmp_path: Path
) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        for byte in ANSWERS[case]:
            writer.write(bytes([byte]))
            await writer.drain()

    async with echoing_server(tmp_path, answer) as used, client_of(tmp_path) as client:
        contents = [(await client.send("/")).content for _ in range(2)]
        assert contents == [{"several chunks": b"{\r\n}", "nothing but a status": b""}.get(case, b"{}")] * 2
        assert used == [0, 0]


LAST = {
    "it says so": response(b"{}", more="Connection: close\r\n"),
    "it speaks an older HTTP": response(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "it gives no length": b"HTTP/1.1 200 OK\r\n\r\n{}",
}


@pytest.mark.parametrize("case", LAST)
async def test_a_server_that_closes_after_its_answer_gets_the_next_request_on_another_connection(
    case: str, tmp_path: Path
) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(LAST[case])
        writer.write_eof()

    async with echoing_server(tmp_path, answer) as used, client_of(tmp_path) as client:
        assert [(await client.send("/")).content for _ in range(2)] == [b"{}", b"{}"]
        assert [number for number in used if number >= 0] == [0, 1]


LOST = {
    "half an answer": response(b"{}")[:-1],
    "no answer": b"",
    "no HTTP": b"220 mail.example.org ESMTP\r\n\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
}


@pytest.mark.parametrize("case", LOST)
async def test_what_is_no_whole_answer_is_an_error_and_its_connection_is_left(
    case: str, tmp_path: Path
) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"again" in request:
            await echo(request, writer)
        else:
            writer.write(LOST[case])
            writer.write_eof()

    async with echoing_server(tmp_path, answer), client_of(tmp_path) as client:
        with pytest.raises(HttpError):
            await client.send("/", b"first")
        assert (await client.send("/", b"again")).content == b"again"


async def test_over_tls_a_server_must_speak_it() -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"plain")
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HttpClient(f"https://127.0.0.1:{port}/v1", None, None, 60.0) as client:
            with pytest.raises(HttpError) as caught:
                await client.send("/v1/models")
            assert caught.value.failure == "refused"
