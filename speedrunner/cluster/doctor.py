"""Checks whether a machine can play a configuration. Each check says what to do."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from envs import EnvironmentFault
from serving import weights
from serving.engine.gpus import GpuReport, read_gpus
from serving.errors import InvalidModelConfig, ServerFailed
from serving.gpu_check import check_gpus
from serving.model_config import ModelConfig
from serving.model_files import check_files
from serving.options import ServiceOptions, running_endpoint
from serving.weights import model_path
from speedrunner.cluster.needs import Needs, list_once, open_task
from speedrunner.plain.console import Status
from speedrunner.plain.findings import Finding, Report, failure, ok, report, warning
from speedrunner.plain.slurm import time_left_s
from speedrunner.runs.identity import confinement
from speedrunner.workers.sandbox.child_process import require
from speedrunner.workers.sandbox.isolation import SandboxError
from speedrunner.workers.worker_pool import available_mb, needed_mb, worker_mb

Check = Callable[[Needs], Iterable[Finding]]

WRITTEN = 2**20
"""Bytes of a trial write: a full quota refuses them, although it may still allow an empty file."""


def slurm(needs: Needs) -> Iterator[Finding]:
    """Report the job and its end; warn on a login node."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is not None:
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        left_s = time_left_s()
        left = "without a known time limit" if left_s is None else f"{left_s / 60:.0f} min left for work"
        yield ok("Slurm", f"job {job} on {node}, {left}")
    elif shutil.which("squeue"):
        yield warning("Slurm", "not in a job; a compute node may differ", needs.doctor)


def model_files(needs: Needs) -> Iterator[Finding]:
    """Check that each model's weights and tokenizer are here, or the key of a hosted one."""
    for model_config in needs.models:
        name = f"files of {model_config.name}"
        if not model_config.hosted:
            yield _check_files(name, model_config, needs)
            continue
        try:
            running_endpoint(model_config, ServiceOptions())
            yield ok(
                name, f"none: it is hosted at {model_config.base_url}, which must be reachable from here"
            )
        except (InvalidModelConfig, ServerFailed) as error:
            remedy = f"export {model_config.api_key_env or 'the key'}=..., also in the job"
            yield failure(name, str(error), remedy)


def _check_files(name: str, model_config: ModelConfig, needs: Needs) -> Finding:
    prepare = f"speedrunner prepare {needs.words}".rstrip()
    fetch = f"run this on a machine with a network and the same HF_HOME: {prepare}"
    place, notes = model_path(model_config), ["the tokenizer loads"]
    is_on_hub = model_config.id is not None
    folder = weights.find_folder(place, model_config.revision) if is_on_hub else Path(place)
    if folder is None:
        text = f"{place} at commit {model_config.revision} is not in the hub's cache, or not all of it"
        return failure(name, text, fetch)
    if not folder.is_dir():
        if model_config.recipe:
            return warning(name, f"{folder} is created at the first start", prepare)
        text = f"the folder {folder} does not exist"
        return failure(name, text, "correct `path` in the model configuration")
    try:
        check_files(model_config, str(folder), notes.append, starts=True)
    except InvalidModelConfig as error:
        return failure(name, str(error), fetch if is_on_hub else "correct the folder or its config")
    return ok(name, "; ".join((f"{weights.size_bytes(folder) / 1e9:.3g} GB in {folder}", *notes)))


def gpus(needs: Needs) -> Iterator[Finding]:
    """Check whether this machine's GPUs can serve the models, and their caches."""
    gpu_report = read_gpus() if needs.gpus else GpuReport()
    started = list_once(setup.model_config for setup in needs.setups if setup.starts_server)
    findings = list(check_gpus(started, gpu_report, needs.doctor))
    yield from findings
    failed = {finding.name for finding in findings if finding.level == "failed"}
    if not needs.gpus:
        yield ok("GPU", "none is needed")
    elif "GPU" not in failed:
        names = ", ".join(map(str, gpu_report.usable))
        yield ok("GPU", f"{needs.gpus} needed; here: {names}; driver {gpu_report.usable[0].driver}")
    if gpu_report.usable and "compilers" not in failed:
        yield ok("compilers", "Triton finds a C compiler and Python's headers")


