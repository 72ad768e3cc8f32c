"""The paper's numbers beside ours."""

from __future__ import annotations

import dataclasses
from collections import Counter

import msgspec
import pandas
import pytest

from speedrunner.config.names import condition_name
from speedrunner.experiments.grid import grid_of
from speedrunner.results.conditions import Spread, group_runs
from speedrunner.results.libraries import LibraryStatistics
from speedrunner.results.paper import FAMILIES, PaperComparison, Published, compare_with_paper, list_published
from speedrunner.results.quantities import QUANTITIES
from speedrunner.results.run_result import RunResult
from speedrunner.results.skill_evolution import Evolution, frame_calls
from speedrunner.results.skill_table import SkillVersion
from tests.speedrunner.results.summaries import EMPTY, checkpoint, summary

FAMILY = "scienceworld-family"


def number(quantity: str, method: str = "speedrunner", env: str = "babyai", **more: object) -> Published:
    values: dict[str, object] = {
        "table": "prose", "place": "Section 5", "experiment": "main", "model": "gpt-5.4-mini",
        "relation": "", "value": 1.0, "sd": None,
    }  # fmt: skip
    return Published(env=env, method=method, quantity=quantity, **(values | more))  # type: ignore[arg-type]


def ours(quantity: Published, *runs: RunResult) -> PaperComparison:
    (found,) = compare_with_paper([quantity], group_runs(runs)[0])
    return found


def played(
    method: str, output: float, seed: int = 0, env: str = "babyai", wall_clock: int = 0, **more: object
) -> RunResult:
    last = checkpoint(200, [{"output": output}] * 100, wall_clock=wall_clock)
    return summary(env, method, seed, checkpoint(0, [{}]), last, **more)  # type: ignore[arg-type]


class TestFile:
    def test_every_number_is_of_a_quantity_that_there_is(self) -> None:
        assert {each.quantity for each in list_published()} == set(QUANTITIES)

    def test_each_table_has_all_of_its_cells(self) -> None:
        assert Counter(each.table for each in list_published() if each.value is not None) == {
            "tab:complexity_summary": 3 * 3 * 2 + 2,
            "tab:complexity_global": 13 * 5,
            "tab:zombie_library_methods": 6 * 6,
            "tab:voyager_truncation": 7,
            "prose": 44,
        }

    def test_the_summary_averages_the_two_families_of_the_whole_table(self) -> None:
        numbers = {(each.table, each.env, each.method, each.quantity): each for each in list_published()}
        for (table, env, method, quantity), each in numbers.items():
            if (table, env) != ("tab:complexity_summary", "scienceworld"):
                continue
            parts = [numbers["tab:complexity_global", f"{FAMILY}{n}", method, quantity] for n in (3, 4)]
            for mine, theirs in (
                (each.value, [one.value for one in parts]),
                (each.sd, [one.sd for one in parts]),
            ):
                assert mine == pytest.approx(sum(filter(None, theirs)) / 2, rel=0.15)

    def test_some_numbers_as_they_are_printed(self) -> None:
        found = {
            (each.table, each.env, each.method, each.quantity): (each.value, each.sd)
            for each in list_published()
        }
        assert found["tab:complexity_summary", "crafter", "speedrunner", "max_depth"] == (8.7, 2.1)
        assert found["tab:complexity_global", "crafter", "voyager", "functions"] == (1077, 565)
        zombies = "tab:zombie_library_methods", "crafter-zombie_frequency2"
        assert found[*zombies, "speedrunner", "combat_percent"] == (53.1, None)
        assert found["prose", f"{FAMILY}3", "speedrunner", "retention_cost_percent"] == (-27.1, None)


