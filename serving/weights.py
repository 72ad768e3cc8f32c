"""A model's files: their location, the recipes that create them on this machine, and the Hugging Face hub.

Files of the hub are downloaded once, then found without a network.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from serving.errors import InvalidModelConfig, ServerFailed, ServingError
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


ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
"""Files of a LoRA adapter."""


def adapter_folder(model_config: ModelConfig) -> Path | None:
    """Return the folder of the model's adapter; `None` without one. Raises `InvalidModelConfig` if its files
    are missing."""
    if model_config.lora is None:
        return None
    folder = CHECKOUT / Path(model_config.lora).expanduser()
    if lost := [name for name in (ADAPTER, ADAPTER_CONFIG) if not (folder / name).is_file()]:
        raise InvalidModelConfig(f"model {model_config.name!r}: lora {folder} lacks {', '.join(lost)}")
    return folder


def adapter_arguments(model_config: ModelConfig) -> list[str]:
    """Return the arguments that serve the weights under the model's name, with its adapter if it has one.

    With an adapter, that name is the adapter's, so that requests and counters need not distinguish. Raises
    `InvalidModelConfig`: the adapter's files are missing or unreadable.
    """
    name, folder = model_config.name, adapter_folder(model_config)
    if folder is None:
        return ["--served-model-name", name]
    rank = read_json(folder / ADAPTER_CONFIG).get("r")
    if not isinstance(rank, int) or not 1 <= rank <= RANKS[-1]:
        raise InvalidModelConfig(f"{folder / ADAPTER_CONFIG}: r must be 1 to {RANKS[-1]} (got {rank!r})")
    module = json.dumps({"name": name, "path": str(folder)})
    highest = next(known for known in RANKS if known >= rank)
    options = ["--enable-lora", "--max-lora-rank", str(highest), "--lora-modules", module]
    return ["--served-model-name", f"{name}.base", *options]


RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's `--max-lora-rank`."""


def recipe_command(model_config: ModelConfig) -> list[str] | None:
    """Return the command that creates the model's folder; `None` if the model config has no recipe."""
    if model_config.recipe is None:
        return None
    script, *arguments = shlex.split(model_config.recipe)
    return [sys.executable, str(MODELS / script), *arguments, "--out", model_path(model_config)]


def prepare(model_config: ModelConfig, progress: Callable[[str], None]) -> str:
    """Make sure that the model can be loaded. If the model config has a recipe, run it.

    Returns:
        The model's folder. That of a model on the hub has at least the files that `fetch_texts` downloads.

    Raises:
        InvalidModelConfig: the model config names a hosted model, or a folder that is missing.
        FilesMissing: the hub cannot be reached, or does not provide the model.
        ServerFailed: the recipe failed; the message has its last line and the command.
    """
    if model_config.id is not None:
        return str(fetch_texts(model_config.id, model_config.revision))
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
    if not Path(path).is_dir():
        raise InvalidModelConfig(
            f"model {model_config.name!r}: no folder at {path}; download it or correct the model config's"
            " `path`"
        )
    return path


HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""A model's id on the hub: `ORGANISATION/MODEL`."""

TEXTS = ("*.json", "*.jinja", "*.txt", "*.model")
"""Configuration, chat template and tokenizer."""

WEIGHTS = "*.safetensors"

VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model")
"""A tokenizer needs one of these; otherwise `transformers` may create an empty tokenizer."""

BELOW = "*/*"
"""Subfolders of a repository: they have the same weights for other programs."""

CONFIG = "config.json"

INDEX = "model.safetensors.index.json"


class FilesMissing(ServingError):
    """A model's files, or some of them, are not on this machine, and cannot be fetched."""


def find_folder(model: str, revision: str | None) -> Path | None:
    """Return the folder with all files that serving a model needs; `None` if it is missing or incomplete.
    Sends nothing."""
    folder = cached_folder(model, revision)
    return None if folder is None or any(missing_files(folder)) else folder


def cached_folder(model: str, revision: str | None) -> Path | None:
    """Return a model's folder in the hub's cache; `None` if it has no `config.json` there."""
    from huggingface_hub import try_to_load_from_cache

    here = try_to_load_from_cache(model, CONFIG, revision=revision)
    return Path(here).parent if isinstance(here, str) else None


def fetch(model: str, revision: str | None, say: Callable[[str], None]) -> Path:
    """Download all files that serving a model needs, except those on this machine.

    Returns:
        The model's folder.

    Raises `FilesMissing`: the hub cannot be reached or does not provide it, or the disk has no room for it.
    """
    from huggingface_hub import constants

    if (folder := find_folder(model, revision)) is not None:
        return folder
    say(f"fetching {model} into {constants.HF_HUB_CACHE}")
    folder = _download(model, revision, [*TEXTS, WEIGHTS])
    if missing := list(missing_files(folder)):
        raise FilesMissing(f"{model} is no model that can be served: it lacks {', '.join(missing)}")
    return folder


def fetch_texts(model: str, revision: str | None = None) -> Path:
    """Return the folder with a model's configuration, chat template and tokenizer, downloaded if they
    are missing; without a revision, the newest ones. The folder's name is their commit.

    Raises as `fetch`.
    """
    folder = cached_folder(model, revision)
    is_here = folder is not None and all(name.endswith(WEIGHTS[1:]) for name in missing_files(folder))
    if folder and is_here and revision:
        return folder
    try:
        return _download(model, revision, [*TEXTS])
    except FilesMissing:  # the newest that are on this machine
        if folder and is_here:
            return folder
        raise


def _download(model: str, revision: str | None, patterns: list[str]) -> Path:
    """Download the files of a model's repository that match a pattern. Raises as `fetch`."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    require_hub(model, revision)
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        return Path(
            snapshot_download(model, revision=revision, allow_patterns=patterns, ignore_patterns=BELOW)
        )
    except OSError as error:  # includes the hub's refusals, such as of a gated model
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FilesMissing(f"{model} cannot be fetched: {reason}") from None


HUB_S = 4.0
"""Longest wait for the hub's first answer. Its own client tries again for half a minute."""


def require_hub(model: str, revision: str | None) -> None:
    """Raise `FilesMissing` if the hub, which has files of a model that are not on this machine, cannot be
    asked."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from huggingface_hub import constants

    what = "HF_HUB_OFFLINE forbids asking the hub"
    if not constants.HF_HUB_OFFLINE:
        try:
            with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=HUB_S):
                return
        except HTTPError:
            return  # it answers
        except (OSError, HTTPException) as error:
            what = f"{constants.ENDPOINT} cannot be reached ({getattr(error, 'reason', error)})"
    at = f" --revision {revision}" if revision else ""
    raise FilesMissing(
        f"{model} cannot be fetched: {what}; use `hf download {model}{at}` where there is a network"
        " (HF_HOME names the cache's folder)"
    )


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if there is none."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def missing_files(folder: Path) -> Iterator[str]:
    """Return the names of files that a model's folder lacks and that serving needs."""
    wanted = [CONFIG, "tokenizer_config.json"]
    index = folder / INDEX
    if index.is_file():
        wanted += sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    yield from (name for name in wanted if not (folder / name).is_file())
    if not any((folder / name).is_file() for name in VOCABULARIES):
        yield " or ".join(VOCABULARIES)
    if not index.is_file() and not any(folder.glob(WEIGHTS)):
        yield WEIGHTS


def size_bytes(folder: Path) -> int:
    """Return the bytes of all files in a model's folder and the folders below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
