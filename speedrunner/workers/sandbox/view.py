"""The part of the machine that an isolated process sees, at any isolating level. All of it is read-only."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from speedrunner.workers.sandbox.settings import INSTEAD, SandboxUnavailable

PYTHON = Path("/python")
"""Place of this Python inside, wherever it is outside."""

VARIABLES = {"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": f"{PYTHON}/lib"}
"""Environment variables: sets have the same order in each process, and shared objects are in one folder."""


class Shown(NamedTuple):
    """One visible thing. Things are added in the order of their list.

    Attributes:
        how: `bind` shows a folder or file, `device` a device, and `empty` an empty folder in place of another
            one.
        place: its path inside.
        source: its path outside, without symbolic links; nothing, if empty.
    """

    how: Literal["bind", "device", "empty"]
    place: str
    source: str = ""


def view(mounts: Mapping[str, Path]) -> list[Shown]:
    """Return everything visible: Python, and the folders of `mounts` by their paths inside.

    Raises `SandboxUnavailable`: this Python cannot be shown.
    """
    folders = [Shown("bind", place, str(folder.resolve())) for place, folder in mounts.items()]
    return [*system(), *folders, Shown("device", "/dev/null", "/dev/null")]


@functools.cache
def system() -> tuple[Shown, ...]:
    """Return the interpreter, the standard library without installed packages, and the shared objects that
    they load. Raises `SandboxUnavailable`."""
    program, library = _program(), Path(os.__file__).resolve().parent
    # Some systems have installed packages there. A link out of the library leads nowhere inside.
    packages = [library / name for name in ("site-packages", "dist-packages")]
    return (
        *(Shown("bind", _inside(each), str(each)) for each in (program, library)),
        *(Shown("empty", _inside(each)) for each in packages if each.is_dir() and not each.is_symlink()),
        *(Shown("bind", place, os.path.realpath(path)) for place, path in _shared_objects(program, library)),
    )


def interpreter() -> str:
    """Return the path of the Python interpreter inside. Raises `SandboxUnavailable`."""
    return _inside(_program())


def _program() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _inside(path: Path) -> str:
    """Return the place of a part of this Python, without its virtual environment."""
    prefix = Path(sys.base_prefix).resolve()
    if not path.is_relative_to(prefix):
        raise SandboxUnavailable(f"{path} is outside of Python's prefix {prefix}; {INSTEAD}")
    return str(PYTHON / path.relative_to(prefix))


def _shared_objects(program: Path, library: Path) -> Iterator[tuple[str, str]]:
    """Yield the place inside and the path outside of each shared object that Python and its modules need.

    The dynamic loader lists them without running anything.
    """
    modules = [each for each in library.glob("lib-dynload/*.so") if not each.name.startswith("_tkinter")]
    listing = subprocess.run(
        [program, "-c", ""],
        env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ":".join(map(str, modules))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for name, path in re.findall(r"^\t(?:(\S+) => )?(/.+) \(0x\w+\)$", listing, re.MULTILINE):
        if name or not Path(path).is_relative_to(library):
            name = name or Path(path).name
            yield path if name.startswith("ld-") else f"{PYTHON}/lib/{name}", path
