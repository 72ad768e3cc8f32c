"""The part of the machine that an isolated process sees, at any isolating level. All of it is read-only."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from speedrunner.workers.sandbox.settings import INSTEAD, SandboxUnavailable

SYSTEM = Path("/usr")

FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of programs and libraries: in `/usr`, in the root on older systems, and in a separate Python."""

PACKAGES = ("site-packages", "dist-packages")
"""Names of folders with installed packages, also in virtual environments."""

LIBRARIES = Path("/etc/ld.so.cache")

VARIABLES = {"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": "/python/lib"}
"""Environment variables: sets must have the same order in each process, and a Python outside `/usr` is in
another place inside."""


class Shown(NamedTuple):
    """One visible thing. Things are added in the order of their list.

    Attributes:
        how: `bind` shows a folder or file, `device` a device, `link` is a symbolic link, and `empty` an empty
            folder in place of another one.
        place: its path inside.
        source: its path outside, without symbolic links; or a link's target; nothing, if empty.
    """

    how: Literal["bind", "device", "link", "empty"]
    place: str
    source: str = ""


def view(mounts: Mapping[str, Path]) -> list[Shown]:
    """Return everything visible: the system, and the folders of `mounts` by their paths inside.

    Raises:
        SandboxUnavailable: this Python cannot be shown.
    """
    folders = [Shown("bind", place, str(folder.resolve())) for place, folder in mounts.items()]
    return [*system(), *folders, Shown("device", "/dev/null", "/dev/null")]


@functools.cache
def system() -> tuple[Shown, ...]:
    """Return the programs and libraries of `/usr`, and this Python at `/python` if it is elsewhere, without
    the folders of `_packages`. Raises `SandboxUnavailable`."""
    shown = [*_programs(Path("/"), Path("/")), *_programs(SYSTEM, SYSTEM)]
    if LIBRARIES.exists():
        shown.append(Shown("bind", str(LIBRARIES), str(LIBRARIES.resolve())))
    prefix, _ = _python()
    if prefix != SYSTEM:
        shown += _programs(prefix, Path("/python"))
    return tuple(shown)


def interpreter() -> str:
    """Return the path of the Python interpreter inside. Raises `SandboxUnavailable`."""
    prefix, program = _python()
    return str(program) if prefix == SYSTEM else f"/python/{program.relative_to(prefix)}"


def _python() -> tuple[Path, Path]:
    """Return the prefix of this Python without its virtual environment, and the interpreter in it."""
    prefix = Path(sys.base_prefix).resolve()
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    if not program.is_relative_to(prefix):
        raise SandboxUnavailable(f"the interpreter {program} is outside of its prefix {prefix}; {INSTEAD}")
    return prefix, program


def _programs(root: Path, place: Path) -> list[Shown]:
    """Return the programs and libraries of `root`, shown at `place`, without the folders of `_packages`."""
    shown = []
    for folder in (root / name for name in FOLDERS):
        inside = place / folder.name
        if folder.is_symlink():
            shown.append(Shown("link", str(inside), str(folder.readlink())))
        elif folder.is_dir():
            shown.append(Shown("bind", str(inside), str(folder)))
            shown += [Shown("empty", str(inside / each.relative_to(folder))) for each in _packages(folder)]
    return shown


def _packages(root: Path) -> list[Path]:
    """Return the outermost folders of installed packages below `root`: those of each Python there, and those
    that this process imports from."""
    found = {each for name in PACKAGES for each in root.glob(f"py*/{name}")}  # also of PyPy
    for entry in (Path(name) for each in sys.path for name in (each, os.path.realpath(each))):
        found |= {each for each in (entry, *entry.parents) if each.name in PACKAGES}
    # Some are links. `Path.is_dir` raises an error for unreadable folders and for long names.
    there = {each.resolve() for each in found if os.path.isdir(each)}  # noqa: PTH112
    return sorted(each for each in there if each.is_relative_to(root) and not there & set(each.parents))
