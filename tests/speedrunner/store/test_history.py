"""What an inducer may read."""

from __future__ import annotations

from pathlib import Path

from speedrunner.store.history import History
from speedrunner.store.records import Policy
from speedrunner.store.rundir import RunDirectory
from tests.speedrunner.run_samples import trajectory


def test_it_holds_training_episodes_in_the_order_of_their_tasks_and_no_held_out_one(tmp_path: Path) -> None:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        run.write_policy(Policy(version=0))
        run.write_policy(Policy(version=1, notes="mind the gap"))
        for batch, number in ((0, 1), (0, 0), (1, 3), (1, 2)):  # the order in which they ended
            run.append_trajectory(batch, trajectory(f"train/{number:04d}", policy=batch))
        run.append_evaluation(0, trajectory("test/0000/0000"))
        history = History(run)
        assert history.batches() == [0, 1]
        assert history.count() == 4
        assert [each.episode for each in history.batch(1)] == ["train/0002", "train/0003"]
        assert [(each.episode, each.policy) for each in history.trajectories()] == [
            ("train/0000", 0),
            ("train/0001", 0),
            ("train/0002", 1),
            ("train/0003", 1),
        ]
        assert history.policy(1).notes == "mind the gap"


def test_counting_decodes_nothing_and_leaves_out_a_torn_tail(tmp_path: Path) -> None:
    with RunDirectory.open_for_writing(tmp_path / "run") as run:
        history = History(run)
        assert history.count() == 0
        (history.folders["trajectories"] / "batch_0000.jsonl").write_text('{"any": 1}\n{"thing": 2}\n{"epis')
        assert history.count() == 2
