"""The processes of a server on this machine: their CPU time, and the GPUs on which they compute."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

from serving.engine.endpoint import Endpoint
from serving.engine.gpus import Nvml


def server_processes(endpoint: Endpoint) -> list[psutil.Process]:
    """Return the processes of the vLLM server on a Unix socket, with those that it started.

    Empty for other addresses, and if they cannot be found: the server is another user's or on another
    machine.
    """
    if endpoint.socket is None:
        return []
    processes: dict[int, psutil.Process] = {}
    paths = {str(endpoint.socket), os.path.realpath(endpoint.socket)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if paths & {word.removeprefix("--uds=") for word in process.cmdline()}:
                processes |= {each.pid: each for each in (process, *process.children(recursive=True))}
    return list(processes.values())


def cpu_seconds(processes: Iterable[psutil.Process]) -> dict[str, float]:
    """Return the CPU seconds (user and system) that live processes have used so far, by name.

    The names are vLLM's, such as `EngineCore` and `Worker_TP0`; all other processes are `API server`.
    """
    seconds: dict[str, float] = {}
    for process in processes:
        with suppress(psutil.Error):
            title = "".join(process.cmdline()[:1]).partition("VLLM::")[2]
            name, times = title or "API server", process.cpu_times()
            seconds[name] = seconds.get(name, 0.0) + times.user + times.system
    return seconds


def find_server_gpus(
    nvml: Nvml, processes: Iterable[psutil.Process], usable: Sequence[str], count: int
) -> list[str]:
    """Return the GPUs (`Gpu.uuid`) on which a server's processes compute; empty if that cannot be known.

    In a container, processes may have other numbers in the driver's list. The GPUs are then known only if the
    server has all of the `usable` ones.

    Args:
        count: how many the server has.
    """
    own = {process.pid for process in processes}
    used = [uuid for uuid in usable if own & (nvml.read(uuid).pids or frozenset())]
    return used or (list(usable) if own and len(usable) == count else [])
