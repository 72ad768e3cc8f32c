"""A model's files on the Hugging Face hub: downloaded once, then found without a network."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from serving.errors import InvalidModelConfig, ServingError

HUB_S = 4.0
"""Longest wait for an answer of the hub, in seconds."""

TEXTS = ("*.json", "*.jinja", "*.txt", "*.model")
"""Configuration, chat template and tokenizer."""

WEIGHTS = ("*.safetensors", "*.bin")
"""The engine loads the first of these kinds that exists."""

VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model")
"""A tokenizer needs one of these; otherwise `transformers` may create an empty tokenizer."""

BELOW = "*/*"
"""Subfolders of a repository: they have the same weights for other programs."""

CONFIG = "config.json"

INDEX = "model.safetensors.index.json"


class FilesMissing(ServingError):
    """A model's files are not on this machine, or not all of them."""


class NotFetched(ServingError):
    """The hub does not provide a model's files, or the disk has no room for them."""


def cache_folder() -> Path:
    """Return the folder of the hub's files; the variable `HF_HOME` changes it."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def complete_folder(model: str, revision: str | None) -> Path:
    """Return the folder with all files that serving a model needs. Sends nothing.

    Raises:
        FilesMissing: it does not exist, or is incomplete.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import IncompleteSnapshotError, LocalEntryNotFoundError

    patterns, lost = [*TEXTS, WEIGHTS[0]], "some of its files"
    try:
        folder = Path(
            snapshot_download(
                model,
                revision=revision,
                allow_patterns=patterns,
                ignore_patterns=BELOW,
                local_files_only=True,
            )
        )
        lost = ""
    except IncompleteSnapshotError as error:
        folder = Path(error.snapshot_path)
    except LocalEntryNotFoundError:
        at = f" at commit {revision}" if revision else ""
        raise FilesMissing(f"{model}{at} is not in {cache_folder()}") from None
    if lost := ", ".join(missing_files(folder)) or lost:
        raise FilesMissing(f"{folder} lacks {lost}")
    return folder


def found(model: str, revision: str | None) -> Path | None:
    """Return the same folder, or `None` if it is missing or incomplete."""
    with suppress(FilesMissing):
        return complete_folder(model, revision)
    return None


def config_file(model: str, revision: str | None, *, fetch: bool = True) -> Path | None:
    """Return a model's `config.json`; `None` if it is not available.

    Args:
        fetch: ask the hub if it is not on this machine.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    here = try_to_load_from_cache(model, CONFIG, revision=revision)
    if isinstance(here, str):
        return Path(here)
    if not fetch:
        return None
    try:
        require_hub(model, revision)
        return Path(hf_hub_download(model, CONFIG, revision=revision))
    except (InvalidModelConfig, OSError):  # the hub's refusals are OSErrors
        return None


def fetch(model: str, revision: str | None, say: Callable[[str], None]) -> Path:
    """Download all files that serving a model needs, except those on this machine.

    Args:
        say: called with a line that names the model, its size and the target folder.

    Returns:
        The model's folder.

    Raises:
        NotFetched: the hub does not provide it, or the disk has no room for it.
        InvalidModelConfig: the hub cannot be reached.
    """
    if (folder := found(model, revision)) is not None:
        return folder
    with _asking_the_hub(model, revision) as (api, download):
        tree = api.list_repo_tree(model, revision=revision)
        sizes = {Path(each.path): each.size for each in tree if hasattr(each, "size")}
        weights = next((kind for kind in WEIGHTS if any(path.match(kind) for path in sizes)), WEIGHTS[0])
        patterns = [*TEXTS, weights]
        size = sum(size for path, size in sizes.items() if any(map(path.match, patterns)))
        cache = cache_folder()
        there = next(each for each in (cache, *cache.parents) if each.exists())
        if size > (free := shutil.disk_usage(there).free):
            raise NotFetched(
                f"{model} takes {size / 1e9:.3g} GB, and {there} has {free / 1e9:.3g} GB left; name a place"
                " with room (and quota): export HF_HOME=/path/on/scratch"
            )
        say(f"fetching {model}, {size / 1e9:.3g} GB, into {cache}")
        folder = Path(download(model, revision=revision, allow_patterns=patterns, ignore_patterns=BELOW))
    if missing := list(missing_files(folder)):
        raise NotFetched(f"{_page(model)} is no model that can be served: it lacks {', '.join(missing)}")
    return folder


def fetch_texts(model: str) -> tuple[str, Path]:
    """Download the newest configuration, chat template and tokenizer of a model.

    Returns:
        The commit, and the folder of these files.

    Raises:
        As `fetch`.
    """
    with _asking_the_hub(model, None) as (api, download):
        commit = str(api.model_info(model).sha)
        return commit, Path(download(model, revision=commit, allow_patterns=[*TEXTS], ignore_patterns=BELOW))


@contextmanager
def _asking_the_hub(model: str, revision: str | None) -> Iterator[tuple[Any, Callable[..., str]]]:
    """Yield the hub's interface and its function for downloads; their errors become `NotFetched`."""
    require_hub(model, revision)
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield HfApi(), snapshot_download
    except GatedRepoError:
        raise NotFetched(
            f"{model} is given only to those who have accepted its licence: do so at {_page(model)}, then"
            " `hf auth login`, or export HF_TOKEN"
        ) from None
    except RevisionNotFoundError:
        raise NotFetched(f"{model} has no commit {revision}: correct the model config's `revision`") from None
    except RepositoryNotFoundError:
        raise NotFetched(
            f"{_page(model)} does not exist, or only its owners can read it: correct the model config's `id`,"
            " or run `hf auth login`"
        ) from None
    except OSError as error:  # includes the hub's other refusals, and a full disk
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotFetched(f"{model} cannot be fetched: {reason}; the same command goes on") from None


def missing_files(folder: Path) -> Iterator[str]:
    """Return the names of files that a model's folder lacks and that serving needs."""
    wanted = [CONFIG, "tokenizer_config.json"]
    index = folder / INDEX
    if index.is_file():
        wanted += sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    yield from (name for name in wanted if not (folder / name).is_file())
    if not any((folder / name).is_file() for name in VOCABULARIES):
        yield " or ".join(VOCABULARIES)
    if not index.is_file() and not any(file.stat().st_size for kind in WEIGHTS for file in folder.glob(kind)):
        yield WEIGHTS[0]


def size_bytes(folder: Path) -> int:
    """Return the bytes of all files in a model's folder and the folders below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def require_hub(model: str, revision: str | None) -> None:
    """Report at once that the hub cannot be reached; its own client retries for a minute.

    Raises `InvalidModelConfig`, also if the environment forbids contact with the hub.
    """
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
    raise InvalidModelConfig(
        f"{model} is not in this machine's cache, and {what}; where there is a network,"
        f" `hf download {model}{at}` fetches it; HF_HOME names the cache's folder"
    )


def _page(model: str) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{model}"
