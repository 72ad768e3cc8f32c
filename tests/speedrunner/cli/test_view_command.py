"""`speedrunner view`, where a run cannot be read whole."""

from __future__ import annotations

import os
from pathlib import Path

from tests.scripted_runs import in_process
from tests.speedrunner.results.small_runs import learnt


def test_a_page_of_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    learnt(tmp_path / "run")
    os.mkfifo(tmp_path / "run/a")
    done = in_process("view", str(tmp_path / "run"), "--static", str(tmp_path / "pages"))
    assert done.returncode == 1
    (line, *_) = done.stderr.splitlines()
    assert " was left out: " in line
    assert "a pipe" in line
    assert "could not be written" not in done.stderr
