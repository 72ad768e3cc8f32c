from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from serving.meter import LedgerRow
from speedrunner.store.files import StorageError, temporary_name
from speedrunner.store.lock import LockHeld, LockLost
from speedrunner.store.records import EpisodeRow, Policy
from speedrunner.store.rundir import RunDirectory, RunDirectoryError
from speedrunner.store.seals import broken
from tests.speedrunner.run_samples import sleep, trajectory


def request(episode: str = "train/0000") -> LedgerRow:
    """A row of the ledger."""
    return LedgerRow(
        request="r", retry=0, time=1.0, labels={"episode": episode, "attempt": "1"}, model="m", status="ok",
        wasted=False, usage=None, seconds=1.0,
    )  # fmt: skip


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "runs" / "one"


def play(path: Path, episodes: int = 3) -> None:
    """A small run: training episodes, one test episode, one sleep."""
    with RunDirectory.open_for_writing(path) as run:
        run.write_config("run:\n  seed: 1\n")
        run.write_policy(Policy(version=0))
        for number in range(episodes):
            episode = trajectory(f"train/{number:04d}")
            run.append_request(request(episode.episode))
            run.append_trajectory("train", 0, episode)
            run.append_episode(EpisodeRow.of(episode, "train", 0))
        run.append_trajectory("test", 3, trajectory("test/0003/0"))
        run.append_episode(EpisodeRow.of(trajectory("test/0003/0"), "test", 3))
        run.write_sleep(sleep())
        run.mark_finished("sleep/0001")


def open_run(path: Path, how: str) -> None:
    if how == "read":
        RunDirectory.open_for_reading(path)
    else:
        with RunDirectory.open_for_writing(path):
            pass


class TestWriting:
    def test_the_layout(self, path):
        play(path)
        assert sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) == [
            "config.yaml",
            "episodes.jsonl",
            "evaluations/0003.jsonl",
            "policies/v0000/library.json",
            "policies/v0000/method.json",
            "policies/v0000/notes.md",
            "policies/v0000/skills.py",
            "requests.jsonl",
            "sleeps/0001.json",
            "state.json",
            "trajectories/batch_0000.jsonl",
        ]

    def test_what_is_written_is_read(self, path):
        play(path)
        run = RunDirectory.open_for_reading(path)
        assert run.config() == "run:\n  seed: 1\n"
        assert run.finished() == ["sleep/0001"]
        assert run.policies.load(0) == Policy(version=0)
        assert run.numbers("train") == [0]
        assert run.numbers("test") == [3]
        assert [episode.episode for episode in run.trajectories("train", 0)] == [
            f"train/000{i}" for i in range(3)
        ]
        assert run.trajectories("test", 3) == [trajectory("test/0003/0")]
        assert len(run.episodes()) == 4
        assert run.sleeps() == [sleep()]
        assert len(run.requests()) == 3

    def test_finished_steps_keep_their_order_and_stand_once(self, path):
        with RunDirectory.open_for_writing(path) as run:
            assert run.finished() == []
            for step in ("b", "a", "b"):
                run.mark_finished(step)
            assert run.finished() == ["b", "a"]

    def test_a_sleep_may_be_written_again_by_a_later_attempt(self, path):
        with RunDirectory.open_for_writing(path) as run:
            run.write_sleep(sleep(attempt=1))
            run.write_sleep(sleep(attempt=2))
            assert run.sleeps() == [sleep(attempt=2)]

    def test_one_process_at_a_time(self, path):
        with (
            RunDirectory.open_for_writing(path),
            pytest.raises(LockHeld, match=str(path)),
            RunDirectory.open_for_writing(path),
        ):
            pass

    def test_nothing_is_written_after_the_lock_was_lost(self, path):
        with RunDirectory.open_for_writing(path) as run:
            for file in (path / "lock").iterdir():
                file.unlink()
            run._lock.refresh()
            for write in (
                lambda: run.append_trajectory("train", 0, trajectory()),
                lambda: run.append_request(request()),
                lambda: run.append_episode(EpisodeRow.of(trajectory(), "train", 0)),
                lambda: run.write_policy(Policy(version=0)),
                lambda: run.write_config(""),
                lambda: run.write_sleep(sleep()),
                lambda: run.mark_finished("x"),
            ):
                with pytest.raises(LockLost):
                    write()
        assert [file for file in path.rglob("*") if file.is_file()] == []

    def test_a_reader_cannot_write(self, path):
        play(path)
        with pytest.raises(RunDirectoryError, match="opened for reading"):
            RunDirectory.open_for_reading(path).mark_finished("x")


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

    def test_a_summary_row_lost_in_a_kill_is_written_again(self, path):
        play(path)
        rows = RunDirectory.open_for_reading(path).episodes()
        file = path / "episodes.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(lines[0] + lines[2])
        with RunDirectory.open_for_writing(path) as run:
            assert sorted(run.episodes(), key=lambda row: row.episode) == sorted(
                rows, key=lambda row: row.episode
            )
        with RunDirectory.open_for_writing(path) as run:
            assert len(run.episodes()) == 4

    def test_a_run_killed_before_its_configuration_was_written_can_begin_again(self, path):
        with RunDirectory.open_for_writing(path) as run:
            run.server_log.write_text("starting\n")
        temporary_name(path / "config.yaml").write_text("run:")
        with RunDirectory.open_for_writing(path) as run:
            assert run.config() is None

    def test_a_broken_line_in_the_middle_stops_it_before_anything_is_changed(self, path):
        play(path)
        file = path / "trajectories/batch_0000.jsonl"
        first, *rest = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(first[:-10] + b"\n" + b"".join(rest))
        before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        with (
            pytest.raises(StorageError, match=r"batch_0000\.jsonl, line 1"),
            RunDirectory.open_for_writing(path),
        ):
            pass
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


