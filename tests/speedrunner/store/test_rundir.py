from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from envs import Task
from serving.model_configs import load_model_config
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.files import StorageError, temporary_name
from speedrunner.store.records import Policy
from speedrunner.store.run_data import load
from speedrunner.store.run_lock import LockLost
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError
from tests.speedrunner.run_samples import play, process, request, sleep, trajectory


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "runs" / "one"


def own(path: Path) -> None:
    with RunDirectory.open_for_writing(path):
        pass


def note_syncs(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and folders of a run that are synced from now on, in order."""
    found, fsync = list[str](), os.fsync

    def note(descriptor: int) -> None:
        name = os.path.relpath(Path(f"/proc/self/fd/{descriptor}").readlink(), path)
        found.append(re.sub(r"\.[0-9a-f]{8}\.tmp$", ".tmp", name))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return found


class TestWriting:
    @pytest.mark.parametrize("folder", ["policies", "trajectories", "evaluations", "sleeps"])
    def test_records_without_a_configuration_are_not_taken_for_a_new_run_s(self, path, folder):
        play(path)
        for each in path.iterdir():
            if each.is_file():
                each.unlink()
            elif each.name != folder:
                shutil.rmtree(each)
        with pytest.raises(RunDirectoryError, match=f"it has {folder}, but no config.yaml"):
            own(path)

    def test_a_secret_is_drawn_once_for_each_run(self, path):
        task, seeds = Task("babyai", "go_to", 7), []
        for folder in (path, path, path.with_name("two")):
            with RunDirectory.open_for_writing(folder) as run:
                run.write_config("")
                seeds.append(run.state.skill_seed(task))
        assert seeds[0] == seeds[1] == load(path).state.skill_seed(task)
        assert len({*seeds, run.state.skill_seed(Task("babyai", "go_to", 8))}) == 3

    @pytest.mark.parametrize(
        ("write", "synced"),
        [
            (lambda run: run.append_request(request()), []),
            (lambda run: run.append_episode(summarize_episode(trajectory(), "train", 0)), []),
            (
                lambda run: run.append_trajectory("train", 0, trajectory("train/0007")),
                ["requests.jsonl", "trajectories/batch_0000.jsonl"],
            ),
            (
                lambda run: run.append_trajectory("train", 1, trajectory("train/0008")),
                ["requests.jsonl", "trajectories/batch_0001.jsonl", "trajectories"],
            ),
            (lambda run: run.write_sleep(sleep()), ["requests.jsonl", "sleeps/.0001.json.tmp", "sleeps"]),
            (
                lambda run: run.sleep_journal(1, 1, [], lambda: None).add_episode(0, trajectory()),
                ["requests.jsonl", ".sleep.jsonl.tmp", ".", "requests.jsonl", "sleep.jsonl", "."],
            ),
            (
                lambda run: run.append_process(process(load_model_config("tiny-random"))),
                ["processes.jsonl", "."],
            ),
        ],
    )
    def test_a_record_is_on_the_disk_after_the_rows_of_its_requests(self, path, monkeypatch, write, synced):
        play(path)
        with RunDirectory.open_for_writing(path) as run:
            found = note_syncs(path, monkeypatch)
            write(run)
            assert found == synced

    def test_nothing_is_written_after_the_lock_was_lost(self, path):
        with RunDirectory.open_for_writing(path) as run:
            for file in (path / "lock").iterdir():
                file.unlink()
            run._lock.refresh()
            for write in (
                lambda: run.append_trajectory("train", 0, trajectory()),
                lambda: run.append_request(request()),
                lambda: run.append_episode(summarize_episode(trajectory(), "train", 0)),
                lambda: run.write_policy(Policy(version=0)),
                lambda: run.write_config(""),
                lambda: run.write_sleep(sleep()),
                lambda: run.mark_finished("x"),
            ):
                with pytest.raises(LockLost):
                    write()
        assert [file.name for file in path.rglob("*") if file.is_file()] == ["state.json"]


class TestOpeningAgain:
    def test_torn_tails_and_leftovers_are_gone(self, path):
        play(path)
        files = [path / "episodes.jsonl", path / "requests.jsonl", path / "trajectories/batch_0000.jsonl"]
        whole = [file.read_bytes() for file in files]
        for file in files:
            with file.open("ab") as stream:
                stream.write(b'{"episode": "tr')
        temporary_name(path / "state.json").write_bytes(b"{")
        temporary_name(path / "policies" / "v0001").mkdir()
        with RunDirectory.open_for_writing(path) as run:
            assert [file.read_bytes() for file in files] == whole
            assert run.policies.versions() == [0]
            assert not list(path.rglob(".*"))

    def test_a_broken_line_in_the_middle_stops_it_before_anything_is_changed(self, path):
        play(path)
        file = path / "trajectories/batch_0000.jsonl"
        first, *rest = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(first[:-10] + b" " * 9 + b"\n" + b"".join(rest))
        before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        with (
            pytest.raises(StorageError, match=r"batch_0000\.jsonl, line 1"),
            RunDirectory.open_for_writing(path),
        ):
            pass
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_all_of_it_is_its_owners_alone(path):
    umask = os.umask(0)
    try:
        play(path)
    finally:
        os.umask(umask)
    for each in (path, *path.rglob("*")):
        assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600), each
