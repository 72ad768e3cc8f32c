"""The viewer's server, as a process: on this machine alone, for those who know its token."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from speedrunner.store.rundir import RunDirectory
from tests.processes import HANGS_S
from tests.scripted_runs import complaint, in_process
from tests.speedrunner.pages.runs import CONFIG, append, long_run
from tests.speedrunner.run_samples import trajectory

pytestmark = pytest.mark.process

QUICK = "from speedrunner.pages import pages; pages.SOON_S = 1; from speedrunner.__main__ import main; main()"


class Server:
    """A viewer of one run, which looks for changes every second."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", QUICK, "view", str(folder)]
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

    def open(self, path: str) -> http.client.HTTPResponse:
        """A stream of events."""
        return urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=HANGS_S)


def next_page(stream: http.client.HTTPResponse) -> str:
    """The HTML of the next event."""
    while (line := stream.readline()) != b"event: page\n":
        assert line, "the stream has ended"
    return json.loads(stream.readline().removeprefix(b"data: "))


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
    assert server.ask("").status == 200


def test_without_its_token_nothing_is_told(server: Server) -> None:
    for token in ("", "x", server.token[:-1], f"{server.token}x", "%00"):
        answer = server.ask("index.html", token=token)
        assert (answer.status, "run" in answer.text.replace("speedrunner", "")) == (403, False)


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "10.0.0.1:80", "", "[", "0.0.0.0"])
def test_foreign_hosts_are_refused(server: Server, host: str) -> None:
    assert server.ask("index.html", Host=host).status == 421


def test_through_a_tunnel_it_is_another_port(server: Server) -> None:
    assert server.ask("index.html", Host="localhost:9000").status == 200


@pytest.mark.parametrize("origin", ["http://example.org", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_foreign_origins_are_refused(server: Server, origin: str) -> None:
    assert server.ask("index.html", Origin=origin).status == 403
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("index.html", Origin=own).status == 200


@pytest.mark.parametrize(
    "path",
    ["../config.yaml", "..%2fconfig.yaml", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "runs/run/config.yaml"],
)
def test_nothing_but_pages_is_there(server: Server, path: str) -> None:
    assert server.ask(path).status in (403, 404)


def test_it_only_reads(server: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = server.ask("index.html", method=method)
        assert (answer.status, answer.headers["Cache-Control"]) == (405, "no-store")
        assert server.ask("index.html", method=method, Host="example.org").status == 421


def test_a_strict_policy_goes_with_every_answer(server: Server) -> None:
    for path in ("index.html", "view.js", "nope"):
        headers = server.ask(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert headers["Cache-Control"] == "no-store"


def test_a_port_in_use_is_told_in_a_line(server: Server, tmp_path: Path) -> None:
    done = in_process("view", str(long_run(tmp_path / "run", 1)), "--port", str(server.port))
    told = complaint(done)
    assert told.startswith(
        f"port {server.port} is not available (address already in use): choose another --port"
    )


class TestUpdates:
    def test_a_page_is_sent_now_and_after_each_change(self, tmp_path: Path) -> None:
        with RunDirectory.open_for_writing(tmp_path / "run") as run:
            run.write_config(CONFIG)
            server = Server(tmp_path / "run")
            try:
                with server.open(f"/{server.token}/updates/runs/run/index.html") as stream:
                    assert stream.headers["Content-Type"].startswith("text/event-stream")
                    assert "No episode is finished yet" in next_page(stream)
                    append(run, trajectory())
                    assert "<td>success</td>" in next_page(stream)
            finally:
                server.process.kill()
                server.process.wait()

    def test_a_page_that_cannot_grow_ends_its_stream(self, server: Server) -> None:
        text = server.ask("updates/runs/run/train/0000/1.html").text
        assert text.startswith("event: page\ndata: ")
        assert text.endswith("event: end\ndata:\n\n")

    def test_streams_need_the_token_too(self, server: Server) -> None:
        assert server.ask("updates/index.html", token="x").status == 403


@pytest.mark.parametrize("streams", [False, True])
def test_ctrl_c_ends_it_without_a_word(tmp_path: Path, streams: bool) -> None:
    server = Server(long_run(tmp_path / "run", 1))
    stream = server.open(f"/{server.token}/updates/index.html") if streams else None
    if stream is not None:
        next_page(stream)
    server.process.send_signal(signal.SIGINT)
    _, said = server.process.communicate(timeout=HANGS_S)
    assert (server.process.returncode, said) == (0, "Press Ctrl-C to stop\n")
    if stream is not None:
        stream.close()


def test_a_folder_without_runs_and_none_at_all_are_refused(tmp_path: Path) -> None:
    assert "contains no run" in complaint(in_process("view", str(tmp_path)))
    assert "could not be read" in complaint(in_process("view", str(tmp_path / "none")))


class TestFiles:
    def test_a_folder_with_something_in_it_is_refused(self, tmp_path: Path) -> None:
        run = long_run(tmp_path / "run", 1)
        told = complaint(in_process("view", str(run), "--static", str(run)))
        assert told == f"{run} is not an empty folder: name another one with --static"

    def test_pages_that_could_not_be_made_are_named(self, tmp_path: Path) -> None:
        run, out = long_run(tmp_path / "run", 1), tmp_path / "out"
        (run / "trajectories/batch_0000.jsonl").write_text("{}\n{}\n")
        done = in_process("view", str(run), "--static", str(out))
        assert done.returncode == 1
        assert re.match(r"error: runs/run/train/0000/1\.html could not be written: .*batch_0000", done.stderr)
        assert (out / "runs/run/index.html").exists()

    def test_a_run_of_too_many_episodes_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("speedrunner.pages.site.STATIC_EPISODES", 0)
        long_run(tmp_path / "run", 1)
        done = in_process("view", str(tmp_path / "run"), "--static", str(tmp_path / "out"))
        assert done.returncode == 1
        assert done.stderr == (
            f"error: runs/run/index.html could not be written: {tmp_path / 'run'} has 1 episodes, but static"
            " pages can show at most 0: use `speedrunner view` without --static\n"
        )
        assert (tmp_path / "out" / "index.html").exists()

    def test_no_key_of_an_episode_leads_out_of_the_folder(self, tmp_path: Path) -> None:
        run, out = long_run(tmp_path / "run", 1), tmp_path / "deep" / "out"
        with (run / "episodes.jsonl").open("a") as rows:
            line = (run / "episodes.jsonl").read_text()
            rows.write(line.replace("train/0000", "../../../stray"))
            rows.write(line.replace("train/0000", "javascript:alert(1)//"))
        done = in_process("view", str(run), "--static", str(out))
        assert (done.returncode, done.stderr.count("could not be written")) == (1, 2)
        assert [path for path in tmp_path.rglob("*") if "stray" in path.name] == []
        assert 'href="javascript' not in (out / "runs/run/episodes.html").read_text()
