"""The benchmark of episodes in flight: what it plays, and what it reports."""

from __future__ import annotations

import pytest

from serving.model_configs import load_model_config
from speedrunner.config.schema import InvalidConfig
from tests.bench.__main__ import SIMULATED
from tests.bench.scaling import ANSWER_TOKENS, measure_job, measure_scaling, simulated_h200

SMALL = ("run.rollouts=2", "run.sleep_every=2", "run.eval_every=2", "run.test_episodes=1", "run.in_flight=2")
FAST = 1000.0
"""Factor of the simulated speed, with which an answer takes almost no time."""


def test_only_models_for_gpus_are_simulated() -> None:
    with pytest.raises(InvalidConfig, match="model=tiny: choose one with GPUs"):
        simulated_h200(load_model_config("tiny"), 1)


@pytest.mark.process
@pytest.mark.slow
async def test_each_number_of_episodes_of_an_environment_is_a_level() -> None:
    found = await measure_scaling(SIMULATED, ["babyai"], [1, 3], 4, 2, FAST, lambda line: None)
    levels, (action,) = (table.rows for table in found.tables)
    assert [(level.env, level.in_flight, level.requests) for level in levels] == [
        ("babyai", 1, 4),
        ("babyai", 3, 12),
    ]
    for level in levels:
        assert level.client_ms > 0
        assert level.worker_mib > 0
        assert level.engine_s > 0
    assert action.env == "babyai"
    engine = found.facts["engine"]
    assert (engine.replicas, engine.cache.block_size, engine.answer_tokens) == (2, 784, ANSWER_TOKENS)


@pytest.mark.process
@pytest.mark.slow
async def test_a_job_plays_its_runs_to_their_ends() -> None:
    what = ["experiment=main", "env=babyai", "run.seed=0", "method=speedrunner", *SMALL]
    calls = ["model.actor.max_calls=3", "model.inducer.max_calls=3"]
    found = await measure_job([*what, *calls, *SIMULATED], 4, 1, FAST, lambda line: None)
    (job,) = found.tables[0].rows
    assert (job.runs, job.episodes, job.sleeps) == (1, 4, 1)
    assert job.requests > 4
    assert job.client_ms > 0
    assert found.notes == []
