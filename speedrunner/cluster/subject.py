"""What a command of the cluster is about: the models, environments and folders of one run or of several."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from serving.model_config import ModelConfig
from speedrunner.config.compose import compose
from speedrunner.config.named import actor_model_config, inducer_model_config
from speedrunner.config.schema import ClassConfig, Config, InvalidConfig, SandboxConfig, ServingConfig
from speedrunner.experiments.grid import grid_of

T = TypeVar("T")


@dataclass(frozen=True)
class Subject:
    """Runs, and what they name; each thing once.

    Attributes:
        given: what the command was given.
        root: where the runs' folders of a list are, if that was given as well.
        model_configs: the models of all roles, as the runs adapt them.
        served: those for which a server is started, with the port that it gets, if any.
        together: models whose servers one run starts, for each different run.
        attached: those whose server runs already, and how it is reached.
        gpus: most GPUs that the servers of one run take.
    """

    given: tuple[str, ...]
    root: Path | None
    configs: list[Config]
    model_configs: list[ModelConfig]
    served: list[tuple[ModelConfig, int | None]]
    together: list[list[ModelConfig]]
    attached: list[tuple[ModelConfig, ServingConfig]]
    gpus: int

    @property
    def environments(self) -> list[ClassConfig]:
        """Those that are played."""
        return _once(each.env for each in self.configs)

    @property
    def sandboxes(self) -> list[SandboxConfig]:
        """How what models write is confined."""
        return _once(each.sandbox for each in self.configs)

    @property
    def folders(self) -> list[Path]:
        """Where the folders of the runs are made."""
        return _once(Path(each.run.dir).absolute().parent for each in self.configs)

    @property
    def words(self) -> str:
        """What names the same subject to another command."""
        return shlex.join(self.given)

    @property
    def doctor(self) -> str:
        """The command that looks at a node of Slurm for the same."""
        gpus = [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        root = [f"--dir={self.root}"] if self.root else []
        return shlex.join(["srun", *gpus, "speedrunner", "doctor", *self.given, *root])


def subject_of(given: Sequence[str], folder: Path | None = None) -> Subject:
    """What settings of a run name, or with `experiment=NAME` or a file first, the runs of a list.

    Args:
        given: also what `submit` takes beside them: the cluster is not looked at.
        folder: where the runs' folders of a list are.

    Raises:
        InvalidConfig, InvalidModelConfig: something in it does not exist, or a folder is given without a
        list.
    """
    given = [each for each in given if not each.startswith(("cluster=", "cluster."))]
    lists = any(each.startswith("experiment=") for each in given) or (given and "=" not in given[0])
    if folder and not lists:
        raise InvalidConfig(
            "--dir is for a list of runs (experiment=NAME or a file first); one run's is run.dir=PATH"
        )
    configs = [run.config for run in grid_of(given, folder).runs()] if lists else [compose(given)]
    model_configs: list[ModelConfig] = []
    served: list[tuple[ModelConfig, int | None]] = []
    attached: list[tuple[ModelConfig, ServingConfig]] = []
    together: list[list[ModelConfig]] = []
    gpus = 0
    for config in configs:
        actor = actor_model_config(config)
        inducer = inducer_model_config(config, actor)
        own = [] if actor.hosted or config.serving.url else [(actor, config.serving.port)]
        if config.serving.url and not actor.hosted:
            attached.append((actor, config.serving))
        if inducer is not actor and not inducer.hosted:
            own.append((inducer, None))
        model_configs += [actor, inducer]
        served += own
        together.append([model_config for model_config, _ in own])
        gpus = max(gpus, sum(model_config.gpus_of_a_node for model_config, _ in own))
    servers = _once(served), _once(together), _once(attached)
    return Subject(tuple(given), folder, configs, _once(model_configs), *servers, gpus)


def _once(things: Iterable[T]) -> list[T]:
    """Without repetitions; many of them have no hash."""
    found: list[T] = []
    for each in things:
        if each not in found:
            found.append(each)
    return found
