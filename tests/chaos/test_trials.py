"""One trial of each fault. `make chaos N=...` plays more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import faults, trial

pytestmark = pytest.mark.slow

FAILED = (("power cut", 1036), ("disk error", 1203))
"""Trials that once failed. After changes of the code, their random moment may be another one."""


@pytest.fixture(scope="module")
def size(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int]:
    """The requests and changes of the disk of an undisturbed run."""
    return trial.measure(tmp_path_factory.mktemp("chaos") / "whole")


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_run_with_a_fault_is_resumed_and_whole(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    faults.play(tmp_path / "trial", name, 1, *size)


@pytest.mark.parametrize(("name", "seed"), FAILED)
def test_a_trial_that_once_failed_passes(name: str, seed: int, size: tuple[int, int], tmp_path: Path) -> None:
    faults.play(tmp_path / "trial", name, seed, *size)
