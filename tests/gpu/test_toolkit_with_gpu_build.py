"""The GPU lock's packages fit each other: CUDA's bindings, its compiler and its headers."""

from __future__ import annotations

import importlib
import os
import subprocess
import sysconfig
from importlib.metadata import version
from pathlib import Path

from tests.gpu.faked_gpus import require_gpu_environment

require_gpu_environment()

KERNEL = """
#include <cuda/std/type_traits>
#include <cuda_fp8.h>
#include <curand_kernel.h>

__global__ void add_one(float *values) { values[threadIdx.x] += 1.0f; }
"""


def test_flashinfer_can_be_imported() -> None:
    importlib.import_module("flashinfer")


def test_cuda_python_and_its_bindings_have_one_version() -> None:
    assert version("cuda-python") == version("cuda-bindings")


def test_the_compiler_takes_the_headers_of_cuda_and_of_flashinfer(tmp_path: Path) -> None:
    packages = Path(sysconfig.get_path("purelib"))
    source = tmp_path / "kernel.cu"
    source.write_text(KERNEL, encoding="utf-8")
    done = subprocess.run(
        [
            packages / "nvidia/cu13/bin/nvcc",
            *("-std=c++17", "-arch=sm_90a", "-I", packages / "flashinfer/data/cccl/libcudacxx/include"),
            *("-c", source, "-o", tmp_path / "kernel.o"),
        ],
        env={name: value for name, value in os.environ.items() if not name.startswith("NVCC_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
