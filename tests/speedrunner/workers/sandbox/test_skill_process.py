"""Skills in a child: how long a call may take, whatever its process costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from speedrunner.workers.sandbox.child_process import START_LIMIT_S, Child, ChildPool
from speedrunner.workers.sandbox.settings import Sandbox, SandboxError
from speedrunner.workers.sandbox.skill_process import SkillModule, Skills
from tests.processes import HANGS_S, states
from tests.speedrunner.workers.sandbox.still_world import StillWorld

pytestmark = pytest.mark.process

SOURCE = """
def harmless():
    return look()

def endless():
    while True:
        look()
"""


@pytest.fixture
def pool() -> Iterator[ChildPool]:
    pool = ChildPool(Sandbox())
    yield pool
    pool.close()


@pytest.fixture
def skills(pool: ChildPool) -> Iterator[Skills]:
    module = SkillModule(SOURCE, ("harmless", "endless"), {"look": "Look."}, "seed")
    skills = Skills(pool, module, StillWorld())
    skills.close()  # as after a call that had to be killed
    yield skills
    skills.close()


def test_the_start_of_a_new_process_takes_nothing_of_the_calls_time(
    skills: Skills, pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0.0

    def take() -> Child:
        nonlocal passed_s
        passed_s = START_LIMIT_S - 1
        return ChildPool.take(pool)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s)
    monkeypatch.setattr("speedrunner.workers.sandbox.skill_process.time", clock)
    monkeypatch.setattr(pool, "take", take)
    ended = skills.run("harmless", {}, HANGS_S / 2)
    assert (ended.result, ended.error) == ("a wall", None)


def test_a_call_in_a_new_process_is_interrupted_at_its_limit_and_not_killed(
    skills: Skills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speedrunner.workers.sandbox.skill_process.STOP_S", HANGS_S)
    error = skills.run("endless", {}, 0.2).error or ""
    assert error.startswith("TimeLimitReached: stopped at the time limit of 0.2 s")
    assert "killed" not in error


def test_a_library_of_four_million_characters_reaches_its_child() -> None:
    """What the worker says is not bounded as what it is told."""
    source = SOURCE + "# a line of a very large library\n" * 120_000
    assert len(source) > 3_900_000
    pool = ChildPool(Sandbox())
    large = Skills(
        pool, SkillModule(source, ("harmless", "endless"), {"look": "Look."}, "seed"), StillWorld()
    )
    assert large.run("harmless", {}, HANGS_S).result == "a wall"
    large.close()
    pool.close()


IMPORTS = """
import collections, dataclasses, enum, json, random, re, typing

@dataclasses.dataclass
class Point:
    x: int
    kinds: typing.ClassVar[int] = 3

def found():
    reached = [enum, json, random, re]
    for module in reached:
        values = vars(module).values()
        reached += [each for each in values if isinstance(each, type(enum)) and each not in reached]
    whole = [json.decoder.JSONDecodeError, collections.abc.Mapping, typing.get_type_hints(Point)["x"]]
    names = {each.__name__ for each in reached}
    return [each.name for each in dataclasses.fields(Point)], len(whole), sorted(names)
"""


def test_modules_are_given_without_those_that_they_import(pool: ChildPool) -> None:
    module = SkillModule(IMPORTS, ("found",), {}, "seed")
    with closing(Skills(pool, module, StillWorld())) as skills:
        fields, whole, reached = skills.run("found", {}, HANGS_S).result
    assert (fields, whole) == (["x"], 3)  # a class variable is no field
    assert {"enum", "json.decoder"} <= set(reached)
    assert {each.partition(".")[0] for each in reached} == {"enum", "json", "random", "re"}


def test_where_no_process_starts_in_three_tries_the_episode_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speedrunner.workers.sandbox.child_process.START_PAUSES_S", (0.0, 0.0, None))
    monkeypatch.setattr("speedrunner.workers.sandbox.child_process.PROGRAM", "raise SystemExit(1)")
    with pytest.raises(SandboxError, match="did not start"):
        Skills(ChildPool(Sandbox()), SkillModule(SOURCE, ("harmless",), {}, "seed"), StillWorld())


def test_a_process_that_starts_for_ever_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = ChildPool(Sandbox())
    module = SkillModule(SOURCE, ("harmless",), {"look": "Look."}, "seed")
    with closing(Skills(pool, module, StillWorld())) as skills:
        skills.close()
        pool.close()
        monkeypatch.setattr("speedrunner.workers.sandbox.child_process.START_LIMIT_S", 0.1)
        monkeypatch.setattr(
            "speedrunner.workers.sandbox.child_process.PROGRAM", "import time; time.sleep(60)"
        )
        with pytest.raises(SandboxError, match="did not start"):
            skills.run("harmless", {}, HANGS_S)


BURNS = """
def harmless():
    return look()

while BURNING:
    pass
"""


def test_a_module_that_does_not_end_to_load_is_ended_and_each_call_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("speedrunner.workers.sandbox.skill_process.LOAD_LIMIT_S", 0.3)
    pool = ChildPool(Sandbox())
    module = SkillModule(BURNS.replace("BURNING", "True"), ("harmless",), {"look": "Look."}, "seed")
    with closing(Skills(pool, module, StillWorld())) as skills:
        assert skills._child is None
        ended = skills.run("harmless", {}, 0.2)
        assert (ended.error or "").startswith("TimeLimitReached: stopped at the time limit of 0.2 s")
        assert skills._child is None
    pool.close()


def test_nothing_of_a_module_runs_before_a_skill_is_called() -> None:
    source = BURNS.replace("BURNING", "False") + "import gc\n"
    source += "wire = next(each for each in gc.get_objects() if type(each).__name__ == 'Wire')\n"
    source += "wire.send(encode(['loaded']))\nwhile True: pass\n"
    source = "from child.wire import encode\n" + source
    pool = ChildPool(Sandbox())
    with closing(
        Skills(pool, SkillModule(source, ("harmless",), {"look": "Look."}, "s"), StillWorld())
    ) as skills:
        assert skills._child is not None  # it has lied, and burns on
        deadline = time.monotonic() + HANGS_S
        while states(skills._child._process.pid) != {"T"}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    pool.close()
