"""Methods by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from speedrunner.methods import method_registry as methods
from speedrunner.methods.method_registry import METHODS, REGISTRY, InvalidMethodOption, UnknownMethod
from speedrunner.methods.react import ReAct
from speedrunner.methods.speedrunner.speedrunner_method import SpeedRunner
from tests.golden_tables import Golden, refusals
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


OWN = """
from speedrunner.methods.method_base import Method

class Own(Method):
    def __init__(self, *, size: int = 1) -> None:
        self.size = size
    def initial(self): ...
    def agent(self, policy, task, env, *, training=False): ...
    async def sleep(self, policy, history, tools):
        return policy

class Sleepless(Method):
    def initial(self): ...
    def agent(self, policy, task, env, *, training=False): ...

class Positional(Own):
    def __init__(self, size: int = 1) -> None: ...

class Demanding(Own):
    def __init__(self, *, size: int) -> None: ...

class Loose:
    def initial(self): ...
    def agent(self, policy, task, env, *, training=False): ...
    async def sleep(self, policy, history, tools): ...

def function(): ...
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_methods.py").write_text(OWN)
    (tmp_path / "broken_methods.py").write_text("import nothing_of_the_kind")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own")
class TestSomebodysOwn:
    def test_is_made_by_its_place(self) -> None:
        made = methods.make("own_methods:Own", size=4)
        assert vars(made) == {"size": 4}
        assert options(REGISTRY, "own_methods:Own") == {"size": 1}

    def test_what_is_no_method_is_refused_in_one_line(self, golden: Golden) -> None:
        places = ("", "None_", "Sleepless", "Loose", "function", "Positional", "Demanding")
        names = ["raect", "no_such_module:Own", "broken_methods:Own"]
        names += [f"own_methods:{each}" for each in places]
        tries = [(name, partial(methods.make, name)) for name in names]
        golden("methods.txt", refusals(tries, UnknownMethod, FOLDER=Path.cwd()))


def test_options_that_it_does_not_take(golden: Golden) -> None:
    options: list[dict[str, Any]] = [{"inducer_cals": 3}, {"inducer_calls": "many"}]
    tries = [(given, partial(methods.make, "speedrunner", **given)) for given in options]
    golden("method_options.txt", refusals(tries, InvalidMethodOption))
