"""The GPUs of this machine as `nvidia-smi` reports them, and those that this process may use."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that chooses and orders the GPUs of a process."""

ORDER = "CUDA_DEVICE_ORDER"
"""The environment variable that says what an index in `CUDA_VISIBLE_DEVICES` means."""

SMI_S = 30.0
"""Longest wait for `nvidia-smi`, in seconds. It takes seconds if the driver's persistence mode is off."""

FIELDS = (
    *("index", "uuid", "name", "memory.total", "memory.used", "driver_version", "compute_cap"),
    "mig.mode.current",
)

MIG_SLICE = re.compile(r"^\s+MIG (\S*?(\d+)gb\S*).*\(UUID: (MIG-[^)]+)\)")
"""A line of `nvidia-smi -L`: `  MIG 1g.10gb  Device  0: (UUID: MIG-...)`."""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU, or one MIG slice of a GPU.

    Attributes:
        id: its name for `CUDA_VISIBLE_DEVICES`: its index, or its full UUID if the variable has UUIDs. (CUDA
            takes an abbreviated UUID, vLLM 0.32 does not.)
        uuid: the GPU's UUID; a MIG slice has its own.
        name: such as `NVIDIA H100 80GB HBM3`.
        total: memory in MiB; 0 if the driver does not report it.
        used: memory in use in MiB, by any process; 0 for a MIG slice, since nvidia-smi does not report its
            use.
        driver: the driver's version.
        capability: compute capability, such as (9, 0); (0, 0) if the driver does not report it.
        mig: whether the GPU is split into MIG slices.
    """

    id: str
    uuid: str
    name: str
    total: int
    used: int
    driver: str
    capability: tuple[int, int] = (0, 0)
    mig: bool = False

    @property
    def is_slice(self) -> bool:
        """Whether this is a MIG slice."""
        return self.uuid.startswith("MIG-")

    def __str__(self) -> str:
        return f"{self.name} ({self.total / 1024:.0f} GiB)"


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `nvidia-smi` reports, and which of these GPUs this process may use.

    Attributes:
        installed: all GPUs and MIG slices of the machine.
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
        """The GPUs that this process may use, in CUDA's order, without those that are split into MIG
        slices."""
        return [gpu for gpu in select_gpus(self.installed, self.chosen) if not gpu.mig]


def read_gpus() -> GpuReport:
    """Ask `nvidia-smi` for the GPUs and for the processes on them."""
    chosen = os.environ.get(VISIBLE)
    try:
        installed = installed_gpus()
        processes = gpu_processes() if installed else {}
    except (OSError, subprocess.SubprocessError) as error:
        return GpuReport(chosen=chosen, failure=smi_complaint(error))
    failure = "" if installed else "nvidia-smi lists none"
    return GpuReport(installed=installed, chosen=chosen, processes=processes, failure=failure)


def installed_gpus() -> list[Gpu]:
    """Return all GPUs of this machine, then the MIG slices of those that are split.

    Raises `OSError` or `SubprocessError` if there is no driver, or it does not answer.
    """
    rows = _query(f"--query-gpu={','.join(FIELDS)}")
    gpus = [_gpu(row) for row in rows if len(row) == len(FIELDS)]
    return gpus + (list(_mig_slices(gpus)) if any(gpu.mig for gpu in gpus) else [])


def select_gpus(installed: Sequence[Gpu], chosen: str | None) -> list[Gpu]:
    """Return the GPUs that a value of `CUDA_VISIBLE_DEVICES` chooses, in its order.

    The rules are CUDA's: without a value, all GPUs; an entry that names no GPU hides those after it, and one
    GPU named twice hides all.

    Args:
        installed: all GPUs, as `installed_gpus` returns them.
        chosen: the variable's value; `None` if it is not set.
    """
    return _selection(installed, chosen)[0]


def device_settings(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the environment variables that show a process only these GPUs; none without GPUs."""
    if not gpus:
        return {}
    # By default CUDA numbers the fastest GPU 0. nvidia-smi and vLLM number them by their position on the bus.
    return {VISIBLE: ",".join(gpu.id for gpu in gpus), ORDER: os.environ.get(ORDER, "PCI_BUS_ID")}


