"""The load of a server on this machine: the CPU time of its processes, and what NVML reports of its GPUs."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil

from serving.engine.endpoint import Endpoint

NVML = "libnvidia-ml.so.1"
"""The driver's library for readings of GPUs."""

MOST_PROCESSES = 256
"""Most processes of one GPU that are listed."""


def server_processes(endpoint: Endpoint) -> list[psutil.Process]:
    """Return the processes of the vLLM server that listens at an address, with those that it started.

    Empty if they cannot be found: the server is another user's or on another machine, or an SSH tunnel
    listens here.
    """
    found: dict[int, psutil.Process] = {}
    with suppress(psutil.Error):
        for pid in _listeners(endpoint):
            root = psutil.Process(pid)
            # A forked engine inherits the API server's socket, and psutil names one process of each socket.
            while _title(root) and (parent := root.parent()):
                root = parent
            found |= {each.pid: each for each in (root, *root.children(recursive=True))}
    processes = list(found.values())
    return processes if any("EngineCore" in name for name in cpu_seconds(processes)) else []


def cpu_seconds(processes: Iterable[psutil.Process]) -> dict[str, float]:
    """Return the CPU seconds (user and system) that live processes have used so far, by name.

    The names are vLLM's, such as `EngineCore` and `Worker_TP0`; all other processes are `API server`.
    """
    found: dict[str, float] = {}
    for process in processes:
        with suppress(psutil.Error):
            name, times = _title(process) or "API server", process.cpu_times()
            found[name] = found.get(name, 0.0) + times.user + times.system
    return found


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


class GpuReading(msgspec.Struct, frozen=True):
    """One GPU at one moment. `None`: the driver does not report it.

    Attributes:
        busy: share of the last moments (up to a second) in which a kernel ran.
        watts: power.
        joules: energy since the driver was loaded.
        memory_mib: memory in use in MiB, by any process.
        pids: processes that compute on it. In a container they may have other numbers than inside.
    """

    busy: float | None = None
    watts: float | None = None
    joules: float | None = None
    memory_mib: float | None = None
    pids: frozenset[int] | None = None


class _GpuProcess(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2))


class Nvml:
    """The driver's readings of GPUs. One takes about a millisecond.

    Attributes:
        failure: why there are none; empty if there are.
    """

    def __init__(self) -> None:
        self.failure = ""
        try:
            self._library = ctypes.CDLL(NVML)
        except OSError as error:
            self.failure = f"no NVIDIA driver: {error}"
            return
        if code := self._library.nvmlInit_v2():
            self.failure = f"NVML does not start: error {code}"

    def read(self, uuid: str) -> GpuReading:
        """Return the current values of a GPU (`Gpu.uuid`); all are `None` if NVML does not know it."""
        device, name = ctypes.c_void_p(), ctypes.c_char_p(uuid.encode())
        if self.failure or self._library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(device)):
            return GpuReading()

        def ask(function: str, *values: Any) -> bool:
            """Fill in the values, and return whether the driver knows them."""
            call = getattr(self._library, f"nvmlDeviceGet{function}", None)
            return call is not None and call(device, *map(ctypes.byref, values)) == 0

        rates, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()  # GPU, bus; total, free, used
        milliwatts, millijoules, count = ctypes.c_uint(), ctypes.c_ulonglong(), ctypes.c_uint(MOST_PROCESSES)
        listed = (_GpuProcess * MOST_PROCESSES)()
        is_listed = ask("ComputeRunningProcesses_v3", count, listed)
        return GpuReading(
            busy=rates[0] / 100 if ask("UtilizationRates", rates) else None,
            watts=milliwatts.value / 1e3 if ask("PowerUsage", milliwatts) else None,
            joules=millijoules.value / 1e3 if ask("TotalEnergyConsumption", millijoules) else None,
            memory_mib=memory[2] / 2**20 if ask("MemoryInfo", memory) else None,
            pids=frozenset(each.pid for each in listed[: count.value]) if is_listed else None,
        )


def server_gpus(
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


def strangers(readings: Iterable[GpuReading], processes: Sequence[psutil.Process]) -> frozenset[int]:
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
        return {each.pid for each in sockets if each.pid and os.path.realpath(str(each.laddr)) == path}
    url = urlsplit(endpoint.base_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    here = {address.address for each in psutil.net_if_addrs().values() for address in each}
    with suppress(OSError):
        if not here.isdisjoint(str(found[4][0]) for found in socket.getaddrinfo(url.hostname, port)):
            listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
            return {each.pid for each in listening if each.pid and each.laddr and each.laddr.port == port}
    return set()
