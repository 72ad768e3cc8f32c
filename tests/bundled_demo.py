"""The demo of the README, played once for all tests that look at it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.scripted_runs import speedrunner


@dataclass(frozen=True)
class Demo:
    """A finished run of `experiment=demo` with the bundled model and a real vLLM.

    Attributes:
        run: its directory, `runs/speedrunner` in a folder of its own.
        done: the command with what it printed.
    """

    run: Path
    done: subprocess.CompletedProcess[str]


def play_demo(folder: Path) -> Demo:
    """Play the demo in a new folder."""
    run = folder / "runs" / "speedrunner"
    done = speedrunner("run", "experiment=demo", f"run.dir={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    return Demo(run, done)
