"""Checks of the machine and the job: Slurm, processes, memory, cores, shared memory, GPUs, compilers."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress

import psutil

from serving.engine.gpus import read_gpus
from serving.engine.toolkit import Problem
from serving.gpu_check import all_problems, compiler_problems, too_few
from speedrunner.config.findings import Finding, failure, ok, warning
from speedrunner.config.slurm import time_left_s
from speedrunner.experiments.cluster.cluster_subject import Subject
from speedrunner.workers.available_memory import available_mb, own_cgroups
from speedrunner.workers.worker_pool import worker_mb

EPISODE_PROCESSES, ENGINE_PROCESSES = 40, 500
"""Processes and threads of one episode (worker, sandboxes, Java's threads) and of a server: estimates."""

SHARED_GB = 1.0
"""Space in /dev/shm for data that several GPUs exchange: an estimate."""

CORES = {False: 2, True: 4}
"""Least number of cores for a model on the CPU, and for one on GPUs, which workers have to keep up with: an
estimate."""


def slurm(subject: Subject) -> Iterator[Finding]:
    """Report the job and its end; warn on a login node."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is not None:
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        left_s = time_left_s()
        left = "without a known time limit" if left_s is None else f"{left_s / 60:.0f} min left for work"
        yield ok("Slurm", f"job {job} on {node}, {left}")
    elif shutil.which("squeue"):
        yield warning("Slurm", "not in a job; a compute node may differ", subject.doctor)


def processes(subject: Subject) -> Iterator[Finding]:
    """Check that enough processes may be started for the episodes in flight."""
    needed = ENGINE_PROCESSES + EPISODE_PROCESSES * _in_flight(subject)
    most = min(_process_limits(), default=None)
    if most is not None and most < needed:
        remedy = "lower run.in_flight, or raise `ulimit -u`"
        yield warning("processes", f"{most} more can be started, but {needed} may be needed", remedy)
    else:
        yield ok("processes", f"{'no limit' if most is None else most} for about {needed}")


def _process_limits() -> Iterator[int]:
    """Yield how many more processes each limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY and os.geteuid() != 0:  # root has no limit
        # The limit counts the threads of all processes of this user.
        mine = (each.info for each in psutil.process_iter(["uids", "num_threads"]))
        yield hard - sum(each["num_threads"] for each in mine if each["uids"].real == os.getuid())
    for folder in own_cgroups("pids"):
        with suppress(OSError, ValueError):  # the outermost has no limit, others may have "max"
            yield int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())


def memory(subject: Subject) -> Iterator[Finding]:
    """Check that the workers of all episodes in flight fit into the memory."""
    available = available_mb()
    if granted := os.environ.get("SLURM_MEM_PER_NODE", ""):
        available = min(available, int(granted) * 2**20 // 10**6)
    for config in subject.configs:
        each = worker_mb(config.env.name)
        if (needed := config.run.in_flight * each) > available:
            fit = max(available // each, 1)
            what = f"{config.run.in_flight} episodes of {config.env.name}"
            text = f"{what} take {needed:,} MB, but {available:,} MB are free"
            yield failure("memory", text, f"run.in_flight={fit}, or more memory for the job (--mem)")
            return
    yield ok("memory", f"{available:,} MB free; {_in_flight(subject)} episodes in flight fit")


def cores(subject: Subject) -> Iterator[Finding]:
    """Check the cores that this process may use, and shared memory if GPUs work together."""
    count, least = len(os.sched_getaffinity(0)), CORES[subject.gpus > 0]
    if count < least:
        text = f"{count}; with fewer than {least}, the model waits for its episodes"
        yield warning("cores", text, f"--cpus-per-task={least}")
    else:
        yield ok("cores", str(count))
    shared_gb = shutil.disk_usage("/dev/shm").total / 1e9
    if subject.gpus > 1 and shared_gb < SHARED_GB:
        remedy = "start the container with a larger one, or ask the administrators"
        yield warning("/dev/shm", f"{shared_gb:.1f} GB, and GPUs exchange data there", remedy)


def gpus(subject: Subject) -> Iterator[Finding]:
    """Check whether this machine's GPUs can serve the models."""
    if not subject.gpus:
        yield ok("GPU", "none is needed")
        return
    report = read_gpus()
    if problem := too_few(report, subject.gpus, subject.doctor):
        yield _finding("GPU", problem)
    problems = list(
        dict.fromkeys(each for servers in subject.together for each in all_problems(servers, report))
    )
    yield from (_finding("GPU", each) for each in problems)
    if len(report.usable) >= subject.gpus and not any(each.fatal for each in problems):
        names = ", ".join(map(str, report.usable))
        yield ok("GPU", f"{subject.gpus} needed; here: {names}; driver {report.usable[0].driver}")
    if report.usable:
        together = (model_config for servers in subject.together for model_config in servers)
        compilers = [_finding("CUDA toolkit", each) for each in compiler_problems(together)]
        yield from compilers or [ok("CUDA toolkit", "it compiles a kernel")]


def _finding(name: str, problem: Problem) -> Finding:
    return Finding(name, "failed" if problem.fatal else "warning", problem.text, problem.remedy)


def _in_flight(subject: Subject) -> int:
    return max(config.run.in_flight for config in subject.configs)
