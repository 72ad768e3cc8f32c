"""The processes of a server on this machine: their CPU time, and the GPUs on which they compute."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import psutil

from serving.engine.endpoint import Endpoint
from serving.engine.gpus import GpuReading, Nvml


def server_processes(endpoint: Endpoint) -> list[psutil.Process]:
    """Return the processes of the vLLM server that listens at an address, with those that it started.

    Empty if they cannot be found: the server is another user's or on another machine, or an SSH tunnel
    listens here.
    """
    processes_by_pid: dict[int, psutil.Process] = {}
    with suppress(psutil.Error):
        for pid in _listeners(endpoint):
            root = psutil.Process(pid)
            # A forked engine inherits the API server's socket, and psutil names one process of each socket.
            while _title(root) and (parent := root.parent()):
                root = parent
            processes_by_pid |= {process.pid: process for process in (root, *root.children(recursive=True))}
    processes = list(processes_by_pid.values())
    return processes if any("EngineCore" in name for name in cpu_seconds(processes)) else []


def cpu_seconds(processes: Iterable[psutil.Process]) -> dict[str, float]:
    """Return the CPU seconds (user and system) that live processes have used so far, by name.

    The names are vLLM's, such as `EngineCore` and `Worker_TP0`; all other processes are `API server`.
    """
    seconds: dict[str, float] = {}
    for process in processes:
        with suppress(psutil.Error):
            name, times = _title(process) or "API server", process.cpu_times()
            seconds[name] = seconds.get(name, 0.0) + times.user + times.system
    return seconds


def _title(process: psutil.Process) -> str:
    """Return vLLM's name of a process; empty for the API server and others."""
    return "".join(process.cmdline()[:1]).partition("VLLM::")[2]


def option_of(processes: Iterable[psutil.Process], name: str) -> str | None:
    """Return the value of an option of a server's command line (`max-num-seqs`); `None`: it has none."""
    for process in processes:
        with suppress(psutil.Error):
            words = [part for word in process.cmdline() for part in word.split("=", 1)]
            if f"--{name}" in words[:-1]:
                return words[words.index(f"--{name}") + 1]
    return None


def find_server_gpus(
    nvml: Nvml, processes: Iterable[psutil.Process], usable: Sequence[str], count: int
) -> list[str]:
    """Return the GPUs (`Gpu.uuid`) on which a server's processes compute; empty if that cannot be known.

    In a container, processes may have other numbers in the driver's list. The GPUs are then known only where
    there are no others.

    Args:
        usable: GPUs that this process can use.
        count: how many of them the server has.
    """
    own = {process.pid for process in processes}
    used = [uuid for uuid in usable if own & (nvml.read(uuid).pids or frozenset())]
    return used or (list(usable) if own and len(usable) == count else [])


def find_strangers(readings: Iterable[GpuReading], processes: Sequence[psutil.Process]) -> frozenset[int]:
    """Return the processes that compute on a server's GPUs and are not the server's.

    Empty if that cannot be known: no process of the server is listed, as in a container.
    """
    own = {process.pid for process in processes}
    listed = frozenset(pid for reading in readings for pid in reading.pids or ())
    return listed - own if listed & own else frozenset()


def _listeners(endpoint: Endpoint) -> set[int]:
    """Return the processes that listen at an address of this machine."""
    if endpoint.socket is not None:
        path, sockets = os.path.realpath(endpoint.socket), psutil.net_connections("unix")
        return {entry.pid for entry in sockets if entry.pid and os.path.realpath(str(entry.laddr)) == path}
    url = urlsplit(endpoint.base_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    here = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    with suppress(OSError):
        if not here.isdisjoint(str(found[4][0]) for found in socket.getaddrinfo(url.hostname, port)):
            listening = [
                entry for entry in psutil.net_connections("tcp") if entry.status == psutil.CONN_LISTEN
            ]
            return {
                entry.pid for entry in listening if entry.pid and entry.laddr and entry.laddr.port == port
            }
    return set()
