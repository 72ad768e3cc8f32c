"""One run: its directory is taken, what it needs is brought up, used and put away again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from serving.balance import Balance
from serving.deployment import Deployment, deploy
from serving.meter import LedgerRow, Spending
from serving.model import Model
from serving.probes.start_check import check_engine
from speedrunner.agents.actor import Actor
from speedrunner.config.schema import differences, to_yaml
from speedrunner.costs.ledger import spent_usd
from speedrunner.hosts.host_pool import HostPool
from speedrunner.runs.budget import TokenBudget
from speedrunner.runs.curves import curves, require
from speedrunner.runs.drain import Drain
from speedrunner.runs.due import Due, due
from speedrunner.runs.executor import Executor
from speedrunner.runs.fair_share import FairShare
from speedrunner.runs.identity import continued, identity
from speedrunner.runs.plan import Evaluate, Wake
from speedrunner.runs.progress import Progress
from speedrunner.runs.setup import Setup
from speedrunner.store.data import RunData
from speedrunner.store.files import StorageError
from speedrunner.store.labels import attempts
from speedrunner.store.records import Policy, Process
from speedrunner.store.rundir import RunDirectory
from speedrunner.store.stored_run import RunDirectoryError, StoredRun

READING_S = 10.0
"""Seconds between two notes of the accounts, of which a process that is killed leaves the last."""


async def run(setup: Setup, console: Console, drain: Drain) -> list[Balance]:
    """Begin a run, or go on with it where it stopped.

    Returns:
        The accounts of this process beside each engine's; none when nothing was left to do, or where no
        engine shows counters.

    Raises:
        LockHeld, RunDirectoryError: the directory cannot be used for this run.
        Interrupted, RunStopped, ServingError, StorageError, HostError: it stopped; what is recorded stays,
            and the same call goes on.
    """
    with begun(setup, console) as one:
        if one is None:
            return []
        logs = one.directory.server_log, one.directory.inducer_server_log
        async with one.hosts() as pool, deployed(setup, *logs, one.progress) as engines:
            try:
                async with engines.read(lambda: [one]):
                    await one.play(engines, pool, drain)
            finally:
                balances = await engines.balances()
                one.keep(balances)
            return balances


@dataclass(frozen=True)
class Engines:
    """The engine of the actor and that of every other role; often the same."""

    actor: Deployment
    others: Deployment

    @asynccontextmanager
    async def models(
        self, setup: Setup, write_row: Callable[[LedgerRow], None], spent: float = 0.0
    ) -> AsyncIterator[tuple[Model, Model]]:
        """What plays the actor, and what every other role; often the same. `spent` are USD of the cap."""
        spending = Spending(setup.config.serving.spending_cap_usd, spent)
        async with AsyncExitStack() as stack:
            found = {
                engine: await stack.enter_async_context(
                    engine.client(write_row, prices=setup.prices[engine.card.name], spending=spending)
                )
                for engine in dict.fromkeys((self.actor, self.others))
            }
            yield found[self.actor], found[self.others]

    async def balances(self, *, in_passing: bool = False) -> list[Balance]:
        """The accounts of each engine that shows counters; `in_passing` while requests may be in flight."""
        engines = dict.fromkeys((self.actor, self.others))
        found = [await engine.balance(in_passing=in_passing) for engine in engines]
        return [balance for balance in found if balance is not None]

    @asynccontextmanager
    async def read(self, runs: Callable[[], Iterable[BegunRun]]) -> AsyncIterator[None]:
        """Note the accounts in the directories of runs every now and then, as long as the context lasts."""
        over = asyncio.Event()

        async def note() -> None:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), READING_S)
                    return
                balances = await self.balances(in_passing=True)
                for each in runs():
                    with suppress(StorageError):  # which the run itself will meet
                        await asyncio.to_thread(each.directory.write_reading, balances)

        noting = asyncio.create_task(note(), name="readings")
        try:
            yield
        finally:
            over.set()  # what is being written is written before the last accounts
            await asyncio.gather(noting, return_exceptions=True)


@asynccontextmanager
async def deployed(setup: Setup, log: Path, inducer_log: Path, progress: Progress) -> AsyncIterator[Engines]:
    """Bring the models of a configuration into service, whose servers' output goes to the logs.

    Raises `InvalidCard`, `ServerFailed`.
    """
    options = setup.config.serving
    async with AsyncExitStack() as stack:
        start = partial(deploy, say=progress.say, waiting=progress.waiting)
        actor = others = await stack.enter_async_context(start(setup.card, options, log=log))
        if setup.inducer_card is not setup.card:
            # A server that is named by address or port is the actor's.
            own = start(setup.inducer_card, options.elsewhere(), log=inducer_log)
            others = await stack.enter_async_context(own)
        yield Engines(actor, others)


@dataclass(frozen=True)
class BegunRun:
    """A run whose directory is ours, and of which something is left to do."""

    setup: Setup
    directory: RunDirectory
    process: Process
    left: list[Due]
    ledger: list[LedgerRow]
    progress: Progress

    def keep(self, balances: list[Balance]) -> None:
        """Store the accounts, unless the disk refuses: what stopped the run is told before that."""
        if balances:
            with suppress(StorageError):
                self.directory.append_accounts(balances)

    def hosts(self) -> HostPool:
        """Hosts for as many episodes as can be in flight, to come up while the engine does."""
        # An evaluation is played beside the wake after it.
        wake = max((len(each.tasks) for each in self.left if isinstance(each.step, Wake)), default=0)
        test = max((len(each.tasks) for each in self.left if isinstance(each.step, Evaluate)), default=0)
        size = min(self.setup.config.run.in_flight, max(wake + test, 1))
        return self.setup.hosts(size, self.directory.host_log)

    async def play(
        self, engines: Engines, pool: HostPool, drain: Drain, share: FairShare | None = None
    ) -> None:
        """Do what is left, in the hosts of `pool`. Raises as `run`.

        Args:
            share: the slots that its episodes share with those of other runs.
        """
        setup, directory = self.setup, self.directory
        spent = spent_usd(self.ledger, setup.prices)
        budget = TokenBudget(setup.config.run.budget_tokens, self.ledger)

        def write_row(row: LedgerRow) -> None:
            budget.record(row)
            directory.append_request(row)

        async with engines.models(setup, write_row, spent) as (model, others):
            for each in dict.fromkeys((model, others)):
                await check_engine(each)
            directory.append_process(self.process)  # one that never came as far has changed nothing
            self.progress.begin(model.engine.meter, lambda: engines.actor.held_back)
            executor = Executor(
                directory=directory,
                method=setup.method,
                actor=Actor(setup.env, model, setup.config, others),
                pool=pool,
                progress=self.progress,
                drain=drain,
                attempts=attempts(self.ledger, directory.episodes()),
                budget=budget,
                share=share or FairShare(),
            )
            end = directory.training_end
            prices = setup.prices[setup.card.name]
            with curves(setup.config, directory, prices, self.progress.say) as executor.finished:
                await executor.execute(self.left)
                if directory.training_end != end:
                    await executor.execute(due(setup.plan(directory.training_end), directory))


@contextmanager
def begun(setup: Setup, console: Console, name: str = "") -> Iterator[BegunRun | None]:
    """Own a run's directory for as long as the context lasts; `None` when the run is finished.

    Args:
        name: leads each line of its progress, where several runs share a terminal.

    Raises:
        LockHeld, RunDirectoryError: the directory cannot be used for this run.
        InvalidCard, ServerFailed: an API key is missing.
        NotInstalled: a package that `logging` needs is missing.
    """
    options = setup.config.run
    path = Path(options.dir)
    # Before a folder is made, as it may not exist.
    initial = None if (path / "config.yaml").exists() else setup.initial_policy()
    with RunDirectory.open_for_writing(path) as directory:
        same_configuration(directory, setup)
        steps = setup.plan(directory.training_end)
        left = due(steps, directory, retry_faults=options.retry_faults)
        if not left:
            console.print(f"{path} is finished: nothing is left to play", soft_wrap=True)
            yield None
            return
        setup.check_keys()
        require(setup.config.logging)
        _claim(directory, setup, initial)
        directory.keep_reading()
        ledger = directory.requests()  # a damaged one is told before a server is started
        episodes = sum(len(step.tasks) for step in steps if isinstance(step, Wake | Evaluate))
        with Progress(console, episodes, episodes - sum(len(each.tasks) for each in left), name) as progress:
            process = identified(directory, setup, progress.waiting)
            if process.changes:
                progress.say(f"warning: not as before: {'; '.join(process.changes)}")
            yield BegunRun(setup, directory, process, left, ledger, progress)


def same_configuration(directory: StoredRun, setup: Setup) -> None:
    """Raise `RunDirectoryError` where a run that there is has another configuration."""
    if directory.config() is None:
        return
    if changed := differences(RunData(directory).settings, setup.config):
        raise RunDirectoryError(
            f"{directory.path} is a run of another configuration: {'; '.join(changed)};"
            " take the change back, or name another directory with run.dir"
        )


def _claim(directory: RunDirectory, setup: Setup, initial: Policy | None) -> None:
    """Write the configuration of a new run, and its first policy."""
    is_new = directory.config() is None
    if is_new or not directory.policies.versions():
        initial = initial or setup.initial_policy()
        if is_new:
            directory.write_config(to_yaml(setup.config))
        directory.write_policy(initial)


def identified(directory: StoredRun, setup: Setup, say: Callable[[str], None]) -> Process:
    """What this process works with, if the run may go on with it. Raises as `identity` and `continued`.

    Args:
        say: gets a line of what is done.
    """
    process, before = identity(setup, say), directory.processes()
    if before or directory.episodes():  # a process that was not recorded has played none
        newest = before[-1] if before else None
        process = continued(directory.path, newest, process, accept=setup.config.run.accept_changes)
    return process
