"""A model's files on the Hugging Face hub: downloaded once, then found without a network."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
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

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


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
    require_hub(model, revision)
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    with _explain_refusals(model, revision):
        tree = HfApi().list_repo_tree(model, revision=revision)
        sizes = {Path(each.path): each.size for each in tree if isinstance(each, RepoFile)}
        weights = next((kind for kind in WEIGHTS if any(path.match(kind) for path in sizes)), WEIGHTS[0])
        patterns = [*TEXTS, weights]
        size = sum(size for path, size in sizes.items() if any(map(path.match, patterns)))
        _require_room(model, size)
        say(f"fetching {model}, {size / 1e9:.3g} GB, into {cache_folder()}")
        snapshot_download(model, revision=revision, allow_patterns=patterns, ignore_patterns=BELOW)
    try:
        return complete_folder(model, revision)
    except FilesMissing as error:
        raise NotFetched(f"{_page(model)} is no model that can be served: {error}") from None


def fetch_texts(model: str) -> tuple[str, Path]:
    """Download the newest configuration, chat template and tokenizer of a model.

    Returns:
        The commit, and the folder of these files.

    Raises:
        NotFetched: the hub does not provide them, or the disk has no room for them.
        InvalidModelConfig: the hub cannot be reached.
    """
    require_hub(model, None)
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    with _explain_refusals(model, None):
        commit = str(HfApi().model_info(model).sha)
        folder = snapshot_download(model, revision=commit, allow_patterns=[*TEXTS], ignore_patterns=BELOW)
    return commit, Path(folder)


@contextmanager
def _explain_refusals(model: str, revision: str | None) -> Iterator[None]:
    """Raise `NotFetched` for the hub's errors."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
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
    except OSError as error:  # includes the hub's other refusals
        if error.errno in DISK_FULL:
            raise _no_room(f"{model} cannot be written: {error.strerror}") from None
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


def _require_room(model: str, size: int) -> None:
    """Check that the disk has room for a download. Raises `NotFetched`."""
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
