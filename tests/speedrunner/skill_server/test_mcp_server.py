"""`speedrunner library serve` as a process, played by the client of the package `mcp`."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from serving.model_configs import CHECKOUT
from speedrunner.skill_server.mcp_server import LARGEST_MESSAGE, QUEUED, STATUS, _input_lines
from tests.processes import HANGS_S, all_end, tree
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.skill_server.samples import INITIALIZE

pytestmark = pytest.mark.process

RUN = CHECKOUT / "tests/data/format_2"
"""A run of the bundled model, which learnt two public skills."""

INDEX = 14592
"""A world that the two skills solve."""

ARGUMENTS = ["-m", "speedrunner", "library", "serve", str(RUN)]


class Server:
    """A server for clients over HTTP, with the token of a file or of its own."""

    def __init__(self, *options: str, token_file: Path | None = None) -> None:
        if token_file:
            options = (*options, "--token-file", str(token_file))
        self.process = subprocess.Popen(
            [sys.executable, *ARGUMENTS, "--port", "0", *options],
            cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        lines = self.process.stderr.readline(), self.process.stderr.readline()
        found = re.fullmatch(r"\S+ is at (http://127\.0\.0\.1:(\d+)/mcp); press Ctrl-C to stop\n", lines[0])
        assert found, lines
        self.url, self.port = found[1], int(found[2])
        self.token_file = token_file
        if token_file:
            assert lines[1] == f"clients send the token in {token_file}\n"
            self.token = token_file.read_text().strip()
        else:
            self.token = lines[1].removeprefix("clients send Authorization: Bearer ").strip()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=HANGS_S) as web,
            Client(streamable_http_client(self.url, http_client=web)) as client,
        ):
            yield client

    def ask(self, body: object = None, *, method: str = "POST", **headers: str) -> tuple[int, str]:
        """Status and text of the answer to a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_S)
        sent = {
            "Host": f"127.0.0.1:{self.port}",
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        text = body if isinstance(body, str) else json.dumps(body)
        connection.request(method, "/mcp", text, sent | headers)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    def stop(self) -> tuple[int, str, str]:
        """Exit status, output and errors after SIGTERM. Nothing that it started is left."""
        below = tree(self.process.pid)
        self.process.terminate()
        out, err = self.process.communicate(timeout=HANGS_S)
        assert all_end(below)
        return self.process.returncode, out, err


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server("--sessions", "2", token_file=tmp_path_factory.mktemp("server") / "token")
    yield found
    if found.process.poll() is None:
        found.stop()


@asynccontextmanager
async def local_client() -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=sys.executable, args=ARGUMENTS, cwd=CHECKOUT)
    async with Client(parameters) as client:
        yield client


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if block.type == "text"]


def status(result: CallToolResult) -> dict[str, object]:
    assert result.meta is not None
    return result.meta[STATUS]  # type: ignore[no-any-return]


async def play(client: Client) -> CallToolResult:
    """Play the world with the two skills."""
    task = texts(await client.call_tool("start_episode", {"index": INDEX}))[0]
    assert task.startswith("Your task: go to the purple ball after you pick up the grey ball\n\n")
    taken = await client.call_tool("pick_up_thing", {"thing": "grey ball"})
    assert texts(taken)[0].startswith("You carry the grey ball now.\n\nLast observation:\n")
    return await client.call_tool("go_to_thing", {"thing": "purple ball"})


def check_success(result: CallToolResult) -> None:
    assert texts(result)[1] == (
        "The episode is over (success): score 1, 2 calls, 15 actions. Call start_episode for another one."
    )
    assert status(result) == {
        "score": 1.0, "success": True, "termination": "success", "calls": 2, "actions": 15
    }  # fmt: skip


async def test_a_client_plays_an_episode_to_success_over_standard_input_and_output() -> None:
    before = {*psutil.Process().children(recursive=True)}
    async with local_client() as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [
            *("start_episode", "turn_left", "turn_right", "go_forward", "pick_up", "drop", "toggle"),
            *("go_to_thing", "pick_up_thing"),
        ]
        assert client.instructions is not None
        assert "Some of your tools are skills" in client.instructions
        below = psutil.Process().children(recursive=True)
        check_success(await play(client))
        await client.call_tool("start_episode", {"index": INDEX})
        await client.call_tool("pick_up_thing", {"thing": "grey ball"})
        below += psutil.Process().children(recursive=True)
    started = [each for each in below if each not in before]
    assert started
    assert all_end(started)  # in the middle of an episode: its processes end with the client


async def test_a_client_plays_an_episode_to_success_over_http(server: Server) -> None:
    async with server.client() as client:
        check_success(await play(client))


async def test_each_client_has_its_own_episode_and_there_are_at_most_as_many_as_allowed(
    server: Server,
) -> None:
    async with server.client() as one, server.client() as other:
        await one.call_tool("start_episode", {"index": INDEX})
        result = await other.call_tool("turn_left", {})
        assert (texts(result), result.is_error) == (
            ["Error: No episode is running: call start_episode first."],
            True,
        )
        found, text = server.ask(INITIALIZE)  # the third one
        assert found == 503
        assert "all 2 sessions are in use" in text
        check_success(await play(other))
    async with server.client() as again:  # the others have ended
        check_success(await play(again))


def test_a_client_of_the_revision_without_sessions_is_sent_to_the_ones_before(server: Server) -> None:
    found, text = server.ask({}, **{"MCP-Protocol-Version": "2026-07-28"})
    error = json.loads(text)["error"]
    assert (found, error["code"]) == (400, -32022)
    assert "2025-11-25" in error["data"]["supported"]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", "Basic x", "Bearer \u00e9"])
