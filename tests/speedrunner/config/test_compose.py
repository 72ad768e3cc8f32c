"""Composing a configuration: choices, values, a user's own classes, existing runs, and mistakes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import serving.model_configs
from speedrunner.config import compose as composing
from speedrunner.config.compose import compose
from speedrunner.config.schema import (
    ClassConfig,
    Config,
    InvalidConfig,
    ModelOptions,
    PricesConfig,
    RunConfig,
    differences,
)
from speedrunner.methods.method_registry import REGISTRY
from tests.golden_tables import Golden, table
from tests.registered import options

CORRIDOR = "tests.toy_env:Corridor"


def error_of(*overrides: str) -> str:
    with pytest.raises(InvalidConfig) as error:
        compose(overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


class TestChoices:
    def test_without_overrides_everything_has_its_default(self) -> None:
        assert compose([]) == Config(
            run=RunConfig("runs/babyai-speedrunner-tiny-random-seed0"),
            env=ClassConfig("babyai", {"num_dists": 0, "description": "paper"}),
            method=ClassConfig("speedrunner", options(REGISTRY, "speedrunner")),
            model=ModelOptions("tiny-random"),
        )

    def test_choices_and_values(self) -> None:
        config = compose(["prices=gpt-5.4-mini", "prices.output=3", "method=react", "env.num_dists=4"])
        assert config.run.dir == "runs/babyai-num_dists4-react-tiny-random-seed0"
        assert config.env == ClassConfig("babyai", {"num_dists": 4, "description": "paper"})
        assert config.method == ClassConfig("react", {"train": False})
        assert config.prices == PricesConfig(0.75, 0.075, 3.0, None, 1024, 128)

    def test_a_model_config_is_a_file_s_name_or_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(serving.model_configs, "MODELS", tmp_path)
        for name in ("tiny-random", "qwen3.5-27b"):
            (tmp_path / f"{name}.yaml").touch()
        assert compose(["model=qwen3.5-27b"]).model == ModelOptions("qwen3.5-27b")
        assert compose(["model=/tmp/mine.yaml"]).model == ModelOptions("/tmp/mine.yaml")

    def test_an_environment_s_option_is_the_run_s_seed(self) -> None:
        assert compose(["env=crafter", "run.seed=2"]).env.options["seed"] == 2

    def test_own_classes_and_their_options(self) -> None:
        assert compose([f"env={CORRIDOR}", "env.pit=-3", "env.train=8"]).env == ClassConfig(
            CORRIDOR, {"pit": -3, "train": 8}
        )
        assert compose(["method=a.b:C", "method.size=3"]).method == ClassConfig("a.b:C", {"size": 3})

    def test_a_home_folder_is_expanded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/someone")
        assert compose(["run.dir=~/my runs"]).run.dir == "/home/someone/my runs"


MISTAKES = (
    *("run.rolouts=3", "run={rolouts: 3}", "rollouts=3"),
    *("run.rollouts=abc", "run.rollouts.x=3", "run=3", "run=[1]", "library.visible_last.0=3"),
    *("env=foo", "env=babay", "env=null", "method=[react,asi]", "method=x"),
    *("model={a: b}", "model=nope", "prices=gpt-5.4", "experiment=demo", "run.dir=[a", "+run.seed=1"),
    *("run.rollouts", "=3", "--verbose", "~run.rollouts", "run.seed=1,2", "model=a/B.1"),
    *(f"env=babyai env={CORRIDOR}", "methods=react"),
)


def test_each_mistake_gives_one_line_that_names_the_key_and_the_choices(golden: Golden) -> None:
    found = {given: error_of(*re.split(r" (?=env=)", given)) for given in MISTAKES}
    golden("config/mistakes.txt", table(found))


class TestExistingRun:
    BEFORE = ("run.dir=runs/demo", "run.rollouts=20", f"env={CORRIDOR}", "env.pit=-3")

    @pytest.fixture
    def base(self) -> Config:
        return compose(self.BEFORE)

    def test_the_same_command_gives_the_same_configuration(self, base: Config) -> None:
        assert compose([], base=base) == compose(self.BEFORE, base=base) == base

    def test_values_change_it(self, base: Config) -> None:
        changed = compose(["run.rollouts=40", "serving.url=unix:/x"], base=base)
        assert changed.serving.url == "unix:/x"
        assert differences(base, changed) == ["run.rollouts: 20 -> 40"]

    def test_a_chosen_group_replaces_the_section_and_its_options(self, base: Config) -> None:
        assert compose(["env=babyai"], base=base).env == ClassConfig(
            "babyai", {"num_dists": 0, "description": "paper"}
        )


FILES = (
    *(("prices/zero.yaml", text) for text in ("[[[", "uncached: -1", "price: 3", "- 3")),
    *(("config.yaml", text) for text in ("env: babyi", "{}")),
)


def test_a_file_that_cannot_be_used_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    bundled, found = composing.CONFIGS, {}
    for number, (file, text) in enumerate(FILES):
        configs = shutil.copytree(bundled, tmp_path / str(number))
        (configs / file).write_text(text)
        monkeypatch.setattr(composing, "CONFIGS", configs)
        found[f"{file} with {text}"] = error_of("prices=zero").replace(str(configs), "CONFIGS")
    golden("config/refused_files.txt", table(found))