PLAY_ON = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])  # the checkout
from tests.speedrunner.run_samples import trajectory
from tests.speedrunner.store.test_rundir import request
from speedrunner.store.records import Policy
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.records import EpisodeRow
with RunDirectory.open_for_writing(Path(sys.argv[1])) as run:
    run.write_config("seed: 1")
    for number in range(len(run.finished()), 100_000):
        episode = trajectory(f"train/{number:04d}", text="x" * 20_000)
        run.append_request(request(episode.episode))
        if episode.episode not in [key.episode for key in run.trajectories("train", number)]:
            run.append_trajectory("train", number, episode)
            run.append_episode(EpisodeRow.of(episode, "train", number))
        if number not in run.policies.versions():
            run.write_policy(Policy(version=number))
        run.mark_finished(episode.episode)
        print(episode.episode, flush=True)
"""


def test_a_kill_at_any_instant_loses_and_doubles_nothing(path):
    """A process that plays without pause is killed again and again; each time it is gone on with."""
    acknowledged = []
    moments = random.Random(5)
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", PLAY_ON, str(path), str(Path(__file__).parents[3])],
            stdout=subprocess.PIPE,
            text=True,
        )
        acknowledged += [process.stdout.readline().strip() for _ in range(moments.randrange(1, 6))]
        time.sleep(moments.random() / 50)  # anywhere within the next episodes
        process.kill()
        acknowledged += process.communicate()[0].split()
        assert list(broken(path, RunDirectory.open_for_reading(path).state().seals)) == []
    with RunDirectory.open_for_writing(path) as run:
        finished = run.finished()
        played = [
            episode.episode for batch in run.numbers("train") for episode in run.trajectories("train", batch)
        ]
        assert set(acknowledged) <= set(finished)
        assert finished == played[: len(finished)]
        assert played == [f"train/{number:04d}" for number in range(len(played))]
        assert len(played) <= len(finished) + 1
        assert [row.episode for row in run.episodes()] == played
        assert {row.labels.get("episode") for row in run.requests()} >= set(played)
        assert all(run.policies.load(version) for version in run.policies.versions())
        assert not list(path.rglob(".*"))


AS_NOBODY = """
import os, sys
from pathlib import Path
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.files import StorageError
if os.geteuid() == 0:
    os.seteuid(65534)
path = Path(sys.argv[1])
try:
    if sys.argv[2] == "read":
        RunDirectory.open_for_reading(path)
    else:
        with RunDirectory.open_for_writing(path):
            pass
except StorageError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def open_folder():
    """A temporary folder that everybody may enter (pytest's own may not be)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_nobody(path: Path, how: str) -> str:
    """The one line of error that somebody without rights gets."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path), how], capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    return line


