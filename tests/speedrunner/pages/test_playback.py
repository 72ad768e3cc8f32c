"""Playback: every primitive with its callers, their source, and a picture of the world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import envs
from envs import Task, TextEnv
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.pages.playback import list_modules, list_steps, make_playback, replay_pictures
from speedrunner.store.records import (
    CallNode,
    Message,
    Policy,
    Skill,
    Termination,
    Trajectory,
    Turn,
    WorldStep,
    hunks,
)
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from tests.page_elements import HOSTILE
from tests.speedrunner.pages.runs import CONFIG
from tests.toy_env import Corridor

SOURCE = '''def spin() -> str:
    """Turn around."""
    turn_left()
    return _once(1)


def _once(times: int) -> str:
    """Turn once more."""
    return turn_left()'''
SKILLS = tuple(Skill(name=name, public=name == "spin", created=0, edited=0) for name in ("spin", "_once"))
BARE = "{env: {name: 'ENV'}, run: {dir: run}, method: {name: react}, model: {name: tiny}}"
TASK = Task("babyai", "pick_up_seq_go_to", 3)


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


def replayed(run: RunData, trajectory: Trajectory) -> list[str]:
    """All pictures of an episode."""
    return replay_pictures(run, trajectory, 0, 99)


def playback(run: RunData, trajectory: Trajectory) -> dict[str, Any]:
    """The playback as the page gets it."""
    made = make_playback(list_steps(trajectory), list_modules(run, trajectory), replayed(run, trajectory))
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return decoded


def test_each_primitive_is_a_step_also_within_skills(run: RunData, env: TextEnv) -> None:
    refused = CallNode("drop", "primitive", {"x": 1}, error="TypeError: drop()")
    found = playback(run, episode(env, act(env), spin(env), refused))
    positions = found["positions"]
    assert [each["turn"] for each in positions] == [1, 1, 2, 2, 3]
    assert [each["call"] for each in positions][1:] == ["turn_left()"] * 3 + ["drop(x=1)"]
    assert [each.get("failed", False) for each in positions] == [False] * 4 + [True]
    assert positions[4]["result"] == "TypeError: drop()"
    images = [found["images"][each["image"]] for each in positions]
    assert len(set(images)) == 4  # the refused call changed nothing
    assert images[3] == images[4]
    assert all(image.startswith("data:image/png;base64,") for image in images)


def test_a_module_that_replaced_another_one_shows_its_own_source(run: RunData, env: TextEnv) -> None:
    (before,) = list_modules(run, episode(env))
    after = msgspec.structs.replace(before, source=before.source.replace("Turn around.", "Turn twice."))
    steps = [WorldStep(turn=0), WorldStep(load=hunks(before, after)), WorldStep(turn=1)]
    found = playback(run, episode(env, spin(env), spin(env), world=steps))
    texts = ["\n".join(map(str, each["lines"])) for each in found["sources"] if each["name"] == "spin"]
    assert ["twice" in text for text in texts] == [False, True]


def test_text_of_a_run_is_cut_and_has_no_control_characters(run: RunData, env: TextEnv) -> None:
    call = CallNode(HOSTILE, "primitive", {"x": HOSTILE * 99}, error=HOSTILE * 999)
    text = msgspec.json.encode(make_playback(list_steps(episode(env, call)), [], [])).decode()
    assert len(text) < 3_000
    assert not {"\x1b", "\u202e", "\u2028"} & set(text)


class TestReplay:
    CALLS = ("turn_left", "go_forward", "turn_right", "go_forward", "go_forward")

    @pytest.fixture
    def recorded(self, env: TextEnv) -> Trajectory:
        calls = [CallNode(name, "primitive", {}, env.call(name), actions=1) for name in self.CALLS]
        return episode(env, *calls)

    def test_crafter_is_drawn_after_each_primitive(self, tmp_path: Path) -> None:
        with RunDirectory.open_for_writing(tmp_path / "run") as directory:
            directory.write_config(BARE.replace("ENV", "crafter"))
        task, world = Task("crafter", "default", 5), envs.make("crafter")
        world.reset(task)
        calls = [
            CallNode(name, "primitive", {}, world.call(name), actions=1)
            for name in ("move_west", "get_current_observation", "noop", "move_south", "do")
        ]
        data, trajectory = load(tmp_path / "run"), episode(world, *calls, task=task)
        pictures = replayed(data, trajectory)
        assert len(pictures) == 6
        assert pictures[0] != pictures[-1]
        assert pictures[1] == pictures[2]  # looking changes nothing
        assert replay_pictures(data, trajectory, 2, 1) == pictures[2:4]

    @pytest.mark.parametrize(
        "changes",
        [{"result": "a dragon"}, {"omitted": 1}, {"name": "fly"}, {"arguments": {"far": 3}}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_it_ends_where_the_record_says_something_else(
        self, run: RunData, recorded: Trajectory, changes: dict[str, Any]
    ) -> None:
        call = recorded.turns[2].executed
        assert call is not None
        assert len(replayed(run, recorded)) == 6
        recorded.turns[2].executed = msgspec.structs.replace(call, **changes)
        assert len(replayed(run, recorded)) == 3

    def test_calls_that_no_turn_shows_are_played_in_their_place(self, run: RunData, env: TextEnv) -> None:
        steps = [WorldStep(call=act(env)), WorldStep(load=[]), WorldStep(turn=0)]
        tool = CallNode("submit_program", "tool", {}, calls=[act(env)])
        pictures = replayed(run, episode(env, tool, world=steps))
        assert len(pictures) == 3

    def test_a_foreign_environment_is_not_made(
        self, tmp_path: Path, recorded: Trajectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Corridor, "__init__", None)
        with RunDirectory.open_for_writing(tmp_path / "run") as directory:
            directory.write_config(BARE.replace("ENV", "tests.toy_env:Corridor"))
        assert replayed(load(tmp_path / "run"), recorded) == []
