"""The GPUs of this machine as `nvidia-smi` reports them, and those that this process may use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

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
        processes: processes that compute on each GPU, by the GPU's UUID.
        failure: why `nvidia-smi` shows no GPU; empty if it shows some.
    """

    installed: list[Gpu] = []
    chosen: str | None = None
    processes: dict[str, list[str]] = {}
    failure: str = ""

    @property
    def usable(self) -> list[Gpu]:
        """The GPUs that this process may use, in CUDA's order."""
        return select_gpus(self.installed, self.chosen)[0]

    @property
    def selection_problem(self) -> str | None:
        """Why `CUDA_VISIBLE_DEVICES` may hide GPUs by mistake; `None` if it does not."""
        return select_gpus(self.installed, self.chosen)[1]


def read_gpus() -> GpuReport:
    """Ask `nvidia-smi` for the GPUs and for the processes on them."""
    chosen = os.environ.get(VISIBLE)
    try:
        installed = [
            _gpu(row) for row in _query(f"--query-gpu={','.join(FIELDS)}") if len(row) == len(FIELDS)
        ]
        processes = _gpu_processes() if installed else {}
    except (OSError, subprocess.SubprocessError) as error:
        return GpuReport(chosen=chosen, failure=_describe_failure(error))
    failure = "" if installed else "nvidia-smi lists none"
    return GpuReport(installed=installed, chosen=chosen, processes=processes, failure=failure)


def select_gpus(installed: Sequence[Gpu], chosen: str | None) -> tuple[list[Gpu], str | None]:
    """Return the GPUs that a value of `CUDA_VISIBLE_DEVICES` chooses, in its order, and what is wrong with
    the value.

    The rules are CUDA's: without a value, all GPUs; an entry that names no GPU hides those after it, and one
    GPU named twice hides all.

    Args:
        chosen: the variable's value; `None` if it is not set.
    """
    if chosen is None:
        return list(installed), None
    if not chosen.strip():
        return [], f"{VISIBLE} is set and empty, which hides all GPUs"
    found: list[Gpu] = []
    for entry in map(str.strip, chosen.split(",")):
        if (gpu := _find_gpu(installed, entry)) is None:
            return found, f"{VISIBLE}={chosen}: {entry!r} matches no GPU and hides those after it"
        if gpu.uuid in (each.uuid for each in found):
            return [], f"{VISIBLE}={chosen}: {entry!r} is named twice, which hides all GPUs"
        found.append(gpu)
    return found, None


def device_settings(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the environment variables that show a process only these GPUs; none without GPUs."""
    if not gpus:
        return {}
    # By default CUDA numbers the fastest GPU 0. nvidia-smi and vLLM number them by their position on the bus.
    return {VISIBLE: ",".join(gpu.id for gpu in gpus), ORDER: os.environ.get(ORDER, "PCI_BUS_ID")}


def _gpu_processes() -> dict[str, list[str]]:
    """Return the processes that compute on each GPU, such as `process 4711 (python3)`, by the GPU's UUID."""
    found: dict[str, list[str]] = {}
    for row in _query("--query-compute-apps=gpu_uuid,pid,process_name"):
        if len(row) == 3:
            found.setdefault(row[0], []).append(f"process {row[1]} ({Path(row[2]).name})")
    return found


def _describe_failure(error: Exception) -> str:
    """Return in one line why `nvidia-smi` shows no GPU."""
    if isinstance(error, FileNotFoundError):
        return "nvidia-smi is missing, so this machine has no NVIDIA driver"
    if isinstance(error, subprocess.CalledProcessError):
        lines = [line for line in f"{error.stdout}\n{error.stderr}".splitlines() if line.strip()]
        return f"nvidia-smi: {lines[0].strip(' .') if lines else f'exit status {error.returncode}'}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"nvidia-smi did not answer within {error.timeout:g} s"
    return f"nvidia-smi: {getattr(error, 'strerror', None) or error}"


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


def _query(query: str) -> list[list[str]]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SMI_S)
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def _parse_number(text: str) -> int:
    """Return a number, or 0 for a text that is no number, such as `[N/A]`."""
    return int(text) if text.isdigit() else 0