class TestForeignDirectories:
    def refused(self, path: Path, how: str) -> str:
        with pytest.raises(RunDirectoryError) as error:
            open_run(path, how)
        message = str(error.value)
        assert "\n" not in message
        assert str(path) in message
        return message

    @pytest.mark.parametrize("how", ["read", "write"])
    def test_a_file_in_its_place(self, tmp_path, how):
        path = tmp_path / "run"
        path.write_text("mine")
        assert "is a file" in self.refused(path, how)
        assert path.read_text() == "mine"

    @pytest.mark.parametrize("how", ["read", "write"])
    def test_a_folder_that_is_no_run_is_left_alone(self, tmp_path, how):
        (tmp_path / "thesis.tex").touch()
        assert "thesis.tex, but no config.yaml" in self.refused(tmp_path, how)
        assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]

    def test_an_empty_folder_may_become_a_run_but_is_none_to_read(self, tmp_path):
        assert "no config.yaml" in self.refused(tmp_path, "read")
        play(tmp_path)

    def test_a_path_below_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        assert "does not exist" in self.refused(tmp_path / "file" / "run", "read")
        assert "not a directory" in self.refused(tmp_path / "file" / "run", "write")

    @pytest.mark.parametrize("how", ["read", "write"])
    def test_a_run_of_a_later_version(self, path, how):
        play(path)
        (path / "state.json").write_text('{"steps": [], "format": 2}')
        assert "format 2" in self.refused(path, how)

    def test_a_record_of_a_later_version(self, path):
        play(path)
        with (path / "trajectories/batch_0000.jsonl").open("ab") as file:
            file.write(b'{"episode": "train/0003", "attempt": 1, "format": 2}\n')
        run = RunDirectory.open_for_reading(path)
        with pytest.raises(RunDirectoryError, match=r"line 4, has format 2"):
            run.trajectories("train", 0)

    @pytest.mark.parametrize("how", ["read", "write"])
    def test_no_permission_to_read(self, open_folder, how):
        path = open_folder / "run"
        play(path)
        path.chmod(0)
        try:
            line = as_nobody(path, how)
        finally:
            path.chmod(0o755)
        assert line.startswith(
            f"RunDirectoryError {path} cannot be used as a run's directory: permission denied"
        )

    @pytest.mark.skipif(os.geteuid() != 0, reason="the owner may always write")
    def test_no_permission_to_write(self, open_folder):
        path = open_folder / "run"
        play(path)
        for each in (path, *path.rglob("*")):  # as its owner may open it to others
            each.chmod(0o755)
        assert f"{path}/lock could not be written: permission denied" in as_nobody(path, "write")
        assert "permission denied" in as_nobody(open_folder / "new", "write")


RUN_FILES = ["episodes.jsonl", "requests.jsonl", "accounts.jsonl", "trajectories/batch_0000.jsonl"]
OTHERS = [
    "config.yaml",
    "state.json",
    "sleeps/0001.json",
    "policies/v0000/skills.py",
    "policies/v0000/library.json",
]


