"""The messages of an OpenEnv client, without the network."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envs import Task
from speedrunner.skill_server.game import Game
from speedrunner.skill_server.openenv_session import OpenEnvSession, ResetData, choose_world
from speedrunner.skill_server.player import Player
from tests.scripted_runs import CORRIDOR
from tests.speedrunner.skill_server.samples import Lender, make_game


@pytest.fixture(scope="module")
def game() -> Game:
    return make_game()


def reset(**data: Any) -> dict[str, Any]:
    return {"type": "reset", "data": data}


def step(**data: Any) -> dict[str, Any]:
    return {"type": "step", "data": data}


async def converse(game: Game, *messages: Any) -> list[Any]:
    """The answers to these messages of a new client. The last one's processes are returned."""
    lender = Lender()
    async with Player(game, lender.lend) as player:
        session = OpenEnvSession(game, player)
        texts = [each if isinstance(each, str) else json.dumps(each) for each in messages]
        answers = [await session.answer(each) for each in texts]
    assert lender.returned == lender.lent
    return answers


async def test_a_client_plays_an_episode_with_typed_calls_and_tools(game: Game) -> None:
    first, tools, typed, state, called = await converse(
        game,
        reset(index=3, episode_id="mine"),
        step(type="list_tools"),
        step(message="walk(steps=2)"),
        {"type": "state"},
        step(type="call_tool", tool_name="walk", arguments={}),
    )
    shown = first["data"]["observation"]
    assert shown["text"] == "Your task: Walk to the flag.\n\nYou are at field 0. The flag is at field 3."
    assert shown["instructions"].startswith("You are in a corridor.")
    assert shown["instructions"].endswith("\nlook(): Look around.")
    assert (first["data"]["reward"], first["data"]["done"]) == (None, False)
    assert [each["name"] for each in tools["data"]["observation"]["tools"]] == ["walk", "look"]
    assert typed["data"] == {
        "observation": {
            "text": "You are at field 2. The flag is at field 3.",
            "is_error": False,
            "episode": {"score": 2 / 3, "success": False, "termination": None, "calls": 1, "actions": 1},
        },
        "reward": 2 / 3,
        "done": False,
    }
    assert state == {"type": "state", "data": {"episode_id": "mine", "step_count": 1}}
    last = called["data"]["observation"]
    assert (last["tool_name"], last["result"], last["error"]) == ("walk", "You are at the flag.", None)
    assert last["episode"]["termination"] == "success"
    assert called["data"]["done"]
    assert typed["data"]["reward"] + called["data"]["reward"] == 1.0


async def test_the_mistakes_of_an_agent_are_observations_and_count(game: Game) -> None:
    _, unknown, unreadable, surrogate, number, wrong = await converse(
        game,
        reset(),
        step(message="start_episode"),
        step(message="walk('"),
        step(message="look('\\ud800')"),
        step(message="walk(1j)"),
        step(type="call_tool", tool_name="fly"),
    )
    assert unknown["data"]["observation"]["text"] == (
        "Error: there is no tool 'start_episode'; available: walk, look"
    )
    for answer in (unknown, unreadable, surrogate, number, wrong):
        assert answer["data"]["observation"]["is_error"]
    assert number["data"]["observation"]["text"].startswith("Error: walk: its arguments are not JSON")
    assert wrong["data"]["observation"]["result"] is None
    assert wrong["data"]["observation"]["error"]["error_type"] == "execution_error"
    assert wrong["data"]["observation"]["episode"]["calls"] == 5


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("nonsense", "INVALID_JSON"),
        ("[" * 100_000, "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"a": ' + "[" * 100_000, "INVALID_JSON"),
        ('{"type": "step", "data": {"message": "\\ud800"}}', "INVALID_JSON"),
        ([], "VALIDATION_ERROR"),
        ({}, "VALIDATION_ERROR"),
        ({"type": "fly"}, "UNKNOWN_TYPE"),
        ({"type": "step"}, "VALIDATION_ERROR"),
        (reset(seed=-1), "VALIDATION_ERROR"),
        (reset(seed=2**60), "VALIDATION_ERROR"),
        (reset(seed="7"), "VALIDATION_ERROR"),
        (reset(split="dev"), "VALIDATION_ERROR"),
        (reset(task="nowhere"), "EXECUTION_ERROR"),
        (step(massage="look()"), "VALIDATION_ERROR"),
        (step(message=3), "VALIDATION_ERROR"),
        (step(type="fly"), "VALIDATION_ERROR"),
        (step(type="call_tool", tool_name="walk", arguments=[1]), "VALIDATION_ERROR"),
        (step(message="look()"), "EXECUTION_ERROR"),  # there is no episode yet
    ],
)
async def test_an_invalid_message_is_an_error_and_the_session_continues(
    game: Game, message: Any, code: str
) -> None:
    refused, next_one = await converse(game, message, reset(seed=0, unknown="ignored"))
    assert (refused["type"], refused["data"]["code"]) == ("error", code)
    assert next_one["type"] == "observation"


async def test_after_the_end_a_step_is_an_error(game: Game) -> None:
    *_, late = await converse(game, reset(index=1), step(message="walk"), step(message="walk"))
    assert late["data"] == {
        "message": "no episode is running: send a reset first", "code": "EXECUTION_ERROR"
    }  # fmt: skip


async def test_an_environment_that_breaks_is_an_error_and_no_score(game: Game) -> None:
    _, broken, late, again = await converse(
        game,
        reset(task="broken_step", index=9),
        step(message="walk(steps=3)"),
        step(message="look"),
        reset(),
    )
    assert broken["data"]["code"] == late["data"]["code"] == "EXECUTION_ERROR"
    assert "no episode is running" in late["data"]["message"]
    assert again["type"] == "observation"


async def test_the_limits_of_a_run_end_an_episode() -> None:
    *_, last = await converse(make_game(llm_calls=2), reset(), step(message="look"), step(message="x"))
    assert last["data"]["done"]
    assert last["data"]["observation"]["episode"]["termination"] == "call_limit"


async def test_a_client_ends_the_session(game: Game) -> None:
    assert await converse(game, reset(), {"type": "close"}) != [None, None]
    assert (await converse(game, reset(), {"type": "close"}))[1] is None


@pytest.mark.parametrize(
    ("data", "index"),
    [
        (ResetData(), 3),
        (ResetData(seed=0), 3),
        (ResetData(seed=5), 4),  # there are four training tasks
        (ResetData(seed=5, split="test"), 8),
        (ResetData(seed=5, index=77), 77),
        (ResetData(task="default"), 3),
    ],
)
def test_a_seed_is_the_number_of_a_task(game: Game, data: ResetData, index: int) -> None:
    assert choose_world(game, data) == Task(CORRIDOR, "default", index)


def test_of_a_task_without_a_split_the_seed_is_the_index() -> None:
    game = make_game("task.name=slow_step")
    assert choose_world(game, ResetData(seed=5)) == Task(CORRIDOR, "slow_step", 5)
    assert choose_world(game, ResetData(task="broken_step")) == Task(CORRIDOR, "broken_step", 0)
