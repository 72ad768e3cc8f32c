"""Short runs of the larger environments as commands, with the tiny model and a real vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from speedrunner.store.data import load
from speedrunner.store.records import Ending
from tests.engine.conftest import ShortCard
from tests.scripted_runs import check_finished, speedrunner

PLANNED = ["test/0000/0000", "test/0002/0000", "train/0000", "train/0001"]


@pytest.mark.parametrize("env", [("env=scienceworld", "env.family=4"), ("env=crafter",)])
def test_a_run(env: tuple[str, ...], short_card: ShortCard, vllm_endpoint: Endpoint, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = speedrunner(
        *("run", *env, "method=speedrunner", short_card(max_calls=3, string_tokens=24)),
        *(f"serving.url={vllm_endpoint}", f"run.dir={run}", "run.in_flight=2"),
        *("run.rollouts=2", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=1"),
        timeout_s=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "they agree to the token." in done.stdout
    check_finished(run, PLANNED, sleeps=1)
    data = load(run)
    assert {row.status for row in data.requests} == {"ok"}
    # Untrained, it writes nonsense, but within the grammar; in ScienceWorld it may submit.
    assert {row.ending for row in data.episodes} <= {Ending.CALL_LIMIT, Ending.SUBMITTED}
    for played in (*data.trajectories(), *data.evaluations()):
        assert 1 <= len(played.turns) <= 3
        assert played.outcome is not None
        assert all(turn.executed is not None for turn in played.turns)
