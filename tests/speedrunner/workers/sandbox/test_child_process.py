"""Sandboxed processes: where they cannot run, how they are started ahead, and how they end."""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import time
import unittest
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.sandbox import child_process
from speedrunner.workers.sandbox.child_process import MIB, Child, ChildPool, require
from speedrunner.workers.sandbox.code_session import CodeSession
from speedrunner.workers.sandbox.isolation import SandboxError
from tests.processes import HANGS_S, marked

pytestmark = pytest.mark.process

KINDS = ("isolated", "rlimits")


@pytest.fixture(autouse=True)
def _untried() -> None:
    """No kind of sandbox has been tried before."""
    require.cache_clear()


class TestWhereItCannotRun:
    def test_where_the_kernel_filters_no_system_calls_nothing_runs(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        code = shutil.copytree(child_process.CODE, tmp_path / "child")
        seccomp = code / "confinement.py"
        seccomp.write_text(
            seccomp.read_text().replace("_MODE_FILTER = 1, 22, 38, 2", "_MODE_FILTER = 1, 22, 38, 99")
        )
        monkeypatch.setattr(child_process, "CODE", code)
        with pytest.raises(SandboxError, match="refuses the filter of system calls: Invalid argument"):
            require(SandboxConfig())

    def test_rlimits_warns(self) -> None:
        with unittest.TestCase().assertLogs(level="WARNING") as logged:
            require(SandboxConfig("rlimits"))
        assert "NOT isolated" in logged.output[0]


class TestGroup:
    @pytest.mark.parametrize(
        "first", [lambda child: None, lambda child: child.death()], ids=["kill", "death"]
    )
    def test_what_is_left_of_a_dead_first_process_ends_with_the_rest(
        self, monkeypatch: pytest.MonkeyPatch, first: Callable[[Child], object]
    ) -> None:
        """As of bubblewrap, if its first process is killed before the other one is tied to it."""

        def start(*_: object) -> subprocess.Popen[bytes]:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            script = "sleep 100000 & echo $!; kill -KILL $$"
            return subprocess.Popen(["/bin/sh", "-c", script], bufsize=0, start_new_session=True, **pipes)

        monkeypatch.setattr(Child, "_start", start)
        child = Child(SandboxConfig("rlimits"), "skills")
        assert child._process.stdout is not None
        select.select([child._process.stdout], [], [])
        left = int(os.read(child._process.stdout.fileno(), 100))
        os.waitid(os.P_PID, child._process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(left).status() != psutil.STATUS_ZOMBIE
        first(child)
        child.kill()
        with suppress(psutil.NoSuchProcess):
            psutil.Process(left).wait(HANGS_S)
        assert not psutil.pid_exists(left)


class TestProcesses:
    @pytest.mark.parametrize("kind", KINDS)
    def test_killing_ends_it_and_can_be_repeated(self, kind: Literal["isolated", "rlimits"]) -> None:
        child = Child(SandboxConfig(kind), "skills")
        child.wait(time.monotonic() + HANGS_S)
        child.kill()
        child.kill()
        assert not Path(f"/proc/{child._process.pid}").exists()

    def test_one_that_is_still_starting_can_be_killed(self) -> None:
        memory_mb = 1_500 + os.getpid() % 400  # stands in the command line of these processes only
        for _ in range(20):
            Child(SandboxConfig(memory_mb=memory_mb), "skills").kill()
        assert marked(f'"AS": {memory_mb * MIB},') == {}


def open_files() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def full_machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the next starts of processes fail, so many of them."""
    start = subprocess.Popen

    def fill(times: int) -> None:
        left = iter(range(times))

        def refuse(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            if next(left, None) is not None:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return start(*arguments, **options)

        monkeypatch.setattr(subprocess, "Popen", refuse)

    return fill


class TestWhereTheMachineIsFull:
    @pytest.mark.parametrize("kind", KINDS)
    def test_nothing_is_started_ahead_and_who_needs_one_is_told(
        self, kind: Literal["isolated", "rlimits"], full_machine: Callable[[int], None]
    ) -> None:
        full_machine(2)
        pool = ChildPool(SandboxConfig(kind))
        before = open_files()
        pool.refill()
        with pytest.raises(
            SandboxError, match=r"cannot start a sandboxed process: .*temporarily unavailable"
        ):
            pool.take()
        pool.close()
        assert open_files() == before

    async def test_a_code_session_is_told_too(self, full_machine: Callable[[int], None]) -> None:
        full_machine(1)
        with pytest.raises(SandboxError, match="temporarily unavailable"):
            await CodeSession(SandboxConfig()).__aenter__()


class TestPool:
    def test_a_spare_that_died_is_passed_over(self) -> None:
        pool = ChildPool(SandboxConfig())
        pool.refill()
        spare = pool._spare
        assert spare is not None
        poll = select.poll()
        assert spare._process.stdout is not None
        poll.register(spare._process.stdout)
        poll.poll(30_000)  # it is ready,
        spare.strike()
        while not any(event & select.POLLHUP for _, event in poll.poll(30_000)):  # and has died
            pass
        child = pool.take()
        assert child is not spare
        child.kill()
        pool.close()
