"""Fakes enough of CUDA for vLLM's GPU build to choose its platform and configure itself without a GPU.

A compiled driver library answers every call with "no device". NVML and torch report devices from a table.
Nothing can be computed. The fakes replace functions of whole modules, so a process can have only one kind of
GPU.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving.engine.capacity import DRIVER_BYTES
from serving.engine.gpus import MIB, Gpu
from tests.gpu_kinds import GPUS as SHOWN

GIB = 2**30

NO_DEVICE = 100
"""`CUDA_ERROR_NO_DEVICE`."""

HEADER = Path(sysconfig.get_path("purelib"), "nvidia/cu13/include/cuda.h")
"""Declares the driver's functions; part of the GPU environment."""


def require_gpu_environment() -> None:
    """Skip the calling test module where its tests cannot run."""
    if find_spec("flashinfer") is None:
        pytest.skip("needs the GPU environment: make check-gpu", allow_module_level=True)
    if not shutil.which("g++"):
        pytest.skip("needs a C++ compiler (Debian: apt install g++)", allow_module_level=True)


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


def load_driver(folder: Path) -> None:
    """Compile a driver library into a folder and load it, so that later libraries find `libcuda.so.1`.

    Raises:
        subprocess.CalledProcessError: gcc failed.
    """
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    names = sorted(set(re.findall(r"\bcu[A-Z]\w+", HEADER.read_text(encoding="utf-8"))))
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names))
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source]
    subprocess.run(command, check=True)
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def fake_gpus(gpu: Gpu, processors: int, count: int) -> None:
    """Make NVML and torch report `count` unused GPUs. Call this before vLLM chooses its platform."""
    import torch
    import vllm.third_party.pynvml as nvml

    free = visible_bytes(gpu) - GIB // 4
    for name, answer in {
        "nvmlInit": _always(None),
        "nvmlShutdown": _always(None),
        "nvmlDeviceGetCount": _always(count),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetIndex": lambda handle: handle,
        "nvmlDeviceGetName": _always(gpu.name),
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetCudaComputeCapability": _always(gpu.capability),
        "nvmlDeviceGetMemoryInfo": _always(
            SimpleNamespace(total=total_bytes(gpu), free=free, used=total_bytes(gpu) - free)
        ),
        "nvmlDeviceGetP2PStatus": _always(nvml.NVML_P2P_STATUS_OK),
    }.items():
        _replace(nvml, name, answer)

    major, minor = gpu.capability
    properties = SimpleNamespace(
        name=gpu.name,
        major=major,
        minor=minor,
        total_memory=visible_bytes(gpu),
        multi_processor_count=processors,
        is_integrated=0,
        warp_size=32,
    )
    for name, answer in {
        "is_available": _always(True),
        "is_initialized": _always(False),
        "device_count": _always(count),
        "_device_count_nvml": _always(count),
        "current_device": _always(0),
        "set_device": _always(None),
        "get_device_name": _always(gpu.name),
        "get_device_capability": _always(gpu.capability),
        "get_device_properties": _always(properties),
        "mem_get_info": _always((free, visible_bytes(gpu))),
    }.items():
        _replace(torch.cuda, name, answer)
    for name, answer in {
        "is_available": _always(True),
        "device_count": _always(count),
        "current_device_index": _always(0),
        "current_accelerator": _always(torch.device("cuda")),
        "get_memory_info": _always((free, visible_bytes(gpu))),
    }.items():
        _replace(torch.accelerator, name, answer)


def _always(value: object) -> Callable[..., Any]:
    return lambda *args, **options: value


def _replace(module: Any, name: str, answer: Callable[..., Any]) -> None:
    getattr(module, name)  # a fake of what no longer exists would fake nothing
    setattr(module, name, answer)
