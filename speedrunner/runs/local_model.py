"""Play runs with a model that computes its answers in this process: for programs as agents, and checks."""

from __future__ import annotations

from pathlib import Path

from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.meter import Meter
from serving.model import Model
from serving.model_config import ModelConfig
from speedrunner.agents.actor import Actor
from speedrunner.runs.executor import Executor
from speedrunner.runs.open_run import open_new_run
from speedrunner.runs.plan import unfinished_steps
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Policy
from speedrunner.store.run_data import RunData, load


class LocalModel(Model):
    """A model that sends no requests; subclasses implement `converse`."""

    def __init__(self, model_config: ModelConfig) -> None:
        nowhere = Endpoint("http://localhost")
        meter = Meter(lambda row: None, model_config.prices)
        super().__init__(model_config, Engine(nowhere, model_config.name, meter), None)


async def play_with(model: Model, setup: Setup, policy: Policy | None = None) -> RunData:
    """Play a whole new run in `run.dir` without output. `model` plays all roles.

    Args:
        policy: the first policy; `None`: the method's own.

    Raises `RunStopped`, `WorkerError`, `StorageError`, and the model's errors.
    """
    run = setup.config.run
    with open_new_run(setup, Path(run.dir), policy) as directory:
        async with setup.workers(run.in_flight, directory.files.worker_log) as pool:
            executor = Executor(directory, setup.method, Actor(setup.env, model, setup.config), pool)
            await executor.execute(unfinished_steps(setup.plan(), directory.read()))
    return load(run.dir)
