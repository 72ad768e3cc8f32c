"""Contributions of skills, from invented evaluations of a policy with skills of known effects."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from speedrunner.config.schema import LibraryConfig
from speedrunner.results.attribution import (
    find_gaps,
    group_subjects,
    make_attribution_tables,
    shows_part,
)
from speedrunner.results.coalitions import hidden_sets
from speedrunner.results.run_result import RunResult
from tests.speedrunner.results.summaries import checkpoint, summary

SAVED = {"walk": 5.0, "open": 2.0, "look": 0.0}
"""LLM calls that each skill saves in every task."""

TASKS = 30


def evaluation(hidden: Collection[str], seed: int = 0, change: str = "hide", **run: Any) -> RunResult:
    """An evaluation of 30 tasks of differing length, with noise of one call."""
    drawn = random.Random(f"{sorted(hidden)} {seed}")
    calls = [
        20
        + task % 7
        - sum(saved for skill, saved in SAVED.items() if skill not in hidden)
        + drawn.gauss(0, 1)
        for task in range(TASKS)
    ]
    values = [{"llm_calls": each, "score": 1.0 if "walk" not in hidden else 0.5} for each in calls]
    found = summary(
        "babyai", "speedrunner", seed, checkpoint(0, values), start_from="runs/x:2", rollouts=0, **run
    )
    found.checkpoints["public"] = len(SAVED)
    library = LibraryConfig(**{change: sorted(hidden)})
    config = msgspec.structs.replace(found.config, library=library)
    return replace(found, config=config, path=f"runs/{change}-{'+'.join(sorted(hidden))}-{seed}")


def rows(runs: Collection[RunResult], name: str = "attribution") -> list[Mapping[str, Any]]:
    tables = {table.name: table for table in make_attribution_tables(group_subjects([*runs]))}
    return [dict(zip(tables[name].columns, row, strict=True)) for row in tables[name].rows]


def all_runs(seeds: int = 3) -> list[RunResult]:
    return [
        evaluation(hidden, seed) for hidden in hidden_sets("each", sorted(SAVED)) for seed in range(seeds)
    ]


class TestAttribution:
    def test_a_skill_that_saves_five_calls_has_an_interval_around_five(self) -> None:
        found = {row["skill"]: row for row in rows(all_runs()) if row["metric"] == "llm_calls"}
        for skill, saved in SAVED.items():
            row = found[skill]
            assert (row["seeds"], row["tasks"], row["pairs"]) == (3, TASKS, 3 * TASKS)
            assert row["low"] <= -saved <= row["high"]
            assert row["high"] - row["low"] < 1
            assert row["added"] == pytest.approx(row["with_skill"] - row["without"])
        assert found["all"]["added"] == pytest.approx(-7, abs=0.5)
        assert list(found) == ["look", "open", "walk", "all"]

    def test_its_score_is_what_is_lost_without_it(self) -> None:
        found = {row["skill"]: row for row in rows(all_runs()) if row["metric"] == "score"}
        assert (found["walk"]["added"], found["walk"]["low"], found["walk"]["high"]) == (0.5, 0.5, 0.5)
        assert found["open"]["added"] == 0
        assert (found["walk"]["change"], found["walk"]["env"]) == ("hidden", "babyai")

    def test_every_metric_has_a_row(self) -> None:
        metrics = [row["metric"] for row in rows(all_runs(1)) if row["skill"] == "walk"]
        assert metrics == ["score", "llm_calls", "uncached", "cached", "output", "usd"]

    def test_hidden_and_removed_are_separate_rows(self) -> None:
        runs = [evaluation([]), evaluation(["walk"]), evaluation(["walk"], change="remove")]
        assert {row["change"] for row in rows(runs)} == {"hidden", "removed"}

    def test_only_pairs_with_the_same_seed_task_and_settings_count(self) -> None:
        runs = [evaluation([], 0), evaluation(["walk"], 0), evaluation(["walk"], 1)]
        (row,) = (row for row in rows(runs) if row["metric"] == "score")
        assert (row["seeds"], row["pairs"]) == (1, TASKS)
        other = evaluation([], 1, max_actions=9)
        (row,) = (row for row in rows([*runs, other]) if row["metric"] == "score")
        assert row["seeds"] == 1

    def test_an_unfinished_evaluation_is_named_with_its_command_and_not_used(self) -> None:
        cut = replace(evaluation(["open"]), unfinished=[0])
        runs = [evaluation([]), evaluation(["walk"]), cut]
        assert {row["skill"] for row in rows(runs)} == {"walk"}
        command = "speedrunner sweep experiment=attribution run.start_from=runs/x:2 --dir=runs"
        gaps = ["runs/hide-open-0 is not finished", "2 of 3 public skills were evaluated"]
        assert find_gaps(group_subjects(runs)) == {command: gaps}
        pair = replace(evaluation(["open", "look"]), unfinished=[0])
        everything = evaluation(SAVED)
        (command,) = find_gaps(group_subjects([*runs, pair, everything]))
        assert "sweep experiment=shapley run.start_from=runs/x:2" in command

    def test_without_the_whole_library_there_is_no_row_and_the_gap_is_named(self) -> None:
        runs = [evaluation(["walk"])]
        assert rows(runs) == []
        (gaps,) = find_gaps(group_subjects(runs)).values()
        whole = "no finished evaluation of the whole library of runs/x:2"
        assert gaps == [whole, "1 of 3 public skills were evaluated"]

    def test_a_complete_attribution_has_no_gap(self) -> None:
        assert find_gaps(group_subjects(all_runs(1))) == {}

    def test_other_runs_have_none_of_this(self) -> None:
        run = summary("babyai", "speedrunner", 0, checkpoint(0, [{}]))
        assert not shows_part(run)
        assert group_subjects([run, evaluation([])]) == []


class TestShapley:
    def test_values_sum_to_the_whole_library_minus_the_empty_one(self) -> None:
        runs = [evaluation(hidden) for hidden in hidden_sets("shapley", sorted(SAVED))]
        for metric in ("score", "llm_calls"):
            shares = [row for row in rows(runs, "shapley") if row["metric"] == metric]
            (everything,) = (row for row in rows(runs) if (row["skill"], row["metric"]) == ("all", metric))
            assert sum(row["value"] for row in shares) == pytest.approx(everything["added"])
            assert {(row["orders"], row["order_error"], row["tasks"]) for row in shares} == {(None, 0, TASKS)}

    def test_an_interval_contains_the_calls_that_a_skill_saves(self) -> None:
        runs = [
            evaluation(hidden, seed) for hidden in hidden_sets("shapley", sorted(SAVED)) for seed in (0, 1)
        ]
        shares = {row["skill"]: row for row in rows(runs, "shapley") if row["metric"] == "llm_calls"}
        for skill, saved in SAVED.items():
            assert shares[skill]["low"] <= -saved <= shares[skill]["high"]

    def test_too_few_sets_give_no_value(self) -> None:
        assert rows(all_runs(), "shapley") == []
        of_two_in_three = [evaluation(hidden) for hidden in ([], ["open"], ["walk"], ["open", "walk"])]
        assert rows(of_two_in_three, "shapley") == []
        parts = [evaluation(hidden) for hidden in hidden_sets("shapley", sorted(SAVED))[1:]]
        assert rows(parts, "shapley") == []  # the whole library is missing
        assert rows([evaluation([]), evaluation(["walk"], change="remove")], "shapley") == []
