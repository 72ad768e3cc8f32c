"""A model's files on the Hugging Face hub: fetched once, found afterwards without a network."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from serving.errors import InvalidModelConfig, ServingError

HUB_S = 4.0
"""Longest wait for a word from the hub."""

TEXTS = ("*.json", "*.jinja", "*.txt", "*.model")
"""Configuration, chat template and tokenizer."""

WEIGHTS = ("*.safetensors", "*.bin")
"""The engine takes the first of these kinds that there is."""

VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model")
"""Any of these makes a tokenizer; without one, `transformers` may make an empty one."""

BELOW = "*/*"
"""Folders of a repository: the same weights for other programs."""

CONFIG = "config.json"

INDEX = "model.safetensors.index.json"

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class FilesMissing(ServingError):
    """A model's files are not on this machine, or not all of them."""


class NotFetched(ServingError):
    """The hub does not give a model's files, or there is no room for them."""


def cache_folder() -> Path:
    """Where files of the hub are kept; `HF_HOME` names another place."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def complete_folder(model: str, revision: str | None) -> Path:
    """The folder with all that serving a model takes. Nothing is sent.

    Raises:
        FilesMissing: it is not there, or lacks something.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import IncompleteSnapshotError, LocalEntryNotFoundError

    listed = True
    try:
        folder = Path(
            snapshot_download(
                model,
                revision=revision,
                allow_patterns=[*TEXTS, WEIGHTS[0]],
                ignore_patterns=BELOW,
                local_files_only=True,
            )
        )
    except IncompleteSnapshotError as error:
        folder, listed = Path(error.snapshot_path), False
    except LocalEntryNotFoundError:
        at = f" at commit {revision}" if revision else ""
        raise FilesMissing(f"{model}{at} is not in {cache_folder()}") from None
    missing = list(missing_files(folder))
    if missing or not listed:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FilesMissing(f"{folder} lacks {', '.join(missing[:3]) or 'some of its files'}{more}")
    return folder


def found(model: str, revision: str | None) -> Path | None:
    """The same, or `None` where it is not there or not whole."""
    with suppress(FilesMissing):
        return complete_folder(model, revision)
    return None


def config_file(model: str, revision: str | None, *, fetch: bool = True) -> Path | None:
    """Return a model's `config.json`; `None` where it cannot be had.

    Args:
        fetch: ask the hub for it where it is not here.
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
    """Bring all that serving a model takes to this machine; what is there is not fetched again.

    Args:
        say: called with a line that says what is fetched to where.

    Returns:
        Its folder.

    Raises:
        NotFetched: the hub does not give it, or there is no room for it.
        InvalidModelConfig: the hub cannot be reached.
    """
    if (folder := found(model, revision)) is not None:
        return folder
    require_hub(model, revision)
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        tree = HfApi().list_repo_tree(model, revision=revision)
        sizes = {Path(each.path): each.size for each in tree if isinstance(each, RepoFile)}
        weights = next((kind for kind in WEIGHTS if any(path.match(kind) for path in sizes)), WEIGHTS[0])
        patterns = [*TEXTS, weights]
        size = sum(size for path, size in sizes.items() if any(map(path.match, patterns)))
        _require_room(model, size)
        say(f"fetching {model}, {size / 1e9:.3g} GB, into {cache_folder()}")
        snapshot_download(model, revision=revision, allow_patterns=patterns, ignore_patterns=BELOW)
    except GatedRepoError:
        raise NotFetched(
            f"{model} is given to those alone who have accepted its licence: do so at {_page(model)}, then"
            " `hf auth login`, or export HF_TOKEN"
        ) from None
    except RevisionNotFoundError:
        raise NotFetched(f"{model} has no commit {revision}: correct the model config's `revision`") from None
    except RepositoryNotFoundError:
        raise NotFetched(
            f"there is no {_page(model)}, or it is shown to its owners alone: correct the model "
            f"config's `id`, or"
            " `hf auth login`"
        ) from None
    except OSError as error:  # the hub's other refusals are such, too
        if error.errno in DISK_FULL:
            raise _no_room(f"{model} cannot be written: {error.strerror}") from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotFetched(f"{model} cannot be fetched: {reason}; the same command goes on") from None
    try:
        return complete_folder(model, revision)
    except FilesMissing as error:
        raise NotFetched(f"{_page(model)} is no model that can be served: {error}") from None


def missing_files(folder: Path) -> Iterator[str]:
    """What a model's folder lacks without which nothing can be served."""
    wanted = [CONFIG, "tokenizer_config.json"]
    index = folder / INDEX
    if index.is_file():
        wanted += sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    yield from (name for name in wanted if not (folder / name).is_file())
    if not any((folder / name).is_file() for name in VOCABULARIES):
        yield " or ".join(VOCABULARIES)
    if not index.is_file() and not weights_bytes(folder):
        yield WEIGHTS[0]


def size_bytes(folder: Path) -> int:
    """What the files of a model's folder take, and of the folders below it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def weights_bytes(folder: Path) -> int:
    """What the weights of a model's folder take; 0 where it holds none."""
    kinds = (list(folder.glob(kind)) for kind in WEIGHTS)
    return sum(file.stat().st_size for file in next(filter(None, kinds), []))


def require_hub(model: str, revision: str | None) -> None:
    """Say at once that the hub is out of reach, which its own client finds out in a minute of retries.

    Raises `InvalidModelConfig`, also where the environment forbids it to be asked.
    """
    from huggingface_hub import constants

    what = "HF_HUB_OFFLINE forbids to ask the hub"
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


def _require_room(model: str, size: int) -> None:
    """Refuse what the disk has no room for. Raises `NotFetched`."""
    cache = cache_folder()
    there = next(each for each in (cache, *cache.parents) if each.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise _no_room(f"{model} takes {size / 1e9:.3g} GB, and {there} has {free / 1e9:.3g} GB left")


def _no_room(what: str) -> NotFetched:
    return NotFetched(f"{what}; name a place with room (and quota): export HF_HOME=/path/on/scratch")


def _page(model: str) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{model}"
