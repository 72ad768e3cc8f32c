"""One trial of each fault. `make chaos N=...` plays more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import faults, trial
from tests.chaos.disk import Disk, surviving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def size(tmp_path_factory: pytest.TempPathFactory) -> trial.Size:
    """What an undisturbed run does."""
    return trial.measure(tmp_path_factory.mktemp("chaos") / "whole")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of an undisturbed run, and its operations."""
    with trial.opened(tmp_path_factory.mktemp("chaos") / "whole", 0, trial.Size(1, {})) as one:
        assert one.play() == 0, one.output
        return one.run, one.operations()


def count_unsafe(run: Path, done: list[dict[str, Any]]) -> int:
    """Return the number of moments at which a power cut could take what others rely on."""
    unsafe = 0
    for end in range(len(done) + 1):
        disks = surviving(Disk(), done[:end]), surviving(Disk(), done[:end], least=True)
        try:
            trial.check_safe(*(trial.list_records(disk, run) for disk in disks))
        except trial.Broken:
            unsafe += 1
    return unsafe


def test_at_no_moment_of_a_run_could_a_power_cut_take_what_others_rely_on(
    whole: tuple[Path, list[dict[str, Any]]],
) -> None:
    assert count_unsafe(*whole) == 0


@pytest.mark.parametrize("name", ["evaluations/0000.jsonl", "requests.jsonl", "policies"])
def test_a_missing_fsync_is_found(name: str, whole: tuple[Path, list[dict[str, Any]]]) -> None:
    run, done = whole
    assert any(each["kind"] == "fsync" and each["path"].endswith(f"/{name}") for each in done)
    left = [each for each in done if not (each["kind"] == "fsync" and each["path"].endswith(f"/{name}"))]
    assert count_unsafe(run, left) > 0


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_run_with_a_fault_is_resumed_and_whole(name: str, size: trial.Size, tmp_path: Path) -> None:
    faults.play(tmp_path / "trial", [name], 1, size, [])
