"""The command line that isolates a process with bubblewrap."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from speedrunner.sandbox.limits import INSTEAD, TMP_BYTES, SandboxUnavailable

SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of the root that are part of `/usr`, or stand beside it on older systems."""


def command(mounts: Mapping[str, Path], filter_fd: int) -> list[str]:
    """Return what is written before the command of a process, to isolate it.

    Args:
        mounts: folders that it may read, by the places where it sees them.
        filter_fd: where bubblewrap reads the filter of system calls.

    Raises:
        SandboxUnavailable: bubblewrap is not installed.
    """
    binds = [word for place, folder in mounts.items() for word in ("--ro-bind", str(folder), place)]
    return [
        executable(),
        *("--unshare-all", "--unshare-user", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox"),
        *("--seccomp", str(filter_fd)),
        *_system(),
        *binds,
        # Read-only, since real root may write to /proc/sys there, without any capability.
        *("--proc", "/proc", "--remount-ro", "/proc"),
        *("--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--chdir", "/tmp"),
        *("--remount-ro", "/"),
        "--",
    ]


@functools.cache
def executable() -> str:
    """The path of bubblewrap. Raises `SandboxUnavailable`."""
    if (path := shutil.which("bwrap")) is None:
        raise SandboxUnavailable(
            "bubblewrap, which isolates skills, is not installed; install it"
            f" (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap), or, {INSTEAD}"
        )
    return path


def interpreter() -> str:
    """The path of the Python interpreter inside the sandbox. Raises `SandboxUnavailable`."""
    prefix, program = _python()
    return str(program) if prefix.is_relative_to("/usr") else f"/python/{program.relative_to(prefix)}"


def environment() -> dict[str, str]:
    """The environment variables of an isolated process."""
    # Sets must have the same order in each process. A Python outside /usr stands elsewhere inside.
    return {"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": "/python/lib"}


def _python() -> tuple[Path, Path]:
    """The prefix of this Python without its virtual environment, and the interpreter in it."""
    prefix = Path(sys.base_prefix).resolve()
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    if not program.is_relative_to(prefix):
        raise SandboxUnavailable(f"the interpreter {program} is not in its own prefix {prefix}; {INSTEAD}")
    return prefix, program


@functools.cache
def _system() -> tuple[str, ...]:
    """Options that show the read-only system: `/usr`, and this Python at `/python` where it stands apart."""
    options = ["--ro-bind", "/usr", "/usr"]
    for folder in (Path("/", name) for name in SYSTEM_FOLDERS):
        if folder.is_symlink():
            options += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            options += ["--ro-bind", str(folder), str(folder)]
    options += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    prefix, _ = _python()
    if not prefix.is_relative_to("/usr"):
        options += ["--ro-bind", str(prefix), "/python"]
    return tuple(options)
