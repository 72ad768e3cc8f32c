"""Exported runs, opened by the readers of each format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import msgspec
import pandas
import pytest
from huggingface_hub import DatasetCard

from speedrunner.cli.export_command import Format
from speedrunner.results.export.conversations import of_episode
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.files import is_leftover
from speedrunner.store.records import Termination, Trajectory
from speedrunner.store.run_data import RunData, load
from tests.scripted_runs import ScriptedRun, complaint, in_process
from tests.speedrunner.store.test_stored_format import STORED

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def run(learnt: ScriptedRun, tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """4 training episodes, 2 sleeps, 3 evaluations of 2 episodes, the first of which ended by a fault."""
    data = load(Path(shutil.copytree(learnt.dir, tmp_path_factory.mktemp("export") / "run")))
    file = data.path / "evaluations" / "0000.jsonl"
    first, *others = file.read_bytes().splitlines(keepends=True)
    broken = msgspec.structs.replace(
        msgspec.json.decode(first, type=Trajectory),
        termination=Termination.ENVIRONMENT_ERROR,
        outcome=None,
        error="The world broke.\nTraceback ...",
    )
    file.write_bytes(msgspec.json.encode(broken) + b"\n" + b"".join(others))
    data.files.state.write_text('{"format": 3, "secret": "s"}')  # the line is shorter than its size there
    rows = [
        summarize_episode(broken, "test", 0) if row.episode == broken.episode else row for row in data.rows
    ]
    (data.path / "episodes.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return load(data.path)


@pytest.fixture(scope="module")
def dataset(run: RunData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dataset") / "out"
    twice = (str(run.path), str(run.path / ".." / run.path.name))
    done = in_process("export", *twice, "--to", "dataset", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "4 conversations in train, 6 conversations in test, 2 conversations in sleep of 1 run written to"
        f" {out}\n"
    )
    return out


def split(dataset: Path, name: str) -> pandas.DataFrame:
    return pandas.read_parquet(dataset / "data" / f"{name}-00000-of-00001.parquet")


class TestADataset:
    def test_has_a_row_for_each_conversation_with_all_that_was_told(
        self, run: RunData, dataset: Path
    ) -> None:
        rows = split(dataset, "train").set_index("episode")
        for trajectory in run.trajectories():
            row = rows.loc[trajectory.episode]
            messages = [message for turn in trajectory.turns for message in (*turn.messages, turn)]
            assert [each["content"] for each in row.messages] == [
                getattr(each, "content", getattr(each, "text", None)) for each in messages
            ]
            assert [each["call"]["name"] for each in row.messages if each["role"] == "assistant"] == [
                turn.call.name for turn in trajectory.turns if turn.call
            ]
            assert row.prompt_tokens == trajectory.usage.prompt
            assert (row.score, row.success, row.termination) == (1.0, True, "success")

    def test_has_all_that_a_training_with_another_template_needs(self, run: RunData, dataset: Path) -> None:
        row = split(dataset, "train").iloc[0]
        tools = [json.loads(text) for text in row.tools]
        played = next(iter(run.trajectories()))
        called = {turn.call.name for turn in played.turns if turn.call}
        assert called <= {tool["function"]["name"] for tool in tools}
        assert [message["weight"] for message in row.messages] == [
            weight for turn in played.turns for weight in (*([0] * len(turn.messages)), int(bool(turn.call)))
        ]

    def test_keeps_arguments_as_json(self, dataset: Path) -> None:
        calls = [each["call"] for each in split(dataset, "train").messages[0] if each["call"]]
        assert json.loads(calls[0]["arguments"]) == {"steps": 1}

    def test_leaves_the_score_of_a_fault_open(self, dataset: Path) -> None:
        rows = split(dataset, "test")
        assert rows.score.isna().sum() == 1
        assert rows[rows.score.isna()].termination.tolist() == ["environment_error"]

    def test_holds_what_the_inducer_wrote(self, dataset: Path) -> None:
        rows = split(dataset, "sleep")
        assert rows.episode.tolist() == ["sleep/0001", "sleep/0002"]
        assert set(rows.role) == {"inducer"}
        assert rows.messages[0][2]["call"]["name"] == "write_skill"

    def test_has_a_card_that_the_hubs_own_reader_takes(self, run: RunData, dataset: Path) -> None:
        card = DatasetCard.load(dataset / "README.md")
        assert (card.data.license, card.data.pretty_name) == ("other", "Episodes of LLM agents")
        (config,) = card.data.configs
        assert config["data_files"] == [
            {"split": name, "path": f"data/{name}-*"} for name in ("train", "test", "sleep")
        ]
        assert run.digest in card.content
        assert (dataset / "configurations/run.yaml").read_text() == run.config_text

    def test_says_in_its_card_what_the_model_configs_warn_of(self, tmp_path: Path) -> None:
        done = in_process("export", str(STORED), "--to", "dataset", "--out", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        assert "\ntiny: a teaching model" in (tmp_path / "out" / "README.md").read_text()

    def test_names_runs_without_the_folders_above_them(
        self, run: RunData, dataset: Path, tmp_path: Path
    ) -> None:
        assert set(split(dataset, "train").run) == {"run"}
        both = [str(shutil.copytree(run.path, tmp_path / "runs" / each / "demo")) for each in "ab"]
        out = tmp_path / "out"
        assert in_process("export", *both, "--to", "dataset", "--out", str(out)).returncode == 0
        names = ["runs_a_demo", "runs_b_demo"]
        assert sorted(set(split(out, "sleep").run)) == names
        assert sorted(each.stem for each in (out / "configurations").iterdir()) == names
        card = (out / "README.md").read_text()
        assert "\nRuns: runs_a_demo, runs_b_demo.\n" in card
        assert all(f"\n- {name}: " in card for name in names)

    def test_takes_no_name_for_markup(self, run: RunData, tmp_path: Path) -> None:
        hostile = shutil.copytree(run.path, tmp_path / "[a](b)<script>\n\x1b[2J")
        done = in_process("export", str(hostile), "--to", "dataset", "--out", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        model_config = (tmp_path / "out" / "README.md").read_text()
        assert "\nRuns: &#91;a&#93;(b)&#60;script&#62; &#92;x1b&#91;2J.\n" in model_config


@pytest.fixture(scope="module")
def logs(run: RunData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("inspect") / "out"
    done = in_process("export", str(run.path), "--to", "inspect", "--out", str(out))
    assert (done.returncode, done.stdout) == (0, f"3 logs of 1 run written to {out}\n")
    return out


class TestInspect:
    def test_its_own_reader_opens_a_log_of_each_evaluation(self, run: RunData, logs: Path) -> None:
        from inspect_ai.log import list_eval_logs, read_eval_log

        names = sorted(Path(each.name).name for each in list_eval_logs(str(logs)))
        assert names == [f"{run.path.name}-{point:04d}.eval" for point in (0, 2, 4)]
        log = read_eval_log(str(logs / names[2]))
        assert (log.status, log.eval.dataset.samples) == ("success", 2)
        assert log.results is not None
        assert log.results.scores[0].metrics["mean"].value == 1.0
        assert log.samples is not None
        played = {f"{each.task.name}/{each.task.index}": each for each in run.evaluations(4)}
        for sample in log.samples:
            trajectory = played[str(sample.id)]
            (conversation,) = of_episode(trajectory)
            assert [message.role for message in sample.messages] == [
                role
                for turn in conversation.turns
                for role in (*(message.role for message in turn.messages), "assistant")
            ]
            (usage,) = sample.model_usage.values()
            assert usage.total_tokens == trajectory.usage.prompt + trajectory.usage.completion
            assert usage.input_tokens_cache_read == trajectory.usage.cached

    def test_a_task_has_one_id_in_the_logs_of_all_checkpoints(self, run: RunData, logs: Path) -> None:
        from inspect_ai.log import read_eval_log

        opened = [read_eval_log(str(file)) for file in sorted(logs.glob("*.eval"))]
        tasks = [{sample.id for sample in log.samples or []} for log in opened]
        assert tasks[0] == tasks[1] == tasks[2]
        assert [log.eval.task_args["checkpoint"] for log in opened] == [0, 2, 4]
        assert {log.eval.task_args["run"] for log in opened} == {run.path.name}

    def test_inspects_own_frames_open_messages_and_events(self, run: RunData, logs: Path) -> None:
        from inspect_ai.analysis import EventInfo, ToolEventColumns, events_df, messages_df

        log = str(logs / f"{run.path.name}-0004.eval")
        turns = [turn for played in run.evaluations(4) for turn in played.turns]
        messages = messages_df(log, quiet=True)
        assert (messages.role == "assistant").sum() == len(turns)
        events = events_df(log, quiet=True)
        assert events.event.tolist() == ["model", "tool"] * len(turns)
        calls = events_df(
            log,
            columns=[*EventInfo, *ToolEventColumns],
            filter=lambda event: event.event == "tool",
            quiet=True,
        )
        assert calls.tool_event_function.tolist() == [turn.call.name for turn in turns if turn.call]

    def test_an_episode_that_a_fault_ended_has_an_error_and_no_score(self, run: RunData, logs: Path) -> None:
        from inspect_ai.log import read_eval_log

        log = read_eval_log(str(logs / f"{run.path.name}-0000.eval"))
        assert log.samples is not None
        (broken,) = (each for each in log.samples if each.error)
        assert (broken.error and broken.error.message, broken.scores) == ("The world broke.", None)
        assert log.results is not None
        (score,) = log.results.scores
        assert (log.results.total_samples, log.results.completed_samples) == (2, 1)
        assert (score.scored_samples, score.unscored_samples) == (1, 1)


def test_nothing_is_written_over_or_half(
    run: RunData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = ("export", str(run.path), "--to", "dataset", "--out", str(out))
    out.mkdir()
    (out / "mine").touch()
    assert "out could not be written: it exists and is not an empty folder" in complaint(in_process(*command))
    (out / "mine").unlink()
    monkeypatch.setattr("speedrunner.results.export.dataset.CARD", tmp_path / "nothing")
    assert "no such file or directory" in complaint(in_process(*command))
    assert (list(tmp_path.iterdir()), list(out.iterdir())) == ([out], [])


@pytest.mark.parametrize(("below", "given"), [("", "."), ("sleeps", "..")])
def test_a_run_without_a_name_in_its_path_gets_that_of_its_folder(
    below: str, given: str, run: RunData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.path / below)
    done = in_process("export", given, "--to", "atif", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (0, "")
    assert [each.name for each in tmp_path.rglob("*") if each.is_dir()] == ["out", "run"]


@pytest.mark.parametrize("to", get_args(Format))
def test_a_killed_export_leaves_no_folder_that_looks_complete(
    to: str, run: RunData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    trust = ("--trust", "tests.toy_env:Corridor")
    command = ("export", str(run.path), "--to", to, "--out", str(out), *trust)
    with monkeypatch.context() as patched:
        # As a kill would end it, after everything is written and before the folder has its name.
        patched.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(SystemExit(9)))
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        assert in_process(*command).returncode == 9
    (left,) = tmp_path.iterdir()
    assert is_leftover(left)
    assert in_process(*command).returncode == 0
    assert list(tmp_path.iterdir()) == [out]
    assert any(each.is_file() for each in out.rglob("*"))


@pytest.mark.parametrize("to", ["dataset", "inspect", "atif"])
def test_a_damaged_run_is_named_and_nothing_is_written(to: str, run: RunData, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "runs" / "whole")
    broken = shutil.copytree(run.path, tmp_path / "runs" / "broken")
    (broken / "config.yaml").write_text("[")
    command = ("export", str(tmp_path / "runs"), "--to", to, "--out", str(tmp_path / "out"))
    assert str(broken) in complaint(in_process(*command))
    assert not (tmp_path / "out").exists()


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    done = in_process("export", str(tmp_path), "--to", "dataset", "--out", str(tmp_path / "out"))
    assert complaint(done).endswith(f"no run found in {tmp_path}")
