"""Whether this machine's GPUs can serve a model: each problem is one line of text and one of remedy."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from serving import hub
from serving.cards import CHECKOUT, MODELS
from serving.engine.gpus import (
    VISIBLE,
    Gpu,
    gpu_processes,
    installed_gpus,
    select_gpus,
    selection_problem,
    smi_complaint,
)
from serving.engine.toolkit import Problem, find_toolkit
from serving.errors import ServerFailed
from serving.model_card import ModelCard
from serving.weights import model_path

MIN_DRIVERS = {12: 525, 13: 580}
"""Oldest branch of the driver for each major version of CUDA (NVIDIA: CUDA Compatibility, Minor Version
Compatibility). Within a major version, a newer toolkit runs on any of these."""

LOCK = CHECKOUT / "requirements" / "gpu.lock"

COMPATIBILITY = "VLLM_ENABLE_CUDA_COMPATIBILITY"
"""With `1`, vLLM loads the libraries of the package cuda-compat, which run on older drivers."""

IN_USE_MIB = 1024
"""Most memory in use on a GPU on which nothing computes: the driver takes some hundreds of MiB."""

UTILIZATION = 0.92
"""vLLM's default for `gpu-memory-utilization`: the share of the memory that must be free at the start."""

USABLE = 0.9
"""Share of the nominal memory that the engine gets (docs/gpu.md)."""

RESERVE_GB = 4.0
"""For activations and graphs, on each GPU (docs/gpu.md)."""

CACHE_SHARE = 0.1
"""Share of the memory below which hardly a conversation fits into the prefix cache: an estimate."""

BFLOAT16, FP8 = (8, 0), (8, 9)
"""Lowest compute capabilities with this arithmetic: Ampere; Ada and Hopper."""


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `nvidia-smi` reports, and what this process may use of it.

    Attributes:
        installed: all GPUs and MIG slices of the machine.
        chosen: the value of `CUDA_VISIBLE_DEVICES`; `None` where it is not set.
        processes: what computes on each GPU, by the GPU's UUID.
        failure: why `nvidia-smi` shows no GPU; empty if it shows some.
    """

    installed: list[Gpu] = []
    chosen: str | None = None
    processes: dict[str, list[str]] = {}
    failure: str = ""

    @property
    def visible(self) -> list[Gpu]:
        """The GPUs that this process may use, in CUDA's order."""
        return select_gpus(self.installed, self.chosen)


def read_gpus() -> GpuReport:
    """Ask `nvidia-smi` for the GPUs and for what computes on them."""
    chosen = os.environ.get(VISIBLE)
    try:
        installed = installed_gpus()
        processes = gpu_processes() if installed else {}
    except (OSError, subprocess.SubprocessError) as error:
        return GpuReport(chosen=chosen, failure=smi_complaint(error))
    failure = "" if installed else "nvidia-smi lists none"
    return GpuReport(installed=installed, chosen=chosen, processes=processes, failure=failure)


def require_gpus(card: ModelCard, say: Callable[[str], None]) -> None:
    """Check the GPUs and the compilers before a model's server is started.

    Args:
        say: called with a line for each warning.

    Raises:
        ServerFailed: the server could not start. The message is one line with the remedy.
    """
    report, needed = read_gpus(), card.gpus_of_a_node
    remedy = f"use a machine with GPUs; a Slurm job gets them with --gres=gpu:{needed}"
    few = too_few(report, needed, remedy)
    found = (
        [few] if few else [*server_problems(card, gpus_of(card, report), report), *find_toolkit().problems]
    )
    for problem in sorted(found, key=lambda each: not each.fatal):
        line = f"{problem.text}; {problem.remedy}"
        if problem.fatal:
            raise ServerFailed(f"model {card.name!r} cannot start here: {line}")
        say(f"warning: {line}")


def gpus_of(card: ModelCard, report: GpuReport) -> list[Gpu]:
    """Return the GPUs that the model's server takes on this machine."""
    return report.visible[: card.gpus_of_a_node]


