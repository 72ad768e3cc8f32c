"""The history that a learner may read."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from envs import Outcome
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.files import StorageError
from speedrunner.store.history import History, copy_history
from speedrunner.store.records import Policy, Termination
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.run_samples import sleep, trajectory


def make_run(path: Path, family: int, batches: int = 2, start_from: Path | None = None) -> RunData:
    """Make a run of two episodes a batch, with a sleep after each batch, and one held-out episode."""
    with RunDirectory.open_for_writing(path) as run:
        run.write_config(f"env:\n  name: scienceworld\n  family: {family}\n  seed: 42\n")
        if start_from is not None:
            source = load(start_from)
            run.carry_history(source, source.policies.versions()[-1])
        run.write_policy(Policy(version=0))
        for batch in range(batches):
            for number in (2 * batch + 1, 2 * batch):  # the order in which they ended
                played = trajectory(f"train/{number:04d}", policy=batch)
                run.append_trajectory("train", batch, played)
                run.append_episode(summarize_episode(played, "train", 2 * batch))
            run.write_sleep(sleep(batch + 1))
            run.write_policy(Policy(version=batch + 1, notes=f"family {family}"))
        run.append_trajectory("test", 0, trajectory("test/0000/0000", text="held out"))
    return load(path)


class TestTheHistoryOfOneRun:
    def test_has_training_episodes_in_the_order_of_their_tasks_and_no_held_out_one(
        self, tmp_path: Path
    ) -> None:
        history = History(make_run(tmp_path / "run", 3))
        assert (history.batches(), history.count()) == ([0, 1], 4)
        assert [each.episode for each in history.batch(1)] == ["train/0002", "train/0003"]
        assert {each.policy for each in history.batch(1)} == {1}
        assert (history.earlier, history.environment) == ([], "")

    def test_has_the_means_of_a_batch_s_scored_episodes(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", 3)
        lost = trajectory("train/0004", policy=1, termination=Termination.ENGINE_ERROR, outcome=None)
        half = trajectory("train/0005", policy=1, turns=[], outcome=Outcome(0.5, False, {}))
        with RunDirectory.open_for_writing(run.path) as directory:
            for episode in (lost, half):
                directory.append_episode(summarize_episode(episode, "train", 0))
        calls = len(trajectory("train/0000").turns)
        history = History(load(run.path))
        assert (history.means(0), history.means(2)) == ((1.0, calls), None)
        assert history.means(1) == pytest.approx((2.5 / 3, 2 * calls / 3))


class TestWhatIsSeenOfAnOutcome:
    @pytest.mark.parametrize(("sees", "detail"), [("score", {}), ("detail", {"steps": 3})])
    def test_is_one_setting_for_records(self, tmp_path: Path, sees, detail) -> None:
        (first, _) = History(make_run(tmp_path / "run", 3), sees).batch(0)
        assert first.outcome is not None
        assert (first.outcome.score, first.outcome.success, first.outcome.detail) == (1.0, True, detail)

    @pytest.mark.parametrize("sees", ["score", "detail"])
    def test_and_for_the_files_that_code_reads(self, tmp_path: Path, sees) -> None:
        run = make_run(tmp_path / "run", 3)
        with RunDirectory.open_for_writing(run.path) as directory:
            played_again = sleep(2)
            played_again.episodes = [trajectory("sleep/0002/again/0000")]
            directory.write_sleep(played_again)
        expected = {"score": 1.0, "success": True} | ({"detail": {"steps": 3}} if sees == "detail" else {})
        folders = History(run, sees).files()
        lines = [json.loads(line) for line in (folders["trajectories"] / "batch_0000.jsonl").open()]
        record = json.loads((folders["sleeps"] / "0002.json").read_text())
        texts = [file.read_text() for folder in folders.values() for file in folder.rglob("*.*")]
        outcomes = [each["outcome"] for each in (*lines, *record["attempts"])]
        assert outcomes == [expected] * 3
        assert any('"detail"' in text for text in texts) == (sees == "detail")
        original = (run.path / "trajectories/batch_0000.jsonl").read_text().splitlines()
        assert [each | {"outcome": None} for each in lines] == [
            json.loads(line) | {"outcome": None} for line in original
        ]

    def test_copies_of_an_earlier_sleep_are_kept_and_those_of_a_newer_batch_are_added(
        self, tmp_path: Path
    ) -> None:
        run, copies = make_run(tmp_path / "run", 3, batches=1), tmp_path / "copies"
        History(run, copies=copies).files()
        (copies / "trajectories/batch_0000.jsonl").write_text("kept")
        with RunDirectory.open_for_writing(run.path) as directory:
            directory.append_trajectory("train", 1, trajectory("train/0002", policy=1))
            directory.write_sleep(sleep(2))  # killed before its policy was there
        folders = History(load(run.path), copies=copies).files()
        assert (folders["trajectories"] / "batch_0000.jsonl").read_text() == "kept"
        assert (folders["trajectories"] / "batch_0001.jsonl").exists()
        assert [path.stem for path in folders["sleeps"].iterdir()] == ["0001"]


class TestACarriedHistory:
    @pytest.fixture
    def second(self, tmp_path: Path) -> RunData:
        make_run(tmp_path / "first", 3)
        return make_run(tmp_path / "second", 4, batches=1, start_from=tmp_path / "first")

    def test_comes_before_the_run_s_own(self, second: RunData) -> None:
        history = History(second)
        assert (history.batches(), history.count()) == ([-2, -1, 0], 6)
        assert [each.policy for each in history.batch(-2)] == [-2, -2]
        assert [record.sleep for record in history.sleeps(1, 5)] == [-1, 0]
        assert [record.sleep for record in history.sleeps(2, 2)] == [0, 1]
        assert history.earlier == ["scienceworld family=3"]
        assert history.environment == "scienceworld family=4"

    def test_has_nothing_held_out(self, second: RunData) -> None:
        carried = second.path / "carried"
        assert [path.name for path in carried.iterdir()] == ["0000"]
        assert {path.name for path in (carried / "0000").iterdir()} == {
            *("config.yaml", "trajectories", "policies", "sleeps")
        }
        folders = History(second).files()
        texts = [file.read_text() for folder in folders.values() for file in folder.rglob("*.*")]
        assert not any("held out" in text for text in texts)

    def test_names_each_episode_s_environment_in_the_files_that_code_reads(self, second: RunData) -> None:
        folders = History(second).files()
        played = {
            file.stem: {(each["environment"], each["policy"]) for each in map(json.loads, file.open())}
            for file in folders["trajectories"].iterdir()
        }
        versions = {path.name for path in folders["policies"].iterdir()}
        index = json.loads((folders["policies"] / "v-002" / "library.json").read_text())
        sleeps = {path.stem for path in folders["sleeps"].iterdir()}
        assert played == {
            "batch_-002": {("scienceworld family=3", -2)},
            "batch_-001": {("scienceworld family=3", -1)},
            "batch_0000": {("scienceworld family=4", 0)},
        }
        assert versions == {"v-002", "v-001", "v0000", "v0001"}
        assert index["version"] == -2
        assert sleeps == {"-001", "0000", "0001"}

    def test_includes_what_the_earlier_run_had_carried(self, second: RunData, tmp_path: Path) -> None:
        third = History(make_run(tmp_path / "third", 3, batches=1, start_from=second.path))
        assert third.batches() == [-3, -2, -1, 0]
        assert third.earlier == ["scienceworld family=3", "scienceworld family=4"]

    def test_is_the_owner_s_alone(self, second: RunData) -> None:
        carried = [path for path in (second.path / "carried").rglob("*") if path.is_file()]
        policies = [path for path in History(second).files()["policies"].rglob("*") if path.is_file()]
        assert {path.stat().st_mode & 0o777 for path in (*carried, *policies)} == {0o600}

    def test_that_fills_the_disk_is_refused_with_what_to_do(
        self, second: RunData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def copy(source: Path, target: Path, **_: object) -> None:
            if "policies" in Path(source).parts:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("shutil.copyfile", copy)
        for refused in (History(second).files, lambda: copy_history(second, 1, tmp_path / "copy")):
            with pytest.raises(StorageError, match="the disk is full: free some space"):
                refused()

    def test_ends_where_the_run_started(self, second: RunData, tmp_path: Path) -> None:
        copy_history(load(tmp_path / "first"), 1, tmp_path / "carried")
        copied = {
            str(file.relative_to(tmp_path / "carried/0000")) for file in tmp_path.glob("carried/0000/*/*")
        }
        assert copied == {"trajectories/batch_0000.jsonl", "policies/v0000", "sleeps/0001.json"}
