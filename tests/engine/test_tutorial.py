"""The commands of the tutorial, in its order, on a real engine with the random model."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from serving.model_configs import CHECKOUT
from tests.scripted_runs import in_process

pytestmark = pytest.mark.slow

BLOCK = re.compile(r"^```(python)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_each_command_and_the_program_work(
    vllm_endpoint: Endpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
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
                served = [f"serving.url={vllm_endpoint}"] * (words[0] in ("run", "episode"))
                done = in_process(*words, *served, cwd=tmp_path)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
