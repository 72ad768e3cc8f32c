"""Runs and conditions compared, paired by seed and task, with numbers worked out by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest
import yaml

from envs import Outcome, Task
from serving.model_configs import load_model_config
from serving.usage import Prices, Usage
from speedrunner.config.schema import InvalidConfig
from speedrunner.results.conditions import Condition
from speedrunner.results.inference import Estimate
from speedrunner.results.ledger import run_costs
from speedrunner.results.pairing import (
    CannotCompare,
    Compared,
    compare,
    estimate_difference,
    note_run,
    pair_runs,
    split_conditions,
)
from speedrunner.results.pricing import PriceBook
from speedrunner.results.run_result import RunResult, frame_run
from speedrunner.store.records import Policy, Termination
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.golden_tables import Golden, refusals
from tests.speedrunner.results.ledgers import play
from tests.speedrunner.results.small_runs import SmallRun
from tests.speedrunner.run_samples import process

BOOK = PriceBook("a list", Prices(uncached=1.0, cached=0.5, output=10.0))
CONFIG = {
    "run": {"dir": "x", "rollouts": 10, "eval_every": 10, "test_episodes": 2},
    "env": {"name": "babyai", "num_dists": 3},
    "method": {"name": "react"},
    "model": {"name": "tiny-random"},
}

USUAL = Usage(100, 60, 20, 5)

Scores = dict[int, dict[int, float | None]]
"""By checkpoint and the task's index."""


def run(path: Path, scores: Scores, usage: Usage = USUAL, **changes: object) -> RunData:
    """A run that has these scores on test tasks; `None` for an episode that broke."""
    with RunDirectory.open_for_writing(path) as directory:
        directory.write_config(yaml.safe_dump(CONFIG | changes))
        directory.write_policy(Policy(version=0))
        for point, each in scores.items():
            for number, (index, score) in enumerate(each.items()):
                end: dict[str, object] = {"outcome": None, "termination": Termination.ENGINE_ERROR}
                if score is not None:
                    end = {"outcome": Outcome(score, score == 1, {}), "termination": Termination.SUBMITTED}
                task = Task("babyai", "go", index)
                play(directory, f"test/{point:04d}/{number:04d}", usage, task=task, **end)
    return load(path)


def frames(*runs: RunData, book: PriceBook = BOOK) -> list[RunResult]:
    return [frame_run(each, run_costs(each, book)) for each in runs]


def compared(*runs: RunData, book: PriceBook = BOOK) -> list[Compared]:
    return compare(split_conditions(frames(*runs, book=book)))


def notes(*runs: RunData, book: PriceBook = BOOK) -> list[str]:
    first, *others = frames(*runs, book=book)
    return [line for each in (first, *others) for line in note_run(each, first)]


def find(found: list[Compared], run: RunData, rollouts: int, metric: str) -> Compared:
    wanted = (str(run.path), rollouts, metric)
    return next(row for row in found if (row.side.first.path, row.rollouts, row.measure.name) == wanted)


SAME: Scores = {0: {1: 0.0, 2: 0.5}, 10: {1: 0.0, 2: 1.0}}


def test_scores_are_means_and_their_differences_are_paired_by_task(tmp_path: Path) -> None:
    one = run(tmp_path / "one", SAME)
    # The same tasks in another order: each is 0.5 better.
    other = run(tmp_path / "other", {0: {2: 1.0, 1: 0.5}, 10: {2: 1.0, 1: 1.0}})
    found = compared(one, other)
    assert notes(one, other) == []
    around = find(found, one, 0, "score").mean
    assert around is not None
    assert (around.mean, around.ends) == (
        0.25,
        pytest.approx((0.25 - 12.706 / 4, 0.25 + 12.706 / 4), abs=1e-3),
    )
    assert find(found, one, 0, "score").difference is None
    assert find(found, other, 0, "score").difference == Estimate(0.5, None, None, 2)  # equal
    changed = find(found, other, 10, "score").difference
    assert changed is not None
    assert (changed.mean, changed.count) == (0.5, 2)
    assert changed.ends is not None


def test_tokens_and_usd_are_of_each_class_per_test_episode(tmp_path: Path) -> None:
    one = run(tmp_path / "one", SAME)
    other = run(tmp_path / "other", SAME, Usage(100, 90, 10))
    found = compared(one, other)
    means, differences = (
        {
            metric: getattr(find(found, other, 10, metric), kind).mean
            for metric in ("score", "llm_calls", "uncached", "cached", "output", "usd")
        }
        for kind in ("mean", "difference")
    )
    # (10 * 1 + 90 * 0.5 + 10 * 10) millionths against (40 * 1 + 60 * 0.5 + 20 * 10)
    assert means == pytest.approx(
        {"score": 0.5, "llm_calls": 1, "uncached": 10, "cached": 90, "output": 10, "usd": 155e-6}
    )
    assert differences == pytest.approx(
        {"score": 0, "llm_calls": 0, "uncached": -30, "cached": 30, "output": -10, "usd": -115e-6}
    )


def test_without_a_price_there_are_no_usd_and_it_is_said(tmp_path: Path) -> None:
    one, other = run(tmp_path / "one", SAME), run(tmp_path / "other", SAME)
    free = PriceBook("none", None)
    found = compared(one, other, book=free)
    assert find(found, other, 0, "usd").mean is find(found, other, 0, "usd").difference is None
    assert f"{other.path}: its prices are unknown" in notes(one, other, book=free)


