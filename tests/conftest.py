"""What all tests share: the random model, and how they are divided between workers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from serving.cards import load_card
from serving.model_card import ModelCard
from serving.tokens.tokenizer import ChatTokenizer
from serving.weights import prepare

ENGINE = "tests/engine"
"""The folder of all tests that need vLLM."""

# Started in the background, a test run ignores these signals, and so would every process that it starts.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# How long one example takes says how busy the machine is.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# Where Python may not write bytecode, each of the hundreds of processes that tests start would compile anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


LONG = ("test_hostile.py", "test_scienceworld.py", "test_main.py", "test_envs.py", "test_host_pool.py")
"""Files that take longest without an engine: last, they would keep one worker busy while the other rests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the engine's tests begin, and the longest files follow."""
    items.sort(key=lambda item: (group(item.nodeid) != ENGINE, item.path.name not in LONG))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """With several workers: what one of them plays as a whole, so that its tests share their fixtures."""

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return Groups(config, log)


def group(nodeid: str) -> str:
    """A test's file, or the folder of those tests that share one engine or one build of a model."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in (ENGINE, "tests/models") if file.startswith(f"{folder}/")), file)


@pytest.fixture(scope="session")
def tiny_card() -> ModelCard:
    return load_card("tiny-random")


@pytest.fixture(scope="session")
def tiny_folder(tiny_card: ModelCard) -> str:
    """The bundled model, built on first use."""
    return prepare(tiny_card, lambda line: None)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_folder: str) -> ChatTokenizer:
    return ChatTokenizer(tiny_folder)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a program in place of `nvidia-smi`, which lists a number of equal GPUs.

    The first GPU can be split into MIG slices. With `failure` the program says that and fails.
    """
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def install(number: int, mig: int = 0, failure: str = "") -> None:
        rows, names = [], []
        for i in range(number):
            split = "Enabled" if mig and i == 0 else "Disabled"
            rows.append(f"{i}, GPU-000{i}-x, NVIDIA H100 80GB HBM3, 81559, 4, 580.65.06, 9.0, {split}")
            names.append(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-000{i}-x)")
            if split == "Enabled":
                names += [f"  MIG 1g.10gb  Device  {k}: (UUID: MIG-{k})" for k in range(mig)]
        lists = "\n".join(names), "\n".join(rows)
        answer = f"case $1 in -L) echo '{lists[0]}';; *) echo '{lists[1]}';; esac"
        file = tmp_path / "nvidia-smi"
        file.write_text(f"#!/bin/sh\n{f'echo {failure!r}; exit 9' if failure else answer}\n")
        file.chmod(0o755)

    return install
