"""What a power cut leaves of operations: all that was synced, and a prefix of the rest."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import pytest

from speedrunner.store import files, json_records
from speedrunner.store.policies import PolicyStore
from speedrunner.store.records import Policy
from speedrunner.store.run_lock import Owner, RunLock
from speedrunner.store.rundir import RunDirectory
from tests.chaos.disk import Disk, Trigger, operations, surviving, watch

ROOT = "/run"


def op(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    data = base64.b64encode(more.pop("data", b"")).decode()
    return {"kind": kind, "path": f"{ROOT}/{name}" if name else ROOT, "data": data, **more}


CREATED = [op("create", "a"), op("write", "a", at=0, data=b"one\n")]


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (CREATED, {}),
        ([*CREATED, op("fsync", "a")], {}),  # its name is not on the disk
        ([*CREATED, op("fsync", "")], {"a": b""}),
        ([*CREATED, op("fsync", "a"), op("fsync", "")], {"a": b"one\n"}),
        (
            [*CREATED, op("fsync", "a"), op("fsync", ""), op("write", "a", at=4, data=b"two\n")],
            {"a": b"one\n"},
        ),
        ([*CREATED, op("fsync", "a"), op("fsync", ""), op("unlink", "a")], {"a": b"one\n"}),
        (
            [*CREATED, op("fsync", "a"), op("fsync", ""), op("rename", "a", target=f"{ROOT}/b")],
            {"a": b"one\n"},
        ),
    ],
)
def test_the_worst_power_cut_leaves_what_was_synced(
    done: list[dict[str, Any]], left: dict[str, bytes]
) -> None:
    disk = surviving(Disk(), done, least=True)
    assert {os.path.relpath(name, ROOT): content for name, content in disk.files.items()} == left


def test_without_a_power_cut_everything_is_there() -> None:
    done = [*CREATED, op("rename", "a", target=f"{ROOT}/b"), op("truncate", "b", size=2)]
    assert surviving(Disk(), done).files == {f"{ROOT}/b": b"on"}


def test_a_power_cut_leaves_a_prefix_of_each_file_s_writes() -> None:
    parts = [op("write", "a", at=place, data=b"%d" % place) for place in range(6)]
    done = [op("create", "a"), op("fsync", ""), *parts]
    found = {surviving(Disk(), done, seed).files[f"{ROOT}/a"] for seed in range(50)}
    assert found <= {b"012345"[:length] for length in range(7)}
    assert len(found) > 4


def _work(folder: Path, log: Path, trigger: Trigger | None) -> None:
    watch(folder, log, trigger)
    json_records.append_record(folder / "rows.jsonl", Policy(version=1), durable=True)
    json_records.append_record(folder / "rows.jsonl", Policy(version=2), durable=False)
    files.write_atomic(folder / "state.json", b"{}")
    PolicyStore(folder / "policies").save(Policy(version=0, notes="n"))
    (folder / "rows.jsonl").open("ab").close()
    json_records.repair(folder / "rows.jsonl")


def _lock(folder: Path, log: Path, trigger: Trigger | None) -> None:
    watch(folder, log, trigger)
    RunLock(folder / "lock").__enter__()


def _run(
    folder: Path,
    log: Path,
    trigger: Trigger | None,
    work: Callable[[Path, Path, Trigger | None], None] = _work,
) -> None:
    process = get_context("fork").Process(target=work, args=(folder, log, trigger))
    process.start()
    process.join()


@pytest.mark.process
def test_the_recorded_operations_of_the_store_give_what_is_on_the_disk(tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    folder.mkdir()
    _run(folder, log, None)
    done = operations(log)
    assert surviving(Disk(), done).files == Disk.read(folder).files
    safe = {os.path.relpath(name, folder) for name in surviving(Disk(), done, least=True).files}
    assert safe == {
        "rows.jsonl",
        "state.json",
        *(str(p.relative_to(folder)) for p in folder.glob("policies/v0000/*")),
    }
    count = sum(each["kind"] != "fsync" for each in done)
    for number in range(0, count, 3):  # a kill at any operation leaves what the log says
        killed, own = tmp_path / f"run{number}", tmp_path / f"log{number}"
        killed.mkdir()
        _run(killed, own, Trigger(number, "torn"))
        assert surviving(Disk(), operations(own)).files == Disk.read(killed).files


@pytest.mark.process
def test_a_power_cut_leaves_a_lock_with_its_owner_or_none(tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    folder.mkdir()
    _run(folder, log, None, _lock)
    found = {
        bytes(content)
        for seed in range(40)
        for name, content in surviving(Disk(), operations(log), seed).files.items()
        if name.startswith(f"{folder}/lock/")
    }
    (owner,) = found
    assert msgspec.json.decode(owner, type=Owner).host == socket.gethostname()


def _append_trajectory(folder: Path, log: Path, trigger: Trigger | None) -> None:
    watch(folder, log, trigger)
    (folder / "trajectories").mkdir(exist_ok=True)
    json_records.append_record(folder / "trajectories/batch_0000.jsonl", Policy(version=1), durable=True)


def _save_policy(folder: Path, log: Path, trigger: Trigger | None) -> None:
    watch(folder, log, trigger)
    PolicyStore(folder / "policies").save(Policy(version=0, notes="n"))


def _open(folder: Path, log: Path, trigger: Trigger | None) -> None:
    watch(folder, log, trigger)
    with RunDirectory.open_for_writing(folder):
        pass


@pytest.mark.process
@pytest.mark.parametrize(
    ("work", "trigger", "name"),
    [
        (_append_trajectory, Trigger(0, "kill", at="sync"), "trajectories/batch_0000.jsonl"),
        (_append_trajectory, Trigger(1, "kill", at="sync"), "trajectories/batch_0000.jsonl"),
        (_save_policy, Trigger(13, "kill", at="sync"), "policies/v0000/notes.md"),
    ],
)
def test_what_a_killed_process_wrote_is_on_the_disk_before_the_next_one_relies_on_it(
    work: Callable[[Path, Path, Trigger | None], None], trigger: Trigger, name: str, tmp_path: Path
) -> None:
    folder, logs = tmp_path / "run", [tmp_path / "log1", tmp_path / "log2"]
    folder.mkdir()
    (folder / "config.yaml").touch()
    with RunDirectory.open_for_writing(folder):
        pass  # a run that has begun has state.json
    _run(folder, logs[0], trigger, work)
    content = (folder / name).read_bytes()
    assert str(folder / name) not in surviving(Disk(), operations(logs[0]), least=True).files
    _run(folder, logs[1], None, _open)
    done = [*operations(logs[0]), *operations(logs[1])]
    assert surviving(Disk(), done, least=True).files[str(folder / name)] == content
