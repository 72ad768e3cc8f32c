"""A program that stands in for `nvidia-smi` and reports the GPUs of a test."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

FIELDS = ("index", "uuid", "name", "total", "used", "driver", "capability", "mig")

H100 = "0, GPU-aaaa-1111, NVIDIA H100 80GB HBM3, 81559, 4, 580.65.06, 9.0, Disabled"
"""One row of `--query-gpu`, with the columns of `FIELDS`; memory is in MiB."""

SECOND = H100.replace("0, GPU-aaaa-1111", "1, GPU-bbbb-2222")
A100 = "2, GPU-cccc-3333, NVIDIA A100-SXM4-80GB, 81920, 4, 580.65.06, 8.0, Disabled"
SPLIT = H100.replace("Disabled", "Enabled")
SLICES = {"GPU-aaaa-1111": ["3g.40gb MIG-dddd-4444", "1g.10gb MIG-eeee-5555"]}


def write_smi(
    folder: Path,
    *rows: str,
    slices: Mapping[str, Sequence[str]] | None = None,
    processes: str = "",
    status: int = 0,
) -> None:
    """Write the program.

    Args:
        folder: where; put it first on the PATH.
        rows: a line for each GPU, such as `H100`, or what is printed where the driver does not answer.
        slices: MIG slices by the UUID of their GPU, each as `PROFILE UUID`.
        processes: a line of `--query-compute-apps`.
        status: the exit status.
    """
    listed = []
    for row in rows:
        if len(cells := row.split(", ")) == len(FIELDS):
            index, uuid, name = cells[:3]
            listed.append(f"GPU {index}: {name} (UUID: {uuid})")
            for number, (profile, part) in enumerate(each.split() for each in (slices or {}).get(uuid, [])):
                listed.append(f"  MIG {profile}     Device  {number}: (UUID: {part})")
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncase $1 in\n"
        f"-L) echo {shlex.quote(chr(10).join(listed))};;\n"
        f"*compute-apps*) echo {shlex.quote(processes)};;\n"
        f"*) echo {shlex.quote(chr(10).join(rows))};;\n"
        f"esac\nexit {status}\n"
    )
    program.chmod(0o755)
