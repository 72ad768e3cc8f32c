"""The pool's promises beyond one worker: memory for all of them, and simulators in processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from envs import Task
from envs.env_registry import REGISTRY
from envs.scienceworld import ScienceWorld
from serving.tokens.tools import ToolCall
from speedrunner.config.schema import SandboxConfig
from speedrunner.library.library import Library
from speedrunner.workers import worker_pool as pools
from speedrunner.workers.env_worker import EnvWorker, WorkerFault
from speedrunner.workers.worker_pool import SKILLS_MB, TooManyWorkers, WorkerPool, needed_mb
from tests.processes import HANGS_S, runs, tree

pytestmark = pytest.mark.process

CORRIDOR = "tests.toy_env:Corridor"
SKILL_MB = needed_mb(CORRIDOR, 0, SandboxConfig().memory_mb)
PLANT = Task("scienceworld", "find-plant", 0)
EMPTY = Library(ScienceWorld.primitives)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group without a limit, below another; their folder."""
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/slurm/job\n")
    monkeypatch.setattr(pools, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(pools, "CGROUPS", tmp_path / "groups")
    folder = tmp_path / "groups" / "slurm" / "job"
    folder.mkdir(parents=True)
    limit(folder, "max")
    return folder


def limit(folder: Path, most: object, used: int = 0, cache: int = 0) -> None:
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 0\nfile {cache}\ninactive_file {cache}\n")


def test_it_is_what_the_machine_has_where_nothing_is_limited(job: Path) -> None:
    assert 0 < pools.available_mb() <= psutil.virtual_memory().total // pools.MB


def test_a_limit_leaves_what_is_not_used_and_the_file_cache(job: Path) -> None:
    limit(job, 50 * pools.MB, used=30 * pools.MB, cache=5 * pools.MB)
    assert pools.available_mb() == 25


class TestMemory:
    async def test_more_workers_than_fit_are_refused_before_one_starts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        each = ScienceWorld.memory_mb + SKILLS_MB
        before = set(psutil.Process().children())
        monkeypatch.setattr(pools, "available_mb", lambda: 5 * each + SKILL_MB + 1)
        with pytest.raises(TooManyWorkers) as raised:
            await WorkerPool(64, "scienceworld").__aenter__()
        assert str(raised.value) == (
            "64 workers of scienceworld take up to 36,529 MB of memory, 554 MB each and 1,073 MB for a skill"
            " at its limit (sandbox.memory_mb), and 3,844 MB are available: set run.in_flight to 5 or less"
        )
        assert set(psutil.Process().children()) <= before

    async def test_what_another_pool_may_come_to_take_is_not_there_for_this_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Simulators start as they are played, so that what is free now is promised already."""
        each = REGISTRY.find(CORRIDOR).memory_mb + SKILLS_MB
        monkeypatch.setattr(pools, "available_mb", lambda: 3 * each + 2 * SKILL_MB)
        async with WorkerPool(2, CORRIDOR):
            with pytest.raises(TooManyWorkers, match=r"set run\.in_flight to 1 or less"):
                await WorkerPool(2, CORRIDOR).__aenter__()
            async with WorkerPool(1, CORRIDOR):
                pass
        async with WorkerPool(3, CORRIDOR):
            pass

    def test_a_thousand_episodes_of_babyai_fit_a_machine_of_24_gb(self) -> None:
        assert needed_mb("babyai", 1000, SandboxConfig().memory_mb) <= 24_000

    @pytest.mark.parametrize(("env", "name"), [("babyai", "pick_up_seq_go_to"), ("crafter", "default")])
    async def test_no_worker_takes_more_than_its_environment_says(self, env: str, name: str) -> None:
        async with WorkerPool(1, env) as pool:
            await check_memory(pool, Task(env, name, 1))


async def check_memory(pool: WorkerPool, task: Task) -> None:
    """Play a skill, and compare the memory of the worker's processes with what the environment says."""
    made = REGISTRY.find(task.env)
    library = Library(made.primitives).write('def skill():\n    """Rest."""', public=True, sleep=1)
    async with pool.worker() as worker:
        await worker.reset(task, library.module(), None)
        await worker.execute(ToolCall("skill", {}), HANGS_S)
        used = sum(process.memory_full_info().uss for process in tree(worker.pid))
    assert 5_000_000 < used < (made.memory_mb + SKILLS_MB) * 1_000_000


def java(worker: EnvWorker) -> psutil.Process:
    """The worker's simulator."""
    below = psutil.Process(worker.pid).children(recursive=True)
    (simulator,) = (process for process in below if process.name() == "java")
    return simulator


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def pool() -> AsyncIterator[WorkerPool]:
    """One worker with its simulator; closing leaves no process. A test may end it, and the next has
    another.
    """
    async with WorkerPool(1, "scienceworld") as pool:
        yield pool
        async with pool.worker() as worker:
            processes = tree(worker.pid)
    assert [process for process in processes if runs(process)] == []


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="class")
class TestScienceWorld:
    async def test_a_simulator_is_reused(self, pool: WorkerPool) -> None:
        seen = []
        for _ in range(2):
            async with pool.worker() as worker:
                await worker.reset(PLANT, EMPTY.module(), None)
                seen.append(java(worker))
        assert seen[0] == seen[1]

    async def test_no_worker_takes_more_than_its_environment_says(self, pool: WorkerPool) -> None:
        await check_memory(pool, PLANT)

    async def test_a_simulator_that_dies_ends_its_episode_and_is_replaced(self, pool: WorkerPool) -> None:
        async with pool.worker() as worker:
            await worker.reset(PLANT, EMPTY.module(), None)
            died = java(worker)
            died.kill()
            ended = rf"look_around failed: .*process {died.pid}, exit status -9"
            with pytest.raises(WorkerFault, match=ended):
                await worker.execute(ToolCall("look_around", {}), HANGS_S)
            assert worker.outcome is not None  # as it stood
        async with pool.worker() as other:
            assert other.pid != worker.pid
            await other.reset(PLANT, EMPTY.module(), None)
            executed = await other.execute(ToolCall("look_around", {}), HANGS_S)
        assert executed.node.error is None


