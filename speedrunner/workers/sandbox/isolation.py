"""Finds out which kind of isolation works on this machine."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.sandbox import bubblewrap, namespaces
from speedrunner.workers.sandbox.settings import (
    INSTEAD,
    Kind,
    Level,
    Sandbox,
    SandboxNotStarted,
    SandboxUnavailable,
)
from speedrunner.workers.sandbox.view import interpreter

ISOLATING: dict[Level, Callable[[Mapping[str, Path]], list[str]]] = {
    "bubblewrap": bubblewrap.command,
    "namespaces": namespaces.command,
}
"""Functions that return the isolating prefix of a command line, in order of preference."""

NAMES: dict[Level, str] = {"bubblewrap": "bubblewrap", "namespaces": "user namespaces"}

TRIAL_LIMIT_S = 45.0
"""Seconds that a process without work may take."""


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
    raise SandboxUnavailable(
        f"skills cannot be isolated here: {'; '.join(problems)}; {namespaces.advice()}; or {INSTEAD}"
    )


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
