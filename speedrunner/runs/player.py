"""Play a list of runs: those of one server concurrently, each with its own directory, ledger and episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rich.console import Console

from serving.deployment import Deployment
from serving.errors import ServerDied, ServerFailed, ServingError
from serving.meter import Reconciliation
from serving.probes.start_check import StartCheck
from speedrunner.plain.console import visible
from speedrunner.runs.open_run import OpenRun, open_run
from speedrunner.runs.planned_runs import AHEAD, PlannedRun, is_unfinished, split_by_server
from speedrunner.runs.progress import Progress, Ticks
from speedrunner.runs.server_deaths import ServerDeaths
from speedrunner.runs.servers import fit_model, serve_model
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Interrupted, Shutdown
from speedrunner.store.discovery import is_for_people
from speedrunner.workers.worker_pool import TooManyWorkers, WorkerPool

T = TypeVar("T")

MOST_DEATHS = 10
"""Most deaths of servers that one process survives until a unit is given up, failed starts included."""

PAUSE_S = 10.0
"""Seconds before the next start: processes of the dead server may still hold GPU memory."""


@dataclass(frozen=True)
class PlayResult:
    """The result of played runs.

    Attributes:
        failures: by run directory, why it stopped; all other runs are finished.
        reconciliations: those of the engines; empty if nothing was left to do, or if no engine exposes
            counters.
    """

    failures: dict[str, str]
    reconciliations: list[Reconciliation]


async def play_runs(
    runs: Sequence[PlannedRun],
    console: Console,
    shutdown: Shutdown,
    at_once: int | None = None,
    log_prefix: str | None = None,
) -> PlayResult:
    """Start or resume runs: those with the same model concurrently, one model after another.

    A run that starts from another run's policy waits for it. A run that stops does not affect the others. A
    death of a server is survived. Recorded data is always kept, and the same call resumes the runs.

    Args:
        at_once: number of concurrent episodes over all runs; `None`: `runs` is a single run, which has its
            own `run.in_flight` and a live line of progress, and its error is raised.
        log_prefix: prefix of the names of servers' logs in the folder that contains the runs' directories;
            `None`: they are in the directory of the server's first run.

    Raises:
        RunDirectoryError: a directory cannot be used; nothing was started.
        Interrupted: a shutdown was requested, or the time is over (`TimeIsUp`).
        ServingError: the server did not start, and all runs share it.
        InvalidModelConfig, ServerFailed: an API key is missing, or a model does not fit the GPUs or its
            server.
        LockHeld, RunStopped, StorageError, WorkerError: with `at_once=None`, the run cannot start, or it
            stopped. Otherwise, these errors are in `PlayResult.failures`.
    """
    left = [run for run in runs if at_once is None or is_unfinished(run)]
    unfinished = {run.path for run in left}
    session = _Session(console, shutdown, at_once, log_prefix, len(runs), unfinished)
    if len(left) < len(runs):
        session.say_counts(running=0)
    reconciliations: list[Reconciliation] = []
    groups = split_by_server(left)
    for group in groups:

        async def play(group: Sequence[PlannedRun] = group) -> Reconciliation | None:
            queue = [run for run in group if run.path in unfinished and run.path not in session.failures]
            return await _RunsOfServer(session, queue).play()

        try:
            if reconciliation := await survive_deaths(play, session.deaths, shutdown, session.say):
                reconciliations.append(reconciliation)
        except ServingError as error:
            if len(groups) == 1:
                raise
            for run in group:
                if run.path in unfinished:
                    session.failures.setdefault(run.path, str(error))
        shutdown.check()
    return PlayResult(session.failures, reconciliations)


async def survive_deaths(
    play: Callable[[], Awaitable[T]], deaths: ServerDeaths, shutdown: Shutdown, say: Callable[[str], None]
) -> T:
    """Return the result of `play`, which is called again when its server has died.

    Raises `ServerDied`, `ServerFailed` after too many deaths of which no unit is the cause, and all other
    errors of `play`.
    """
    count = 0
    while True:
        try:
            return await play()
        except (ServerDied, ServerFailed) as error:
            shutdown.check()
            if count == MOST_DEATHS or (isinstance(error, ServerFailed) and not count):
                raise
            say(f"{str(error).splitlines()[0]}; a new one is started, and the run resumes")
            if isinstance(error, ServerDied) and (given_up := deaths.judge()):
                say(given_up)
                count = 0
        count += 1
        shutdown.is_cleaning = False
        await asyncio.sleep(PAUSE_S)
        shutdown.check()


@dataclass(frozen=True)
class _Session:
    """What the runs of all servers share. Runs are named by their directories.

    Attributes:
        total: number of runs, the finished ones included.
        unfinished: runs from which no other run can start yet.
        failures: why runs stopped.
        stopped: runs that will not start again in this process, interrupted ones included.
    """

    console: Console
    shutdown: Shutdown
    at_once: int | None
    log_prefix: str | None
    total: int
    unfinished: set[str]
    failures: dict[str, str] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    ticks: Ticks = field(default_factory=Ticks)
    deaths: ServerDeaths = field(default_factory=ServerDeaths)

    @property
    def is_single(self) -> bool:
        """Return whether the run is played by itself, not as one of a list."""
        return self.at_once is None

    def say(self, line: str) -> None:
        """Print a line."""
        self.console.print(visible(line), soft_wrap=True)

    def say_counts(self, running: int) -> None:
        """Print how many runs of a list are finished, running, waiting and stopped."""
        if not self.is_single:
            finished = self.total - len(self.unfinished)
            waiting = len(self.unfinished) - len(self.stopped) - running
            counts = {"running": running, "waiting": waiting, "stopped": len(self.stopped)}
            rest = "".join(f", {count} {state}" for state, count in counts.items() if count)
            self.say(f"sweep: {finished} of {self.total} runs are finished{rest}")


class _RunsOfServer:
    """Runs on one server, from its start to its end."""

    def __init__(self, session: _Session, queue: list[PlannedRun]) -> None:
        self._session = session
        self._queue = queue
        self._slots = None if session.at_once is None else asyncio.Semaphore(session.at_once)
        self._server_setup: Setup | None = None
        """The model with the shared server's context; resumed runs may use less of it."""
        self._served: asyncio.Future[tuple[Deployment, StartCheck]] = (
            asyncio.get_running_loop().create_future()
        )
        self._active: dict[asyncio.Task[None], PlannedRun] = {}
        self._opened: list[OpenRun] = []
        self._workers: list[AsyncExitStack] = []
        """Workers of all runs; closed when their run ends, at the latest with the server."""
        self._directories = AsyncExitStack()
        """Held until all reconciliations are stored at the end."""
        self._is_crowded = False
        """Whether the next run waits for another run to free its memory."""
        self._defect: Exception | None = None
        """An unexpected error; raised when the other runs have ended."""
        self._death: ServerDied | None = None
        """The death of the server, which ends all runs; raised when they have ended."""

    async def play(self) -> Reconciliation | None:
        """Play the runs to their ends. Return the engine's reconciliation."""
        session = self._session
        session.shutdown.is_cleaning = False  # the cleanup after the previous server is over
        async with self._directories:
            try:
                # The directory of a single run is checked first.
                if not session.is_single and (planned := self._choose_next()) is not None:
                    await self._fit_model(planned.setup)
                await self._start_more()
                reconciliation = await self._play_on_server() if self._active else None
            finally:
                await self._cancel()
        if (error := self._defect or self._death) is not None:
            raise error
        if not session.shutdown.requested:
            for run in self._queue:
                why = f"it starts from {run.after}, which is not finished"
                session.failures.setdefault(run.path, why)
        return reconciliation

    async def _fit_model(self, setup: Setup) -> Setup:
        """Return a run's setup with the model of the shared server, which is fitted at the first call."""
        if self._server_setup is None:
            self._server_setup = await fit_model(setup, self._session.say)
        return replace(setup, model_config=self._server_setup.model_config, gpus=self._server_setup.gpus)

    async def _play_on_server(self) -> Reconciliation | None:
        session, first = self._session, self._opened[0]
        assert self._server_setup is not None
        async with AsyncExitStack() as stack:
            if session.is_single:
                setup, progress = first.setup, first.progress
            else:
                setup = self._server_setup
                progress = stack.enter_context(Progress(session.console, 1, 0, "sweep", session.ticks))
            log = first.directory.path / "server.log"
            if session.log_prefix is not None:
                log = first.directory.path.parent / f"{session.log_prefix}server.log"
            deployment = await stack.enter_async_context(serve_model(setup, log, progress))
            self._served.set_result((deployment, StartCheck(setup.config.serving.check, progress.say)))
            try:
                while self._active:
                    ended, _ = await asyncio.wait(self._active, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        self._end(task)
                    if self._death is None:
                        await self._start_more()
            finally:
                session.shutdown.is_cleaning = True
                await self._cancel()
                reconciliation = await deployment.reconciliation()
                if reconciliation is not None:
                    append = [run.directory.append_reconciliation for run in self._opened]
                    # A slow disk takes seconds for each run, and the end of a job may be near.
                    with ThreadPoolExecutor() as threads:
                        list(threads.map(lambda write: write(reconciliation), append))
            return reconciliation

    async def _start_more(self) -> None:
        """Start as many runs as there is room for."""
        session = self._session
        while not session.shutdown.requested and (planned := self._choose_next()) is not None:
            self._queue.remove(planned)
            directory, workers = AsyncExitStack(), AsyncExitStack()
            try:
                name = "" if session.is_single else planned.name
                fit = self._fit_model
                opening = open_run(planned.setup, session.console, fit, name, session.ticks)
                run = await directory.enter_async_context(opening)
                if run is None:  # it was finished before, perhaps by another process meanwhile
                    await directory.aclose()
                    session.unfinished.discard(planned.path)
                    session.say_counts(len(self._active))
                    continue
                pool = await workers.enter_async_context(run.create_workers())
            except BaseException as error:
                await directory.aclose()
                if isinstance(error, TooManyWorkers) and self._active:
                    self._queue.insert(0, planned)
                    self._is_crowded = True
                    continue
                if session.is_single or not isinstance(error, Exception):
                    raise
                self._fail(planned, error)
                session.say_counts(len(self._active))
                continue
            self._directories.push_async_exit(directory)
            self._workers.append(workers)
            self._opened.append(run)
            self._active[asyncio.create_task(self._play(run, pool, workers), name=planned.name)] = planned

    def _choose_next(self) -> PlannedRun | None:
        wanted = sum(run.setup.config.run.in_flight for run in self._active.values())
        at_once = self._session.at_once
        is_busy = at_once is not None and wanted >= AHEAD * at_once
        if self._active and (self._is_crowded or is_busy):
            return None
        return next((run for run in self._queue if run.after not in self._session.unfinished), None)

    async def _play(self, run: OpenRun, pool: WorkerPool, workers: AsyncExitStack) -> None:
        async with workers:
            session = self._session
            await run.play(*await self._served, pool, session.shutdown, session.deaths, self._slots)

    def _end(self, task: asyncio.Task[None]) -> None:
        session, run = self._session, self._active.pop(task)
        self._is_crowded = False
        try:
            task.result()
        except Interrupted:
            session.stopped.add(run.path)
        except ServerDied as error:
            self._death = error
        except Exception as error:
            if session.is_single:
                raise
            self._fail(run, error)
        else:
            session.unfinished.discard(run.path)
        session.say_counts(len(self._active))

    def _fail(self, run: PlannedRun, error: Exception) -> None:
        """Record the error that stops a run; the others continue."""
        if not is_for_people(error):
            self._defect = self._defect or error
        why = str(error) or repr(error)
        self._session.deaths.forget(run.path)
        self._session.failures[run.path] = why
        self._session.stopped.add(run.path)
        self._session.say(f"{run.name}: stopped: {why.splitlines()[0]}")

    async def _cancel(self) -> None:
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)
        self._active.clear()
        for workers in self._workers:  # a task that was cancelled before its start has closed none
            await workers.aclose()
