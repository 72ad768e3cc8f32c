"""The README holds: its commands run from top to bottom as they stand there, with the files that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from serving.cards import CHECKOUT
from speedrunner.cli.main import app

README = (CHECKOUT / "README.md").read_text()


def commands() -> list[str]:
    (block,) = re.findall(r"^## Use it\n\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    return [line for line in block.splitlines() if line]


def test_its_list_names_every_command() -> None:
    named = {line.split()[1] for line in commands()}
    assert set(get_command(app).commands) - named == {"version"}  # type: ignore[attr-defined]


def test_every_file_that_it_links_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert [link for link in links if "://" not in link and not (CHECKOUT / link).exists()] == []


@pytest.mark.slow
def test_its_list_of_commands_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(CHECKOUT / "docs")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in commands():
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{line}\n{done.stderr[-2000:]}"
    assert (tmp_path / "runs" / "mine" / "sleeps" / "0002.json").is_file()