def selection_problem(installed: Sequence[Gpu], chosen: str | None) -> str | None:
    """Return why a value of `CUDA_VISIBLE_DEVICES` may hide GPUs by mistake; `None` if it does not."""
    return _selection(installed, chosen)[1]


def gpu_processes() -> dict[str, list[str]]:
    """Return the processes that compute on each GPU, such as `process 4711 (python3)`, by the GPU's UUID."""
    found: dict[str, list[str]] = {}
    for row in _query("--query-compute-apps=gpu_uuid,pid,process_name"):
        if len(row) == 3:
            found.setdefault(row[0], []).append(f"process {row[1]} ({Path(row[2]).name})")
    return found


def smi_complaint(error: Exception) -> str:
    """Return in one line why `nvidia-smi` shows no GPU, from the exception of `installed_gpus`."""
    if isinstance(error, FileNotFoundError):
        return "nvidia-smi is missing, so this machine has no NVIDIA driver"
    if isinstance(error, subprocess.CalledProcessError):
        lines = [line for line in f"{error.stdout}\n{error.stderr}".splitlines() if line.strip()]
        why = lines[0].strip(" .") if lines else f"exit status {error.returncode}"
        is_old = "not a valid field" in why
        return f"nvidia-smi: {why}{', as the driver is older than 510: install a newer one' * is_old}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"nvidia-smi did not answer within {error.timeout:g} s"
    return f"nvidia-smi: {getattr(error, 'strerror', None) or error}"


def _selection(installed: Sequence[Gpu], chosen: str | None) -> tuple[list[Gpu], str | None]:
    """Return the GPUs that a value of `CUDA_VISIBLE_DEVICES` chooses, and what is wrong with the value."""
    if chosen is None:
        return [gpu for gpu in installed if not gpu.is_slice], None
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


def _find_gpu(installed: Sequence[Gpu], entry: str) -> Gpu | None:
    """Return the GPU that an entry of `CUDA_VISIBLE_DEVICES` names: by index, or by the start of a UUID."""
    if entry.isdigit():
        return next((gpu for gpu in installed if gpu.id == str(int(entry))), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    fits = [gpu for gpu in installed if gpu.uuid.startswith(entry)]
    return msgspec.structs.replace(fits[0], id=fits[0].uuid) if len(fits) == 1 else None


def _gpu(row: Sequence[str]) -> Gpu:
    index, uuid, name, total, used, driver, capability, mig = row
    major, _, minor = capability.partition(".")
    numbers = (_parse_number(major), _parse_number(minor))
    return Gpu(
        index, uuid, name, _parse_number(total), _parse_number(used), driver, numbers, mig == "Enabled"
    )


def _mig_slices(gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    """Return the MIG slices of these GPUs, in the order of `nvidia-smi -L`."""
    parent = None
    for line in _run_smi("-L").splitlines():
        if whole := re.match(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)", line):
            parent = next((gpu for gpu in gpus if gpu.uuid == whole[1]), None)
        elif (part := MIG_SLICE.match(line)) and parent is not None:
            profile, gigabytes, uuid = part.groups()
            name, total = f"{parent.name} MIG {profile}", int(gigabytes) * 1024
            yield msgspec.structs.replace(
                parent, id=uuid, uuid=uuid, name=name, total=total, used=0, mig=False
            )


def _query(query: str) -> list[list[str]]:
    lines = _run_smi(query, "--format=csv,noheader,nounits").splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]


def _run_smi(*arguments: str) -> str:
    done = subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, check=True, timeout=SMI_S
    )
    return done.stdout


def _parse_number(text: str) -> int:
    """Return a number, or 0 for a text that is no number, such as `[N/A]`."""
    return int(text) if text.isdigit() else 0
