"""The one task that a configuration names: what is left out is the first training task's."""

from __future__ import annotations

import pytest

from envs import InvalidOption, Task
from speedrunner.config.compose import compose
from speedrunner.config.task import chosen_task


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


def test_a_name_that_is_not_trained_on_takes_the_first_index() -> None:
    assert chosen("env=babyai", "task.name=open") == Task("babyai", "open", 83810)


def test_a_task_that_is_named_in_full_needs_no_split() -> None:
    assert chosen("env=scienceworld", "task.name=boil", "task.index=3") == Task("scienceworld", "boil", 3)
    with pytest.raises(InvalidOption, match="option 'family' of scienceworld must be given"):
        chosen("env=scienceworld", "task.index=3")
