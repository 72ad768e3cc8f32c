"""Finds out which kind of isolation works on this machine, and the command line that isolates a process."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.sandbox.settings import (
    INSTEAD,
    Kind,
    Level,
    Sandbox,
    SandboxNotStarted,
    SandboxUnavailable,
)
from speedrunner.workers.sandbox.view import VARIABLES, Shown, interpreter, view

FIRST_VICTIM = ("/bin/sh", "-c", '{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; exec "$@"', "sh")
"""Prefix of a command line: if memory runs out, the kernel ends this process and its descendants first, and
not the engine."""

LAUNCHER = Path(__file__).with_name("launcher.py")
"""Isolates with user namespaces, if bubblewrap is not installed."""

ADVICE = "ask the administrators to allow user namespaces, or to install bubblewrap (docs/troubleshooting.md)"

TRIAL_LIMIT_S = 45.0
"""Seconds that a process without work may take."""


def bubblewrap_command(mounts: Mapping[str, Path]) -> list[str]:
    """Return the prefix of a command line that isolates the command with bubblewrap.

    Args:
        mounts: folders that it may read, by the places where it sees them.

    Raises `SandboxUnavailable`: bubblewrap is not installed, or this Python cannot be shown.
    """
    return [
        find_bubblewrap(),
        *("--unshare-all", "--unshare-user", "--cap-drop", "ALL"),
        *("--die-with-parent", "--hostname", "sandbox"),
        *(word for name, value in VARIABLES.items() for word in ("--setenv", name, value)),
        *(word for shown in view(mounts) for word in _options(shown)),
        *("--remount-ro", "/"),
        "--",
    ]


@functools.cache
def find_bubblewrap() -> str:
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
        case "empty":
            return "--tmpfs", shown.place, "--remount-ro", shown.place


def namespaces_command(mounts: Mapping[str, Path]) -> list[str]:
    """Return such a prefix that isolates with user namespaces. Raises `SandboxUnavailable`."""
    return [
        *(getattr(sys, "_base_executable", sys.executable), "-I", "-S", str(LAUNCHER)),
        *(word for name, value in VARIABLES.items() for word in ("variable", name, value)),
        *(word for shown in view(mounts) for word in shown),
        "--",
    ]


ISOLATING: dict[Level, Callable[[Mapping[str, Path]], list[str]]] = {
    "bubblewrap": bubblewrap_command,
    "namespaces": namespaces_command,
}
"""Functions that return the isolating prefix of a command line, in order of preference."""

NAMES: dict[Level, str] = {"bubblewrap": "bubblewrap", "namespaces": "user namespaces"}


def sandbox_limits(config: SandboxConfig) -> Sandbox:
    """Return the limits of each sandboxed process on this machine. Raises the same as `find_isolation`."""
    return Sandbox(find_isolation(config.kind), config.memory_mb)


def find_isolation(kind: Kind) -> Level:
    """Return the level that a kind of sandbox has on this machine.

    Raises:
        SandboxUnavailable: no isolation works here; the text says what to do.
        SandboxNotStarted: the machine cannot start a process now.
    """
    return _find_level() if kind == "isolated" else kind


@functools.cache
def _find_level() -> Level:
    """Return the first level that works; the result is cached in each process."""
    problems = []
    for level in ISOLATING:
        if (problem := _problem(level)) is None:
            return level
        problems.append(problem)
    raise SandboxUnavailable(f"skills cannot be isolated here: {'; '.join(problems)}; {ADVICE}; or {INSTEAD}")


def _problem(level: Level) -> str | None:
    """Return why an empty process cannot be isolated at this level; `None` if it can."""
    try:
        command = ISOLATING[level]({})
        subprocess.run(
            [*command, interpreter(), "-I", "-S", "-c", ""],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=TRIAL_LIMIT_S,
        )
    except SandboxUnavailable as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        *_, last = error.stderr.decode(errors="replace").strip().split("\n")
        return f"{NAMES[level]} cannot be used ({last or f'exit status {error.returncode}'})"
    except subprocess.TimeoutExpired:
        return f"{NAMES[level]} cannot be used (no process within {TRIAL_LIMIT_S:g} s)"
    except OSError as error:
        raise SandboxNotStarted(f"cannot start a sandboxed process: {error}") from error
    return None
