"""The command line that isolates a process with bubblewrap."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from speedrunner.sandbox.settings import INSTEAD, SandboxUnavailable

SYSTEM = Path("/usr")

FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Where programs and libraries stand: in `/usr`, in the root on older systems, and in a Python of its own."""

PACKAGES = ("site-packages", "dist-packages")
"""Folders of installed packages, the environments among them."""


def command(mounts: Mapping[str, Path]) -> list[str]:
    """Return what is written before the command of a process, to isolate it.

    Args:
        mounts: folders that it may read, by the places where it sees them.

    Raises:
        SandboxUnavailable: bubblewrap is not installed.
    """
    binds = [word for place, folder in mounts.items() for word in ("--ro-bind", str(folder), place)]
    return [
        executable(),
        *("--unshare-all", "--unshare-user", "--cap-drop", "ALL"),
        *("--die-with-parent", "--hostname", "sandbox"),
        *_system(),
        *binds,
        *("--dev-bind", "/dev/null", "/dev/null"),
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
    return str(program) if prefix == SYSTEM else f"/python/{program.relative_to(prefix)}"


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
    """Options that show the read-only system: programs and libraries of `/usr`, and this Python at `/python`
    where it stands apart; what is installed into a Python is hidden."""
    options = [*_shown(Path("/"), Path("/")), *_shown(SYSTEM, SYSTEM)]
    options += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    prefix, _ = _python()
    if prefix != SYSTEM:
        options += _shown(prefix, Path("/python"))
    return tuple(options)


def _shown(root: Path, place: Path) -> list[str]:
    """Options that show the programs and libraries of `root` at `place`, without installed packages."""
    options = []
    for folder in (root / name for name in FOLDERS):
        inside = place / folder.name
        if folder.is_symlink():
            options += ["--symlink", str(folder.readlink()), str(inside)]
        elif folder.is_dir():
            options += ["--ro-bind", str(folder), str(inside)]
            for packages in (str(inside / each.relative_to(folder)) for each in _packages(folder)):
                options += ["--tmpfs", packages, "--remount-ro", packages]
    return options


def _packages(root: Path) -> list[Path]:
    """The outermost folders of installed packages below `root`; other programs bring their own, too."""
    found = set()
    for folder, folders, _ in os.walk(root):
        for name in PACKAGES:
            if name in folders:
                folders.remove(name)
                found.add(Path(folder, name).resolve())  # which may be a link
    return sorted(each for each in found if each.is_relative_to(root) and not found & set(each.parents))
