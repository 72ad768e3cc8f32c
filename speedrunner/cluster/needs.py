"""The needs of runs (models, servers, environments and folders), and how a machine gets them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import envs
from envs import EnvironmentFault
from envs.env_registry import REGISTRY
from serving import weights
from serving.errors import ServingError
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from speedrunner.config.compose import compose
from speedrunner.config.grid import grid_of
from speedrunner.config.schema import ClassConfig, InvalidConfig
from speedrunner.plain.console import Status
from speedrunner.plain.findings import Finding, failure, ok
from speedrunner.runs.setup import Setup, set_up

T = TypeVar("T")


@dataclass(frozen=True)
class Needs:
    """The needs of runs, each once.

    Attributes:
        given: the command's arguments.
        root: the folder of a list's runs, if one was given.
    """

    given: tuple[str, ...]
    root: Path | None
    setups: list[Setup]

    @property
    def models(self) -> list[ModelConfig]:
        """The models as the runs adapt them, each folder and address once, even if model configs share it."""
        models = dict[str, ModelConfig]()
        for model_config in (setup.model_config for setup in self.setups):
            place = model_config.base_url or weights.model_path(model_config)
            models.setdefault(place, model_config)
        return list(models.values())

    @property
    def gpus(self) -> int:
        """Most GPUs that the server of one run takes."""
        return max(setup.needed_gpus for setup in self.setups)

    @property
    def environments(self) -> list[ClassConfig]:
        """The environments of the runs."""
        return list_once(setup.config.env for setup in self.setups)

    @property
    def words(self) -> str:
        """The arguments that name the same runs to another command."""
        return shlex.join(self.given)

    @property
    def doctor(self) -> str:
        """The command that checks a Slurm node for the same runs."""
        gpus = [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        root = [f"--dir={self.root}"] if self.root else []
        return shlex.join(["srun", *gpus, "speedrunner", "doctor", *self.given, *root])


def find_needs(given: Sequence[str], folder: Path | None = None) -> Needs:
    """Return the needs of a run's settings, or of a list of runs (with `experiment=NAME` or a file first).

    Args:
        given: settings; those of the cluster, which `sweep` also takes, are ignored.
        folder: the folder of a list's runs.

    Raises:
        InvalidConfig: a folder is given without a list.
        Exception: the errors of `grid_of`, `compose` and `set_up`.
    """
    given = [text for text in given if not text.startswith(("cluster=", "cluster."))]
    is_list = any(text.startswith("experiment=") for text in given) or (given and "=" not in given[0])
    if folder and not is_list:
        raise InvalidConfig(
            "--dir works only with a list of runs (experiment=NAME or a file first); for one run, set"
            " run.dir=PATH"
        )
    configs = [run.config for run in grid_of(given, folder).runs()] if is_list else [compose(given)]
    return Needs(tuple(given), folder, [set_up(config, plays_here=False) for config in configs])


def list_once(things: Iterable[T]) -> list[T]:
    """Return the things without duplicates; many of them have no hash."""
    unique: list[T] = []
    for thing in things:
        if thing not in unique:
            unique.append(thing)
    return unique


def prepare_needs(needs: Needs, status: Status) -> Iterator[Finding]:
    """Download or create what the runs need. If one thing fails, the others continue.

    Args:
        status: shows the current activity.

    Returns:
        A finding for each thing: what is there now, with size and place; or why it is not.
    """
    steps = [(f"model {each.name}", partial(_model, each, status)) for each in needs.models]
    steps += [(f"environment {env.name}", partial(open_task, env)) for env in needs.environments]
    for name, bring in steps:
        status(f"preparing {name}")
        try:
            yield ok(name, bring())
        except (ServingError, EnvironmentFault) as error:
            yield failure(name, str(error))
        except OSError as error:
            yield failure(name, f"{error.strerror or error}: {error.filename}")


def open_task(env: ClassConfig) -> str:
    """Open a task: simulators and Java start, and their compiled code enters its cache.

    Returns:
        A line on what was done.

    Raises `EnvironmentFault`: it does not play here, or there is none with this name and options.
    """
    started = time.monotonic()
    one = envs.make(env.name, **env.options)
    try:
        REGISTRY.find(env.name).preload()
        one.warm_up()
        task = envs.splits(env.name, **env.options).train[0]
        one.reset(task)
        return f"{task.name}, {task.index} opens ({time.monotonic() - started:.1f} s)"
    except EnvironmentFault:
        raise
    except Exception as error:  # a simulator may raise anything
        raise EnvironmentFault(f"{env.name} does not start: {type(error).__name__}: {error}") from error
    finally:
        one.close()


def _model(model_config: ModelConfig, status: Status) -> str:
    """Prepare weights and tokenizer. Raises `ServingError`."""
    if model_config.hosted:
        return (
            f"nothing to download: it is hosted at {model_config.base_url}, which nodes must be able to reach"
        )
    if model_config.id:
        folder = weights.fetch(model_config.id, model_config.revision, status)
    else:
        folder = Path(weights.prepare(model_config, status))
    if model_config.api == "completions":
        ChatTokenizer(folder)
    return f"{weights.size_bytes(folder) / 1e9:.3g} GB in {folder}"
