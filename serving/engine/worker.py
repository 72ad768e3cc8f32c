"""vLLM's worker, but that one which has nobody to talk to listens to nobody: part of the server's process.

Each of torch's process groups (Gloo) listens on loopback, also where the world has one member. Any user of
the machine can connect there, and connections that say nothing stay: some thousands of them use up the
engine's file descriptors, which ends it.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import psutil
import torch.distributed

if TYPE_CHECKING:
    Base = Any
else:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_worker import CPUWorker as Base
    else:
        from vllm.v1.worker.gpu_worker import Worker as Base


class Worker(Base):  # type: ignore[misc]
    """The platform's own."""

    def init_device(self) -> None:
        """Make the process groups, and close their ports where nobody is to come."""
        super().init_device()
        if torch.distributed.get_world_size() == 1:
            close_ports()


def close_ports() -> None:
    """Close each TCP port that this process listens on; its owner keeps a descriptor of the same number."""
    with socket.socket() as placeholder:
        for each in psutil.Process().net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                os.dup2(placeholder.fileno(), each.fd, inheritable=False)
