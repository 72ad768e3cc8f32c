"""The process that holds a lock: who it is, and whether it still runs."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from pathlib import Path
from typing import Annotated

import msgspec

from speedrunner.plain.slurm import has_ended, own_job


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds the lock.

    Attributes:
        machine: the scope of its process id: this boot of the kernel, and the container.
        started: start of the process in clock ticks since boot, to detect a reused id.
        job: Slurm job id.
        restart: number of times that Slurm had restarted that job.
        cluster: the job's Slurm cluster; several may share a file system.
        since: Unix seconds on the owner's clock.
    """

    host: str
    machine: str
    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    started: int | None
    user: str
    job: str | None
    restart: Annotated[int, msgspec.Meta(ge=0)] = 0
    cluster: str | None = None
    since: Annotated[float, msgspec.Meta(ge=0, le=2**40)]

    def __str__(self) -> str:
        job = f" (Slurm job {self.job})" if self.job else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} of {self.user} on {self.host}{job}, since {since}"


def this_process() -> Owner:
    """Return this process as the owner of a lock."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the account has no name, as in containers
        user = f"user {os.getuid()}"
    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=pid,
        started=_start(pid),
        user=user,
        job=own_job(),
        restart=_restart(),
        cluster=os.environ.get("SLURM_CLUSTER_NAME"),
        since=time.time(),
    )


def _restart() -> int:
    count = os.environ.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isdigit() else 0


def job_has_ended(owner: Owner) -> bool:
    """Return whether the Slurm job of an owner on another machine has ended."""
    if owner.job is None or owner.cluster != os.environ.get("SLURM_CLUSTER_NAME"):
        return False
    if owner.job == own_job():  # Slurm restarts a job only after all its processes have ended
        return owner.restart < _restart()
    return has_ended(owner.job)


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return uuid.uuid4().hex  # not Linux: process ids cannot be checked, signs of life decide


def _start(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot; 0 for a zombie.

    Return `None` if it is unknown: no such process, or the system hides those of other users. The value comes
    from /proc because psutil's start times change when the wall clock is set.
    """
    try:
        # The second field, the command's name in brackets, may contain any characters.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_alive(owner: Owner) -> bool | None:
    """Return whether the owner's process runs; `None` if this machine's process table does not show it."""
    if owner.machine != _machine():
        return None
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, but belongs to another user
    started = _start(owner.pid)
    return None if started is None else started == owner.started
