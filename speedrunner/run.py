"""One run from its configuration: what it needs is checked, brought up, used and put away again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml
from rich.console import Console

import envs
from envs import Split, TextEnv
from serving.balance import Balance
from serving.cards import ModelCard, adapted, load_card
from serving.deployment import Deployment, ServiceOptions, deploy
from serving.meter import LedgerRow, Spending
from serving.start_check import check_engine
from serving.usage import Prices, Usage
from speedrunner import methods
from speedrunner.actor import Actor, EpisodeLimits
from speedrunner.config.compose import compose
from speedrunner.config.schema import VERSIONS, Config, ModelConfig, differences, from_yaml, to_yaml
from speedrunner.drain import Drain
from speedrunner.executor import Executor
from speedrunner.hosts.pool import HostPool
from speedrunner.methods.base import Method
from speedrunner.plan import Evaluate, Step, Wake, plan_run, step_key
from speedrunner.progress import Progress
from speedrunner.records import Policy
from speedrunner.report.cost import RolePrices
from speedrunner.report.pricing import in_place_of
from speedrunner.sandbox.limits import Sandbox
from speedrunner.sandbox.process import require
from speedrunner.store.files import StorageError
from speedrunner.store.rundir import RunDirectory, RunDirectoryError
from speedrunner.store.summary import attempts
from speedrunner.versions import versions


@dataclass(frozen=True)
class Setup:
    """Everything that a configuration names, made and checked; nothing is started."""

    config: Config
    env: TextEnv
    split: Split
    method: Method
    card: ModelCard
    inducer_card: ModelCard
    """Of every role but the actor; often the same."""

    @property
    def prices(self) -> RolePrices:
        """The price lists: the cards' own, or the one that the configuration puts in their place."""
        return RolePrices(actor=self._prices(self.card), others=self._prices(self.inducer_card))

    def plan(self) -> list[Step]:
        """The steps of the run. Raises `InvalidPlan`."""
        run = self.config.run
        return plan_run(
            self.split,
            trains=self.method.trains,
            rollouts=run.rollouts,
            sleep_every=run.sleep_every,
            eval_every=run.eval_every,
            test_episodes=run.test_episodes,
        )

    def service_options(self) -> ServiceOptions:
        """How to reach or start the engine."""
        serving = self.config.serving
        return ServiceOptions(
            url=serving.url,
            api_key_env=serving.api_key_env,
            api_key_file=serving.api_key_file,
            port=serving.port,
            start_timeout_s=serving.start_timeout_s,
            request_timeout_s=serving.request_timeout_s,
            hang_timeout_s=serving.hang_timeout_s,
            admission=serving.admission,
        )

    def episode_limits(self) -> EpisodeLimits:
        """Budgets of one episode."""
        run = self.config.run
        return EpisodeLimits(run.wall_clock_s, self.config.sandbox.call_wall_s, run.reply_chars)

    def sandbox(self) -> Sandbox:
        """How skills and inducer code are confined."""
        return Sandbox(self.config.sandbox.kind, self.config.sandbox.memory_mb)

    def initial_policy(self) -> Policy:
        """The first policy: the method's own, or a copy of another run's. Raises `RunDirectoryError`."""
        start_from = self.config.run.start_from
        return self.method.initial() if start_from is None else stored_policy(start_from)

    def _prices(self, card: ModelCard) -> Prices:
        return in_place_of(card.prices, self.config.prices)


def set_up(config: Config) -> Setup:
    """Make what a configuration names.

    Raises:
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidCard: something in it does not exist.
        SandboxUnavailable: skills cannot be isolated on this machine.
    """
    model = config.model
    card = adapted(load_card(model.card), replicas=model.replicas, load_format=model.load_format)
    setup = Setup(
        config=config,
        env=envs.make(config.env.name, **config.env.options),
        split=envs.splits(config.env.name, **config.env.options),
        method=methods.make(config.method.name, **config.method.options),
        card=card,
        inducer_card=_inducer_card(card, model),
    )
    require(setup.sandbox())
    return setup


def _inducer_card(card: ModelCard, model: ModelConfig) -> ModelCard:
    """The card of every role but the actor. Raises `InvalidCard`."""
    other = card if model.inducer is None else load_card(model.inducer)
    if other.name == card.name:
        return card  # one server is enough
    return other if other.hosted else adapted(other, load_format=model.load_format)


