"""What the actor reads after a call."""

from __future__ import annotations

from typing import Any

from envs import Outcome
from speedrunner.agents.actor import actor_view
from speedrunner.store.records import CallNode
from speedrunner.workers.worker_messages import Executed
from tests.golden_tables import Golden, table


def executed(node: CallNode, observation: str | None = None, free_observation: str | None = None) -> Executed:
    """Return a worker's report of a call."""
    return Executed(
        node=node,
        observation=observation,
        free_observation=free_observation,
        outcome=Outcome(0.0, False, {}),
        actions=0,
        termination=None,
    )


def view(
    result: Any = None,
    error: str | None = None,
    observation: str | None = None,
    free_observation: str | None = None,
    limit: int = 1_000,
) -> str:
    node = CallNode("skill", "skill", {}, result=result, error=error)
    return actor_view(executed(node, observation, free_observation), limit)


ROOM = "You are in the kitchen, and a door leads on."
ERROR = "ValueError: no door (in go, line 3)\nTraceback (outermost call first):\n  go, line 3: raise ..."
FLAG = {"observation": "You see a flag."}
VIEWS: dict[str, dict[str, Any]] = {
    **{f"result {result!r}": {"result": result} for result in ("done", "", 3, True, ["ä", {"x": 1.5}], None)},
    "a primitive's text": {"result": "You see a flag.", **FLAG},
    "a result with the last observation": {"result": "Walked twice. You see a flag.", **FLAG},
    "a result without the last observation": {"result": True, **FLAG},
    "no result, and an observation": FLAG,
    "an error with a traceback": {"error": ERROR, "observation": "You see a wall."},
    "a free observation": {"result": "ok", "observation": "moved", "free_observation": "A kitchen."},
    "a result with the free observation": {
        "result": "You stay. A kitchen.",
        "free_observation": "A kitchen.",
    },
    "a result without the free observation's line break": {
        "result": "A kitchen.\n\tA sink.",
        "free_observation": "\nA kitchen.\n\tA sink.\n",
    },
    "a long result": {"result": "x" * 25, "limit": 20},
    "a long result whose end is the observation": {
        "result": "x" * 25 + "You see a flag.",
        "limit": 20,
        **FLAG,
    },
    "one long text three times": {"result": ROOM, "observation": ROOM, "free_observation": ROOM, "limit": 20},
    "one long text twice": {"result": True, "observation": ROOM, "free_observation": ROOM, "limit": 20},
    "three long texts": {
        "result": "ab" * 15,
        "observation": "Y" * 30,
        "free_observation": "Z" * 30,
        "limit": 20,
    },
}
"""What a call came back with, by what is special about it."""


def failed(*calls: CallNode, omitted: int = 0, limit: int = 1_000) -> str:
    actions = sum(each.actions for each in calls)
    node = CallNode("fetch", "skill", {}, error="E: no", actions=actions, calls=[*calls], omitted=omitted)
    return actor_view(executed(node, "A flag." if calls else None), limit)


def test_each_text_is_shown_once_and_cut_by_itself(golden: Golden) -> None:
    golden("actor/shown_results.txt", table({name: view(**given) for name, given in VIEWS.items()}))


def test_of_a_skill_that_fails_the_last_primitive_calls_are_shown(golden: Golden) -> None:
    step = CallNode("go_forward", "primitive", {}, "a wall", actions=1)
    look = CallNode("look", "primitive", {"at": "it"}, "A flag.")
    refused = CallNode("fly", "primitive", {}, error="TypeError: fly")
    walk = CallNode("walk", "skill", {}, actions=3, calls=[step] * 3)
    many = [CallNode(f"step{number}", "primitive", {}, "", actions=1) for number in range(50)]
    long = CallNode("say", "primitive", {"text": "x" * 500}, "")
    views = {
        "no call": failed(),
        "a skill, a refused call, a look": failed(walk, refused, look),
        "50 calls": failed(*many),
        "3 calls that were not recorded": failed(step, omitted=3),
        "a call longer than the limit": failed(long, limit=100),
    }
    golden("actor/failed_skills.txt", table(views))
