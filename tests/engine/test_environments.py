"""Short runs of each method in each environment as commands, with the random model and a real vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engine.endpoint import Endpoint
from speedrunner.store.records import Termination
from speedrunner.store.run_data import load
from tests.engine.conftest import ShortModelConfig
from tests.scripted_runs import check_finished, in_process

PLANNED = ["test/0000/0000", "test/0002/0000", "train/0000", "train/0001"]


ENVS = {
    "babyai": ("env=babyai",),
    "scienceworld": ("env=scienceworld", "env.family=4"),
    "crafter": ("env=crafter",),
}
PAPER = ("babyai", "scienceworld", "crafter")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "env"),
    [
        *zip(("opo", "asi", "asi_replay"), PAPER, strict=True),
        ("ace", "babyai"),
        *(("speedrunner", env) for env in ("scienceworld", "crafter")),
        ("voyager", "crafter"),
    ],
)
def test_a_run(
    method: str, env: str, short_model_config: ShortModelConfig, vllm_endpoint: Endpoint, tmp_path: Path
) -> None:
    run, calls = tmp_path / "run", 6 if method == "voyager" else 3
    done = in_process(
        *("run", *ENVS[env], f"method={method}", short_model_config(max_calls=calls, string_tokens=24)),
        *(f"serving.url={vllm_endpoint}", f"run.dir={run}", "run.in_flight=2"),
        *("run.rollouts=2", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=1"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "they agree to the token." in done.stdout
    check_finished(run, PLANNED, sleeps=1)
    data = load(run)
    assert {row.status for row in data.requests} == {"ok"}
    # Untrained, it writes nonsense, but within the grammar; in ScienceWorld it may submit.
    assert {row.termination for row in data.episodes} <= {Termination.CALL_LIMIT, Termination.SUBMITTED}
    roles = {turn.role for played in data.trajectories() for turn in played.turns}
    assert roles <= ({"curriculum", "programmer", "critic"} if method == "voyager" else {"actor"})
    for played in (*data.trajectories(), *data.evaluations()):
        assert 1 <= len(played.turns) <= calls
        assert played.outcome is not None
        assert all(turn.executed is not None for turn in played.turns)
