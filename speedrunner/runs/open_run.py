"""Open the directory of a run, new or resumed, and play the run's unfinished steps.

A process may continue a stored run with the same configuration and the same context.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console

from serving.deployment import Deployment
from serving.options import running_endpoint
from serving.probes.start_check import StartCheck
from serving.usage import Usage
from speedrunner.agents.actor import Actor
from speedrunner.config.schema import differences, to_yaml
from speedrunner.runs.executor import Executor
from speedrunner.runs.identity import accept_changes, identity
from speedrunner.runs.metrics import track
from speedrunner.runs.plan import Due, Evaluate, Wake, unfinished_steps
from speedrunner.runs.progress import Progress, Ticks
from speedrunner.runs.server_deaths import ServerDeaths
from speedrunner.runs.servers import open_client
from speedrunner.runs.setup import Setup, check_model, find_policy, first_policy
from speedrunner.runs.shutdown import Shutdown
from speedrunner.store.files import StorageError
from speedrunner.store.records import Policy, Process, attempts
from speedrunner.store.run_data import RunData
from speedrunner.store.run_lock import OwnerSilent
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError
from speedrunner.workers.worker_pool import WorkerPool

LOOK_S = 1.0
"""Seconds between two looks at a lock whose owner seems dead."""


@dataclass(frozen=True)
class OpenRun:
    """An unfinished run with a directory that this process owns.

    Attributes:
        setup: includes the context that its model has in this run.
        attempts: number of attempts at each episode and sleep so far.
    """

    setup: Setup
    directory: RunDirectory
    process: Process
    left: list[Due]
    attempts: dict[str, int]
    progress: Progress

    def create_workers(self) -> WorkerPool:
        """Create workers for all episodes that can be in flight; they start in parallel with the engine."""
        # An evaluation is played in parallel with the next wake.
        wake = max((len(due.tasks) for due in self.left if isinstance(due.step, Wake)), default=0)
        test = max((len(due.tasks) for due in self.left if isinstance(due.step, Evaluate)), default=0)
        size = min(self.setup.config.run.in_flight, max(wake + test, 1))
        return self.setup.workers(size, self.directory.files.worker_log)

    async def play(
        self,
        deployment: Deployment,
        check: StartCheck,
        pool: WorkerPool,
        shutdown: Shutdown,
        deaths: ServerDeaths,
        slots: asyncio.Semaphore | None = None,
    ) -> None:
        """Play the unfinished steps in the workers of `pool`. Raises the errors of `Executor.execute`.

        Args:
            check: checks the engine before its first use.
            slots: episodes at the same time, shared with other runs.
        """
        setup, directory = self.setup, self.directory
        is_capped = setup.config.serving.spending_cap_usd is not None
        rows = directory.read().ledger if is_capped else []  # reading takes seconds
        # A request with unknown usage costs its maximum.
        spent = sum(setup.prices.cost(row.usage or row.at_most or Usage()) for row in rows)
        async with open_client(deployment, setup, directory.append_request, spent) as model:
            await check.require(model)
            model.note_tools = directory.append_tools
            directory.append_process(self.process)  # a process that stopped earlier has changed nothing
            self.progress.begin(model.engine.meter, lambda: deployment.queued)
            executor = Executor(
                directory=directory,
                method=setup.method,
                actor=Actor(setup.env, model, setup.config),
                pool=pool,
                progress=self.progress,
                shutdown=shutdown,
                attempts=self.attempts,
                slots=slots,
                deaths=deaths,
            )
            with track(setup.config, directory, self.progress.say) as executor.finished:
                await executor.execute(self.left)


@asynccontextmanager
async def open_run(
    setup: Setup,
    console: Console,
    fit: Callable[[Setup], Awaitable[Setup]],
    name: str = "",
    ticks: Ticks | None = None,
) -> AsyncIterator[OpenRun | None]:
    """Own a run's directory while the context lasts; yield `None` if the run is finished.

    Args:
        fit: returns a setup with a model that fits the GPUs here, or its server.
        name, ticks: prefix of each progress line, and their times, if several runs share a terminal.

    Raises:
        InvalidPlan: there is nothing to play, or too few tasks.
        LockHeld, RunDirectoryError: the directory cannot be used for this run.
        InvalidModelConfig, ServerFailed: an API key is missing, or a model does not fit the GPUs or its
            server.
    """
    options = setup.config.run
    path, steps = Path(options.dir), setup.plan()
    initial = None
    if not (path / "config.yaml").exists():  # checked before a folder is created
        initial = setup.initial_policy()
        check_model(setup, initial)
    with ExitStack() as owned:
        directory = await _own(path, owned, console)
        stored = directory.read()
        if stored.files.config.exists():
            check_configuration(stored, setup)
        left = unfinished_steps(steps, stored, retry_faults=options.retry_faults)
        if not left:
            console.print(f"{path} is finished: nothing to play", soft_wrap=True)
            yield None
            return
        running_endpoint(*setup.service)  # raises if an API key is missing
        # Reads the ledger, so a damaged one is reported before a server starts.
        tried = attempts(stored.columns.labels, stored.episodes)
        episodes = sum(len(step.tasks) for step in steps)
        before = episodes - sum(len(due.tasks) for due in left)
        claim = _claim(directory, setup, initial)
        with claim, Progress(console, episodes, before, name, ticks) as progress:
            setup = await fit(setup)
            process = identify_process(stored, setup, progress.waiting)
            setup = replace(setup, model_config=process.model)
            if process.changes:
                progress.say(f"warning: changed since the last process: {'; '.join(process.changes)}")
            yield OpenRun(setup, directory, process, left, tried, progress)


async def _own(path: Path, owned: ExitStack, console: Console) -> RunDirectory:
    """Own a run's directory while `owned` is open. Wait for an owner that seems dead: it may have lost its
    node, and this process may be the same job, started again. Raises `LockHeld`, `StorageError`."""
    is_told = False
    while True:
        try:
            return owned.enter_context(RunDirectory.open_for_writing(path))
        except OwnerSilent as silent:
            if not is_told:
                console.print(f"waiting: {silent}", soft_wrap=True)
            is_told = True
            await asyncio.sleep(LOOK_S)


@contextmanager
def open_new_run(setup: Setup, path: Path, policy: Policy | None = None) -> Iterator[RunDirectory]:
    """Own the directory of a new run, with its configuration and first policy, while the context lasts.

    Args:
        policy: the first policy; `None`: the setup's own.
    """
    with RunDirectory.open_for_writing(path) as directory:
        directory.write_config(to_yaml(setup.config))
        directory.write_policy(policy or setup.initial_policy())
        yield directory


@contextmanager
def _claim(directory: RunDirectory, setup: Setup, initial: Policy | None) -> Iterator[None]:
    """Write the configuration of a new run, the history that it carries, and its first policy. Withdraw them
    at the end if no process could start to play."""
    is_new = not directory.files.config.exists()
    if is_new or not directory.policies.versions():
        initial = initial or setup.initial_policy()
        if is_new:
            directory.write_config(to_yaml(setup.config))
        run = setup.config.run
        learns = setup.method.trains and run.rollouts > 0
        if learns and run.carry_history and run.start_from is not None:
            source, version = find_policy(run.start_from)
            directory.carry_history(source, version)
            initial = first_policy(source, version)  # of the same version, if the source is being played
        directory.write_policy(initial)
    try:
        yield
    finally:
        if not (directory.files.processes.exists() or directory.files.episodes.exists()):
            with suppress(StorageError):
                directory.withdraw()


def identify_process(run: RunData, setup: Setup, say: Callable[[str], None]) -> Process:
    """Return the record of this process, if it may resume the run.

    Raises the errors of `identity`, `with_recorded_context` and `accept_changes`, and `RunDirectoryError` if
    the run has episodes and no record of the process that played them.

    Args:
        say: called with a line about each action.
    """
    before = run.processes
    if run.episodes and not before:
        raise RunDirectoryError(
            f"{run.path} has episodes, but no {run.files.processes.name}, which says with which inputs they"
            " were played: restore that file, or start another run with run.dir=NEW"
        )
    process = identity(with_recorded_context(run, setup), say)
    if before:
        process = accept_changes(run.path, before[-1], process, accept=setup.config.run.accept_changes)
    return process


def check_configuration(run: RunData, setup: Setup) -> None:
    """Raise `RunDirectoryError` if a stored run has another configuration, and `StorageError` if it cannot be
    read."""
    if changed := differences(run.settings, setup.config):
        is_longer = all(line.startswith("run.rollouts: ") for line in changed)
        onward = f"run.start_from={run.path} run.dir=NEW" if is_longer else "run.dir=NEW"
        # The options of another environment or method differ with its name.
        causes = [line for line in changed if line.startswith(("env.name: ", "method.name: "))]
        sections = tuple(line.partition("name: ")[0] for line in causes)
        causes += [line for line in changed if not line.startswith(sections)]
        raise RunDirectoryError(
            f"{run.path} has another configuration: {'; '.join(causes)}; undo the change, or"
            f" start another run with {onward}"
        )


def with_recorded_context(run: RunData, setup: Setup) -> Setup:
    """Return the setup with the context that a run has recorded, even if more would fit here.

    A run is one experiment: its episodes must not get longer after a move to a larger GPU.

    Raises `RunDirectoryError`: the model has less context here.
    """
    here, processes = setup.model_config, run.processes
    if not processes or here.hosted or processes[-1].model.name != here.name:
        return setup
    context = processes[-1].model.context
    if context > here.context:
        raise RunDirectoryError(
            f"{run.path} has a context of {context:,} tokens, but {here.name} has {here.context:,} here:"
            f" resume it on larger GPUs or with a server that has --max-model-len {context}, or start another"
            " run with run.dir=NEW"
        )
    return replace(setup, model_config=msgspec.structs.replace(here, context=context))
