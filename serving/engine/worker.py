"""vLLM's worker, changed so that a single worker listens to no one. It runs in the server's processes.

Each of torch's process groups (Gloo) listens on loopback, even if the world has only one member. Any user of
the machine can connect there, and idle connections stay open: some thousands of them use up the engine's file
descriptors, which ends it.
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


class _Rewound(torch.Generator):  # type: ignore[misc]
    """A CPU's generator for seeded requests. After each part of a prompt but the last, vLLM takes back its
    draw with `set_offset`. Such generators do not support that: a long prompt would end the engine."""

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> None:
        self.manual_seed(self.initial_seed())


class Worker(Base):  # type: ignore[misc]
    """The platform's worker, which closes unneeded ports."""

    def init_device(self) -> None:
        """Create the process groups, and close their ports if the world has one member."""
        super().init_device()
        if self.device.type == "cpu":
            torch.Generator = _Rewound
        if torch.distributed.get_world_size() == 1:
            with socket.socket() as placeholder:  # the ports' file descriptors stay open
                for connection in psutil.Process().net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN:
                        os.dup2(placeholder.fileno(), connection.fd, inheritable=False)
