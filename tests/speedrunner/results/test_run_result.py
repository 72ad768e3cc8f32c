"""One run in numbers, against ones worked out by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from speedrunner.config.names import Setting
from speedrunner.results.run_result import Summary, summarise
from tests.speedrunner.results.small_runs import SLEEP_USD, TURN_USD, SmallRun, learnt


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return summarise(learnt(tmp_path_factory.mktemp("learnt") / "run").path, None)


def test_it_is_called_by_its_setting_and_seed(summary: Summary) -> None:
    assert (summary.setting, summary.seed) == (Setting("babyai", "speedrunner", "tiny-random"), 0)


def test_means_are_over_the_test_episodes_of_a_checkpoint(summary: Summary) -> None:
    assert {point: at.mean("score") for point, at in summary.checkpoints.items()} == {
        0: 0.25,
        2: 0.75,
        4: 1.0,
    }
    last = summary.checkpoints[4]
    means = [last.mean(name) for name in ("llm_calls", "actions", "uncached", "cached", "output")]
    assert means == [1, 4, 40, 60, 20]
    assert summary.last == last


def test_cost_is_the_actor_s_and_a_share_of_the_sleep_that_made_the_policy(summary: Summary) -> None:
    assert summary.checkpoints[0].mean("cost_usd") == pytest.approx(TURN_USD)
    assert summary.checkpoints[2].mean("cost_usd") == pytest.approx(TURN_USD + SLEEP_USD / 2)
    assert summary.checkpoints[2].mean("actor_usd") == pytest.approx(TURN_USD)


def test_training_rollouts_are_a_second_curve(summary: Summary) -> None:
    assert summary.checkpoints[0].training_usd is None
    assert summary.checkpoints[2].training_usd == pytest.approx(2 * TURN_USD + SLEEP_USD / 2)
    assert summary.checkpoints[4].training_usd == pytest.approx(1.5 * TURN_USD + SLEEP_USD / 2)


def test_libraries_are_those_of_the_policies(summary: Summary) -> None:
    found = {point: (at.library.functions, at.library.max_depth) for point, at in summary.checkpoints.items()}
    assert found == {0: (0, 0), 2: (2, 1), 4: (1, 0)}


def test_sleeps_have_their_tokens_and_prefix(summary: Summary) -> None:
    first, second = summary.sleeps
    assert (first.uncached, first.cached, first.output, first.llm_calls) == (1000, 0, 100, 1)
    assert first.cost_usd == pytest.approx(SLEEP_USD)
    assert first.prefix is not None
    assert second.prefix is None


def test_endings_are_counted_by_checkpoint(summary: Summary) -> None:
    assert summary.endings == Counter(
        {(phase, point, "submitted"): 2 for phase, point in
         (("test", 0), ("test", 2), ("test", 4), ("train", 0), ("train", 2))}
    )  # fmt: skip


def test_what_a_fault_ended_is_played_and_not_tested(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.test(0, 0, [None, 0.5])
    at = summarise(run.path, None).checkpoints[0]
    assert (at.played, len(at.tested), at.mean("score")) == (2, 1, 0.5)


def test_an_evaluation_in_the_middle_is_left_out(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "run")
    run.policy(0, {})
    run.test(0, 0, [0.5, 0.5])
    run.test(2, 0, [0.5])
    found = summarise(run.path, None)
    assert (list(found.checkpoints), found.unfinished) == ([0], [2, 4])
