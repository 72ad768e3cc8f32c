"""`speedrunner doctor` with the engine that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.model_configs import CHECKOUT
from tests.scripted_runs import speedrunner


@pytest.mark.slow
def test_this_machine_can_play_the_bundled_model(tmp_path: Path) -> None:
    done = speedrunner("doctor", "model=tiny", "env=scienceworld", "env.family=4", f"run.dir={tmp_path}/one")
    assert done.returncode == 0, done.stdout
    assert "ok           engine flags of tiny: vLLM accepts all " in done.stdout


@pytest.mark.slow
def test_a_flag_that_the_engine_does_not_know_is_named(tmp_path: Path) -> None:
    model_config = tmp_path / "model.yaml"
    text = (CHECKOUT / "models/tiny.yaml").read_text()
    model_config.write_text(
        text.replace("    max-num-seqs: 32", "    max-num-seqs: many\n    max-num-seqz: 32")
    )
    done = speedrunner("doctor", f"model.name={model_config}", f"run.dir={tmp_path}/one")
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if "engine flags" in line)
    assert line.startswith("FAILED       engine flags of tiny: unknown flag --max-num-seqz; ")
    assert "'many'" in line
