"""Skills as documents: the actor reads them and calls primitives only."""

from __future__ import annotations

import pytest

from envs import Task
from speedrunner.config.schema import LibraryConfig
from speedrunner.methods.skill_folder import SkillFolder
from speedrunner.store.policies import InvalidPolicy
from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import Runs, check_whole, script
from tests.toy_env import Corridor

SKILLS = '''import re


def _fields(text: str) -> list[int]:
    """Read."""
    return [int(number) for number in re.findall("[0-9]+", text)]


def to_flag() -> str:
    """Walk to the flag.

    Returns what is seen there."""
    field, flag = _fields(look())
    return walk(steps=flag - field)'''


def reader(request: Request) -> Answer:
    """Reads a skill and names one that does not exist, then does what the skill does."""
    if "read_skill" in request.tools and request.turn < 2:
        return call("read_skill", name=("to_flag", "fly")[request.turn])
    return call("walk", steps=9)


async def test_a_session(corridor: Runs) -> None:
    run = corridor(script(reader, (call("write_skill", source=SKILLS, public=True),)))
    await run.play("method=skill_folder")
    check_whole(run)
    *_, last = [each for each in run.server.requests if "walk" in each.tools and each.turn == 2]
    assert list(last.tools) == ["walk", "look", "read_skill"]
    assert "- to_flag(): Walk to the flag.\n\n  Returns what is seen there." in last.system
    assert "_fields" not in last.system
    replies = [text for _, text in last.messages]
    assert any(f"{SKILLS.partition('def _')[0].strip()}\n\n\ndef _fields" in each for each in replies)
    assert "'fly' at name is not one of 'to_flag'" in replies[-1]
    played = run.data.trajectories()[-1]
    kinds = [(turn.executed.name, turn.executed.kind) for turn in played.turns if turn.executed]
    assert kinds == [("read_skill", "tool"), ("walk", "primitive")]
    induced = next(each for each in run.server.requests if "write_skill" in each.tools)
    assert "The actor reads skills as documents and cannot call them." in induced.system
    spec = SkillFolder().agent(run.data.policies.load(2), Task(Corridor.name, "default", 3), Corridor())
    with pytest.raises(InvalidPolicy, match="visible_last=0: the actor of this method does not call skills"):
        spec.with_part(LibraryConfig(visible_last=0))
