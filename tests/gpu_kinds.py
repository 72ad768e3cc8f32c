"""GPUs as the driver reports them, and the shapes of models for them: for tests without a GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml
import pytest

from serving.engine.gpus import MIB, Gpu
from serving.model_config import ModelConfig
from serving.model_configs import MODELS


def gpu(name: str, total: int, capability: tuple[int, int]) -> Gpu:
    """One idle GPU; `total` in MiB."""
    return Gpu("0", "GPU-0", name, total, 0, "580.65.06", capability)


GPUS = {
    "H100": gpu("NVIDIA H100 80GB HBM3", 81_559, (9, 0)),
    "H200": gpu("NVIDIA H200", 143_771, (9, 0)),
    "A100": gpu("NVIDIA A100-SXM4-80GB", 81_920, (8, 0)),
    "A6000": gpu("NVIDIA RTX A6000", 49_140, (8, 6)),
    "A10G": gpu("NVIDIA A10G", 23_028, (8, 6)),
}


H100 = msgspec.structs.replace(GPUS["H100"], uuid="GPU-aaaa-1111", used=4)
SECOND = msgspec.structs.replace(H100, id="1", uuid="GPU-bbbb-2222")
A100 = msgspec.structs.replace(GPUS["A100"], id="2", uuid="GPU-cccc-3333", used=4)


def fake_driver(patch: pytest.MonkeyPatch, *gpus: Gpu, error: int | None = None) -> None:
    """Let the driver report these GPUs, whatever this machine has; with an `error`, it does not answer.

    A GPU's `problem` is the number of the error that it gives in place of its memory.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_JOB_ID"):
        patch.delenv(name, raising=False)

    def find_memory(gpu: Gpu, version: int) -> SimpleNamespace:
        if gpu.problem:
            raise pynvml.NVMLError(int(gpu.problem))
        return SimpleNamespace(total=gpu.total * MIB, used=gpu.used * MIB)

    def start() -> None:
        if error is not None:
            raise pynvml.NVMLError(error)

    def find_gpu(uuid: str) -> Gpu:
        for gpu in gpus:
            if gpu.uuid == uuid:
                return gpu
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    for name, answer in {
        "nvmlInit": start,
        "nvmlSystemGetDriverVersion": lambda: gpus[0].driver,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: gpus[index],
        "nvmlDeviceGetHandleByUUID": find_gpu,
        "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
        "nvmlDeviceGetName": lambda gpu: gpu.name,
        "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.capability,
        "nvmlDeviceGetMemoryInfo": find_memory,
    }.items():
        patch.setattr(pynvml, name, answer)


def shapes() -> dict[str, dict[str, Any]]:
    """The configurations that models/random/build.py knows, by name."""
    spec = importlib.util.spec_from_file_location("shapes_build", MODELS / "random" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known: dict[str, dict[str, Any]] = module.shapes()
    return known


SHAPES = shapes()


def with_config(model_config: ModelConfig, folder: Path, **flags: Any) -> ModelConfig:
    """The configuration with a `config.json` of its shape in `folder`, no weights, and more flags."""
    (folder / "config.json").write_text(json.dumps(SHAPES[str(model_config.shape)]))
    server = msgspec.structs.replace(model_config.server, flags={**model_config.server.flags, **flags})
    return msgspec.structs.replace(model_config, path=str(folder), id=None, revision=None, server=server)
