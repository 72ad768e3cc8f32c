"""The GPUs of this machine as `nvidia-smi` reports them, and those that this process may use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import msgspec

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that chooses and orders the GPUs of a process."""

ORDER = "CUDA_DEVICE_ORDER"
"""The environment variable that says what an index in `CUDA_VISIBLE_DEVICES` means."""

SMI_S = 30.0
"""Longest wait for `nvidia-smi`, in seconds. It takes seconds if the driver's persistence mode is off."""

FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version", "compute_cap")


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. MIG slices are not supported.

    Attributes:
        id: its name for `CUDA_VISIBLE_DEVICES`: its index, or its full UUID if the variable has UUIDs. (CUDA
            takes an abbreviated UUID, vLLM 0.32 does not.)
        name: such as `NVIDIA H100 80GB HBM3`.
        total: memory in MiB; 0 if the driver does not report it.
        used: memory in use in MiB, by any process.
        driver: the driver's version.
        capability: compute capability, such as (9, 0); (0, 0) if the driver does not report it.
    """

    id: str
    uuid: str
    name: str
    total: int
    used: int
    driver: str
    capability: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"{self.name} ({self.total / 1024:.0f} GiB)"


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `nvidia-smi` reports, and which of these GPUs this process may use.

    Attributes:
        installed: all GPUs of the machine.
        chosen: the value of `CUDA_VISIBLE_DEVICES`; `None` if it is not set.
        failure: why `nvidia-smi` shows no GPU; empty if it shows some.
    """

    installed: list[Gpu] = []
    chosen: str | None = None
    failure: str = ""

    @property
    def usable(self) -> list[Gpu]:
        """The GPUs that this process may use, in CUDA's order.

        The rules are CUDA's: without a value of `CUDA_VISIBLE_DEVICES`, all GPUs; an entry that names no GPU
        hides those after it, and one GPU named twice hides all.
        """
        if self.chosen is None:
            return list(self.installed)
        found: list[Gpu] = []
        for entry in map(str.strip, self.chosen.split(",")):
            if (gpu := _find_gpu(self.installed, entry)) is None:
                break
            if gpu.uuid in (each.uuid for each in found):
                return []
            found.append(gpu)
        return found


def read_gpus() -> GpuReport:
    """Ask `nvidia-smi` for the GPUs."""
    chosen = os.environ.get(VISIBLE)
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SMI_S)
    except FileNotFoundError:
        return GpuReport(chosen=chosen, failure="nvidia-smi is missing, so this machine has no NVIDIA driver")
    except (OSError, subprocess.TimeoutExpired) as error:
        return GpuReport(chosen=chosen, failure=f"nvidia-smi: {error}")
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    if done.returncode or not lines:
        said = lines[0].strip(".") if lines else f"exit status {done.returncode}"
        return GpuReport(chosen=chosen, failure=f"nvidia-smi: {said}")
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return GpuReport(installed=[_gpu(row) for row in rows if len(row) == len(FIELDS)], chosen=chosen)


def device_settings(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the environment variables that show a process only these GPUs; none without GPUs."""
    if not gpus:
        return {}
    # By default CUDA numbers the fastest GPU 0. nvidia-smi and vLLM number them by their position on the bus.
    return {VISIBLE: ",".join(gpu.id for gpu in gpus), ORDER: os.environ.get(ORDER, "PCI_BUS_ID")}


def _find_gpu(installed: Sequence[Gpu], entry: str) -> Gpu | None:
    """Return the GPU that an entry of `CUDA_VISIBLE_DEVICES` names: by index, or by the start of a UUID."""
    if entry.isdigit():
        return next((gpu for gpu in installed if gpu.id == str(int(entry))), None)
    fits = [gpu for gpu in installed if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return msgspec.structs.replace(fits[0], id=fits[0].uuid) if len(fits) == 1 else None


def _gpu(row: Sequence[str]) -> Gpu:
    index, uuid, name, total, used, driver, capability = row
    major, _, minor = capability.partition(".")
    numbers = (_parse_number(major), _parse_number(minor))
    return Gpu(index, uuid, name, _parse_number(total), _parse_number(used), driver, numbers)


def _parse_number(text: str) -> int:
    """Return a number, or 0 for a text that is no number, such as `[N/A]`."""
    return int(text) if text.isdigit() else 0
