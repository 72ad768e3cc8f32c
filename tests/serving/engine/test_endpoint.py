"""Addresses of servers as people write them, and what is found there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint, attach
from serving.errors import ServerFailed
from tests.golden_tables import Golden, table
from tests.processes import HANGS_S
from tests.serving.engine.test_http_client import echoing_server, response


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


async def test_attaching_to_anything_else_says_what_is_wrong(tmp_path: Path, golden: Golden) -> None:
    async def problem(endpoint: Endpoint) -> str:
        with pytest.raises(ServerFailed) as caught:
            await attach(endpoint, "tiny-random")
        return str(caught.value)

    nothing = Endpoint.parse(f"unix:{tmp_path}/none.sock")
    assert await nothing.health() == 0
    problems = {"nothing": await problem(nothing)}
    for status, body in ((401, ""), (500, ""), (200, "<html>"), (200, "[]"), (200, TWO_MODELS)):
        reply = response(body.encode(), f"{status} X")

        async def answer(request: bytes, writer: asyncio.StreamWriter, reply: bytes = reply) -> None:
            writer.write(reply)

        async with echoing_server(tmp_path, answer):
            endpoint = Endpoint.on_socket(tmp_path / "s")
            assert await endpoint.health() == status
            problems[f"status {status} {body}"] = await problem(endpoint)
    golden("unfit_servers.txt", table(problems, HERE=tmp_path))


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
        assert await endpoint.health() == 200
        assert await attach(endpoint, "m") is None
    assert seen == [b"/llm/health", b"/llm/v1/models"]