def test_what_a_fault_of_ours_ended_is_in_no_mean_and_is_said(tmp_path: Path) -> None:
    one, other = run(tmp_path / "one", SAME), run(tmp_path / "other", SAME | {10: {1: None, 2: 1.0}})
    found = compared(one, other)
    assert find(found, other, 10, "score").mean == Estimate(1.0, None, None, 1)
    assert find(found, other, 10, "score").difference == Estimate(0.0, None, None, 1)
    assert find(found, other, 10, "output").mean == Estimate(20.0, None, None, 1)
    assert notes(one, other) == [
        f"{other.path}: 1 test episodes ended by an infrastructure error and are excluded from means"
    ]


def test_of_an_unfinished_run_whole_evaluations_are_compared_and_it_is_said(tmp_path: Path) -> None:
    one, other = run(tmp_path / "one", SAME), run(tmp_path / "other", SAME | {10: {1: 1.0}})
    found = compared(one, other)
    assert {row.rollouts for row in found} == {0}
    assert notes(one, other) == [f"{other.path}: is not finished: no complete evaluation after 10 rollouts"]


def test_runs_that_cannot_be_compared(tmp_path: Path, golden: Golden) -> None:
    one, first = run(tmp_path / "one", SAME), run(tmp_path / "first", {0: SAME[0]})
    drawn = [run(tmp_path / name, SAME) for name in ("drawn", "drawn-otherwise")]
    limited = [
        run(tmp_path / f"most-{most}", SAME, run={**CONFIG["run"], "max_actions": most})
        for most in (None, 60)
    ]
    for each, kind, digest in zip(
        (*drawn, *limited), ("tasks", "tasks", "limits", "limits"), "1212", strict=True
    ):
        played = msgspec.structs.replace(process(load_model_config("tiny-random")), env={kind: digest})
        with RunDirectory.open_for_writing(each.path) as directory:
            directory.append_process(played)
    crafter, farther = {"name": "crafter", "num_dists": 3}, {"name": "babyai", "num_dists": 4}
    pairs = {
        "no common checkpoint": (first, run(tmp_path / "last", {10: SAME[10]})),
        "another environment": (one, run(tmp_path / "crafter", SAME, env=crafter)),
        "another option": (one, run(tmp_path / "farther", SAME, env=farther)),
        "tasks that another version draws": drawn,
        "other limits of an episode": limited,
        "a damaged configuration": (one, run(tmp_path / "damaged", SAME, env=3)),
    }
    tries = {what: partial(compared, *runs) for what, runs in pairs.items()}
    golden("refused_comparisons.txt", refusals(tries, (CannotCompare, InvalidConfig), HERE=tmp_path))


def evaluated(path: Path, *scores: list[float | None], seed: int = 0) -> RunResult:
    """A run with these scores at checkpoints 0, 2, ..."""
    run = SmallRun(path, run={"seed": seed})
    run.policy(0, {})
    for number, own in enumerate(scores):
        run.test(2 * number, 0, own)
    return frame_run(load(path))


def side(*runs: RunResult) -> Condition:
    return Condition(runs[0].condition, {run.seed: run for run in runs})


def test_conditions_are_paired_by_seed(tmp_path: Path) -> None:
    one = side(evaluated(tmp_path / "a0", [0.0, 0.0]), evaluated(tmp_path / "a1", [1.0, 1.0], seed=1))
    other = side(
        evaluated(tmp_path / "b1", [0.5, 0.5], seed=1), evaluated(tmp_path / "b2", [9.0, 9.0], seed=2)
    )
    assert [*pair_runs(one, other)] == [1]
    found = estimate_difference(one, other, 0, "score")
    assert found is not None
    assert found.mean == -0.5


def test_seeds_are_paired_at_checkpoints_that_both_sides_have_finished(tmp_path: Path) -> None:
    whole, seeds = {0: {1: 0.0, 2: 0.5}}, [{**CONFIG["run"], "seed": seed} for seed in (0, 1)]
    one, *others = [run(tmp_path / f"one{each['seed']}", whole, run=each) for each in seeds]
    two = [
        run(tmp_path / f"two{seed}", scores, run=seeds[seed], method={"name": "asi"})
        for seed, scores in enumerate(({0: {1: 0.0, 2: 0.75}}, {0: {1: 1.0}}))  # the fast episode alone
    ]
    sides = split_conditions(frames(one, *others, *two))
    difference = compare(sides)[1].difference
    assert difference is not None
    assert (difference.mean, difference.count) == (0.125, 2)
    apart = [side(sides[0].runs[1]), *sides[1:]]
    assert [*apart[0].runs] == [1]
    with pytest.raises(CannotCompare, match=r"one1 has 0; .*two0 has 0; .*two1 has none"):
        compare(apart)


def test_runs_of_one_condition_are_compared_over_seeds_and_equal_seeds_one_by_one(tmp_path: Path) -> None:
    seeds = [run(tmp_path / f"seed{seed}", SAME, run={**CONFIG["run"], "seed": seed}) for seed in (0, 1)]
    other = run(tmp_path / "other", SAME, method={"name": "asi"})
    sides = split_conditions(frames(other, *seeds))
    assert [[*each.runs] for each in sides] == [[0], [0, 1]]
    difference = compare(sides)[1].difference
    assert difference is not None
    assert difference.count == 2  # the tasks of the seed that both have
    assert len(split_conditions(frames(seeds[0], run(tmp_path / "again", SAME)))) == 2
