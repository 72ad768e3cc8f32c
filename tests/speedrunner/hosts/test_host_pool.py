"""The pool's promises beyond one host: memory for all of them, and simulators in processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from envs import Task, UnknownEnvironment
from envs.registry import REGISTRY
from envs.scienceworld import ScienceWorld
from serving.tokens.tools import ToolCall
from speedrunner.hosts import host_pool as pools
from speedrunner.hosts.host import Host, HostFault
from speedrunner.hosts.host_pool import SKILLS_MB, HostPool, TooManyHosts
from speedrunner.library.library import Library
from tests.processes import runs, tree

pytestmark = pytest.mark.process

CORRIDOR = "tests.toy_env:Corridor"
PLENTY_S = 60.0
PLANT = Task("scienceworld", "find-plant", 0)
EMPTY = Library(ScienceWorld.primitives)


class TestMemory:
    async def test_more_hosts_than_fit_are_refused_before_one_starts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        each = ScienceWorld.memory_mb + SKILLS_MB
        before = set(psutil.Process().children())
        monkeypatch.setattr(pools, "available_mb", lambda: 5 * each + 1)
        with pytest.raises(TooManyHosts) as raised:
            await HostPool(64, "scienceworld").__aenter__()
        assert str(raised.value) == (
            "64 hosts of scienceworld take up to 36,480 MB of memory, 570 MB each, and 2,851 MB are"
            " available: set run.in_flight to 5 or less"
        )
        assert set(psutil.Process().children()) <= before

    async def test_not_even_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pools, "available_mb", lambda: 100)
        with pytest.raises(TooManyHosts, match="100 MB are available: free some, or take a larger machine"):
            await HostPool(1, CORRIDOR).__aenter__()

    async def test_as_many_as_fit_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fitting = 2 * (REGISTRY.find(CORRIDOR).memory_mb + SKILLS_MB)
        monkeypatch.setattr(pools, "available_mb", lambda: fitting)
        async with HostPool(2, CORRIDOR) as pool, pool.host(), pool.host():
            pass

    async def test_what_another_pool_may_come_to_take_is_not_there_for_this_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Simulators start as they are played, so that what is free now is promised already."""
        each = REGISTRY.find(CORRIDOR).memory_mb + SKILLS_MB
        monkeypatch.setattr(pools, "available_mb", lambda: 3 * each)
        async with HostPool(2, CORRIDOR):
            with pytest.raises(TooManyHosts, match=r"set run\.in_flight to 1 or less"):
                await HostPool(2, CORRIDOR).__aenter__()
            async with HostPool(1, CORRIDOR):
                pass
        async with HostPool(3, CORRIDOR):
            pass

    async def test_an_unknown_environment_takes_none(self) -> None:
        with pytest.raises(UnknownEnvironment, match="no environment 'nonsense'"):
            await HostPool(1, "nonsense").__aenter__()

    @pytest.mark.parametrize(("env", "name"), [("babyai", "pick_up_seq_go_to"), ("crafter", "default")])
    async def test_no_host_takes_more_than_its_environment_says(self, env: str, name: str) -> None:
        async with HostPool(1, env) as pool:
            await check_memory(pool, Task(env, name, 1))


async def check_memory(pool: HostPool, task: Task) -> None:
    """Play a skill, and compare the memory of the host's processes with what the environment says."""
    made = REGISTRY.find(task.env)
    library = Library(made.primitives).write('def skill():\n    """Rest."""', public=True, sleep=1)
    async with pool.host() as host:
        await host.reset(task, library.module(), None)
        await host.execute(ToolCall("skill", {}), PLENTY_S)
        used = sum(each.memory_full_info().uss for each in tree(host.pid))
    assert 5_000_000 < used < (made.memory_mb + SKILLS_MB) * 1_000_000


def java(host: Host) -> psutil.Process:
    """The host's simulator."""
    below = psutil.Process(host.pid).children(recursive=True)
    (found,) = (each for each in below if each.name() == "java")
    return found


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def pool() -> AsyncIterator[HostPool]:
    """One host with its simulator; closing leaves no process. A test may end it, and the next has another."""
    async with HostPool(1, "scienceworld") as pool:
        yield pool
        async with pool.host() as host:
            processes = tree(host.pid)
    assert [each for each in processes if runs(each)] == []


