"""Lists of runs and the paper's experiments: what they consist of, what chooses among them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from speedrunner.config.compose import group_choices, group_file
from speedrunner.config.names import ConditionName, condition_name
from speedrunner.config.schema import InvalidConfig
from speedrunner.experiments.grid import Grid, GridRun, grid_of

SEEDS = """
- method: [react, asi]
  run.seed: [0, 1, 2]
- env: scienceworld
  env.family: [3, 4]
  method: asi
  run.rollouts: 40
"""


def listed(folder: Path, text: str, *given: str, scale: str = "paper") -> list[GridRun]:
    file = folder / "runs.yaml"
    file.write_text(text)
    return Grid(file, given, scale).runs()


def names(runs: Iterable[GridRun]) -> list[str]:
    return [Path(run.config.run.dir).name.removesuffix("-tiny-random-seed0") for run in runs]


def experiment(name: str, *given: str, scale: str = "paper") -> list[GridRun]:
    return grid_of([f"experiment={name}", f"scale={scale}", *given]).runs()


class TestAnEntry:
    def test_is_multiplied_by_its_lists(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, SEEDS)
        assert [(run.config.env.name, run.config.method.name, run.config.run.seed) for run in runs] == [
            *(("babyai", "react", seed) for seed in range(3)),
            *(("babyai", "asi", seed) for seed in range(3)),
            *[("scienceworld", "asi", 0)] * 2,
        ]
        assert [run.config.env.options.get("family") for run in runs] == [None] * 6 + [3, 4]

    def test_may_be_a_text_or_a_list_of_settings(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, "- method=react run.seed=1\n- [method=asi, run.rollouts=7]\n")
        assert [run.overrides for run in runs] == [
            ("method=react", "run.seed=1"),
            ("method=asi", "run.rollouts=7"),
        ]

    def test_keeps_values_that_are_no_texts(self, tmp_path: Path) -> None:
        (run,) = listed(tmp_path, "- {method: react, method.train: true, run.budget_tokens: null}")
        assert run.config.method.options["train"] is True
        assert run.config.run.budget_tokens is None

    def test_has_a_folder_of_its_name_unless_it_names_one(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, "- method=react\n- method=react run.dir=here\n")
        assert [run.config.run.dir for run in runs] == ["runs/babyai-react-tiny-random-seed0", "here"]

    def test_that_is_there_twice_is_one_run(self, tmp_path: Path) -> None:
        assert len(listed(tmp_path, "- method=react\n- {method: [react, asi]}\n")) == 2


class TestThatBeginsWithAnother_sPolicy:
    SHIFT = """
    - env: scienceworld
      env.family: 4
      method: asi
      run.start_from: {env.family: 3}
    - env: scienceworld
      env.family: 3
      method: asi
      run.rollouts: 0
      run.start_from: {env.family: 4, run.start_from: {env.family: 3}}
    """

    def test_comes_after_it(self, tmp_path: Path) -> None:
        first, second, third = listed(tmp_path, self.SHIFT)
        assert names([first, second]) == [
            "scienceworld-family3-asi",
            "scienceworld-family4-asi-from_scienceworld-family3",
        ]
        assert (first.after, second.after, third.after) == (None, first.config.run.dir, second.config.run.dir)
        assert second.config.run.start_from == first.config.run.dir
        assert third.config.run.start_from == second.config.run.dir

    def test_brings_it_where_it_was_not_asked_for(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, self.SHIFT)
        assert [run.asked for run in runs] == [False, True, True]

    def test_is_as_long_as_it_says_and_the_other_as_long_as_usual(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, self.SHIFT, "run.rollouts=20")
        assert [run.config.run.rollouts for run in runs] == [20, 20, 0]
        small = listed(tmp_path, self.SHIFT, scale="smoke")
        assert [run.config.run.rollouts for run in small] == [4, 4, 0]


class TestWhatIsGivenForAll:
    def test_chooses_among_runs_of_which_some_have_it(self, tmp_path: Path) -> None:
        assert len(listed(tmp_path, SEEDS, "method=react")) == 3
        assert len(listed(tmp_path, SEEDS, "run.seed=0,2")) == 4
        (run,) = listed(tmp_path, SEEDS, "env.family=4")
        assert run.config.env.options["family"] == 4

    def test_of_several_values_each_must_be_there(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidConfig, match=r"method=react,spedrunner: some .* has react, asi"):
            listed(tmp_path, SEEDS, "method=react,spedrunner")

    def test_holds_for_all_where_none_has_it(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, SEEDS, "run.rollouts=5", "run.test_episodes=2", "run.seed=7")
        assert {(run.config.run.rollouts, run.config.run.test_episodes) for run in runs} == {(5, 2)}
        assert {run.config.run.seed for run in runs} == {7}
        assert len(runs) == 4  # the seeds have become one

    def test_wins_over_the_scale_which_wins_over_the_list(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, SEEDS, "run.test_episodes=3", scale="smoke")
        assert {run.config.run.rollouts for run in runs} == {4}
        assert {run.config.run.test_episodes for run in runs} == {3}


@pytest.mark.parametrize(
    "text", ["", "a: b", "- 3", "- [1, 2]", "- word", "{", "[]", "- {}", "- " + "[" * 3000]
)
def test_what_is_no_list_of_runs_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"runs\.yaml") as error:
        listed(tmp_path, text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "- method=react run.dir=a\n- method=asi run.dir=a\n",
            "run 2 .*another run has the directory a .*method.name: react -> asi",
        ),
        ("- method=react\n- method=nope\n", r"run 2 \(method=nope\): method=nope is unknown"),
        ("- {method: {a: 1}}", "run 1 .*method: {'a': 1} must be a single value"),
        ("- {run.start_from: {method: nope}}", "run 1 .*method=nope is unknown"),
        ("- &a\n  method: asi\n  run.start_from: *a\n", "run 1: a setting contains itself"),
        ("- {env: babyai, method: []}", "run 1: method is an empty list, so no run results"),
    ],
)
def test_an_error_names_the_run(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words) as error:
        listed(tmp_path, text)
    assert "\n" not in str(error.value)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.yaml")
    with pytest.raises(InvalidConfig, match=r"runs\.yaml cannot be read"):
        Grid(tmp_path / "runs.yaml")


class TestTheCommandLine:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ([], "name one list of runs"),
            (["scale=smoke"], "name one list of runs"),
            (["runs.yaml", "experiment=main"], "not experiment=main and runs.yaml"),
            (["experiment=main", "experiment=demo"], "not experiment=main and experiment=demo"),
            (["experiment=mian"], "did you mean main"),
            (["experiment=main", "scale=smokey"], "did you mean smoke"),
        ],
    )
    def test_names_one_list(self, given: list[str], words: str) -> None:
        with pytest.raises(InvalidConfig, match=words):
            grid_of(given)

    def test_a_scale_has_a_folder_of_its_own(self, tmp_path: Path) -> None:
        (run,) = experiment("main", "env=babyai", "method=asi", "run.seed=2", scale="pilot")
        assert run.config.run.dir == "runs/pilot/babyai-asi-gpt-5.4-mini-seed2"
        (run,) = grid_of(["experiment=main", "env=babyai", "method=asi", "run.seed=2"], tmp_path).runs()
        assert run.config.run.dir == f"{tmp_path}/babyai-asi-gpt-5.4-mini-seed2"


class TestThePaper_sExperiments:
    @pytest.mark.parametrize(
        ("name", "count"),
        [
            *(("main", 51), ("models", 153), ("ablations", 15), ("interpreter", 24), ("zombies", 36)),
            *(("shift", 24 + 9), ("replay", 9), ("truncation", 6), ("cache", 30)),
        ],
    )
    def test_each_has_its_runs_with_the_paper_s_numbers(self, name: str, count: int) -> None:
        runs = [run.config.run for run in experiment(name)]
        assert len(runs) == count
        numbers = {(run.sleep_every, run.eval_every, run.test_episodes) for run in runs}
        assert numbers == {(10, 50, 30)}
        assert {run.rollouts for run in runs} <= {200, 0}

    def test_all_are_known(self) -> None:
        assert set(group_choices("experiment")) == {
            *("main", "models", "ablations", "interpreter", "zombies"),
            *("shift", "replay", "truncation", "cache", "demo", "demo-full"),
        }

    def test_runs_that_two_of_them_share_have_one_folder(self) -> None:
        main = {run.config.run.dir: run.config for run in experiment("main")}
        shared = {
            name: [run for run in experiment(name) if run.config.run.dir in main]
            for name in ("models", "ablations", "interpreter", "zombies", "shift", "replay", "truncation")
        }
        assert {name: len(runs) for name, runs in shared.items()} == {
            "models": 51,
            "ablations": 6,
            "interpreter": 12,
            "zombies": 12,
            "shift": 15,
            "replay": 6,
            "truncation": 1,
        }
        assert all(main[run.config.run.dir] == run.config for runs in shared.values() for run in runs)

    def test_the_main_one_has_every_method_in_four_settings(self) -> None:
        found = {condition_name(run.config) for run in experiment("main")}
        settings = ("crafter", "scienceworld-family3", "scienceworld-family4", "babyai")
        methods = ("react", "opo", "asi", "speedrunner")
        expected = {ConditionName(env, method, "gpt-5.4-mini") for env in settings for method in methods}
        assert found == expected | {ConditionName("crafter", "voyager", "gpt-5.4-mini")}

    def test_truncation_evaluates_the_last_skills_of_one_run(self) -> None:
        first, *others = experiment("truncation")
        assert [run.config.library.visible_last for run in others] == [50, 100, 200, 400, 800]
        assert {run.config.run.start_from for run in others} == {first.config.run.dir}
        assert {run.config.run.rollouts for run in others} == {0}

    def test_the_cache_is_off_where_a_policy_is_evaluated_again(self) -> None:
        runs = experiment("cache", "run.seed=0")
        off = [run for run in runs if run.config.model.prefix_caching is False]
        assert [run.config.run.rollouts for run in off] == [0] * 5
        assert [run.after for run in off] == [run.config.run.dir for run in runs if run not in off]

    @pytest.mark.parametrize("name", sorted({*group_choices("experiment")} - {"demo", "demo-full"}))
    def test_smoke_is_one_seed_of_the_random_model(self, name: str) -> None:
        for run in experiment(name, scale="smoke"):
            config = run.config
            assert (config.model.name, config.run.seed, config.run.max_actions) == ("tiny-random", 0, 200)
            assert config.run.rollouts in (4, 0)
            assert config.model.actor["max_calls"] == config.model.inducer["max_calls"] == 10

    def test_the_demo_is_one_run(self) -> None:
        (run,) = grid_of(["experiment=demo"]).runs()
        options = run.config.run
        assert (options.dir, options.rollouts, options.sleep_every) == ("runs/demo", 40, 10)
        assert (options.eval_every, options.test_episodes, options.in_flight) == (10, 20, 16)
        assert run.config.model.name == "tiny"

    def test_the_full_demo_is_the_demo_over_five_seeds_and_the_other_methods(self) -> None:
        (demo,) = grid_of(["experiment=demo"]).runs()
        runs = grid_of(["experiment=demo-full"]).runs()
        methods = (run.config.method for run in runs)
        counts = Counter((method.name, method.options.get("interpreter")) for method in methods)
        others = {(name, None): 5 for name in ("react", "opo", "asi")}
        assert counts == {**others, ("speedrunner", "on"): 5, ("speedrunner", "off"): 5}
        for run in runs:
            same = msgspec.structs.replace(run.config.run, dir=demo.config.run.dir, seed=demo.config.run.seed)
            assert same == demo.config.run


def test_every_scale_says_what_it_is() -> None:
    for name in group_choices("scale"):
        assert group_file("scale", name).read_text().startswith("# ")
