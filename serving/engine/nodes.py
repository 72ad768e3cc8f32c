"""A model that is spread over several nodes of a Slurm allocation: its API server here, its followers there.

    python -m serving.engine.nodes NODES OPTIONS OF THE API SERVER

vLLM's own processes find each other by an address and a port of this node. `srun` starts one follower on each
other node. If either the API server or a follower ends, the rest does. Each follower holds a connection to a
port of this process, and ends when that breaks: nothing has to reach it when this process ends, in whatever
way, and when `srun` is killed, Slurm itself would take its time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil

from serving.engine.api_server import API_SERVER
from serving.errors import ServerFailed

SPREAD = (sys.executable, "-m", "serving.engine.nodes")
FOLLOWER = (sys.executable, "-m", "serving.engine.follower")

LIFELINE = "SPEEDRUNNER_LIFELINE"
"""Environment variable of followers: the port, beside the master's address, to which they stay connected."""

BACKLOG = 64
"""Connections that stand without being accepted: more than there are nodes."""

POLL_S = 0.2
FOLLOWERS_END_S = 4.0


def other_nodes(count: int) -> list[str]:
    """The nodes that serve a model of `count` nodes together with this one, by the names that Slurm has.

    Raises:
        ServerFailed: this is no Slurm job, it has fewer nodes, or it cannot start programs on them.
    """
    listed = os.environ.get("SLURM_JOB_NODELIST")
    advice = "`speedrunner submit LIST cluster=...` asks Slurm for them"
    if listed is None:
        raise ServerFailed(f"the model needs {count} nodes, and this is no Slurm job; {advice}")
    if missing := [program for program in ("srun", "scontrol") if shutil.which(program) is None]:
        raise ServerFailed(
            f"the model needs {count} nodes, and {' and '.join(missing)}, which reach them, are not here:"
            " put Slurm's commands on the PATH (a container has none of its own)"
        )
    own = os.environ.get("SLURMD_NODENAME")
    others = [name for name in _scontrol("hostnames", listed).split() if name != own]
    if len(others) < count - 1:
        raise ServerFailed(f"the model needs {count} nodes, and this job has {len(others) + 1}; {advice}")
    return others[: count - 1]


def meeting(address: str) -> dict[str, str]:
    """What vLLM, Gloo and NCCL find in their environment so that they meet where `address` is reached from.

    A site that has chosen an interface for Gloo or NCCL has done so for a reason, and keeps it.

    Raises:
        ServerFailed: there is no way to that address.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # nothing is sent
            own = probe.getsockname()[0]
    except OSError as error:
        raise ServerFailed(f"node {address} cannot be reached from here: {error}") from None
    names = [name for name, each in psutil.net_if_addrs().items() if own in (one.address for one in each)]
    chosen = {"GLOO_SOCKET_IFNAME": names[0], "NCCL_SOCKET_IFNAME": names[0]} if names else {}
    return {"VLLM_HOST_IP": own} | {name: os.environ.get(name, found) for name, found in chosen.items()}


def followers_command(others: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The command that starts a follower on each of these nodes, and ends when one of them does."""
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    return [
        "srun",
        f"--nodes={len(others)}",
        f"--ntasks={len(others)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(others)}",
        *([f"--cpus-per-task={cores}"] if cores else []),
        "--overlap",
        "--mpi=none",
        "--kill-on-bad-exit=1",
        *FOLLOWER,
        *arguments,
    ]


def run(count: int, arguments: Sequence[str]) -> int:
    """Serve until it is interrupted, or a part of it ends. Returns the status of that as a shell would."""
    others = other_nodes(count)
    found = meeting(_address(others[0]))
    own = found["VLLM_HOST_IP"]
    arguments = [
        *arguments,
        "--nnodes",
        str(count),
        "--master-addr",
        own,
        "--master-port",
        str(_free_port(own)),
    ]
    with socket.create_server((own, 0), backlog=BACKLOG) as lifeline:
        elsewhere = {**os.environ, LIFELINE: str(lifeline.getsockname()[1])}
        elsewhere.pop("VLLM_API_KEY", None)
        command = followers_command(others, arguments)
        followers = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=elsewhere)
        head = subprocess.Popen([*API_SERVER, *arguments, "--node-rank", "0"], env={**os.environ, **found})
        try:
            while head.poll() is None and followers.poll() is None:
                time.sleep(POLL_S)
            if head.poll() is None:
                print(f"the part of the model on {' or '.join(others)} has ended", flush=True)
                return followers.returncode or 1
        except KeyboardInterrupt:
            head.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        followers.wait(FOLLOWERS_END_S)
    status = head.wait()
    return 128 - status if status < 0 else status


def _address(node: str) -> str:
    """Where Slurm itself reaches a node."""
    words = _scontrol("node", node, "--oneliner").split()
    return next((word.partition("=")[2] for word in words if word.startswith("NodeAddr=")), node)


def _scontrol(*what: str) -> str:
    done = subprocess.run(["scontrol", "show", *what], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerFailed(
            f"scontrol show {' '.join(what)} failed: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    try:
        exit_status = run(int(sys.argv[1]), sys.argv[2:])
    except ServerFailed as error:
        sys.exit(f"ServerFailed: {error}")
    sys.exit(exit_status)
