"""The paper's numbers compared with ours, and their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from speedrunner.config.grid import grid_of
from speedrunner.config.names import identify_condition
from speedrunner.results.conditions import group_runs
from speedrunner.results.libraries import LibraryStatistics
from speedrunner.results.paper import (
    ENVS,
    TREATMENTS,
    WITH,
    WITHOUT,
    Published,
    list_published,
    paper_tables,
)
from speedrunner.results.run_result import RunResult
from tests.speedrunner.results.summaries import checkpoint, summary

FAMILY = "scienceworld-family"


def number(quantity: str, method: str = "speedrunner", env: str = "babyai", **more: object) -> Published:
    values: dict[str, object] = {
        "table": "tab:some", "place": "Section 5", "experiment": "main", "model": "gpt-5.4-mini",
        "value": 1.0, "sd": None,
    }  # fmt: skip
    return Published(env=env, method=method, quantity=quantity, **(values | more))  # type: ignore[arg-type]


def rows(quantities: Sequence[Published], *runs: RunResult) -> list[dict[str, Any]]:
    tables = paper_tables(quantities, group_runs(runs)[0])
    return [dict(zip(table.columns, row, strict=True)) for table in tables for row in table.rows]


def ours(quantity: Published, *runs: RunResult) -> dict[str, Any]:
    (found,) = rows([quantity], *runs)
    return found


def spread(found: dict[str, Any]) -> tuple[float | None, float | None, int]:
    return found["ours"], found["ours_std"], found["seeds"]


def played(method: str, output: float, seed: int = 0, env: str = "babyai", **more: object) -> RunResult:
    last = checkpoint(200, [{"output": output}] * 2)
    return summary(env, method, seed, checkpoint(0, [{}]), last, **more)  # type: ignore[arg-type]


class TestFile:
    def test_every_number_is_of_a_quantity_that_there_is(self) -> None:
        library = {*LibraryStatistics.__struct_fields__} - {"combat"}
        known = library | {"combat_percent", "score", "output", "cost_usd", WITHOUT, WITH}
        assert {each.quantity for each in list_published()} <= known

    def test_each_table_has_all_of_its_cells(self) -> None:
        assert Counter(each.table for each in list_published() if each.value is not None) == {
            "tab:complexity_summary": 3 * 3 * 2 + 2,
            "tab:complexity_global": 13 * 5,
            "tab:zombie_library_methods": 6 * 6,
            "tab:voyager_truncation": 7,
        }


class TestOurs:
    def test_a_mean_over_seeds_at_the_last_checkpoint(self) -> None:
        found = ours(number("output"), *(played("speedrunner", 10 * seed, seed) for seed in range(3)))
        assert spread(found) == (10, 10, 3)
        assert found["missing"] == ""

    def test_scienceworld_is_the_mean_of_its_families_means_and_deviations(self) -> None:
        runs = [
            played("asi", output, seed, f"{FAMILY}{family}")
            for family, outputs in ((3, (1, 2, 3)), (4, (10, 20, 30)))
            for seed, output in enumerate(outputs)
        ]
        assert spread(ours(number("output", "asi", "scienceworld"), *runs)) == (11, 5.5, 3)
        one = ours(number("output", "asi", "scienceworld"), *runs[:3])
        assert (one["ours"], one["missing"]) == (
            None, "speedrunner sweep experiment=main model=tiny-random"
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("quantity", "value"),
        [
            *(("functions", 32), ("max_depth", 10), ("mean_depth", 2.62), ("density", 0.094)),
            *(("cyclomatic", 14.8), ("combat_percent", 50), ("score", 0.75), ("cost_usd", 0.04)),
            ("score_with_whole_library", 0.75),
            ("score_without_library", 0.5),
        ],
    )
    def test_libraries_scores_and_costs_of_the_last_checkpoint(self, quantity: str, value: float) -> None:
        library = LibraryStatistics(32, 10, 2.62, 0.094, 14.8, 0.5)
        last = checkpoint(200, [{"score": 0.75}], library=library, sleep_usd=0.03)
        run = summary("crafter", "speedrunner", 0, checkpoint(0, [{}]), last)
        assert spread(ours(number(quantity, env="crafter"), run)) == (pytest.approx(value), None, 1)


class TestGaps:
    COMMAND = "speedrunner sweep experiment=main model=tiny-random"

    def test_seeds_that_are_not_there_and_runs_that_go_on(self) -> None:
        two, last = [played("speedrunner", 1, seed) for seed in range(2)], played("speedrunner", 1, 2)
        for runs in (two, [*two, played("speedrunner", 1, 2, unfinished=[250])]):
            assert ours(number("score"), *runs)["missing"] == self.COMMAND
        assert ours(number("score"), *two, last)["missing"] == ""

    def test_each_model_that_was_played_stands_beside_the_paper_s(self) -> None:
        runs = [played("speedrunner", 1), played("react", 1, model="qwen")]
        found = rows([number("score")], *runs)
        assert [(row["model"], row["ours"] is None) for row in found] == [
            ("qwen", True),
            ("tiny-random", False),
        ]
        assert found[0]["missing"].endswith("model=qwen")


@pytest.mark.parametrize("name", sorted({each.experiment for each in list_published()}))
def test_each_experiment_holds_the_runs_that_its_numbers_ask_for(name: str) -> None:
    runs = grid_of([f"experiment={name}", "model=gpt-5.4-mini"]).runs()
    there = {(found.env, found.treatment) for found in (identify_condition(run.config) for run in runs)}
    asked = {
        (env, TREATMENTS[each.method])
        for each in list_published()
        if each.experiment == name
        for env in ENVS[each.env]
    }
    assert asked - there == set()


def test_each_number_is_a_row_with_its_difference_in_the_table_of_its_label() -> None:
    numbers = [
        number("score", value=0.5, sd=0.1),
        number("output", value=None),
        number("score", table="fig:more"),
    ]
    some, more = paper_tables(numbers, group_runs([played("speedrunner", 1)])[0])
    first, second = (dict(zip(some.columns, row, strict=True)) for row in some.rows)
    assert first == {
        **{"place": "Section 5", "experiment": "main", "env": "babyai", "method": "speedrunner"},
        **{"quantity": "score", "paper_model": "gpt-5.4-mini", "paper": 0.5, "paper_std": 0.1},
        **{"model": "tiny-random", "ours": 0.5, "ours_std": None, "seeds": 1, "difference": 0.0},
        "missing": TestGaps.COMMAND,
    }
    assert (second["quantity"], second["paper"], second["difference"]) == ("output", None, None)
    assert (some.name, more.name, len(more.rows)) == ("some", "more", 1)
    assert some.caption.startswith("The paper's tab:some compared with our runs: ")
