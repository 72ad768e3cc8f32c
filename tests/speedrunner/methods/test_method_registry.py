"""Methods by name."""

from __future__ import annotations

import pytest

from speedrunner.methods import History, Method, Policy, SleepTools
from speedrunner.methods import method_registry as methods
from speedrunner.methods.method_registry import METHODS, REGISTRY
from speedrunner.methods.react import ReAct
from speedrunner.methods.speedrunner.speedrunner_method import SpeedRunner
from tests.registered import options


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_made_without_options_and_begins_with_version_0(name: str) -> None:
    assert methods.make(name).initial().version == 0


def test_options_are_passed_on() -> None:
    assert isinstance(methods.make("react", train=True), ReAct)
    assert methods.make("react", train=True).trains
    assert not methods.make("react").trains
    assert isinstance(methods.make("speedrunner", inducer_calls=3), SpeedRunner)
    assert options(REGISTRY, "react") == {"train": False}


class Own(Method):
    """A method of a user."""

    def __init__(self, *, size: int = 1) -> None:
        self.size = size

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        return policy


def test_another_packages_class_is_made_by_its_path() -> None:
    name = f"{__name__}:Own"
    assert vars(methods.make(name, size=4)) == {"size": 4}
    assert options(REGISTRY, name) == {"size": 1}
