"""What `TextEnv` does for every environment: checking calls against the primitives' signatures."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import pytest

from envs import InvalidPrimitiveCall, Limits, Opening, Outcome, Primitive, Task, TextEnv


def move(steps: int, pace: Literal["slow", "fast"] = "slow", load: float | None = None) -> str: ...  # type: ignore[empty-body]


class Walker(TextEnv):
    primitives = (
        Primitive("move", inspect.signature(move, eval_str=True), "Move."),
        Primitive("rest", inspect.Signature(), "Rest."),
    )
    description = "A path."
    limits = Limits(llm_calls=1, actions=None)
    done = False

    def reset(self, task: Task) -> Opening:
        return Opening("", "")

    def call(self, name: str, **arguments: Any) -> str:
        return repr(self.check_call(name, arguments))

    def outcome(self) -> Outcome:
        return Outcome(0.0, False, {})


class Registered(Walker):
    name = "walker"


def test_a_class_that_names_itself_is_known_by_that_name_else_by_its_path() -> None:
    assert (Registered.name, Walker.name) == ("walker", f"{__name__}:Walker")


def test_arguments_come_back_complete_and_of_their_types() -> None:
    assert Walker().check_call("move", {"steps": 2}) == {"steps": 2, "pace": "slow", "load": None}
    assert repr(Walker().check_call("move", {"steps": 2, "load": 1})["load"]) == "1.0"
    assert Walker().check_call("rest", {}) == {}


SIGNATURE = "move(steps: int, pace: Literal['slow', 'fast'] = 'slow', load: float | None = None) -> str: "


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("fly", {}, "no primitive 'fly'; there are move, rest"),
        ("move", {}, f"{SIGNATURE}missing a required argument: 'steps'"),
        ("move", {"steps": 1, "far": True}, f"{SIGNATURE}got an unexpected keyword argument 'far'"),
        ("move", {"steps": "1"}, f"{SIGNATURE}steps must be int, not '1'"),
        ("move", {"steps": True}, f"{SIGNATURE}steps must be int, not True"),
        (
            "move",
            {"steps": 1, "pace": "warp"},
            f"{SIGNATURE}pace must be Literal['slow', 'fast'], not 'warp'",
        ),
        ("move", {"steps": 1, "load": "heavy"}, f"{SIGNATURE}load must be float | None, not 'heavy'"),
        ("rest", {"long": True}, "rest(): got an unexpected keyword argument 'long'"),
    ],
)
def test_a_call_against_its_signature_is_refused_with_the_signature(
    name: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidPrimitiveCall) as raised:
        Walker().call(name, **arguments)
    assert str(raised.value) == said


def test_a_long_wrong_value_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidPrimitiveCall) as raised:
        Walker().call("move", steps="1" * 10_000)
    assert len(str(raised.value)) < 200
