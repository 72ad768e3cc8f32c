"""The processes of a server by its address, their CPU time and their GPUs."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from serving.engine.endpoint import Endpoint
from serving.engine.gpus import GpuReading
from serving.engine.server_processes import cpu_seconds, find_server_gpus, option_of, server_processes

pytestmark = pytest.mark.process

SERVER = """
import socket, subprocess, sys
kind, address, title, inherits = sys.argv[1:5]
listener = socket.socket(getattr(socket, kind))
listener.bind(address if kind == "AF_UNIX" else ("127.0.0.1", int(address)))
listener.listen()
core = '''
import setproctitle, sys, time
setproctitle.setproctitle(sys.argv[1])
while time.process_time() < 0.3:
    pass
print("ready", flush=True)
sys.stdin.read()
'''
descriptors = [listener.fileno()] if inherits == "True" else []
subprocess.run([sys.executable, "-c", core, title], pass_fds=descriptors)
"""
"""Listens, and has a child that computes for 0.3 s under a title."""

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a server, and return its process's number once its child has computed."""
    servers = []

    def start(kind: str, address: str, title: str = "VLLM::EngineCore", inherits: bool = False) -> int:
        command = [sys.executable, "-c", SERVER, kind, address, title, str(inherits)]
        pipe = subprocess.PIPE
        servers.append(subprocess.Popen(command, stdin=pipe, stdout=pipe))
        assert servers[-1].stdout.readline() == b"ready\n"
        return servers[-1].pid

    yield start
    for server in servers:
        server.communicate()  # closes its input, which ends both


def test_a_server_on_a_unix_socket_has_its_processes_and_their_cpu_time(tmp_path: Path, start: Start) -> None:
    root = start("AF_UNIX", str(tmp_path / "http"))
    processes = server_processes(Endpoint.on_socket(tmp_path / "http"))
    assert [processes[0].pid, *(each.ppid() for each in processes[1:])] == [root, root]
    used = cpu_seconds(processes)
    assert used.keys() == {"EngineCore", "API server"}
    assert 0.25 <= used["EngineCore"] < 60


def test_a_server_on_a_port_is_found_if_the_address_is_this_machine_s(start: Start) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = start("AF_INET", str(port))
    assert server_processes(Endpoint.parse(f"http://localhost:{port}/v1"))[0].pid == root
    assert server_processes(Endpoint.parse(f"http://192.0.2.1:{port}/v1")) == []


def test_a_tunnel_or_an_empty_address_has_no_processes(tmp_path: Path, start: Start) -> None:
    start("AF_UNIX", str(tmp_path / "tunnel"), "ssh")
    assert server_processes(Endpoint.on_socket(tmp_path / "tunnel")) == []
    assert server_processes(Endpoint.on_socket(tmp_path / "nothing")) == []


def test_an_engine_that_inherits_the_socket_leads_to_its_api_server(tmp_path: Path, start: Start) -> None:
    root = start("AF_UNIX", str(tmp_path / "http"), inherits=True)
    processes = server_processes(Endpoint.on_socket(tmp_path / "http"))
    assert processes[0].pid == root
    assert set(cpu_seconds(processes)) == {"API server", "EngineCore"}


@pytest.mark.parametrize("words", [["--max-num-seqs", "24"], ["--max-num-seqs=24"]])
def test_options_of_a_server_are_read_from_its_command_line(words: list[str]) -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, "--uds", "x=y", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()  # before it runs, it has this process's words
        processes = [psutil.Process(), psutil.Process(server.pid)]
        assert option_of(processes, "max-num-seqs") == "24"
        assert option_of(processes, "block-size") is None
    assert option_of(processes[1:], "max-num-seqs") is None  # it has ended


@pytest.mark.parametrize(
    ("on", "usable", "found"),
    [
        ("GPU-b", ["GPU-a", "GPU-b"], ["GPU-b"]),
        ("", ["GPU-a"], ["GPU-a"]),  # as in a container, where it is the only one
        ("", ["GPU-a", "GPU-b"], []),
    ],
)
def test_a_server_s_gpus_are_those_of_its_processes_or_not_known(
    on: str, usable: list[str], found: list[str]
) -> None:
    own = psutil.Process()
    nvml: Any = SimpleNamespace(read=lambda uuid: GpuReading(pids=frozenset([own.pid if uuid == on else 1])))
    assert find_server_gpus(nvml, [own], usable, 1) == found