class TestOurs:
    def test_a_mean_over_seeds_at_the_last_checkpoint(self) -> None:
        found = ours(number("output"), *(played("speedrunner", 10 * seed, seed) for seed in range(3)))
        assert found.ours == Spread(10, 10, 3)
        assert (found.rollouts, found.missing, found.flag) == (200, "", "")

    def test_scienceworld_is_the_mean_of_its_families_means_and_deviations(self) -> None:
        runs = [
            played("asi", output, seed, f"{FAMILY}{family}")
            for family, outputs in ((3, (1, 2, 3)), (4, (10, 20, 30)))
            for seed, output in enumerate(outputs)
        ]
        assert ours(number("output", "asi", "scienceworld"), *runs).ours == Spread(11, 5.5, 3)
        one = ours(number("output", "asi", "scienceworld"), *runs[:3])
        assert (one.ours, one.missing) == (
            None, f"no run of asi on {FAMILY}4: speedrunner sweep experiment=main model=tiny-random"
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("quantity", "other", "value"),
        [
            ("output_of_react", "react", 20 / 80),
            ("asi_output_ratio", "asi", 80 / 20),
            ("opo_output_ratio", "opo", 80 / 20),
            ("output_percent_to_asi", "asi", -75),
            ("output_percent_to_asi_replay", "asi_replay", -75),
        ],
    )
    def test_beside_another_method_s_run_of_the_same_seed(
        self, quantity: str, other: str, value: float
    ) -> None:
        runs = [played("speedrunner", 20, 1), played(other, 80, 1), played(other, 7, 2)]
        assert ours(number(quantity), *runs).ours == Spread(pytest.approx(value), None, 1)

    def test_retention_is_what_the_evaluation_after_the_shift_differs_by(self) -> None:
        env, later = f"{FAMILY}3", f"asi-from_{FAMILY}4-asi-from_{FAMILY}3"
        before = checkpoint(200, [{"score": 0.5, "usd": 0.04}], sleep_usd=0.5)
        after = checkpoint(0, [{"score": 0.25, "usd": 0.05}])
        runs = [summary(env, "asi", 0, before), summary(env, later, 0, after, start_from="x", rollouts=0)]
        points = ours(number("retention_points", "asi", env), *runs)
        assert points.ours == Spread(-25, None, 1)
        # The actor's cost alone: no sleep made the policy of an evaluation.
        assert ours(number("retention_cost_percent", "asi", env), *runs).ours == Spread(
            pytest.approx(25), None, 1
        )

    def test_calls_change_from_the_first_checkpoint_to_the_last(self) -> None:
        points = checkpoint(0, [{"llm_calls": 100}]), checkpoint(200, [{"llm_calls": 6}])
        run = summary("crafter", "speedrunner", 0, *points)
        found = ours(number("llm_calls_change_percent", env="crafter"), run)
        assert found.ours == Spread(pytest.approx(-94), None, 1)

    def test_truncation_goes_by_the_seeds_that_were_truncated(self) -> None:
        runs = [
            summary("crafter", "voyager", seed, checkpoint(0, [{"score": score}]), checkpoint(200, [{}]))
            for seed, score in enumerate((0.1, 0.2))
        ]
        quantity = number("score_without_library", "voyager", "crafter", experiment="truncation")
        assert ours(quantity, *runs).ours == Spread(pytest.approx(0.15), pytest.approx(0.0707, abs=1e-4), 2)
        short = summary(
            "crafter",
            "voyager-visible_last50-from_crafter",
            1,
            checkpoint(0, [{}]),
            start_from="x",
            rollouts=0,
        )
        assert ours(quantity, *runs, short).ours == Spread(0.2, None, 1)

    @pytest.mark.parametrize(
        ("quantity", "value"),
        [
            *(("functions", 32), ("max_depth", 10), ("mean_depth", 2.62), ("density", 0.094)),
            *(("cyclomatic", 14.8), ("combat_percent", 50), ("combat_functions", 16), ("score", 0.75)),
            *(("edited_combat_functions", 0), ("cost_usd", 0.04), ("score_percent", 75)),
            *(("score_percent_at_0", 50), ("score_with_whole_library", 0.75)),
        ],
    )
    def test_libraries_scores_and_costs_of_the_last_checkpoint(self, quantity: str, value: float) -> None:
        library = LibraryStatistics(32, 10, 2.62, 0.094, 14.8, 0.5)
        last = checkpoint(200, [{"score": 0.75}], library=library, sleep_usd=0.03)
        run = summary("crafter", "speedrunner", 0, checkpoint(0, [{}]), last)
        assert ours(number(quantity, env="crafter"), run).ours == Spread(pytest.approx(value), None, 1)

    def test_the_best_seed_s_unsolved_episodes(self) -> None:
        runs = [
            summary("babyai", "react", seed, checkpoint(200, [{"score": s}]))
            for seed, s in enumerate((0.5, 0.9))
        ]
        found = ours(number("unsolved_percent_of_best_seed", "react"), *runs)
        assert found.ours == Spread(pytest.approx(10), None, 1)

    def test_one_seed_s_value_by_its_rank(self) -> None:
        libraries = [msgspec.structs.replace(EMPTY, functions=count) for count in (909, 1707, 615)]
        runs = [
            summary("crafter", "voyager", seed, checkpoint(200, [{}], library=library))
            for seed, library in enumerate(libraries)
        ]
        for name, value in (("smallest", 615), ("middle", 909), ("largest", 1707)):
            assert ours(number(f"public_{name}", "voyager", "crafter"), *runs).ours == Spread(value, None, 1)

    def test_the_library_of_the_best_seed(self) -> None:
        def run(method: str, seed: int, score: float, size: int) -> RunResult:
            library = msgspec.structs.replace(EMPTY, functions=size)
            point = checkpoint(200, [{"score": score}], library=library)
            return summary(f"{FAMILY}3", method, seed, point)

        off = "speedrunner-no-interpreter"
        runs = [
            run("speedrunner", 0, 0.9, 21),
            run("speedrunner", 1, 0.8, 40),
            run(off, 0, 0.1, 9),
            run(off, 2, 0.5, 28),
        ]
        size = ours(number("functions_of_best_seed", env=f"{FAMILY}3"), *runs)
        assert size.ours == Spread(21, None, 1)
        change = number("functions_of_best_seed_percent_to_interpreter_off", env=f"{FAMILY}3")
        assert ours(change, *runs).ours == Spread(pytest.approx(-25), None, 1)

    def test_near_identical_functions_of_the_best_seed(self) -> None:
        run = summary("crafter", "voyager", 0, checkpoint(200, [{"score": 0.5}]))
        names = ["collect_one_wood_log_east", "collect_one_wood_log_west", "collect_one_wood_log", "drink"]
        names += ["collect_one_wood_log_gone"]
        skills = pandas.DataFrame(
            {"skill": names, "removed": pandas.array([pandas.NA] * 4 + [7], dtype="Int64")}
        )
        found = ours(
            number("variants_of_best_seed", "voyager", "crafter"), dataclasses.replace(run, skills=skills)
        )
        assert found.ours == Spread(3, None, 1)

    def test_calls_per_batch_of_the_most_called_skill_in_the_later_half(self) -> None:
        run = summary("crafter", "speedrunner", 0, checkpoint(200, [{}]))
        train = run.episodes.iloc[[0] * 4].assign(phase="train", policy=[0, 1, 2, 3])
        travel = Evolution([SkillVersion("travel", 1, "written", True)], Counter({1: 900, 2: 116, 3: 250}))
        rest = Evolution([SkillVersion("rest", 1, "written", True)], Counter({1: 5, 3: 300}))
        run = dataclasses.replace(
            run, episodes=pandas.concat([run.episodes, train]), skill_calls=frame_calls([travel, rest])
        )
        for name, value in (("least", 116), ("most", 250)):
            assert ours(number(f"calls_a_batch_{name}", env="crafter"), run).ours == Spread(value, None, 1)

    def test_domination_counts_the_paper_s_environments(self) -> None:
        runs = []
        # As good with fewer tokens, worse over both families, and better with as many tokens.
        results = ("crafter", 0.5, 10), (f"{FAMILY}3", 0.3, 10), (f"{FAMILY}4", 0.6, 10), ("babyai", 0.6, 40)
        for env, score, output in results:
            for method in ("react", "opo", "asi", "voyager"):
                runs.append(summary(env, method, 0, checkpoint(200, [{"score": 0.5, "output": 40}])))
            runs.append(summary(env, "speedrunner", 0, checkpoint(200, [{"score": score, "output": output}])))
        found = ours(number("dominated_settings_percent", env="all"), *runs)
        assert found.ours == Spread(pytest.approx(200 / 3), None, 1)
        equals = ours(number("dominated_settings_percent", "opo", env="all"), *runs)
        assert equals.ours == Spread(0, None, 1)
        assert ours(number("dominated_settings_percent", env="all"), *runs[:10]).ours is None


