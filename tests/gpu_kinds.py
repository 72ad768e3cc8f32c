"""GPUs as nvidia-smi reports them, and the shapes of models for them: for tests without a GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec

from serving.engine.gpus import Gpu
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


def shapes() -> dict[str, dict[str, Any]]:
    """The configurations that models/shapes/build_shapes.py knows, by name."""
    spec = importlib.util.spec_from_file_location("shapes_build", MODELS / "shapes" / "build_shapes.py")
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
