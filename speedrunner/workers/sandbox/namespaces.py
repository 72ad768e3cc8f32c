"""The command line that isolates a process with user namespaces, if bubblewrap is not installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from speedrunner.workers.sandbox.view import VARIABLES, view

LAUNCHER = Path(__file__).with_name("launcher.py")

SETTINGS = Path("/proc/sys")


def command(mounts: Mapping[str, Path]) -> list[str]:
    """Return the prefix of a command line that isolates the command.

    Args:
        mounts: folders that it may read, by the places where it sees them.

    Raises:
        SandboxUnavailable: this Python cannot be shown.
    """
    return [
        *(getattr(sys, "_base_executable", sys.executable), "-I", "-S", str(LAUNCHER)),
        *(word for name, value in VARIABLES.items() for word in ("variable", name, value)),
        *(word for shown in view(mounts) for word in shown),
        "--",
    ]


def advice() -> str:
    """Return what to ask the administrators for, if user namespaces are not allowed."""
    wanted = []
    if _read_setting("user/max_user_namespaces") == 0:
        wanted.append("to set the sysctl user.max_user_namespaces to 15000 (it is 0)")
    if _read_setting("kernel/unprivileged_userns_clone") == 0:
        wanted.append("to set the sysctl kernel.unprivileged_userns_clone to 1 (it is 0)")
    if _read_setting("kernel/apparmor_restrict_unprivileged_userns") == 1:
        wanted.append(
            "to set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0 (it is 1), or to install"
            " bubblewrap with an AppArmor profile that allows it user namespaces"
        )
    if not wanted:
        wanted.append(
            "to install bubblewrap, or to allow user namespaces (no sysctl forbids them, so a"
            " container may forbid unshare and mount)"
        )
    return f"ask the administrators {', and '.join(wanted)}"


def _read_setting(name: str) -> int | None:
    """Return one of the kernel's numeric settings; `None` if it has no such setting."""
    try:
        return int((SETTINGS / name).read_text())
    except (OSError, ValueError):
        return None
