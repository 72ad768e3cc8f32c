"""Two replicas behind one address, as a real vLLM serves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.deployment import ServiceOptions, deploy
from serving.engine.cache_config import CacheConfig
from serving.engine.metrics import read_metrics
from serving.model_config import ModelConfig
from serving.model_configs import adapt

pytestmark = pytest.mark.slow

GIB_OF_BLOCKS = 16_384
"""Blocks of 32 tokens in the 1 GiB that each replica of the random model gets (VLLM_CPU_KVCACHE_SPACE)."""


async def test_each_replica_admits_as_much_as_its_own_cache_holds(
    tiny_model_config: ModelConfig, tmp_path: Path
) -> None:
    model_config = adapt(tiny_model_config, replicas=2)
    async with deploy(model_config, ServiceOptions(), log=tmp_path / "server.log") as deployment:
        metrics = await read_metrics(deployment.endpoint)
        assert metrics.caches() == [CacheConfig(32, GIB_OF_BLOCKS, True, 32)] * 2
        assert [replica.capacity for replica in deployment.replicas] == [GIB_OF_BLOCKS - 1] * 2
        assert [replica.address for replica in deployment.replicas] == [0, 1]
        # Each shows the used share of its cache, which the watchdog looks at.
        assert set(metrics.activity().done) == {None, 0, 1}