def split_name(name: str) -> tuple[Path, int | None]:
    """Take `RUN` or `RUN:VERSION` apart. Raises `RunDirectoryError`."""
    path, colon, version = name.rpartition(":")
    if not colon or Path(name).exists():
        return Path(name), None
    if not version.removeprefix("v").isdecimal():
        raise RunDirectoryError(f"{name!r} names no policy; write RUN or RUN:VERSION, such as runs/demo:2")
    return Path(path), int(version.removeprefix("v"))


def find_policy(name: str) -> tuple[RunDirectory, int]:
    """The run that `RUN[:VERSION]` names, and the version (by default the newest).

    Raises:
        RunDirectoryError: there is no such run, or it has no such policy.
    """
    path, version = split_name(name)
    directory = RunDirectory.open_for_reading(path)
    there = directory.policies.versions()
    if not there:
        raise RunDirectoryError(f"{path} has no policy yet")
    version = there[-1] if version is None else version
    if version not in there:
        raise RunDirectoryError(
            f"{path} has no policy v{version:04d}; it has v{there[0]:04d} to v{there[-1]:04d}"
        )
    return directory, version


def stored_policy(name: str) -> Policy:
    """The policy `RUN[:VERSION]` (by default the newest) for another run. Raises `RunDirectoryError`."""
    directory, version = find_policy(name)
    policy = directory.policies.load(version)
    # For this run they were there from the start; tools are ordered by the sleep of their last edit.
    skills = tuple(msgspec.structs.replace(skill, created=0, edited=0) for skill in policy.skills)
    return msgspec.structs.replace(policy, version=0, skills=skills)


def evaluation_config(source: str, overrides: Sequence[str]) -> Config:
    """The configuration that evaluates the policy `RUN[:VERSION]`: the run's own, without training.

    Args:
        overrides: what differs from it (`env=...`, `model=...`, `run.test_episodes=10`).

    Raises:
        RunDirectoryError, InvalidConfig: the run, its policy or an override does not exist.
    """
    directory, version = find_policy(source)
    config = compose(overrides, base=directory.config())
    what = re.sub(r"[^\w.-]+", "_", f"{config.env.name}-{config.model.card}")
    beside = f"{directory.path}-eval-v{version:04d}-{what}"
    chosen = any(override.startswith("run.dir=") for override in overrides)
    return dataclasses.replace(
        config,
        run=dataclasses.replace(
            config.run,
            rollouts=0,
            start_from=f"{directory.path}:{version}",
            dir=config.run.dir if chosen else beside,
        ),
    )


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
    with begun(setup, console) as begun_run:
        if begun_run is None:
            return []
        progress = begun_run.progress
        async with deployed(setup, begun_run.directory.server_log, progress) as engines:
            try:
                await begun_run.play(engines, drain)
            finally:
                balances = await engines.balances()
                begun_run.keep(balances)
            return balances


@dataclass(frozen=True)
class Engines:
    """The engine of the actor and that of every other role; often the same."""

    actor: Deployment
    others: Deployment

    async def balances(self) -> list[Balance]:
        """The accounts of each engine that shows counters."""
        found = [await engine.balance() for engine in dict.fromkeys((self.actor, self.others))]
        return [balance for balance in found if balance is not None]


@asynccontextmanager
async def deployed(setup: Setup, log: Path, progress: Progress) -> AsyncIterator[Engines]:
    """Bring the models of a configuration into service.

    Raises:
        InvalidCard, ServerFailed: see `serving.errors`.
    """
    options = setup.service_options()
    say, waiting = progress.say, progress.waiting
    async with deploy(setup.card, options, log=log, say=say, waiting=waiting) as actor:
        if setup.inducer_card is setup.card:
            yield Engines(actor, actor)
            return
        # A server that is named by address or port is the actor's.
        own = msgspec.structs.replace(options, url=None, port=None, api_key_env=None, api_key_file=None)
        log = log.with_name("inducer_server.log")
        async with deploy(setup.inducer_card, own, log=log, say=say, waiting=waiting) as inducer:
            yield Engines(actor, inducer)


