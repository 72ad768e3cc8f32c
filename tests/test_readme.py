"""The README's commands run from top to bottom, the longest with fewer episodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT
from tests.processes import HANGS_S

README = (CHECKOUT / "README.md").read_text()


def commands() -> list[str]:
    (block,) = re.findall(r"^## Use it\n\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    return [line for line in block.splitlines() if line]


SHORTER = {"run experiment=demo ": "run.rollouts=20 run.eval_every=20 run.test_episodes=6"}
"""Settings that the test adds to commands that begin like this."""


def shortened(line: str) -> str:
    """Return a command with the settings of `SHORTER`."""
    command, _, comment = line.partition("#")
    added = (more for words, more in SHORTER.items() if command.startswith(f"speedrunner {words}"))
    return f"{command.rstrip()} {' '.join(added)} #{comment}"


@pytest.mark.slow
def test_its_list_of_commands_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(CHECKOUT / "docs")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in commands():
        done = subprocess.run(
            ["bash", "-c", shortened(line)], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=HANGS_S,
        )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{line}\n{done.stderr[-2000:]}"
    assert (tmp_path / "runs" / "mine" / "sleeps" / "0002.json").is_file()
