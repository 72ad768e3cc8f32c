"""Curves beside a run: what they hold, read back by their own readers, and that they never stop a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner import optional as optional_packages
from speedrunner.runs import tracker_curves
from speedrunner.store.run_data import RunData, load
from tests.scripted_engine import ScriptedEngine
from tests.scripted_runs import LEARN, SCHEDULE, ScriptedRun, complaint, in_process, roomy, script, walker

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> RunData:
    folder = tmp_path_factory.mktemp("curves")
    with ScriptedEngine(tiny_tokenizer, script(walker, LEARN)) as engine:
        played = ScriptedRun(folder, roomy(tiny_model_config), engine)
        done = in_process("run", *SCHEDULE, *played.arguments, f"run.dir={folder / 'run'}", "logging=both")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no more curves" not in done.stdout
    return load(folder / "run")


def test_tensorboard_reads_a_point_for_each_step(run: RunData) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    found = {
        tag: [(each.step, round(each.value, 3)) for each in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    assert sorted(found["test/score"]) == [(0, 1.0), (2, 1.0), (4, 1.0)]
    assert found["train/score"] == [(2, 1.0), (4, 1.0)]
    assert found["sleep/skills"] == [(2, 1.0), (4, 1.0)]
    assert found["sleep/accepted"] == [(2, 1.0), (4, 0.0)]
    rows = [row for row in run.episodes if row.phase == "train" and row.checkpoint == 0]
    mean = sum(row.usage.completion for row in rows) / len(rows)
    assert found["train/output"][0][1] == pytest.approx(mean, abs=0.01)
    assert found["test/usd"][0][1] > 0


def test_wandb_has_an_offline_run_with_the_configuration(run: RunData) -> None:
    (folder,) = (run.path / "wandb").glob("offline-run-*")
    (file,) = folder.glob("*.wandb")
    content = file.read_bytes()
    for words in (b"test/score", b"sleep/skills", b"rollouts"):
        assert words in content


def test_one_that_fails_is_told_once_and_the_run_goes_on(
    tmp_path: Path,
    tiny_model_config: ModelConfig,
    tiny_tokenizer: ChatTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(tracker_curves.TensorBoard, "log", full)
    with ScriptedEngine(tiny_tokenizer, script(walker)) as engine:
        played = ScriptedRun(tmp_path, roomy(tiny_model_config), engine)
        settings = ("method=react", "run.rollouts=0", "logging=tensorboard", f"run.dir={tmp_path / 'run'}")
        given = {each.partition("=")[0]: each for each in (*SCHEDULE, *played.arguments, *settings)}
        done = in_process("run", *given.values())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("warning: stopped writing curves for tensorboard: OSError: disk full") == 1
    assert len(load(tmp_path / "run").episodes) == 2


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_package_that_is_missing_is_told_before_anything_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(optional_packages, "import_module", missing)
    done = in_process("run", f"logging={name}", "model=tiny-random", f"run.dir={tmp_path / 'run'}")
    assert f"logging={name} needs the package {name}, which is not installed" in complaint(done)
    assert not (tmp_path / "run" / "config.yaml").exists()