class TestWaiting:
    async def test_workers_come_up_while_other_things_are_done(self) -> None:
        before = set(psutil.Process().children())
        async with WorkerPool(3, CORRIDOR) as pool:
            assert set(psutil.Process().children()) <= before
            async with pool.worker() as first:
                pass
            await pool.ready()
            async with pool.worker() as one, pool.worker() as other, pool.worker() as third:
                assert len({first.pid, one.pid, other.pid, third.pid}) == 3

    async def test_a_worker_that_cannot_start_is_told_to_each_that_wants_one(self) -> None:
        async with WorkerPool(2, CORRIDOR, {"depth": 3}) as pool:
            for _ in range(3):  # the third time it is tried afresh
                with pytest.raises(WorkerFault, match=r"could not start: .* option 'depth'; its options"):
                    async with pool.worker():
                        pass
            with pytest.raises(WorkerFault, match="could not start"):
                await pool.ready()

    async def test_those_in_a_hurry_go_first_and_one_that_gives_up_stands_in_nobodys_way(self) -> None:
        order: list[str] = []
        async with WorkerPool(1, CORRIDOR) as pool:

            async def play(name: str, *, behind: bool) -> None:
                async with pool.worker(behind=behind):
                    order.append(name)
                    await asyncio.sleep(0)

            async with pool.worker():
                waiting = [
                    asyncio.create_task(play(name, behind=name.startswith("test")))
                    for name in ("test 1", "train 1", "test 2", "train 2", "train 3")
                ]
                await asyncio.sleep(0.01)
                waiting[1].cancel()  # and the worker is given back at the same moment
            await asyncio.gather(*waiting, return_exceptions=True)
            async with asyncio.timeout(HANGS_S), pool.worker():
                order.append("last")
        assert order == ["train 2", "train 3", "test 1", "test 2", "last"]
