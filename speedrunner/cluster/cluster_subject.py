"""The subject of a cluster command: the models, environments and folders of one or several runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from serving.model_config import ModelConfig
from speedrunner.config.compose import compose
from speedrunner.config.grid import grid_of
from speedrunner.config.named import actor_model_config, inducer_model_config
from speedrunner.config.schema import ClassConfig, Config, InvalidConfig, SandboxConfig, ServingConfig
from speedrunner.methods import method_registry as methods

T = TypeVar("T")


@dataclass(frozen=True)
class Subject:
    """Runs and everything that they name, each thing once.

    Attributes:
        given: the command's arguments.
        root: the folder of a list's runs, if one was given.
        model_configs: the models of all roles, as the runs adapt them.
        together: models with servers that one run starts, for each different run.
        attached: models with a running server, and how to reach it.
        gpus: most GPUs that the servers of one run take.
    """

    given: tuple[str, ...]
    root: Path | None
    configs: list[Config]
    model_configs: list[ModelConfig]
    together: list[list[ModelConfig]]
    attached: list[tuple[ModelConfig, ServingConfig]]
    gpus: int

    @property
    def environments(self) -> list[ClassConfig]:
        """The environments of the runs."""
        return _once(each.env for each in self.configs)

    @property
    def sandboxes(self) -> list[SandboxConfig]:
        """The sandboxes for code that models write."""
        return _once(each.sandbox for each in self.configs)

    @property
    def folders(self) -> list[Path]:
        """The folders in which the runs' folders are created."""
        return _once(Path(each.run.dir).absolute().parent for each in self.configs)

    @property
    def words(self) -> str:
        """The arguments that name the same subject to another command."""
        return shlex.join(self.given)

    @property
    def doctor(self) -> str:
        """The command that checks a Slurm node for the same subject."""
        gpus = [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        root = [f"--dir={self.root}"] if self.root else []
        return shlex.join(["srun", *gpus, "speedrunner", "doctor", *self.given, *root])


def subject_of(given: Sequence[str], folder: Path | None = None) -> Subject:
    """Return the subject of a run's settings, or of a list of runs (with `experiment=NAME` or a file first).

    Args:
        given: settings; those of the cluster, which `sweep` also takes, are ignored.
        folder: the folder of a list's runs.

    Raises:
        InvalidConfig, InvalidModelConfig: something in it does not exist, or a folder is given without a
            list.
    """
    given = [each for each in given if not each.startswith(("cluster=", "cluster."))]
    lists = any(each.startswith("experiment=") for each in given) or (given and "=" not in given[0])
    if folder and not lists:
        raise InvalidConfig(
            "--dir works only with a list of runs (experiment=NAME or a file first); for one run, set"
            " run.dir=PATH"
        )
    configs = [run.config for run in grid_of(given, folder).runs()] if lists else [compose(given)]
    model_configs: list[ModelConfig] = []
    attached: list[tuple[ModelConfig, ServingConfig]] = []
    together: list[list[ModelConfig]] = []
    gpus = 0
    for config in configs:
        learns = methods.make(config.method.name, **config.method.options).trains
        actor = actor_model_config(config, learns=learns)
        inducer = inducer_model_config(config, actor, learns=learns)
        own = [] if actor.hosted or config.serving.url else [actor]
        if config.serving.url and not actor.hosted:
            attached.append((actor, config.serving))
        if inducer is not actor and not inducer.hosted:
            own.append(inducer)
        model_configs += [actor, inducer]
        together.append(own)
        gpus = max(gpus, sum(model_config.all_gpus for model_config in own))
    servers = _once(together), _once(attached)
    return Subject(tuple(given), folder, configs, _once(model_configs), *servers, gpus)


def _once(things: Iterable[T]) -> list[T]:
    """Return the things without duplicates; many of them have no hash."""
    found: list[T] = []
    for each in things:
        if each not in found:
            found.append(each)
    return found
