"""Compare settings without the places of files, since a run may move to another machine."""

from __future__ import annotations

from msgspec.structs import replace

from speedrunner.config.schema import Config
from speedrunner.runs.setup import Setup
from speedrunner.store.run_data import RunData


def settings_here(run: RunData, setup: Setup) -> Config:
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
        model = replace(model, name=after.model.name)
    if _is_file(model.inducer_name) and _is_file(after.model.inducer_name):
        model = replace(model, inducer_name=after.model.inducer_name)
    local = setup.env.local_options
    options = {key: value for key, value in before.env.options.items() if key not in local}
    options |= {key: value for key, value in after.env.options.items() if key in local}
    start = before.run.start_from
    if start is not None and after.run.start_from not in (None, start) and run.policies.versions():
        start = after.run.start_from if setup.initial_policy() == run.policies.load(0) else start
    return replace(
        before,
        model=model,
        env=replace(before.env, options=options),
        run=replace(before.run, start_from=start),
    )


def _is_file(model_config: str | None) -> bool:
    return model_config is not None and model_config.endswith((".yaml", ".yml"))
