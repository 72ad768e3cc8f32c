"""The machine and the job: limits, memory, cores, shared memory, ports, Slurm."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from envs.registry import REGISTRY
from speedrunner.cluster.subject import Subject
from speedrunner.findings import Finding, failure, ok, warning
from speedrunner.hosts.host_pool import SKILLS_MB
from speedrunner.hosts.memory import available_mb, own_cgroups
from speedrunner.slurm import time_left_s

EPISODE_PROCESSES = 40
"""Processes and threads of one episode: host, sandboxes, and Java's threads; an estimate."""

ENGINE_PROCESSES = 500
"""Processes and threads of a server: an estimate."""

SHARED_GB = 1.0
"""Room in /dev/shm for what several GPUs exchange: an estimate."""

CORES = {False: 2, True: 4}
"""The least for a model on the CPU, and on GPUs, whose hosts have to keep up: an estimate."""


def processes(subject: Subject) -> Iterator[Finding]:
    """Check that as many processes may be started as episodes in flight take."""
    needed = ENGINE_PROCESSES + EPISODE_PROCESSES * _in_flight(subject)
    most = min(_process_limits(), default=None)
    if most is not None and most < needed:
        remedy = "set run.in_flight lower, or `ulimit -u` higher"
        yield warning("processes", f"{most} more can be started, and {needed} may be needed", remedy)
    else:
        yield ok("processes", f"{'as many as wanted' if most is None else most} for about {needed}")


def memory(subject: Subject) -> Iterator[Finding]:
    """Whether the hosts of all episodes in flight fit."""
    available = available_mb()
    if granted := os.environ.get("SLURM_MEM_PER_NODE", ""):
        available = min(available, int(granted) * 2**20 // 10**6)
    for config in subject.configs:
        each = REGISTRY.find(config.env.name).memory_mb + SKILLS_MB
        if (needed := config.run.in_flight * each) > available:
            fit = max(available // each, 1)
            what = f"{config.run.in_flight} episodes of {config.env.name}"
            text = f"{what} take {needed:,} MB, and {available:,} are free"
            yield failure("memory", text, f"run.in_flight={fit}, or more memory for the job (--mem)")
            return
    yield ok("memory", f"{available:,} MB free; {_in_flight(subject)} episodes in flight fit")


def cores(subject: Subject) -> Iterator[Finding]:
    """Cores that this process may use, and shared memory where GPUs work together."""
    there, least = len(os.sched_getaffinity(0)), CORES[subject.gpus > 0]
    if there < least:
        yield warning(
            "cores", f"{there}; below {least} the model waits for its episodes", f"--cpus-per-task={least}"
        )
    else:
        yield ok("cores", str(there))
    if subject.gpus > 1:
        shared_gb = shutil.disk_usage("/dev/shm").total / 1e9
        if shared_gb < SHARED_GB:
            remedy = "give the container a larger one, or ask the administrators"
            yield warning("/dev/shm", f"{shared_gb:.1f} GB, and GPUs exchange data there", remedy)
        else:
            yield ok("/dev/shm", f"{shared_gb:.1f} GB")


def ports(subject: Subject) -> Iterator[Finding]:
    """Whether loopback works, and the chosen ports are free."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), 5),
        ):
            yield ok("loopback", "127.0.0.1 answers")
    except OSError as error:
        remedy = "ip link set lo up (as root of the network namespace), or another node"
        yield failure("loopback", f"127.0.0.1 does not answer ({error.strerror})", remedy)
    for port in {port for _, port in subject.served if port is not None}:
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
            yield ok("port", f"{port} is free")
        except OSError as error:
            remedy = "leave serving.port out (a Unix socket), or name another"
            yield failure("port", f"{port} of 127.0.0.1 is taken ({error.strerror})", remedy)


def slurm(subject: Subject) -> Iterator[Finding]:
    """Whether this is a job, and when it ends."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is not None:
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        left_s = time_left_s()
        left = "without a known end" if left_s is None else f"{left_s / 60:.0f} min left for work"
        yield ok("Slurm", f"job {job} on {node}, {left}")
    elif shutil.which("squeue"):
        text = "this is no job: what holds here may not hold on a compute node"
        yield warning("Slurm", text, subject.doctor)
    else:
        yield ok("Slurm", "not installed here")


def _in_flight(subject: Subject) -> int:
    return max(config.run.in_flight for config in subject.configs)


def _process_limits() -> Iterator[int]:
    """How many more processes each limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY and os.geteuid() != 0:  # which does not hold for root
        yield hard - _own_threads()
    for folder in own_cgroups("pids"):
        with suppress(OSError, ValueError):  # the outermost has no limit, others say "max"
            yield int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())


def _own_threads() -> int:
    """Threads of this user, which is what the limit counts."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == os.getuid():
                count += len(list((process / "task").iterdir()))
    return count
