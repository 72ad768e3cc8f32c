"""Machines whose GPUs cannot serve a model, or not well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.stand_in_smi import H100, SECOND


@dataclass(frozen=True)
class BadGpus:
    """One machine.

    Attributes:
        model: the name of the model configuration.
        rows, options: for `write_smi`; without rows there is no `nvidia-smi`.
        environment: variables that the user has set.
        fatal: whether a server is not even started.
    """

    name: str
    rows: Sequence[str] = (H100,)
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "qwen3.5-27b"
    fatal: bool = True

    def set_up(self, smi: Callable[..., None], patch: pytest.MonkeyPatch) -> None:
        """Give this machine these GPUs and this environment."""
        if self.rows:
            smi(*self.rows, **self.options)
        else:
            patch.setenv("PATH", "/nowhere")
        for name, value in self.environment.items():
            patch.setenv(name, value)


VISIBLE = "CUDA_VISIBLE_DEVICES"

BAD_GPUS = [
    BadGpus("no driver", rows=()),
    BadGpus("no GPU", rows=("No devices were found",), options={"status": 6}),
    BadGpus("fewer GPUs than replicas and shards take", model="qwen3.5-27b-2gpu"),
    BadGpus("a GPU too small", rows=(H100.replace("81559", "40960"),)),
    BadGpus("a GPU in use", rows=(H100.replace(", 4,", ", 60000,"),)),
    BadGpus("a GPU in use a little", rows=(H100.replace(", 4,", ", 3000,"),), fatal=False),
    BadGpus("an old driver", rows=(H100.replace("580.65.06", "535.183.01"),), fatal=False),
    BadGpus(
        "a driver that knows no compute capability",
        rows=('Field "compute_cap" is not a valid field to query.',),
        options={"status": 2},
    ),
    BadGpus("the C compiler is missing", environment={"CC": "/nowhere/gcc"}),
    BadGpus("a UUID of no GPU", rows=(H100, SECOND), environment={VISIBLE: "GPU-ffff"}),
    BadGpus("no visible GPU", environment={VISIBLE: ""}),
    BadGpus("a GPU named twice", rows=(H100, SECOND), environment={VISIBLE: "0,0"}, model="qwen3.5-27b-2gpu"),
]
"""Each bad input that the documentation lists (docs/troubleshooting.md), and variants of it."""