def sandboxes(needs: Needs) -> Iterator[Finding]:
    """Check that each configured kind of sandbox starts, by starting it."""
    for sandbox in list_once(setup.config.sandbox for setup in needs.setups):
        try:
            require(sandbox)
        except SandboxError as error:
            how = "see docs/troubleshooting.md, at: skills cannot be isolated here"
            yield failure("sandbox", str(error), how)
            continue
        strength = confinement(sandbox)
        if sandbox.kind == "rlimits":
            remedy = "remove sandbox=rlimits: isolation is the default where it is possible"
            yield warning("sandbox", f"it isolates nothing: {strength}", remedy)
        else:
            yield ok("sandbox", strength)


def environments(needs: Needs) -> Iterator[Finding]:
    """Check that each environment opens a task, with Java if it needs it."""
    for env in needs.environments:
        name = f"environment {env.name}"
        try:
            yield ok(name, open_task(env))
        except EnvironmentFault as error:
            remedy = f"run this on the machine to fix: speedrunner prepare {needs.words}"
            yield failure(name, str(error), remedy)


def run_folders(needs: Needs) -> Iterator[Finding]:
    """Check that runs can be written: the folder, the disk space."""
    for folder in dict.fromkeys(Path(setup.config.run.dir).absolute().parent for setup in needs.setups):
        # `Path.exists` raises an error below folders of other users.
        base = next(place for place in (folder, *folder.parents) if os.path.exists(place))  # noqa: PTH110
        name = f"folder {folder}"
        try:
            with tempfile.NamedTemporaryFile(dir=base, prefix=".speedrunner-doctor-") as file:
                file.write(bytes(WRITTEN))
        except OSError as error:
            text = f"cannot be written ({error.strerror or error})"
            yield failure(name, text, "choose another folder with run.dir=..., or --dir for a list")
            continue
        yield ok(name, f"{shutil.disk_usage(base).free / 1e9:.1f} GB free")


def memory(needs: Needs) -> Iterator[Finding]:
    """Check that the workers of all episodes in flight fit into the memory."""
    available = available_mb()
    if granted := os.environ.get("SLURM_MEM_PER_NODE", ""):
        available = min(available, int(granted) * 2**20 // 10**6)
    configs = [setup.config for setup in needs.setups]
    for config in configs:
        needed = needed_mb(config.env.name, config.run.in_flight, config.sandbox.memory_mb)
        if needed > available:
            fit = max(config.run.in_flight + (available - needed) // worker_mb(config.env.name), 1)
            what = f"{config.run.in_flight} episodes of {config.env.name}"
            text = f"{what} take {needed:,} MB, but {available:,} MB are free"
            yield failure("memory", text, f"run.in_flight={fit}, or more memory for the job (--mem)")
            return
    most = max(config.run.in_flight for config in configs)
    yield ok("memory", f"{available:,} MB free; {most} episodes in flight fit")


CHECKS: dict[str, Check] = {
    "Slurm": slurm,
    "model files": model_files,
    "GPUs": gpus,
    "sandbox": sandboxes,
    "environments": environments,
    "run folders": run_folders,
    "memory": memory,
}
"""The checks by the text that is shown while they run."""


def examine(needs: Needs, status: Status, say: Callable[[Finding], None]) -> Report:
    """Check this machine. A check that breaks is a finding as well.

    Args:
        status: shows the running check.
        say: called with each finding.
    """
    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        say(finding)
        findings.append(finding)

    for name, check in CHECKS.items():
        status(f"checking {name}")
        try:
            for finding in check(needs):
                add(finding)
        except Exception as error:
            text = f"could not be checked: {type(error).__name__}: {error}"
            add(failure(name, text, "report this line with the output of `speedrunner --version`"))
    return report(socket.gethostname(), findings)
