"""What a configuration names: model configs with its changes, and the one task of a single episode."""

from __future__ import annotations

import pytest

from envs import Task, TextEnv, UnknownTask
from serving.errors import InvalidModelConfig
from speedrunner.config.compose import compose
from speedrunner.config.named import actor_model_config, choose_task, inducer_model_config
from tests.toy_env import Corridor


def chosen(*overrides: str) -> Task:
    return choose_task(compose(overrides))


def test_by_default_it_is_the_first_for_training() -> None:
    assert chosen("env=babyai") == Task("babyai", "pick_up_seq_go_to", 83810)


def test_name_and_index_can_be_given_alone() -> None:
    assert chosen("env=crafter", "task.index=7") == Task("crafter", "default", 7)
    family = ("env=scienceworld", "env.family=4")
    first = chosen(*family, "task.name=find-animal")
    assert first.name == "find-animal"
    assert first.index != chosen(*family, "task.name=find-plant").index


def test_a_name_that_is_not_trained_on_takes_an_index_of_its_own() -> None:
    assert chosen("env=babyai", "task.name=open") == Task("babyai", "open", 0)
    boil = Task("scienceworld", "boil", 0)
    assert chosen("env=scienceworld", "env.family=3", "task.name=boil") == boil
    assert chosen("env=scienceworld", "task.name=boil") == boil  # which needs no split


class Unsplit(Corridor):
    """For single episodes."""

    splits = classmethod(TextEnv.splits.__func__)  # type: ignore[attr-defined]


def test_without_a_split_a_task_can_be_named() -> None:
    name = f"{__name__}:Unsplit"
    assert chosen(f"env={name}", "task.name=maze") == Task(name, "maze", 0)
    assert chosen(f"env={name}", "task.name=maze", "task.index=5") == Task(name, "maze", 5)
    with pytest.raises(UnknownTask, match=r"has no split; .*, or choose a task with task\.name="):
        chosen(f"env={name}")


class TestRoles:
    def test_budgets_and_sampling_of_a_role_can_be_set(self) -> None:
        config = compose(
            ["model=tiny-random", "model.actor.thinking_tokens=32", "model.inducer.temperature=0.2"]
        )
        model_config, own = actor_model_config(config), actor_model_config(compose(["model=tiny-random"]))
        assert (model_config.roles.actor.thinking_tokens, model_config.roles.inducer.temperature) == (32, 0.2)
        assert model_config.roles.actor.string_tokens == own.roles.actor.string_tokens
        assert inducer_model_config(config, model_config) is model_config

    def test_those_of_the_inducer_go_to_its_own_model_config_where_it_has_one(self) -> None:
        config = compose(
            ["model=tiny-random", "model.inducer_name=gpt-5.4-mini", "model.inducer.reasoning_effort=high"]
        )
        model_config = actor_model_config(config)
        assert model_config == actor_model_config(compose(["model=tiny-random"]))
        other = inducer_model_config(config, model_config)
        assert (other.name, other.roles.inducer.reasoning_effort) == ("gpt-5.4-mini", "high")

    @pytest.mark.parametrize(
        ("condition_name", "problem"),
        [
            (
                "model.actor.thinking_tokens=50000",
                r"model\.actor \(50\d+\): thinking_tokens \+ string_tokens must be below the context of",
            ),
            (
                "model.actor.reasoning_effort=low",
                r"reasoning_effort is for hosted models; use thinking_tokens",
            ),
        ],
    )
    def test_what_the_model_cannot_do_is_refused_before_anything_starts(
        self, condition_name: str, problem: str
    ) -> None:
        with pytest.raises(
            InvalidModelConfig,
            match=rf"^{condition_name} does not work with model 'tiny-random': .*{problem}",
        ):
            actor_model_config(compose(["model=tiny-random", condition_name]))
