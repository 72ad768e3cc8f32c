"""Addresses of servers as people write them, and requests to real servers on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from gzip import compress
from pathlib import Path
from traceback import format_exception

import pytest

from serving.engine.endpoint import Endpoint, HttpClient, HttpError, NotSendable, Unusable, attach
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
        ("https://hub/user/me@site/proxy/8000/v1", "https://hub/user/me@site/proxy/8000/v1"),
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
     "http://h:x/v1", "http://h/v2", "http://h/llm", "http://h/v1?a=b", "/run/a.sock"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_two_forms(text: str) -> None:
    with pytest.raises(
        ServerFailed, match=r"is not the address of a server; write http://.* or unix:/"
    ) as caught:
        Endpoint.parse(text)
    assert repr(text) in str(caught.value)


TWO_MODELS = '{"data": [{"id": "a", "max_model_len": 900}, {"id": "b"}]}'


async def test_a_server_that_has_ended_is_told_from_one_that_is_too_busy_to_answer(tmp_path: Path) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with await asyncio.start_unix_server(hold, tmp_path / "busy"):
        assert await Endpoint.on_socket(tmp_path / "busy").health(0.01) is None
    assert await Endpoint.on_socket(tmp_path / "busy").health(HANGS_S) == 0


Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def echoing_server(folder: Path, answer: Answer) -> AsyncIterator[list[int]]:
    """A server on the socket `s` in a folder; gives the numbers of the connections that requests came on."""
    used: list[int] = []
    numbers = iter(range(100))

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


async def test_attaching_to_anything_else_says_what_is_wrong(tmp_path: Path, golden: Golden) -> None:
    async def problem(endpoint: Endpoint) -> str:
        with pytest.raises(ServerFailed) as caught:
            await attach(endpoint, "tiny-random")
        return str(caught.value)

    nothing = Endpoint.parse(f"unix:{tmp_path}/none.sock")
    assert not await nothing.healthy()
    problems = {"nothing": await problem(nothing)}
    for status, body in ((401, ""), (500, ""), (200, "<html>"), (200, "[]"), (200, TWO_MODELS)):
        reply = response(body.encode(), f"{status} X")

        async def answer(request: bytes, writer: asyncio.StreamWriter, reply: bytes = reply) -> None:
            writer.write(reply)

        async with echoing_server(tmp_path, answer):
            endpoint = Endpoint.on_socket(tmp_path / "s")
            assert await endpoint.healthy() == (status == 200)
            problems[f"status {status} {body}"] = await problem(endpoint)
    golden("unfit_servers.txt", table(problems, HERE=tmp_path))


async def test_a_body_of_many_megabytes_goes_and_comes_whole_on_one_connection(tmp_path: Path) -> None:
    content = b"0123456789" * 300_000
    async with echoing_server(tmp_path, echo) as used, client_of(tmp_path) as client:
        for _ in range(3):
            reply = await client.send("/v1/completions", content)
            assert (reply.status, reply.reason, reply.content) == (200, "OK", content)
        assert used == [0, 0, 0]


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
        with pytest.raises(HttpError, match="more than one answer"):
            await client.send("/", b"second")
        assert (await client.send("/", b"third")).content == b"third"
        assert used.count(0) == 1


async def test_the_key_is_sent_and_a_redirect_is_not_followed(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def redirect(request: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(request)
        writer.write(response(b"", "307 Temporary Redirect", "Location: /elsewhere\r\n"))

    async with echoing_server(tmp_path, redirect), client_of(tmp_path, api_key="sesame") as client:
        reply = await client.send("/here")
    assert (reply.status, reply.headers["LOCATION"]) == (307, "/elsewhere")
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


def test_a_password_in_an_address_is_refused_and_not_quoted() -> None:
    with pytest.raises(ServerFailed, match="no user name and no password") as caught:
        Endpoint.parse("http://me:sesame@h/v1")
    assert "sesame" not in str(caught.value)


async def test_a_prefix_before_v1_is_kept_for_all_paths(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(request.split()[1])
        writer.write(response(b'{"data": [{"id": "m"}]}'))

    async with echoing_server(tmp_path, answer):
        endpoint = replace(Endpoint.parse("http://h/llm/v1"), socket=tmp_path / "s")
        assert await endpoint.healthy()
        assert await attach(endpoint, "m") is None
    assert seen == [b"/llm/health", b"/llm/v1/models"]


async def test_a_server_s_words_do_not_have_the_key(tmp_path: Path) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        assert b"Bearer sesame-opens" in request
        writer.write(response(b"your key sesame-opens", "401 sesame-opens"))

    async with echoing_server(tmp_path, answer), client_of(tmp_path, api_key="sesame-opens") as client:
        reply = await client.send("/")
        assert (reply.content, reply.reason) == (b"your key (the API key)", "(the API key)")


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
        with pytest.raises(Unusable, match="compressed"):
            await client.send("/")


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_no_more_than_the_limit_is_read(tmp_path: Path, is_chunked: bool) -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        if not is_chunked:
            writer.write(response(b"x" * 101))
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10\r\n0123456789abcdef\r\n" * 7
        )

    async with echoing_server(tmp_path, answer), client_of(tmp_path) as client:
        with pytest.raises(Unusable, match="more than 100 bytes"):
            await client.send("/", most_bytes=100)


async def test_a_header_that_cannot_be_written_is_not_quoted(tmp_path: Path) -> None:
    async with echoing_server(tmp_path, echo) as used, client_of(tmp_path, api_key="sesa\nme") as client:
        with pytest.raises(NotSendable) as caught:
            await client.send("/")
        assert "sesa" not in str(caught.value)
        assert used in ([], [-1])
