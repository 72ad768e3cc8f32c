"""Isolates a process from the machine with bubblewrap: it sees this Python and passed folders, read-only.

There is no other way to isolate. An ordinary user who may create user namespaces can also install bubblewrap
without root, from conda-forge or Homebrew (docs/sandbox.md).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FIRST_VICTIM = ("/bin/sh", "-c", '{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; exec "$@"', "sh")
"""Prefix of a command line: if memory runs out, the kernel ends this process and its descendants first, and
not the engine."""

PYTHON = Path("/python")
"""Place of this Python inside, wherever it is outside."""

VARIABLES = {"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": f"{PYTHON}/lib"}
"""Environment variables: sets have the same order in each process, and shared objects are in one folder."""

INSTEAD = "set sandbox.kind=rlimits to run skills without isolation, where they can read all your files"

INSTALL = (
    "install it with apt or dnf, or without root with `conda install -c conda-forge bubblewrap`"
    " (docs/troubleshooting.md)"
)


class SandboxError(Exception):
    """A sandboxed process cannot be started here, or not now, or does not answer as it should."""


def bubblewrap_command(mounts: Mapping[str, Path]) -> list[str]:
    """Return the prefix of a command line that isolates the command with bubblewrap.

    Args:
        mounts: folders that it may read, by the places where it sees them.

    Raises `SandboxError`: bubblewrap is not installed, or this Python cannot be shown.
    """
    if (program := shutil.which("bwrap")) is None:
        raise SandboxError(
            f"skills cannot be isolated here: bubblewrap is not installed; {INSTALL}; or {INSTEAD}"
        )
    return [
        program,
        *("--unshare-all", "--unshare-user", "--cap-drop", "ALL"),
        *("--die-with-parent", "--hostname", "sandbox"),
        *(word for name, value in VARIABLES.items() for word in ("--setenv", name, value)),
        *show_python(),
        *(word for place, folder in mounts.items() for word in _show(folder.resolve(), place)),
        *("--dev-bind", "/dev/null", "/dev/null"),
        *("--remount-ro", "/"),
        "--",
    ]


@functools.cache
def show_python() -> tuple[str, ...]:
    """Return the options that show the interpreter, the standard library without installed packages, and the
    shared objects that they load. Raises `SandboxError`."""
    program, library = _program(), Path(os.__file__).resolve().parent
    # Some systems have installed packages there. A link out of the library leads nowhere inside.
    packages = [library / name for name in ("site-packages", "dist-packages")]
    hidden = [_inside(folder) for folder in packages if folder.is_dir() and not folder.is_symlink()]
    shown = [(path, _inside(path)) for path in (program, library)]
    objects = [(Path(path).resolve(), place) for place, path in _shared_objects(program, library)]
    return (
        *(word for path, place in shown for word in _show(path, place)),
        *(word for place in hidden for word in ("--tmpfs", place, "--remount-ro", place)),
        *(word for path, place in objects for word in _show(path, place)),
    )


def interpreter() -> str:
    """Return the path of the Python interpreter inside. Raises `SandboxError`."""
    return _inside(_program())


def _show(path: Path, place: str) -> tuple[str, str, str]:
    return "--ro-bind", str(path), place


def _program() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _inside(path: Path) -> str:
    """Return the place of a part of this Python, without its virtual environment."""
    prefix = Path(sys.base_prefix).resolve()
    if not path.is_relative_to(prefix):
        raise SandboxError(f"{path} is outside of Python's prefix {prefix}; {INSTEAD}")
    return str(PYTHON / path.relative_to(prefix))


def _shared_objects(program: Path, library: Path) -> Iterator[tuple[str, str]]:
    """Yield the place inside and the path outside of each shared object that Python and its modules need.

    The dynamic loader lists them without running anything.
    """
    modules = [path for path in library.glob("lib-dynload/*.so") if not path.name.startswith("_tkinter")]
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
