"""Running the recipes that make model folders."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable

from serving.errors import ServerFailed


def run_recipe(model: str, command: list[str], progress: Callable[[str], None]) -> None:
    """Run the command that makes a model's folder.

    Args:
        progress: called with each line that it prints.

    Raises:
        ServerFailed: it failed; with its last line and the command.
    """
    last = "no output"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                last = line.strip()
                progress(last)
    if process.returncode != 0:
        raise ServerFailed(
            f"the recipe of model {model!r} failed with status {process.returncode}: {last} "
            f"(command: {shlex.join(command)})"
        )
