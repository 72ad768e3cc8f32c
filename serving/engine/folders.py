"""Folders on the node's own disk for what a server leaves there."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from serving.errors import ServerFailed

_LONGEST_FOLDER = 68
"""Bytes: a socket's path may have 107, and vLLM names sockets of its own in our folder by 37 more."""


def private_folder() -> Path:
    """A fresh name, not yet a folder, under which sockets fit into the length that the system allows.

    Raises `ServerFailed` if there is no place for one.
    """
    name = f"speedrunner-{secrets.token_hex(4)}"
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        folder = Path(parent) / name
        if len(os.fsencode(folder)) <= _LONGEST_FOLDER and os.access(parent, os.W_OK):
            return folder
    raise ServerFailed(
        f"no folder for sockets: {tempfile.gettempdir()} is too long a path, and /tmp is closed"
    )
