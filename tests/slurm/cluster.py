"""A real Slurm cluster on this machine, of one node or several, from Debian's `slurm-wlm` and `munge`.

    python -m tests.slurm.cluster FOLDER

keeps one until Ctrl-C, and prints what its commands need. It needs root, and no cgroups.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.processes import HANGS_S

SETTINGS = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MinJobAge=86400
SlurmdParameters=config_overrides
KillWait=30
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=16000
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=15 OverSubscribe=NO
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """What keeps a cluster from being started here; empty where nothing does."""
    programs = [each for each in ("munged", "slurmctld", "slurmd", "sbatch", "squeue") if not _program(each)]
    if programs:
        return f"{', '.join(programs)} not installed (Debian: apt install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "a Slurm cluster of one's own needs root"


@contextmanager
def cluster(folder: Path, within: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """A cluster of this machine that keeps its state in a folder. Yields its commands' environment.

    Args:
        within: what its daemons are started with, such as `nsenter --net=FILE`.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    ports = _free_ports(2)
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    with ExitStack() as stack:
        munge = Path(stack.enter_context(TemporaryDirectory(prefix="munge-")))  # short enough for a socket
        configuration.write_text(SETTINGS.format(host=host, folder=folder, ports=ports, munge=munge))
        stack.enter_context(_munge(munge))
        options = ["-D", "-f", str(configuration)]
        stack.enter_context(_running([*within, _program("slurmctld"), *options], environment))
        stack.enter_context(_running([*within, _program("slurmd"), *options, "-N", host], environment))
        states = [*within, "sinfo", "--noheader", "--Node", "--partition=main", "--format=%T"]
        _until(lambda: _output(states, environment).split() == ["idle"], "the node")
        try:
            yield environment
        finally:
            _output([*within, "scancel", "--user=root"], environment)
            with suppress(TimeoutError):
                _until(lambda: not _output([*within, "squeue", "-h"], environment), "the jobs' end")


@contextmanager
def _munge(folder: Path) -> Iterator[None]:
    """Slurm's authentication, with its key and socket in a folder."""
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    folder.chmod(0o711)  # every user's commands reach the socket
    options = (f"--{name}-file={folder}/{name}" for name in ("key", "log", "pid", "seed"))
    with _running([_program("munged"), "--foreground", f"--socket={folder}/socket", *options]):
        asked = ["munge", "--no-input", f"--socket={folder}/socket"]
        _until(lambda: _output(asked, dict(os.environ)), "munge")
        yield


@contextmanager
def _running(command: Sequence[str], environment: dict[str, str] | None = None) -> Iterator[None]:
    """A daemon in the foreground; it and what it has started end with the context."""
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = psutil.Popen(command, env=environment, **silent)
    try:
        yield
    finally:
        below = process.children(recursive=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _output(command: Sequence[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def _until(happened: object, what: str) -> None:
    assert callable(happened)
    deadline = time.monotonic() + HANGS_S
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {HANGS_S:g} s")
        time.sleep(0.1)


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or ""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with cluster(Path(sys.argv[1]).resolve()) as found:
        print(f"export SLURM_CONF={found['SLURM_CONF']}", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
