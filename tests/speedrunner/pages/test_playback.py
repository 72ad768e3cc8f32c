"""Playback: every primitive with its callers and their source, and only what changes in the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import envs
from envs import Task, TextEnv
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.pictures import draw_babyai
from speedrunner.pages.playback import LABEL, PIECE, count_pieces, list_modules, list_steps, make_piece
from speedrunner.pages.worlds import Worlds, replay_worlds
from speedrunner.store.modules import hunks
from speedrunner.store.records import (
    CallNode,
    Message,
    Policy,
    Skill,
    Termination,
    Trajectory,
    Turn,
    WorldStep,
)
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import HOSTILE, Elements
from tests.speedrunner.pages.runs import CONFIG

SOURCE = '''def spin() -> str:
    """Turn around."""
    turn_left()
    return _once(1)


def _once(times: int) -> str:
    """Turn once more."""
    return turn_left()'''
SKILLS = tuple(Skill(name=name, public=name == "spin", created=0, edited=0) for name in ("spin", "_once"))
TASK = Task("babyai", "putnext", 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """A run with a library of two skills."""
    folder = tmp_path_factory.mktemp("playback") / "run"
    with RunDirectory.open_for_writing(folder) as directory:
        directory.write_config(CONFIG)
        directory.write_policy(Policy(version=0, module=SOURCE, skills=SKILLS))
    return load(folder)


def act(env: TextEnv, line: int | None = None) -> CallNode:
    node = CallNode("turn_left", "primitive", {}, env.call("turn_left"), actions=1)
    return node if line is None else msgspec.structs.replace(node, line=line)


def spin(env: TextEnv) -> CallNode:
    """A call of `spin`, as a worker records it."""
    first, last = act(env, 3), act(env, 3)
    once = CallNode("_once", "skill", {"times": 1}, last.result, calls=[last], line=4)
    return CallNode("spin", "skill", {}, last.result, calls=[first, once])


def episode(env: TextEnv, *calls: CallNode, **changes: Any) -> Trajectory:
    turns = [
        Turn([Message("user", "go")], "", Usage(), 0.1, call=ToolCall(each.name, {}), executed=each)
        for each in calls
    ]
    values: dict[str, Any] = {
        "episode": "train/0000", "task": TASK, "policy": 0, "attempt": 1, "turns": turns,
        "termination": Termination.CALL_LIMIT, "outcome": env.outcome(),
    }  # fmt: skip
    return Trajectory(**(values | changes))


@pytest.fixture
def env() -> TextEnv:
    started = envs.make("babyai")
    started.reset(TASK)
    return started


def piece(run: RunData, trajectory: Trajectory, number: int = 1) -> dict[str, Any]:
    """A piece as the page gets it."""
    made = make_piece(
        list_steps(trajectory), list_modules(run, trajectory), replay_worlds(run, trajectory), number
    )
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return decoded


def test_each_primitive_is_a_step_also_within_skills(run: RunData, env: TextEnv) -> None:
    refused = CallNode("drop", "primitive", {"x": 1}, error="TypeError: drop()")
    found = piece(run, episode(env, act(env), spin(env), refused))
    positions = found["positions"]
    assert [each["turn"] for each in positions] == [1, 1, 2, 2, 3]
    assert [each["call"] for each in positions][1:] == ["turn_left()"] * 3 + ["drop(x=1)"]
    assert [each.get("failed", False) for each in positions] == [False] * 4 + [True]
    assert positions[4]["result"] == "TypeError: drop()"


def test_a_step_has_its_call_stack_and_the_line_that_made_each_call(run: RunData, env: TextEnv) -> None:
    found = piece(run, episode(env, spin(env)))
    step = found["positions"][2]
    inner = found["frames"][step["frame"]]
    outer = found["frames"][inner["up"]]
    assert (outer["call"], outer["up"]) == ("spin()", None)
    assert (inner["call"], inner["line"], step["line"]) == ("_once(times=1)", 4, 3)
    lines = [Elements(line).text for line in found["sources"][outer["source"]]["lines"]]
    assert lines[inner["line"] - 1] == "    return _once(1)"
    lines = [Elements(line).text for line in found["sources"][inner["source"]]["lines"]]
    assert lines[step["line"] - 1] == "    return turn_left()"


def test_a_call_without_a_recorded_line_shows_none(run: RunData, env: TextEnv) -> None:
    call = spin(env)
    call.calls[0].line = msgspec.UNSET
    assert "line" not in piece(run, episode(env, call))["positions"][1]


def test_only_changed_parts_of_a_picture_are_sent(run: RunData, env: TextEnv) -> None:
    trajectory = episode(env, spin(env))
    found, worlds = piece(run, trajectory), replay_worlds(run, trajectory)
    parts, label = list(map(str, worlds.steps[0].parts)), worlds.steps[0].label
    assert found["picture"] == worlds.steps[0].draw()
    for position, picture in zip(found["positions"], worlds.steps, strict=True):
        assert len(position["parts"]) <= 4
        for place, text in zip(position["parts"][::2], position["parts"][1::2], strict=True):
            if place == LABEL:
                label = found["texts"][text]
            else:
                parts[place] = found["texts"][text]
        assert (parts, label) == (list(map(str, picture.parts)), picture.label)
    assert set().union(*(picture.tiles for picture in worlds.steps)) == set(found["tiles"])


def test_a_long_episode_comes_in_pieces_that_each_start_with_a_whole_picture(env: TextEnv) -> None:
    steps = list_steps(episode(env, *([CallNode("turn_left", "primitive", {})] * (PIECE + 4))))
    worlds = Worlds(steps=[draw_babyai(env.snapshot() or {})] * (PIECE + 5))
    assert count_pieces(steps) == 2
    first, last = make_piece(steps, [], worlds, 1), make_piece(steps, [], worlds, 2)
    assert (len(first["positions"]), len(last["positions"])) == (PIECE, 5)
    assert first["picture"] == last["picture"] == worlds.steps[0].draw()
    assert [each["parts"] for each in last["positions"]] == [[]] * 5


def test_steps_after_the_end_of_a_replay_have_no_picture(run: RunData, env: TextEnv) -> None:
    right, other, last = act(env), act(env), act(env)
    wrong = msgspec.structs.replace(other, result="a dragon")
    found = piece(run, episode(env, right, wrong, last))
    assert ["parts" in each for each in found["positions"]] == [True, True, False, False]
    without = make_piece(list_steps(episode(env, wrong)), [], Worlds(), 1)
    assert (without["picture"], without["tiles"]) == ("", {})


def test_a_module_that_replaced_another_one_shows_its_own_source(run: RunData, env: TextEnv) -> None:
    (before,) = list_modules(run, episode(env))
    after = msgspec.structs.replace(before, source=before.source.replace("Turn around.", "Turn twice."))
    steps = [WorldStep(turn=0), WorldStep(load=hunks(before, after)), WorldStep(turn=1)]
    found = piece(run, episode(env, spin(env), spin(env), world=steps))
    texts = ["\n".join(map(str, each["lines"])) for each in found["sources"] if each["name"] == "spin"]
    assert ["twice" in text for text in texts] == [False, True]


def test_text_of_a_run_is_cut_and_has_no_control_characters(run: RunData, env: TextEnv) -> None:
    call = CallNode(HOSTILE, "primitive", {"x": HOSTILE * 99}, error=HOSTILE * 999)
    text = msgspec.json.encode(make_piece(list_steps(episode(env, call)), [], Worlds(), 1)).decode()
    assert len(text) < 3_000
    assert not {"\x1b", "\u202e", "\u2028"} & set(text)


def test_an_episode_of_a_policy_that_cannot_be_read_has_no_sources(
    run: RunData, env: TextEnv, tmp_path: Path
) -> None:
    trajectory = episode(env, spin(env), policy=9)
    assert list_modules(run, trajectory) == []
    assert make_piece(list_steps(trajectory), [], Worlds(), 1)["sources"] == []
