"""What runs are called: what differs from the files of `configs/`, and nothing else."""

from __future__ import annotations

import re

from speedrunner.config.compose import compose
from speedrunner.config.names import ConditionName, condition_name, run_name
from tests.golden_tables import Golden, table

SCIENCE = ("env=scienceworld", "env.family=4")


OVERRIDES = (
    "",
    "run.seed=2 method=react",
    " ".join(SCIENCE),
    "env=crafter run.seed=1",
    "env=crafter env.zombie_frequency=0",
    "env=crafter env.zombie_frequency=1",
    "method.interpreter=off",
    "model.inducer_name=qwen3.5-27b",
    "model.prefix_caching=false",
    "model.context=8192",
    "model.actor.thinking_tokens=64 model.actor.max_calls=5",
    "model.name=/models/my.yaml",
    "env=tests.toy_env:Corridor env.pit=-3 run.rollouts=5",
)


def test_a_run_is_named_by_what_differs_from_the_defaults(golden: Golden) -> None:
    names = {}
    for given in OVERRIDES:
        config = compose(given.split())
        names[f"speedrunner run {given}"] = run_name(config)
        assert config.run.dir == f"runs/{run_name(config)}"
    golden("config/run_names.txt", table(names))


class TestOfARunThatBeginsWithAnother_s:
    def test_method_model_and_seed_are_named_once(self) -> None:
        first = compose([*SCIENCE, "method=asi"])
        second = compose(["env=babyai", "method=asi", f"run.start_from={first.run.dir}"])
        assert condition_name(second) == ConditionName(
            "babyai", "asi-from_scienceworld-family4", "tiny-random"
        )
        third = compose([*SCIENCE, "method=asi", f"run.start_from={second.run.dir}", "run.rollouts=0"])
        assert condition_name(third).method == "asi-from_babyai-asi-from_scienceworld-family4"

    def test_a_history_that_it_does_not_carry_is_named_if_it_trains(self) -> None:
        given = ["run.start_from=runs/mine:2", "run.carry_history=false"]
        assert condition_name(compose(given)).method == "speedrunner-from_mine_2-without_history"
        assert condition_name(compose([*given, "run.rollouts=0"])).method == "speedrunner-from_mine_2"

    def test_the_same_on_a_server_without_prefix_cache(self) -> None:
        source = compose(["method=asi"]).run.dir
        config = compose(["method=asi", f"run.start_from={source}", "model.prefix_caching=false"])
        assert condition_name(config) == ConditionName("babyai", "asi-from_babyai", "tiny-random-uncached")

    def test_hidden_skills_are_named_or_counted(self) -> None:
        def named(*settings: str) -> str:
            given = ["run.rollouts=0", "run.start_from=runs/mine:2", *settings]
            return condition_name(compose(given)).method

        assert named("library.hide=[open,go_to]") == "speedrunner-hide_go_to+open-from_mine_2"
        assert named("run.wording=2") == "speedrunner-wording2-from_mine_2"
        assert named("library.hide=[a_b]") != named("library.hide=[a,b]")
        many = [f"skill_{number}" for number in range(12)]
        found = named(f"library.hide=[{','.join(many)}]")
        assert re.fullmatch(r"speedrunner-hide_12_[0-9a-f]{8}-from_mine_2", found)
        assert named(f"library.hide=[{','.join(many[::-1])}]") == found