@pytest.mark.asyncio(loop_scope="class")
class TestScienceWorld:
    async def test_a_simulator_is_reused(self, pool: HostPool) -> None:
        seen = []
        for _ in range(2):
            async with pool.host() as host:
                await host.reset(PLANT, EMPTY.module(), None)
                seen.append(java(host))
        assert seen[0] == seen[1]

    async def test_no_host_takes_more_than_its_environment_says(self, pool: HostPool) -> None:
        await check_memory(pool, PLANT)

    async def test_a_simulator_that_dies_ends_its_episode_and_is_replaced(self, pool: HostPool) -> None:
        async with pool.host() as host:
            await host.reset(PLANT, EMPTY.module(), None)
            died = java(host)
            died.kill()
            with pytest.raises(HostFault, match=rf"look_around failed: .*process {died.pid}, exit status"):
                await host.execute(ToolCall("look_around", {}), PLENTY_S)
            assert host.outcome is not None  # as it stood
        async with pool.host() as other:
            assert other.pid != host.pid
            await other.reset(PLANT, EMPTY.module(), None)
            executed = await other.execute(ToolCall("look_around", {}), PLENTY_S)
        assert executed.node.error is None

    @pytest.mark.slow
    async def test_killing_a_host_ends_its_simulator(self, pool: HostPool) -> None:
        async with pool.host() as host:
            await host.reset(PLANT, EMPTY.module(), None)
            process = java(host)
            host.kill()
        _, alive = psutil.wait_procs([process], timeout=PLENTY_S)
        assert not any(runs(each) for each in alive)

    @pytest.mark.slow
    async def test_one_that_dies_between_episodes_is_replaced_unnoticed(self, pool: HostPool) -> None:
        async with pool.host() as host:
            await host.reset(PLANT, EMPTY.module(), None)
            java(host).kill()
            await host.reset(PLANT, EMPTY.module(), None)
            assert (await host.execute(ToolCall("look_around", {}), PLENTY_S)).node.error is None


class TestWaiting:
    async def test_hosts_come_up_while_other_things_are_done(self) -> None:
        before = set(psutil.Process().children())
        async with HostPool(3, CORRIDOR) as pool:
            assert set(psutil.Process().children()) <= before
            async with pool.host() as first:
                pass
            await pool.ready()
            async with pool.host() as one, pool.host() as other, pool.host() as third:
                assert len({first.pid, one.pid, other.pid, third.pid}) == 3

    async def test_a_host_that_cannot_start_is_told_to_each_that_wants_one(self) -> None:
        async with HostPool(2, CORRIDOR, {"depth": 3}) as pool:
            for _ in range(3):  # the third time it is tried afresh
                with pytest.raises(HostFault, match=r"could not start: .* has no option 'depth'"):
                    async with pool.host():
                        pass
            with pytest.raises(HostFault, match="could not start"):
                await pool.ready()

    async def test_those_in_a_hurry_go_first_and_one_that_gives_up_stands_in_nobodys_way(self) -> None:
        order: list[str] = []
        async with HostPool(1, CORRIDOR) as pool:

            async def play(name: str, *, behind: bool) -> None:
                async with pool.host(behind=behind):
                    order.append(name)
                    await asyncio.sleep(0)

            async with pool.host():
                waiting = [
                    asyncio.create_task(play(name, behind=name.startswith("test")))
                    for name in ("test 1", "train 1", "test 2", "train 2", "train 3")
                ]
                await asyncio.sleep(0.01)
                waiting[1].cancel()  # and the host is given back at the same moment
            await asyncio.gather(*waiting, return_exceptions=True)
            async with asyncio.timeout(PLENTY_S), pool.host():
                order.append("last")
        assert order == ["train 2", "train 3", "test 1", "test 2", "last"]

    async def test_cancelling_all_that_wait_and_the_one_that_plays_loses_no_host(self) -> None:
        async with HostPool(2, CORRIDOR) as pool:

            async def play() -> None:
                async with pool.host():
                    await asyncio.sleep(PLENTY_S)

            for _ in range(20):
                tasks = [asyncio.create_task(play()) for _ in range(6)]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                assert {type(each) for each in outcomes} == {asyncio.CancelledError}
            async with asyncio.timeout(PLENTY_S), pool.host(), pool.host():
                pass
