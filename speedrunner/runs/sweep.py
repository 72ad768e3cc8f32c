"""Play several runs concurrently on one engine, each with its own directory, ledger and episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from rich.console import Console

from serving.errors import ServerDied, ServingError
from serving.meter import Reconciliation
from speedrunner.config.grid import AT_ONCE
from speedrunner.plain.console import visible
from speedrunner.runs.progress import Progress, SweepProgress
from speedrunner.runs.run import Engines, OpenRun, deploy_models, open_run, sized_setup
from speedrunner.runs.server_deaths import survive_deaths
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Interrupted, Shutdown
from speedrunner.runs.sweep_members import Member, is_unfinished, split_by_server
from speedrunner.store.discovery import is_for_people
from speedrunner.workers.worker_pool import TooManyWorkers, WorkerPool

AHEAD = 2
"""Runs are started until their episodes could fill the engine this many times: while one sleeps,
others play."""


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        failures: by run directory, why it stopped; all other runs are finished.
        reconciliations: those of the shared engines; empty if nothing was left to do.
    """

    failures: dict[str, str]
    reconciliations: list[Reconciliation]


async def sweep(
    runs: Sequence[Member], console: Console, shutdown: Shutdown, at_once: int = AT_ONCE, logs: str = ""
) -> SweepResult:
    """Play all unfinished runs: those with the same model concurrently, one model after another.

    A run that starts from another run's policy waits for it. A run that stops does not affect the others.

    Args:
        at_once: number of concurrent episodes over all runs.
        logs: prefix of the names of servers' logs, if other sweeps write to the same folder.

    Raises:
        RunDirectoryError: a directory contains something else; nothing was started.
        Interrupted: a shutdown was requested, or the time is over (`TimeIsUp`).
        ServingError: the server did not start, and all runs share it.
        InvalidModelConfig, ServerFailed: an API key is missing.
    """
    left = [each for each in runs if is_unfinished(each)]
    failures: dict[str, str] = {}
    reconciliations: list[Reconciliation] = []
    progress = SweepProgress(console, len(runs), len(runs) - len(left))
    unfinished = {each.path for each in left}
    groups = split_by_server(left)
    for group in groups:

        async def play(group: Sequence[Member] = group) -> list[Reconciliation]:
            queue = [each for each in group if each.path in unfinished and each.path not in failures]
            return await _RunsOfServer(
                queue, unfinished, failures, progress, console, shutdown, at_once, logs
            ).play()

        try:
            reconciliations += await survive_deaths(
                play, shutdown, lambda line: console.print(visible(line), soft_wrap=True)
            )
        except ServingError as error:
            if len(groups) == 1:
                raise
            for each in group:
                if each.path in unfinished:
                    failures.setdefault(each.path, str(error))
        shutdown.check()
    return SweepResult(failures, reconciliations)


