"""Which GPUs each server of a process gets: servers that run at the same time share none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from serving.engine.gpus import Gpu, visible_gpus
from serving.errors import ServerFailed
from serving.model_card import ModelCard

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

Slice = tuple[str, ...]
"""GPUs of this node, as `CUDA_VISIBLE_DEVICES` names them."""


def gpu_slices(models: Sequence[ModelCard]) -> list[Slice]:
    """Divide the visible GPUs among models that are served at the same time, in their order.

    A model gets the GPUs of all its replicas on this node; vLLM divides them among the replicas. A model for
    the CPU gets none.

    Raises:
        ServerFailed: too few GPUs are visible, or none.
    """
    needs = [model.gpus_of_a_node for model in models]
    if not any(needs):
        return [()] * len(needs)
    what = " and ".join(
        f"model {model.name!r} needs {_count(need)}"
        for model, need in zip(models, needs, strict=True)
        if need
    )
    remedy = (
        f"ask Slurm for {_count(sum(needs))} (--gres=gpu:{sum(needs)}), or choose another model configuration"
        " (speedrunner list models)"
    )
    try:
        visible = visible_gpus()
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerFailed(f"{what}, and no GPU is visible: {_reason(error)}; {remedy}") from None
    usable = [gpu for gpu in visible if not _is_divided(gpu)]
    if len(usable) < sum(needs):
        chosen = os.environ.get(VISIBLE)
        shown = "" if chosen is None else f" ({VISIBLE}={chosen})"
        if divided := len(visible) - len(usable):
            shown += f" besides {divided} split into MIG slices, which {VISIBLE} must name by UUID"
        correct = "" if chosen is None else f", or correct {VISIBLE}"
        seen = f"{len(usable)} {'is' if len(usable) == 1 else 'are'} visible{shown}"
        raise ServerFailed(f"{what}, and {seen}: {remedy}{correct}")
    left = iter(usable)
    return [tuple(_device(next(left)) for _ in range(need)) for need in needs]


def slice_settings(gpus: Slice) -> dict[str, str]:
    """Return the environment variables with which a server sees these GPUs alone."""
    if not gpus:
        return {}
    # By default CUDA numbers the fastest GPU 0; nvidia-smi and vLLM number them by their place on the bus.
    return {VISIBLE: ",".join(gpus), ORDER: os.environ.get(ORDER, "PCI_BUS_ID")}


def _device(gpu: Gpu) -> str:
    """Return a GPU's index, or its whole UUID: vLLM asks NVML, which knows no shortened UUID."""
    return gpu.id if gpu.id.isdigit() else gpu.uuid


def _is_divided(gpu: Gpu) -> bool:
    """Whether a GPU is split into MIG slices, so that nothing can compute on the whole."""
    return gpu.mig and not gpu.uuid.startswith("MIG-")


def _count(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = f"{error.stdout}{error.stderr}".strip().splitlines()
        return f"nvidia-smi says: {lines[-1] if lines else f'exit status {error.returncode}'}"
    return f"nvidia-smi cannot be asked ({getattr(error, 'strerror', None) or error})"
