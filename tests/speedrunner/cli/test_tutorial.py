"""The commands of the tutorial, in its order, with a scripted engine in place of the model's server."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT
from tests.scripted_engine import Answer, Request, call
from tests.scripted_runs import Runs, in_process

pytestmark = pytest.mark.process

BLOCK = re.compile(r"^```(python)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def answer(request: Request) -> Answer:
    """Dig for the treasure; the inducer finishes at once."""
    return call("finish") if "write_skill" in request.tools else call("dig")


def test_each_command_and_the_program_work(
    shared_corridor: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    endpoint = shared_corridor(answer).server.endpoint
    blocks = BLOCK.findall((CHECKOUT / "docs/tutorial.md").read_text())
    for language, text in blocks[1:]:  # the first one makes the folder
        if language:
            (tmp_path / "analysis.py").write_text(text)
            runpy.run_path("analysis.py")
            assert "diary" in capsys.readouterr().out
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line, comments=True)
            if program == "python":
                done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
            else:
                served = [f"serving.url={endpoint}"] * (words[0] in ("run", "episode"))
                done = in_process(*words, *served, cwd=tmp_path)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
