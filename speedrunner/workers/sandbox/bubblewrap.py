"""The command line that isolates a process with bubblewrap."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from pathlib import Path

from speedrunner.workers.sandbox.settings import SandboxUnavailable
from speedrunner.workers.sandbox.view import VARIABLES, Shown, view


def command(mounts: Mapping[str, Path]) -> list[str]:
    """Return the prefix of a command line that isolates the command.

    Args:
        mounts: folders that it may read, by the places where it sees them.

    Raises:
        SandboxUnavailable: bubblewrap is not installed.
    """
    return [
        executable(),
        *("--unshare-all", "--unshare-user", "--cap-drop", "ALL"),
        *("--die-with-parent", "--hostname", "sandbox"),
        *(word for name, value in VARIABLES.items() for word in ("--setenv", name, value)),
        *(word for shown in view(mounts) for word in _options(shown)),
        *("--remount-ro", "/"),
        "--",
    ]


@functools.cache
def executable() -> str:
    """Return the path of bubblewrap. Raises `SandboxUnavailable`."""
    if (path := shutil.which("bwrap")) is None:
        raise SandboxUnavailable("bubblewrap is not installed")
    return path


def _options(shown: Shown) -> tuple[str, ...]:
    match shown.how:
        case "bind":
            return "--ro-bind", shown.source, shown.place
        case "device":
            return "--dev-bind", shown.source, shown.place
        case "link":
            return "--symlink", shown.source, shown.place
        case "empty":
            return "--tmpfs", shown.place, "--remount-ro", shown.place
