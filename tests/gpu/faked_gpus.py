"""The GPUs that the tests pretend to have, and the environment that the tests need."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pytest

from serving.engine.capacity import DRIVER_BYTES
from serving.engine.gpus import Gpu
from tests.gpu_kinds import GPUS as SHOWN

MIB, GIB = 2**20, 2**30


def missing() -> str:
    """Return what keeps the tests in this folder from running here, empty if nothing does."""
    if find_spec("flashinfer") is None:
        return "needs the GPU environment: make check-gpu"
    return "" if shutil.which("g++") else "needs a C++ compiler (Debian: apt install g++)"


def require_gpu_environment() -> None:
    """Skip the calling test module where its tests cannot run."""
    if reason := missing():
        pytest.skip(reason, allow_module_level=True)


GPUS = {kind: SHOWN[kind] for kind in ("H100", "H200", "A100", "A6000")}
"""One GPU of each kind, as the driver shows it."""

PROCESSORS = {"H100": 132, "H200": 132, "A100": 108, "A6000": 84}
"""Streaming multiprocessors of each kind."""


def total_bytes(gpu: Gpu) -> int:
    """Return the memory that NVML shows, in bytes."""
    return gpu.total * MIB


def visible_bytes(gpu: Gpu) -> int:
    """Return the memory that a CUDA program sees, in bytes."""
    return total_bytes(gpu) - DRIVER_BYTES
