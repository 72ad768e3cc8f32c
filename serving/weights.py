"""The location of a model's weights, and the recipes that create weights on this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from serving.errors import InvalidModelConfig, ServerFailed
from serving.model_config import ModelConfig
from serving.model_configs import CHECKOUT, MODELS


def model_path(model_config: ModelConfig) -> str:
    """Return vLLM's `--model` argument: a folder's path, or a hub id. Raises `InvalidModelConfig` for a
    hosted model."""
    if model_config.id is not None:
        return model_config.id
    if model_config.path is None:
        raise InvalidModelConfig(
            f"model {model_config.name!r} is hosted at {model_config.base_url}, so no server can be"
            " started for it"
        )
    return str(CHECKOUT / Path(model_config.path).expanduser())


def recipe_command(model_config: ModelConfig) -> list[str] | None:
    """Return the command that creates the model's folder; `None` if the model config has no recipe."""
    if model_config.recipe is None:
        return None
    shape = ["--shape", str(model_config.shape)] if model_config.load_format == "dummy" else []
    return [sys.executable, str(MODELS / model_config.recipe), *shape, "--out", model_path(model_config)]


def prepare(model_config: ModelConfig, progress: Callable[[str], None]) -> str:
    """Make sure that the model can be loaded. If the model config has a recipe, run it.

    Args:
        progress: called with a line before a recipe runs.

    Returns:
        vLLM's `--model` argument; see `model_path`.

    Raises:
        InvalidModelConfig: the model config names a hosted model, or a folder that is missing.
        ServerFailed: the recipe failed; the message has its last line and the command.
    """
    path = model_path(model_config)
    if (command := recipe_command(model_config)) is not None:
        progress(f"preparing {path}")
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            last = (done.stdout.strip() or "no output").splitlines()[-1]
            raise ServerFailed(
                f"the recipe of model {model_config.name!r} failed with status {done.returncode}: {last}"
                f" (command: {shlex.join(command)})"
            )
    if path != model_config.id and not Path(path).is_dir():
        raise InvalidModelConfig(
            f"model {model_config.name!r}: no folder at {path}; download it or correct the model config's"
            " `path`"
        )
    return path
