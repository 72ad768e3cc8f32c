"""Stopping in good order, with real signals."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from speedrunner.runs.shutdown import SIGNALS, TO_ALL, Interrupted, Shutdown, TimeIsUp, TimeTooShort
from tests.clocks import Clock

ABORTED = "aborted: 1 in flight (train/0007); a resumed run restarts episodes and continues sleeps"


class Job:
    """Work that begins units until a stop is asked for; each unit ends when `release` is set."""

    def __init__(self, patience_s: float = 6.0, time_s: float | None = None) -> None:
        self.said: list[str] = []
        self.shutdown = Shutdown(self.said.append, patience_s, time_s)
        self.release = asyncio.Event()
        self.begun = asyncio.Event()
        self.log: list[str] = []

    async def start(self, unit: bool = True) -> asyncio.Task[str]:
        """Begin to work."""
        running = asyncio.create_task(self.shutdown.run(self.work(unit)))
        await self.begun.wait()
        return running

    async def told(self) -> None:
        """Wait for the first line, as a signal is on its way."""
        while not self.said:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def work(self, unit: bool = True) -> str:
        try:
            if unit:
                with self.shutdown.unit("train/0007"):
                    self.begun.set()
                    await self.release.wait()
                    self.log.append("unit ended")
            else:
                self.begun.set()
                await self.release.wait()
            self.shutdown.check()
            self.log.append("went on")
            return "done"
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "speedrunner.runs.shutdown")


async def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await asyncio.sleep(0)


@pytest.mark.parametrize("number", SIGNALS)
async def test_the_first_signal_lets_units_in_flight_end_and_nothing_new_begins(
    number: signal.Signals,
) -> None:
    job = Job()
    running = await job.start()
    await send(number)
    await job.told()
    assert not running.done()
    job.release.set()
    with pytest.raises(Interrupted, match=f"stopped by {number.name}") as interrupted:
        await running
    assert interrupted.value.number == number
    assert job.log == ["unit ended"]
    (line,) = job.said
    assert line.startswith(f"{number.name}: 1 in flight, waiting up to 6 s")


async def test_units_that_take_too_long_are_cancelled_and_named() -> None:
    job = Job(patience_s=0.05)
    running = await job.start()
    await send(signal.SIGTERM)
    with pytest.raises(Interrupted):
        await running
    assert job.log == ["cancelled"]
    assert job.said[1:] == [ABORTED]


@pytest.mark.parametrize("time_s", [None, 8.0])
@pytest.mark.parametrize("failure", [None, ValueError("the disk is full")])
async def test_what_is_put_away_after_the_last_unit_may_take_longer_and_its_failure_is_told(
    failure: ValueError | None, time_s: float | None, clock: Clock
) -> None:
    job = Job(6.0, time_s)
    put_away = False

    async def work() -> None:
        nonlocal put_away
        try:
            with job.shutdown.unit("train/0007"):
                job.begun.set()
                await job.release.wait()
                if failure is not None:
                    raise failure
            job.shutdown.check()
        finally:
            job.shutdown.is_cleaning = True
            await clock.sleep(10.0)
            put_away = True

    running = asyncio.create_task(job.shutdown.run(work()))
    await job.begun.wait()
    await send(signal.SIGINT)
    await job.told()
    job.release.set()
    with pytest.raises(ValueError if failure else Interrupted, match=str(failure or "stopped by SIGINT")):
        await running
    assert put_away


@pytest.mark.parametrize("number", SIGNALS)
async def test_between_units_and_before_the_first_the_work_is_cancelled_at_once(
    number: signal.Signals, clock: Clock
) -> None:
    job = Job(time_s=60.0)
    running = await job.start(unit=False)
    await send(number)
    with pytest.raises(Interrupted, match=f"stopped by {number.name}"):
        await running
    assert job.log == ["cancelled"]
    assert job.said == []


async def test_a_warning_of_a_job_s_end_lets_units_go_on_until_then(clock: Clock) -> None:
    job = Job(patience_s=0.0, time_s=60.0)
    running = await job.start()
    await send(signal.SIGUSR1)
    await job.told()
    assert job.said == [
        "SIGUSR1: 1 in flight, waiting up to 60 s for them; send the signal again to stop now"
    ]
    job.release.set()
    with pytest.raises(Interrupted, match="stopped by SIGUSR1"):
        await running
    assert job.log == ["unit ended"]


async def test_what_is_in_flight_when_the_time_is_over_is_given_up(clock: Clock) -> None:
    job = Job(time_s=60.0)

    async def work() -> None:
        with job.shutdown.unit("train/0006"):
            pass
        asyncio.get_running_loop().call_soon(clock.advance, 60.0)
        await job.work()  # it takes all of the time, but the next job may have more for it

    with pytest.raises(TimeIsUp, match="the time limit of the job was reached") as interrupted:
        await job.shutdown.run(work())
    assert interrupted.value.number == signal.SIGUSR1
    assert job.said == [ABORTED]


async def test_a_time_in_which_nothing_could_end_is_told_so_that_nobody_tries_again_for_ever() -> None:
    with pytest.raises(TimeTooShort, match=r"could finish in the 0 s .* request more minutes"):
        await Job(time_s=0.3).shutdown.run(Job().work())


@pytest.mark.parametrize(("passed_s", "expected"), [(20.0, Interrupted), (40.0, TimeTooShort)])
async def test_a_warning_before_the_first_unit_announces_the_end_only_late_in_a_job(
    passed_s: float, expected: type[Exception], clock: Clock
) -> None:
    job = Job(time_s=60.0)
    running = await job.start(unit=False)
    clock.advance(passed_s)
    await send(signal.SIGUSR1)
    with pytest.raises(expected) as raised:
        await running
    assert type(raised.value) is expected
    assert job.log == ["cancelled"]


async def test_a_unit_that_can_continue_in_the_next_job_may_take_all_of_the_time(
    clock: Clock,
) -> None:
    job = Job(time_s=60.0)

    async def work() -> None:
        job.shutdown.note_step()
        asyncio.get_running_loop().call_soon(clock.advance, 60.0)
        await job.work()

    with pytest.raises(TimeIsUp):
        await job.shutdown.run(work())


@pytest.mark.process
async def test_signals_of_a_job_do_not_reach_the_processes_that_work_starts() -> None:
    async def blocked() -> int:
        program = "import re; print(re.search(r'SigBlk:\\s*(\\w+)', open('/proc/self/status').read())[1])"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=-1)
        output, _ = await process.communicate()
        return int(output, 16)

    job = Job()
    mask = await job.shutdown.run(blocked())
    assert {number for number in signal.valid_signals() if mask >> (number - 1) & 1} == TO_ALL
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & TO_ALL


TWICE = """
import asyncio
from speedrunner.runs.shutdown import Shutdown

