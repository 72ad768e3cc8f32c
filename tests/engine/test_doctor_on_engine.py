"""`speedrunner doctor` with the engine that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted_runs import speedrunner


@pytest.mark.slow
def test_this_machine_can_play_the_bundled_model(tmp_path: Path) -> None:
    done = speedrunner("doctor", "model=tiny", "env=scienceworld", "env.family=4", f"run.dir={tmp_path}/one")
    assert done.returncode == 0, done.stdout
    assert "ok           files of tiny: " in done.stdout
