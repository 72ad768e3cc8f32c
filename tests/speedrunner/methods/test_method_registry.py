"""Methods by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from speedrunner.methods import method_registry as methods
from speedrunner.methods.method_base import MethodBroke
from speedrunner.methods.method_registry import METHODS, REGISTRY, InvalidMethodOption, UnknownMethod
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


OWN = """
from speedrunner.methods.method_base import Method

class Own(Method):
    def __init__(self, *, size: int = 1) -> None:
        self.size = size
    def initial(self): ...
    def agent(self, policy, task, env, *, training=False): ...
    async def sleep(self, policy, history, tools):
        return policy

class Undecided(Own):
    trains = None

class Waiting(Own):
    def sleep(self, policy, history, tools):
        return policy

class Empty(Own):
    async def sleep(self, policy, history, tools):
        def note(text: str) -> str:
            return "Noted."
        if not tools:
            raise ValueError
        note("x")

class Evaluated(Empty):
    trains = False

class Unable(Own):
    async def sleep(self, policy, history, tools):
        raise NotImplementedError

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

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "raect",
                "unknown method 'raect'; known: asi, asi_replay, opo, react, speedrunner, voyager, or"
                " package.module:Class",
            ),
            ("own_methods:", "unknown method 'own_methods:'"),
            ("own_methods:None_", "method 'own_methods:None_': own_methods has no None_"),
            (
                "no_such_module:Own",
                "cannot import no_such_module: module 'no_such_module' is neither in the current",
            ),
            ("broken_methods:Own", "'nothing_of_the_kind'; broken_methods.py, line 1, in <module>)"),
            ("own_methods:Sleepless", "method 'own_methods:Sleepless': it must define sleep"),
            ("own_methods:Loose", "it must extend speedrunner.methods.method_base.Method"),
            ("own_methods:function", "it must extend speedrunner.methods.method_base.Method"),
            ("own_methods:Positional", "parameter 'size' must be keyword-only and have a default"),
            ("own_methods:Demanding", "parameter 'size' must be keyword-only and have a default"),
        ],
    )
    def test_what_is_no_method_is_refused_in_one_line(self, name: str, message: str) -> None:
        with pytest.raises(UnknownMethod) as error:
            methods.make(name)
        assert message in str(error.value)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("Undecided", "trains must be True or False, not None"),
            ("Waiting", "sleep must be defined by `async def`"),
            ("Empty", "sleep must return a Policy, but has no `return` with a value"),
        ],
    )
    def test_what_would_break_it_after_its_first_batch_is_told_at_once(self, name: str, message: str) -> None:
        with pytest.raises(MethodBroke) as error:
            methods.make(f"own_methods:{name}")
        assert str(error.value) == f"method own_methods:{name}: {message}"

    @pytest.mark.parametrize("name", ["Evaluated", "Unable"])
    def test_a_sleep_that_never_comes_or_may_fail_is_nobody_s_business(self, name: str) -> None:
        methods.make(f"own_methods:{name}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"inducer_cals": 3},
            "method speedrunner has no option 'inducer_cals' (did you mean inducer_calls?)",
        ),
        (
            {"inducer_calls": "many"},
            "option 'inducer_calls' of method speedrunner must be int >= 1, not 'many'",
        ),
    ],
)
def test_options_that_it_does_not_take(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidMethodOption) as error:
        methods.make("speedrunner", **options)
    assert str(error.value).startswith(message)
