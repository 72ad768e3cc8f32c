"""Play one run: own its directory, start its engines and workers, play it, and clean up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console

from serving.deployment import Deployment, deploy, place_models
from serving.meter import LedgerRow, Reconciliation, Spending
from serving.model import Model
from serving.options import check_keys
from serving.probes.start_check import StartCheck
from serving.usage import Prices, Usage
from speedrunner.agents.actor import Actor
from speedrunner.config.schema import to_yaml
from speedrunner.runs.continuation import check_configuration, with_recorded_contexts
from speedrunner.runs.executor import Executor
from speedrunner.runs.identity import accept_changes, identity
from speedrunner.runs.metrics import track
from speedrunner.runs.plan import Due, Evaluate, Wake, unfinished_steps
from speedrunner.runs.progress import Progress
from speedrunner.runs.server_deaths import survive_deaths
from speedrunner.runs.setup import Setup, check_models, describe_overflow
from speedrunner.runs.shutdown import Shutdown
from speedrunner.runs.stored_policy import find_policy, first_policy
from speedrunner.store.files import StorageError
from speedrunner.store.records import Policy, Process, attempts
from speedrunner.store.run_data import RunData
from speedrunner.store.rundir import RunDirectory
from speedrunner.workers.worker_pool import WorkerPool


async def run(setup: Setup, console: Console, shutdown: Shutdown) -> list[Reconciliation]:
    """Start a run or resume it, also after a death of its server.

    Returns:
        The token reconciliation of this process for each engine; empty if nothing was left to do, or if no
        engine exposes counters.

    Raises:
        LockHeld, RunDirectoryError: the directory cannot be used for this run.
        Interrupted, RunStopped, ServingError, StorageError, WorkerError: it stopped; recorded data is kept,
        and the same call resumes it.
    """

    async def play() -> list[Reconciliation]:
        return await _play_on_servers(setup, console, shutdown)

    return await survive_deaths(play, shutdown, lambda line: console.print(line, soft_wrap=True))


async def _play_on_servers(setup: Setup, console: Console, shutdown: Shutdown) -> list[Reconciliation]:
    async with open_run(setup, console) as one:
        if one is None:
            return []
        logs = one.directory.files.server_log, one.directory.files.inducer_server_log
        async with one.workers() as pool, deploy_models(one.setup, *logs, one.progress) as engines:
            try:
                await one.play(engines, pool, shutdown)
            finally:
                shutdown.clean_up()
                reconciliations = await engines.reconciliations()
                one.keep(reconciliations)
            return reconciliations


@dataclass(frozen=True)
class Engines:
    """The engine of the actor and that of every other role; often the same.

    Attributes:
        checks: checks each engine before its first use.
    """

    actor: Deployment
    others: Deployment
    checks: dict[Deployment, StartCheck]

    @asynccontextmanager
    async def models(
        self, setup: Setup, write_row: Callable[[LedgerRow], None], spent: float = 0.0
    ) -> AsyncIterator[tuple[Model, Model]]:
        """Yield the model of the actor and that of every other role; often the same. `spent` are USD of the
        cap."""
        spending = Spending(setup.config.serving.spending_cap_usd, spent)
        model_configs = {self.actor: setup.model_config}
        model_configs.setdefault(self.others, setup.inducer_model_config)
        async with AsyncExitStack() as stack:
            found = {
                engine: await stack.enter_async_context(
                    engine.client(
                        write_row,
                        prices=setup.prices[model_config.name],
                        spending=spending,
                        context=model_config.context,
                    )
                )
                for engine, model_config in model_configs.items()
            }
            yield found[self.actor], found[self.others]

    async def check(self, actor: Model, others: Model) -> None:
        """Check that the engines behind the models are reliable enough for a run. Raises `ServingError`."""
        models = {self.actor: actor, self.others: others}
        for engine, model in models.items():
            await self.checks[engine].require(model)

    async def reconciliations(self) -> list[Reconciliation]:
        """Return the reconciliation of each engine that exposes counters."""
        found = [await engine.reconciliation() for engine in dict.fromkeys((self.actor, self.others))]
        return [reconciliation for reconciliation in found if reconciliation is not None]


@asynccontextmanager
async def deploy_models(
    setup: Setup, log: Path, inducer_log: Path, progress: Progress
) -> AsyncIterator[Engines]:
    """Serve the models of a configuration; the servers' output goes to the logs.

    Raises `InvalidModelConfig`, `ServerFailed`.
    """
    if setup.gpus is None:
        setup = await sized_setup(setup, progress.say)
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(
                deploy(model_config, options, log=to, gpus=gpus, say=progress.say, waiting=progress.waiting)
            )
            for (model_config, options), to, gpus in zip(
                setup.services, (log, inducer_log), setup.gpus or [], strict=False
            )
        ]
        actor, others = found[0], found[-1]
        checks = {engine: StartCheck(setup.config.serving.check, progress.say) for engine in (actor, others)}
        yield Engines(actor, others, checks)


@dataclass(frozen=True)
class OpenRun:
    """An unfinished run with a directory that this process owns.

    Attributes:
        setup: includes the contexts that its models have in this run.
        attempts: number of attempts at each episode and sleep so far.
    """

    setup: Setup
    directory: RunDirectory
    process: Process
    left: list[Due]
    attempts: dict[str, int]
    progress: Progress

    def keep(self, reconciliations: list[Reconciliation]) -> None:
        """Store the reconciliations. Ignore a disk error, because the error that stopped the run is reported
        first."""
        with suppress(StorageError):
            if reconciliations:
                self.directory.append_reconciliations(reconciliations)

    def workers(self) -> WorkerPool:
        """Create workers for all episodes that can be in flight; they start in parallel with the engine."""
        # An evaluation is played in parallel with the next wake.
        wake = max((len(each.tasks) for each in self.left if isinstance(each.step, Wake)), default=0)
        test = max((len(each.tasks) for each in self.left if isinstance(each.step, Evaluate)), default=0)
        size = min(self.setup.config.run.in_flight, max(wake + test, 1))
        return self.setup.workers(size, self.directory.files.worker_log)

    async def play(
        self, engines: Engines, pool: WorkerPool, shutdown: Shutdown, slots: asyncio.Semaphore | None = None
    ) -> None:
        """Play the unfinished steps in the workers of `pool`. Raises the errors of `run`.

        Args:
            slots: episodes at the same time, shared with other runs.
        """
        setup, directory = self.setup, self.directory
        is_capped = setup.config.serving.spending_cap_usd is not None
        # Reading the ledger takes seconds.
        spent = _spent_usd(directory.read().iterate_ledger(), setup.prices) if is_capped else 0.0
        async with engines.models(setup, directory.append_request, spent) as (model, others):
            await engines.check(model, others)
            model.note_tools = others.note_tools = directory.append_tools
            directory.append_process(self.process)  # a process that stopped earlier has changed nothing
            stored = directory.read().settings
            if stored.run.rollouts < setup.config.run.rollouts:  # recorded in the changes of the process
                directory.write_config(to_yaml(stored.with_run(rollouts=setup.config.run.rollouts)))
            self.progress.begin(model.engine.meter, lambda: engines.actor.queued)
            executor = Executor(
                directory=directory,
                method=setup.method,
                actor=Actor(setup.env, model, setup.config, others),
                pool=pool,
                progress=self.progress,
                shutdown=shutdown,
                attempts=self.attempts,
                slots=slots,
            )
            with track(setup.config, directory, self.progress.say) as executor.finished:
                await executor.execute(self.left)


def _spent_usd(rows: Iterable[LedgerRow], prices: Mapping[str, Prices]) -> float:
    """Return the cost of requests in USD; a request with unknown usage costs its maximum.

    Args:
        prices: by model. A model without prices (its model config was renamed) costs as much as the most
            expensive one.
    """
    dearest = max(prices.values(), key=lambda list_: list_.output)
    return sum(prices.get(row.model, dearest).cost(row.usage or row.at_most or Usage()) for row in rows)


async def sized_setup(setup: Setup, say: Callable[[str], None]) -> Setup:
    """Return the setup with its models fitted to the GPUs here, or to the server that it names.

    Args:
        say: called with a line about each fitted model.

    Raises:
        InvalidModelConfig, ServerFailed: see `serving.deployment.place_models`.
    """
    placed = await place_models(setup.services, say)
    model_configs = [model_config for model_config, _ in placed]
    return replace(
        setup,
        model_config=model_configs[0],
        inducer_model_config=model_configs[-1],
        gpus=[gpus for _, gpus in placed],
    )


Size = Callable[[Setup, Callable[[str], None]], Awaitable[Setup]]
"""A function like `sized_setup`."""


@asynccontextmanager
async def open_run(
    setup: Setup, console: Console, name: str = "", size: Size = sized_setup
) -> AsyncIterator[OpenRun | None]:
    """Own a run's directory while the context lasts; yield `None` if the run is finished.

    Args:
        name: prefix of each progress line, if several runs share a terminal.
        size: finds the contexts of the models.

    Raises:
        InvalidPlan: there is nothing to play, or too few tasks.
        LockHeld, RunDirectoryError: the directory cannot be used for this run.
        InvalidModelConfig, ServerFailed: an API key is missing, or a model does not fit the GPUs or its
            server.
    """
    options = setup.config.run
    path, steps = Path(options.dir), setup.plan()
    initial, first_prompt = None, 0
    if not (path / "config.yaml").exists():  # checked before a folder is created
        initial = setup.initial_policy()
        first_prompt = check_models(setup, initial)
    with RunDirectory.open_for_writing(path) as directory:
        stored = directory.read()
        extension = check_configuration(stored, setup) if stored.files.config.exists() else None
        left = unfinished_steps(steps, stored, retry_faults=options.retry_faults)
        if not left:
            console.print(f"{path} is finished: nothing to play", soft_wrap=True)
            yield None
            return
        check_keys(setup.services)
        # Reads the ledger, so a damaged one is reported before a server starts.
        tried = attempts(stored.iterate_ledger(), stored.episodes)
        episodes = sum(len(step.tasks) for step in steps)
        before = episodes - sum(len(due.tasks) for due in left)
        claim = _claim(directory, setup, initial)
        with claim, Progress(console, episodes, before, name) as progress:
            setup = await size(setup, progress.say)
            process = identify_process(stored, setup, progress.waiting)
            setup = replace(setup, model_config=process.actor, inducer_model_config=process.inducer)
            for line in describe_overflow(first_prompt, setup.model_config.context):
                progress.say(line)
            if process.changes:
                progress.say(f"warning: changed since the last process: {'; '.join(process.changes)}")
            if extension:
                progress.say(f"the run is extended: {extension}")
                process = msgspec.structs.replace(process, changes=[extension, *process.changes])
            yield OpenRun(setup, directory, process, left, tried, progress)


@contextmanager
def _claim(directory: RunDirectory, setup: Setup, initial: Policy | None) -> Iterator[None]:
    """Write the configuration of a new run, the history that it carries, and its first policy. Withdraw them
    at the end if no process could start to play."""
    is_new = not directory.files.config.exists()
    if is_new or not directory.policies.versions():
        initial = initial or setup.initial_policy()
        if is_new:
            directory.write_config(to_yaml(setup.config))
        if setup.carries_history:
            source, version = find_policy(setup.config.run.start_from or "")
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

    Raises the errors of `identity`, `with_recorded_contexts` and `accept_changes`.

    Args:
        say: called with a line about each action.
    """
    before = run.processes
    process = identity(with_recorded_contexts(run.path, before, setup), say)
    if before or run.episodes:  # a process without a record has played none
        newest = before[-1] if before else None
        process = accept_changes(run.path, newest, process, accept=setup.config.run.accept_changes)
    return process
