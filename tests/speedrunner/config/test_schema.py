"""The records of a run's configuration, their YAML, and what may change when a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from speedrunner.config.schema import (
    ClassConfig,
    Config,
    InvalidConfig,
    ModelOptions,
    RunConfig,
    differences,
    from_mapping,
    to_mapping,
    to_yaml,
)
from speedrunner.plain.plain_yaml import read_yaml
from tests.golden_tables import Golden, refusals


def config(**run: Any) -> Config:
    return Config(
        run=RunConfig(**{"dir": "runs/one", **run}),
        env=ClassConfig("babyai", {"num_dists": 4}),
        method=ClassConfig("react"),
        model=ModelOptions("tiny-random"),
    )


def with_value(key: str, value: object) -> dict[str, Any]:
    """The YAML form of a valid configuration with one value changed."""
    content = to_mapping(config())
    section, _, name = key.rpartition(".")
    (content[section] if section else content)[name] = value
    return content


class TestYaml:
    def test_reads_back_what_was_written(self) -> None:
        assert from_mapping(read_yaml(to_yaml(config(seed=3)))) == config(seed=3)

    def test_an_older_file_gets_the_defaults_of_keys_that_it_lacks(self) -> None:
        text = "run: {dir: x}\nenv: {name: babyai}\nmethod: {name: react}\nmodel: {name: tiny-random}\n"
        assert from_mapping(read_yaml(text)).run == RunConfig("x")

    @pytest.mark.parametrize("text", ["- run", "", "run: 3"])
    def test_what_is_no_configuration_is_refused_in_one_line(self, text: str) -> None:
        with pytest.raises(InvalidConfig) as error:
            from_mapping(read_yaml(text))
        assert "\n" not in str(error.value)


IMPOSSIBLE: list[tuple[str, object]] = [
    *(("run.rollouts", value) for value in (-1, "abc", True, 2.5)),
    *(("run.seed", value) for value in (-1, 1.5, 2**63, 10**30)),
    ("run.sleep_every", 0),
    ("run.eval_every", 0),
    ("run.in_flight", 0),
    ("run.test_episodes", -1),
    ("run.reply_chars", 0),
    *(("run.wall_clock_s", value) for value in (0, float("inf"), float("nan"))),
    *(("run.dir", value) for value in ("", 3)),
    *(("task.index", value) for value in (-1, 2**53 + 1)),
    ("prices.cached", -0.1),
    ("sandbox.call_wall_s", 0),
    ("verbosity", "loud"),
    ("run", None),
    *(("env", {}), ("model", {})),
    *(("run.rolouts", 3), ("zoo", 3), ("rollouts", 3)),
]


def test_an_impossible_value_is_named_with_what_is_allowed(golden: Golden) -> None:
    tries: list[tuple[object, Callable[[], object]]] = [
        (f"{key}: {value!r}", partial(from_mapping, with_value(key, value))) for key, value in IMPOSSIBLE
    ]
    golden("config/impossible_values.txt", refusals(tries, InvalidConfig))


class TestDifferences:
    def test_names_each_value_that_changed(self) -> None:
        assert differences(config(rollouts=20), config(rollouts=40, seed=1)) == [
            "run.seed: 0 -> 1",
            "run.rollouts: 20 -> 40",
        ]

    def test_names_options_and_what_is_not_set_on_one_side(self) -> None:
        other = msgspec.structs.replace(config(), env=ClassConfig("my.envs:Maze", {"size": 3}))
        assert differences(config(), other) == [
            "env.name: babyai -> my.envs:Maze",
            "env.num_dists: 4 -> (not set)",
            "env.size: (not set) -> 3",
        ]

    def test_leaves_out_what_does_not_change_results(self) -> None:
        content = to_mapping(config())
        content["run"].update(dir="moved", in_flight=2)
        content["serving"].update(url="unix:/tmp/engine", request_timeout_s=1)
        content.update(task={"index": 7}, logging="wandb", verbosity="debug")
        assert differences(config(), from_mapping(content)) == []
