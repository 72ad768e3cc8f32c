"""Workers, as real processes: what a call reports, what skills cannot break, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from envs import Outcome, Task
from serving.tokens.tools import ToolCall
from speedrunner.library.library import Library
from speedrunner.store.records import CallNode, Termination
from speedrunner.workers import env_worker as workers
from speedrunner.workers.env_worker import EnvWorker, WorkerDied, WorkerFault
from speedrunner.workers.worker_messages import LENGTH, REPLIES, Executed, Fault, Reply, Request, pack
from speedrunner.workers.worker_pool import WorkerPool
from tests.golden_tables import Golden, table
from tests.odd_envs import Quiet
from tests.processes import HANGS_S, is_alive, runs, timers, until
from tests.toy_env import Corridor

ENV = "tests.toy_env:Corridor"


def skills(*sources: str, private: str = "") -> Library:
    library = Library(Corridor().primitives)
    for source in sources:
        source = textwrap.dedent(source)
        library = library.write(source, public=not (private and f"def {private}(" in source), sleep=1)
    return library


def children() -> set[psutil.Process]:
    """This process's children that run."""
    return set(filter(runs, psutil.Process().children()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[WorkerPool]:
    """One warm worker for the tests that leave it well."""
    async with WorkerPool(1, ENV) as started:
        yield started


pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@contextlib.asynccontextmanager
async def episode(
    pool: WorkerPool,
    library: Library,
    *,
    distance: int = 10,
    actions: int | None = None,
    call_actions: int | None = None,
) -> AsyncIterator[Callable[..., Any]]:
    """Begin an episode; yields a function that calls a tool."""
    async with pool.worker() as worker:
        await worker.reset(Task(ENV, "default", distance), library.module(), actions)

        async def call(name: str, time_limit_s: float = HANGS_S, **arguments: Any) -> Executed:
            return await worker.execute(ToolCall(name, arguments), time_limit_s, call_actions)

        yield call


async def play(pool: WorkerPool, source: str, *, distance: int = 10, **arguments: Any) -> Executed:
    """Call the one skill of a library of one."""
    library = skills(source)
    async with episode(pool, library, distance=distance) as call:
        executed: Executed = await call(library.skills[0].name, **arguments)
        return executed


class TestPrimitives:
    async def test_a_primitive_is_a_node_an_observation_and_an_action(self, pool: WorkerPool) -> None:
        async with episode(pool, skills()) as call:
            executed = await call("walk", steps=5)
        text = "You are at field 5. The flag is at field 10."
        node = executed.node
        assert (node.name, node.kind, node.arguments) == ("walk", "primitive", {"steps": 5})
        assert (node.result, node.error, node.actions) == (text, None, 1)
        assert (executed.observation, executed.actions, executed.termination) == (text, 1, None)
        assert executed.outcome == Outcome(0.5, False, {"position": 5})

    async def test_the_models_mistakes_are_errors_of_the_call(self, pool: WorkerPool, golden: Golden) -> None:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("jump", {}),
            ("_hop", {}),
            ("walk", {"steps": "many"}),
            ("walk", {"direction": "up"}),
            ("walk", {"speed": 1}),
            ("look", {"self": 1, "primitive": 2}),
            ("count", {}),
        ]
        library = skills(
            'def _hop():\n    """Hop."""\n    walk()', 'def count(n: int):\n    """Count."""', private="_hop"
        )
        errors = []
        async with pool.worker() as worker:
            await worker.reset(Task(ENV, "default", 10), library.module(), None)
            for name, arguments in calls:
                executed = await worker.execute(ToolCall(name, arguments), HANGS_S)
                errors.append(((name, arguments), executed.node.error or "none"))
                assert (executed.actions, executed.termination, executed.observation) == (0, None, None)
        golden("workers/invalid_calls.txt", table(errors))

    @pytest.mark.parametrize(
        ("direction", "termination"), [("right", Termination.SUCCESS), ("left", Termination.FAILURE)]
    )
    async def test_the_environments_end(
        self, pool: WorkerPool, direction: str, termination: Termination
    ) -> None:
        async with episode(pool, skills()) as call:
            assert (await call("walk", steps=10, direction=direction)).termination is termination


class TestSkills:
    async def test_a_call_expands_into_its_tree(self, pool: WorkerPool) -> None:
        library = skills(
            '''
            def _hop(n: int) -> str:
                """Walk n fields and look."""
                text = walk(n)
                look()
                return text
            ''',
            '''
            def hop_twice(n: int, back: bool = False) -> bool:
                """Hop twice."""
                _hop(n)
                _hop(n=n + 1)
                return back
            ''',
            private="_hop",
        )
        async with episode(pool, library) as call:
            executed = await call("hop_twice", n=1)

        def shape(node: CallNode) -> Any:
            return [
                node.name,
                node.kind,
                node.arguments,
                node.actions,
                [shape(child) for child in node.calls],
            ]

        def hop(n: int) -> Any:
            walked = ["walk", "primitive", {"steps": n}, 1, []]
            return ["_hop", "skill", {"n": n}, 1, [walked, ["look", "primitive", {}, 0, []]]]

        assert shape(executed.node) == ["hop_twice", "skill", {"n": 1}, 2, [hop(1), hop(2)]]
        assert executed.node.result is False
        assert executed.node.calls[0].result == "You are at field 1. The flag is at field 10."
        assert executed.observation == "You are at field 3. The flag is at field 10."
        assert executed.node.seconds >= executed.node.calls[0].seconds > 0

    async def test_an_exception_tells_where_in_the_library_it_arose(self, pool: WorkerPool) -> None:
        library = skills(
            'def inner():\n    """Fail."""\n    raise ValueError("no door")',
            'import math\ndef outer():\n    """Call inner."""\n    walk()\n    return inner()',
        )
        async with episode(pool, library) as call:
            node = (await call("outer")).node
        assert node.error == (
            "ValueError: no door (in inner, line 3)\n"
            "Traceback (outermost call first):\n"
            "  outer, line 4: return inner()\n"
            '  inner, line 3: raise ValueError("no door")'
        )
        assert [node.error is None for node in node.calls] == [True, False]

    async def test_a_skill_is_unwound_at_the_limit_of_its_call_and_the_episode_continues(
        self, pool: WorkerPool
    ) -> None:
        library = skills(
            'def skill():\n    """Walk for ever."""\n    while True:\n        walk(0)\n        look()'
        )
        async with episode(pool, library, actions=9, call_actions=4) as call:
            for total, termination in ((4, None), (8, None), (9, Termination.ACTION_LIMIT)):
                executed = await call("skill")
                assert (executed.actions, executed.termination) == (total, termination)
                assert executed.node.error.startswith(
                    "ActionLimitReached: stopped at the limit of 9 actions"
                    if termination
                    else "CallActionLimitReached: stopped at the limit of 4 actions in one call"
                )

    async def test_what_a_skill_stores_in_a_constant_lasts_until_the_episode_ends(
        self, pool: WorkerPool
    ) -> None:
        library = skills(
            'SEEN = []\ndef skill() -> int:\n    """See."""\n    SEEN.append(look())\n    return len(SEEN)'
        )
        for _ in range(2):
            async with episode(pool, library) as call:
                assert [(await call("skill")).node.result for _ in range(2)] == [1, 2]

    async def test_drawing_and_the_order_of_sets_repeat_between_processes(self) -> None:
        source = '''
            import random
            def skill() -> str:
                """Draw."""
                return str(random.random()) + "".join({"a", "b", "c", "d", "e"})
        '''
        results = []
        for _ in range(2):
            async with WorkerPool(1, ENV) as fresh:
                results.append((await play(fresh, source)).node.result)
        assert results[0] == results[1]


class TestTheLastObservation:
    """It is the last text that a primitive of the call returned, also if later ones returned none."""

    @pytest.mark.parametrize(
        ("lines", "at"),
        [("walk(2)\n    look()\n    walk(1)", 2), ("look()\n    walk(1)\n    walk('far')", 0)],
    )
    async def test_a_skill_that_looks_and_then_acts_or_fails(self, lines: str, at: int) -> None:
        source = f'def skill():\n    """Look and walk."""\n    {lines}'
        async with WorkerPool(1, "tests.odd_envs:Quiet") as quiet, quiet.worker() as worker:
            await worker.reset(Task(Quiet.name, "default", 10), skills(source).module(), None)
            executed = await worker.execute(ToolCall("skill", {}), HANGS_S)
            nothing = await worker.execute(ToolCall("walk", {}), HANGS_S)
        assert executed.observation == f"You are at field {at}. The flag is at field 10."
        assert nothing.observation is None


@pytest_asyncio.fixture(loop_scope="module")
async def worker(pool: WorkerPool) -> AsyncIterator[EnvWorker]:
    async with pool.worker() as lent:
        yield lent


class TestWorker:
    async def test_goes_on_with_other_skills_in_the_same_world(self, worker: EnvWorker) -> None:
        first = skills('def hop() -> str:\n    """Walk."""\n    return walk(2)')
        await worker.reset(Task(ENV, "default", 10), first.module(), 3)
        await worker.execute(ToolCall("hop", {}), HANGS_S)
        refused = await worker.execute(ToolCall("skip", {}), HANGS_S)
        assert "no tool 'skip'; available: walk, look, hop" in (refused.node.error or "")
        more = skills(
            'def hop() -> str:\n    """Walk."""\n    return walk(2)',
            'def skip() -> str:\n    """Hop on."""\n    return hop()',
            private="hop",
        )
        await worker.load(more.module())
        executed = await worker.execute(ToolCall("skip", {}), HANGS_S)
        assert executed.node.result == "You are at field 4. The flag is at field 10."
        assert [node.name for node in executed.node.calls] == ["hop"]
        assert (executed.actions, executed.outcome.score) == (2, 0.4)
        gone = await worker.execute(ToolCall("hop", {}), HANGS_S)
        assert "no tool 'hop'; available: walk, look, skip" in (gone.node.error or "")
        assert (await worker.execute(ToolCall("skip", {}), HANGS_S)).termination is Termination.ACTION_LIMIT


class TestExceptions:
    async def test_whatever_it_raises_is_its_error(self, pool: WorkerPool, golden: Golden) -> None:
        bodies = (
            "raise SystemExit(3)",
            "raise KeyboardInterrupt",
            "raise MemoryError",
            "raise GeneratorExit",
            "raise ValueError('x' * 10**6)",
            "raise ValueError('\\ud800')",
            "class Odd(Exception):\n        def __str__(self):\n            return 1\n    raise Odd",
            "return 'x' * 10**15",
        )
        errors = {}
        for body in bodies:
            executed = await play(pool, f'def skill():\n    """Misbehave."""\n    {body}')
            errors[body] = executed.node.error or "none"
            assert len(errors[body]) < 10_000
        golden("workers/exceptions.txt", table(errors))


class TestFaults:
    async def test_an_environment_that_breaks_is_a_fault_and_no_error_of_the_skill(
        self, pool: WorkerPool
    ) -> None:
        library = skills(
            """
            def skill():
                'Walk.'
                try:
                    walk(3)
                except BaseException:
                    return 1
            """
        )
        async with pool.worker() as worker:
            await worker.reset(Task(ENV, "broken_step", 10), library.module(), None)
            with pytest.raises(WorkerFault, match="walk failed: RuntimeError: the floor broke") as caught:
                await worker.execute(ToolCall("skill", {}), HANGS_S)
            assert "toy_env.py" in caught.value.traceback
            assert not worker.usable
        assert not is_alive(worker.pid)
        async with episode(pool, library) as call:
            assert (await call("walk")).node.error is None

    async def test_an_environment_that_hangs_costs_its_worker(
        self, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with pool.worker() as worker:
            await worker.reset(Task(ENV, "endless_step", 10), skills().module(), None)
            await worker.execute(ToolCall("look", {}), HANGS_S)
            monkeypatch.setattr(workers, "GRACE_S", 0.05)
            with pytest.raises(WorkerDied, match=r"did not answer walk within 0\.1 s and was killed"):
                await worker.execute(ToolCall("walk", {}), 0.05)
            monkeypatch.undo()
            assert not is_alive(worker.pid)
            assert worker.outcome == Outcome(0.0, False, {"position": 0})  # as of its last reply
        async with episode(pool, skills()) as call:
            assert (await call("walk", steps=10)).termination is Termination.SUCCESS

    @pytest.mark.parametrize(("name", "limit_s"), [("walk", 16.0), ("skill", 76.0)])
    async def test_only_a_skill_s_call_waits_for_the_start_of_its_process(
        self, worker: EnvWorker, monkeypatch: pytest.MonkeyPatch, name: str, limit_s: float
    ) -> None:
        library = skills('def skill():\n    """Look."""\n    look()')
        await worker.reset(Task(ENV, "default", 10), library.module(), None)
        request, limits = worker.request, list[float]()

        async def send(message: Request, limit_s: float) -> Reply:
            limits.append(limit_s)
            return await request(message, limit_s)

        monkeypatch.setattr(worker, "request", send)
        await worker.execute(ToolCall(name, {}), 10.0)
        assert limits == [limit_s]

    async def test_a_worker_that_is_killed_in_a_call_is_replaced(self, tmp_path: Path) -> None:
        library = skills('def skill():\n    """Loop."""\n    while True:\n        look()')
        async with WorkerPool(1, ENV, log=tmp_path / "workers.log") as pool:
            async with pool.worker() as worker:
                await worker.reset(Task(ENV, "default", 10), library.module(), None)
                call = asyncio.create_task(worker.execute(ToolCall("skill", {}), HANGS_S))
                await asyncio.sleep(0)  # the request is written before the first wait
                os.kill(worker.pid, signal.SIGKILL)
                log = tmp_path / "workers.log"
                with pytest.raises(WorkerDied, match=f"died during skill: killed by SIGKILL; see {log}"):
                    await call
                with pytest.raises(WorkerDied, match="is no longer usable"):
                    await worker.execute(ToolCall("look", {}), HANGS_S)
            async with episode(pool, library) as call_again:
                assert (await call_again("walk")).node.error is None

    async def test_signals_to_the_group_are_the_owners_affair(self, pool: WorkerPool) -> None:
        async with pool.worker() as worker:
            await worker.reset(Task(ENV, "default", 10), skills().module(), None)
            os.kill(worker.pid, signal.SIGINT)
            os.kill(worker.pid, signal.SIGTERM)
            assert (await worker.execute(ToolCall("look", {}), HANGS_S)).node.error is None


class TestPool:
    async def test_cancelling_in_the_middle_of_a_call_leaves_no_process(self) -> None:
        library = skills('def skill():\n    """Loop."""\n    while True:\n        look()')
        pids: list[int] = []

        async def run() -> None:
            async with WorkerPool(2, ENV) as pool, pool.worker() as busy, pool.worker() as idle:
                await busy.reset(Task(ENV, "default", 10), library.module(), None)
                pids.extend([busy.pid, idle.pid])
                await busy.execute(ToolCall("skill", {}), HANGS_S)

        running = asyncio.create_task(run())
        await until(lambda: len(pids) == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not any(is_alive(pid) for pid in pids)

    @pytest.mark.parametrize("processes", [1, 2])
    async def test_cancelling_while_workers_start_leaves_no_process(self, processes: int) -> None:
        before = children()

        async def run() -> None:
            async with WorkerPool(2, ENV) as pool:
                await pool.ready()
                await asyncio.sleep(HANGS_S)

        starting = asyncio.create_task(run())
        await until(lambda: len(children() - before) >= processes)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert children() <= before


async def test_what_the_environment_makes_unwritable_is_a_fault() -> None:
    node, outcome = CallNode("look", "primitive", {}), Outcome(0.5, False, {"map": object()})
    sent = Executed(
        node=node, observation=None, free_observation=None, outcome=outcome, actions=0, termination=None
    )
    reply = REPLIES.decode(pack(sent)[LENGTH.size :])
    assert isinstance(reply, Fault)
    assert "cannot be written" in reply.message


async def test_a_reply_ends_its_time_limit_and_what_follows_it_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    worker, fault = EnvWorker(ENV, None), Fault("no walls", "")
    with theirs:
        await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
        before = timers()
        reply = worker._next_reply(HANGS_S)
        message = pack(fault)
        worker.data_received(message[:9])
        assert not reply.done()
        worker.data_received(message[9:])
        assert (await reply, timers()) == (fault, before)
        worker.data_received(message)  # as if it were the next request's
        with pytest.raises(EOFError):
            await worker._next_reply(HANGS_S)
        assert timers() == before