class TestGaps:
    COMMAND = "speedrunner sweep experiment=main model=tiny-random"

    def test_a_run_that_is_not_there(self) -> None:
        found = ours(number("score"), played("react", 1))
        assert (found.ours, found.missing) == (None, f"no run of speedrunner on babyai: {self.COMMAND}")

    def test_seeds_that_are_not_there_and_runs_that_go_on(self) -> None:
        found = ours(number("score"), played("speedrunner", 1), played("speedrunner", 1, 1, unfinished=[250]))
        assert found.missing == (
            "2 of 3 seeds of speedrunner on babyai; seed 1 of speedrunner on babyai unfinished: "
            + self.COMMAND
        )

    def test_each_model_that_was_played_stands_beside_the_paper_s(self) -> None:
        runs = [played("speedrunner", 1), played("react", 1, model="qwen")]
        found = compare_with_paper([number("score")], group_runs(runs)[0])
        assert [(each.model, each.ours is None) for each in found] == [("qwen", True), ("tiny-random", False)]
        assert found[0].missing.endswith("model=qwen")

    def test_over_two_percent_of_wall_clock_endings_are_flagged(self) -> None:
        assert ours(number("score"), played("speedrunner", 1, wall_clock=3)).flag == "3.0% ended by a limit"
        assert ours(number("score"), played("speedrunner", 1, wall_clock=2)).flag == ""

    def test_of_two_schedules_the_longer_one_counts(self) -> None:
        short = summary("babyai", "speedrunner", 0, checkpoint(20, [{"output": 1}]), rollouts=20)
        assert ours(number("output"), short, played("speedrunner", 7)).ours == Spread(7, None, 1)


@pytest.mark.parametrize("name", sorted({each.experiment for each in list_published()}))
def test_each_experiment_holds_the_runs_that_its_numbers_ask_for(name: str) -> None:
    runs = grid_of([f"experiment={name}", "model=gpt-5.4-mini"]).runs()
    there = {(found.env, found.method) for found in (condition_name(run.config) for run in runs)}
    asked: set[tuple[str, str]] = set()

    def find(env: str, method: str) -> dict[int, RunResult]:
        asked.add((env, method))
        return {}

    for each in list_published():
        if each.experiment == name:
            for env in FAMILIES if each.env == "scienceworld" else (each.env,):
                QUANTITIES[each.quantity](find, env, each.method)
    assert asked - there == set()
