"""What runs are called: what differs from the files of `configs/`, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec.structs import replace

from speedrunner.config.compose import compose
from speedrunner.config.condition import Choice, Start
from speedrunner.config.names import describe_start, identify_condition, run_name
from speedrunner.config.schema import Config, from_mapping, to_mapping, to_yaml
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


def test_conditions_with_different_names_differ() -> None:
    off, zero = (
        identify_condition(compose(["env=crafter", f"env.zombie_frequency={value}"]))
        for value in ("off", "0")
    )
    assert off.names != zero.names
    assert off != zero


def start(source: Config, *given: str) -> Config:
    """A run that starts from another one, as a grid makes it."""
    config = compose([*given, f"run.start_from={source.run.dir}"])
    return replace(config, start=describe_start(config, source))


class TestOfARunThatBeginsWithAnother_s:
    def test_method_model_and_seed_are_named_once(self) -> None:
        first = compose([*SCIENCE, "method=asi"])
        second = start(first, "env=babyai", "method=asi")
        assert identify_condition(second).names == ("babyai", "asi-from_scienceworld-family4", "tiny-random")
        third = start(second, *SCIENCE, "method=asi", "run.rollouts=0")
        assert identify_condition(third).names[1] == "asi-from_babyai-asi-from_scienceworld-family4"
        other = start(first, "env=babyai", "method=opo", "model.context=9000", "run.wording=1")
        assert identify_condition(other).names[1] == "opo-wording1-from_scienceworld-family4-asi"

    def test_the_condition_is_that_of_the_run_and_not_of_its_folder(self, tmp_path: Path) -> None:
        source = compose(["method=asi", f"run.dir={tmp_path}/mine"])
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "config.yaml").write_text(to_yaml(source))
        config = compose(["method=asi", "env=crafter", f"run.start_from={tmp_path}/mine:2"])
        assert config.start == Start(Choice("babyai"), version="2")
        assert identify_condition(config).names[1] == "asi-from_babyai_2"
        shutil.rmtree(tmp_path / "mine")
        moved = from_mapping(to_mapping(config))
        assert identify_condition(moved) == identify_condition(config)

    def test_a_version_is_named_alike_however_it_is_written(self) -> None:
        configs = [
            compose([f"run.start_from=runs/mine:{version}"]) for version in ("2", "v2", "0002", "v0002")
        ]
        assert {identify_condition(config) for config in configs} == {identify_condition(configs[0])}
        assert identify_condition(configs[0]).names[1] == "speedrunner-from_mine_2"

    def test_a_history_that_it_does_not_carry_is_named_if_it_trains(self) -> None:
        given = ["run.start_from=runs/mine:2", "run.carry_history=false"]
        assert identify_condition(compose(given)).names[1] == "speedrunner-from_mine_2-without_history"
        assert identify_condition(compose([*given, "run.rollouts=0"])).names[1] == "speedrunner-from_mine_2"

    def test_the_same_on_a_server_without_prefix_cache(self) -> None:
        config = start(compose(["method=asi"]), "method=asi", "model.prefix_caching=false")
        assert identify_condition(config).names == ("babyai", "asi-from_babyai", "tiny-random-uncached")

    def test_the_wording_and_the_shown_part_of_the_library(self) -> None:
        given = [
            "run.rollouts=0",
            "run.start_from=runs/mine:2",
            "run.wording=2",
            "library.visible_last=3",
            "library.shown=search",
        ]
        shown = "speedrunner-wording2-visible_last3-search-from_mine_2"
        assert identify_condition(compose(given)).names[1] == shown
