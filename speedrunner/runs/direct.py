"""Play runs with a given `Model`: for programs as agents, checks and benches."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.meter import Meter
from serving.model import Model
from serving.model_config import ModelConfig
from speedrunner.agents.actor import Actor
from speedrunner.agents.episode import Watch, ignore_turn
from speedrunner.config.schema import to_yaml
from speedrunner.runs.executor import Executor
from speedrunner.runs.plan import Due, unfinished_steps
from speedrunner.runs.progress import Progress
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Shutdown
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load
from speedrunner.store.rundir import RunDirectory
from speedrunner.workers.worker_pool import WorkerPool


class LocalModel(Model):
    """A model that computes its answers in this process; subclasses implement `converse`. It sends no
    requests."""

    def __init__(self, model_config: ModelConfig) -> None:
        nowhere = Endpoint("http://localhost")
        super().__init__(
            model_config,
            Engine(nowhere, model_config.name, Meter(lambda row: None, model_config.prices)),
            None,
        )


async def play_with(model: Model, setup: Setup, policy: Policy | None = None) -> RunData:
    """Play a whole new run in `run.dir` without output. `model` plays all roles.

    Args:
        policy: the first policy; `None`: the method's own.

    Raises `RunStopped`, `WorkerError`, `StorageError`, and the model's errors.
    """
    with RunDirectory.open_for_writing(Path(setup.config.run.dir)) as directory:
        directory.write_config(to_yaml(setup.config))
        directory.write_policy(setup.initial_policy() if policy is None else policy)
        async with setup.workers(setup.config.run.in_flight, directory.files.worker_log) as pool:
            await play_steps(setup, directory, model, pool, unfinished_steps(setup.plan(), directory.read()))
    return load(setup.config.run.dir)


async def play_steps(
    setup: Setup,
    directory: RunDirectory,
    model: Model,
    pool: WorkerPool,
    steps: Iterable[Due],
    watch: Watch = ignore_turn,
) -> None:
    """Play these steps of a run without output. Raises the errors of `play_with`.

    Args:
        watch: called with each episode's conversation, and with each turn.
    """
    executor = Executor(
        directory=directory,
        method=setup.method,
        actor=Actor(setup.env, model, setup.config),
        pool=pool,
        progress=Progress(Console(file=io.StringIO()), 0, 0),
        shutdown=Shutdown(lambda line: None),
        attempts={},
        watch=watch,
    )
    await executor.execute(steps)
