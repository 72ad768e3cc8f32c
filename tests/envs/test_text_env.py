"""What `TextEnv` does for every environment: checking calls against the primitives' signatures."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Literal

from envs import InvalidPrimitiveCall, Limits, Opening, Outcome, Primitive, Task, TextEnv
from tests.golden_tables import Golden, refusals


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


def test_a_call_against_its_signature_is_refused_with_the_signature(golden: Golden) -> None:
    moves: list[dict[str, Any]] = [
        *({}, {"steps": 1, "far": True}, {"steps": "1"}, {"steps": True}),
        *({"steps": 1, "pace": "warp"}, {"steps": 1, "load": "heavy"}),
    ]
    calls = [("fly", {}), *(("move", arguments) for arguments in moves), ("rest", {"long": True})]
    tries = [((name, given), partial(Walker().call, name, **given)) for name, given in calls]
    golden("primitive_calls.txt", refusals(tries, InvalidPrimitiveCall))
