"""The process from which workers are forked: what it loads once, and what its end, or its owner's, means."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from envs import Opening, Task
from serving.tokens.tools import ToolCall
from speedrunner.config.schema import SandboxConfig
from speedrunner.store.records import Module
from speedrunner.workers import fork_server
from speedrunner.workers.env_worker import EnvWorker, WorkerDied, WorkerError, WorkerFault
from speedrunner.workers.fork_server import ForkServer
from speedrunner.workers.sandbox.code_session import CodeSession
from speedrunner.workers.worker_pool import WorkerPool
from tests.processes import HANGS_S, is_alive, tree, until, without_file_descriptors, words
from tests.toy_env import Corridor

pytestmark = pytest.mark.process


class Loaded(Corridor):
    """Shows which process has loaded it."""

    loaded_by = 0

    @classmethod
    def preload(cls) -> None:
        cls.loaded_by = os.getpid()

    def reset(self, task: Task) -> Opening:
        return Opening(super().reset(task).instruction, f"{self.loaded_by}")


class CannotBeLoaded(Loaded):
    @classmethod
    def preload(cls) -> None:
        super().preload()
        raise RuntimeError("no bricks")

    def __init__(self) -> None:
        raise RuntimeError("no walls")


class EndsItsProcess(Corridor):
    @classmethod
    def preload(cls) -> None:
        os._exit(7)


async def opened(worker: EnvWorker, env: type[Corridor]) -> str:
    """The opening's observation."""
    return (await worker.reset(Task(env.name, "default", 10), Module(), None)).observation


async def test_an_environment_is_loaded_once_for_all_workers() -> None:
    async with WorkerPool(2, Loaded.name) as pool, pool.worker() as one, pool.worker() as other:
        loaded_by = await opened(one, Loaded)
        assert await opened(other, Loaded) == loaded_by
        assert int(loaded_by) not in (0, os.getpid(), one.pid, other.pid)
        assert {psutil.Process(worker.pid).ppid() for worker in (one, other)} == {os.getpid()}


async def test_a_process_without_a_file_descriptor_starts_no_worker() -> None:
    server = await ForkServer(Corridor.name).loaded()
    try:
        with without_file_descriptors(), pytest.raises(WorkerError, match="cannot start a worker of "):
            await server.worker({}, SandboxConfig())
        (await server.worker({}, SandboxConfig())).kill()
    finally:
        server.end()


async def test_a_worker_that_is_forked_too_late_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(psutil.Process().children())
    monkeypatch.setattr(fork_server, "FORK_LIMIT_S", 0.01)
    server = await ForkServer(Corridor.name).loaded()
    process = psutil.Process(server._process.pid)
    process.suspend()  # it forks when it is to end
    end = server.end
    monkeypatch.setattr(server, "end", lambda: (process.resume(), end()))
    with pytest.raises(WorkerDied, match="for its workers ended"):
        await server.worker({}, SandboxConfig())
    assert set(psutil.Process().children()) <= before


async def test_what_cannot_be_loaded_is_left_to_the_workers(tmp_path: Path) -> None:
    log = tmp_path / "workers.log"
    async with WorkerPool(1, CannotBeLoaded.name, log=log) as pool:
        with pytest.raises(WorkerFault, match=r"CannotBeLoaded could not start: .*RuntimeError: no walls"):
            async with pool.worker():
                pass
    assert "RuntimeError: no bricks" in log.read_text()


def victim_score(process: psutil.Process) -> int:
    return int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())


async def test_workers_skills_and_code_sessions_end_first_if_memory_runs_out() -> None:
    async with (
        WorkerPool(1, Corridor.name) as pool,
        pool.worker() as worker,
        CodeSession(SandboxConfig()) as code,
    ):
        task = Task(Corridor.name, "default", 10)
        await worker.reset(task, Module("def skill():\n    return 1", ("skill",)), None)
        assert code._child is not None
        first = [*tree(worker.pid), *tree(code._child._process.pid)]
        assert len(first) >= 1 + 2 * 2
        assert {victim_score(process) for process in first} == {1000}


async def test_an_end_while_loading_is_told_to_the_first_that_wants_a_worker(tmp_path: Path) -> None:
    log = tmp_path / "workers.log"
    async with WorkerPool(2, EndsItsProcess.name, log=log) as pool:
        for _ in range(2):
            with pytest.raises(
                WorkerDied, match=f"EndsItsProcess for its workers ended: exit status 7; see {log}"
            ):
                async with pool.worker():
                    pass
        with pytest.raises(WorkerDied, match="exit status 7"):
            await pool.ready()


async def test_workers_outlive_their_template_and_the_next_has_another() -> None:
    before = set(psutil.Process().children())
    async with WorkerPool(1, Loaded.name) as pool:
        async with pool.worker() as worker:
            loaded_by = int(await opened(worker, Loaded))
            os.kill(loaded_by, signal.SIGKILL)
            await until(lambda: not is_alive(loaded_by))
            assert (await worker.execute(ToolCall("walk", {}), HANGS_S)).node.error is None
            worker.kill()
        async with pool.worker() as worker:
            assert int(await opened(worker, Loaded)) not in (0, loaded_by)
    assert set(psutil.Process().children()) <= before


async def test_a_template_that_ends_in_the_middle_is_told(tmp_path: Path) -> None:
    template = await ForkServer(Loaded.name).loaded()
    (child,) = (process for process in psutil.Process().children() if Loaded.name in words(process).split())
    child.kill()
    with pytest.raises(WorkerDied, match="Loaded for its workers ended: killed by SIGKILL"):
        await template.worker({}, SandboxConfig())
    assert not template.usable


OWNER = """
    import asyncio, sys
    from speedrunner.workers.fork_server import ForkServer
    from speedrunner.config.schema import SandboxConfig
    from serving.tokens.tools import ToolCall
    from speedrunner.store.records import Module
    from envs import Task

    ENV = "tests.speedrunner.workers.test_fork_server:Loaded"
    SOURCE = "def skill():\\n    while True:\\n        look()"

    async def main():
        template = await ForkServer(ENV).loaded()
        worker = await template.worker({}, SandboxConfig())
        opening = await worker.reset(Task(ENV, "default", 10), Module(SOURCE, ("skill",)), None)
        print(worker.pid, opening.observation, flush=True)
        if sys.argv[1] == "busy":
            await worker.execute(ToolCall("skill", {}), 600)
        await asyncio.sleep(600)

    asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["idle", "busy"])
async def test_workers_and_template_die_with_their_owner(what: str) -> None:
    owner = start_owner(what)
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    below = [process.pid for process in psutil.Process(owner.pid).children(recursive=True)]
    assert len(pids) == 2
    assert {*pids} <= {*below}
    assert all(map(is_alive, below))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    await until(lambda: not any(map(is_alive, below)))


def start_owner(what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), what],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
