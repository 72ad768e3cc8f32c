"""Folders on the node's own disk for a server's files."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from serving.errors import ServerFailed

_LONGEST_FOLDER = 68
"""Bytes: a socket's path may have 107, and vLLM adds 37 for the names of its sockets in our folder."""


def private_folder() -> Path:
    """Return a new path, not yet a folder, short enough for the sockets in it.

    Raises `ServerFailed` if there is no place for one.
    """
    name = f"speedrunner-{secrets.token_hex(4)}"
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        folder = Path(parent) / name
        if len(os.fsencode(folder)) <= _LONGEST_FOLDER and os.access(parent, os.W_OK):
            return folder
    raise ServerFailed(
        f"no folder is usable for sockets: {tempfile.gettempdir()} is too long a path, and /tmp is closed"
    )