@dataclass(frozen=True)
class BegunRun:
    """A run whose directory is ours, and of which something is left to do."""

    setup: Setup
    directory: RunDirectory
    steps: list[Step]
    ledger: list[LedgerRow]
    progress: Progress

    def keep(self, balances: list[Balance]) -> None:
        """Store the accounts, unless the disk refuses: what stopped the run is told before that."""
        with suppress(StorageError):
            for balance in balances:
                self.directory.append_accounts(balance)

    async def play(self, engines: Engines, drain: Drain) -> None:
        """Do what is left. Raises as `run`."""
        setup, config, directory = self.setup, self.setup.config, self.directory
        spending = Spending(config.serving.spending_cap_usd, spent_usd(self.ledger, setup))
        async with AsyncExitStack() as stack:
            actor_model = await stack.enter_async_context(
                engines.actor.client(directory.append_request, prices=setup.prices.actor, spending=spending)
            )
            inducer = actor_model
            if engines.others is not engines.actor:
                inducer = await stack.enter_async_context(
                    engines.others.client(
                        directory.append_request, prices=setup.prices.others, spending=spending
                    )
                )
            for model in dict.fromkeys((actor_model, inducer)):
                await check_engine(model, {})
            pool = await stack.enter_async_context(
                HostPool(
                    self._hosts(), config.env.name, config.env.options, directory.host_log, setup.sandbox()
                )
            )
            self.progress.begin(actor_model.meter, lambda: engines.actor.held_back)
            executor = Executor(
                directory=directory,
                env=setup.env,
                method=setup.method,
                inducer=inducer,
                actor=Actor(setup.env, actor_model, setup.episode_limits()),
                pool=pool,
                progress=self.progress,
                drain=drain,
                sandbox=setup.sandbox(),
                attempts=attempts(self.ledger),
            )
            await executor.execute(self.steps)

    def _hosts(self) -> int:
        """As many as episodes can be in flight: an evaluation is played beside the wake after it."""
        wake = max((len(step.tasks) for step in self.steps if isinstance(step, Wake)), default=0)
        test = max((len(step.tasks) for step in self.steps if isinstance(step, Evaluate)), default=0)
        return min(self.setup.config.run.in_flight, max(wake + test, 1))


@contextmanager
def begun(setup: Setup, console: Console, name: str = "") -> Iterator[BegunRun | None]:
    """Own a run's directory for as long as the context lasts; `None` when the run is finished.

    Args:
        name: leads each line of its progress, where several runs share a terminal.

    Raises:
        LockHeld, RunDirectoryError: the directory cannot be used for this run.
    """
    steps = setup.plan()
    path = Path(setup.config.run.dir)
    with RunDirectory.open_for_writing(path) as directory:
        _claim(directory, setup)
        finished = set(directory.finished())
        if all(step_key(step) in finished for step in steps):
            console.print(f"{path} is finished: nothing is left to play", soft_wrap=True)
            yield None
            return
        episodes = sum(len(step.tasks) for step in steps if isinstance(step, Wake | Evaluate))
        ledger = directory.requests(LedgerRow)  # a damaged one is told before a server is started
        with Progress(console, episodes, len(directory.episodes()), name) as progress:
            yield BegunRun(setup, directory, steps, ledger, progress)


def spent_usd(rows: list[LedgerRow], setup: Setup) -> float:
    """What the ledger's requests have cost, in USD."""
    usages: dict[str, Usage] = {}
    for row in rows:
        usages[row.model] = usages.get(row.model, Usage()) + (row.usage or row.at_most or Usage())
    prices = setup.prices
    return sum(
        (prices.actor if model == setup.card.name else prices.others).cost(usage)
        for model, usage in usages.items()
    )


def _claim(directory: RunDirectory, setup: Setup) -> None:
    """Write the configuration of a new run; compare that of one that goes on."""
    text = directory.config()
    if text is None:
        initial = setup.initial_policy()  # before anything is written, as it may not exist
        versions_text = yaml.safe_dump({VERSIONS: versions(setup.card, setup.inducer_card)}, sort_keys=False)
        directory.write_config(to_yaml(setup.config) + versions_text)
        directory.write_policy(initial)
        return
    if changed := differences(from_yaml(text), setup.config):
        raise RunDirectoryError(
            f"{directory.path} is a run of another configuration: {'; '.join(changed)};"
            " take the change back, or name another directory with run.dir"
        )
    if not directory.policies.versions():
        directory.write_policy(setup.initial_policy())
