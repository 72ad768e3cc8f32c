"""Composing a configuration: choices, values, somebody's own classes, existing runs, and mistakes."""

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
    from_yaml,
    to_yaml,
)
from speedrunner.methods.method_registry import REGISTRY
from tests.golden_tables import Golden, table
from tests.registered import options

CORRIDOR = "tests.toy_env:Corridor"
MAKER = "somebody.s:Maker"


def complaint(*overrides: str) -> str:
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
        config = compose(
            ["env=babyai", "method=react", "model=tiny-random", "run.rollouts=20", "env.num_dists=4"]
        )
        assert config.run == RunConfig("runs/babyai-num_dists4-react-tiny-random-seed0", rollouts=20)
        assert (config.env, config.method) == (
            ClassConfig("babyai", {"num_dists": 4, "description": "paper"}),
            ClassConfig("react", {"train": False}),
        )

    def test_a_price_list_wins_over_the_model_config_s(self) -> None:
        config = compose(["prices=gpt-5.4-mini", "prices.output=3"])
        assert config.prices == PricesConfig(0.75, 0.075, 3.0)

    def test_every_model_config_is_a_choice(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(serving.model_configs, "MODELS", tmp_path)
        for name in ("tiny-random", "qwen3.5-27b"):
            (tmp_path / f"{name}.yaml").touch()
        assert compose(["model=qwen3.5-27b"]).model == ModelOptions("qwen3.5-27b")

    def test_a_model_config_elsewhere_is_given_by_its_path(self) -> None:
        assert compose(["model.name=/tmp/my.yaml"]).model == ModelOptions("/tmp/my.yaml")

    def test_values_may_refer_to_others(self) -> None:
        assert compose(["run.dir='runs/${env.name}/${run.seed}'", "run.seed=2"]).run.dir == "runs/babyai/2"


class TestOwnClasses:
    @pytest.mark.parametrize("option", ["env.pit=-3", "+env.pit=-3", "++env.pit=-3"])
    def test_an_environment_with_its_options(self, option: str) -> None:
        assert compose([f"env={CORRIDOR}", option]).env == ClassConfig(CORRIDOR, {"pit": -3})

    def test_an_environment_s_split_has_options_too(self) -> None:
        assert compose([f"env={CORRIDOR}", "env.train=8"]).env.options == {"train": 8}

    def test_a_method_with_its_options(self) -> None:
        assert compose([f"method={MAKER}", "method.size=3"]).method == ClassConfig(MAKER, {"size": 3})

    def test_the_group_s_file_may_be_chosen_by_name(self) -> None:
        assert compose(["env=custom", f"env.name={CORRIDOR}"]).env == ClassConfig(CORRIDOR)


MISTAKES = (
    *("run.rolouts=3", "+run.rolouts=3", "run={rolouts: 3}", "rollouts=3", "hydra.run.dir=x", "env@x=babyai"),
    *("run.rollouts=abc", "run.rollouts.x=3", "run=3", "run=[1]", "library.hide.0=home"),
    *("env=foo", "env=babay", "env=null", "env=custom", "method=[react,asi]", "method=x"),
    *("model={a: b}", "model=nope", "prices=gpt-5.4", "experiment=demo"),
    *("run.rollouts", "=3", "--verbose", "~run.rollouts", "run.seed=1,2"),
    *("run.dir='${env.nme}'", "run.dir=???", f"env=babyai env={CORRIDOR}"),
)


def test_each_mistake_gives_one_line_that_names_the_key_and_what_there_is(golden: Golden) -> None:
    golden(
        "config/mistakes.txt", table({given: complaint(*re.split(r" (?=env=)", given)) for given in MISTAKES})
    )


class TestExistingRun:
    BEFORE = ("run.dir=runs/demo", "run.rollouts=20", f"env={CORRIDOR}", "env.pit=-3")

    @pytest.fixture
    def text(self) -> str:
        return to_yaml(compose(self.BEFORE))

    def test_its_configuration_stands_in_for_the_defaults(self, text: str) -> None:
        assert compose([], base=text) == from_yaml(text)

    def test_the_same_command_gives_the_same_configuration(self, text: str) -> None:
        assert compose(self.BEFORE, base=text) == from_yaml(text)

    def test_values_change_it(self, text: str) -> None:
        changed = compose(["run.rollouts=40", "serving.port=8000"], base=text)
        assert changed.serving.port == 8000
        assert differences(from_yaml(text), changed) == ["run.rollouts: 20 -> 40"]

    def test_a_chosen_group_replaces_the_section_and_its_options(self, text: str) -> None:
        assert compose(["env=babyai"], base=text).env == ClassConfig(
            "babyai", {"num_dists": 0, "description": "paper"}
        )

    def test_mistakes_in_it_are_told(self) -> None:
        with pytest.raises(InvalidConfig, match=r"unknown key `run\.rolouts`"):
            compose([], base="run: {dir: x, rolouts: 3}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[[", r"zero\.yaml cannot be read: it is not valid YAML"),
        ("uncached: -1", r"prices.uncached must be at least 0 \(got -1\)"),
        ("price: 3", r"unknown key `prices\.price` \(=3\)\. Did you mean `prices"),
        ("- 3", r"zero\.yaml must be a mapping of settings"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    shutil.copytree(composing.CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "prices" / "zero.yaml").write_text(text)
    monkeypatch.setattr(composing, "CONFIGS", tmp_path / "configs")
    assert re.search(problem, complaint("prices=zero"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [("env: babyi\n", r"env=babyi is unknown \(did you mean babyai\?\)"), ("{}", "env=null is unknown")],
)
def test_a_default_that_cannot_be_chosen_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    shutil.copytree(composing.CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "config.yaml").write_text(text)
    monkeypatch.setattr(composing, "CONFIGS", tmp_path / "configs")
    assert re.search(problem, complaint())


def test_numbers_in_files_may_have_an_exponent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(composing.CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "prices" / "zero.yaml").write_text("uncached: 1e-6\n")
    monkeypatch.setattr(composing, "CONFIGS", tmp_path / "configs")
    assert compose(["prices=zero"]).prices == PricesConfig(1e-6)


def test_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    compose([])
    complaint("run.dir='${nowhere}'")
    compose([])
    assert (Path.cwd(), list(tmp_path.iterdir())) == (tmp_path, [])
    assert capfd.readouterr() == ("", "")


class TestPlainValues:
    """What people type, and Hydra's grammar has no words for, is taken as it stands."""

    def test_a_home_folder_and_letters_beyond_ascii(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/someone")
        assert compose(["run.dir=~/my runs"]).run.dir == "/home/someone/my runs"
        assert compose(["run.dir=/tmp/été"]).run.dir == "/tmp/été"

    def test_the_path_of_a_model_config_is_a_choice_of_model(self) -> None:
        assert compose(["model=/tmp/mine.yaml"]).model.name == "/tmp/mine.yaml"
