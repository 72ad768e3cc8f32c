"""Lists of runs and the paper's experiments: what they consist of, what chooses among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

import pytest

from serving.model_configs import load_model_config
from speedrunner.config.compose import group_choices
from speedrunner.config.grid import Grid, GridRun, grid_of
from speedrunner.config.names import identify_condition
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.store.stored_run import RunDirectoryError
from tests.golden_tables import Golden, refusals

SEEDS = """
- method: [react, asi]
  run.seed: [0, 1, 2]
- env: scienceworld
  env.family: [3, 4]
  method: asi
  run.rollouts: 40
"""


NOT_FOR_SMOKE = {"demo", "demo-full", "real"}
"""Experiments of a laptop, and those that need a stored policy."""


def listed(folder: Path, text: str, *given: str, scale: str = "paper") -> list[GridRun]:
    file = folder / "runs.yaml"
    file.write_text(text)
    return Grid(file, given, scale).runs()


def names(runs: Iterable[GridRun]) -> list[str]:
    return [Path(run.config.run.dir).name.removesuffix("-tiny-random-seed0") for run in runs]


@cache
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
        (run,) = listed(tmp_path, "- {method: react, method.train: true, run.max_actions: null}")
        assert run.config.method.options["train"] is True
        assert run.config.run.max_actions is None

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

    def test_lists_in_its_start_multiply_it(self, tmp_path: Path) -> None:
        text = """
        - method: asi
          run.seed: [0, 1]
          run.rollouts: 0
          run.start_from: {run.seed: [0, 1, 2], method: [asi, voyager], env: crafter}
        """
        runs = [run for run in listed(tmp_path, text) if run.asked]
        assert len({run.config.run.dir for run in runs}) == 2 * 3 * 2
        assert len({run.config.run.start_from for run in runs}) == 3 * 2


class TestWhatIsGivenForAll:
    def test_chooses_among_runs_of_which_some_have_it(self, tmp_path: Path) -> None:
        assert len(listed(tmp_path, SEEDS, "method=react")) == 3
        assert len(listed(tmp_path, SEEDS, "method=asi", "env.family=3,4")) == 2
        (run,) = listed(tmp_path, SEEDS, "env.family=4")
        assert run.config.env.options["family"] == 4

    def test_holds_for_all_where_none_has_it(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, SEEDS, "run.rollouts=5", "run.test_episodes=2", "run.seed=7")
        assert {(run.config.run.rollouts, run.config.run.test_episodes) for run in runs} == {(5, 2)}
        assert {run.config.run.seed for run in runs} == {7}
        assert len(runs) == 4  # the seeds have become one

    def test_seeds_replace_those_of_list_and_scale(self, tmp_path: Path) -> None:
        for scale in ("paper", "smoke"):
            runs = listed(tmp_path, SEEDS, "method=react", "run.seed=0,4", scale=scale)
            assert [run.config.run.seed for run in runs] == [0, 4]
        assert len(listed(tmp_path, SEEDS, "run.seed=0,4,7")) == 4 * 3
        runs = experiment("truncation", "run.seed=5,1", "library.visible_last=50")
        assert [(run.config.run.seed, (run.after or "")[-5:]) for run in runs if run.after] == [
            (5, "seed5"),
            (1, "seed1"),
        ]

    def test_wins_over_the_scale_which_wins_over_the_list(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, SEEDS, "run.test_episodes=3", scale="smoke")
        assert {run.config.run.rollouts for run in runs} == {4}
        assert {run.config.run.test_episodes for run in runs} == {3}


class TestSelectingMethods:
    @pytest.mark.parametrize(
        ("given", "selected"),
        [
            ("method=speedrunner", ["speedrunner"]),
            ("method=react,speedrunner", ["react", "speedrunner"]),
            ("method=speedrunner-no-interpreter", ["speedrunner-no-interpreter"]),
            (
                "method=react,speedrunner-prompt_asi_style",
                ["react", "speedrunner-prompt_asi_style"],
            ),
        ],
    )
    def test_exactly_the_named_conditions_are_selected(self, given: str, selected: list[str]) -> None:
        runs = experiment("ablations", given)
        assert Counter(identify_condition(run.config).names[1] for run in runs) == dict.fromkeys(selected, 3)

    def test_an_option_on_the_command_line_is_no_part_of_the_name(self) -> None:
        for given in (
            ("method=speedrunner", "method.interpreter=off"),
            ("method=speedrunner-no-interpreter",),
        ):
            for words in (given, given[::-1]):
                (run,) = experiment("interpreter", *words, "env=babyai", "run.seed=0")
                assert identify_condition(run.config).names[1] == "speedrunner-no-interpreter"

    def test_a_method_that_the_experiment_lacks_replaces_all(self, tmp_path: Path) -> None:
        runs = listed(tmp_path, SEEDS, "method=opo", "run.seed=0")
        assert {run.config.method.name for run in runs} == {"opo"}

    def test_an_own_class_is_selected_by_its_path(self, tmp_path: Path) -> None:
        text = "- {env: babyai, method: ['my:Diary', react]}"
        (run,) = listed(tmp_path, text, "method=my:Diary")
        assert run.config.method.name == "my:Diary"


def test_a_refused_list_names_its_file_and_the_run(tmp_path: Path, golden: Golden) -> None:
    texts = {
        "no text": "",
        "no YAML": "{",
        "a mapping": "a: b",
        "a number": "- 3",
        "a list of numbers": "- [1, 2]",
        "a word": "- word",
        "no runs": "[]",
        "an empty run": "- {}",
        "one folder for two runs": "- method=react run.dir=a\n- method=asi run.dir=a\n",
        "an unknown method": "- method=react\n- method=nope\n",
        "a mapping as a value": "- {method: {a: 1}}",
        "an unknown method to start from": "- {run.start_from: {method: nope}}",
        "a text that sets a key twice": "- env=babyai run.seed=1 run.seed=2",
        "an empty list": "- {env: babyai, method: []}",
        "an empty list to start from": "- {method: asi, run.start_from: {run.seed: []}}",
    }
    tries: dict[str, Callable[[], object]] = {
        **{what: partial(listed, tmp_path, text) for what, text in texts.items()},
        "an unknown method, with a setting": partial(listed, tmp_path, "- method=nope\n", "run.rollouts=3"),
        "a value that no run has": partial(listed, tmp_path, SEEDS, "method=react,voyager"),
    }
    golden("lists/refused_lists.txt", refusals(tries, InvalidConfig, HERE=tmp_path))


def test_a_refused_command_line_names_only_what_was_typed(golden: Golden) -> None:
    words = (
        "",
        "scale=smoke",
        "runs.yaml experiment=main",
        "experiment=main experiment=demo",
        "experiment=mian",
        "experiment=main scale=smokey",
        "experiment=ablations method=speedrunner-no-interpretr",
        "experiment=main method=xyz",
        "experiment=main run.rollouts=-1",
        "experiment=main run.rollouts=many",
        "experiment=main run.rolouts=3",
        "experiment=main verbosity=loud",
        "experiment=main env=babay",
        "experiment=main model=large",
        "experiment=main run.dir=x",
    )

    def read(line: str) -> None:
        grid_of(line.split()).runs()

    tries = [(f"sweep {line}", partial(read, line)) for line in words]
    golden("lists/refused_words.txt", refusals(tries, (InvalidConfig, RunDirectoryError)))


def test_a_scale_has_a_folder_of_its_own(tmp_path: Path) -> None:
    (run,) = experiment("main", "env=babyai", "method=asi", "run.seed=0", scale="smoke")
    assert run.config.run.dir == "runs/smoke/babyai-asi-tiny-random-seed0"
    (run,) = grid_of(["experiment=main", "env=babyai", "method=asi", "run.seed=2"], tmp_path).runs()
    assert run.config.run.dir == f"{tmp_path}/babyai-asi-gpt-5.4-mini-seed2"


class TestThePaper_sExperiments:
    @pytest.mark.parametrize(
        ("name", "count"),
        [
            *(("main", 51), ("models", 153), ("open-models", 153), ("ablations", 15), ("interpreter", 24)),
            ("zombies", 36),
            *(("shift", 24 + 9), ("replay", 9), ("truncation", 18)),
            *(("modality", 60), ("wording", 48), ("sensitivity", 111)),
        ],
    )
    def test_each_has_its_runs_with_the_paper_s_numbers(self, name: str, count: int) -> None:
        runs = [run.config.run for run in experiment(name)]
        assert len(runs) == count
        numbers = {(run.sleep_every, run.eval_every, run.test_episodes) for run in runs}
        assert numbers == {(10, 50, 30)}
        assert {run.rollouts for run in runs} <= {200, 0}
        assert Counter(run.seed for run in runs) == dict.fromkeys((0, 1, 2), count // 3)

    def test_no_two_experiments_have_different_runs_in_one_folder(self) -> None:
        found: dict[str, Config] = {}
        for name in {*group_choices("experiment")} - {"demo", "demo-full"}:
            for run in experiment(name):
                assert found.setdefault(run.config.run.dir, run.config) == run.config

    def test_the_shift_carries_the_history_unless_told_otherwise(self) -> None:
        trained = {run.config.run.dir: run.config for run in experiment("shift") if run.config.run.rollouts}
        assert all(config.run.carry_history for config in trained.values())
        alone = experiment("shift", "run.carry_history=false")
        second = [run for run in alone if run.config.run.rollouts and run.config.run.start_from]
        assert len(second) == 9
        assert not any(run.config.run.carry_history for run in second)
        assert all("-without_history-" in run.config.run.dir for run in second)

    def test_the_main_one_has_every_method_in_four_settings(self) -> None:
        found = {identify_condition(run.config).names for run in experiment("main")}
        settings = ("crafter", "scienceworld-family3", "scienceworld-family4", "babyai")
        methods = ("react", "opo", "asi", "speedrunner")
        expected = {(env, method, "gpt-5.4-mini") for env in settings for method in methods}
        assert found == expected | {("crafter", "voyager", "gpt-5.4-mini")}

    def test_open_models_are_played_without_an_api_key(self) -> None:
        runs = experiment("open-models")
        models = {run.config.model.name for run in runs}
        assert models == {"qwen3.5-27b", "qwen3.5-9b", "qwen3-8b"}
        assert all(load_model_config(name).api_key_env is None for name in models)
        one = {run.config.run.dir for run in experiment("open-models", "model=qwen3.5-27b")}
        assert one == {run.config.run.dir for run in experiment("models", "model=qwen3.5-27b")}

    def test_truncation_evaluates_the_last_skills_of_each_run(self) -> None:
        first, *others = experiment("truncation", "run.seed=2")
        assert [run.config.library.visible_last for run in others] == [50, 100, 200, 400, 800]
        assert {run.config.run.start_from for run in others} == {first.config.run.dir}
        assert {run.config.run.rollouts for run in others} == {0}

    @pytest.mark.parametrize("name", sorted({*group_choices("experiment")} - NOT_FOR_SMOKE))
    def test_smoke_is_one_seed_of_the_random_model(self, name: str) -> None:
        for run in experiment(name, scale="smoke"):
            config = run.config
            assert (config.model.name, config.run.seed, config.run.max_actions) == ("tiny-random", 0, 200)
            assert config.run.rollouts in (4, 0)
            assert config.model.actor["max_calls"] == config.model.inducer["max_calls"] == 10
