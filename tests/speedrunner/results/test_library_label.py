"""The measured label of a library, with figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.results.conditions import RunGroup
from speedrunner.results.evaluated_run import frame_run
from speedrunner.results.library_label import MEASURES, label_library
from speedrunner.results.paired import estimate_difference
from speedrunner.store.run_data import load
from speedrunner.store.stored_run import RunDirectoryError
from tests.speedrunner.results.small_runs import TURN, SmallRun, learnt


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    learnt(path)
    return path


def test_it_compares_the_last_evaluation_of_the_version_with_the_first_without_skills(run: Path) -> None:
    data = load(run)
    label = label_library(data, data.policies.load(2))
    assert label.with_library is not None
    assert label.without is not None
    assert (label.with_library.policy, label.with_library.checkpoint, label.with_library.episodes) == (
        2,
        4,
        2,
    )
    assert (label.without.policy, label.without.checkpoint, label.without.episodes) == (0, 0, 2)
    assert label.with_library.means["score"].mean == 1.0
    assert label.without.means["score"].mean == 0.25
    assert label.with_library.means["success"].mean == 1.0
    assert label.without.means["success"].mean == 0.0
    assert label.without.means["output tokens"].mean == TURN.completion
    assert label.saved["output tokens"].mean == 0.0


def test_its_savings_are_those_of_the_comparison_of_runs(run: Path) -> None:
    data = load(run)
    evaluated = frame_run(data)
    side = RunGroup(evaluated.condition_name, {0: evaluated}, "run")
    label = label_library(data, data.policies.load(1))
    for name, saved in label.saved.items():
        assert saved == estimate_difference(side, side, (2, 0), MEASURES[name])
    assert set(label.saved) == {
        *("LLM calls", "actions", "uncached prompt tokens", "cached prompt tokens", "output tokens")
    }


def test_it_names_what_the_run_was_played_with(run: Path) -> None:
    data = load(run)
    label = label_library(data, data.policies.load(1), certificate="abc")
    assert (label.run, label.version, label.public, label.skills) == ("run", 1, 1, 2)
    assert (label.env, label.method, label.model, label.inducer) == (
        *("babyai", "speedrunner", "tiny-random", "tiny-random"),
    )
    assert label.run_sha256 == data.state.digest
    assert label.env_digests == data.processes[-1].env
    assert label.certificate == "abc"
    assert label.licence == "Written by the model tiny-random, under the terms of this model"
    assert label_library(data, data.policies.load(1), "CC0-1.0").licence == "CC0-1.0"


def test_what_was_not_played_is_not_measured(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {"home": "return walk()"})
    run.test(0, 0, [1.0, 1.0])
    run.policy(1, {"home": "return walk()", "away": "return walk()"})
    run.test(2, 1, [1.0])  # of two planned
    data = load(tmp_path / "run")
    label = label_library(data, data.policies.load(1))
    assert (label.with_library, label.without, label.saved) == (None, None, {})


def test_a_run_whose_records_were_changed_is_refused(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    file = tmp_path / "run/episodes.jsonl"
    file.write_text(file.read_text().replace('"score":0.5', '"score":1.0'))
    data = load(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match=r"episodes.jsonl does not match its checksum.* verify"):
        label_library(data, data.policies.load(2))


def test_records_without_a_checksum_are_named(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    with (tmp_path / "run/episodes.jsonl").open("a") as file:
        file.write("\n")
    data = load(tmp_path / "run")
    label = label_library(data, data.policies.load(2))
    assert label.caveats[-1:] == ["1 bytes of episodes.jsonl have no checksum"]
