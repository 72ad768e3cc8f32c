from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from envs import Task
from serving.model_configs import CHECKOUT
from speedrunner.store.files import StorageError
from speedrunner.store.history import copy_history
from speedrunner.store.run_data import load
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError, list_files
from tests.golden_tables import Golden, error_message, refusals
from tests.speedrunner.run_samples import play

HOW = ("read", "write")


def opened(path: Path, how: str) -> None:
    if how == "read":
        load(path)
    else:
        with RunDirectory.open_for_writing(path):
            pass


@pytest.fixture
def open_folder():
    """A temporary folder that everybody may enter (pytest's own may not be)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


class TestForeignDirectories:
    def test_what_is_no_run_is_refused_and_left_alone(self, tmp_path, golden: Golden):
        file, other, empty, later = (tmp_path / name for name in ("file", "other", "empty", "later"))
        file.write_text("mine")
        for folder in (other, empty):
            folder.mkdir()
        (other / "thesis.tex").touch()
        play(later)
        (later / "state.json").write_text('{"steps": [], "format": 4}')
        places = {
            "a file": file,
            "a folder with something else": other,
            "a path below a file": file / "run",
            "a run of a later version": later,
        }
        tries = [
            (f"{name}: {how}", partial(opened, path, how)) for name, path in places.items() for how in HOW
        ]
        tries.append(("an empty folder: read", partial(opened, empty, "read")))
        golden("no_runs.txt", refusals(tries, StorageError, HERE=tmp_path))
        assert file.read_text() == "mine"
        assert [file.name for file in other.iterdir()] == ["thesis.tex"]
        play(empty)

    @pytest.mark.parametrize("how", HOW)
    def test_no_permission_to_read(self, open_folder, how):
        path = open_folder / "run"
        play(path)
        path.chmod(0)
        try:
            with as_nobody():
                line = error_message(partial(opened, path, how), StorageError)
        finally:
            path.chmod(0o755)
        assert f"{path} could not be opened: permission denied" in line


PLACES = (
    *(
        "lock",
        "config.yaml",
        "requests.jsonl",
        "workers.log",
        "sleeps",
        "wandb",
        "policies/.v0001.01234567.tmp",
    ),
    *("policies/v0000", "policies/v0000/notes.md", "trajectories/batch_0000.jsonl"),
    *("carried", "carried/0000", "carried/0000/policies/v0000"),
)


def remove(place: Path) -> None:
    """Remove what is in a place, and make its folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)


class TestTheDoor:
    """A run of someone else: nothing in it is opened before all its names are known."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        play(tmp_path / "runs/one")
        return tmp_path / "runs/one"

    @pytest.mark.parametrize("kind", ["a link", "a pipe"])
    @pytest.mark.parametrize("place", PLACES)
    def test_refuses_everything_but_folders_and_files(self, run: Path, place: str, kind: str) -> None:
        theirs = run.parent / "theirs"
        theirs.mkdir()
        for name in ("old", ".old.01234567.tmp", "skills.py", "config.yaml"):
            (theirs / name).write_text("theirs")
        before = {file: file.stat() for file in (theirs, *theirs.iterdir())}
        remove(run / place)
        if kind == "a link":
            (run / place).symlink_to(theirs)
        else:
            os.mkfifo(run / place)
        for how in HOW:
            with pytest.raises(RunDirectoryError, match=f"has {re.escape(repr(place))}, no file or folder"):
                opened(run, how)
        assert {file: file.stat() for file in (theirs, *theirs.iterdir())} == before

    @pytest.mark.parametrize(
        "name",
        [
            *("policies/v0000/__init__.py", "policies/v1", "carried/0000/requests.jsonl", "sleeps/notes.txt"),
            *("evaluations/batch_0000.jsonl", "trajectories/\u0660\u0661\u0662\u0663.jsonl", "tools.jsonl/x"),
            *("lock/x/y.json", "carried/.hidden"),
        ],
    )
    def test_refuses_names_that_no_run_has(self, run: Path, name: str) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
        for how in HOW:
            with pytest.raises(RunDirectoryError, match="that SpeedRunner writes there"):
                opened(run, how)

    @pytest.mark.parametrize(
        "name", ["../../x", "/etc/passwd", "a\0b", "policies/v0000/skills.py", "x" * 300, "lock", "\n"]
    )
    def test_refuses_sizes_of_other_files(self, run: Path, name: str) -> None:
        state = json.loads((run / "state.json").read_text())
        (run / "state.json").write_text(json.dumps(state | {"sizes": {name: 1}}))
        for how in HOW:
            line = error_message(partial(opened, run, how), RunDirectoryError)
            assert f"state.json names {name[:80]!r}, which no run has" in line

    def test_leaves_a_user_s_own_files_next_to_the_records_alone(self, run: Path) -> None:
        for name in ("notes.txt", ".hidden", "report/index.html", "next/config.yaml", "next/policies/x/y"):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).touch()
        (run / "report/latest").symlink_to("/dev/zero")
        for how in HOW:
            opened(run, how)
        assert not [name for name in list_files(run) if "next" in name or "report" in name]
        (run / "mine").symlink_to("report")
        with pytest.raises(RunDirectoryError, match="has 'mine'"):
            opened(run, "read")

    def test_lets_in_all_that_a_run_and_its_trackers_write(self, run: Path, tmp_path: Path) -> None:
        for name in (
            *("workers.log", "server.log", "sleep.jsonl", "tools.jsonl"),
            *("processes.jsonl", "reconciliation.jsonl", "lock/node-1-a.json", ".nfs0001"),
            *(".state.json.01234567.tmp", "policies/.v0001.01234567.tmp/skills.py", ".mine.tmp"),
            *("tensorboard/events.out.tfevents.1.node.1.0", "wandb/offline-run-1/files/config.yaml"),
        ):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).touch()
        (run / "wandb/latest-run").symlink_to("offline-run-1")
        copy_history(load(run), 1, run / "carried")
        opened(run, "read")
        opened(CHECKOUT / "tests/data/format_3", "read")


def test_seeds_of_skills_differ_by_task_and_run_and_cannot_be_guessed(tmp_path: Path) -> None:
    seeds, guesses = set(), set()
    for index in range(2):
        message = f"default {index}".encode()
        guesses |= {hashlib.sha256(message).hexdigest(), hmac.new(b"", message, "sha256").hexdigest()}
        for name in ("one", "two"):
            with RunDirectory.open_for_writing(tmp_path / name) as run:
                seeds.add(run.state.skill_seed(Task("corridor", "default", index)))
    assert len(seeds) == 4  # a resumed run has its seeds
    assert not seeds & guesses
