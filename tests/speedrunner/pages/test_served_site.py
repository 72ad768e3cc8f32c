"""The viewer's server, as a process: on this machine alone, for those who know its token."""

from __future__ import annotations

import http.client
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.processes import HANGS_S
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.pages.runs import long_run

pytestmark = pytest.mark.process


class Server:
    """A viewer of one run."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "speedrunner.cli", "view", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.port = urlsplit(self.address).port
        self.token = urlsplit(self.address).path.split("/")[1]

    def ask(
        self, path: str, *, method: str = "GET", token: str | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_S)
        sent = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"} | headers
        connection.request(method, f"/{self.token if token is None else token}/{path}", headers=sent)
        answer = connection.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        connection.close()
        return answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(long_run(tmp_path_factory.mktemp("viewed") / "run", 1))
    yield found
    found.process.kill()
    found.process.wait()


def test_the_printed_address_shows_the_run(server: Server) -> None:
    path = urlsplit(server.address).path.removeprefix(f"/{server.token}/")
    answer = server.ask(path)
    assert (answer.status, path) == (200, "runs/run/index.html")
    page = server.ask("")
    assert (page.status, page.headers["Content-Length"]) == (200, str(len(page.text.encode())))
    head = server.ask("", method="HEAD")
    assert (head.status, head.headers.items(), head.text) == (200, page.headers.items(), "")


def test_an_address_without_the_slash_after_its_token_leads_to_the_one_with_it(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)
    connection.request("GET", f"/{server.token}")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (302, f"/{server.token}/")
    connection.close()


def test_without_its_token_nothing_is_told(server: Server) -> None:
    for token in ("", "x", server.token[:-1], f"{server.token}x", "%00"):
        answer = server.ask("index.html", token=token)
        assert answer.status in (403, 404)
        assert "run" not in answer.text.replace("speedrunner", "")


@pytest.mark.parametrize(
    "path",
    ["..%2fconfig.yaml", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd"],
)
def test_nothing_but_pages_is_there(server: Server, path: str) -> None:
    assert server.ask(path).status in (403, 404)


def test_a_large_head_ends_its_connection(server: Server) -> None:
    address = "127.0.0.1", server.port
    with suppress(ConnectionError), socket.create_connection(address, timeout=HANGS_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000_000)
        pytest.fail("it has read 20 MB")


def test_a_strict_policy_goes_with_every_answer(server: Server) -> None:
    answers = [server.ask(path) for path in ("index.html", "view.js", "nope")]
    for headers in (answer.headers for answer in (*answers, server.ask("", method="POST"))):
        assert headers["Server"].strip() == "speedrunner"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert headers["Cache-Control"] == "no-store"


def test_a_port_in_use_is_told_in_a_line(server: Server, tmp_path: Path) -> None:
    done = in_process("view", str(long_run(tmp_path / "run", 1)), "--port", str(server.port))
    told = complaint(done)
    assert told.startswith(
        f"port {server.port} is not available (address already in use): choose another --port"
    )


def test_clients_that_leave_and_ctrl_c_end_it_without_a_word(tmp_path: Path) -> None:
    server = Server(long_run(tmp_path / "run", 1))
    address = "127.0.0.1", server.port
    request = f"GET /{server.token}/ HTTP/1.1\r\n\r\n".encode()
    for sent in (b"", request[:9], *[request] * 9):
        with socket.create_connection(address, timeout=HANGS_S) as connection:
            connection.sendall(sent)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
    with socket.create_connection(address, timeout=HANGS_S) as connection:
        connection.sendall(b"GET http://[ HTTP/1.1\r\n\r\n")
        assert b" 403 " in connection.recv(100)
    server.process.send_signal(signal.SIGINT)
    _, said = server.process.communicate(timeout=HANGS_S)
    assert (server.process.returncode, said) == (0, "Press Ctrl-C to stop\n")


def test_a_folder_without_runs_and_none_at_all_are_refused(tmp_path: Path) -> None:
    assert "contains no run" in complaint(in_process("view", str(tmp_path)))
    assert "could not be read" in complaint(in_process("view", str(tmp_path / "none")))
