"""Machines whose GPUs cannot serve a model, or not well, with what people are told about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.stand_in_smi import A100, H100, SECOND, SLICES, SPLIT


@dataclass(frozen=True)
class BadGpus:
    """One machine.

    Attributes:
        model: the name of the model configuration.
        rows, options: for `write_smi`; without rows there is no `nvidia-smi`.
        environment: variables that the user has set.
        text, remedy: the two parts of the line.
        fatal: whether a server is not even started.
    """

    name: str
    text: str
    remedy: str
    rows: Sequence[str] = (H100,)
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    model: str = "qwen3.5-27b"
    fatal: bool = True


MACHINES = "use a machine with GPUs; a Slurm job gets them with --gres=gpu:1"
NEWER = (
    "use a node with a newer driver, or ask the administrators for 580 or newer"
    " (data-center GPUs: or install cuda-compat and set VLLM_ENABLE_CUDA_COMPATIBILITY=1)"
)
LARGER = "use larger GPUs, or a model configuration for more GPUs or in FP8 (speedrunner list models)"
OWN = "ask Slurm for GPUs of your own (--gres=gpu:N, --exclusive), or end the processes if they are yours"
VISIBLE = "CUDA_VISIBLE_DEVICES"

BAD_GPUS = [
    BadGpus(
        "no driver",
        "1 GPU needed, and none can be used: nvidia-smi is missing, so this machine has no NVIDIA driver",
        MACHINES,
        rows=(),
    ),
    BadGpus(
        "no GPU",
        "1 GPU needed, and none can be used: nvidia-smi: No devices were found",
        MACHINES,
        rows=("No devices were found",),
        options={"status": 6},
    ),
    BadGpus(
        "fewer GPUs than replicas and shards take",
        "2 GPUs needed, and 1 can be used: the machine has 1",
        MACHINES.replace(":1", ":2"),
        model="qwen3.5-27b-2gpu",
    ),
    BadGpus(
        "a GPU too small",
        "qwen3.5-27b on 1 x NVIDIA H100 80GB HBM3 (40 GiB):"
        " 53.8 GB of weights on each leave room for no conversation",
        LARGER,
        rows=(H100.replace("81559", "40960"),),
    ),
    BadGpus(
        "a GPU with room for few conversations",
        "qwen3.5-27b on 1 x NVIDIA H100 80GB HBM3 (64 GiB):"
        " 53.8 GB of weights on each leave room for 3 conversations of 8,192 tokens",
        LARGER,
        rows=(H100.replace("81559", "65200"),),
        fatal=False,
    ),
    BadGpus(
        "a GPU in use",
        "GPU 0: 60,000 of 81,559 MiB are in use by process 4711 (python3), and qwen3.5-27b needs 92% free",
        OWN,
        rows=(H100.replace(", 4,", ", 60000,"),),
        options={"processes": "GPU-aaaa-1111, 4711, /usr/bin/python3"},
    ),
    BadGpus(
        "a GPU in use beside a free one",
        "GPU 0: 60,000 of 81,559 MiB are in use by processes of other users or containers,"
        " and qwen3.5-27b needs 92% free",
        f"use a free one: export {VISIBLE}=1",
        rows=(H100.replace(", 4,", ", 60000,"), SECOND),
    ),
    BadGpus(
        "a GPU in use a little",
        "GPU 0: 3,000 of 81,559 MiB are in use by processes of other users or containers",
        OWN,
        rows=(H100.replace(", 4,", ", 3000,"),),
        fatal=False,
    ),
    BadGpus(
        "a GPU split into MIG slices",
        "1 GPU needed, and none can be used: GPU 0 is split into MIG slices,"
        " and CUDA cannot use it as a whole",
        f"choose a slice: export {VISIBLE}=MIG-dddd-4444",
        rows=(SPLIT,),
        options={"slices": SLICES},
    ),
    BadGpus(
        "two MIG slices",
        "a server on 2 GPUs cannot use MIG slices, because CUDA gives a process only one",
        "use whole GPUs, or one slice and a model configuration for 1 GPU",
        rows=(SPLIT,),
        options={"slices": SLICES},
        environment={VISIBLE: "MIG-dddd-4444,MIG-eeee-5555"},
        model="qwen3.5-27b-2gpu",
    ),
    BadGpus(
        "one MIG slice",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb (40 GiB) is a MIG slice:"
        " its free memory is not checked, and no server was tried on one",
        "if the start fails, use a whole GPU",
        rows=(SPLIT,),
        options={"slices": SLICES},
        environment={VISIBLE: "MIG-dddd"},
        model="qwen3.5-4b",
        fatal=False,
    ),
    BadGpus(
        "a MIG slice too small",
        "qwen3.5-9b on 1 x NVIDIA H100 80GB HBM3 MIG 1g.10gb (10 GiB):"
        " 17.9 GB of weights on each leave room for no conversation",
        LARGER,
        rows=(SPLIT,),
        options={"slices": SLICES},
        environment={VISIBLE: "MIG-eeee-5555"},
        model="qwen3.5-9b",
    ),
    BadGpus(
        "an old driver",
        "the driver is 535.183.01, and the engine's CUDA 13 needs 580 or newer",
        NEWER,
        rows=(H100.replace("580.65.06", "535.183.01"),),
    ),
    BadGpus(
        "a driver that knows no compute capability",
        "the driver is 470.57.02, and the engine's CUDA 13 needs 580 or newer",
        NEWER,
        rows=(H100.replace("580.65.06", "470.57.02"),),
        options={"old": True},
    ),
    BadGpus(
        "an old driver with newer libraries",
        "the driver is 535.183.01, and the engine's CUDA 13 needs 580 or newer",
        NEWER,
        rows=(H100.replace("580.65.06", "535.183.01"),),
        environment={"VLLM_ENABLE_CUDA_COMPATIBILITY": "1"},
        fatal=False,
    ),
    BadGpus(
        "no toolkit",
        "CUDA_HOME is /nowhere, which has no bin/nvcc; so FlashInfer and DeepGEMM are not used",
        "unset it, or set CUDA_HOME to a complete CUDA toolkit (module load cuda, if your site has it),"
        " or use the container (slurm/apptainer.def)",
        environment={"CUDA_HOME": "/nowhere"},
        fatal=False,
    ),
    BadGpus(
        "the C compiler is missing",
        "the C compiler is missing: /nowhere/gcc is not on the PATH; so Triton cannot compile",
        "install gcc and g++ (module load gcc, if your site has it),"
        " or use the container (slurm/apptainer.def)",
        environment={"CUDA_HOME": "/nowhere", "CC": "/nowhere/gcc"},
    ),
    BadGpus(
        "GPUs of two kinds, of which some are equal",
        "one server on GPUs of 2 kinds"
        " (NVIDIA H100 80GB HBM3 (80 GiB): 0, NVIDIA A100-SXM4-80GB (80 GiB): 2)"
        " is as slow and as small as the least of them",
        f"use equal ones: export CUDA_DEVICE_ORDER=PCI_BUS_ID {VISIBLE}=2,3",
        rows=(H100, A100, A100.replace("2, GPU-cccc", "3, GPU-ffff")),
        model="qwen3.5-27b-2gpu",
        fatal=False,
    ),
    BadGpus(
        "GPUs of two kinds",
        "one server on GPUs of 2 kinds"
        " (NVIDIA H100 80GB HBM3 (80 GiB): 0, NVIDIA A100-SXM4-80GB (80 GiB): 2)"
        " is as slow and as small as the least of them",
        "ask for 2 GPUs of one type (Slurm: --gres=gpu:TYPE:2)",
        rows=(H100, A100),
        model="qwen3.5-27b-2gpu",
        fatal=False,
    ),
    BadGpus(
        "a UUID of no GPU",
        f"1 GPU needed, and none can be used: {VISIBLE}=GPU-ffff: 'GPU-ffff' matches no GPU and hides"
        " those after it",
        f"unset {VISIBLE}, or name GPUs of this machine: 0, 1",
        rows=(H100, SECOND),
        environment={VISIBLE: "GPU-ffff"},
    ),
    BadGpus(
        "an abbreviated UUID of two GPUs",
        f"2 GPUs needed, and none can be used: {VISIBLE}=GPU-,GPU-bbbb: 'GPU-' matches no GPU and hides"
        " those after it",
        f"unset {VISIBLE}, or name GPUs of this machine: 0, 1",
        rows=(H100, SECOND),
        environment={VISIBLE: "GPU-,GPU-bbbb"},
        model="qwen3.5-27b-2gpu",
    ),
    BadGpus(
        "no visible GPU",
        f"1 GPU needed, and none can be used: {VISIBLE} is set and empty, which hides all GPUs",
        f"unset {VISIBLE}, or name GPUs of this machine: 0",
        environment={VISIBLE: ""},
    ),
    BadGpus(
        "no GPU in the Slurm job",
        f"1 GPU needed, and none can be used: {VISIBLE} is set and empty, which hides all GPUs",
        MACHINES,
        environment={VISIBLE: "", "SLURM_JOB_ID": "12"},
    ),
    BadGpus(
        "a GPU named twice",
        f"2 GPUs needed, and none can be used: {VISIBLE}=0,0: '0' is named twice, which hides all GPUs",
        f"unset {VISIBLE}, or name GPUs of this machine: 0, 1",
        rows=(H100, SECOND),
        environment={VISIBLE: "0,0"},
        model="qwen3.5-27b-2gpu",
    ),
    BadGpus(
        "a GPU without bfloat16",
        "qwen3.5-4b computes in bfloat16, which needs compute capability 8.0; Tesla T4 (15 GiB) has 7.5",
        "use an Ampere GPU (A100, A6000) or a newer one",
        rows=("0, GPU-aaaa-1111, Tesla T4, 15360, 4, 580.65.06, 7.5, [N/A]",),
        model="qwen3.5-4b",
    ),
    BadGpus(
        "a GPU without FP8",
        "qwen3.5-27b-fp8 is stored in FP8, and NVIDIA A100-SXM4-80GB (80 GiB) computes it in 16 bits"
        " (compute capability 8.0)",
        "it works; for speed, use a GPU with 8.9 or newer: Ada or Hopper (L40S, H100)",
        rows=(A100.replace("2, ", "0, "),),
        model="qwen3.5-27b-fp8",
        fatal=False,
    ),
]
"""Each bad input that the documentation lists (docs/troubleshooting.md), and variants of it."""