async def stubborn(shutdown):
    with shutdown.unit("train/0007"):
        print("begun", flush=True)
        await asyncio.sleep(1000)

shutdown = Shutdown(lambda line: print(line, flush=True), 6.0)
try:
    asyncio.run(shutdown.run(stubborn(shutdown)))
finally:
    print("tidied up", flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", TWICE], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stdout.readline().startswith(number.name)
        process.send_signal(number)
        assert process.wait() == 128 + number
        assert process.stdout.read() == f"{ABORTED}\n"


LOOK = """
import asyncio, os, sys
from speedrunner.runs.shutdown import Interrupted, Shutdown

async def work(shutdown):
    with shutdown.unit("train/0007"):
        print("begun", flush=True)
        while not shutdown.requested:
            await asyncio.sleep(0.01)
        print("written to a closed terminal", flush=True)
    shutdown.check()

shutdown = Shutdown(lambda line: print(line, flush=True), patience_s=9.0)
try:
    asyncio.run(shutdown.run(work(shutdown)))
except Interrupted as interrupted:
    open(sys.argv[1], "w").write(str(interrupted))
"""


@pytest.mark.process
def test_a_closed_terminal_is_a_signal_like_any_other(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-c", LOOK, str(tmp_path / "end")])
    shown = b""
    while not shown.endswith(b"\n"):  # a terminal closed within a line makes the child's write fail
        shown += os.read(terminal, 100)
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "end").read_text() == "stopped by SIGHUP"
