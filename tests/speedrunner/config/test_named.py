"""The one task that a configuration names: what is left out is the first training task's."""

from __future__ import annotations

import pytest

import envs
from envs import InvalidOption, Task, TextEnv, UnknownTask
from speedrunner.config.compose import compose
from speedrunner.config.named import chosen_task
from tests.toy_env import Corridor


def chosen(*overrides: str) -> Task:
    return chosen_task(compose(overrides))


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


def test_a_misspelt_name_is_told_from_one_without_a_split() -> None:
    with pytest.raises(UnknownTask, match="no task 'boiling' in scienceworld; there are boil, melt"):
        envs.make("scienceworld").reset(chosen("env=scienceworld", "task.name=boiling"))


class Unsplit(Corridor):
    """For single episodes."""

    splits = classmethod(TextEnv.splits.__func__)  # type: ignore[attr-defined]


def test_without_a_split_a_task_can_be_named() -> None:
    name = f"{__name__}:Unsplit"
    assert chosen(f"env={name}", "task.name=maze") == Task(name, "maze", 0)
    assert chosen(f"env={name}", "task.name=maze", "task.index=5") == Task(name, "maze", 5)
    with pytest.raises(UnknownTask, match=r"offers no split; .*; or name a task: task\.name="):
        chosen(f"env={name}")


def test_a_task_that_is_named_in_full_needs_no_split() -> None:
    assert chosen("env=scienceworld", "task.name=boil", "task.index=3") == Task("scienceworld", "boil", 3)
    with pytest.raises(InvalidOption, match="option 'family' of scienceworld must be given"):
        chosen("env=scienceworld", "task.index=3")
