"""Worlds of recorded episodes, played once more in the real environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import envs
from envs import Task, TextEnv
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.worlds import DRAWN, Worlds, replay_worlds
from speedrunner.store.records import CallNode, Termination, Trajectory, Turn, WorldStep
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.toy_env import Corridor

TASKS = {"babyai": Task("babyai", "putnext", 3), "crafter": Task("crafter", "default", 5)}
CALLS = {
    "babyai": ["turn_left", "go_forward", "turn_right", "go_forward", "go_forward"],
    "crafter": ["move_west", "get_current_observation", "noop", "move_south", "do"],
}


def run_of(folder: Path, env: str, **options: Any) -> RunData:
    """A run that has no more than its configuration."""
    with RunDirectory.open_for_writing(folder / "run") as run:
        named = {"env": {"name": env, **options}, "run": {"dir": "run"}}
        run.write_config(json.dumps(named | {"method": {"name": "react"}, "model": {"name": "tiny"}}))
    return load(folder / "run")


def act(env: TextEnv, name: str) -> CallNode:
    """Call a primitive, as a worker records it."""
    return CallNode(name, "primitive", {}, env.call(name), actions=1)


def turn(executed: CallNode | None, call: bool = True) -> Turn:
    made = ToolCall(executed.name if executed else "x", {}) if call else None
    return Turn([], "", Usage(), 0.1, call=made, executed=executed)


def episode(env: TextEnv, *turns: Turn, **changes: Any) -> Trajectory:
    values: dict[str, Any] = {
        "episode": "train/0000", "task": TASKS[env.name], "policy": 0, "attempt": 1, "turns": list(turns),
        "termination": Termination.CALL_LIMIT, "outcome": env.outcome(),
    }  # fmt: skip
    return Trajectory(**(values | changes))


def played(name: str, **options: Any) -> tuple[Trajectory, list[Any]]:
    """An episode with a call in each turn, and what the world was like before the first and after each."""
    env = envs.make(name, **options)
    env.reset(TASKS[name])
    seen, turns = [DRAWN[env.name](env)], []
    for call in CALLS[name]:
        turns.append(turn(act(env, call)))
        seen.append(DRAWN[env.name](env))
    return episode(env, *turns), seen


@pytest.mark.parametrize(
    ("name", "options"), [("babyai", {"num_dists": 4}), ("crafter", {"zombie_frequency": 3.0})]
)
def test_each_turn_has_the_world_that_it_left(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    trajectory, seen = played(name, **options)
    found = replay_worlds(run_of(tmp_path, name, **options), trajectory)
    assert found.turns == dict(enumerate(seen))
    assert found.steps == seen
    assert seen[0] != seen[-1]


@pytest.fixture
def babyai(tmp_path: Path) -> RunData:
    return run_of(tmp_path, "babyai")


def test_a_skill_s_primitives_are_played_and_its_code_is_not(babyai: RunData) -> None:
    env = envs.make("babyai")
    env.reset(TASKS["babyai"])
    inner = CallNode("inner", "skill", {}, calls=[act(env, "turn_left"), act(env, "turn_left")])
    refused = CallNode("drop", "primitive", {"x": 1}, error="TypeError: drop()")
    skill = CallNode("no_such_skill", "skill", {}, calls=[inner, refused, act(env, "go_forward")])
    found = replay_worlds(babyai, episode(env, turn(skill)))
    assert found.turns[1] == DRAWN[env.name](env)
    assert len(found.steps) == 5  # the start, and each primitive in it
    assert found.steps[2] == found.steps[3]  # a refused one changes nothing


def test_a_turn_that_asks_nothing_of_the_world_leaves_it_as_it_was(babyai: RunData) -> None:
    env = envs.make("babyai")
    env.reset(TASKS["babyai"])
    no_tool = CallNode("fly", "tool", {}, error="LookupError: no tool 'fly'")
    turns = [turn(None, call=False), turn(act(env, "turn_left")), turn(no_tool), turn(None, call=False)]
    found = replay_worlds(babyai, episode(env, *turns)).turns
    assert found[0] == found[1] != found[2] == found[3] == found[4] == DRAWN[env.name](env)


def test_calls_that_no_turn_shows_are_played_in_their_place(babyai: RunData) -> None:
    env = envs.make("babyai")
    env.reset(TASKS["babyai"])
    steps = [WorldStep(call=act(env, "turn_left")), WorldStep(load=[]), WorldStep(turn=0)]
    before, first = DRAWN[env.name](env), act(env, "turn_left")
    tool = CallNode("submit_program", "tool", {}, calls=[first])
    trajectory = episode(env, turn(tool), world=steps)
    assert replay_worlds(babyai, trajectory).turns == {0: before, 1: DRAWN[env.name](env)}


class TestThereIsNoPictureFromWhere:
    @pytest.fixture
    def recorded(self) -> Trajectory:
        return played("babyai")[0]

    @pytest.mark.parametrize(
        "changes",
        [{"result": "a dragon"}, {"omitted": 1}, {"name": "fly"}, {"arguments": {"far": 3}}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_the_record_says_something_else(
        self, babyai: RunData, recorded: Trajectory, changes: dict[str, Any]
    ) -> None:
        call = recorded.turns[2].executed
        assert call is not None
        recorded.turns[2].executed = replace(call, **changes)
        assert sorted(replay_worlds(babyai, recorded).turns) == [0, 1, 2]

    def test_a_call_has_no_record(self, babyai: RunData, recorded: Trajectory) -> None:
        recorded.turns[3].executed = None
        assert sorted(replay_worlds(babyai, recorded).turns) == [0, 1, 2, 3]

    def test_turns_are_not_in_the_order_of_their_calls(self, babyai: RunData, recorded: Trajectory) -> None:
        recorded.world = [WorldStep(turn=number) for number in (0, 1, 4, 2, 3)]
        assert sorted(replay_worlds(babyai, recorded).turns) == [0, 1, 2]

    def test_the_environment_raises(self, babyai: RunData, recorded: Trajectory) -> None:
        recorded.task = Task("babyai", "swim", 0)
        assert replay_worlds(babyai, recorded).turns == {}
        recorded.task, recorded.world = TASKS["babyai"], [WorldStep(turn=99)]
        assert replay_worlds(babyai, recorded).turns == {}

    def test_it_ends_in_another_way(self, tmp_path: Path) -> None:
        recorded, _ = played("crafter")
        assert recorded.outcome is not None
        recorded.outcome = recorded.outcome.__class__(0.5, False, {})
        assert replay_worlds(run_of(tmp_path, "crafter"), recorded) == Worlds()


def test_an_environment_that_has_no_pictures_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Corridor, "__init__", None)
    data = run_of(tmp_path, "tests.toy_env:Corridor")
    assert replay_worlds(data, played("babyai")[0]) == Worlds()
