"""The GPUs that the tests pretend to have, and the environment that the tests need."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import msgspec
import pytest

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


class Gpu(msgspec.Struct, frozen=True):
    """One kind of GPU.

    Attributes:
        name: as the driver calls it; vLLM's defaults depend on it.
        capability: compute capability, major and minor.
        memory_gib: nominal memory, the number in its data sheet.
        total_mib: memory as NVML and nvidia-smi show it.
        processors: streaming multiprocessors.
    """

    name: str
    capability: tuple[int, int]
    memory_gib: int
    total_mib: int
    processors: int

    @property
    def total_bytes(self) -> int:
        """Memory as NVML shows it, in bytes."""
        return self.total_mib * MIB

    @property
    def visible_bytes(self) -> int:
        """Memory as a CUDA program sees it, in bytes: the driver keeps about half a GiB."""
        return self.total_bytes - GIB // 2


GPUS = {
    "H100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80, 81_559, 132),
    "H200": Gpu("NVIDIA H200", (9, 0), 141, 143_771, 132),
    "A100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 80, 81_920, 108),
    "A6000": Gpu("NVIDIA RTX A6000", (8, 6), 48, 49_140, 84),
}
