"""What a power cut leaves of a lock, and of what a killed process wrote."""

from __future__ import annotations

import socket
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest

from speedrunner.store import json_records
from speedrunner.store.policies import PolicyStore
from speedrunner.store.records import Policy
from speedrunner.store.run_lock import Owner, RunLock
from speedrunner.store.rundir import RunDirectory
from tests.chaos.disk import Disk, Trigger, operations, surviving, watch

pytestmark = pytest.mark.process

Work = Callable[[Path], object]


def run_watched(work: Work, folder: Path, log: Path, trigger: Trigger | None = None) -> None:
    """Do something to a folder in another process, and log its operations."""

    def play() -> None:
        watch(folder, log, trigger)
        work(folder)

    process = get_context("fork").Process(target=play)
    process.start()
    process.join()


def take_lock(folder: Path) -> None:
    RunLock(folder / "lock").__enter__()


def append_trajectory(folder: Path) -> None:
    (folder / "trajectories").mkdir(exist_ok=True)
    json_records.append_record(folder / "trajectories/batch_0000.jsonl", Policy(version=1), durable=True)


def save_policy(folder: Path) -> None:
    PolicyStore(folder / "policies").save(Policy(version=0, notes="n"))


def own_run(folder: Path) -> None:
    with RunDirectory.open_for_writing(folder):
        pass


def test_a_lock_has_its_owner_or_is_not_there(tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    folder.mkdir()
    run_watched(take_lock, folder, log)
    found = {
        bytes(content)
        for seed in range(40)
        for name, content in surviving(Disk(), operations(log), seed).files.items()
        if name.startswith(f"{folder}/lock/")
    }
    (owner,) = found
    assert msgspec.json.decode(owner, type=Owner).host == socket.gethostname()


@pytest.mark.parametrize(
    ("work", "sync", "name"),
    [
        (append_trajectory, 0, "trajectories/batch_0000.jsonl"),
        (append_trajectory, 1, "trajectories/batch_0000.jsonl"),
        (save_policy, 13, "policies/v0000/notes.md"),
    ],
)
def test_what_a_killed_process_wrote_is_on_the_disk_before_the_next_one_relies_on_it(
    work: Work, sync: int, name: str, tmp_path: Path
) -> None:
    folder, logs = tmp_path / "run", [tmp_path / "log1", tmp_path / "log2"]
    folder.mkdir()
    (folder / "config.yaml").touch()
    own_run(folder)  # a run that has begun has state.json
    run_watched(work, folder, logs[0], Trigger(sync, "kill", at="sync"))
    content = (folder / name).read_bytes()
    assert str(folder / name) not in surviving(Disk(), operations(logs[0]), least=True).files
    run_watched(own_run, folder, logs[1])
    done = [*operations(logs[0]), *operations(logs[1])]
    assert surviving(Disk(), done, least=True).files[str(folder / name)] == content
