"""How vLLM's own rendezvous connects the parts of a model over several nodes of a Slurm job.

The job's script starts the run on the first node (the head node, rank 0). On each other node (the worker
nodes) it starts a step with a part of the model. All of them know the head node's address from Slurm, and the
port from the script.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import psutil

from serving.errors import ServerFailed

PORT = "SPEEDRUNNER_MASTER_PORT"
"""Environment variable: the head node's port for the rendezvous of vLLM's parts; the job's script sets it."""

HEAD = "SLURM_LAUNCH_NODE_IPADDR"
"""Environment variable: the address from which the job's steps are started, which is the head node's."""


def worker_rank() -> int:
    """Return the rank of this worker node, from 1. Raises `ServerFailed` outside a step of such a job."""
    if PORT not in os.environ or "SLURM_PROCID" not in os.environ:
        raise ServerFailed("--worker-node works only in the scripts that `speedrunner sweep` writes")
    return int(os.environ["SLURM_PROCID"]) + 1


def node_arguments(nodes: int, rank: int) -> list[str]:
    """Return vLLM's arguments for one of the nodes of a model; none for a model on one node.

    Raises:
        ServerFailed: this is not a job that serves the other nodes' parts.
    """
    if nodes == 1:
        return []
    if PORT not in os.environ or HEAD not in os.environ:
        raise ServerFailed(
            f"the model needs {nodes} nodes, but this is one: submit a job with `speedrunner sweep"
            " experiment=NAME cluster=...`"
        )
    place = ["--nnodes", str(nodes), "--node-rank", str(rank)]
    place += ["--master-addr", os.environ[HEAD], "--master-port", os.environ[PORT]]
    return [*place, "--headless"] if rank else place


def node_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that make vLLM, Gloo and NCCL use the network of the head node.

    An interface that the site has chosen for Gloo or NCCL is kept.
    """
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((environment[HEAD], int(environment[PORT])))  # sends nothing
        own = probe.getsockname()[0]
    names = [name for name, each in psutil.net_if_addrs().items() if own in (one.address for one in each)]
    chosen = {"GLOO_SOCKET_IFNAME": names[0], "NCCL_SOCKET_IFNAME": names[0]} if names else {}
    return {"VLLM_HOST_IP": own} | {name: environment.get(name, found) for name, found in chosen.items()}
