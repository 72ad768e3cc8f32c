"""`speedrunner serve`: a server in the foreground, as a user starts and ends it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from serving.deployment import server_log
from serving.engine.endpoint import Endpoint, attach
from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_configs import CHECKOUT, adapt, load_model_config
from speedrunner.cli.serve_command import serve, shell_command
from speedrunner.config.schema import InvalidConfig
from tests.golden_tables import Golden, refusals
from tests.processes import HANGS_S, words
from tests.scripted_runs import command
from tests.stand_in_server import HEALTHY

pytestmark = pytest.mark.process


@contextmanager
def serving(*settings: str, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command, ended in any case; modules of the folder `first` stand before all others."""
    process = subprocess.Popen(
        command("serve", "model=tiny-random", *settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": f"{first}:{CHECKOUT}"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANGS_S)


def lines_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """What it says, up to the line with that word."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"it ended before it said {word!r}: {lines} {process.communicate()[1]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listeners(process: psutil.Process) -> list[psutil._common.pconn]:
    """TCP sockets on which a process listens."""
    return [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


@pytest.fixture
def stand_in(tiny_folder: str, tmp_path: Path) -> str:
    """A folder in which a stand-in for vLLM's server is found before vLLM."""
    module = tmp_path / "vllm/entrypoints/launchers/api_server/entry.py"
    module.parent.mkdir(parents=True)
    module.write_text(HEALTHY)
    for folder in list(module.parents)[:4]:
        (folder / "__init__.py").touch()
    (tmp_path / "vllm" / "platforms.py").write_text("class current_platform:\n    is_cpu = bool\n")
    return str(tmp_path)


def test_a_server_on_a_port_answers_those_who_can_read_its_key_until_it_is_stopped(stand_in: str) -> None:
    port = free_port()
    with serving(f"serving.port={port}", first=stand_in) as process:
        *_, ready, key_line, attach_line = lines_until(process, "another terminal")
        url = f"http://127.0.0.1:{port}/v1"
        assert ready == f"tiny-random is ready at {url}; press Ctrl-C to stop it"
        key_file = Path(key_line.removeprefix("its API key is in "))
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert shlex.split(attach_line.partition(": ")[2]) == [
            *["speedrunner", "run", "model=tiny-random", f"serving.url={url}"],
            f"serving.api_key_file={key_file}",
        ]
        key = key_file.read_text().strip()
        asyncio.run(attach(Endpoint.parse(url, api_key=key), "tiny-random"))
        with pytest.raises(ServerFailed, match="refuses the API key"):
            asyncio.run(attach(Endpoint.parse(url, api_key="x" * len(key)), "tiny-random"))
        processes = psutil.Process(process.pid).children(recursive=True)
        assert any("vllm" in words(each) for each in processes)
        assert not any(key in words(each) for each in processes)
        listening = [address.laddr for each in processes for address in listeners(each)]
        assert {address.ip for address in listening} == {"127.0.0.1"}
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, out) == (0, "stopped by SIGTERM; the server was stopped\n")
    # A server that takes long to start is told of now and then.
    assert [line for line in err.splitlines() if not line.startswith("starting vLLM, ")] == []
    assert not key_file.exists()
    assert not any(each.is_running() for each in processes)


def test_a_server_that_ends_by_itself_ends_the_command_with_its_reason(stand_in: str) -> None:
    with serving(first=stand_in) as process:
        *_, ready, attach_line = lines_until(process, "another terminal")
        address = re.search("unix:[^;]*", ready)
        assert address is not None
        folder = Path(address[0].removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert attach_line.endswith(f": speedrunner run model=tiny-random serving.url={address[0]}")
        (guard,) = psutil.Process(process.pid).children()
        (server,) = guard.children()
        server.kill()
        _, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 1
    assert err.startswith("error: the server of model 'tiny-random' was killed by SIGKILL")
    assert not folder.exists()


class TestPrinting:
    """With `--print` nothing is started."""

    def test_a_socket_s_folder_and_the_model_are_made_first(self, capsys: pytest.CaptureFixture[str]) -> None:
        serve(["model=tiny-random"], print_=True)
        recipe, folder, server = capsys.readouterr().out.strip().split(" && ")
        made = shlex.split(folder)
        assert made[:3] == ["mkdir", "-m", "700"]
        assert not Path(made[3]).exists()
        assert shlex.split(recipe)[1:] == [
            str(CHECKOUT / "models/random/build.py"),
            *["--out", str(CHECKOUT / ".cache/models/tiny-random")],
        ]
        words = shlex.split(server)
        assert "VLLM_CPU_KVCACHE_SPACE=1" in words
        assert words[words.index("--uds") + 1] == f"{made[3]}/http"

    def test_a_port_comes_with_a_key_in_the_environment(self) -> None:
        folder, line = shell_command(load_model_config("qwen3-8b"), 8000).split(" && ")
        words = shlex.split(line)
        assert f"TMPDIR={shlex.split(folder)[3]}" in words  # made first, as whatever vLLM writes goes there
        key = words[0].removeprefix("VLLM_API_KEY=")
        assert len(key) >= 32
        assert not any(key in word for word in words[1:])
        assert words[words.index("--port") + 1] == "8000"
        assert words[words.index("--host") + 1] == "127.0.0.1"
        assert words[words.index("--revision") + 1] == load_model_config("qwen3-8b").revision

    def test_replicas_and_random_weights_stand_in_it(self) -> None:
        words = shlex.split(shell_command(adapt(load_model_config("qwen3-8b"), 2, "dummy"), 8000))
        assert words[1:4] == [str(CHECKOUT / "models/shapes/build_shapes.py"), "--shape", "qwen3-8b"]
        assert words[words.index("--data-parallel-size") + 1] == "2"
        assert words[words.index("--load-format") + 1] == "dummy"
        assert "--revision" not in words

    def test_its_line_is_one_that_a_shell_takes(self) -> None:
        line = shell_command(load_model_config("tiny-random"), None)
        checked = subprocess.run(["sh", "-n", "-c", line], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("print_", [False, True])
def test_what_cannot_be_served_is_told_in_one_line(print_: bool, golden: Golden) -> None:
    lines = ("serving.url=unix:/x", "model=gpt-5.4-mini", "model=tiny-random model.load_format=dummy")
    tries = [(line, partial(serve, line.split(), print_)) for line in lines]
    golden("refused_servers.txt", refusals(tries, (InvalidConfig, InvalidModelConfig)))


def test_a_port_in_use_is_told(tiny_folder: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"port {port} of 127.0.0.1 is taken"):
            serve(["model=tiny-random", f"serving.port={port}"], print_=False)
    assert not server_log(load_model_config("tiny-random")).with_suffix(".key").exists()
