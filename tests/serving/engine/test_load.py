"""The processes of a server by its address, their CPU time, and readings of GPUs by a library in NVML's
place."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from serving.engine import load
from serving.engine.endpoint import Endpoint
from serving.engine.load import (
    GpuReading,
    Nvml,
    cpu_seconds,
    option_of,
    server_gpus,
    server_processes,
    strangers,
)

pytestmark = pytest.mark.process

SERVER = """
import socket, subprocess, sys
kind, address, title = sys.argv[1:4]
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
subprocess.run([sys.executable, "-c", core, title])
"""
"""Listens, and has a child that computes for 0.3 s under a title."""

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a server, and return its process's number once its child has computed."""
    servers = []

    def start(kind: str, address: str, title: str = "VLLM::EngineCore") -> int:
        command = [sys.executable, "-c", SERVER, kind, address, title]
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


LIBRARY = r"""
#include <string.h>
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Process;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strncmp(uuid, "GPU-", 4)) return 6;
    *device = (void *)0x1234567812345678; return 0; }
int ok(void *device) { return device == (void *)0x1234567812345678 ? 0 : 1; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *rates) { rates[0] = 87; rates[1] = 3; return ok(d); }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[2] = 5ull << 30; return ok(d); }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj) {
    *mj = 9123456789012; return ok(d); }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 1; return 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, Process *listed) {
    if (*count < 2) return 7;
    listed[0].pid = 11; listed[1].pid = 12; *count = 2; return ok(d); }
"""
"""A driver that knows all but the power."""


def test_a_gpu_reports_what_its_driver_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(LIBRARY)
    library = str(tmp_path / "libnvidia-ml.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(tmp_path / "nvml.c")], check=True)
    monkeypatch.setattr(load, "NVML", library)
    reading = Nvml().read("GPU-aaaa-1111")
    assert reading == GpuReading(0.87, None, 9123456789.012, 5120, frozenset({11, 12}))
    assert Nvml().read("unknown") == GpuReading()
    own = psutil.Process()
    monkeypatch.setattr(own, "_pid", 11)
    assert strangers([reading], [own]) == {12}
    assert strangers([reading], []) == frozenset()  # as in a container, where the numbers differ


def test_without_a_driver_nothing_is_read_and_the_reason_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "NVML", "libno-such-driver.so.1")
    nvml = Nvml()
    assert nvml.failure.startswith("no NVIDIA driver: libno-such-driver.so.1")
    assert nvml.read("GPU-aaaa-1111") == GpuReading()


FORKED = """
import os, setproctitle, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
if os.fork() == 0:
    setproctitle.setproctitle("VLLM::EngineCore")
    print("ready", flush=True)
sys.stdin.read()
"""


def test_an_engine_that_has_inherited_the_socket_leads_to_its_api_server(tmp_path: Path) -> None:
    pipe, address = subprocess.PIPE, str(tmp_path / "http")
    with subprocess.Popen([sys.executable, "-c", FORKED, address], stdin=pipe, stdout=pipe) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        processes = server_processes(Endpoint.on_socket(Path(address)))
        assert processes[0].pid == server.pid
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
    assert server_gpus(nvml, [own], usable, 1) == found
