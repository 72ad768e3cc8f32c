"""One trial of each fault. `make chaos N=...` plays more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import faults, trial
from tests.chaos.disk import Disk, surviving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def size(tmp_path_factory: pytest.TempPathFactory) -> trial.Size:
    """What an undisturbed run does."""
    return trial.measure(tmp_path_factory.mktemp("chaos") / "whole")


def test_at_no_moment_of_a_run_could_a_power_cut_take_what_others_rely_on(tmp_path: Path) -> None:
    with trial.opened(tmp_path / "whole", 0, trial.Size(1, {})) as one:
        assert one.play() == 0, one.output
        done = one.operations()
    for end in range(len(done) + 1):
        disks = surviving(Disk(), done[:end]), surviving(Disk(), done[:end], least=True)
        trial.check_safe(*(trial.list_records(disk, one.run) for disk in disks))


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_run_with_a_fault_is_resumed_and_whole(name: str, size: trial.Size, tmp_path: Path) -> None:
    faults.play(tmp_path / "trial", [name], 1, size, [])
