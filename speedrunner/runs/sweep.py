"""Several runs on one server: played side by side, each with its own directory, ledger and episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console

from envs import EnvironmentFault
from serving.balance import Balance
from serving.errors import InvalidCard, ServingError
from speedrunner.config.compose import compose
from speedrunner.config.schema import InvalidConfig
from speedrunner.hosts.host import HostError
from speedrunner.hosts.host_pool import HostPool
from speedrunner.methods.base import MethodBroke, UnfitEnvironment
from speedrunner.methods.registry import InvalidMethodOption, UnknownMethod
from speedrunner.runs.drain import Drain, Interrupted
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.plan import InvalidPlan
from speedrunner.runs.progress import Progress
from speedrunner.runs.run import BegunRun, begun, deployed
from speedrunner.runs.setup import Setup, set_up
from speedrunner.sandbox.settings import SandboxError
from speedrunner.store.files import StorageError, read_given

OF_ONE_RUN = (HostError, RunStopped, SandboxError, ServingError, StorageError)
"""What may stop one run; the others go on."""

OF_ITS_SETTINGS = (
    *(EnvironmentFault, InvalidCard, InvalidConfig, InvalidMethodOption, InvalidPlan, MethodBroke),
    UnfitEnvironment,
    UnknownMethod,
)
"""What may be wrong with a run before anything starts."""

SHARED = ("model", "serving")
"""Sections of the configuration that all runs of a sweep have in common: they share the server."""


@dataclass(frozen=True)
class SweepResult:
    """What became of a sweep.

    Attributes:
        failures: by run directory, why it stopped; all other runs are finished.
        balances: the accounts of the shared engines; none when nothing was left to do.
    """

    failures: dict[str, str]
    balances: list[Balance]


def read_runs(file: Path, overrides: Sequence[str]) -> list[Setup]:
    """Read a list of runs: YAML, one entry per run, each a text such as `method=react run.seed=1` or a list.

    Args:
        overrides: for all of them; what an entry says itself takes precedence.

    Raises:
        InvalidConfig: the file is no such list, two runs have one directory, or differ in what they share.
        EnvironmentFault, UnknownMethod, InvalidMethodOption, InvalidCard: see `set_up`.
    """
    try:
        content = yaml.safe_load(read_given(file))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InvalidConfig(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(content, list) or not content:
        raise InvalidConfig(f"{file} must be a list of runs, such as `- method=react run.seed=1`")
    setups: dict[str, Setup] = {}
    for number, entry in enumerate(content, start=1):
        own = entry.split() if isinstance(entry, str) else entry
        if not isinstance(own, list) or not all(isinstance(each, str) for each in own):
            raise InvalidConfig(f"{file}, run {number}: {entry!r} is no text and no list of KEY=VALUE")
        named = {each.partition("=")[0] for each in own}
        with _named(f"{file}, run {number} ({' '.join(own)})"):
            setup = set_up(compose([*(o for o in overrides if o.partition("=")[0] not in named), *own]))
            setup.plan()
        path = setup.config.run.dir
        if path in setups:
            raise InvalidConfig(
                f"{file}, run {number}: another run has the directory {path}; give each line its run.dir"
            )
        setups[path] = setup
        first = next(iter(setups.values()))
        for section in SHARED:
            if getattr(setup.config, section) != getattr(first.config, section):
                raise InvalidConfig(
                    f"{file}, run {number}: runs share one server: give all the same {section}"
                )
    return list(setups.values())


async def sweep(setups: Sequence[Setup], console: Console, drain: Drain) -> SweepResult:
    """Play all runs that are not finished; the server ends with the last of them.

    Runs share the engine request by request, first come, first served: each has at most its own
    `run.in_flight` episodes there. A run that stops leaves the others alone.

    Raises:
        LockHeld, RunDirectoryError: a directory cannot be used; nothing was started.
        Interrupted: a drain was asked for.
        ServingError: the server did not start.
    """
    failures: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        unfinished: list[BegunRun] = []
        for setup in setups:
            name = Path(setup.config.run.dir).name
            if (one := stack.enter_context(begun(setup, console, name))) is not None:
                unfinished.append(one)
        pools: list[tuple[BegunRun, HostPool]] = []
        for one in unfinished:
            with _alone(one, failures):
                pools.append((one, await stack.enter_async_context(one.hosts())))
        if not pools:
            return SweepResult(failures, [])
        progress = stack.enter_context(Progress(console, 1, 0, "sweep"))
        first = unfinished[0]
        logs = first.directory.server_log, first.directory.inducer_server_log
        engines = await stack.enter_async_context(deployed(first.setup, *logs, progress))

        async def play(one: BegunRun, pool: HostPool) -> None:
            with _alone(one, failures):
                await one.play(engines, pool, drain)

        try:
            async with asyncio.TaskGroup() as group:
                for one, pool in pools:
                    group.create_task(play(one, pool), name=str(one.directory.path))
        finally:
            balances = await engines.balances()
            for one in unfinished:
                one.keep(balances)
        drain.check()
    return SweepResult(failures, balances)


@contextmanager
def _named(entry: str) -> Iterator[None]:
    """Say in an error which run it is about."""
    try:
        yield
    except OF_ITS_SETTINGS as error:
        raise type(error)(f"{entry}: {error}") from None


@contextmanager
def _alone(one: BegunRun, failures: dict[str, str]) -> Iterator[None]:
    """Note what stops this run; the others go on. A drain stops all of them."""
    try:
        yield
    except Interrupted:
        pass
    except OF_ONE_RUN as error:
        failures[str(one.directory.path)] = str(error)
        one.progress.say(f"stopped: {str(error).splitlines()[0]}")
