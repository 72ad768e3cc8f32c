"""One trial of each fault. `make chaos N=...` plays more."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos import faults, trial

pytestmark = pytest.mark.slow

FAILED = ((("client killed", "power cut", "power cut"), 21),)
"""Trials that once failed. After changes of the code, their random moment may be another one."""


@pytest.fixture(scope="module")
def size(tmp_path_factory: pytest.TempPathFactory) -> trial.Size:
    """What an undisturbed run does."""
    return trial.measure(tmp_path_factory.mktemp("chaos") / "whole")


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_run_with_a_fault_is_resumed_and_whole(name: str, size: trial.Size, tmp_path: Path) -> None:
    faults.play(tmp_path / "trial", [name], 1, size, [])


@pytest.mark.parametrize(("names", "seed"), FAILED)
def test_a_trial_that_once_failed_passes(
    names: Sequence[str], seed: int, size: trial.Size, tmp_path: Path
) -> None:
    played: list[list[object]] = []
    faults.play(tmp_path / "trial", names, seed, size, played)
    assert played[0] == [names[0], True]


def _leave_process() -> None:
    subprocess.Popen(["sleep", "60"], env={}, start_new_session=True)


def test_a_process_that_a_run_leaves_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: trial.Size
) -> None:
    monkeypatch.setattr(trial, "ENDING_S", 0.1)
    with trial.opened(tmp_path / "trial", 0, size) as one:
        process = trial.CONTEXT.Process(target=_leave_process)
        process.start()
        process.join()
        with pytest.raises(trial.Broken, match=r"processes are left:.*sleep 60"):
            one.check_processes()
    for child in trial.list_children(trial.find_fork_server()):
        child.kill()
