"""A program that stands in for `nvidia-smi` and reports the GPUs of a test."""

from __future__ import annotations

import shlex
from pathlib import Path

H100 = "0, GPU-aaaa-1111, NVIDIA H100 80GB HBM3, 81559, 4, 580.65.06, 9.0"
"""One row of `--query-gpu`, with the columns of `serving.engine.gpus.FIELDS`; memory is in MiB."""

SECOND = H100.replace("0, GPU-aaaa-1111", "1, GPU-bbbb-2222")
A100 = "2, GPU-cccc-3333, NVIDIA A100-SXM4-80GB, 81920, 4, 580.65.06, 8.0"


def write_smi(folder: Path, *rows: str, status: int = 0) -> None:
    """Write the program.

    Args:
        folder: where; put it first on the PATH.
        rows: a line for each GPU, such as `H100`, or what is printed where the driver does not answer.
        status: the exit status.
    """
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho {shlex.quote(chr(10).join(rows))}\nexit {status}\n")
    program.chmod(0o755)
