"""The processes of a server by its socket, their CPU time and their GPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from serving.engine.endpoint import Endpoint
from serving.engine.gpus import GpuReading
from serving.engine.server_processes import cpu_seconds, find_server_gpus, server_processes

pytestmark = pytest.mark.process

SERVER = """
import subprocess, sys
core = '''
import setproctitle, sys, time
setproctitle.setproctitle("VLLM::EngineCore")
while time.process_time() < 0.3:
    pass
print("ready", flush=True)
sys.stdin.read()
'''
subprocess.run([sys.executable, "-c", core])
"""
"""Has a child that computes for 0.3 s."""


@pytest.mark.parametrize("words", [("--uds", "HERE/http"), ("--uds=HERE/http", "None")])
def test_a_server_is_found_by_its_socket_with_the_cpu_time_of_its_processes(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", SERVER, *(word.replace("HERE", str(tmp_path)) for word in words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        processes = server_processes(Endpoint.on_socket(tmp_path / "http"))
        assert [processes[0].pid, *(each.ppid() for each in processes[1:])] == [server.pid, server.pid]
        used = cpu_seconds(processes)
        assert used.keys() == {"EngineCore", "API server"}
        assert 0.25 <= used["EngineCore"] < 60
        assert server_processes(Endpoint.on_socket(tmp_path / "nothing")) == []
        assert server_processes(Endpoint.parse("http://localhost:8000/v1")) == []


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
