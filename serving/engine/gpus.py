"""The GPUs that this process may use, as `nvidia-smi` reports them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import msgspec

SMI_S = 30.0
"""Longest wait for `nvidia-smi`, in seconds. It takes seconds where the driver's persistence mode is off."""

MIG_PROFILE = re.compile(r"^\s+MIG (\S*?(\d+)gb\S*).*\(UUID: (MIG-[^)]+)\)")
"""A line of `nvidia-smi -L`: `  MIG 1g.10gb  Device  0: (UUID: MIG-...)`."""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU, or one MIG slice of a GPU.

    Attributes:
        id: how `CUDA_VISIBLE_DEVICES` names it: its index, or the UUID that the variable has for it.
        uuid: the GPU's UUID; a MIG slice has its own.
        name: such as `NVIDIA H100 80GB HBM3`.
        total: memory in MiB.
        used: memory in use in MiB, by whichever process; 0 for a MIG slice, of which the driver does not say.
        driver: the driver's version.
        capability: compute capability, such as (9, 0).
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


def visible_gpus() -> list[Gpu]:
    """Return the GPUs that `CUDA_VISIBLE_DEVICES` leaves this process, in CUDA's order; all without it.

    As CUDA does, an entry that names no GPU hides those after it.

    Raises `OSError` or `SubprocessError` where there is no driver, or none that answers.
    """
    there = _gpus()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return there
    slices = _mig_slices(there) if "MIG-" in chosen else []
    found: list[Gpu] = []
    for entry in (each.strip() for each in chosen.split(",")):
        fits = (
            gpu
            for gpu in [*there, *slices]
            if entry and (gpu.id == entry or (not entry.isdigit() and gpu.uuid.startswith(entry)))
        )
        gpu = next(fits, None)
        if gpu is None:
            break
        found.append(msgspec.structs.replace(gpu, id=entry))
    return found


def gpu_processes() -> dict[str, list[str]]:
    """Return what computes on each GPU, such as `process 4711 (python3)`, by the GPU's UUID."""
    found: dict[str, list[str]] = {}
    for row in _query("--query-compute-apps=gpu_uuid,pid,process_name"):
        if len(row) == 3:
            found.setdefault(row[0], []).append(f"process {row[1]} ({Path(row[2]).name})")
    return found


def _gpus() -> list[Gpu]:
    fields = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version")
    more = ("compute_cap", "mig.mode.current")
    found = []
    for row in _query(f"--query-gpu={','.join((*fields, *more))}"):
        if len(row) == len(fields) + len(more):
            index, uuid, name, total, used, driver, capability, mig = row
            major, _, minor = capability.partition(".")
            found.append(
                Gpu(
                    index,
                    uuid,
                    name,
                    _whole(total),
                    _whole(used),
                    driver,
                    (_whole(major), _whole(minor)),
                    mig == "Enabled",
                )
            )
    return found


def _mig_slices(gpus: list[Gpu]) -> list[Gpu]:
    """The MIG slices of these GPUs, in the order of `nvidia-smi -L`."""
    found, parent = [], None
    for line in _printed("-L").splitlines():
        if whole := re.match(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)", line):
            parent = next((gpu for gpu in gpus if gpu.uuid == whole[1]), None)
        elif (each := MIG_PROFILE.match(line)) and parent is not None:
            name, total = f"{parent.name} MIG {each[1]}", int(each[2]) * 1024
            found.append(
                msgspec.structs.replace(parent, id=each[3], uuid=each[3], name=name, total=total, used=0)
            )
    return found


def _query(query: str) -> list[list[str]]:
    lines = _printed(query, "--format=csv,noheader,nounits").splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]


def _printed(*arguments: str) -> str:
    done = subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, check=True, timeout=SMI_S
    )
    return done.stdout


def _whole(text: str) -> int:
    """A number, or 0 for what is none, such as `[N/A]`."""
    return int(text) if text.isdigit() else 0
