from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.store import json_records
from speedrunner.store.checksums import find_changed, without_checksum
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.files import StorageError
from speedrunner.store.records import Policy
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.run_samples import play, request, sleep, trajectory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    play(path)
    return path


def found(path: Path) -> list[tuple[str, str]]:
    return list(find_changed(path, load(path).state.checksums))


def rest(path: Path) -> dict[str, int]:
    return without_checksum(path, load(path).state.checksums)


def test_all_that_was_recorded_is_sealed_when_the_directory_is_given_back(path: Path) -> None:
    assert (found(path), list(rest(path))) == ([], ["sleeps/0001.json"])  # it may be slept again


def test_a_step_that_is_finished_is_sealed_at_once(path: Path) -> None:
    with RunDirectory.open_for_writing(path) as run:
        run.append_trajectory("train", 1, trajectory("train/0007"))
        run.append_request(request())
        assert rest(path).keys() == {"sleeps/0001.json", "trajectories/batch_0001.jsonl", "requests.jsonl"}
        run.mark_finished("wake/0001")
        assert (found(path), list(rest(path))) == ([], ["sleeps/0001.json"])


def test_later_appends_break_no_seal(path: Path) -> None:
    before = load(path).state.checksums
    with RunDirectory.open_for_writing(path) as run:
        run.append_trajectory("train", 0, trajectory("train/0001", attempt=2))
        assert list(find_changed(path, before)) == []
    assert (found(path), list(find_changed(path, before))) == ([], [])


def test_a_sleep_is_sealed_with_its_policy(path: Path) -> None:
    with RunDirectory.open_for_writing(path) as run:
        run.write_sleep(sleep(attempt=2))
        run.write_policy(Policy(version=1))
    assert (found(path), rest(path)) == ([], {})


def test_a_torn_tail_and_a_row_that_is_missing_are_behind_the_seals(path: Path) -> None:
    """As after a kill between the appends of an episode and of its row."""
    with (path / "trajectories/batch_0000.jsonl").open("ab") as file:
        file.write(json_records.encode(trajectory("train/0003")) + b'\n{"episode": "tr')
    assert found(path) == []
    with RunDirectory.open_for_writing(path) as run:
        assert found(path) == []
        assert summarize_episode(trajectory("train/0003"), "train", 0) in run.read().written_rows
    assert (found(path), list(rest(path))) == ([], ["sleeps/0001.json"])


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("config.yaml", b"run:\n  seed: 2\n", "does not match its checksum"),
        (
            "config.yaml",
            b"run:\n  seed: 1\n#",
            "has 1 bytes more than the 15 of its checksum",
        ),
        ("requests.jsonl", b"", "has 0 bytes, fewer than "),
    ],
)
def test_what_differs_is_told_and_stays_so(path: Path, name: str, content: bytes, what: str) -> None:
    (path / name).write_bytes(content)
    for _ in range(2):
        ((file, told),) = found(path)
        assert file == name
        assert told.startswith(what)
        with RunDirectory.open_for_writing(path) as run:  # its process checksums nothing of that
            run.append_trajectory("train", 0, trajectory("train/0009"))


def test_a_disk_that_is_full_at_the_end_hides_no_other_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    def record() -> None:
        with RunDirectory.open_for_writing(path) as run:
            run.append_request(request())
            monkeypatch.setattr(json_records, "write_record", refuse)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record()
    monkeypatch.undo()
    assert not (path / "lock").exists()
    assert "requests.jsonl" in rest(path)
