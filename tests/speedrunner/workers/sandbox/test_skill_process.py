"""Skills in a child: how long a call may take, whatever its process costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from speedrunner.config.schema import SandboxConfig
from speedrunner.store.records import Module
from speedrunner.workers.sandbox.child_process import START_LIMIT_S, Child, ChildPool
from speedrunner.workers.sandbox.isolation import SandboxError
from speedrunner.workers.sandbox.skill_process import Skills
from tests.processes import HANGS_S, states
from tests.speedrunner.workers.sandbox.still_world import StillWorld

pytestmark = pytest.mark.process

WORLD = StillWorld()
SOURCE = """
def harmless():
    return look()

def endless():
    while True:
        look()
"""


@pytest.fixture
def pool() -> Iterator[ChildPool]:
    pool = ChildPool(SandboxConfig())
    yield pool
    pool.close()


@contextmanager
def loaded(pool: ChildPool, source: str = SOURCE, *names: str) -> Iterator[Skills]:
    module = Module(source, names or ("harmless",))
    with closing(Skills(pool, module, ["look"], "seed", WORLD.call)) as skills:
        yield skills


def test_the_start_of_a_new_process_takes_nothing_of_the_calls_time(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0.0

    def take() -> Child:
        nonlocal passed_s
        passed_s = START_LIMIT_S - 1
        return ChildPool.take(pool)

    with loaded(pool) as skills:
        skills.close()  # as after a call that had to be killed
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s)
        monkeypatch.setattr("speedrunner.workers.sandbox.skill_process.time", clock)
        monkeypatch.setattr(pool, "take", take)
        ended = skills.run("harmless", {}, HANGS_S / 2, WORLD.tree)
    assert (ended.result, ended.error) == ("a wall", None)


def test_a_call_in_a_new_process_is_interrupted_at_its_limit_and_not_killed(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speedrunner.workers.sandbox.skill_process.STOP_S", HANGS_S)
    with loaded(pool, SOURCE, "endless") as skills:
        skills.close()
        error = skills.run("endless", {}, 0.2, WORLD.tree).error or ""
    assert error.startswith("TimeLimitReached: stopped at the time limit of 0.2 s")
    assert "killed" not in error


def test_a_library_of_four_million_characters_reaches_its_child(pool: ChildPool) -> None:
    """The bounds of a child's messages do not apply to the worker's."""
    source = SOURCE + "# a line of a very large library\n" * 120_000
    assert len(source) > 3_900_000
    with loaded(pool, source) as skills:
        assert skills.run("harmless", {}, HANGS_S, WORLD.tree).result == "a wall"


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import time; time.sleep(60)"])
def test_a_process_that_does_not_start_is_an_error_of_the_machine(
    pool: ChildPool, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded(pool) as skills:
        skills.close()
        pool.close()
        process = "speedrunner.workers.sandbox.child_process"
        monkeypatch.setattr(f"{process}.START_LIMIT_S", 0.1 if "sleep" in program else 60.0)
        monkeypatch.setattr(f"{process}.PROGRAM", program)
        with pytest.raises(SandboxError, match="did not start"):
            skills.run("harmless", {}, HANGS_S, WORLD.tree)


BURNS = """
def harmless():
    return look()

while BURNING:
    pass
"""


def test_a_module_that_does_not_end_to_load_is_ended_and_each_call_says_so(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speedrunner.workers.sandbox.skill_process.LOAD_LIMIT_S", 0.3)
    with loaded(pool, BURNS.replace("BURNING", "True")) as skills:
        assert skills._child is None
        ended = skills.run("harmless", {}, 0.2, WORLD.tree)
        assert (ended.error or "").startswith("TimeLimitReached: stopped at the time limit of 0.2 s")
        assert skills._child is None


LIES = """
import gc
from child.wire import encode
wire = next(thing for thing in gc.get_objects() if type(thing).__name__ == 'Wire')
wire.send(encode(['loaded']))
while True:
    pass
"""


def test_nothing_of_a_module_runs_before_a_skill_is_called(pool: ChildPool) -> None:
    with loaded(pool, LIES) as skills:
        assert skills._child is not None  # it has reported too early that it is loaded, and continues
        deadline = time.monotonic() + HANGS_S
        while states(skills._child._process.pid) != {"T"}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