class _RunsOfServer:
    """Runs on one server, from its start to its end.

    Args:
        queue: the runs.
        unfinished: directories of unfinished runs of all servers; no run can start from these yet.
        failures: collects the runs that stop.
    """

    def __init__(
        self,
        queue: list[Member],
        unfinished: set[str],
        failures: dict[str, str],
        progress: SweepProgress,
        console: Console,
        shutdown: Shutdown,
        at_once: int,
        logs: str,
    ) -> None:
        self._queue = queue
        self._server_setup = queue[0].setup
        """The models with the shared server's contexts; resumed runs may use less of their context."""
        self._unfinished = unfinished
        self._failures = failures
        self._progress = progress
        self._console = console
        self._shutdown = shutdown
        self._at_once = at_once
        self._logs = logs
        self._slots = asyncio.Semaphore(at_once)
        self._engines: asyncio.Future[Engines] = asyncio.get_running_loop().create_future()
        self._active: dict[asyncio.Task[None], Member] = {}
        self._begun: list[OpenRun] = []
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

    async def play(self) -> list[Reconciliation]:
        """Play the runs to their ends. Return the engines' reconciliations."""
        async with self._directories:
            try:
                self._server_setup = await sized_setup(self._server_setup, self._say)
                await self._begin_more()
                reconciliations = await self._play_on_a_server() if self._active else []
            finally:
                await self._cancel()
        if (error := self._defect or self._death) is not None:
            raise error
        if not self._shutdown.requested:
            for member in self._queue:
                why = f"it starts from {member.run.after}, which is not finished"
                self._failures.setdefault(member.path, why)
        return reconciliations

    async def _play_on_a_server(self) -> list[Reconciliation]:
        folder = self._begun[0].directory.path.parent
        async with AsyncExitStack() as stack:
            progress = stack.enter_context(Progress(self._console, 1, 0, "sweep"))
            logs = folder / f"{self._logs}server.log", folder / f"{self._logs}inducer_server.log"
            engines = await stack.enter_async_context(deploy_models(self._server_setup, *logs, progress))
            self._engines.set_result(engines)
            try:
                while self._active:
                    ended, _ = await asyncio.wait(self._active, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        self._end(task)
                    if self._death is None:
                        await self._begin_more()
            finally:
                self._shutdown.clean_up()
                await self._cancel()
                reconciliations = await engines.reconciliations()
                # A slow disk takes seconds for each run, and the end of a job may be near.
                with ThreadPoolExecutor() as threads:
                    list(threads.map(lambda one: one.keep(reconciliations), self._begun))
            return reconciliations

    async def _begin_more(self) -> None:
        """Start as many runs as there is room for."""
        while not self._shutdown.requested and (member := self._next()) is not None:
            self._queue.remove(member)
            directory, workers = AsyncExitStack(), AsyncExitStack()
            try:
                entered = open_run(member.setup, self._console, member.name, self._size)
                one = await directory.enter_async_context(entered)
                if one is None:  # another process has finished it meanwhile
                    await directory.aclose()
                    self._unfinished.discard(member.path)
                    self._progress.end(member.path, finished=True)
                    continue
                pool = await workers.enter_async_context(one.workers())
            except BaseException as error:
                await directory.aclose()
                if isinstance(error, TooManyWorkers) and self._active:
                    self._queue.insert(0, member)
                    self._is_crowded = True
                    continue
                if not isinstance(error, Exception):
                    raise
                self._fail(member, error)
                self._progress.end(member.path, finished=False)
                continue
            self._directories.push_async_exit(directory)
            self._workers.append(workers)
            self._begun.append(one)
            self._progress.begin(member.path)
            self._active[asyncio.create_task(self._play(one, pool, workers), name=member.name)] = member

    def _next(self) -> Member | None:
        wanted = sum(member.setup.config.run.in_flight for member in self._active.values())
        if self._active and (self._is_crowded or wanted >= AHEAD * self._at_once):
            return None
        return next((each for each in self._queue if each.run.after not in self._unfinished), None)

    async def _play(self, one: OpenRun, pool: WorkerPool, workers: AsyncExitStack) -> None:
        async with workers:
            await one.play(await self._engines, pool, self._shutdown, self._slots)

    async def _size(self, setup: Setup, say: Callable[[str], None]) -> Setup:
        """Give a run the models with the shared server's contexts."""
        server = self._server_setup
        return replace(
            setup, model_config=server.model_config, inducer_model_config=server.inducer_model_config
        )

    def _say(self, line: str) -> None:
        self._console.print(visible(line), soft_wrap=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        member = self._active.pop(task)
        self._is_crowded = False
        try:
            task.result()
        except Interrupted:
            pass
        except ServerDied as error:
            self._death = error
        except Exception as error:
            self._fail(member, error)
        else:
            self._unfinished.discard(member.path)
        will_resume = self._death is not None and member.path not in self._failures
        is_finished = member.path not in self._unfinished
        self._progress.end(member.path, finished=is_finished or (None if will_resume else False))

    def _fail(self, member: Member, error: Exception) -> None:
        """Record the error that stops a run; the others continue."""
        if not is_for_people(error):
            self._defect = self._defect or error
        why = str(error) or repr(error)
        self._failures[member.path] = why
        self._say(f"{member.name}: stopped: {why.splitlines()[0]}")

    async def _cancel(self) -> None:
        for task in self._active:
            task.cancel()
        await asyncio.gather(*self._active, return_exceptions=True)
        self._active.clear()
        for workers in self._workers:  # a task that was cancelled before its start has closed none
            await workers.aclose()
