"""Folders of a server: its private one, and those for what its libraries compile.

In a Slurm job, the latter are on the node's own disk.

Several libraries lock their files, which is slow or fails on NFS. They load code from these folders, so no
one else may be able to write there.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serving.errors import ServerFailed

log = logging.getLogger(__name__)

BASE = "SPEEDRUNNER_CACHE"
"""Environment variable: the user's own folder for all caches."""

USUAL = {
    "VLLM_CACHE_ROOT": "~/.cache/vllm",  # also for the caches of DeepGEMM and torch.compile
    "TRITON_CACHE_DIR": "~/.triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": "~/.cache/torchinductor",
    "FLASHINFER_WORKSPACE_BASE": "~",  # FlashInfer adds .cache/flashinfer
    "CUTE_DSL_CACHE_DIR": "~/.cache/cute_dsl",
    "QUACK_CACHE_DIR": "~/.cache/quack",
    "CUDA_CACHE_PATH": "~/.nv/ComputeCache",
}
"""Variables that name the caches, with the folders that are used outside of jobs."""

TEMPORARY = ("TORCHINDUCTOR_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "QUACK_CACHE_DIR")
"""Caches that a library would put into a temporary folder, where another user could have placed code."""


def cache_settings(environment: Mapping[str, str], private: Path) -> dict[str, str]:
    """Return the variables of the caches that the environment does not set.

    With `SPEEDRUNNER_CACHE` all are in that folder. In a Slurm job they are in a folder of this user below
    SLURM_TMPDIR, TMPDIR or /tmp, on the node's own disk. A job that is requeued to the node finds them again
    if the site keeps that folder.

    Args:
        private: a folder that no one else can enter, for the caches if others could write into theirs.
    """
    if environment.get(BASE) or "SLURM_JOB_ID" in environment:
        base = _base(environment)
        folders = {
            variable: (private / "caches" if base is None else base) / variable.partition("_")[0].lower()
            for variable in USUAL
        }
    else:
        folders = {variable: Path(USUAL[variable]).expanduser() for variable in TEMPORARY}
    return {variable: str(folder) for variable, folder in folders.items() if not environment.get(variable)}


def _base(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of all caches, created if it is missing; `None` if others could put code into it."""
    if chosen := environment.get(BASE):
        folder = Path(chosen).expanduser().absolute()
    else:
        temporary = (environment.get(name, "") for name in ("SLURM_TMPDIR", "TMPDIR"))
        parent = next((folder for folder in temporary if folder and Path(folder).is_dir()), "/tmp")
        folder = Path(parent) / f"speedrunner-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        log.warning("caching in %s is off: %s; set %s to another folder", folder, error.strerror, BASE)
        return None
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
        return folder
    log.warning(
        "caching in %s is off: the folder must be yours, and no one else may enter it (chmod 700)",
        folder,
    )
    return None


LONGEST_FOLDER = 68
"""Bytes: a socket's path may have 107, and vLLM adds 37 for the names of its sockets in our folder."""


def private_folder() -> Path:
    """Return a new path, not yet a folder, short enough for the sockets in it.

    Raises `ServerFailed` if there is no place for one.
    """
    name = f"speedrunner-{secrets.token_hex(4)}"
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        folder = Path(parent) / name
        if len(os.fsencode(folder)) <= LONGEST_FOLDER and os.access(parent, os.W_OK):
            return folder
    raise ServerFailed(
        f"no folder is usable for sockets: {tempfile.gettempdir()} is too long a path, and /tmp is closed"
    )
