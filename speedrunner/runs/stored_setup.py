"""Set up a run from its stored configuration, which may come from someone else.

A run directory never decides what this process imports, executes or connects to, or how it isolates skills. A
name is used only if it is part of SpeedRunner, or if the user gives the same name on the command line.
Everything that belongs to a machine (programs, servers, isolation, logging) comes from the reader. Recorded
model configs define how models were used, never where they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

import envs
from envs import TextEnv
from envs.env_registry import ENVIRONMENTS
from serving.model_config import ServerOptions
from serving.model_configs import list_model_configs
from speedrunner.config.compose import compose
from speedrunner.config.names import describe_start, identify_condition
from speedrunner.config.schema import Config, InvalidConfig, SandboxConfig
from speedrunner.methods.method_registry import METHODS
from speedrunner.runs.setup import Setup, find_policy, set_up
from speedrunner.store.run_data import RunData

CLASSES, MODEL = ("env.name", "method.name"), "model.name"
"""Keys that name bundled or foreign code, and the key that names a model config."""


def set_up_stored(run: RunData, trust: Collection[str], *, plays_here: bool = True) -> Setup:
    """Create what a run's configuration names, with the model that its newest process recorded.

    Args:
        trust: names that the user gives as well: `module:Class`, paths of model configs.
        plays_here: as for `set_up`.

    Raises:
        StorageError: the run cannot be read.
        InvalidConfig: its configuration cannot be read, or contains a name that is neither bundled nor
            trusted.
        EnvironmentFault, InvalidMethod, InvalidModelConfig, UnfitEnvironment, SandboxError: as
        `set_up`.
    """
    config = usable(run)
    model_config = None
    if run.processes:  # without the fields for the model's location, creation and serving
        nowhere = dict.fromkeys(("path", "recipe", "id", "revision", "base_url", "api_key_env"))
        model_config = replace(run.processes[-1].model, server=ServerOptions(), **nowhere)
    _require(config, run, trust, CLASSES if model_config else (*CLASSES, MODEL))
    return set_up(config, model_config, plays_here=plays_here)


def compose_stored(run: RunData, overrides: Sequence[str], trust: Collection[str]) -> Config:
    """Compose a run's configuration with overrides, which come from the user and may name anything.

    Raises the errors of `compose`; `InvalidConfig` also if the run has a name that is neither bundled nor
    trusted.
    """
    config = compose(overrides, base=usable(run))
    given = [override.partition("=")[2] for override in overrides]
    _require(config, run, [*trust, *given], (*CLASSES, MODEL))
    return config


def evaluation_config(source: str, overrides: Sequence[str], trust: Collection[str] = ()) -> Config:
    """Return the configuration that evaluates the policy `RUN[:VERSION]`: the run's own, without training.

    Args:
        overrides: changes to it (`env=...`, `model=...`, `run.test_episodes=10`).
        trust: names of foreign classes and model configs that the run may use.

    Raises:
        RunDirectoryError, InvalidConfig: the run, its policy or an override does not exist, or the default
            directory is already a run.
    """
    directory, version = find_policy(source)
    config = compose_stored(directory, [*overrides, "run.rollouts=0"], trust)
    config = config.with_run(start_from=f"{directory.path}:{version}")
    config = replace(config, start=describe_start(config, directory.settings))
    if not any(override.startswith("run.dir=") for override in overrides):
        what = re.sub(r"[^\w.-]+", "_", f"{config.env.name}-{config.model.name}")
        what += identify_condition(config).treatment.shown
        folder = Path(f"{directory.path}-eval-v{version:04d}-{what}")
        if (folder / "config.yaml").exists():
            # It may have come with the run, from someone else.
            raise InvalidConfig(
                f"{folder} already contains a run. To continue it, if it is your evaluation, set"
                f" run.dir={shlex.quote(str(folder))}"
            )
        config = config.with_run(dir=str(folder))
    return config


def stored_env(run: RunData, trust: Collection[str]) -> TextEnv:
    """Create a run's environment. Raises the errors of `set_up_stored`."""
    config = usable(run)
    _require(config, run, trust, ("env.name",))
    return envs.make(config.env.name, **config.env.options)


def usable(run: RunData) -> Config:
    """Return a run's configuration with the reader's values for everything that belongs to a machine.

    Names in it stay as stored. Raises `StorageError`, `InvalidConfig`.
    """
    config, usual = run.settings, SandboxConfig()
    return replace(
        config,
        serving=replace(config.serving, url=None, api_key_env=None),
        # A lower limit isolates as well, and a replay needs it.
        sandbox=replace(usual, memory_mb=min(usual.memory_mb, config.sandbox.memory_mb)),
        logging="none",
        verbosity="info",
    )


def _require(config: Config, run: RunData, named: Collection[str], keys: Collection[str]) -> None:
    """Raise `InvalidConfig` if one of these keys has a name that is neither bundled nor given by the user."""
    bundled = {"env.name": ENVIRONMENTS, "method.name": METHODS, MODEL: list_model_configs()}
    for key in keys:
        name = getattr(config, key.partition(".")[0]).name
        if name not in bundled[key] and name not in named:
            what = "a model configuration" if key == MODEL else "code"
            raise InvalidConfig(
                f"{run.files.config}: {key} is {name!r}, {what} that is not part of SpeedRunner. If you trust"
                f" it, add --trust {shlex.quote(name)}"
            )