class TestLinksAndSpecialFiles:
    """A folder that somebody else has prepared, or that was copied from somewhere, does no harm."""

    @pytest.fixture
    def victim(self, tmp_path) -> Path:
        victim = tmp_path / "victim.jsonl"
        victim.write_text("what is\nnobody's business")
        return victim

    @pytest.mark.parametrize("name", ["extra.jsonl", "trajectories/extra.jsonl", *RUN_FILES])
    def test_a_resumed_run_changes_nothing_behind_a_link(self, path, victim, name):
        play(path)
        before = victim.read_bytes()
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(victim)
        with pytest.raises(
            StorageError, match=rf"{name} could not be repaired: it is a link, and links are not"
        ):
            open_run(path, "write")
        assert victim.read_bytes() == before

    @pytest.mark.parametrize("name", ["extra.jsonl", "trajectories/extra.jsonl", *RUN_FILES])
    def test_nor_in_a_file_of_two_names(self, path, victim, name):
        """As after `cp -al`: a run and its copy would change with each other."""
        play(path)
        before = victim.read_bytes()
        (path / name).unlink(missing_ok=True)
        (path / name).hardlink_to(victim)
        with pytest.raises(StorageError, match=rf"{name} could not be repaired: it has another name too"):
            open_run(path, "write")
        assert victim.read_bytes() == before

    @pytest.mark.parametrize("how", ["read", "write"])
    def test_a_state_behind_a_link_to_nowhere_is_not_an_empty_one(self, path, how):
        play(path)
        (path / "state.json").unlink()
        (path / "state.json").symlink_to("nowhere")
        with pytest.raises(StorageError, match="it is a link"):
            open_run(path, how)

    @pytest.mark.parametrize("folder", ["policies", "trajectories", "evaluations", "sleeps"])
    def test_nor_in_a_folder_behind_one(self, path, tmp_path, folder):
        play(path)
        (path / folder).rename(tmp_path / "moved")
        (tmp_path / "moved" / ".x.tmp").touch()
        (path / folder).symlink_to(tmp_path / "moved")
        with pytest.raises(StorageError, match=f"{folder} is a link, and links are not followed"):
            open_run(path, "write")
        assert (tmp_path / "moved" / ".x.tmp").exists()

    def test_leftovers_behind_a_link_stay(self, path, tmp_path):
        play(path)
        (tmp_path / ".theirs.tmp").touch()
        (path / "elsewhere").symlink_to(tmp_path)
        (path / ".linked.tmp").symlink_to(tmp_path)
        open_run(path, "write")
        assert (tmp_path / ".theirs.tmp").exists()
        assert not (path / ".linked.tmp").is_symlink()

    def test_a_file_in_preparation_is_not_written_through_a_link(self, path, victim):
        play(path)
        before = victim.read_bytes()
        with RunDirectory.open_for_writing(path) as run:
            temporary_name(path / "state.json").symlink_to(victim)
            run.mark_finished("sleep/0002")
            assert run.finished() == ["sleep/0001", "sleep/0002"]
        assert victim.read_bytes() == before

    def test_nothing_is_appended_through_a_link(self, path, victim):
        play(path)
        before = victim.read_bytes()
        with RunDirectory.open_for_writing(path) as run:
            for name in ("requests.jsonl", "trajectories/batch_0000.jsonl"):
                (path / name).unlink()
                (path / name).symlink_to(victim)
            for append in (
                lambda: run.append_request(request()),
                lambda: run.append_trajectory(
                    "train", 0, trajectory("train/9")
                ),  # which waits for the ledger first
            ):
                with pytest.raises(StorageError, match=r"requests.jsonl could not be written: it is a link"):
                    append()
        assert victim.read_bytes() == before

    @pytest.mark.parametrize("name", [*RUN_FILES, *OTHERS])
    @pytest.mark.parametrize("kind", ["a link to /dev/zero", "a FIFO", "a socket", "a folder"])
    def test_reading_what_is_no_file_is_one_line_and_never_waits(self, path, name, kind):
        play(path)
        (path / name).unlink(missing_ok=True)
        if kind == "a FIFO":
            os.mkfifo(path / name)
        elif kind == "a socket":
            os.mknod(path / name, stat.S_IFSOCK | 0o600)
        elif kind == "a folder":
            (path / name).mkdir()
        else:
            (path / name).symlink_to("/dev/zero")
        with pytest.raises(
            StorageError, match=r"it is a link|it is no regular file|is a directory"
        ) as raised:
            self.read_all(path)
        assert name in str(raised.value)
        assert "\n" not in str(raised.value)

    @staticmethod
    def read_all(path: Path) -> None:
        run = RunDirectory.open_for_reading(path)
        run.trajectories("train", 0), run.episodes(), run.requests(), run.accounts(), run.sleeps()
        run.policies.load(0)

    def test_a_file_larger_than_the_memory_is_one_line(self, path):
        play(path)
        os.truncate(path / "requests.jsonl", 2**33)
        program = (
            "import resource, sys; from pathlib import Path;"
            "from speedrunner.store.files import read_content;"
            "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); read_content(Path(sys.argv[1]))"
        )
        run = subprocess.run(
            [sys.executable, "-c", program, path / "requests.jsonl"], capture_output=True, text=True
        )
        assert run.stderr.endswith("requests.jsonl could not be read: it is larger than the memory\n")

    def test_all_of_it_is_its_owners_alone(self, path):
        umask = os.umask(0)
        try:
            play(path)
        finally:
            os.umask(umask)
        for each in (path, *path.rglob("*")):
            assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600), each