def too_few(report: GpuReport, needed: int, remedy: str) -> Problem | None:
    """Return why this process can use fewer than `needed` GPUs; `None` if it can use as many.

    Args:
        remedy: what to do where the machine or the job has too few.
    """
    usable = report.visible
    if len(usable) >= needed:
        return None
    text = f"{needed} GPU{'s' * (needed > 1)} needed, and {len(usable) or 'none'} can be used"
    if report.failure:
        return Problem(f"{text}: {report.failure}", remedy, fatal=True)
    if wrong := selection_problem(report.installed, report.chosen):
        usable = [gpu for gpu in report.installed if not gpu.mig]
        return Problem(f"{text}: {wrong}", f"unset {VISIBLE}, or name GPUs of: {_ids(usable)}", fatal=True)
    limit = "" if report.chosen is None else f": {VISIBLE}={report.chosen}"
    return Problem(f"{text}{limit}", remedy, fatal=True)


def server_problems(card: ModelCard, gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check the GPUs that one server takes, while it does not run.

    Args:
        gpus: those that the server takes on this machine.
        report: all others, to name better ones.
    """
    yield from _driver(card, gpus)
    unusable = list(_mig(gpus, report))
    yield from unusable
    if not any(problem.fatal for problem in unusable):
        yield from _in_use(card, gpus, report)
        yield from _kinds(gpus, report)
        yield from _capability(card, gpus)
        if problem := too_small(card, gpus):
            yield problem


def toolkit_problems() -> Iterator[Problem]:
    """Check what compiles kernels; without nvcc a server starts, and without a C compiler it does not."""
    for problem in find_toolkit().problems:
        if problem.fatal:
            text = f"{problem.text}; Triton compiles with it"
        else:
            text = f"{problem.text}; vLLM then does without kernels that FlashInfer and DeepGEMM compile"
        yield Problem(text, f"{problem.remedy}, or use the container (slurm/apptainer.def)", problem.fatal)


def too_small(card: ModelCard, gpus: Sequence[Gpu]) -> Problem | None:
    """Return whether the weights leave too little memory for a prefix cache on the smallest of the GPUs."""
    folder = _folder(card)
    weights = hub.weights_bytes(folder) if folder is not None else 0
    total_gb = min((gpu.total for gpu in gpus), default=0) * 2**20 / 1e9
    if not weights or not total_gb:
        return None
    own_gb = weights / 1e9 / card.gpus
    left_gb = USABLE * total_gb - RESERVE_GB - own_gb
    if left_gb >= CACHE_SHARE * total_gb:
        return None
    room = f"leave {max(left_gb, 0):.1f} GB for the cache"
    text = f"{own_gb:.1f} GB of weights on each GPU ({total_gb:.0f} GB) {room}"
    remedy = "use larger GPUs, or a model configuration for more of them or in FP8 (speedrunner list models)"
    return Problem(f"{card.name}: {text}", remedy, fatal=left_gb <= 0)


def cuda_major(lock: Path = LOCK) -> int | None:
    """Return the major version of CUDA that the GPU build was made for, by the lock."""
    pin = re.search(r"^cuda-toolkit==(\d+)\.", lock.read_text("utf-8"), re.MULTILINE)
    return int(pin[1]) if pin else None


def _driver(card: ModelCard, gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that the driver is new enough for the engine's CUDA."""
    major = cuda_major()
    least = MIN_DRIVERS.get(major or 0, 0)
    for version in {gpu.driver for gpu in gpus}:
        branch = version.partition(".")[0]
        if branch.isdigit() and int(branch) < least:
            switch = str({**os.environ, **card.server.env}.get(COMPATIBILITY, ""))
            compatible = switch.strip().lower() in ("1", "true")
            yield Problem(
                f"the driver is {version}, and the engine's CUDA {major} needs {least} or newer",
                f"use a node with a newer driver, or ask the administrators for {least} or newer"
                f" (data-center GPUs: or install cuda-compat and set {COMPATIBILITY}=1)",
                fatal=not compatible,
            )


def _mig(gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check for GPUs that are split, and for slices that cannot work together."""
    slices = [gpu for gpu in report.installed if gpu.is_slice]
    if split := [gpu for gpu in gpus if gpu.mig]:
        text = f"GPU {_ids(split)} is split into MIG slices, and CUDA cannot use it as a whole"
        off = "ask the administrators for a slice, or to turn MIG off"
        yield Problem(text, _choose(max(slices, key=_memory)) if slices else off, fatal=True)
    elif len(gpus) > 1 and any(gpu.is_slice for gpu in gpus):
        text = f"a server on {len(gpus)} GPUs cannot use MIG slices, because CUDA gives a process only one"
        yield Problem(text, "use whole GPUs, or one slice and a model configuration for 1 GPU", fatal=True)
    for gpu in gpus:
        if gpu.is_slice and len(gpus) == 1:
            text = f"{gpu} is a MIG slice: its free memory is not checked, and no server was tried on one"
            yield Problem(text, "if the start fails, use a whole GPU")


def _in_use(card: ModelCard, gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check that nothing else computes on the GPUs."""
    given = card.server.flags.get("gpu-memory-utilization")
    share = given if isinstance(given, float) else UTILIZATION
    free = [gpu for gpu in report.visible if not gpu.mig and gpu.used <= IN_USE_MIB]
    own = "ask Slurm for GPUs of your own (--gres=gpu:N, --exclusive), or end the processes if they are yours"
    remedy = f"use a free one: {_choose(*free[: len(gpus)])}" if len(free) >= len(gpus) else own
    for gpu in gpus:
        if gpu.used > IN_USE_MIB:
            users = ", ".join(report.processes.get(gpu.uuid, [])) or "processes of other users or containers"
            text = f"GPU {gpu.id}: {gpu.used:,} of {gpu.total:,} MiB are in use by {users}"
            if gpu.total - gpu.used < share * gpu.total:
                yield Problem(f"{text}, and {card.name} needs {share:.0%} free", remedy, fatal=True)
            else:
                yield Problem(text, remedy)


def _kinds(gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check that the GPUs of one server are equal."""
    kinds: dict[tuple[str, int], list[Gpu]] = {}
    for gpu in report.visible:
        kinds.setdefault((gpu.name, gpu.total), []).append(gpu)
    mixed = [equal for equal in kinds.values() if any(gpu in equal for gpu in gpus)]
    if len(mixed) < 2:
        return
    parts = ", ".join(f"{equal[0]}: {_ids(gpu for gpu in equal if gpu in gpus)}" for equal in mixed)
    text = f"one server on GPUs of {len(mixed)} kinds ({parts}) is as slow and as small as the least of them"
    largest = max(kinds.values(), key=len)
    if len(largest) >= len(gpus):
        order = "" if largest[0].id == largest[0].uuid else "CUDA_DEVICE_ORDER=PCI_BUS_ID "
        yield Problem(text, f"use equal ones: {_choose(*largest[: len(gpus)], before=order)}")
    else:
        yield Problem(text, f"ask for {len(gpus)} GPUs of one type (Slurm: --gres=gpu:TYPE:{len(gpus)})")


def _capability(card: ModelCard, gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that the GPUs have the arithmetic in which the model computes."""
    least = min(gpus, key=lambda gpu: gpu.capability)
    version = ".".join(map(str, least.capability))
    if not any(least.capability):  # an old driver does not report it
        return
    if card.dtype == "bfloat16" and least.capability < BFLOAT16:
        text = (
            f"{least} has compute capability {version}, and {card.name} computes in bfloat16, which needs 8.0"
        )
        yield Problem(text, "use an Ampere GPU (A100, A6000) or a newer one", fatal=True)
    elif least.capability < FP8 and _is_fp8(card):
        text = (
            f"{least} has compute capability {version}: without FP8 arithmetic (8.9), {card.name} is slower"
        )
        yield Problem(text, "use an Ada or Hopper GPU (L40S, H100), or bear with the speed")


def _is_fp8(card: ModelCard) -> bool:
    """Return whether the model's weights are in 8-bit floating point."""
    folder = _folder(card)
    config: dict[str, Any] = {}
    if folder is not None and (file := folder / "config.json").is_file():
        config = json.loads(file.read_text("utf-8"))
    elif card.shape is not None:
        config = yaml.safe_load((MODELS / "shapes" / "shapes.yaml").read_text("utf-8")).get(card.shape, {})
    return bool(config.get("quantization_config", {}).get("quant_method") == "fp8")


def _folder(card: ModelCard) -> Path | None:
    """Return the folder with the model's files; `None` where it is not on this machine."""
    folder = hub.found(card.id, card.revision) if card.id else Path(model_path(card))
    return folder if folder is not None and folder.is_dir() else None


def _memory(gpu: Gpu) -> int:
    return gpu.total


def _choose(*gpus: Gpu, before: str = "") -> str:
    return f"export {before}{VISIBLE}={','.join(gpu.id for gpu in gpus)}"


def _ids(gpus: Iterable[Gpu]) -> str:
    return ", ".join(gpu.id for gpu in gpus)
