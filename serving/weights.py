"""Where a model's weights are, and the recipes that make those that are made here."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from serving.cards import CHECKOUT, MODELS
from serving.errors import InvalidCard, ServerFailed
from serving.model_card import ModelCard


def model_path(card: ModelCard) -> str:
    """What vLLM takes as `--model`: a folder's path, or a hub id. Raises `InvalidCard` for a hosted model."""
    if card.id is not None:
        return card.id
    if card.path is None:
        raise InvalidCard(f"model {card.name!r} is hosted at {card.base_url}: it cannot be started here")
    return str(CHECKOUT / Path(card.path).expanduser())


def recipe_command(card: ModelCard) -> list[str] | None:
    """The command that makes the model's folder; `None` where the card has no recipe."""
    if card.recipe is None:
        return None
    shape = ["--shape", str(card.shape)] if card.load_format == "dummy" else []
    return [sys.executable, str(MODELS / card.recipe), *shape, "--out", model_path(card)]


def prepare(card: ModelCard, progress: Callable[[str], None]) -> str:
    """Make sure that the model can be loaded; make it with the card's recipe where it has one.

    Args:
        progress: called with each line that the recipe prints.

    Returns:
        What vLLM takes as `--model`; see `model_path`.

    Raises:
        InvalidCard: the card names a hosted model, or a folder that is missing and has no recipe.
        ServerFailed: the recipe failed.
    """
    path = model_path(card)
    if (command := recipe_command(card)) is not None:
        _run_recipe(card.name, command, progress)
    if path != card.id and not Path(path).is_dir():
        bundled = MODELS in Path(path).parents
        advice = (
            f"`git checkout -- {path}` restores it" if bundled else "download it or correct the card's `path`"
        )
        raise InvalidCard(f"model {card.name!r}: there is no folder {path}; {advice}")
    return path


def _run_recipe(model: str, command: list[str], progress: Callable[[str], None]) -> None:
    """Run the command that makes a model's folder.

    Args:
        progress: called with each line that it prints.

    Raises:
        ServerFailed: it failed; with its last line and the command.
    """
    last = "no output"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                last = line.strip()
                progress(last)
    if process.returncode != 0:
        raise ServerFailed(
            f"the recipe of model {model!r} failed with status {process.returncode}: {last} "
            f"(command: {shlex.join(command)})"
        )
