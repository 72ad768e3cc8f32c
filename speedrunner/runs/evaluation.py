"""Configure the evaluation of a stored policy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.runs.stored_policy import find_policy
from speedrunner.runs.stored_setup import compose_stored


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
    if not any(override.startswith("run.dir=") for override in overrides):
        what = re.sub(r"[^\w.-]+", "_", f"{config.env.name}-{config.model.name}")
        if config.library.visible_last is not None:
            what += f"-last{config.library.visible_last}"
        folder = Path(f"{directory.path}-eval-v{version:04d}-{what}")
        if (folder / "config.yaml").exists():
            # It may have come with the run, from someone else.
            raise InvalidConfig(
                f"{folder} already contains a run. To continue it, if it is your evaluation, set"
                f" run.dir={shlex.quote(str(folder))}"
            )
        config = config.with_run(dir=str(folder))
    return config
