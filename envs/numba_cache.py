"""The folder of numba's compiled code: one per machine and user, on the machine's own disk."""

from __future__ import annotations

import logging
import os
import stat
import sys
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)

_own_folder: tempfile.TemporaryDirectory[str] | None = None
"""The cache of this process alone, removed at its end."""


def prepare() -> None:
    """Set numba's cache folder, unless `NUMBA_CACHE_DIR` names one. Call this before importing compiled code.

    By default numba writes next to the source files, which on a cluster are shared or read-only. If the
    user's folder in the machine's temporary folder cannot be used, this process compiles for itself. If
    nothing can be written, numba is switched off and loops run as plain Python. Both are logged.
    """
    global _own_folder
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    try:
        folder = _users_folder()
        if folder is None:
            _own_folder = tempfile.TemporaryDirectory(prefix="speedrunner-numba-")
            folder = Path(_own_folder.name)
            log.warning(
                "numba compiles again in this process; set NUMBA_CACHE_DIR to a folder that only you"
                " can write"
            )
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
    except OSError as error:
        os.environ["NUMBA_DISABLE_JIT"] = "1"
        log.warning(
            "numba is off because it has no folder to compile in (%s), so Crafter's worlds are slow", error
        )
    if "numba" in sys.modules:
        sys.modules["numba"].core.config.reload_config()


def _users_folder() -> Path | None:
    """Return the user's cache folder, or `None` if others could put their code into it."""
    folder = Path(tempfile.gettempdir()) / f"speedrunner-numba-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        log.warning("%s cannot be used: %s", folder, error.strerror)
        return None
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    if not private:
        log.warning("%s is not used: only you may have access to the folder", folder)
    return folder if private else None
