"""Machines whose GPUs cannot serve a model, or not well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pynvml
import pytest
from msgspec.structs import replace

from serving.engine.gpus import Gpu
from tests.gpu_kinds import H100, SECOND, fake_driver


@dataclass(frozen=True)
class BadGpus:
    """One machine.

    Attributes:
        model: the name of the model configuration.
        gpus, error: as the driver reports them.
        environment: variables that the user has set.
        fatal: whether a server is not even started.
    """

    name: str
    gpus: Sequence[Gpu] = (H100,)
    error: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "qwen3.5-27b"
    fatal: bool = True

    def set_up(self, patch: pytest.MonkeyPatch) -> None:
        """Give this machine these GPUs and this environment."""
        fake_driver(patch, *self.gpus, error=self.error)
        for name, value in self.environment.items():
            patch.setenv(name, value)


VISIBLE = "CUDA_VISIBLE_DEVICES"

BAD_GPUS = [
    BadGpus("no driver", error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
    BadGpus("a driver that does not answer", error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
    BadGpus("no GPU", gpus=()),
    BadGpus("fewer GPUs than replicas and shards take", model="qwen3.5-27b-2gpu"),
    BadGpus("a GPU too small", gpus=(replace(H100, total=40960),)),
    BadGpus("a GPU in use", gpus=(replace(H100, used=60000),)),
    BadGpus("a GPU in use a little", gpus=(replace(H100, used=3000),), fatal=False),
    BadGpus(
        "a GPU whose slices have the memory",
        gpus=(replace(H100, problem=str(pynvml.NVML_ERROR_NO_PERMISSION)),),
        fatal=False,
    ),
    BadGpus("a GPU that needs a reset", gpus=(replace(H100, problem=str(pynvml.NVML_ERROR_RESET_REQUIRED)),)),
    BadGpus("the C compiler is missing", environment={"CC": "/nowhere/gcc"}),
    BadGpus("a UUID of no GPU", gpus=(H100, SECOND), environment={VISIBLE: "GPU-ffff"}),
    BadGpus("no visible GPU", environment={VISIBLE: ""}),
    BadGpus("a GPU named twice", gpus=(H100, SECOND), environment={VISIBLE: "0,0"}, model="qwen3.5-27b-2gpu"),
]
"""Each bad input that the documentation lists (docs/troubleshooting.md), and variants of it."""