def test_without_the_token_nothing_is_answered(server: Server, header: str) -> None:
    found, text = server.ask({}, Authorization=header)
    assert (found, text) == (401, "send the header `Authorization: Bearer TOKEN` with the server's token\n")


def test_requests_that_a_browser_sends_for_another_site_are_refused(server: Server) -> None:
    assert server.ask({}, Host="example.org")[0] == 421
    assert server.ask({}, Origin="http://example.org")[0] == 403


@pytest.mark.parametrize("body", ["", "{}", "[]", "nonsense", "[" * 100_000, '{"jsonrpc": "2.0", "id": 1}'])
async def test_a_request_that_is_no_message_opens_no_session(server: Server, body: str) -> None:
    for _ in range(3):  # more than there may be sessions
        assert server.ask(body)[0] == 400
    async with server.client() as client:
        assert (await client.list_tools()).tools


def test_a_large_body_is_not_read(server: Server) -> None:
    assert server.ask(" " * (5 * 2**20))[0] == 413


def test_an_unknown_session_is_reported(server: Server) -> None:
    for method in ("POST", "DELETE"):
        assert server.ask({}, method=method, **{"Mcp-Session-Id": "x"})[0] == 404
    assert server.ask({}, method="DELETE")[0] == 404


async def test_arguments_that_no_model_could_send_are_errors(server: Server) -> None:
    async with server.client() as client:
        for index in (-1, 2**63, 2**200):
            assert (await client.call_tool("start_episode", {"index": index})).is_error
        await client.call_tool("start_episode", {"index": INDEX})
        for thing in (1, None, ["red ball"], {}):
            assert (await client.call_tool("go_to_thing", {"thing": thing})).is_error
        result = await client.call_tool("go_to_thing", {"thing": "x" * 100_000})
        assert "characters are not shown]" in texts(result)[0]
        check_success(await play(client))


async def test_a_signal_ends_the_server_and_the_episodes() -> None:
    server = Server("--sessions", "1")
    async with server.client() as client:
        await client.call_tool("start_episode", {"index": INDEX})
        await client.call_tool("go_to_thing", {"thing": "grey ball"})
        found = await asyncio.to_thread(server.stop)
    assert found == (0, "", "stopped by SIGTERM\n")


def start_local() -> subprocess.Popen[str]:
    """A server for a client at its standard input and output."""
    return subprocess.Popen(
        [sys.executable, *ARGUMENTS],
        cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_client_that_reads_no_more_ends_the_server_silently() -> None:
    with start_local() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("no message\n" + json.dumps(INITIALIZE) + "\n")
        process.stdin.flush()
        assert "result" in json.loads(process.stdout.readline())
        below = tree(process.pid)
        process.stdout.close()
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}) + "\n")
        process.stdin.flush()
        assert process.wait(HANGS_S) == 0
        assert all_end(below)
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_message_that_is_too_large_ends_the_session() -> None:
    with start_local() as process:
        sent = "x" * LARGEST_MESSAGE + "\n" + json.dumps(INITIALIZE) + "\n"
        out, err = process.communicate(sent, timeout=HANGS_S)
        assert (process.returncode, out) == (0, "")
        assert err == "the session ends: the client sent more than 4194304 bytes in a message\n"


async def test_input_waits_until_its_messages_are_read() -> None:
    reader, writer = os.pipe()
    try:
        with os.fdopen(writer, "wb") as stream:
            stream.writelines(b"%d\n" % number for number in range(5 * QUEUED))
        async with asyncio.timeout(HANGS_S):
            lines = [line async for line in _input_lines(reader)]
    finally:
        os.close(reader)
    assert lines == [f"{number}\n" for number in range(5 * QUEUED)]


def test_ctrl_c_ends_a_server_that_waits_for_its_client() -> None:
    with start_local() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["protocolVersion"] == "2025-06-18"
        below = tree(process.pid)
        process.send_signal(signal.SIGINT)
        # Its input stays open.
        assert process.stderr is not None
        assert process.stderr.readline() == "stopped by SIGINT\n"
        assert process.wait(HANGS_S) == 0
        assert all_end(below)


def test_a_token_file_is_created_for_its_owner_only(server: Server) -> None:
    assert server.token_file is not None
    assert stat.S_IMODE(server.token_file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "mode", "problem"),
    [
        ("x" * 16, 0o640, "has mode 640, so others may read it: chmod 600"),
        ("short", 0o600, "has no token"),
        ("two words of a token", 0o600, "has no token"),
    ],
)
def test_a_token_file_that_is_unsafe_is_refused(tmp_path: Path, words: str, mode: int, problem: str) -> None:
    file = tmp_path / "token"
    file.write_text(words)
    file.chmod(mode)
    options = ("--port", "0", "--token-file", str(file))
    assert problem in complaint(in_process("library", "serve", str(RUN), *options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--token-file", "x"], "--token-file is for HTTP clients: add --port 0"),
        (["env=crafter"], "policy v0001 is no valid library"),
        (["env=nowhere"], "nowhere"),
        (["task.name=nowhere", "env.num_dists=x"], "num_dists"),
    ],
)
def test_what_cannot_be_served_is_one_line(options: list[str], problem: str) -> None:
    assert problem in complaint(in_process("library", "serve", str(RUN), *options))
