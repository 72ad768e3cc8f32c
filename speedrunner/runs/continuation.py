"""Check that a process continues a stored run: the same configuration or more rollouts, the same contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from serving.model_config import ModelConfig
from speedrunner.config.schema import Config, differences
from speedrunner.runs.setup import Setup
from speedrunner.store.records import Process
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import RunDirectoryError


def check_configuration(run: RunData, setup: Setup) -> str | None:
    """Return the change, such as `run.rollouts: 20 -> 40`, if a configuration extends a stored run; `None` if
    it is the same.

    Raises:
        RunDirectoryError: the stored run has another configuration, or the longer run would not contain it;
            `run.start_from` names no policy.
        InvalidPlan: the environment has too few training tasks.
        StorageError: the run cannot be read.
    """
    here, after = _settings_here(run, setup), setup.config
    before, rollouts = here.run.rollouts, after.run.rollouts
    if not (changed := differences(here, after)):
        return None
    if rollouts < before or differences(here.with_run(rollouts=rollouts), after):
        raise RunDirectoryError(
            f"{run.path} has another configuration: {'; '.join(changed)}; undo the change, or start"
            " another run with run.dir=NEW"
        )
    if reason := _find_obstacle(run, setup):
        raise RunDirectoryError(
            f"{run.path} cannot be extended to {rollouts} rollouts: {reason}; continue in another"
            f" run: run.start_from={run.path} run.dir=NEW"
        )
    return f"run.rollouts: {before} -> {rollouts}"


def _settings_here(run: RunData, setup: Setup) -> Config:
    """Return a run's configuration with the places that `setup` gives for the same things.

    - Files of model configs: `identity` compares what they contain.
    - An environment's local options, such as the path of a program.
    - The run in `run.start_from`, if its policy is the first one of this run.

    Raises:
        RunDirectoryError: `run.start_from` has changed, and the policy that it names does not exist.
        StorageError: the run cannot be read.
    """
    before, after = run.settings, setup.config
    model = before.model
    if _is_file(model.name) and _is_file(after.model.name):
        model = msgspec.structs.replace(model, name=after.model.name)
    if _is_file(model.inducer_name) and _is_file(after.model.inducer_name):
        model = msgspec.structs.replace(model, inducer_name=after.model.inducer_name)
    local = setup.env.local_options
    options = {key: value for key, value in before.env.options.items() if key not in local}
    options |= {key: value for key, value in after.env.options.items() if key in local}
    start = before.run.start_from
    if start is not None and after.run.start_from not in (None, start) and run.policies.versions():
        start = after.run.start_from if setup.initial_policy() == run.policies.load(0) else start
    env = msgspec.structs.replace(before.env, options=options)
    return msgspec.structs.replace(before, model=model, env=env).with_run(start_from=start)


def _is_file(model_config: str | None) -> bool:
    return model_config is not None and model_config.endswith((".yaml", ".yml"))


def _find_obstacle(run: RunData, setup: Setup) -> str | None:
    """Return why a longer run would not contain the shorter one; `None` if it would."""
    old = run.settings.run
    if setup.carries_history and not old.rollouts:
        return "it evaluates a stored policy and has no copy of the training history"
    short = replace(setup, config=setup.config.with_run(rollouts=old.rollouts)).plan()
    if setup.plan()[: len(short)] == short:
        return None
    name = "eval_every" if old.rollouts % old.eval_every else "sleep_every"
    return f"run.rollouts={old.rollouts} is not a multiple of run.{name}={getattr(old, name)}"


def with_recorded_contexts(path: Path, processes: Sequence[Process], setup: Setup) -> Setup:
    """Return the setup with the contexts that a run has recorded, even if more would fit here.

    A run is one experiment: its episodes must not get longer after a move to a larger GPU.

    Args:
        path: the run's directory.
        processes: the processes that worked on the run so far.

    Raises `RunDirectoryError`: a model has less context here.
    """
    if not processes:
        return setup
    before = processes[-1]
    actor = _with_recorded_context(path, before.actor, setup.model_config)
    others = actor
    if setup.inducer_model_config is not setup.model_config:
        others = _with_recorded_context(path, before.inducer, setup.inducer_model_config)
    return replace(setup, model_config=actor, inducer_model_config=others)


def _with_recorded_context(path: Path, before: ModelConfig, model_config: ModelConfig) -> ModelConfig:
    if model_config.hosted or before.name != model_config.name or before.context == model_config.context:
        return model_config
    if before.context > model_config.context:
        raise RunDirectoryError(
            f"{path} has a context of {before.context:,} tokens, but {model_config.name} has"
            f" {model_config.context:,} here: resume it on larger GPUs or with a server that has"
            f" --max-model-len {before.context}, or start another run with run.dir=NEW"
        )
    return msgspec.structs.replace(model_config, context=before.context)
