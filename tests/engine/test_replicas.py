"""Two replicas behind one address, as a real vLLM serves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from serving.deployment import ServiceOptions, deploy
from serving.engine.capacity import CacheConfig
from serving.engine.metrics import read_metrics
from serving.model_config import ModelConfig
from serving.model_configs import adapt
from speedrunner.results.ledger import token_line
from speedrunner.store.run_data import load
from tests.engine.watched_runs import PLANNED, Command
from tests.scripted_runs import check_finished

pytestmark = pytest.mark.slow

GIB_OF_BLOCKS = 16_384
"""Blocks of 32 tokens in the 1 GiB that each replica of the random model gets (VLLM_CPU_KVCACHE_SPACE)."""


async def test_replicas_have_their_own_caches_and_keep_each_conversation(
    start: Callable[..., Command], tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    model_config = adapt(tiny_model_config, replicas=2)
    async with deploy(model_config, ServiceOptions(), log=tmp_path / "server.log") as deployment:
        metrics = await read_metrics(deployment.endpoint)
        assert metrics.caches() == [CacheConfig(32, GIB_OF_BLOCKS, True, 32)] * 2
        assert [replica.capacity for replica in deployment.replicas] == [GIB_OF_BLOCKS - 1] * 2
        assert [replica.address for replica in deployment.replicas] == [0, 1]
        # Each shows the used share of its cache, which the watchdog looks at.
        assert sum("kv_cache_usage_perc" in line for line in metrics.progress()) == 2
        run = start("model.replicas=2", f"serving.url={deployment.endpoint}")
        done = run.end()
    assert (done.returncode, done.stderr) == (0, "")
    assert "they agree to the token" in done.stdout
    check_finished(run.run, PLANNED, sleeps=1)
    rows = load(run.run).requests
    by_episode: dict[str, set[str]] = {}
    for row in rows:
        if row.labels["role"] == "actor":
            by_episode.setdefault(row.labels["episode"], set()).add(row.labels["replica"])
    assert {len(replicas) for replicas in by_episode.values()} == {1}
    assert set.union(*by_episode.values()) == {"0", "1"}
    assert (token_line(load(run.run), {row.request for row in rows}).cache_share or 0) >= 0.98
